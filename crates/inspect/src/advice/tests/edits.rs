//! The edits that take constraints out.

use k8s_openapi::api::core::v1::PodSpec;

use super::world::{Extra, World};
use crate::{
    advice::{
        constraint::{Constraint, NodeLabel},
        take_out::take_out,
    },
    workload::WorkloadName,
};

fn edited(spec: &str, constraint: impl FnOnce(WorkloadName) -> Constraint) -> PodSpec {
    let mut input = World::free().pod("web", 0, "n1", &Extra { spec, ..Extra::default() }).input();
    let workload = WorkloadName { kind: "StatefulSet".into(), namespace: "shop".into(), name: "web".into() };
    let names = input.clone();
    take_out(&constraint(workload), &names, &mut input);
    input.pods.get("shop", "web-0").unwrap().spec.clone().unwrap()
}

fn zone(workload: WorkloadName) -> Constraint {
    Constraint::NodeSelector { workload, label: NodeLabel::Zone }
}

#[test]
fn label_is_left_out_of_selector_and_affinity_and_other_labels_stay() {
    let spec = edited(
        "nodeSelector: {node-pool: main, topology.kubernetes.io/zone: z1}
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [z1]}, {key: disk, operator: Exists}]}]}}}",
        zone,
    );
    assert_eq!(spec.node_selector.unwrap().into_keys().collect::<Vec<_>>(), ["node-pool"]);
    let affinity = spec.affinity.unwrap().node_affinity.unwrap();
    let terms = affinity.required_during_scheduling_ignored_during_execution.unwrap().node_selector_terms;
    let keys: Vec<_> = terms[0].match_expressions.iter().flatten().map(|e| e.key.as_str()).collect();
    assert_eq!(keys, ["disk"]);
}

#[test]
fn term_that_becomes_empty_makes_the_required_affinity_match_every_node() {
    let spec = edited(
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [z1]}]},
    {matchExpressions: [{key: disk, operator: Exists}]}]}}}",
        zone,
    );
    let affinity = spec.affinity.unwrap().node_affinity.unwrap();
    assert_eq!(affinity.required_during_scheduling_ignored_during_execution, None);
}

#[test]
fn required_terms_over_the_key_become_preferred_and_others_stay_required() {
    let spec = edited(
        "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
    {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}},
    {topologyKey: topology.kubernetes.io/zone, labelSelector: {matchLabels: {app: web}}}]}}",
        |workload| Constraint::PodAntiAffinity { workload, key: "kubernetes.io/hostname".into() },
    );
    let terms = spec.affinity.unwrap().pod_anti_affinity.unwrap();
    let hard = terms.required_during_scheduling_ignored_during_execution.unwrap();
    let soft = terms.preferred_during_scheduling_ignored_during_execution.unwrap();
    assert_eq!((hard.len(), hard[0].topology_key.as_str()), (1, "topology.kubernetes.io/zone"));
    let soft: Vec<_> = soft.iter().map(|s| (s.weight, s.pod_affinity_term.topology_key.as_str())).collect();
    assert_eq!(soft, [(1, "kubernetes.io/hostname")]);
}

#[test]
fn template_of_a_deployment_is_changed_with_its_pods() {
    let mut input = World::free()
        .with(
            "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {karpenter.sh/do-not-disrupt: 'true', a: b}}
    spec: {containers: [{name: main, image: i}]}",
        )
        .input();
    let workload = WorkloadName { kind: "Deployment".into(), namespace: "shop".into(), name: "web".into() };
    let names = input.clone();
    take_out(&Constraint::PodDoNotDisrupt(workload), &names, &mut input);
    let template = &input.deployments[0].spec.as_ref().unwrap().template;
    let annotations = template.metadata.clone().unwrap().annotations.unwrap();
    assert_eq!(annotations.into_keys().collect::<Vec<_>>(), ["a"]);
}
