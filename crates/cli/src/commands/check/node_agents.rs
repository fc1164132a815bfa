//! Pods that run on every node today, and that the taints of pools or Croft's admission would keep off the pools' nodes.

use croft_api::TenantPool;
use croft_inspect::{
    admission::{Admission, Outcome, Verdict},
    workload::prototype,
};
use croft_manifest::{Input, LoadOptions, Origin, parse};
use croft_policy::definitions::POOL_NAME_LABEL;
use k8s_openapi::api::core::v1::{PodSpec, Toleration};
use kube::{Client, ResourceExt as _};

use crate::{
    cluster_reader::read_daemon_sets,
    commands::check::report::{Finding, Problem, fail},
    failure::told,
    table::{counted, shortened},
};

/// At most this many objects are named.
const NAMED: usize = 5;
/// A tenant and a pool, with which admission acts as in a cluster that has some.
const EXAMPLE: &str = "
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: croft-preflight}
spec: {namespaces: [croft-preflight], pools: [croft-preflight]}
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: croft-preflight}
spec: {provisioner: None}
";

/// The DaemonSets of a cluster with Croft that admission keeps off the pools' nodes. `namespace` is Croft's own.
pub(super) async fn of_cluster(client: &Client, namespace: &str) -> Finding {
    let input = read_daemon_sets(client).await.map_err(|error| {
        Problem::fail(told(&error), "ask for the right to list DaemonSets, namespaces and Croft's objects")
    })?;
    if input.pools.is_empty() {
        return Ok("there is no pool yet".to_owned());
    }
    let admission = Admission::new(&input).map_err(|error| not_evaluated(&error))?;
    kept_off(&input, &admission, namespace)
}

fn not_evaluated(error: &dyn std::fmt::Display) -> Problem {
    Problem::bug("failed to evaluate admission", error)
}

/// Admission of a cluster like `input` that has a tenant.
///
/// # Errors
/// If it can't be evaluated.
pub(super) fn admission(input: &Input) -> Result<Admission, Problem> {
    let example = parse("example", EXAMPLE, &LoadOptions { namespace: "default".to_owned() })
        .map_err(|e| not_evaluated(&e))?;
    let mut with_tenant = input.clone();
    let origin = Origin { file: "example".into(), line: 0 };
    for tenant in &example.tenants {
        with_tenant.tenants.put(tenant.object.clone(), origin.clone());
    }
    let pools: Vec<TenantPool> = example.pools.iter().map(|pool| pool.object.clone()).collect();
    for pool in pools {
        with_tenant.pools.put(pool, origin.clone());
    }
    Admission::new(&with_tenant).map_err(|e| not_evaluated(&e))
}

/// DaemonSets that tolerate the taints of pools, and that admission keeps off them. `namespace` is Croft's own.
pub(super) fn kept_off(input: &Input, admission: &Admission, namespace: &str) -> Finding {
    let mut names = Vec::new();
    let mut shared: Vec<String> = Vec::new();
    for set in &input.daemon_sets {
        let its = set.namespace().unwrap_or_default();
        if its != namespace && is_kept_off(&admission.daemon_set(&set.object)) {
            names.push(format!("{its}/{}", set.name_any()));
            shared.push(its);
        }
    }
    if names.is_empty() {
        return Ok("no DaemonSet that tolerates every taint is kept off the nodes of pools".to_owned());
    }
    for config in &input.configs {
        shared.extend(config.spec.shared_with.iter().cloned());
    }
    shared.sort();
    shared.dedup();
    fail(
        format!(
            "{} tolerate the taints of pools, and are kept off the pools' nodes: {}",
            counted(names.len(), "DaemonSet"),
            shortened(&names, NAMED)
        ),
        format!(
            "share the pools with the namespaces that every tenant trusts, by these lines of the CroftConfig (in values.yaml of the \
             chart below config:):\n  spec:\n    sharedWith: [{}]",
            shared.join(", ")
        ),
    )
}

/// DaemonSets that run on every node today and don't tolerate the taint of a pool; none of a tenant's, which run on its pools.
pub(super) fn untolerating(input: &Input, admission: &Admission) -> Finding {
    let names: Vec<String> = input
        .daemon_sets
        .iter()
        .filter(|set| {
            let spec = set.spec.as_ref().and_then(|s| s.template.spec.as_ref());
            spec.is_some_and(|spec| is_for_every_node(spec) && !tolerates_pools(spec))
                && admission.daemon_set(&set.object).tenant.is_none()
        })
        .map(|set| format!("{}/{}", set.namespace().unwrap_or_default(), set.name_any()))
        .collect();
    if names.is_empty() {
        return Ok("every DaemonSet for all nodes tolerates the taints of pools".to_owned());
    }
    fail(
        format!(
            "{} for all nodes don't tolerate the taints of pools, so they won't run there: {}",
            counted(names.len(), "DaemonSet"),
            shortened(&names, NAMED)
        ),
        "give those that pools' nodes need a toleration {operator: Exists}, and share the pools with their namespaces \
         (sharedWith of the CroftConfig)",
    )
}

/// Other workloads that tolerate the taints of pools.
pub(super) fn workloads(input: &Input, admission: &Admission, namespace: &str) -> Finding {
    let names: Vec<String> = croft_inspect::workload::workloads(input)
        .iter()
        .filter(|workload| workload.daemon_set.is_none() && workload.namespace != namespace)
        .filter(|workload| is_kept_off(&admission.pod(&prototype(workload))))
        .map(|workload| workload.title())
        .collect();
    if names.is_empty() {
        return Ok("no other workload tolerates the taints of pools".to_owned());
    }
    fail(
        format!(
            "{} tolerate the taints of pools, and would be kept off the pools' nodes: {}",
            counted(names.len(), "workload"),
            shortened(&names, NAMED)
        ),
        "nothing to do if they have room on other nodes, or if a Tenant gets their namespace; else sharedWith of the \
         CroftConfig",
    )
}

