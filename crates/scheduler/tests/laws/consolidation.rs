//! Decisions of consolidation, by table and by property.

use std::{cmp::Reverse, collections::BTreeMap, convert::Infallible};

use croft_scheduler::{
    CapacityType, Cluster, InstanceType, Options, PodKey, Pool, Price,
    consolidation::{
        Ask, Candidate, Command, Consolidation, PoolConstraints, Rejection, complete, consolidate,
    },
    solve,
};
use proptest::prelude::*;
use serde_json::json;

use crate::build::{self, cluster, kind, kinds, node, pod, pool};

const KEY: &str = "node-restriction.kubernetes.io/pool";

fn dollars(d: f64) -> Price {
    Price::from_dollars(d).unwrap()
}

/// A node of `p` with its price, and (cpu in thousandths, memory in MiB) of its pods.
#[derive(Clone, Debug)]
struct Held {
    kind: String,
    spot: bool,
    pods: Vec<(u32, u32)>,
}

fn held(kind: &str, pods: &[(u32, u32)]) -> Held {
    Held { kind: kind.to_owned(), spot: false, pods: pods.to_vec() }
}

struct World {
    types: Vec<InstanceType>,
    pool: Pool,
    /// By name.
    nodes: BTreeMap<String, (String, String, CapacityType)>,
    /// (cpu, memory, node) by name.
    pods: BTreeMap<String, (u32, u32, String)>,
    made: u32,
}

impl World {
    fn new(pool: Pool, held: &[Held]) -> Self {
        let mut world = Self {
            types: pool.instance_types.to_vec(),
            pool,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            made: 0,
        };
        for (at, one) in held.iter().enumerate() {
            let name = format!("node-{at:03}");
            let capacity = if one.spot { CapacityType::Spot } else { CapacityType::OnDemand };
            world.nodes.insert(name.clone(), (one.kind.clone(), "zone-a".to_owned(), capacity));
            for (number, (cpu, memory)) in one.pods.iter().enumerate() {
                world.pods.insert(format!("{name}-pod-{number}"), (*cpu, *memory, name.clone()));
            }
        }
        world
    }

    fn price(&self, kind: &str, zone: &str, capacity: CapacityType) -> Price {
        let kind = self.types.iter().find(|t| t.name == kind).unwrap();
        let offer = kind.offerings.iter().find(|o| o.zone == zone && o.capacity_type == capacity);
        offer.unwrap().price.unwrap()
    }

    fn cost(&self) -> Price {
        self.nodes.values().map(|(kind, zone, capacity)| self.price(kind, zone, *capacity)).sum()
    }

    fn cluster(&self) -> Cluster {
        let mut result = cluster(vec![self.pool.clone()], &[]);
        for (name, (kind, zone, capacity)) in &self.nodes {
            let has = &self.types.iter().find(|t| t.name == *kind).unwrap().capacity;
            let labels = json!({
                "node-pool": "p", KEY: "p", "node.kubernetes.io/instance-type": kind,
                "topology.kubernetes.io/zone": zone, "karpenter.sh/capacity-type": capacity.as_str(),
            });
            let (cpu, memory) = (has.quantity("cpu").to_string(), has.quantity("memory").to_string());
            result.upsert_node(&node(name, &cpu, &memory, labels)).unwrap();
        }
        for (name, (cpu, memory, node)) in &self.pods {
            let more = json!({"spec": {"nodeName": node, "nodeSelector": {"node-pool": "p"}}});
            result.upsert_pod(&pod(name, &format!("{cpu}m"), &format!("{memory}Mi"), more)).unwrap();
        }
        result
    }

    fn ask(&self, constraints: PoolConstraints) -> Ask {
        let candidates = self.nodes.iter().map(|(name, (kind, zone, capacity))| Candidate {
            node: name.clone(),
            pool: "p".to_owned(),
            price: self.price(kind, zone, *capacity),
            capacity_type: *capacity,
            disruption_cost: Price::ZERO,
            templates: None,
        });
        Ask {
            candidates: candidates.collect(),
            constraints: [("p".to_owned(), constraints)].into(),
            ..Ask::default()
        }
    }

