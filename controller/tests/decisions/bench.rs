//! An engine with one class and one pool, and the objects that tests show it.

use std::{sync::Arc, time::Duration};

use croft_api::condition::{READY, Statement};
use croft_api::{EC2NodeClass, NodeClaim, TenantPool};
use croft_cloud::{ClassFindings, ObservedNode};
use croft_controller::{
    action::{Action, Key},
    config::settings::Settings,
    engine::{Engine, Step},
    kube_api::{Change, Kind, Response, Target, Verb},
    metrics::Metrics,
    result::{ActionReport, ActionResult, Backoff},
    time::Now,
};
use croft_scheduler::InstanceType;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const START_SECOND: i64 = 1_780_000_000;

pub fn at(seconds: u64) -> Now {
    Now {
        wall: Timestamp::from_second(START_SECOND + i64::try_from(seconds).unwrap()).unwrap(),
        mono: Duration::from_secs(seconds),
    }
}

pub fn read<T: DeserializeOwned>(value: Value) -> Box<T> {
    Box::new(serde_json::from_value(value).unwrap())
}

pub fn time(seconds: u64) -> String {
    at(seconds).wall.to_string()
}

/// An engine that knows a class with its offers, and one pool.
pub struct Bench {
    pub engine: Engine,
    /// Reasons and notes of events.
    pub told: Vec<(String, String)>,
    /// Nodes that the provider was told of.
    pub observed: Vec<ObservedNode>,
    /// The pods that a check of an instance finds; none, unless a test sets some.
    pub found: Vec<Response>,
    /// Kept from pass to pass, so that a test sees series disappear.
    metrics: (Registry, Metrics),
}