/// True if admission keeps the pods off pools' nodes, whether or not the object has what that takes already. Pods of a tenant are pinned to its pools instead: sharing the pools with
/// its namespace would open all others to it.
fn is_kept_off<T>(verdict: &Verdict<T>) -> bool {
    verdict.tenant.is_none() && (verdict.is_kept_out || !matches!(verdict.outcome, Outcome::Unchanged))
}

/// True if nothing but taints keeps the pods off a node.
fn is_for_every_node(spec: &PodSpec) -> bool {
    let os = |key: &String| key == "kubernetes.io/os";
    let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    spec.node_selector.iter().flatten().all(|(key, _)| os(key))
        && affinity.is_none_or(|a| a.required_during_scheduling_ignored_during_execution.is_none())
}

/// True if the pods tolerate a NoSchedule taint with the built-in key and any value.
fn tolerates_pools(spec: &PodSpec) -> bool {
    spec.tolerations.iter().flatten().any(|toleration: &Toleration| {
        let for_key = toleration.key.as_deref().is_none_or(|key| key.is_empty() || key == POOL_NAME_LABEL);
        let any_value = toleration.operator.as_deref() == Some("Exists");
        let effect = toleration.effect.as_deref().unwrap_or_default();
        for_key && any_value && (effect.is_empty() || effect == "NoSchedule")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(text: &str) -> Input {
        parse("test", text, &LoadOptions { namespace: "default".to_owned() }).unwrap()
    }

    fn kept_off_of(input: &Input) -> Finding {
        kept_off(input, &admission(input)?, "croft-system")
    }

    fn untolerating_of(input: &Input) -> Finding {
        untolerating(input, &admission(input)?)
    }

    fn daemon_set(namespace: &str, name: &str, more: &str) -> String {
        format!(
            "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{namespace: {namespace}, name: {name}}}\nspec:\n  selector: \
             {{matchLabels: {{a: b}}}}\n  template:\n    metadata: {{labels: {{a: b}}}}\n    spec: {{containers: [{{name: a, \
             image: a}}]{more}}}\n---\n"
        )
    }

    #[test]
    fn agents_that_tolerate_everything_need_shared_with() {
        let all = ", tolerations: [{operator: Exists}]";
        let text = [
            daemon_set("logging", "fluent-bit", all),
            daemon_set("kube-system", "cni", all),
            daemon_set("monitoring", "exporter", all),
            daemon_set("croft-system", "own", all),
            daemon_set("shop", "cache", ""),
        ]
        .concat();
        let input = input(&text);
        let Err(Problem { what, remedy, .. }) = kept_off_of(&input) else { panic!("nothing found") };
        assert!(what.ends_with("logging/fluent-bit, monitoring/exporter"), "{what}");
        assert!(remedy.ends_with("spec:\n    sharedWith: [logging, monitoring]"), "{remedy}");
        let Err(Problem { what, .. }) = untolerating_of(&input) else { panic!("nothing found") };
        assert!(what.ends_with(": shop/cache"), "{what}");
    }

    #[test]
    fn agent_that_has_its_affinity_already_is_still_named() {
        let text = daemon_set("logging", "fluent-bit", ", tolerations: [{operator: Exists}]");
        let mut input = input(&text);
        let admission = admission(&input).unwrap();
        let Outcome::Changed(planned) =
            admission.daemon_set(&input.daemon_sets.iter().next().unwrap().object).outcome
        else {
            panic!("it gets an affinity")
        };
        input.daemon_sets.put(*planned, Origin { file: "test".into(), line: 0 });
        let Err(Problem { what, .. }) = kept_off(&input, &admission, "croft-system") else {
            panic!("nothing found")
        };
        assert!(what.ends_with("logging/fluent-bit"), "{what}");
    }

    #[test]
    fn pools_are_never_shared_with_a_tenants_own_namespace() {
        let tenant = "apiVersion: croft.dev/v1alpha1\nkind: Tenant\nmetadata: {name: shop}\nspec: {namespaces: [shop], pools: [shop]}\n---\n\
            apiVersion: croft.dev/v1alpha1\nkind: TenantPool\nmetadata: {name: shop}\nspec: {provisioner: None}\n---\n";
        for more in ["", ", tolerations: [{operator: Exists}]"] {
            let input = input(&[tenant.to_owned(), daemon_set("shop", "cache", more)].concat());
            assert!(kept_off_of(&input).is_ok(), "{more}");
            assert!(workloads(&input, &admission(&input).unwrap(), "croft-system").is_ok(), "{more}");
            assert!(untolerating_of(&input).is_ok(), "{more}");
        }
    }

    #[test]
    fn shared_namespaces_need_nothing_more() {
        let shared = "apiVersion: croft.dev/v1alpha1\nkind: CroftConfig\nmetadata: {name: default}\nspec: {sharedWith: [logging]}\n---\n";
        let text =
            [shared.to_owned(), daemon_set("logging", "a", ", tolerations: [{operator: Exists}]")].concat();
        assert!(kept_off_of(&input(&text)).is_ok());
        assert!(untolerating_of(&input(&text)).is_ok());
    }

    #[test]
    fn agents_of_some_nodes_are_left_out() {
        let text = daemon_set("gpu", "driver", ", nodeSelector: {gpu: 'true'}");
        assert!(untolerating_of(&input(&text)).is_ok());
    }
}
