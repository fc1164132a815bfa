//! Nodes, pools and tenants.

use std::io::Write as _;

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Condition};
use kube::ResourceExt as _;

use super::missing;
use crate::{
    admission::Gate,
    costs::{self, Machine},
    failure::Failure,
    input::Input,
    output::Output,
    table::{BAD, BOLD, GOOD, NAME, NOTE, counted, shortened},
    workload::controller,
};

/// On a pod or a node: leave it alone.
const DO_NOT_DISRUPT: [&str; 2] = ["croft.dev/do-not-disrupt", "karpenter.sh/do-not-disrupt"];

pub(super) fn node(input: &Input, name: &str, out: &mut Output) -> Result<(), Failure> {
    let Some(node) = input.nodes.get("", name) else {
        return Err(missing("node", name, input.nodes.iter().filter_map(|n| n.metadata.name.as_deref())));
    };
    let gate = Gate::new(input)?;
    let machine = costs::machine(&node.object, input, &croft_cloud::builtin_catalog());
    let ready = if machine.ready { "ready" } else { "not ready" };
    writeln!(
        out,
        "{BOLD}Node {name}{BOLD:#}: {ready}, {} in {}, {}",
        machine.instance_type, machine.zone, machine.capacity_type
    )?;
    let Some(pool_name) = &machine.pool else {
        writeln!(out, "  it carries no pool's label: Croft leaves it alone")?;
        return Ok(());
    };
    let users = users(input, pool_name);
    writeln!(
        out,
        "  pool {NAME}{pool_name}{NAME:#}, used by {}",
        if users.is_empty() { "no tenant".to_owned() } else { shortened(&users, 5) }
    )?;
    writeln!(
        out,
        "  costs {}",
        machine.price.map_or_else(
            || "nobody knows what".to_owned(),
            |p| format!("{}${p}/h", costs::mark(machine.estimated))
        )
    )?;
    for finding in croft_policy::audit::node(gate.tenants(), &croft_api::convert::policy::node(&node.object))
    {
        writeln!(out, "  {BAD}{}{BAD:#}", finding.message)?;
    }
    match machine.claim.as_ref().and_then(|claim| input.claims.get("", claim)) {
        Some(claim) => {
            writeln!(out, "  NodeClaim {}", claim.name_any())?;
            conditions(claim.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default(), out)?;
        }
        None => writeln!(out, "  no NodeClaim is its own: Croft didn't launch it and won't give it back")?,
    }
    let pods: Vec<&Pod> = costs::active(input).filter(|p| costs::node_of(p) == Some(name)).collect();
    let daemons = pods.iter().filter(|p| is_daemon(p)).count();
    let others: Vec<&&Pod> = pods.iter().filter(|p| !is_daemon(p)).collect();
    for pod in &pods {
        for message in costs::misplaced(gate.tenants(), pod) {
            writeln!(
                out,
                "  {BAD}pod {}/{} mustn't be there{BAD:#}: {message}",
                pod.namespace().unwrap_or_default(),
                pod.name_any()
            )?;
        }
    }
    if others.is_empty() {
        let after = input
            .pools
            .get("", pool_name)
            .map(|p| p.spec.disruption.consolidate_after.clone())
            .unwrap_or_default();
        if after == "Never" {
            writeln!(
                out,
                "  it is empty ({} besides) and stays: the pool's consolidateAfter is Never",
                counted(daemons, "DaemonSet pod")
            )?;
        } else {
            writeln!(
                out,
                "  it is empty ({} besides) and goes when it has been so for {after}",
                counted(daemons, "DaemonSet pod")
            )?;
        }
        return Ok(());
    }
    let names: Vec<String> =
        others.iter().map(|p| format!("{}/{}", p.namespace().unwrap_or_default(), p.name_any())).collect();
    let shown = format!("{}: {}", counted(others.len(), "pod"), shortened(&names, 5));
    match machine.claim {
        Some(_) => {
            writeln!(out, "  it has {shown}")?;
            if let Some(why) = crate::simulate::why_node(input, croft_cloud::builtin_catalog(), name)? {
                writeln!(out, "  {why}")?;
            }
        }
        None => writeln!(out, "  it stays for {shown}")?,
    }
    for pod in others {
        let held =
            DO_NOT_DISRUPT.iter().find(|key| pod.annotations().get(**key).is_some_and(|v| v == "true"));
        if let Some(key) = held {
            writeln!(
                out,
                "  {NOTE}pod {}/{} carries {key}{NOTE:#}",
                pod.namespace().unwrap_or_default(),
                pod.name_any()
            )?;
        }
        if controller(&pod.metadata).is_none() {
            writeln!(
                out,
                "  {NOTE}pod {}/{} has no controller{NOTE:#}: nobody would make it anew",
                pod.namespace().unwrap_or_default(),
                pod.name_any()
            )?;
        }
    }
    Ok(())
}

