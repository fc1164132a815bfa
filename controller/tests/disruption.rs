//! What disruption decides, step by step, without anything that carries it out.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_controller::{
    action::{Action, News, Report, Search},
    engine::{Engine, KINDS},
    seam::{Target, Verb},
    settings::Settings,
    snapshot::Change,
    time::Now,
};
use croft_scheduler::{
    CapacityType, InstanceType, Offering, PodKey, Price, Resources, consolidate::consolidate,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

fn types() -> Arc<[InstanceType]> {
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
                }],
                ..InstanceType::default()
            }
        })
        .into()
}

struct World {
    engine: Engine,
    begun: Timestamp,
    seconds: u64,
    version: u64,
    actions: Vec<Action>,
}

impl World {
    /// A pool `p` whose `spec.disruption` is merged into `5s, 100 %`.
    fn new(disruption: Value) -> Self {
        let settings = Settings { repair_after: Duration::from_secs(1_800), ..Settings::default() };
        let mut world = Self {
            engine: Engine::new(settings),
            begun: "2026-11-01T00:00:00Z".parse().unwrap(),
            seconds: 1_000_000,
            version: 0,
            actions: Vec::new(),
        };
        let meta = json!({"name": "c", "uid": "c", "resourceVersion": "1"});
        world.observe(Change::Class(Box::new(
            serde_json::from_value(json!({
                "apiVersion": "croft.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": meta,
                "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "r",
                    "subnetSelectorTerms": [{"tags": {"a": "b"}}],
                    "securityGroupSelectorTerms": [{"tags": {"a": "b"}}]},
            }))
            .unwrap(),
        )));
        world.pool(disruption, json!({}));
        world.engine.snapshot.offers("c", Ok(types()));
        for kind in KINDS {
            world.observe(Change::Synced(kind));
        }
        world
    }

    fn pool(&mut self, disruption: Value, template: Value) {
        self.pool_named("p", disruption, template);
    }

    fn pool_named(&mut self, name: &str, disruption: Value, template: Value) {
        let mut spec = json!({
            "key": "node-pool",
            "disruption": {"consolidateAfter": "5s", "budgets": [{"nodes": "100%"}]},
            "template": {"spec": {"nodeClassRef": {"name": "c"}}},
        });
        croft_controller::merge::apply(&mut spec["disruption"], &disruption);
        croft_controller::merge::apply(&mut spec["template"], &template);
        let meta = self.meta(name);
        let pool =
            json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": meta, "spec": spec});
        self.observe(Change::Pool(Box::new(serde_json::from_value(pool).unwrap())));
    }

    fn meta(&mut self, name: &str) -> Value {
        self.version += 1;
        json!({"name": name, "uid": format!("uid-{name}"), "resourceVersion": self.version.to_string(),
            "creationTimestamp": self.begun.to_string(), "finalizers": ["croft.dev/termination", "croft.dev/pool"]})
    }

    fn now(&self) -> Now {
        let at = self.begun.checked_add(SignedDuration::from_secs(self.seconds.try_into().unwrap()));
        Now { wall: at.unwrap(), mono: Duration::from_secs(self.seconds) }
    }

    fn observe(&mut self, change: Change) {
        let now = self.now();
        self.engine.observe(change, now);
    }

    /// A claim with its node, ready unless `extra` says otherwise.
    fn node(&mut self, name: &str, kind: &str, extra: Value) {
        self.node_in("p", name, kind, extra);
    }

    fn node_in(&mut self, pool: &str, name: &str, kind: &str, extra: Value) {
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
        croft_controller::merge::apply(&mut claim, &extra);
        let claim: croft_api::NodeClaim = serde_json::from_value(claim).unwrap();
        let has = types().iter().find(|t| t.name == kind).unwrap().capacity.to_quantities();
        let mut node = json!({
            "metadata": self.meta(name),
            "spec": {"providerID": format!("aws:///zone-a/{name}"),
                "taints": [{"key": "node-pool", "value": pool, "effect": "NoSchedule"}]},
            "status": {"capacity": has, "allocatable": has, "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": self.begun.to_string()}]},
        });
        node["metadata"]["labels"] = json!({
            "node-pool": pool, "node-restriction.kubernetes.io/pool": pool, "topology.kubernetes.io/zone": "zone-a",
            "node.kubernetes.io/instance-type": kind, "karpenter.sh/capacity-type": "on-demand",
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        });
        self.observe(Change::Node(Box::new(serde_json::from_value(node).unwrap())));
        self.observe(Change::Claim(Box::new(claim)));
    }

    fn pod(&mut self, name: &str, node: &str, cpu: u32, extra: Value) {
        let mut pod = json!({
            "metadata": self.meta(name),
            "spec": {"nodeName": node, "nodeSelector": {"node-pool": "p"},
                "tolerations": [{"key": "node-pool", "operator": "Exists"}], "containers": [{"name": "c",
                "resources": {"requests": {"cpu": format!("{cpu}m"), "memory": "128Mi"}}}]},
            "status": {"phase": "Running", "startTime": self.begun.to_string()},
        });
        pod["metadata"]["namespace"] = json!("a");
        pod["metadata"]["labels"] = json!({"app": "web"});
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": true}]);
        croft_controller::merge::apply(&mut pod, &extra);
        self.observe(Change::Pod(Box::new(serde_json::from_value(pod).unwrap())));
    }

    fn budget(&mut self, allowed: i32) {
        let mut budget = json!({"metadata": self.meta("web"), "status": {"disruptionsAllowed": allowed,
            "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
            "spec": {"selector": {"matchLabels": {"app": "web"}}}});
        budget["metadata"]["namespace"] = json!("a");
        self.observe(Change::Budget(Box::new(serde_json::from_value(budget).unwrap())));
    }

    /// Steps after `seconds`; every action but a search ends well at once, without effect.
    fn step(&mut self, seconds: u64) -> Option<Box<Search>> {
        self.seconds += seconds;
        let now = self.now();
        self.actions = self.engine.step(now).actions;
        let mut search = None;
        for action in self.actions.clone() {
            match action {
                Action::Consolidate(one) => search = Some(one),
                other => self.engine.complete(Report::done(other.keys()), now),
            }
        }
        search
    }

    fn answer(&mut self, search: &Search) {
        let found = consolidate(&search.cluster, &search.ask, &|| false);
        let keys = Action::Consolidate(Box::new(search.clone())).keys();
        let news = vec![News::Consolidation(Box::new(found))];
        let now = self.now();
        self.engine.complete(Report { news, ..Report::done(keys) }, now);
    }

    /// Steps until something is searched for.
    fn search(&mut self) -> Box<Search> {
        self.step(0);
        self.step(11).expect("a search")
    }

    fn deleted(&self) -> Vec<String> {
        let name = |action: &Action| match action {
            Action::Write { call, .. } => match (&call.target, &call.verb) {
                (Target::Claim(name), Verb::Delete { .. }) => Some(name.clone()),
                _ => None,
            },
            _ => None,
        };
        self.actions.iter().filter_map(name).collect()
    }

    fn cordoned(&self) -> usize {
        let cordons = |action: &&Action| match action {
            Action::Write { call, .. } if matches!(call.target, Target::Node(_)) => {
                format!("{:?}", call.verb).contains("\"unschedulable\": Bool(true)")
            }
            _ => false,
        };
        self.actions.iter().filter(cordons).count()
    }

    fn created(&self) -> Vec<Value> {
        let claims = |action: &Action| match action {
            Action::CreateClaims(new) => new.claims.iter().map(|c| c.object.clone()).collect(),
            _ => Vec::new(),
        };
        self.actions.iter().flat_map(claims).collect()
    }

    /// Reasons of the condition Consolidatable that are written, by claim.
    fn verdicts(&self) -> BTreeMap<String, (String, String)> {
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

    fn told(&self, reason: &str) -> Vec<String> {
        let note = |action: &Action| match action {
            Action::Tell(notice) if notice.reason == reason => Some(notice.note.clone()),
            _ => None,
        };
        self.actions.iter().filter_map(note).collect()
    }
}

/// Three nodes of 8 processors, each with a pod of 1.
fn three() -> World {
    let mut world = World::new(json!({}));
    for n in 0..3 {
        world.node(&format!("n{n}"), "m.8", json!({}));
        world.pod(&format!("pod{n}"), &format!("n{n}"), 1000, json!({}));
    }
    world
}

fn begun() -> (World, Value) {
    let mut world = three();
    let search = world.search();
    assert_eq!(search.ask.candidates.len(), 3);
    world.answer(&search);
    world.step(1);
    let created = world.created();
    assert_eq!((created.len(), world.deleted().len()), (1, 0), "{:?}", world.actions);
    (world, created[0].clone())
}

#[test]
fn the_replacement_comes_first_and_is_looked_at_again() {
    let (mut world, made) = begun();
    let annotations = &made["metadata"]["annotations"];
    assert_eq!(annotations["croft.dev/replaces"], json!("n0,n1,n2"));
    let name = made["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(annotations["croft.dev/move"], json!(format!("{name}/1")));
    let kind = made["spec"]["instanceTypes"][0].as_str().unwrap().to_owned();
    assert_eq!(kind, "m.4");

    // There, and not initialized: nothing goes, and nothing else is begun.
    let waiting = json!({"metadata": {"annotations": annotations}, "status": {"conditions": []}});
    world.node(&name, &kind, waiting);
    assert!(world.step(20).is_none() && world.deleted().is_empty(), "{:?}", world.actions);
    // Ready and without pods, it isn't given back as empty.
    world.node(&name, &kind, json!({"metadata": {"annotations": annotations}}));
    world.step(1);
    let mut gone = world.deleted();
    gone.sort();
    assert_eq!((gone, world.cordoned()), (["n0", "n1", "n2"].map(str::to_owned).to_vec(), 0));
}

#[test]
fn a_replacement_that_does_not_come_undoes_the_decision() {
    let (mut world, made) = begun();
    let name = made["metadata"]["name"].as_str().unwrap().to_owned();
    let annotations = &made["metadata"]["annotations"];
    let going = json!({"metadata": {"annotations": annotations, "deletionTimestamp": "2026-11-12T00:00:00Z"},
        "status": {"conditions": [], "providerId": null, "nodeName": null}});
    world.node(&name, "m.4", going);
    world.step(1);
    assert!(world.deleted().is_empty(), "{:?}", world.deleted());
    assert_eq!(world.told("DisruptionUndone").len(), 3);
    world.observe(Change::ClaimGone(name.clone()));
    world.observe(Change::NodeGone(name));
    // Left alone for a while, then asked about again.
    assert!(world.step(60).is_none());
    assert!(world.step(600).is_some());
}

#[test]
fn what_was_launched_and_no_longer_suffices_undoes_the_decision() {
    let (mut world, made) = begun();
    let name = made["metadata"]["name"].as_str().unwrap().to_owned();
    world.node(&name, "m.4", json!({"metadata": {"annotations": made["metadata"]["annotations"]}}));
    // The load has come back meanwhile.
    world.pod("more", "n0", 6000, json!({}));
    world.step(1);
    assert!(world.deleted().is_empty());
    world.step(31);
    assert_eq!(world.deleted(), [name]);
    assert!(world.told("DisruptionUndone")[0].contains("no longer fit"), "{:?}", world.actions);
}

#[test]
fn an_answer_about_other_pods_is_dropped() {
    let mut world = three();
    let search = world.search();
    world.pod("new", "n0", 100, json!({}));
    world.answer(&search);
    world.step(1);
    assert!(world.created().is_empty() && world.deleted().is_empty(), "{:?}", world.actions);
}

#[test]
fn what_keeps_a_node_keeps_it_out_of_the_question() {
    let alone = |extra: Value| {
        let mut world = three();
        world.pod("pod0", "n0", 1000, extra);
        let search = world.search();
        search.ask.candidates.iter().map(|c| c.node.clone()).collect::<Vec<_>>()
    };
    assert_eq!(alone(json!({})), ["n0", "n1", "n2"]);
    assert_eq!(
        alone(json!({"metadata": {"annotations": {"croft.dev/do-not-disrupt": "true"}}})),
        ["n1", "n2"]
    );
    assert_eq!(
        alone(json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}})),
        ["n1", "n2"]
    );
    assert_eq!(alone(json!({"metadata": {"ownerReferences": []}})), ["n1", "n2"]);

    let mut world = three();
    world.budget(0);
    assert!(world.step(0).is_none() && world.step(11).is_none());
    world.budget(1);
    assert!(world.step(11).is_some());

    let mut world = three();
    world.pool(json!({"consolidationPolicy": "WhenEmpty"}), json!({}));
    assert!(world.step(0).is_none() && world.step(11).is_none());
    world.pool(json!({"budgets": [{"nodes": "0"}]}), json!({}));
    assert!(world.step(11).is_none());
    world.pool(json!({"budgets": [{"nodes": "1"}]}), json!({}));
    assert_eq!(world.step(11).unwrap().ask.terms["p"].nodes, 1);
}

