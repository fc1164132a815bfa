//! Several tenants at once: the load of some goes up and down, that of the others doesn't.

use std::collections::{BTreeMap, BTreeSet};

use croft_api::TenantPool;
use croft_controller::{
    action::Action,
    kube_api::{Change, Kind, ObjectId, Target, Verb},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world::{World, types};

const TICK: u64 = 10;
/// Until whatever was packed badly at the start is packed well.
const SETTLE: u64 = 1_200;
const HOURS: u64 = 2;

/// A tenant's load: so many pods always, and so many more in every other half of a period.
#[derive(Clone, Debug)]
struct Swing {
    steady: u64,
    more: u64,
    period: u64,
    cpu: u32,
}

impl Swing {
    fn wanted(&self, at: u64) -> u64 {
        self.steady + if at % self.period < self.period / 2 { 0 } else { self.more }
    }
}

#[derive(Clone, Debug)]
struct Pod {
    tenant: usize,
    node: Option<String>,
}

#[derive(Debug)]
struct Node {
    tenant: usize,
    open: bool,
    free: u32,
    /// Those of its claim, the template's among them.
    labels: Value,
}

/// Everybody around the engine, at the speed of one tick.
struct Town {
    world: World,
    swings: Vec<Swing>,
    pods: BTreeMap<String, Pod>,
    nodes: BTreeMap<String, Node>,
    numbers: u64,
    evictions: BTreeMap<usize, u64>,
    touched: BTreeMap<usize, u64>,
}

fn pool(tenant: usize) -> String {
    format!("p{tenant}")
}

impl Town {
    fn new(swings: Vec<Swing>) -> Self {
        let mut world = World::new(json!({}));
        for tenant in 0..swings.len() {
            // As pools are that say nothing, but that all may go at once: nothing but the price of moves paces them.
            let disruption = json!({"consolidateAfter": "30s", "minSavings": "0.01"});
            world.pool_named(&pool(tenant), disruption, json!({}));
        }
        Self {
            world,
            swings,
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            numbers: 0,
            evictions: BTreeMap::new(),
            touched: BTreeMap::new(),
        }
    }

    fn show(&mut self, name: &str) {
        let pod = self.pods[name].clone();
        let started = pod.node.as_ref().map(|_| self.world.now().wall.to_string());
        let extra = json!({
            "metadata": {"uid": name, "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet",
                "name": "web", "uid": format!("web-{}", pod.tenant), "controller": true}]},
            "spec": {"nodeSelector": {"node-pool": pool(pod.tenant)}}, "status": {"startTime": started},
        });
        let cpu = self.swings[pod.tenant].cpu;
        self.world.pod(name, pod.node.as_deref().unwrap_or_default(), cpu, extra);
    }

    fn add(&mut self, tenant: usize) {
        self.numbers += 1;
        let name = format!("pod{:06}", self.numbers);
        self.pods.insert(name.clone(), Pod { tenant, node: None });
        self.show(&name);
    }

    fn remove(&mut self, name: &str) -> usize {
        let pod = self.pods.remove(name).unwrap();
        if let Some(node) = pod.node.and_then(|node| self.nodes.get_mut(&node)) {
            node.free += self.swings[pod.tenant].cpu;
        }
        self.world.observe(Change::Gone(ObjectId::new(Kind::Pod, "a", name)));
        pod.tenant
    }

    /// The Deployments' controller: the youngest go first.
    fn scale(&mut self, at: u64) {
        for tenant in 0..self.swings.len() {
            let wanted = usize::try_from(self.swings[tenant].wanted(at)).unwrap();
            let own: Vec<String> =
                self.pods.iter().filter(|(_, p)| p.tenant == tenant).map(|(name, _)| name.clone()).collect();
            own.iter().skip(wanted).for_each(|name| {
                self.remove(name);
            });
            (own.len()..wanted).for_each(|_| self.add(tenant));
        }
    }

    /// kube-scheduler: where most is free.
    fn bind(&mut self) {
        let waiting: Vec<String> =
            self.pods.iter().filter(|(_, p)| p.node.is_none()).map(|(name, _)| name.clone()).collect();
        for name in waiting {
            let tenant = self.pods[&name].tenant;
            let cpu = self.swings[tenant].cpu;
            let open = self.nodes.iter_mut().filter(|(_, n)| n.tenant == tenant && n.open && n.free >= cpu);
            let Some((node, held)) = open.max_by_key(|(_, n)| n.free) else { continue };
            held.free -= cpu;
            self.pods.get_mut(&name).unwrap().node = Some(node.clone());
            self.show(&name);
        }
    }

    /// Carries out what was decided.
    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::CreateClaims(new) => new.claims.iter().for_each(|c| self.launch(&c.name, &c.object)),
                Action::Write { call, .. } => match (&call.target, &call.verb) {
                    (Target::Claim(name), Verb::Delete { .. }) => self.give_back(name),
                    (Target::Claim(name), Verb::Patch(patch)) if self.nodes.contains_key(name) => {
                        // Only the end of the command matters here.
                        assert!(patch["metadata"]["annotations"].is_object(), "{patch}");
                        let (kind, node) = (self.kind(name), &self.nodes[name]);
                        let kept = json!({"spec": {"labels": node.labels}});
                        self.world.node_in(&pool(node.tenant), name, &kind, kept);
                    }
                    (Target::Node(name), Verb::JsonPatch(patch)) => {
                        let mut operations = patch.as_array().unwrap().iter();
                        // Other patches make nodes less welcome.
                        let cordon = operations.find(|o| o["path"] == "/spec/unschedulable");
                        let Some(cordon) = cordon else { continue };
                        let closed = cordon["value"] == true;
                        if let Some(node) = self.nodes.get_mut(name) {
                            node.open = !closed;
                            self.world.cordon(name, closed);
                        }
                    }
                    _ => {}
                },
                _ => {}
            }
        }
    }

    fn kind(&self, node: &str) -> String {
        let labels = &self.world.engine.snapshot().nodes()[node].labels;
        labels["node.kubernetes.io/instance-type"].clone()
    }

    fn launch(&mut self, name: &str, object: &Value) {
        let of = object["spec"]["pool"].as_str().unwrap();
        let tenant: usize = of[1..].parse().unwrap();
        let kind = object["spec"]["instanceTypes"][0].as_str().unwrap();
        let has = types().iter().find(|t| t.name == kind).unwrap().capacity.get("cpu");
        let (free, labels) = (u32::try_from(has).unwrap(), object["spec"]["labels"].clone());
        let kept = json!({"metadata": {"annotations": object["metadata"]["annotations"]},
            "spec": {"labels": labels}});
        self.nodes.insert(name.to_owned(), Node { tenant, open: true, free, labels });
        *self.touched.entry(tenant).or_default() += 1;
        self.world.node_in(of, name, kind, kept);
    }

    /// Its pods are evicted and made again.
    fn give_back(&mut self, name: &str) {
        let Some(node) = self.nodes.remove(name) else { return };
        *self.touched.entry(node.tenant).or_default() += 1;
        let on: BTreeSet<String> = self
            .pods
            .iter()
            .filter(|(_, p)| p.node.as_deref() == Some(name))
            .map(|(pod, _)| pod.clone())
            .collect();
        for pod in on {
            let tenant = self.remove(&pod);
            *self.evictions.entry(tenant).or_default() += 1;
            self.add(tenant);
        }
        self.world.observe(Change::Gone(ObjectId::new(Kind::Node, "", name)));
        self.world.observe(Change::Gone(ObjectId::new(Kind::NodeClaim, "", name)));
    }

    fn play(&mut self, seconds: u64) {
        let until = self.world.seconds + seconds;
        while self.world.seconds < until {
            let at = self.world.seconds;
            self.scale(at);
            self.bind();
            let search = self.world.step(TICK);
            let decided = std::mem::take(&mut self.world.actions);
            if let Some(search) = search {
                self.world.answer(&search);
            }
            self.carry_out(decided);
            self.bind();
        }
    }
}

