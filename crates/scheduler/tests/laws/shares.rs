//! The law of shares, for random pools: no plan launches a node by which a share would not hold, and no set of consolidation's commands
//! leaves a pool outside a share, or further outside than it was. Shares are counted here from names and labels alone.

use std::collections::BTreeMap;

use croft_scheduler::{
    CapacityType, Cluster, Options, PlannedInstance, Pool, Price, Share, ShareBound, ShareOf,
    consolidation::{Ask, Candidate, PoolConstraints, consolidate},
    solve,
};
use proptest::prelude::*;
use serde_json::json;

use crate::build::{both, node, pod, pool, requirement};

/// A node of the pool: its processors, its capacity type, its template, and the CPU of its pods in thousandths.
#[derive(Clone, Debug)]
struct Held {
    cpu: u32,
    spot: bool,
    pods: Vec<u32>,
}

impl Held {
    const fn capacity_type(&self) -> CapacityType {
        if self.spot { CapacityType::Spot } else { CapacityType::OnDemand }
    }

    const fn template(&self) -> &'static str {
        if self.spot { "spot" } else { "steady" }
    }
}

#[derive(Clone, Debug)]
struct World {
    shares: Vec<Share>,
    held: Vec<Held>,
    /// CPU of waiting pods in thousandths, and the only capacity type of each that has one.
    waiting: Vec<(u32, Option<bool>)>,
    weight: i32,
}

fn on_spot(price: Price) -> Price {
    Price::from_micros(price.micros() * 2 / 5)
}

fn price(cpu: u32, spot: bool) -> Price {
    let price = Price::from_micros(50_000 * i64::from(cpu));
    if spot { on_spot(price) } else { price }
}

impl World {
    fn cluster(&self) -> Cluster {
        let template = |name: &str, weight: i32, capacity_type: &str| Pool {
            template: name.to_owned(),
            weight,
            requirements: vec![requirement("karpenter.sh/capacity-type", &[capacity_type])],
            shares: self.shares.clone(),
            ..pool("p", both(on_spot))
        };
        let mut cluster = Cluster::new();
        let templates = vec![template("spot", self.weight, "spot"), template("steady", 5, "on-demand")];
        cluster.upsert_templates(templates).unwrap();
        for (at, held) in self.held.iter().enumerate() {
            let labels = json!({
                "node-pool": "p", "croft.dev/template": held.template(), "topology.kubernetes.io/zone": "zone-a",
                "node.kubernetes.io/instance-type": format!("m.{}", held.cpu),
                "karpenter.sh/capacity-type": held.capacity_type().as_str(),
            });
            let memory = format!("{}Gi", 4 * held.cpu);
            cluster.upsert_node(&node(&format!("n-{at}"), &held.cpu.to_string(), &memory, labels)).unwrap();
            for (number, cpu) in held.pods.iter().enumerate() {
                let more =
                    json!({"spec": {"nodeName": format!("n-{at}"), "nodeSelector": {"node-pool": "p"}}});
                let name = format!("n-{at}-{number}");
                cluster.upsert_pod(&pod(&name, &format!("{cpu}m"), "128Mi", more)).unwrap();
            }
        }
        for (at, (cpu, only)) in self.waiting.iter().enumerate() {
            let mut selector = json!({"node-pool": "p"});
            if let Some(spot) = only {
                selector["karpenter.sh/capacity-type"] = json!(if *spot { "spot" } else { "on-demand" });
            }
            let more = json!({"spec": {"nodeSelector": selector}});
            cluster.upsert_pod(&pod(&format!("w-{at}"), &format!("{cpu}m"), "128Mi", more)).unwrap();
        }
        cluster
    }

    /// The nodes of the pool as (processors, capacity type, template) without `removed` and with `launched`.
    fn nodes(&self, removed: &[String], launched: &[&PlannedInstance]) -> Vec<(i64, CapacityType, String)> {
        let held = self.held.iter().enumerate().filter(|(at, _)| !removed.contains(&format!("n-{at}")));
        let held =
            held.map(|(_, held)| (i64::from(held.cpu), held.capacity_type(), held.template().to_owned()));
        let launched = launched.iter().map(|instance| {
            let cpu: i64 = instance.instance_type.strip_prefix("m.").unwrap().parse().unwrap();
            (cpu, instance.capacity_type, instance.template.clone())
        });
        held.chain(launched).collect()
    }
}

fn is_own(share: &Share, node: &(i64, CapacityType, String)) -> bool {
    match &share.of {
        ShareOf::Template(name) => node.2 == *name,
        ShareOf::CapacityType(own) => node.1 == *own,
    }
}