#[test]
fn pods_must_be_unchanged_for_as_long_as_asked() {
    let mut world = three();
    world.pool(json!({"consolidateAfter": "60s"}), json!({}));
    assert!(world.step(0).is_none());
    assert!(world.step(59).is_none());
    world.pod("late", "n1", 100, json!({}));
    let search = world.step(1).unwrap();
    assert_eq!(search.ask.candidates.iter().map(|c| c.node.as_str()).collect::<Vec<_>>(), ["n0", "n2"]);
}

#[test]
fn empty_nodes_go_at_once_unless_a_budget_says_otherwise() {
    for (budgets, expected) in [
        (json!([{"nodes": "10%", "reasons": ["Underutilized", "Drifted", "Expired"]}]), 10),
        (json!([{"nodes": "10%"}]), 1),
        (json!([{"nodes": "3", "reasons": ["Empty"]}]), 3),
        (json!([{"nodes": "0", "schedule": "* * * * *", "duration": "5m"}]), 0),
    ] {
        let mut world = World::new(json!({"budgets": budgets}));
        for n in 0..10 {
            world.node(&format!("n{n}"), "m.2", json!({}));
        }
        world.step(0);
        world.step(4);
        assert_eq!(world.cordoned(), 0);
        world.step(2);
        assert_eq!(world.cordoned(), expected, "{budgets}");
    }
}