    fn search(&self, constraints: PoolConstraints) -> Consolidation {
        consolidate(&self.cluster(), &self.ask(constraints), &|| false)
    }

    /// Makes the moves: every pod that leaves must be told where to.
    fn apply(&mut self, found: &Consolidation) {
        for one in &found.commands {
            let mut told: BTreeMap<PodKey, String> = BTreeMap::new();
            for instance in &one.instances {
                self.made += 1;
                let name = format!("new-{:04}", self.made);
                let is = (instance.instance_type.clone(), instance.zone.clone(), instance.capacity_type);
                self.nodes.insert(name.clone(), is);
                told.extend(instance.pods.iter().map(|p| (p.clone(), name.clone())));
            }
            for place in &one.onto {
                told.extend(place.pods.iter().map(|p| (p.clone(), place.node.clone())));
            }
            for node in &one.nodes {
                self.nodes.remove(node).expect("removed once");
            }
            for (name, (_, _, node)) in self.pods.iter_mut().filter(|(_, pod)| one.nodes.contains(&pod.2)) {
                *node = told.get(&PodKey::new("default", name)).expect("a place for every pod").clone();
            }
        }
    }

    /// Makes a move as kube-scheduler would: the dearest node goes first, and each of its pods to the emptiest that has
    /// room.
    fn bind(&mut self, one: &Command) {
        for (at, instance) in one.instances.iter().enumerate() {
            let is = (instance.instance_type.clone(), instance.zone.clone(), instance.capacity_type);
            self.nodes.insert(format!("{at:03}"), is);
        }
        let mut going = one.nodes.clone();
        going.sort_by_key(|name| {
            let (kind, zone, capacity) = &self.nodes[name];
            (Reverse(self.price(kind, zone, *capacity)), name.clone())
        });
        self.nodes.retain(|name, _| !going.contains(name));
        for node in going {
            let own: Vec<String> =
                self.pods.iter().filter(|(_, pod)| pod.2 == node).map(|(name, _)| name.clone()).collect();
            for name in own {
                let (cpu, memory, _) = self.pods[&name];
                let share = |node: &str| -> Option<i64> {
                    let has = &self.types.iter().find(|t| t.name == self.nodes[node].0)?.capacity;
                    let there = || self.pods.values().filter(|pod| pod.2 == node);
                    let cpus = there().map(|p| i64::from(p.0)).sum::<i64>() + i64::from(cpu);
                    let bytes =
                        there().map(|p| i64::from(p.1) << 20).sum::<i64>() + (i64::from(memory) << 20);
                    let left = |has: i64, used: i64| (has - used).max(-1) * 1000 / has;
                    let fits = cpus <= has.get("cpu") && bytes <= has.get("memory");
                    fits.then(|| left(has.get("cpu"), cpus) + left(has.get("memory"), bytes))
                };
                let open = self.nodes.keys().filter_map(|node| Some((share(node)?, Reverse(node))));
                let (_, Reverse(chosen)) = open.max().expect("a place for every pod");
                let chosen = chosen.clone();
                self.pods.get_mut(&name).unwrap().2 = chosen;
            }
        }
    }

    /// Every pod on a node that is there, and no node with more than it has.
    fn check(&self) {
        let mut used: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for (name, (cpu, memory, node)) in &self.pods {
            assert!(self.nodes.contains_key(node), "{name} is on {node}, which is gone");
            let entry = used.entry(node).or_default();
            *entry = (entry.0 + i64::from(*cpu), entry.1 + (i64::from(*memory) << 20));
        }
        for (node, (cpu, memory)) in used {
            let has = &self.types.iter().find(|t| t.name == self.nodes[node].0).unwrap().capacity;
            assert!(cpu <= has.get("cpu") && memory <= has.get("memory"), "{node} is overfull");
        }
    }
}

