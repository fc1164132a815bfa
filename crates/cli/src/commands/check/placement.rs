//! Where Croft's own pods run: never on the nodes that it removes, and not all on one.

use std::collections::{BTreeMap, BTreeSet};

use croft_inspect::inventory::node_of;
use croft_policy::definitions::POOL_NAME_LABEL;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;

use super::{
    installed::{Installed, WEBHOOK},
    report::{Finding, fail, warn},
};
use crate::table::{counted, shortened};

const NODE_GROUP: &str = "eks.amazonaws.com/nodegroup";
const COMPUTE_TYPE: &str = "eks.amazonaws.com/compute-type";
/// At most this many pods are named.
const NAMED: usize = 5;

/// Croft's pods run, on nodes of no pool, the webhook's on two or more.
pub(super) fn check(installed: &Installed) -> Finding {
    if installed.pods.is_empty() {
        return Ok("no pod of Croft is in the cluster: its processes run elsewhere".to_owned());
    }
    let remedy = "give Croft nodes that it doesn't launch: a managed node group of two nodes or more, or Fargate \
                  (docs/aws.md#where-crofts-pods-run)";
    let mut on_pools = Vec::new();
    let mut waiting = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for pod in &installed.pods {
        match installed.node(pod) {
            Some(node) => match node.labels().get(POOL_NAME_LABEL) {
                Some(pool) => {
                    on_pools.push(format!("{} on {} of pool {pool}", pod.name_any(), node.name_any()))
                }
                None => *places.entry(place(node)).or_default() += 1,
            },
            None if node_of(pod).is_none() => waiting.push(pod.name_any()),
            None => {}
        }
    }
    if !on_pools.is_empty() {
        return fail(
            format!("{} on nodes that Croft removes: {}", run(on_pools.len()), shortened(&on_pools, NAMED)),
            format!(
                "{remedy}; tolerate no taint of a pool (values controller.tolerations, webhook.tolerations); then delete these pods"
            ),
        );
    }
    if !waiting.is_empty() {
        return fail(
            format!(
                "{} of Croft have no node: {}",
                counted(waiting.len(), "pod"),
                shortened(&waiting, NAMED)
            ),
            format!("{remedy}; kubectl describe pod says what keeps them pending"),
        );
    }
    let replicas: Vec<&str> = installed.pods_of(WEBHOOK).filter_map(node_of).collect();
    let nodes: BTreeSet<&str> = replicas.iter().copied().collect();
    if let (Some(only), 1, 2..) = (nodes.first(), nodes.len(), replicas.len()) {
        return warn(
            format!("every replica of the webhook runs on {only}: without it no pod of a tenant is created"),
            "add a second such node in another zone, then delete one of the pods",
        );
    }
    let places: Vec<String> =
        places.into_iter().map(|(place, pods)| format!("{} on {place}", counted(pods, "pod"))).collect();
    Ok(places.join(", "))
}

fn run(count: usize) -> String {
    if count == 1 { "1 pod of Croft runs".to_owned() } else { format!("{count} pods of Croft run") }
}

/// The owner of a node, such as a managed node group.
fn place(node: &Node) -> String {
    let labels = node.labels();
    if labels.get(COMPUTE_TYPE).is_some_and(|kind| kind == "fargate") {
        return "Fargate".to_owned();
    }
    match labels.get(NODE_GROUP) {
        Some(group) => format!("the managed node group {group}"),
        None => "nodes of no pool".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::commands::check::report::{Problem, Status};

    fn installed(pods: &[(&str, &str)], nodes: &[(&str, Value)]) -> Installed {
        Installed {
            pods: pods
                .iter()
                .enumerate()
                .map(|(number, (of, node))| {
                    serde_json::from_value(json!({
                        "metadata": {"name": format!("{of}-{number}"), "labels": {"app.kubernetes.io/name": of}},
                        "spec": {"nodeName": node, "containers": []},
                    }))
                    .unwrap()
                })
                .collect(),
            nodes: nodes
                .iter()
                .map(|(name, labels)| {
                    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
                })
                .collect(),
            ..Installed::default()
        }
    }

    #[test]
    fn pods_on_nodes_of_pools_fail() {
        let nodes = [("n", json!({POOL_NAME_LABEL: "p"})), ("m", json!({}))];
        let found = check(&installed(&[("croft-controller", "n"), ("croft-webhook", "m")], &nodes));
        let Err(failed @ Problem { status: Status::Fail, .. }) = found else { panic!("{found:?}") };
        assert_eq!(
            failed.what,
            "1 pod of Croft runs on nodes that Croft removes: croft-controller-0 on n of pool p"
        );
        assert!(failed.remedy.contains("managed node group"), "{}", failed.remedy);
    }

    #[test]
    fn pending_pods_fail_and_replicas_on_one_node_warn() {
        let nodes = [("n", json!({})), ("m", json!({}))];
        let found = check(&installed(&[("croft-controller", "")], &nodes));
        assert!(
            matches!(&found, Err(f) if f.status == Status::Fail && f.what == "1 pod of Croft have no node: croft-controller-0"),
            "{found:?}"
        );
        let found = check(&installed(&[("croft-webhook", "n"), ("croft-webhook", "n")], &nodes));
        assert!(
            matches!(&found, Err(f) if f.status == Status::Warn && f.what.contains("runs on n:")),
            "{found:?}"
        );
    }

    #[test]
    fn places_are_counted_by_what_keeps_them() {
        let nodes = [
            ("a", json!({NODE_GROUP: "system"})),
            ("b", json!({NODE_GROUP: "system"})),
            ("f", json!({COMPUTE_TYPE: "fargate"})),
        ];
        let pods = [("croft-webhook", "a"), ("croft-webhook", "b"), ("croft-controller", "f")];
        assert_eq!(
            check(&installed(&pods, &nodes)),
            Ok("1 pod on Fargate, 2 pods on the managed node group system".to_owned())
        );
    }
}
