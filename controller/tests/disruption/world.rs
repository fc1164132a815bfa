//! One engine, and what it is shown: pools, nodes and pods that are as a test says.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_api::{EC2NodeClass, TenantPool};
use croft_cloud::{CloudInstance, InstanceState};
use croft_controller::{
    action::{Action, ConsolidationSearch},
    config::settings::Settings,
    definitions::keys,
    disruption::outcomes::Outcome,
    engine::Engine,
    kube_api::{Change, Kind, Target, Verb},
    result::{ActionReport, ActionResult},
    state::InstanceList,
    time::Now,
};
use croft_scheduler::{CapacityType, InstanceType, Offering, Price, Resources, consolidation::consolidate};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use serde_json::{Value, json};

pub fn types() -> Arc<[InstanceType]> {
    [2i64, 4, 8]
        .map(|n| {
            let mut capacity = Resources::new();
            capacity.set("cpu", n * 1000);
            capacity.set("memory", (n * 4) << 30);
            capacity.set("pods", 110);
            InstanceType {
                name: format!("m.{n}"),
                arch: "amd64".to_owned(),
                os: vec!["linux".to_owned()],
                capacity,
                offerings: vec![Offering {
                    zone: "zone-a".to_owned(),
                    capacity_type: CapacityType::OnDemand,
                    price: Price::from_dollars(0.05 * n as f64),
                    available: true,
                    estimated: false,
                    available_count: None,
                }],
                ..InstanceType::default()
            }
        })
        .into()
}

pub struct World {
    pub engine: Engine,
    pub begun: Timestamp,
    pub seconds: u64,
    version: u64,
    pub actions: Vec<Action>,
    /// When the engine last asked to be woken.
    pub wake: Option<Duration>,
}