const ALL: PoolConstraints = PoolConstraints { min_savings: Price::ZERO, nodes: usize::MAX, steps: 1 };

fn world(held: &[Held]) -> World {
    World::new(pool("p", kinds()), held)
}

/// (nodes removed, types launched), sorted, over all commands.
fn summary(found: &Consolidation) -> (Vec<String>, Vec<String>) {
    let mut nodes: Vec<_> = found.commands.iter().flat_map(|command| command.nodes.clone()).collect();
    let mut instances: Vec<_> = found
        .commands
        .iter()
        .flat_map(|command| command.instances.iter().map(|instance| instance.instance_type.clone()))
        .collect();
    nodes.sort();
    instances.sort();
    (nodes, instances)
}

#[test]
fn pods_that_fit_elsewhere_free_their_node() {
    let world = world(&[held("m.4", &[(2500, 1024), (500, 1024)]), held("m.2", &[(1000, 1024)])]);
    let found = world.search(ALL);
    assert_eq!(summary(&found), (vec!["node-001".to_owned()], Vec::new()));
    assert_eq!(found.commands[0].onto[0].node, "node-000");
    assert_eq!((found.before, found.after), (dollars(0.3), dollars(0.2)));
}

#[test]
fn one_large_gives_way_to_several_small() {
    let types = vec![kind("small", "2", "8Gi", 0.1), kind("large", "16", "64Gi", 0.8)];
    let world = World::new(pool("p", types), &[held("large", &[(2000, 1024), (2000, 1024), (1500, 1024)])]);
    let found = world.search(ALL);
    assert_eq!(summary(&found), (vec!["node-000".to_owned()], vec!["small".to_owned(); 3]));
    assert_eq!(found.after, dollars(0.3));
}

#[test]
fn several_give_way_to_fewer_that_cost_less() {
    // None of the three can go alone for less: 2.5 processors need an instance of 4.
    let held: Vec<Held> = (0..3).map(|_| held("m.4", &[(2500, 1024)])).collect();
    let mut world = world(&held);
    let found = world.search(ALL);
    // 7.5 processors on one instance of 8.
    assert_eq!(summary(&found).1, ["m.8"]);
    assert_eq!(found.after, dollars(0.4));
    world.apply(&found);
    world.check();
}

#[test]
fn small_savings_start_no_command() {
    let world = world(&[held("m.4", &[(2000, 1024)])]);
    for (min, moves) in [(0.0, 1), (0.09, 1), (0.1, 0), (1.0, 0)] {
        let found = world.search(PoolConstraints { min_savings: dollars(min), ..ALL });
        assert_eq!(found.commands.len(), moves, "{min}");
        if moves == 0 {
            let stay = Rejection::BelowMinSavings { saves: dollars(0.1), needs: dollars(min) };
            assert_eq!(found.rejections["node-000"], stay);
        }
    }
    let mut ask = world.ask(ALL);
    ask.candidates[0].disruption_cost = dollars(0.2);
    assert!(consolidate(&world.cluster(), &ask, &|| false).commands.is_empty());
}

#[test]
fn alternatives_keep_the_savings_of_a_command() {
    let world = world(&[held("m.8", &[(2000, 1024)])]);
    let found = world.search(PoolConstraints { min_savings: dollars(0.25), ..ALL });
    // m.2 saves 0.30. Were m.4 launched in its place, 0.20 would be saved: less than asked for.
    assert_eq!(found.commands[0].instances[0].options, ["m.2"]);
}

#[test]
fn a_full_node_says_what_its_pods_would_cost_elsewhere() {
    let world = world(&[held("m.2", &[(2000, 1024)])]);
    let found = world.search(ALL);
    assert_eq!(found.rejections["node-000"], Rejection::NoSaving { elsewhere: Some(dollars(0.1)) });
    assert_eq!((found.before, found.after), (dollars(0.1), dollars(0.1)));
}