#[test]
fn drift_replaces_within_its_budget_and_says_why() {
    let mut world = World::new(json!({"consolidateAfter": "Never", "budgets": [{"nodes": "2"}]}));
    let stamp = json!({"version": 1, "fields": {"pool.labels": "of another time"}}).to_string();
    for n in 0..4 {
        let name = format!("n{n}");
        world.node(&name, "m.2", json!({"metadata": {"annotations": {"croft.dev/launched-with": stamp}}}));
        world.pod(&format!("pod{n}"), &name, 1800, json!({}));
    }
    world.step(0);
    let made = world.created();
    // Two of the four, which one machine of twice the size holds at the same price.
    assert_eq!(made.len(), 1, "{:?}", world.actions);
    assert_eq!(made[0]["metadata"]["annotations"]["croft.dev/replaces"], json!("n0,n1"));
    assert_eq!(made[0]["metadata"]["annotations"]["croft.dev/disruption-reason"], json!("Drifted"));
    let told = world.told("Disrupting");
    assert!(
        told.len() == 2 && told[0].starts_with("Drifted: pool.labels changed since its launch"),
        "{told:?}"
    );
    assert!(world.deleted().is_empty());
}

#[test]
fn old_nodes_expire_and_what_protects_them_is_said() {
    let old = json!({"spec": {"expireAfter": "240h"}});
    let mut world = three();
    world.pool(json!({"consolidateAfter": "Never", "budgets": [{"nodes": "1"}]}), old.clone());
    world.step(0);
    // Its pod fits beside another: nothing is launched for it.
    assert_eq!((world.deleted().len(), world.created().len()), (1, 0), "{:?}", world.actions);
    let mut world = three();
    world.budget(0);
    world.pool(json!({"consolidateAfter": "Never"}), old);
    world.step(0);
    assert!(world.deleted().is_empty() && world.created().is_empty());
    let told = world.told("DisruptionBlocked");
    assert!(told[0].contains("PodDisruptionBudget web allows none"), "{told:?}");
}

