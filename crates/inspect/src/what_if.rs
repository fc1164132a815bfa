//! The effect of a manifest on a cluster.

use std::collections::{BTreeMap, BTreeSet};

use croft_manifest::{Input, InputError};
use croft_scheduler::{Options, PodKey};
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use crate::{
    admission::Admission,
    inputs::merge,
    places::{
        ExistingNode, NewInstance, PendingReason, denied, existing_nodes, new_instance, pending_reasons,
    },
    plan::{attach, plan},
    planned::Planned,
    simulation::simulate,
    workload::workloads,
};

/// Pods that stay pending for the same reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingPods {
    /// The pods, as `namespace/name`.
    pub pods: Vec<String>,
    /// The reasons, one for each pool.
    pub reasons: Vec<PendingReason>,
}

/// The effect of further objects.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIf {
    /// The admission of each workload.
    pub workloads: Vec<Planned>,
    /// The instances that are launched for its pods.
    pub instances: Vec<NewInstance>,
    /// The nodes that get some of its pods.
    pub existing: Vec<ExistingNode>,
    /// The pods that stay pending.
    pub pending: Vec<PendingPods>,
    /// The cost that it adds, in millionths of a dollar per hour: the plan with it less the plan without, as far as prices are
    /// known.
    pub adds: i64,
    /// Number of its new instances whose price is unknown.
    pub unpriced: usize,
    /// Findings that don't make the objects invalid.
    pub warnings: Vec<String>,
}

/// The plan for `input` with the objects of `added`, which replace those of the same name.
///
/// # Errors
/// Values that the scheduler refuses, by object and field.
pub fn what_if(input: &Input, added: &Input) -> Result<WhatIf, InputError> {
    let types = croft_cloud::builtin_catalog();
    let before = simulate(input, types.clone(), &Options::default())?;
    let mut after = input.clone();
    merge(&mut after, added);
    let known: BTreeSet<(&str, &str)> = input.pods.iter().map(|pod| key_of(pod)).collect();
    let simulation = simulate(&after, types, &Options::default())?;
    let is_new = |pod: &PodKey| !known.contains(&(&*pod.namespace, &*pod.name));

    let mut pending: BTreeMap<Vec<PendingReason>, Vec<String>> = BTreeMap::new();
    for left in simulation.plan.unschedulable.iter().filter(|left| is_new(&left.pod)) {
        pending.entry(pending_reasons(left).collect()).or_default().push(left.pod.to_string());
    }
    for (pod, reason) in denied(&simulation, is_new) {
        pending.entry(vec![reason]).or_default().push(pod);
    }
    let mut subject = added.clone();
    subject.limit_ranges.clone_from(&after.limit_ranges);
    subject.priority_classes.clone_from(&after.priority_classes);
    subject.runtime_classes.clone_from(&after.runtime_classes);
    let instances = simulation.plan.instances.iter();
    let instances: Vec<_> = instances.filter_map(|one| new_instance(&simulation, one, is_new)).collect();
    let mut workloads = plan(&subject, &Admission::new(&after)?);
    attach(&mut workloads, &after, &simulation);
    Ok(WhatIf {
        workloads,
        unpriced: instances.iter().filter(|one| one.price.is_none()).count(),
        instances,
        existing: existing_nodes(&simulation, is_new),
        pending: pending.into_iter().map(|(reasons, pods)| PendingPods { pods, reasons }).collect(),
        adds: simulation.plan.cost.micros().saturating_sub(before.plan.cost.micros()),
        warnings: simulation
            .warnings
            .iter()
            .filter(|warning| !before.warnings.contains(warning))
            .cloned()
            .collect(),
    })
}

/// The number of pods that the workloads of `input` ask for, at most; a DaemonSet counts as one, and so does each template of another
/// controller's kind.
#[must_use]
pub fn pods_asked_for(input: &Input) -> usize {
    let of_workloads = workloads(input).into_iter().map(|workload| workload.missing.max(1));
    let of_custom = input.custom_workloads.iter().map(|workload| workload.templates.len().max(1));
    of_workloads.chain(of_custom).fold(input.pods.len(), usize::saturating_add)
}

fn key_of(pod: &Pod) -> (&str, &str) {
    let metadata = &pod.metadata;
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use croft_manifest::{LoadOptions, parse};

    use super::*;

    const CLUSTER: &str = "
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: shop}
spec: {namespaces: [shop], pools: [pool-shop]}
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: pool-shop}
spec:
  template:
    spec:
      requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}]
      nodeClassRef: {group: croft.dev, kind: EC2NodeClass, name: default}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
";

    fn workload(cpu: &str) -> Input {
        parse("web.yaml", &deployment(&format!("{{requests: {{cpu: '{cpu}'}}}}")), &LoadOptions::default())
            .unwrap()
    }

    fn deployment(resources: &str) -> String {
        format!(
            "
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: shop}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: web, image: nginx, resources: {resources}}}]}}
"
        )
    }

    #[test]
    fn what_if_shows_instances_cost_and_pool_of_a_new_workload() {
        let cluster = parse("cluster.yaml", CLUSTER, &LoadOptions::default()).unwrap();
        let answer = what_if(&cluster, &workload("500m")).unwrap();
        assert_eq!(answer.workloads.len(), 1);
        assert_eq!(answer.workloads[0].pool.as_deref(), Some("pool-shop"));
        let pods: usize = answer.instances.iter().map(|instance| instance.pods.len()).sum();
        assert_eq!((pods, answer.pending.len()), (2, 0), "{answer:?}");
        assert_eq!(answer.adds, answer.instances.iter().filter_map(|one| one.price).sum::<i64>());
        assert!(answer.adds > 0);
    }

    #[test]
    fn what_if_makes_the_pool_of_a_new_tenant_of_a_pool_for_many() {
        let cluster = "
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: dev}
spec:
  perTenant: true
  replicas: 1
  template:
    spec:
      requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}]
      nodeClassRef: {name: default}