/// How far outside a share these nodes are; zero for within.
fn outside(share: &Share, nodes: &[(i64, CapacityType, String)]) -> i64 {
    let (own, others): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| is_own(share, node));
    let cpu = |list: &[&(i64, CapacityType, String)]| list.iter().map(|node| node.0).sum::<i64>();
    let count = |list: &[&(i64, CapacityType, String)]| i64::try_from(list.len()).unwrap();
    match share.bound {
        ShareBound::MaxPercent(percent) => {
            (100 * cpu(&own) - i64::from(percent) * (cpu(&own) + cpu(&others))).max(0)
        }
        // So many of all nodes, or as many as there are.
        ShareBound::MinNodes(least) => {
            (i64::from(least).min(count(&own) + count(&others)) - count(&own)).max(0)
        }
    }
}

fn share() -> impl Strategy<Value = Share> {
    let of = prop_oneof![
        Just(ShareOf::CapacityType(CapacityType::Spot)),
        Just(ShareOf::CapacityType(CapacityType::OnDemand)),
        Just(ShareOf::Template("spot".to_owned())),
        Just(ShareOf::Template("steady".to_owned())),
    ];
    let bound =
        prop_oneof![(1..100u32).prop_map(ShareBound::MaxPercent), (1..5u32).prop_map(ShareBound::MinNodes)];
    (of, bound).prop_map(|(of, bound)| Share { of, bound })
}

fn world() -> impl Strategy<Value = World> {
    let held = (prop::sample::select(vec![1u32, 2, 4, 8, 16]), any::<bool>(), 0..4usize, 50..1_000u32)
        .prop_map(|(cpu, spot, pods, size)| {
            let most = cpu * 1_000 / u32::try_from(pods.max(1)).unwrap();
            Held { cpu, spot, pods: vec![size.min(most); pods] }
        });
    let only = prop_oneof![3 => Just(None), 1 => any::<bool>().prop_map(Some)];
    (
        prop::collection::vec(share(), 1..3),
        prop::collection::vec(held, 0..8),
        prop::collection::vec((100..6_000u32, only), 0..12),
        prop::sample::select(vec![0, 5, 10]),
    )
        .prop_map(|(shares, held, waiting, weight)| World { shares, held, waiting, weight })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_plan_launches_a_node_by_which_a_share_does_not_hold(world in world()) {
        let plan = solve(&world.cluster(), &Options::default(), &|| false);
        prop_assert!(plan.bound <= plan.cost, "{} above {}", plan.bound, plan.cost);
        let launched: Vec<&PlannedInstance> = plan.instances.iter().collect();
        let after = world.nodes(&[], &launched);
        let new = &after[world.held.len()..];
        for share in &world.shares {
            let is_bounded = |node: &&(i64, CapacityType, String)| match share.bound {
                ShareBound::MaxPercent(_) => is_own(share, node),
                ShareBound::MinNodes(_) => !is_own(share, node),
            };
            let bounded = new.iter().filter(is_bounded).count();
            prop_assert!(bounded == 0 || outside(share, &after) == 0, "{share:?}: {after:?}");
        }
    }

    #[test]
    fn pods_that_may_go_anywhere_find_a_node_within_one_share(world in world()) {
        let mut world = world;
        world.shares.truncate(1);
        world.waiting.iter_mut().for_each(|pod| pod.1 = None);
        let plan = solve(&world.cluster(), &Options::default(), &|| false);
        prop_assert!(plan.unschedulable.is_empty(), "{:?}", plan.unschedulable);
    }

    #[test]
    fn no_set_of_commands_leaves_a_pool_further_outside_a_share(world in world()) {
        let mut world = world;
        world.waiting.clear();
        let candidates = world.held.iter().enumerate().map(|(at, held)| Candidate {
            node: format!("n-{at}"),
            pool: "p".to_owned(),
            price: price(held.cpu, held.spot),
            capacity_type: held.capacity_type(),
            disruption_cost: Price::ZERO,
            templates: None,
        });
        let constraints = PoolConstraints { min_savings: Price::ZERO, nodes: usize::MAX, steps: 1 };
        let ask = Ask {
            candidates: candidates.collect(),
            constraints: BTreeMap::from([("p".to_owned(), constraints)]),
            spot_options: 1,
            ..Ask::default()
        };
        let found = consolidate(&world.cluster(), &ask, &|| false);
        let before = world.nodes(&[], &[]);
        let commands: Vec<_> = found.commands.iter().take(8).collect();
        for set in 0..1_u32 << commands.len() {
            let made = || commands.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1).map(|(_, one)| one);
            let removed: Vec<String> = made().flat_map(|one| one.nodes.clone()).collect();
            let launched: Vec<&PlannedInstance> = made().flat_map(|one| &one.instances).collect();
            let after = world.nodes(&removed, &launched);
            for share in &world.shares {
                prop_assert!(
                    outside(share, &after) <= outside(share, &before),
                    "{share:?}: {removed:?} and {launched:?} of {before:?}"
                );
            }
        }
    }
}