#[test]
fn broken_machines_are_replaced_unless_too_many_are() {
    for (broken, expected) in [(1, 1), (2, 2), (3, 0)] {
        let mut world = World::new(json!({"consolidateAfter": "Never"}));
        for n in 0..10 {
            let name = format!("n{n}");
            world.node(&name, "m.2", json!({}));
            world.pod(&format!("pod{n}"), &name, 1500, json!({}));
        }
        for n in 0..broken {
            let mut node = json!({"metadata": world.meta(&format!("n{n}")),
                "spec": {"providerID": format!("aws:///zone-a/n{n}")}});
            node["metadata"]["labels"] = json!({"node-pool": "p"});
            node["status"]["conditions"] = json!([{"type": "Ready", "status": "False",
                "lastTransitionTime": world.begun.to_string()}]);
            world.observe(Change::Node(Box::new(serde_json::from_value(node).unwrap())));
        }
        world.step(0);
        assert_eq!(world.deleted().len(), expected, "{broken} of 10");
        assert_eq!(world.told("RepairStopped").len(), usize::from(expected == 0));
    }
}

#[test]
fn a_load_that_swings_moves_nothing() {
    let mut world = three();
    world.step(0);
    // Every 4 seconds a pod comes or goes on every node, for an hour: pods are never unchanged for 5.
    for turn in 0..900 {
        for n in 0..3 {
            if turn % 2 == 0 {
                let uid = json!({"metadata": {"uid": format!("{turn}-{n}")}});
                world.pod(&format!("swing{n}"), &format!("n{n}"), 500, uid);
            } else {
                world.observe(Change::PodGone(PodKey::new("a", &format!("swing{n}"))));
            }
        }
        assert!(world.step(4).is_none(), "turn {turn}");
        assert!(world.created().is_empty() && world.deleted().is_empty() && world.cordoned() == 0);
    }
}