fn swings() -> impl Strategy<Value = Vec<Swing>> {
    let swing = (3u64..8, 0u64..9, prop::sample::select(vec![40u64, 90, 200, 600, 1_800])).prop_flat_map(
        |(steady, more, period)| {
            prop::sample::select(vec![500u32, 900, 1_500]).prop_map(move |cpu| Swing {
                steady,
                more,
                period,
                cpu,
            })
        },
    );
    let quiet = (3u64..8, prop::sample::select(vec![500u32, 900, 1_500])).prop_map(|(steady, cpu)| Swing {
        steady,
        more: 0,
        period: 600,
        cpu,
    });
    (prop::collection::vec(swing, 2..4), prop::collection::vec(quiet, 1..3))
        .prop_map(|(swings, quiet)| swings.into_iter().chain(quiet).collect())
}

/// Templates of a pool: each has a type, a weight, and perhaps a limit of nodes.
fn templates() -> impl Strategy<Value = Vec<Value>> {
    let one = (prop::sample::select(vec!["m.2", "m.4", "m.8"]), 0i32..3, prop::option::of(1u32..4));
    prop::collection::vec(one, 2..4).prop_map(|all| {
        let template = |(n, (kind, weight, limit)): (usize, (&str, i32, Option<u32>))| {
            json!({"name": format!("t{n}"), "weight": weight,
                "limits": limit.map_or_else(|| json!({}), |nodes| json!({"nodes": nodes})),
                "spec": {"nodeClassRef": {"name": "c"}, "requirements": [
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [kind]}]}})
        };
        all.into_iter().enumerate().map(template).collect()
    })
}