#[test]
fn what_kube_scheduler_would_bind_otherwise_comes_about_or_stays() {
    // 12 processors fill three instances, if the small pods leave a place for each of the large ones.
    let (small, large) = ([(1000, 1024); 4], [(4000, 1024); 2]);
    let kinds: Vec<InstanceType> =
        kinds().into_iter().filter(|kind| ["m.4", "m.16"].contains(&kind.name.as_str())).collect();
    let mut world = World::new(pool("p", kinds.clone()), &[held("m.16", &[&large[..], &small[..]].concat())]);
    let found = world.search(ALL);
    assert_eq!(summary(&found), (vec!["node-000".to_owned()], vec!["m.4".to_owned(); 3]));
    world.bind(&found.commands[0]);
    world.check();

    let world = World::new(pool("p", kinds), &[held("m.16", &[&small[..], &large[..]].concat())]);
    let found = world.search(ALL);
    assert!(found.commands.is_empty(), "{:?}", found.commands);
    assert_eq!(found.rejections["node-000"], Rejection::SchedulerWouldNotFit);
}

#[test]
fn what_may_not_go_stays_and_takes_pods() {
    let world = world(&[held("m.2", &[(1000, 1024)]), held("m.2", &[(1000, 1024)])]);
    let mut ask = world.ask(ALL);
    ask.candidates.retain(|c| c.node == "node-001");
    let found = consolidate(&world.cluster(), &ask, &|| false);
    assert_eq!(summary(&found).0, ["node-001"]);
    assert_eq!(found.commands[0].onto[0].node, "node-000");
}

#[test]
fn what_takes_the_pods_of_others_stays_for_that() {
    let world = world(&[held("m.2", &[(1000, 1024)]), held("m.2", &[(1000, 1024)])]);
    let found = world.search(ALL);
    assert_eq!((summary(&found).0.len(), found.rejections.len()), (1, 1));
    assert!(found.rejections.values().all(|s| *s == Rejection::ReceivesPods), "{:?}", found.rejections);
}

#[test]
fn another_architecture_is_taken_where_the_pods_allow_it() {
    let mut types = vec![kind("x.4", "4", "16Gi", 0.2), kind("arm.4", "4", "16Gi", 0.15)];
    types[1].arch = "arm64".to_owned();
    let world = World::new(pool("p", types), &[held("x.4", &[(2000, 1024)])]);
    assert_eq!(summary(&world.search(ALL)).1, ["arm.4"]);
    let mut cluster = world.cluster();
    let pinned = json!({"spec": {"nodeName": "node-000",
        "nodeSelector": {"node-pool": "p", "kubernetes.io/arch": "amd64"}}});
    cluster.upsert_pod(&pod("node-000-pod-0", "2000m", "1024Mi", pinned)).unwrap();
    assert!(consolidate(&cluster, &world.ask(ALL), &|| false).commands.is_empty());
}

#[test]
fn budgets_bound_how_many_go() {
    let held: Vec<Held> = (0..20).map(|_| held("m.4", &[(100, 128)])).collect();
    let world = world(&held);
    for nodes in [0, 1, 3, 7] {
        let found = world.search(PoolConstraints { nodes, ..ALL });
        let removed: usize = found.commands.iter().map(|command| command.nodes.len()).sum();
        assert!(removed <= nodes && (nodes == 0 || removed > 0), "{removed} of {nodes}");
        assert!(found.rejections.values().any(|s| *s == Rejection::Budget), "{:?}", found.rejections);
    }
}