#[test]
fn what_changes_in_one_pool_asks_nothing_about_another() {
    let mut world = World::new(json!({}));
    world.pool_named("q", json!({}), json!({}));
    for (pool, node) in [("p", "n0"), ("q", "n1")] {
        world.node_in(pool, node, "m.2", json!({}));
        let own = json!({"spec": {"nodeSelector": {"node-pool": pool}}});
        world.pod(&format!("pod-{node}"), node, 1800, own);
    }
    let search = world.search();
    assert_eq!(search.ask.terms.keys().collect::<Vec<_>>(), ["p", "q"]);
    world.answer(&search);
    world.step(1);
    assert!(world.step(600).is_none(), "the same is asked again");
    let own = json!({"metadata": {"uid": "another"}, "spec": {"nodeSelector": {"node-pool": "q"}}});
    world.pod("pod-n1", "n1", 1800, own);
    assert!(world.step(0).is_none());
    let search = world.step(6).unwrap();
    assert_eq!(search.ask.terms.keys().collect::<Vec<_>>(), ["q"]);
}

#[test]
fn why_each_node_stays_is_said_on_its_claim() {
    let mut world = World::new(json!({}));
    // What is on the first fits nowhere else.
    for (node, kind, cpu, extra) in [
        ("n0", "m.4", 3800, json!({})),
        ("n1", "m.2", 1000, json!({"metadata": {"annotations": {"croft.dev/do-not-disrupt": "true"}}})),
        ("n2", "m.2", 1000, json!({"metadata": {"ownerReferences": []}})),
    ] {
        world.node(node, kind, json!({}));
        world.pod(&format!("pod-{node}"), node, cpu, extra);
    }
    world.node("n3", "m.2", json!({}));
    let mut said = BTreeMap::new();
    let search = world.search();
    said.extend(world.verdicts());
    world.answer(&search);
    for _ in 0..3 {
        world.step(1);
        said.extend(world.verdicts());
    }
    let said: Vec<(&str, &str, &str)> = said
        .iter()
        .map(|(claim, (status, reason))| (claim.as_str(), status.as_str(), reason.as_str()))
        .collect();
    assert_eq!(
        said,
        [
            ("n0", "False", "NoSaving"),
            ("n1", "False", "PodKept"),
            ("n2", "False", "BarePod"),
            ("n3", "True", "Empty"),
        ]
    );
}