impl Town {
    /// Shows the first tenant's pool with these templates.
    fn show_templates(&mut self, templates: &[Value], wanted: &Value) {
        let metadata = self.world.meta("p0");
        let pool = json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": metadata,
            "spec": {"key": "node-pool", "templates": templates, "return": wanted,
                "disruption": {"consolidateAfter": "30s", "minSavings": "0.01", "preference": "Cheapest",
                    "budgets": [{"nodes": "100%"}]}},
            "status": {"conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
                "lastTransitionTime": self.world.begun.to_string()}]},
        });
        self.world.observe(serde_json::from_value::<TenantPool>(pool).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() })]

    /// Loads that swing in some tenants' pools change nothing in the others', and move no pod back and forth.
    #[test]
    fn loads_that_swing_disturb_no_neighbour_and_few_of_their_own(swings in swings()) {
        let mut town = Town::new(swings.clone());
        town.play(SETTLE);
        town.evictions.clear();
        town.touched.clear();
        town.play(HOURS * 3_600);
        for (tenant, swing) in swings.iter().enumerate() {
            let touched = town.touched.get(&tenant).copied().unwrap_or(0);
            let evictions = town.evictions.get(&tenant).copied().unwrap_or(0);
            if swing.more == 0 {
                prop_assert_eq!((touched, evictions), (0, 0), "tenant {} is quiet: {:?}", tenant, swing);
            }
            // Pods that swing come and go by themselves. Of those that stay, each may be moved once an hour.
            let most = (swing.steady + swing.more) * HOURS;
            prop_assert!(evictions <= most, "tenant {tenant}: {evictions} evictions, {swing:?}");
        }
    }

    /// Whatever becomes of nodes of lighter templates: with nothing changing, nodes stop changing.
    #[test]
    fn nodes_stop_changing_once_nothing_changes(
        templates in templates(),
        steady in 1u64..9,
        cpu in prop::sample::select(vec![500u32, 900, 1_500]),
        wanted in prop::sample::select(vec![
            json!({"policy": "Never"}), json!({"policy": "WhenConsolidating"}), json!({"policy": "Eagerly", "after": "2m"}),
        ]),
    ) {
        let mut town = Town::new(vec![Swing { steady, more: 0, period: 600, cpu }]);
        // At first the heavy templates have no room, so that nodes are of lighter ones.
        let mut short = templates.clone();
        let least = templates.iter().map(|one| one["weight"].as_i64()).min().flatten();
        for one in short.iter_mut().filter(|one| one["weight"].as_i64() > least) {
            one["limits"] = json!({"nodes": 0});
        }
        town.show_templates(&short, &wanted);
        town.play(SETTLE);
        town.show_templates(&templates, &wanted);
        town.play(3 * SETTLE);
        town.touched.clear();
        town.play(HOURS * 3_600);
        prop_assert_eq!(town.touched.get(&0).copied().unwrap_or(0), 0, "{:?} {:?}", templates, wanted);
    }
}