#[test]
fn what_is_launched_for_many_lets_them_go_step_by_step() {
    // No pod fits onto another node: only one instance in place of all of them is cheaper.
    let held: Vec<Held> = (0..4).map(|_| held("m.4", &[(3000, 1024)])).collect();
    let mut world = world(&held);
    assert!(world.search(PoolConstraints { nodes: 1, ..ALL }).commands.is_empty());
    let found = world.search(PoolConstraints { nodes: 1, steps: 4, ..ALL });
    let sizes: Vec<_> =
        found.commands.iter().map(|command| (command.nodes.len(), command.instances.len())).collect();
    assert!(sizes.iter().all(|(nodes, instances)| nodes > instances && *instances > 0), "{sizes:?}");
    world.apply(&found);
    world.check();
}

#[test]
fn who_needs_no_instance_goes_at_once_and_within_the_budget() {
    let held: Vec<Held> = (0..20).map(|_| held("m.4", &[(100, 128)])).collect();
    let found = world(&held).search(PoolConstraints { nodes: 2, steps: 3, ..ALL });
    let at_once = found.commands.iter().filter(|command| command.instances.is_empty());
    assert!(at_once.map(|command| command.nodes.len()).sum::<usize>() <= 2, "{:?}", found.commands);
    assert!(
        found.commands.iter().map(|command| command.nodes.len()).sum::<usize>() <= 6,
        "{:?}",
        found.commands
    );
}

#[test]
fn limits_hold_while_both_are_there() {
    let mut pool = pool("p", kinds());
    pool.limits.insert("nodes".to_owned(), "1".parse().unwrap());
    let world = World::new(pool, &[held("m.4", &[(1000, 1024)])]);
    let found = world.search(ALL);
    assert!(found.commands.is_empty());
    assert!(
        matches!(&found.rejections["node-000"], Rejection::PodsUnschedulable(_)),
        "{:?}",
        found.rejections
    );
}

#[test]
fn waiting_pods_come_first() {
    let world = world(&[held("m.4", &[(1000, 1024)])]);
    let mut cluster = world.cluster();
    let more = json!({"spec": {"nodeSelector": {"node-pool": "p"}}});
    cluster.upsert_pod(&pod("waits", "8", "1Gi", more.clone())).unwrap();
    let found = consolidate(&cluster, &world.ask(ALL), &|| false);
    assert_eq!((found.commands.len(), &found.rejections["node-000"]), (0, &Rejection::Busy));
    // One that no plan can place holds nothing up.
    let mut cluster = world.cluster();
    cluster.upsert_pod(&pod("never", "800", "1Gi", more)).unwrap();
    assert_eq!(consolidate(&cluster, &world.ask(ALL), &|| false).commands.len(), 1);
}

#[test]
fn spot_moves_to_spot_only_with_many_types_to_choose_from() {
    let mut types = kinds();
    for kind in &mut types {
        for offer in &mut kind.offerings {
            offer.capacity_type = CapacityType::Spot;
        }
    }
    let mut pool = pool("p", types);
    pool.requirements = vec![build::requirement("karpenter.sh/capacity-type", &["spot"])];
    let world = World::new(pool, &[Held { kind: "m.8".to_owned(), spot: true, pods: vec![(1000, 1024)] }]);
    let found = world.search(ALL);
    assert!(found.commands.is_empty());
    assert!(
        matches!(found.rejections["node-000"], Rejection::FewSpotOptions(n) if n < 15),
        "{:?}",
        found.rejections
    );
    let ask = Ask { spot_options: 1, ..world.ask(ALL) };
    assert_eq!(consolidate(&world.cluster(), &ask, &|| false).commands.len(), 1);
}