impl Bench {
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let mut bench = Self {
            metrics: (registry, metrics),
            engine: Engine::new(Settings::default()),
            told: Vec::new(),
            observed: Vec::new(),
            found: Vec::new(),
        };
        for kind in Kind::awaited_by_capacity() {
            bench.see(0, Change::Synced(kind));
        }
        bench.see(
            0,
            read::<EC2NodeClass>(json!({
                "apiVersion": "croft.dev/v1alpha1", "kind": "EC2NodeClass",
                "metadata": {"name": "class", "uid": "class-uid", "resourceVersion": "1", "generation": 1},
                "spec": {"role": "r", "amiSelectorTerms": [{"alias": "al2023@latest"}],
                    "subnetSelectorTerms": [], "securityGroupSelectorTerms": []},
            })),
        );
        bench.see(0, pool(2, &json!({})));
        // Requests about the class are answered at once; everything else is left to the tests.
        let step = bench.engine.step(at(0));
        for action in step.actions {
            bench.answer(0, action);
        }
        let step = bench.engine.step(at(0));
        for action in step.actions {
            bench.answer(0, action);
        }
        bench
    }

    pub fn answer(&mut self, seconds: u64, action: Action) {
        let keys = action.keys();
        let news = match action {
            Action::Resolve(_) => vec![ActionResult::Findings(
                "class".to_owned(),
                Box::new(ClassFindings {
                    conditions: vec![Statement {
                        kind: READY,
                        status: Some(true),
                        reason: "Ready",
                        message: String::new(),
                    }],
                    ..ClassFindings::default()
                }),
            )],
            Action::ListOfferings(_) => vec![ActionResult::Offerings("class".to_owned(), Ok(types()))],
            // Until a test says otherwise the cloud can't be asked again.
            Action::ListInstances if self.engine.snapshot().instances().is_none() => {
                vec![ActionResult::Instances(at(seconds), Vec::new())]
            }
            _ => Vec::new(),
        };
        self.engine.complete(ActionReport { results: news, ..ActionReport::done(keys) }, at(seconds));
    }

    /// The value of a metric after a pass: of the line that begins with `name`.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.metrics();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} isn't in {text}")).parse().unwrap()
    }

    /// True if a line begins with `name`.
    pub fn has_metric(&self, name: &str) -> bool {
        self.metrics().lines().any(|line| line.starts_with(name))
    }

    /// Records the pods that were bound before the step.
    pub fn measure(&self, step: &Step) {
        self.metrics.1.observe_bound(&step.bound);
    }

    /// Records that another process leads, and returns the metrics from then on.
    pub fn metrics_of_standby(&self) -> String {
        self.metrics.1.stop_leading();
        self.encode()
    }

    fn metrics(&self) -> String {
        self.metrics.1.observe_pass(&self.engine, 0.0);
        self.encode()
    }

    fn encode(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.metrics.0).unwrap();
        text
    }

    pub fn see(&mut self, seconds: u64, change: impl Into<Change>) {
        self.engine.observe(change.into(), at(seconds));
    }

    /// A bench whose pool's spec has `more` in it.
    pub fn with_pool(more: &Value) -> Self {
        let mut bench = Self::new();
        bench.see(0, pool(3, more));
        bench
    }

    /// Ends an action well, with what was learned.
    pub fn done(&mut self, seconds: u64, action: &Action, news: Vec<ActionResult>) {
        self.engine
            .complete(ActionReport { results: news, ..ActionReport::done(action.keys()) }, at(seconds));
    }

    /// The actions of a step that concern neither pools, classes and lists, nor the consolidation status of
    /// towards consolidation: tests of disruption have that.
    pub fn decide(&mut self, seconds: u64) -> Vec<Action> {
        let Step { mut actions, .. } = self.engine.step(at(seconds));
        let looks: Vec<Action> = actions.extract_if(.., |a| matches!(a, Action::VerifyNoPods(_))).collect();
        for look in &looks {
            let Action::VerifyNoPods(asked) = look else { continue };
            let (responses, backoff) = (self.found.clone(), Backoff::After(Duration::from_secs(1)));
            let report = if responses.is_empty() {
                let vacant = ActionResult::NoPodsFound(asked.subject.clone(), at(seconds).mono);
                ActionReport { results: vec![vacant], ..ActionReport::done(look.keys()) }
            } else {
                ActionReport { responses, backoff, ..ActionReport::done(look.keys()) }
            };
            self.engine.complete(report, at(seconds));
        }
        let nodes: Vec<Action> = actions.extract_if(.., |a| matches!(a, Action::VerifyNoNode(_))).collect();
        for action in &nodes {
            let Action::VerifyNoNode(claim) = action else { continue };
            let none = ActionResult::NoNode(claim.metadata.name.clone().unwrap(), at(seconds).mono);
            self.engine.complete(
                ActionReport { results: vec![none], ..ActionReport::done(action.keys()) },
                at(seconds),
            );
        }
        if !looks.is_empty() || !nodes.is_empty() {
            actions.extend(self.engine.step(at(seconds)).actions);
        }
        let (kept, routine): (Vec<_>, Vec<_>) = actions.into_iter().partition(|action| {
            !matches!(
                action,
                Action::ListInstances
                    | Action::Resolve(_)
                    | Action::ListOfferings(_)
                    | Action::Sweep(_)
                    | Action::ReceiveInterruptions
                    | Action::ObserveCapacity(_)
                    | Action::RecordEvent(_)
            ) && !action.keys().iter().all(|key| matches!(key, Key::Pool(_)))
                && !says_standing(action)
        });
        for action in routine {
            match action {
                Action::RecordEvent(event) => self.told.push((event.reason.into_owned(), event.note)),
                Action::ReceiveInterruptions => {}
                Action::ObserveCapacity(nodes) => {
                    self.observed.extend(nodes);
                    self.engine.complete(ActionReport::done(vec![Key::Capacity]), at(seconds));
                }
                said if says_standing(&said) => self.done(seconds, &said, vec![]),
                other => self.answer(seconds, other),
            }
        }
        kept
    }
}

/// The pool, with `more` in its spec.
pub fn pool(version: u64, more: &Value) -> Box<TenantPool> {
    let mut object = json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool",
        "metadata": {"name": "pool-a", "uid": "pool-uid", "resourceVersion": version.to_string(), "generation": 1,
            "finalizers": ["croft.dev/pool"]},
        "spec": {"key": "node-pool", "disruption": {"consolidateAfter": "30s"},
            "template": {"spec": {"nodeClassRef": {"name": "class"}}}},
        "status": {"conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    });
    croft_controller::merge_patch::apply(&mut object["spec"], more);
    read(object)
}

pub fn types() -> Arc<[InstanceType]> {
    croft_cloud::builtin_catalog()
        .iter()
        .filter(|t| t.name == "m5.large" || t.name == "m5.xlarge")
        .cloned()
        .collect()
}

pub fn pod(name: &str, node: Option<&str>) -> Box<Pod> {
    read(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "tenant-a", "uid": format!("{name}-uid"),
            "resourceVersion": if node.is_some() { "500" } else { "100" }},
        "spec": {
            "nodeName": node,
            "nodeSelector": {"node-pool": "pool-a"},
            "tolerations": [{"key": "node-pool", "operator": "Equal", "value": "pool-a", "effect": "NoSchedule"}],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        },
        "status": {"phase": "Pending"},
    }))
}