";
        let cluster = parse("cluster.yaml", cluster, &LoadOptions::default()).unwrap();
        let alone = simulate(&cluster, croft_cloud::builtin_catalog(), &Options::default()).unwrap();
        let lacks = alone.warnings.iter().any(|warning| warning.contains("lacks"));
        assert!(alone.plan.instances.is_empty() && !lacks, "it has no nodes itself: {:?}", alone.warnings);
        let tenant = "
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: croft.dev/v1alpha1, kind: Tenant, metadata: {name: shop}, spec: {namespaces: [shop], pools: [dev]}}
---
"
        .to_owned();
        let added = tenant + &deployment("{requests: {cpu: 500m}}");
        let answer = what_if(&cluster, &parse("web.yaml", &added, &LoadOptions::default()).unwrap()).unwrap();
        assert_eq!(answer.workloads[0].pool.as_deref(), Some("dev-shop"), "{answer:?}");
        assert_eq!((answer.instances.len(), answer.pending.len()), (1, 0), "{answer:?}");
    }

    #[test]
    fn what_if_counts_objects_of_every_kind() {
        const LIMITS: &str = "
apiVersion: v1
kind: LimitRange
metadata: {name: defaults, namespace: shop}
spec: {limits: [{type: Container, defaultRequest: {cpu: '50'}}]}
---
";
        const CLASS: &str = "
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
---
";
        const NODE: &str = "
apiVersion: v1
kind: Node
metadata:
  name: node-1
  labels: {node-restriction.kubernetes.io/pool: pool-shop, kubernetes.io/hostname: node-1, kubernetes.io/os: linux}
spec:
  taints: [{key: node-restriction.kubernetes.io/pool, value: pool-shop, effect: NoSchedule}]
status:
  allocatable: {cpu: '4', memory: 8Gi, pods: '20'}
  conditions: [{type: Ready, status: 'True'}]
---
";
        let cluster = parse("cluster.yaml", CLUSTER, &LoadOptions::default()).unwrap();
        let answer = |text: String| {
            what_if(&cluster, &parse("added.yaml", &text, &LoadOptions::default()).unwrap()).unwrap()
        };
        let limited = answer(LIMITS.to_owned() + &deployment("{}"));
        assert_eq!((limited.instances.len(), limited.pending.len()), (0, 1), "{limited:?}");
        let placed = answer(NODE.to_owned() + &deployment("{requests: {cpu: 500m}}"));
        assert_eq!((placed.adds, placed.existing.len(), placed.pending.len()), (0, 1, 0), "{placed:?}");
        let classed = deployment("{requests: {cpu: 500m}}")
            .replace("spec: {containers", "spec: {priorityClassName: high, containers");
        let unknown = answer(classed.clone());
        assert!(unknown.workloads[0].message.is_some(), "there is no such class: {unknown:?}");
        let known = answer(CLASS.to_owned() + &classed);
        assert_eq!(
            (known.workloads[0].message.as_ref(), known.instances.is_empty()),
            (None, false),
            "{known:?}"
        );
    }

    #[test]
    fn what_if_says_why_pods_of_a_new_workload_would_stay_pending() {
        let cluster = parse("cluster.yaml", CLUSTER, &LoadOptions::default()).unwrap();
        let answer = what_if(&cluster, &workload("50")).unwrap();
        assert_eq!((answer.instances.len(), answer.adds, answer.pending.len()), (0, 0, 1), "{answer:?}");
        let reason = &answer.pending[0].reasons[0];
        assert_eq!((reason.pool.as_str(), reason.reason.as_str()), ("pool-shop", "InsufficientResources"));
        assert!(reason.remedy.is_some());
        assert_eq!(answer.pending[0].pods.len(), 2);
    }

    #[test]
    fn what_if_says_how_many_pods_a_limit_leaves_nodes_for() {
        let cluster = CLUSTER.replace("pools: [pool-shop]}", "pools: [pool-shop], limits: {nodes: 1}}");
        let cluster = parse("cluster.yaml", &cluster, &LoadOptions::default()).unwrap();
        let text = deployment("{requests: {cpu: '1'}}");
        let answer = what_if(&cluster, &parse("web.yaml", &text, &LoadOptions::default()).unwrap()).unwrap();
        let shortfall = answer.workloads[0].shortfall.as_ref().unwrap();
        assert_eq!((shortfall.pods, shortfall.placed), (2, 1), "{answer:?}");
        assert_eq!((&*shortfall.limits[0].kind, &*shortfall.limits[0].name), ("Tenant", "shop"));
        assert_eq!(shortfall.limits[0].fields, ["spec.limits.nodes"]);
    }

    #[test]
    fn what_if_admits_templates_of_other_controllers_and_simulates_none_of_them() {
        let cluster = parse("cluster.yaml", CLUSTER, &LoadOptions::default()).unwrap();
        let text =
            deployment("{}").replace("apps/v1\nkind: Deployment", "argoproj.io/v1alpha1\nkind: Rollout");
        let added = parse("web.yaml", &text, &LoadOptions::default()).unwrap();
        assert_eq!(pods_asked_for(&added), 1);
        let answer = what_if(&cluster, &added).unwrap();
        let [one] = answer.workloads.as_slice() else { panic!("{answer:?}") };
        assert_eq!(
            (one.template.as_deref(), one.pool.as_deref()),
            (Some("spec.template"), Some("pool-shop"))
        );
        assert_eq!(one.title(), "Rollout.argoproj.io shop/web, spec.template");
        assert!(answer.instances.is_empty() && answer.warnings.is_empty(), "{answer:?}");
    }
}