#[test]
fn hosts_apart_stay_apart() {
    let world = world(&[held("m.2", &[]), held("m.2", &[])]);
    let mut cluster = world.cluster();
    for at in 0..2 {
        let more = json!({
            "metadata": {"labels": {"app": "a"}},
            "spec": {"nodeName": format!("node-00{at}"), "nodeSelector": {"node-pool": "p"},
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"}]}}},
        });
        cluster.upsert_pod(&pod(&format!("a-{at}"), "500m", "512Mi", more)).unwrap();
    }
    let found = consolidate(&cluster, &world.ask(ALL), &|| false);
    // Two instances it stays, and each smaller.
    assert_eq!(summary(&found).1, ["m.1", "m.1"]);
}

fn clusters() -> impl Strategy<Value = Vec<Held>> {
    let pods = prop::collection::vec((1u32..=20, 1u32..=16), 0..6);
    let node = (0usize..4, pods).prop_map(|(at, pods)| {
        // The smallest type that holds them, or a larger one.
        let sum = pods.iter().fold((0, 0), |s, (c, m)| (s.0 + c * 100, s.1 + m * 256));
        let smallest =
            [1u32, 2, 4, 8, 16].iter().position(|n| n * 1000 >= sum.0 && n * 4096 >= sum.1).unwrap();
        let kind = ["m.1", "m.2", "m.4", "m.8", "m.16"][(smallest + at).min(4)];
        held(kind, &pods.iter().map(|(c, m)| (c * 100, m * 256)).collect::<Vec<_>>())
    });
    prop::collection::vec(node, 1..12)
}

/// How many nodes may go at once and in how many steps: both decide what is found.
fn constraints() -> impl Strategy<Value = PoolConstraints> {
    let drawn = (1usize..8, 1..=PoolConstraints::STEPS);
    drawn.prop_map(|(nodes, steps)| PoolConstraints { min_savings: Price::ZERO, nodes, steps })
}

/// Makes the first move of each search, as kube-scheduler would, until nothing is found.
fn comes_about(held: &[Held], constraints: PoolConstraints) {
    let mut world = world(held);
    loop {
        let found = world.search(constraints);
        let Some(one) = found.commands.first() else { break };
        world.bind(one);
        world.check();
        // Names of nodes that the next search may remove.
        let named = std::mem::take(&mut world.nodes).into_iter();
        let round = world.made;
        world.made += 1;
        let name =
            |old: &str| if old.starts_with("node-") { old.to_owned() } else { format!("node-{round}-{old}") };
        world.nodes = named.map(|(old, is)| (name(&old), is)).collect();
        world.pods.values_mut().for_each(|pod| pod.2 = name(&pod.2));
        assert!(round < 100, "it doesn't end");
    }
}

/// The first move gives seven nodes back for fourteen instances, most of them alike.
#[test]
fn a_move_to_more_than_ten_instances_comes_about() {
    let held = [
        held("m.4", &[(1300, 2304), (900, 512), (400, 512)]),
        held("m.16", &[(700, 2816), (1800, 1792), (600, 3328), (1600, 3840)]),
        held("m.4", &[(1100, 3584)]),
        held("m.4", &[(1700, 1280), (2000, 1536)]),
        held("m.16", &[(200, 256), (1100, 256), (900, 256)]),
        held("m.1", &[(300, 256), (300, 256)]),
        held("m.16", &[(500, 256), (700, 3072), (2000, 256), (100, 1280), (1900, 256)]),
    ];
    comes_about(&held, ALL);
}

/// A plan of all pods as if no node were there, and what it costs once it has what kube-scheduler needs beyond it; `None` if
/// that comes to no end. Pods are bound node by node, the dearest first, since so the controller makes them pending: bound in the
/// order of their arrival the same plan may need fewer instances, but nothing brings that order about.
fn fresh_start(world: &World) -> Option<Price> {
    let mut cluster = world.cluster();
    let mut going: Vec<(Reverse<Price>, &String)> = world
        .nodes
        .iter()
        .map(|(name, (kind, zone, capacity))| (Reverse(world.price(kind, zone, *capacity)), name))
        .collect();
    going.sort();
    let without_nodes = going.into_iter().map(|(_, name)| name.clone()).collect();
    let mut options = Options { without_nodes, without_counts: true, ..Options::default() };
    let plan = solve(&cluster, &options, &|| false);
    options.simulate_default_scheduler = true;
    let lacking = |cluster: &Cluster| Ok::<_, Infallible>(solve(cluster, &options, &|| false).instances);
    let instances = complete(&mut cluster, plan.instances, lacking).unwrap()?;
    Some(instances.iter().map(|instance| instance.price.unwrap()).sum())
}

/// All pods fit on instances for 0.25 $ if those of the cheap node are bound first. The dear one goes first, and its pods
/// then leave no place for the others.
#[test]
fn a_fresh_start_that_needs_another_order_of_binding_is_not_made() {
    let dear = held("m.4", &[(100, 1792), (400, 2816), (700, 4096), (1000, 1280), (1500, 1792)]);
    let world = world(&[held("m.2", &[(1100, 1024)]), dear]);
    let without_nodes = world.nodes.keys().cloned().collect();
    let planned = solve(&world.cluster(), &Options { without_nodes, ..Options::default() }, &|| false);
    assert_eq!((planned.cost, world.cost()), (dollars(0.25), dollars(0.3)));
    assert_eq!(fresh_start(&world), Some(dollars(0.35)));
    let found = world.search(ALL);
    assert!(found.commands.is_empty(), "{:?}", found.commands);
}

/// Each pod's own largest share of an instance sums to more than the nodes cost, yet pods that need processors and pods that
/// need memory share instances for less.
#[test]
fn pods_that_need_different_resources_are_replaced_together() {
    let mut world = world(&[
        held("m.4", &[(1300, 768), (800, 512), (1400, 2560), (200, 3840)]),
        held("m.2", &[(200, 3840), (1600, 4096)]),
        held("m.4", &[(1400, 256), (1000, 256), (900, 512)]),
    ]);
    let found = world.search(ALL);
    assert_eq!((found.before, found.after), (dollars(0.5), dollars(0.45)));
    world.apply(&found);
    world.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_dearer_never_over_budget_and_it_ends(
        held in clusters(),
        constraints in constraints(),
    ) {
        let mut world = world(&held);
        let PoolConstraints { nodes, steps, .. } = constraints;
        let mut cost = world.cost();
        for round in 0.. {
            let found = world.search(constraints);
            // A command that launches instances removes its nodes in steps, of which one is due now.
            let (staged, at_once): (Vec<_>, Vec<_>) =
                found.commands.iter().partition(|command| !command.instances.is_empty());
            let removed = |commands: &[&Command]| commands.iter().map(|c| c.nodes.len()).sum::<usize>();
            prop_assert!(removed(&at_once) <= nodes);
            prop_assert!(removed(&staged) <= nodes * steps);
            prop_assert_eq!(found.before, cost);
            if found.commands.is_empty() {
                break;
            }
            world.apply(&found);
            world.check();
            let now = world.cost();
            // Each round is strictly cheaper, so that no cluster comes back: there is no cycle.
            prop_assert!(now < cost, "{} -> {}", cost, now);
            prop_assert_eq!(found.after, now);
            prop_assert!(round < 50, "it doesn't end");
            cost = now;
        }
    }

    #[test]
    fn a_command_completes_though_evicted_pods_are_not_nominated(
        held in clusters(),
        constraints in constraints(),
    ) {
        comes_about(&held, constraints);
    }

    #[test]
    fn a_search_finds_the_same_every_time(held in clusters(), constraints in constraints()) {
        let world = world(&held);
        let (a, b) = (world.search(constraints), world.search(constraints));
        prop_assert_eq!(summary(&a), summary(&b));
        prop_assert_eq!((a.steps, a.after), (b.steps, b.after));
    }

    /// A fresh start of the nodes that it ends with, not of those that it began with: where pods were moved decides the order in
    /// which they are bound next, so that two ways to the same pods on the same types may differ in what fits.
    #[test]
    fn with_everything_allowed_in_its_steps_it_ends_no_dearer_than_a_fresh_start(
        held in clusters(),
        steps in 1..=PoolConstraints::STEPS,
    ) {
        let mut world = world(&held);
        loop {
            // As many at once as lets all of them go in the steps.
            let nodes = world.nodes.len().div_ceil(steps);
            let found = world.search(PoolConstraints { nodes, steps, ..ALL });
            if found.commands.is_empty() {
                break;
            }
            world.apply(&found);
        }
        let empty: Price = world.nodes.iter().filter(|(name, _)| !world.pods.values().any(|p| p.2 == **name))
            .map(|(_, (kind, zone, capacity))| world.price(kind, zone, *capacity)).sum();
        prop_assert_eq!(empty, Price::ZERO);
        let fresh = fresh_start(&world);
        prop_assert!(fresh.is_none_or(|fresh| world.cost() <= fresh), "{} against {fresh:?}", world.cost());
    }
}

/// Two pods with a host each: one on a node, one planned for a coming node.
fn apart(at: &str, node: Option<&str>) -> k8s_openapi::api::core::v1::Pod {
    let more = json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {"nodeName": node, "nodeSelector": {"node-pool": "p"},
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"}]}}},
    });
    pod(at, "900m", "512Mi", more)
}