pub(super) fn pool(input: &Input, name: &str, out: &mut Output) -> Result<(), Failure> {
    let Some(pool) = input.pools.get("", name) else {
        return Err(missing(
            "TenantPool",
            name,
            input.pools.iter().filter_map(|p| p.metadata.name.as_deref()),
        ));
    };
    let value = croft_api::convert::scheduler::value(pool);
    let taints: Vec<String> = croft_api::convert::scheduler::taints(pool)
        .iter()
        .map(|t| format!("{}={}:{}", t.key, t.value.clone().unwrap_or_default(), t.effect))
        .collect();
    writeln!(
        out,
        "{BOLD}TenantPool {name}{BOLD:#}: label {}={value}, taints {}",
        pool.spec.key,
        taints.join(", ")
    )?;
    let users = users(input, name);
    writeln!(
        out,
        "  used by {}",
        if users.is_empty() { "no tenant".to_owned() } else { shortened(&users, 10) }
    )?;
    if !pool.spec.shared_with.is_empty() {
        writeln!(out, "  shared with the namespaces {}", shortened(&pool.spec.shared_with, 10))?;
    }
    writeln!(out, "  its nodes are made by {:?}", pool.spec.provisioner)?;
    let machines = costs::machines(input, &croft_cloud::builtin_catalog());
    let its: Vec<&Machine> = machines.iter().filter(|m| m.pool.as_deref() == Some(name)).collect();
    writeln!(out, "  {}, {}", counted(its.len(), "node"), costs::shown(costs::cost(its.iter().copied())))?;
    for (resource, limit) in &pool.spec.limits {
        let used = match resource.as_str() {
            croft_scheduler::LIMIT_NODES => its.len().to_string(),
            croft_scheduler::LIMIT_COST => costs::shown(costs::cost(its.iter().copied())),
            _ => capacity(input, &its, resource),
        };
        writeln!(out, "  limit {resource}: {used} of {}", limit.0)?;
    }
    conditions(pool.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default(), out)?;
    Ok(())
}

pub(super) fn tenant(input: &Input, name: &str, out: &mut Output) -> Result<(), Failure> {
    let Some(tenant) = input.tenants.get("", name) else {
        return Err(missing("Tenant", name, input.tenants.iter().filter_map(|t| t.metadata.name.as_deref())));
    };
    let gate = Gate::new(input)?;
    let owners = costs::owners(input, gate.tenants());
    let owned: Vec<&String> =
        owners.iter().filter(|(_, owner)| *owner == name).map(|(namespace, _)| namespace).collect();
    writeln!(out, "{BOLD}Tenant {name}{BOLD:#}: {}", counted(owned.len(), "namespace"))?;
    if !owned.is_empty() {
        writeln!(out, "  {}", shortened(&owned, 10))?;
    }
    for claimed in &tenant.spec.namespaces {
        match owners.get(claimed) {
            Some(owner) if owner != name => {
                writeln!(
                    out,
                    "  {NOTE}it claims {claimed} too{NOTE:#}, which is the older tenant {owner}'s"
                )?;
            }
            None if input.namespaces.get("", claimed).is_none() => {
                writeln!(out, "  it claims {claimed}, which isn't there yet")?
            }
            None => writeln!(out, "  {NOTE}it claims {claimed}{NOTE:#}, which is exempt")?,
            Some(_) => {}
        }
    }
    let machines = costs::machines(input, &croft_cloud::builtin_catalog());
    for (i, pool) in tenant.spec.pools.iter().enumerate() {
        let default = if i == 0 { ", the default" } else { "" };
        if input.pools.get("", pool).is_none() {
            writeln!(
                out,
                "  {BAD}pool {pool} isn't there{BAD:#}: pods that need it are refused; make the TenantPool"
            )?;
            continue;
        }
        let its: Vec<&Machine> = machines.iter().filter(|m| m.pool.as_deref() == Some(pool)).collect();
        writeln!(
            out,
            "  pool {NAME}{pool}{NAME:#}{default}: {}, {}",
            counted(its.len(), "node"),
            costs::shown(costs::cost(its.iter().copied()))
        )?;
    }
    let pods: Vec<&Pod> = costs::active(input)
        .filter(|p| p.namespace().is_some_and(|n| owners.get(&n).is_some_and(|o| o == name)))
        .collect();
    let pending = pods.iter().filter(|p| costs::node_of(p).is_none()).count();
    writeln!(out, "  {}, {pending} of them without a node", counted(pods.len(), "pod"))?;
    for pod in &pods {
        for message in costs::misplaced(gate.tenants(), pod) {
            writeln!(
                out,
                "  {BAD}pod {}/{} is out of place{BAD:#}: {message}",
                pod.namespace().unwrap_or_default(),
                pod.name_any()
            )?;
        }
    }
    conditions(tenant.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default(), out)?;
    Ok(())
}

fn users(input: &Input, pool: &str) -> Vec<String> {
    input.tenants.iter().filter(|t| t.spec.pools.iter().any(|p| p == pool)).map(|t| t.name_any()).collect()
}

fn is_daemon(pod: &Pod) -> bool {
    controller(&pod.metadata).is_some_and(|o| o.kind == "DaemonSet")
}

/// What the nodes have together of a resource: that is what limits count.
fn capacity(input: &Input, machines: &[&Machine], resource: &str) -> String {
    let amounts: Vec<_> = machines
        .iter()
        .filter_map(|m| input.nodes.get("", &m.name)?.status.as_ref()?.capacity.as_ref()?.get(resource))
        .collect();
    crate::input::quantity::sum(resource, &amounts).map_or_else(|| "?".to_owned(), |q| q.0)
}

fn conditions(conditions: &[Condition], out: &mut Output) -> Result<(), Failure> {
    for condition in conditions {
        let style = if condition.status == "True" { GOOD } else { NOTE };
        write!(out, "  {style}{}={}{style:#} ({})", condition.type_, condition.status, condition.reason)?;
        writeln!(
            out,
            "{}",
            if condition.message.is_empty() { String::new() } else { format!(": {}", condition.message) }
        )?;
    }
    Ok(())
}
