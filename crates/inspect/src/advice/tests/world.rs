//! Small clusters of one tenant, whose costs can be computed by hand.
//!
//! | type | CPU that pods may use | price | zones |
//! |---|---|---|---|
//! | small | 2 | 0.10 | z1, z2 |
//! | large | 8 | 0.40 | z1, z2 |
//! | arm-small | 2 | 0.04 | z1 |

use std::{fmt::Write as _, sync::Arc};

use croft_manifest::{Input, LoadOptions, parse};
use croft_scheduler::{Catalog, InstanceType, Price};
use jiff::Timestamp;
use serde_json::json;

use crate::advice::{Advice, Focus, Request, advise};

/// Long after the pods started: moving them costs little.
pub(super) const NOW: &str = "2026-03-01T00:00:00Z";

/// The types above.
pub(super) fn types() -> Arc<[InstanceType]> {
    let one = |name: &str, arch: &str, cpu: &str, price: f64, zones: &[&str]| {
        let offerings: Vec<_> = zones
            .iter()
            .map(|zone| json!({"zone": zone, "capacityType": "on-demand", "price": price}))
            .collect();
        json!({"name": name, "arch": arch, "capacity": {"cpu": cpu, "memory": "64Gi", "pods": "100"},
            "offerings": offerings})
    };
    let catalog = json!({"instanceTypes": [
        one("small", "amd64", "2", 0.1, &["z1", "z2"]),
        one("large", "amd64", "8", 0.4, &["z1", "z2"]),
        one("arm-small", "arm64", "2", 0.04, &["z1"]),
    ]});
    serde_json::from_value::<Catalog>(catalog).unwrap().instance_types.into()
}

/// The text of a cluster.
#[derive(Clone)]
pub(super) struct World(pub(super) String);

impl World {
    /// Namespace and tenant `shop` with the pool `main`, of which `pool` is more of the spec. Only amd64 is launched if
    /// `amd64`.
    pub(super) fn new(pool: &str, template: &str) -> Self {
        Self(format!(
            "
apiVersion: v1
kind: Namespace
metadata: {{name: shop}}
---
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {{name: shop}}
spec: {{namespaces: [shop], pools: [main]}}
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {{name: main}}
spec: {{key: node-pool, {pool} template: {{spec: {{nodeClassRef: {{name: c}}, {template}}}}}}}
"
        ))
    }

    /// A pool that consolidates whatever saves something, and launches amd64 only by its architecture's price.
    pub(super) fn free() -> Self {
        Self::new("disruption: {preference: Cheapest, minSavings: '0'},", "")
    }

    pub(super) fn with(mut self, object: &str) -> Self {
        write!(self.0, "---\n{object}\n").unwrap();
        self
    }

    /// A node of the pool, `annotations` in YAML.
    pub(super) fn node(self, name: &str, kind: &str, zone: &str, annotations: &str) -> Self {
        let cpu = if kind == "large" { 8 } else { 2 };
        let arch = if kind == "arm-small" { "arm64" } else { "amd64" };
        self.with(&format!(
            "
apiVersion: v1
kind: Node
metadata:
  name: {name}
  annotations: {{{annotations}}}
  labels:
    kubernetes.io/os: linux
    kubernetes.io/arch: {arch}
    kubernetes.io/hostname: {name}
    node-restriction.kubernetes.io/pool: main
    node-pool: main
    node.kubernetes.io/instance-type: {kind}
    topology.kubernetes.io/zone: {zone}
    karpenter.sh/capacity-type: on-demand
spec:
  taints: [{{key: node-pool, value: main, effect: NoSchedule}}]
status:
  capacity: {{cpu: '{cpu}', memory: 64Gi, pods: '100'}}
  allocatable: {{cpu: '{cpu}', memory: 64Gi, pods: '100'}}"
        ))
    }

    /// A running pod of the StatefulSet `app`.
    pub(super) fn pod(self, app: &str, number: usize, node: &str, pod: &Extra<'_>) -> Self {
        let Extra { cpu, annotations, spec } = pod;
        self.with(&format!(
            "
apiVersion: v1
kind: Pod
metadata:
  name: {app}-{number}
  namespace: shop
  uid: {app}-{number}
  labels: {{app: {app}}}
  annotations: {{{annotations}}}
  ownerReferences: [{{apiVersion: apps/v1, kind: StatefulSet, name: {app}, uid: {app}, controller: true}}]
spec:
  nodeName: {node}
  tolerations: [{{key: node-pool, value: main, effect: NoSchedule}}]
  containers: [{{name: main, image: i, resources: {{requests: {{cpu: '{cpu}'}}}}}}]
  {}
status: {{phase: Running, startTime: '2026-01-01T00:00:00Z'}}",
            if spec.contains("nodeSelector") {
                (*spec).to_owned()
            } else {
                format!("nodeSelector: {{node-pool: main}}\n  {spec}")
            }
        ))
    }

    /// A PodDisruptionBudget of the app.
    pub(super) fn budget(self, app: &str, rule: &str) -> Self {
        self.with(&format!(
            "
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: {app}, namespace: shop}}
spec: {{{rule}, selector: {{matchLabels: {{app: {app}}}}}}}"
        ))
    }

    pub(super) fn input(&self) -> Input {
        parse("world.yaml", &self.0, &LoadOptions::default()).unwrap()
    }

    pub(super) fn advice(&self) -> Advice {
        self.advice_on(Focus::All)
    }

    pub(super) fn advice_on(&self, focus: Focus) -> Advice {
        advise(&self.input(), &types(), &request(focus), &mut || {}).unwrap()
    }
}

/// More of a pod.
pub(super) struct Extra<'a> {
    pub(super) cpu: &'a str,
    pub(super) annotations: &'a str,
    pub(super) spec: &'a str,
}

impl Default for Extra<'_> {
    fn default() -> Self {
        Self { cpu: "500m", annotations: "", spec: "" }
    }
}

pub(super) fn request(focus: Focus) -> Request {
    Request {
        focus,
        tenant: None,
        namespace: None,
        visible: None,
        min_saving: Price::from_micros(10_000),
        most: 100,
        now: NOW.parse::<Timestamp>().unwrap(),
    }
}

/// Kind, object and saving of each price.
pub(super) fn shown(advice: &Advice) -> Vec<(&str, &str, String)> {
    let price = |p: &'_ crate::advice::ConstraintPrice| p.saving.to_string();
    advice.prices.iter().map(|p| (p.kind, p.object.as_str(), price(p))).collect()
}
