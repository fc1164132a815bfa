//! The plan in words: what is removed, in which order, and what it means for tenants' pods.

use std::io::Write as _;

use croft_scheduler::Price;

use super::found::{Found, Paid, is_launched};
use crate::{
    aws::Instances,
    costs::estimate_mark,
    output::Output,
    table::{BOLD, NOTE, counted, shortened},
};

/// At most this many objects are named.
const NAMED: usize = 8;

/// A step: what is done, and what it means.
struct Step {
    title: &'static str,
    what: String,
    means: String,
}

/// Writes the plan.
///
/// # Errors
/// If it can't be written.
pub(super) fn write(found: &Found, keep: bool, crds: bool, out: &mut Output) -> anyhow::Result<()> {
    writeln!(out, "{BOLD}Croft in namespace {} is removed in this order{BOLD:#}", found.namespace)?;
    for (n, Step { title, what, means }) in steps(found, keep, crds).iter().enumerate() {
        writeln!(out, "{:>3}. {BOLD}{title}{BOLD:#}: {what}", n + 1)?;
        for line in means.lines() {
            writeln!(out, "     {line}")?;
        }
    }
    let paid = found.paid();
    if !paid.is_empty() {
        let fate = if keep { "left running, for you to pay for and to terminate" } else { "terminated" };
        writeln!(out, "{} are {fate}, {} in all:", counted(paid.len(), "instance"), total(&paid))?;
        for instance in &paid {
            writeln!(out, "     {}", instance.line())?;
        }
    }
    if let Instances::Unknown(why) = &found.instances {
        writeln!(out, "{NOTE}instances in AWS{NOTE:#}: {why}; the list is that of NodeClaims and nodes")?;
    }
    Ok(())
}

/// Why nothing is removed.
pub(super) fn refusal(found: &Found, keep: bool) -> Option<String> {
    let paid = found.paid();
    if keep || paid.is_empty() && found.claims.is_empty() || found.leader.is_some() {
        return None;
    }
    let ids: Vec<&str> = paid.iter().map(|paid| paid.id.as_str()).collect();
    Some(format!(
        "no controller leads, so nothing would drain and terminate {} ({}, {}): start it (kubectl -n {} scale deployment \
         croft-controller --replicas=2) and run the command again; or hand the instances over with --keep-instances",
        counted(ids.len().max(found.claims.len()), "instance"),
        shortened(&ids, NAMED),
        total(&paid),
        found.namespace
    ))
}

/// The sum of prices in words.
fn total(paid: &[Paid]) -> String {
    let sum = paid.iter().filter_map(|paid| paid.price).fold(Price::default(), |sum, price| sum + price);
    let unknown = paid.iter().filter(|paid| paid.price.is_none()).count();
    let estimated = paid.iter().any(|paid| paid.estimated);
    let text = format!("{}${sum}/h", estimate_mark(estimated));
    if unknown == 0 { text } else { format!("{text} and {unknown} of unknown price") }
}

fn steps(found: &Found, keep: bool, crds: bool) -> Vec<Step> {
    let Found { classes, configs, namespaces, parts, .. } = found;
    let mut steps = if keep { handing_over(found) } else { draining(found) };
    steps.push(Step {
        title: "classes and settings",
        what: format!("{}, {}", listed("EC2NodeClass", classes), listed("CroftConfig", configs)),
        means: String::new(),
    });
    let enforcement = parts.iter().filter(|part| part.enforces).count();
    steps.push(Step {
        title: "policies and webhook configurations",
        what: counted(enforcement, "object"),
        means: "from here on nothing isolates tenants".to_owned(),
    });
    if !found.tenant_objects.is_empty() {
        steps.push(Step {
            title: "objects in tenants' namespaces",
            what: listed("object", &found.tenant_objects),
            means: "objects that others wrote there stay".to_owned(),
        });
    }
    steps.push(Step {
        title: "namespaces and DaemonSets",
        what: listed("namespace", namespaces),
        means: if keep {
            "their label and annotations of Croft are removed; DaemonSets stay as they are".to_owned()
        } else {
            "their label and annotations of Croft are removed, and what was injected into DaemonSets"
                .to_owned()
        },
    });
    let own = parts.iter().filter(|part| !part.enforces && part.helm.is_none()).count();
    let helm = parts.iter().filter(|part| !part.enforces && part.helm.is_some()).count();
    steps.push(Step {
        title: "processes and rights",
        what: counted(own, "object"),
        means: if helm == 0 {
            String::new()
        } else {
            format!("{helm} more belong to Helm, and are left to helm uninstall")
        },
    });
    if crds {
        steps.push(Step {
            title: "CRDs",
            what: listed("CRD", &found.crds),
            means: "with them every object of these kinds".to_owned(),
        });
    }
    steps
}

