//! Whether a node could be removed now, and what keeps it.

use croft_manifest::{Input, InputError};
use serde::Serialize;

use crate::simulation::{Horizon, PodIndex, node_outlook, time_of};

/// A pod that consolidation doesn't evict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeepingPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `PodDoNotDisrupt`, `PDBBlocked` or `BarePod`.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// Whether a node could be removed now, and what keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRemoval {
    /// The answer as a sentence; none for a node that isn't in the input.
    pub answer: Option<String>,
    /// Its pods with do-not-disrupt, those whose PodDisruptionBudget allows no eviction, and those without a controller.
    pub pods: Vec<KeepingPod>,
}

/// Whether a node of `input` could be removed now, by the search of consolidation, and each of its pods that prevents that.
///
/// # Errors
/// Values that the scheduler refuses, by object and field.
pub fn node_removal(input: &Input, node: &str) -> Result<NodeRemoval, InputError> {
    let index = PodIndex::new(input, time_of(input), Horizon::Now);
    let pods = index.blockers(node).into_iter().map(|(pod, blocker)| KeepingPod {
        namespace: pod.namespace.to_string(),
        name: pod.name.to_string(),
        reason: blocker.reason(),
        message: blocker.to_string(),
    });
    let pods = pods.collect();
    Ok(NodeRemoval { answer: node_outlook(input, croft_cloud::builtin_catalog(), node)?, pods })
}

/// The meaning of a reason of the condition Consolidatable, for those who may not see its message; none for a reason without one.
#[must_use]
pub fn consolidation_meaning(reason: &str) -> Option<&'static str> {
    let reasons = croft_disruption::eligibility::REASONS;
    reasons.iter().find(|(name, _)| *name == reason).map(|(_, meaning)| *meaning)
}

#[cfg(test)]
mod tests {
    use croft_manifest::{LoadOptions, parse};

    use super::*;

    const CLUSTER: &str = "
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: a}
spec: {template: {spec: {nodeClassRef: {group: croft.dev, kind: EC2NodeClass, name: default}}}}
---
apiVersion: v1
kind: Node
metadata:
  name: node-1
  labels: {node-restriction.kubernetes.io/pool: a, kubernetes.io/hostname: node-1, node.kubernetes.io/instance-type: m5.large,
    topology.kubernetes.io/zone: us-east-1a, karpenter.sh/capacity-type: on-demand, kubernetes.io/os: linux}
status:
  allocatable: {cpu: '2', memory: 8Gi, pods: '20'}
  conditions: [{type: Ready, status: 'True'}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: strict, namespace: team}
