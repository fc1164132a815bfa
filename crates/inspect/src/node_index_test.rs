use croft_manifest::{LoadOptions, parse};
use serde_json::{Value, json};

use super::*;

/// The documents as an input, in their order.
fn input(documents: &[Value]) -> Input {
    let text: Vec<String> = documents.iter().map(Value::to_string).collect();
    parse("cluster.yaml", &text.join("\n---\n"), &LoadOptions::default()).unwrap()
}

fn pool(name: &str, label: (&str, &str)) -> Value {
    json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": name},
        "spec": {"key": label.0, "value": label.1, "provisioner": "None"}})
}

fn node(name: &str, id: Option<&str>, labels: &[(&str, &str)]) -> Value {
    let labels: serde_json::Map<String, Value> =
        labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let spec = id.map_or_else(|| json!({}), |id| json!({"providerID": id}));
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec})
}

fn claim(name: &str, id: Option<&str>, node: Option<&str>) -> Value {
    let mut status = json!({});
    if let Some(id) = id {
        status["providerId"] = json!(id);
    }
    if let Some(node) = node {
        status["nodeName"] = json!(node);
    }
    json!({"apiVersion": "croft.dev/v1alpha1", "kind": "NodeClaim", "metadata": {"name": name},
        "spec": {"pool": "p", "instanceTypes": ["t"], "zones": ["z"], "capacityType": "on-demand",
            "nodeClassRef": {"group": "croft.dev", "kind": "EC2NodeClass", "name": "default"}},
        "status": status})
}

/// The scan that the index stands for: pools in their order, each compared with the node's labels.
fn scan_for_pool<'i>(input: &'i Input, node: &Node) -> Option<&'i TenantPool> {
    let mut pools = input.pools.iter().map(|pool| &pool.object);
    pools.find(|pool| node.labels().get(&pool.spec.key) == Some(&value(pool)))
}

/// True if a node runs on a claim's instance.
fn is_same(node: &Node, claim: &NodeClaim) -> bool {
    let Some(status) = &claim.status else { return false };
    let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    match (&status.provider_id, id) {
        (Some(ours), Some(its)) => ours == its,
        _ => status.node_name.is_some() && status.node_name == node.metadata.name,
    }
}

fn name(object: Option<&impl kube::ResourceExt>) -> Option<String> {
    object.map(|object| object.name_any())
}

#[test]
fn of_pools_with_one_label_and_of_pools_by_two_labels_the_first_is_found() {
    let input = input(&[
        pool("b", ("team", "x")),
        pool("a", ("team", "x")),
        pool("z", ("zeta", "1")),
        pool("c", ("alpha", "1")),
        node("twice", None, &[("team", "x")]),
        // The pool of the later label is first.
        node("both", None, &[("alpha", "1"), ("zeta", "1")]),
        node("other", None, &[("team", "y")]),
        node("none", None, &[]),
    ]);
    let index = NodeIndex::new(&input);
    let found: Vec<_> = input.nodes.iter().map(|node| name(index.pool_of(node))).collect();
    let scanned: Vec<_> = input.nodes.iter().map(|node| name(scan_for_pool(&input, node))).collect();
    assert_eq!(found, scanned);
    assert_eq!(found, [Some("b".to_owned()), Some("z".to_owned()), None, None]);
}

#[test]
fn of_claims_for_one_node_the_first_is_found_by_name_and_by_instance() {
    let input = input(&[
        claim("old", Some("i-1"), Some("n")),
        claim("new", Some("i-2"), Some("n")),
        claim("same", Some("i-2"), Some("n")),
        node("n", Some("i-2"), &[]),
    ]);
    let (index, node) = (NodeIndex::new(&input), &input.nodes.first().unwrap().object);
    assert_eq!(name(index.claim_naming("n")), Some("old".to_owned()));
    assert_eq!(name(index.claim_of(node)), Some("new".to_owned()));
    assert_eq!(name(index.claim_naming("m")), None);
}

#[test]
fn claims_and_nodes_are_paired_as_a_scan_pairs_them_with_and_without_ids_and_names() {
    let ids = [None, Some("i-1"), Some("i-2")];
    let names = [None, Some("a"), Some("b"), Some("e")];
    // Every claim there can be, from both ends: each is the first of its like once.
    let mut claims: Vec<Value> = Vec::new();
    for (number, (id, node)) in ids.iter().flat_map(|id| names.map(|node| (*id, node))).enumerate() {
        claims.push(claim(&format!("c{number}"), id, node));
    }
    let nodes = [
        node("a", None, &[]),
        node("b", Some("i-2"), &[]),
        node("c", Some("i-1"), &[]),
        node("d", Some("i-2"), &[]),
        node("e", Some("i-3"), &[]),
    ];
    let reversed: Vec<Value> = claims.iter().rev().cloned().collect();
    for claims in [claims, reversed] {
        for skipped in 0..claims.len() {
            let rest: Vec<Value> = claims.iter().skip(skipped).chain(&nodes).cloned().collect();
            let input = input(&rest);
            let index = NodeIndex::new(&input);
            for node in &input.nodes {
                let scanned = input.claims.iter().find(|claim| is_same(node, claim));
                assert_eq!(
                    name(index.claim_of(node)),
                    name(scanned.map(|claim| &claim.object)),
                    "{}",
                    node.name_any()
                );
            }
            for claim in &input.claims {
                let scanned = input.nodes.iter().find(|node| is_same(node, claim));
                assert_eq!(
                    name(index.node_of(claim)),
                    name(scanned.map(|node| &node.object)),
                    "{}",
                    claim.name_any()
                );
            }
        }
    }
}
