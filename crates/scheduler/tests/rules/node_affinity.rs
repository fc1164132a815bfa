//! Node affinity, required and preferred.

use croft_scheduler::{Operator, Requirement};
use serde_json::json;

use crate::{
    TYPE,
    build::{ZONE, cluster, kinds, node, plan, pod, pool},
    one, only_type, with_labels,
};

#[test]
fn gt_and_lt_compare_integers() {
    for (operator, value, kind) in [
        (Operator::Gt, "2", "m.4"),
        (Operator::Gte, "2", "m.2"),
        (Operator::Lt, "4", "m.1"),
        (Operator::Lte, "1", "m.1"),
    ] {
        let mut p = pool("p", with_labels("size"));
        p.requirements = vec![Requirement {
            key: "size".to_owned(),
            operator,
            values: vec![value.to_owned()],
            min_values: None,
        }];
        let plan = plan(&cluster(vec![p], &[pod("a", "500m", "1Gi", json!({}))]));
        assert_eq!(only_type(&plan), kind, "{operator:?} {value}");
    }
    for (operator, value, kind) in [("Gt", "4", "m.8"), ("Lt", "2", "m.1")] {
        let term = json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": "size", "operator": operator, "values": [value]}]}]}}}}});
        let c = cluster(vec![pool("p", with_labels("size"))], &[pod("a", "500m", "1Gi", term)]);
        assert_eq!(only_type(&plan(&c)), kind);
    }
}

#[test]
fn existing_node_is_found_by_each_operator() {
    let cases = [
        ("disk", "In", json!(["ssd", "nvme"])),
        ("disk", "NotIn", json!(["hdd"])),
        ("absent", "NotIn", json!(["ssd"])),
        ("disk", "Exists", json!([])),
        ("absent", "DoesNotExist", json!([])),
        ("size", "Gt", json!(["3"])),
        ("size", "Lt", json!(["5"])),
    ];
    for (key, operator, values) in cases {
        let term = json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]}}}}});
        let mut c = cluster(vec![pool("p", kinds())], &[pod("a", "500m", "1Gi", term)]);
        c.upsert_node(&node("good", "4", "16Gi", json!({"disk": "ssd", "size": "4"}))).unwrap();
        c.upsert_node(&node("bad", "4", "16Gi", json!({"disk": "hdd", "size": "bad", "absent": "ssd"})))
            .unwrap();
        let plan = plan(&c);
        let homes: Vec<&str> = plan.existing.iter().map(|place| place.node.as_str()).collect();
        assert_eq!(homes, if operator == "Exists" { ["bad"] } else { ["good"] }, "{key} {operator} {values}");
    }
}

#[test]
fn preferred_node_affinity_breaks_ties_and_is_not_required() {
    let prefer = |key: &str, value: &str| {
        json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}}]}}}})
    };
    assert_eq!(one(prefer(ZONE, "zone-c")).instances[0].zone, "zone-c");
    assert_eq!(one(prefer("example.com/absent", "it")).instances.len(), 1);
    // A preference that raises the cost isn't followed.
    assert_eq!(only_type(&one(prefer(TYPE, "m.16"))), "m.1");
}