spec: {maxUnavailable: 0, selector: {matchLabels: {app: strict}}}
";

    fn pod(name: &str, labels: &str, annotations: &str, owner: &str) -> String {
        format!(
            "---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: team, uid: uid-{name}, labels: {{{labels}}}, annotations: {{{annotations}}}, ownerReferences: [{owner}]}}
spec: {{nodeName: node-1, containers: [{{name: c, image: i}}]}}
status: {{phase: Running, startTime: '2026-01-01T00:00:00Z'}}
"
        )
    }

    #[test]
    fn an_empty_node_is_kept_by_the_budgets_for_empty_nodes_alone() {
        for (reason, is_removed) in [("Underutilized", true), ("Drifted", true), ("Empty", false)] {
            let budget = format!("disruption: {{budgets: [{{nodes: '0', reasons: [{reason}]}}]}}, ");
            let text = CLUSTER.replace("{template:", &format!("{{{budget}template:"));
            let input = parse("cluster.yaml", &text, &LoadOptions::default()).unwrap();
            let answer = node_removal(&input, "node-1").unwrap().answer.unwrap();
            let start = if is_removed {
                "it could be removed now"
            } else {
                "it is kept: the pool's disruption budget"
            };
            assert!(answer.starts_with(start), "{reason}: {answer}");
        }
    }

    #[test]
    fn a_node_names_each_pod_that_keeps_it() {
        let owner = "{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: u, controller: true}";
        let text = CLUSTER.to_owned()
            + &pod("annotated", "", "croft.dev/do-not-disrupt: 'true'", owner)
            + &pod("bare", "", "", "")
            + &pod("free", "", "", owner)
            + &pod("strict", "app: strict", "", owner);
        let input = parse("cluster.yaml", &text, &LoadOptions::default()).unwrap();
        let removal = node_removal(&input, "node-1").unwrap();
        let named: Vec<(&str, &str)> =
            removal.pods.iter().map(|pod| (pod.name.as_str(), pod.reason)).collect();
        assert_eq!(named, [("annotated", "PodDoNotDisrupt"), ("bare", "BarePod"), ("strict", "PDBBlocked")]);
        assert!(
            removal.answer.as_deref().is_some_and(|answer| answer.starts_with("it is kept: pod team/")),
            "{removal:?}"
        );
        assert_eq!(node_removal(&input, "none").unwrap(), NodeRemoval::default());
        assert!(consolidation_meaning("BarePod").is_some() && consolidation_meaning("Other").is_none());
    }

    #[test]
    fn a_paused_pool_keeps_its_nodes_and_says_why() {
        let of_pool = "disruption: {paused: {until: '2026-11-30T18:00:00Z', reason: a release}}, ";
        let of_cluster = "---
apiVersion: croft.dev/v1alpha1
kind: CroftConfig
metadata: {name: default}
spec: {disruption: {paused: {reason: an incident}}}
";
        let in_pool = CLUSTER.replace("{template:", &format!("{{{of_pool}template:"));
        for (text, expected) in [
            (in_pool, "in its pool is paused until 2026-11-30T18:00:00Z: a release"),
            (CLUSTER.to_owned() + of_cluster, "in all pools is paused until it is resumed: an incident"),
        ] {
            let mut input = parse("cluster.yaml", &text, &LoadOptions::default()).unwrap();
            input.recorded_at = Some("2026-11-30T17:00:00Z".parse().unwrap());
            let answer = node_removal(&input, "node-1").unwrap().answer.unwrap();
            assert_eq!(answer, format!("it is kept: voluntary disruption {expected}"));
        }
    }

    #[test]
    fn a_pod_keeps_its_node_for_as_long_as_it_says() {
        let owner = "{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: u, controller: true}";
        // They started at midnight.
        for (annotation, expected) in [
            (
                "karpenter.sh/do-not-disrupt: '4h'",
                Some("is annotated karpenter.sh/do-not-disrupt: \"4h\", until 2026-01-01T04:00:00Z"),
            ),
            ("croft.dev/do-not-disrupt: '2h'", None),
            (
                "cluster-autoscaler.kubernetes.io/safe-to-evict: 'false'",
                Some("is annotated cluster-autoscaler.kubernetes.io/safe-to-evict: \"false\""),
            ),
            ("cluster-autoscaler.kubernetes.io/safe-to-evict: 'true'", None),
            (
                "croft.dev/do-not-disrupt: soon",
                Some(
                    "is annotated croft.dev/do-not-disrupt: \"soon\", which is no duration such as \"4h\" and counts as \"true\"",
                ),
            ),
        ] {
            let text = CLUSTER.to_owned() + &pod("web", "", annotation, owner);
            let mut input = parse("cluster.yaml", &text, &LoadOptions::default()).unwrap();
            input.recorded_at = Some("2026-01-01T03:00:00Z".parse().unwrap());
            let kept = node_removal(&input, "node-1").unwrap().pods;
            let said: Vec<&str> = kept.iter().map(|pod| pod.message.as_str()).collect();
            let expected: Vec<String> = expected.iter().map(|why| format!("pod team/web {why}")).collect();
            assert_eq!(said, expected, "{annotation}");
        }
    }
}