/// The first steps, by which instances stay.
fn handing_over(found: &Found) -> Vec<Step> {
    vec![
        Step {
            title: "controller",
            what: "stopped".to_owned(),
            means: "it would terminate the instances of deleted NodeClaims".to_owned(),
        },
        Step {
            title: "NodeClaims",
            what: format!("{} released and deleted", counted(found.claims.len(), "NodeClaim")),
            means: format!(
                "{} keep their labels and taints; {} run on",
                counted(launched(found), "node"),
                counted(found.pods, "pod")
            ),
        },
        tenants(found),
        Step {
            title: "TenantPools",
            what: listed("TenantPool", &found.pools),
            means: "nothing scales, replaces or repairs the nodes any more".to_owned(),
        },
    ]
}

/// The first steps, by which instances are drained and terminated.
fn draining(found: &Found) -> Vec<Step> {
    let nodes = launched(found).max(found.claims.len());
    let means = if nodes == 0 {
        "they have no nodes that Croft launched; others keep their labels and taints".to_owned()
    } else {
        format!(
            "{} on {} are evicted within their PodDisruptionBudgets, and their instances terminated\nthe pods are created \
             again on nodes of no pool, of which {} ready: pods that don't fit there stay pending",
            counted(found.pods, "pod"),
            counted(nodes, "node"),
            if found.other_nodes == 1 { "1 is".to_owned() } else { format!("{} are", found.other_nodes) },
        )
    };
    vec![tenants(found), Step { title: "TenantPools", what: listed("TenantPool", &found.pools), means }]
}

fn tenants(found: &Found) -> Step {
    let means = if found.tenants.is_empty() {
        ""
    } else {
        "new pods of their namespaces are no longer placed in pools; running pods stay, and pools' taints keep other pods away"
    };
    Step { title: "Tenants", what: listed("Tenant", &found.tenants), means: means.to_owned() }
}

/// Number of nodes that Croft launched.
fn launched(found: &Found) -> usize {
    found.nodes.iter().filter(|node| is_launched(node)).count()
}

fn listed(kind: &str, names: &[String]) -> String {
    if names.is_empty() {
        return format!("no {kind}");
    }
    format!("{}: {}", counted(names.len(), kind), shortened(names, NAMED))
}

/// The remainder, each part with the command that removes it.
pub(super) fn remaining(found: &Found, crds: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for (release, namespace) in found.releases() {
        lines.push(format!(
            "next: helm uninstall {release} --namespace {namespace} --wait; then run croft uninstall --yes again"
        ));
    }
    let paid = found.paid();
    if !paid.is_empty() {
        lines.push(format!(
            "{} run on, {}, and are yours to terminate:",
            counted(paid.len(), "instance"),
            total(&paid)
        ));
        lines.extend(paid.iter().map(|paid| format!("  {}", paid.line())));
        let ids: Vec<&str> = paid.iter().map(|paid| paid.id.as_str()).collect();
        lines.push(format!("  aws ec2 terminate-instances --instance-ids {}", ids.join(" ")));
    }
    if !crds && !found.crds.is_empty() {
        lines.push(format!(
            "the CRDs are kept: croft uninstall --yes --crds removes {}",
            counted(found.crds.len(), "CRD")
        ));
    }
    lines.push(format!(
        "launch templates and instance profiles cost nothing and may be left in AWS: their tag croft.dev/cluster is {}",
        found.cluster_uid
    ));
    lines.push(format!("the namespace is kept: kubectl delete namespace {}", found.namespace));
    lines
}