#[test]
fn a_pod_apart_from_others_is_not_moved_to_the_coming_node_of_one_of_them() {
    let types: Vec<InstanceType> = kinds().into_iter().filter(|kind| kind.name == "m.2").collect();
    let world = World::new(pool("p", types), &[held("m.2", &[]), held("m.2", &[])]);
    let mut cluster = world.cluster();
    cluster.upsert_pod(&apart("a-0", Some("node-000"))).unwrap();
    cluster.upsert_pod(&apart("a-1", Some("node-001"))).unwrap();
    cluster.upsert_pod(&apart("a-2", None)).unwrap();
    let plan = solve(&cluster, &Options::default(), &|| false);
    assert_eq!(plan.instances.len(), 1);
    cluster.upsert_coming(plan.instances[0].coming("claim-0"));
    cluster.nominate(&PodKey::new("default", "a-2"), "claim-0", true);
    let found = consolidate(&cluster, &world.ask(ALL), &|| false);
    assert!(found.commands.is_empty(), "{:?}", found.commands);
    // Nor is another pending pod planned for it.
    cluster.upsert_pod(&apart("a-3", None)).unwrap();
    let plan = solve(&cluster, &Options::default(), &|| false);
    assert_eq!((plan.instances.len(), plan.existing.len()), (1, 0), "{:?}", plan.existing);
}

/// A search is bounded by its steps: a plan that doesn't count them could take for ever.
#[test]
fn each_try_to_put_pods_onto_a_node_is_a_step() {
    let evenly = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": build::HOST, "whenUnsatisfiable": "DoNotSchedule",
         "labelSelector": {"matchLabels": {"app": "web"}}}]}});
    let cases = [(false, json!({}), 1), (false, evenly.clone(), 6), (true, json!({}), 6), (true, evenly, 6)];
    for (simulate_default_scheduler, more, least) in cases {
        let pods: Vec<_> = (0..6).map(|n| pod(&format!("p{n}"), "500m", "1Gi", more.clone())).collect();
        let mut cluster = cluster(vec![pool("p", kinds())], &pods);
        for name in ["a", "b", "c"] {
            cluster.upsert_node(&node(name, "8", "32Gi", json!({"node-pool": "p"}))).unwrap();
        }
        let plan = solve(&cluster, &Options { simulate_default_scheduler, ..Options::default() }, &|| false);
        assert_eq!(plan.existing.iter().map(|place| place.pods.len()).sum::<usize>(), 6, "{plan:?}");
        assert!(plan.steps >= least, "{} steps, simulated: {simulate_default_scheduler}, {more}", plan.steps);
    }
}