impl World {
    /// A pool `p` whose `spec.disruption` is merged into `5s, 100 %`.
    pub fn new(disruption: Value) -> Self {
        let mut world = Self {
            engine: Engine::new(Settings::default()),
            begun: "2026-11-01T00:00:00Z".parse().unwrap(),
            seconds: 1_000_000,
            version: 0,
            actions: Vec::new(),
            wake: None,
        };
        let meta = json!({"name": "c", "uid": "c", "resourceVersion": "1"});
        world.observe(
            serde_json::from_value::<EC2NodeClass>(json!({
                "apiVersion": "croft.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": meta,
                "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "r",
                    "subnetSelectorTerms": [{"tags": {"a": "b"}}],
                    "securityGroupSelectorTerms": [{"tags": {"a": "b"}}]},
            }))
            .unwrap(),
        );
        world.pool(disruption, json!({}));
        world.engine.snapshot_mut().set_offerings("c", Ok(types()));
        let asked = world.now();
        world.engine.snapshot_mut().set_instances(InstanceList { asked, instances: BTreeMap::new() });
        for kind in Kind::awaited_by_capacity() {
            world.observe(Change::Synced(kind));
        }
        world
    }

    pub fn pool(&mut self, disruption: Value, template: Value) {
        self.pool_named("p", disruption, template);
    }

    pub fn pool_named(&mut self, name: &str, disruption: Value, template: Value) {
        let mut spec = json!({
            "key": "node-pool",
            // Small savings are enough, however the default trades them.
            "disruption": {"consolidateAfter": "5s", "preference": "Cheapest", "budgets": [{"nodes": "100%"}]},
            "template": {"spec": {"nodeClassRef": {"name": "c"}}},
        });
        croft_controller::merge_patch::apply(&mut spec["disruption"], &disruption);
        croft_controller::merge_patch::apply(&mut spec["template"], &template);
        let meta = self.meta(name);
        let pool = json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": meta, "spec": spec,
            "status": {"conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
                "lastTransitionTime": self.begun.to_string()}]},
        });
        self.observe(serde_json::from_value::<TenantPool>(pool).unwrap());
    }

    pub fn meta(&mut self, name: &str) -> Value {
        self.version += 1;
        json!({"name": name, "uid": format!("uid-{name}"), "resourceVersion": self.version.to_string(),
            "creationTimestamp": self.begun.to_string(), "finalizers": ["croft.dev/termination", "croft.dev/pool"]})
    }

    pub fn now(&self) -> Now {
        let at = self.begun.checked_add(SignedDuration::from_secs(self.seconds.try_into().unwrap()));
        Now { wall: at.unwrap(), mono: Duration::from_secs(self.seconds) }
    }

    pub fn observe(&mut self, change: impl Into<Change>) {
        let now = self.now();
        self.engine.observe(change.into(), now);
    }

    /// A claim with its node, ready unless `extra` says otherwise.
    pub fn node(&mut self, name: &str, kind: &str, extra: Value) {
        self.node_in("p", name, kind, extra);
    }

    pub fn node_in(&mut self, pool: &str, name: &str, kind: &str, extra: Value) {
        let mut claim = json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "NodeClaim", "metadata": self.meta(name),
            "spec": {"pool": pool, "nodeClassRef": {"name": "c"}, "instanceTypes": [kind], "zones": ["zone-a"],
                "capacityType": "on-demand", "labels": {"node-pool": pool, "node-restriction.kubernetes.io/pool": pool}},
            "status": {"providerId": format!("aws:///zone-a/{name}"), "nodeName": name, "instanceType": kind,
                "zone": "zone-a", "capacityType": "on-demand",
                "pricePerHour": format!("{}", 0.05 * kind[2..].parse::<f64>().unwrap()),
                "conditions": (["Launched", "Registered", "Initialized", "Ready"].map(|kind| json!({"type": kind,
                    "status": "True", "reason": "x", "message": "", "lastTransitionTime": self.begun.to_string()})))},
        });
        croft_controller::merge_patch::apply(&mut claim, &extra);
        let claim: croft_api::NodeClaim = serde_json::from_value(claim).unwrap();
        let has = types().iter().find(|t| t.name == kind).unwrap().capacity.to_quantities();
        let mut node = json!({
            "metadata": self.meta(name),
            "spec": {"providerID": format!("aws:///zone-a/{name}"),
                "taints": [{"key": "node-pool", "value": pool, "effect": "NoSchedule"}]},
            "status": {"capacity": has, "allocatable": has, "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": self.begun.to_string()}]},
        });
        node["metadata"]["annotations"] = json!({"croft.dev/claim": name});
        node["metadata"]["labels"] = json!({
            "node-pool": pool, "node-restriction.kubernetes.io/pool": pool, "topology.kubernetes.io/zone": "zone-a",
            "node.kubernetes.io/instance-type": kind, "karpenter.sh/capacity-type": "on-demand",
            "croft.dev/capacity-type": "on-demand",
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        });
        for (key, value) in &claim.spec.labels {
            node["metadata"]["labels"][key] = json!(value);
        }
        self.observe(serde_json::from_value::<Node>(node).unwrap());
        self.observe(claim);
    }

    /// Shows a node as it was, cordoned by Croft or open again.
    pub fn cordon(&mut self, name: &str, closed: bool) {
        let view = &self.engine.snapshot().nodes()[name];
        let taint =
            json!({"key": croft_controller::definitions::keys::DISRUPTED_TAINT, "effect": "NoSchedule"});
        let own = json!({"key": "node-pool", "value": view.labels["node-pool"], "effect": "NoSchedule"});
        let taints = if closed { vec![own, taint] } else { vec![own] };
        let (labels, amounts) = (view.labels.clone(), view.capacity.to_quantities());
        let mut node = json!({
            "metadata": self.meta(name),
            "spec": {"providerID": format!("aws:///zone-a/{name}"), "taints": taints, "unschedulable": closed},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": self.begun.to_string()}]},
        });
        node["metadata"]["labels"] = json!(labels);
        self.observe(serde_json::from_value::<Node>(node).unwrap());
    }

    /// Lets the cloud list the instance of every claim.
    pub fn list(&mut self) {
        let asked = self.now();
        let instance = |name: &String| CloudInstance {
            id: name.clone(),
            provider_id: format!("aws:///zone-a/{name}"),
            state: InstanceState::Running,
            ..CloudInstance::default()
        };
        let instances =
            self.engine.snapshot().claims().keys().map(|name| (name.clone(), instance(name))).collect();
        self.engine.snapshot_mut().set_instances(InstanceList { asked, instances });
    }

    /// Shows a node without a label that it had.
    pub fn unlabel(&mut self, name: &str, label: &str) {
        let view = self.engine.snapshot().nodes()[name].clone();
        let amounts = view.capacity.to_quantities();
        let mut node = json!({
            "metadata": self.meta(name),
            "spec": {"providerID": format!("aws:///zone-a/{name}"), "taints": view.taints},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": self.begun.to_string()}]},
        });
        let mut labels = view.labels;
        labels.remove(label);
        node["metadata"]["labels"] = json!(labels);
        node["metadata"]["annotations"] = json!(view.annotations);
        self.observe(serde_json::from_value::<Node>(node).unwrap());
    }

    pub fn pod(&mut self, name: &str, node: &str, cpu: u32, extra: Value) {
        // A pod that waits has no node and hasn't started.
        let node = (!node.is_empty()).then_some(node);
        let started = node.map(|_| self.begun.to_string());
        let phase = if node.is_some() { "Running" } else { "Pending" };
        // A budget protects pods that are ready.
        let ready = if node.is_some() { "True" } else { "False" };
        let mut pod = json!({
            "metadata": self.meta(name),
            "spec": {"nodeName": node, "nodeSelector": {"node-pool": "p"},
                "tolerations": [{"key": "node-pool", "operator": "Exists"}], "containers": [{"name": "c",
                "resources": {"requests": {"cpu": format!("{cpu}m"), "memory": "128Mi"}}}]},
            "status": {"phase": phase, "startTime": started, "conditions": [{"type": "Ready", "status": ready}]},
        });
        pod["metadata"]["namespace"] = json!("a");
        pod["metadata"]["labels"] = json!({"app": "web"});
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": true}]);
        croft_controller::merge_patch::apply(&mut pod, &extra);
        self.observe(serde_json::from_value::<Pod>(pod).unwrap());
    }

    pub fn budget(&mut self, allowed: i32) {
        let mut budget = json!({"metadata": self.meta("web"), "status": {"disruptionsAllowed": allowed,
            "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
            "spec": {"selector": {"matchLabels": {"app": "web"}}}});
        budget["metadata"]["namespace"] = json!("a");
        self.observe(serde_json::from_value::<PodDisruptionBudget>(budget).unwrap());
    }

    /// Steps after `seconds`; every action but a search ends well at once, without effect.
    pub fn step(&mut self, seconds: u64) -> Option<Box<ConsolidationSearch>> {
        self.seconds += seconds;
        let now = self.now();
        let step = self.engine.step(now);
        (self.actions, self.wake) = (step.actions, step.requeue_at);
        let mut search = None;
        for action in self.actions.clone() {
            match action {
                Action::Consolidate(one) => search = Some(one),
                // The API server has the pods that the engine has been shown.
                Action::VerifyNoPods(look) => {
                    let vacant = ActionResult::NoPodsFound(look.subject.clone(), now.mono);
                    let keys = Action::VerifyNoPods(look).keys();
                    self.engine
                        .complete(ActionReport { results: vec![vacant], ..ActionReport::done(keys) }, now);
                }
                other => self.engine.complete(ActionReport::done(other.keys()), now),
            }
        }
        search
    }

    pub fn answer(&mut self, search: &ConsolidationSearch) {
        let found = consolidate(&search.cluster, &search.ask, &|| false);
        let keys = Action::Consolidate(Box::new(search.clone())).keys();
        let news = vec![ActionResult::Consolidation(Box::new(found))];
        let now = self.now();
        self.engine.complete(ActionReport { results: news, ..ActionReport::done(keys) }, now);
    }

    /// Steps until something is searched for.
    pub fn search(&mut self) -> Box<ConsolidationSearch> {
        self.step(0);
        self.step(11).expect("a search")
    }

    pub fn deleted(&self) -> Vec<String> {
        let name = |action: &Action| match action {
            Action::Write { call, .. } => match (&call.target, &call.verb) {
                (Target::Claim(name), Verb::Delete { .. }) => Some(name.clone()),
                _ => None,
            },
            _ => None,
        };
        self.actions.iter().filter_map(name).collect()
    }

    pub fn cordoned(&self) -> usize {
        let cordons = |action: &&Action| match action {
            Action::Write { call, .. } if matches!(call.target, Target::Node(_)) => {
                let Verb::JsonPatch(patch) = &call.verb else { return false };
                let cordon = json!({"op": "add", "path": "/spec/unschedulable", "value": true});
                patch.as_array().unwrap().contains(&cordon)
            }
            _ => false,
        };
        self.actions.iter().filter(cordons).count()
    }

    /// Replacements that become ordinary nodes.
    pub fn released(&self) -> usize {
        let releases = |action: &&Action| match action {
            Action::Write { call, .. } if matches!(call.target, Target::Claim(_)) => {
                let Verb::Patch(patch) = &call.verb else { return false };
                let annotations = patch["metadata"]["annotations"].as_object();
                annotations.is_some_and(|all| all.get(keys::REPLACES) == Some(&Value::Null))
            }
            _ => false,
        };
        self.actions.iter().filter(releases).count()
    }

    pub fn created(&self) -> Vec<Value> {
        let claims = |action: &Action| match action {
            Action::CreateClaims(new) => new.claims.iter().map(|c| c.object.clone()).collect(),
            _ => Vec::new(),
        };
        self.actions.iter().flat_map(claims).collect()
    }

    /// Reasons of the condition Consolidatable that are written, by claim.
    pub fn verdicts(&self) -> BTreeMap<String, (String, String)> {
        let verdict = |action: &Action| {
            let Action::Write { call, .. } = action else { return None };
            let (Target::Claim(name), Verb::PatchStatus(patch)) = (&call.target, &call.verb) else {
                return None;
            };
            let all = patch["status"]["conditions"].as_array()?;
            let one = all.iter().find(|c| c["type"] == json!("Consolidatable"))?;
            let text = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
            Some((name.clone(), (text("status"), text("reason"))))
        };
        self.actions.iter().filter_map(verdict).collect()
    }

    pub fn told(&self, reason: &str) -> Vec<String> {
        let note = |action: &Action| match action {
            Action::RecordEvent(event) if event.reason == reason => Some(event.note.clone()),
            _ => None,
        };
        self.actions.iter().filter_map(note).collect()
    }

    /// Outcomes of decisions so far, by reason.
    pub fn tally(&self, reason: &str) -> Vec<(Outcome, u64)> {
        let all = self.engine.disruption().history().outcomes();
        all.filter(|(of, _, _)| *of == reason).map(|(_, outcome, count)| (outcome, count)).collect()
    }

    /// How many nodes stay for a reason.
    pub fn kept_by(&self, reason: &str) -> usize {
        let mut all = self.engine.disruption().statuses().counts();
        all.find(|(goes, of, _)| !goes && *of == reason).map_or(0, |(_, _, count)| count)
    }
}