pub fn claim(version: u64, status: Value, deleted: bool) -> Box<NodeClaim> {
    let mut object = json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "NodeClaim",
        "metadata": {"name": "pool-a-1", "uid": "claim-uid", "resourceVersion": version.to_string(),
            "creationTimestamp": time(0), "finalizers": ["croft.dev/termination"]},
        "spec": {"pool": "pool-a", "nodeClassRef": {"name": "class"}, "instanceTypes": ["m5.large"],
            "zones": ["us-east-1a"], "capacityType": "on-demand", "labels": {"node-pool": "pool-a"},
            "taints": [{"key": "node-pool", "value": "pool-a", "effect": "NoSchedule"}]},
        "status": status,
    });
    if deleted {
        object["metadata"]["deletionTimestamp"] = json!(time(0));
    }
    read(object)
}

pub fn condition(kind: &str, since: u64) -> Value {
    json!({"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": time(since)})
}

pub fn launched(more: &[&str]) -> Value {
    let mut conditions = vec![condition("Launched", 0)];
    conditions.extend(more.iter().map(|kind| condition(kind, 0)));
    json!({"providerId": "aws:///us-east-1a/i-1", "nodeName": "node-1", "instanceType": "m5.large",
        "zone": "us-east-1a", "capacityType": "on-demand", "conditions": conditions})
}

/// The node of [`claim`], marked as its once it is taken in. With the pool's label it has the pool's taint after `taints`.
pub fn node(version: u64, provider_id: &str, labels: Value, mut taints: Value, ready: bool) -> Box<Node> {
    if labels.get("node-pool").is_some() && !taints_have(&taints, "node-pool") {
        let own = json!({"key": "node-pool", "value": "pool-a", "effect": "NoSchedule"});
        taints.as_array_mut().unwrap().push(own);
    }
    let marks = match taints_have(&taints, "croft.dev/unregistered") {
        true => json!({}),
        false => json!({"croft.dev/claim": "pool-a-1"}),
    };
    let finalizers = match taints_have(&taints, "croft.dev/unregistered") {
        true => json!([]),
        false => json!(["croft.dev/termination"]),
    };
    read(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "node-1", "uid": "node-uid", "resourceVersion": version.to_string(), "labels": labels,
            "annotations": marks, "finalizers": finalizers},
        "spec": {"providerID": provider_id, "taints": taints,
            "unschedulable": taints_have(&taints, "croft.dev/disrupted")},
        "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
            "capacity": {"cpu": "2", "memory": "8Gi", "pods": "29"},
            "allocatable": {"cpu": "1930m", "memory": "7Gi", "pods": "29"}},
    }))
}

pub fn taints_have(taints: &Value, key: &str) -> bool {
    taints.as_array().is_some_and(|t| t.iter().any(|t| t["key"] == json!(key)))
}

pub fn registered_labels() -> Value {
    json!({"node-pool": "pool-a", "node.kubernetes.io/instance-type": "m5.large",
        "topology.kubernetes.io/zone": "us-east-1a", "karpenter.sh/capacity-type": "on-demand",
        "croft.dev/capacity-type": "on-demand"})
}

fn says_standing(action: &Action) -> bool {
    let Action::Write { call, .. } = action else { return false };
    let Verb::PatchStatus(patch) = &call.verb else { return false };
    patch["status"]["conditions"]
        .as_array()
        .is_some_and(|conditions| conditions.iter().any(|c| c["type"] == json!("Consolidatable")))
}

pub fn verb(actions: &[Action]) -> (&Target, &Verb) {
    match actions {
        [Action::Write { call, .. }] => (&call.target, &call.verb),
        other => panic!("one write expected, not {other:?}"),
    }
}
