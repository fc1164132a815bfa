//! The bound of a pool of two templates, with weights, limits and shares: every packing of the same pods is tried.

use std::collections::BTreeMap;

use croft_scheduler::{
    CapacityType, Cluster, InstanceType, Options, Plan, Pool, Price, Share, ShareBound, ShareOf, solve,
};
use croft_simkit::Random;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::build::{kind, pod, pool, requirement};

fn cluster(templates: Vec<Pool>, pods: &[Pod]) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.upsert_templates(templates).unwrap();
    pods.iter().for_each(|pod| cluster.upsert_pod(pod).unwrap());
    cluster
}

/// (cpu in thousandths, memory in MiB)
type Size = (i64, i64);

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Nodes,
    Cpu,
    /// In micro-dollars.
    Cost,
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    of: Of,
    most: i64,
}

impl Limit {
    fn random(random: &mut Random) -> Self {
        let below = |random: &mut Random, n: u64| i64::try_from(random.below(n)).unwrap();
        match random.below(3) {
            0 => Self { of: Of::Nodes, most: below(random, 4) },
            1 => Self { of: Of::Cpu, most: 1_000 * below(random, 8) },
            _ => Self { of: Of::Cost, most: 10_000 * below(random, 8) },
        }
    }

    fn declare(self, limits: &mut BTreeMap<String, croft_scheduler::Quantity>) {
        let (name, amount) = match self.of {
            Of::Nodes => ("nodes", self.most.to_string()),
            Of::Cpu => ("cpu", format!("{}m", self.most)),
            Of::Cost => ("costPerHour", format!("{}u", self.most)),
        };
        limits.insert(name.to_owned(), amount.parse().unwrap());
    }

    /// True if these nodes, each a cpu and a price, are within it.
    fn allows(self, nodes: impl Iterator<Item = (i64, i64)>) -> bool {
        let used: i64 = nodes
            .map(|(cpu, price)| match self.of {
                Of::Nodes => 1,
                Of::Cpu => cpu,
                Of::Cost => price,
            })
            .sum();
        used <= self.most
    }
}

/// One type of instance, by both templates.
#[derive(Clone, Copy, Debug)]
struct Kind {
    cpu: i64,
    memory: i64,
    /// By template, in micro-dollars.
    price: [i64; 2],
}

/// Pods by size, for one template alone or (`None`) for both.
#[derive(Clone, Copy, Debug)]
struct Group {
    size: Size,
    only: Option<usize>,
}

struct World {
    kinds: Vec<Kind>,
    of_template: [Option<Limit>; 2],
    of_pool: Option<Limit>,
    /// The largest part of the cpu that the first template may have, in percent.
    share: Option<i64>,
}

/// (template, kind)
type Launched = (usize, usize);

impl World {
    fn random(random: &mut Random) -> Self {
        let below = |random: &mut Random, n: u64| i64::try_from(random.below(n)).unwrap();
        let kinds = (0..2).map(|n| {
            let (cpu, memory) =
                (1_000 * (1 + 2 * n) + 500 * below(random, 3), 1_024 * (2 + below(random, 6)));
            let price = 10 * cpu + 5 * memory + below(random, 10_000);
            Kind { cpu, memory, price: [price * (3 + below(random, 6)) / 10, price] }
        });
        let kinds = kinds.collect();
        let mut limit = |percent| random.percent(percent).then(|| Limit::random(random));
        let (of_template, of_pool) = ([limit(80), limit(20)], limit(20));
        let share = random.percent(30).then(|| 10 * (1 + below(random, 9)));
        Self { kinds, of_template, of_pool, share }
    }

    fn pool(&self, weights: [i32; 2]) -> Vec<Pool> {
        let capacity = [CapacityType::Spot, CapacityType::OnDemand];
        let kinds: Vec<InstanceType> = self
            .kinds
            .iter()
            .enumerate()
            .map(|(n, Kind { cpu, memory, price })| {
                let mut it = kind(&format!("t{n}"), &format!("{cpu}m"), &format!("{memory}Mi"), 1.0);
                it.offerings.truncate(2);
                for ((offering, price), capacity_type) in it.offerings.iter_mut().zip(price).zip(capacity) {
                    offering.zone = "zone-a".to_owned();
                    offering.capacity_type = capacity_type;
                    offering.price = Some(Price::from_micros(*price));
                }
                it
            })
            .collect();
        let template = |(at, name): (usize, &str)| {
            let mut it = pool("p", kinds.clone());
            it.template = name.to_owned();
            it.weight = weights[at];
            it.requirements = vec![requirement("karpenter.sh/capacity-type", &[capacity[at].as_str()])];
            self.of_template[at].into_iter().for_each(|limit| limit.declare(&mut it.template_limits));
            self.of_pool.into_iter().for_each(|limit| limit.declare(&mut it.limits));
            it.shares.extend(self.share.map(|percent| Share {
                of: ShareOf::Template("spot".to_owned()),
                bound: ShareBound::MaxPercent(u32::try_from(percent).unwrap()),
            }));
            it
        };
        ["spot", "steady"].into_iter().enumerate().map(template).collect()
    }

    fn is_within(&self, launched: &[Launched]) -> bool {
        let nodes = |only: Option<usize>| {
            let own = launched.iter().filter(move |(template, _)| only.is_none_or(|only| only == *template));
            own.map(|(template, kind)| (self.kinds[*kind].cpu, self.kinds[*kind].price[*template]))
        };
        let cpu = |only| nodes(only).map(|(cpu, _)| cpu).sum::<i64>();
        (0..2).all(|at| self.of_template[at].is_none_or(|limit| limit.allows(nodes(Some(at)))))
            && self.of_pool.is_none_or(|limit| limit.allows(nodes(None)))
            && self.share.is_none_or(|percent| cpu(Some(0)) * 100 <= percent * cpu(None))
    }

    /// The least cost of holding these pods; `None` if there is no way within the limits and shares.
    fn optimum(&self, groups: &[Group], left: &[u8]) -> Option<i64> {
        let mut best = None;
        // The multisets of instances that hold all pods, each found from the first pod that is left.
        let mut known: BTreeMap<Vec<u8>, Vec<Vec<Launched>>> = BTreeMap::new();
        for launched in self.sets(groups, left, &mut known) {
            let cost: i64 = launched.iter().map(|(template, kind)| self.kinds[*kind].price[*template]).sum();
            if self.is_within(&launched) {
                best = Some(best.map_or(cost, |best: i64| best.min(cost)));
            }
        }
        best
    }

    fn sets(
        &self,
        groups: &[Group],
        left: &[u8],
        known: &mut BTreeMap<Vec<u8>, Vec<Vec<Launched>>>,
    ) -> Vec<Vec<Launched>> {
        let Some(first) = left.iter().position(|n| *n > 0) else { return vec![Vec::new()] };
        if let Some(sets) = known.get(left) {
            return sets.clone();
        }
        let mut sets = Vec::new();
        let mut content = vec![0u8; left.len()];
        content[first] = 1;
        'contents: loop {
            for (template, (number, kind)) in
                (0..2).flat_map(|template| self.kinds.iter().enumerate().map(move |kind| (template, kind)))
            {
                let sum = |part: fn(&Size) -> i64| -> i64 {
                    content.iter().zip(groups).map(|(n, group)| i64::from(*n) * part(&group.size)).sum()
                };
                let suits =
                    |(n, group): (&u8, &Group)| *n == 0 || group.only.is_none_or(|only| only == template);
                if sum(|size| size.0) <= kind.cpu
                    && sum(|size| size.1) <= kind.memory
                    && content.iter().zip(groups).all(suits)
                {
                    let rest: Vec<u8> = left.iter().zip(&content).map(|(l, c)| l - c).collect();
                    for mut set in self.sets(groups, &rest, known) {
                        set.push((template, number));
                        set.sort_unstable();
                        sets.push(set);
                    }
                }
            }
            // The next content, as a number whose digits are copies.
            let mut at = 0;
            loop {
                if at == left.len() {
                    break 'contents;
                }
                if content[at] < left[at] {
                    content[at] += 1;
                    break;
                }
                content[at] = u8::from(at == first);
                at += 1;
            }
        }
        sets.sort_unstable();
        sets.dedup();
        known.insert(left.to_vec(), sets.clone());
        sets
    }
}

/// The pods of `p{size}-…` that a plan has on new instances, of one template or of all.
fn placed(plan: &Plan, size: usize, template: Option<usize>) -> u8 {
    let prefix = format!("p{size}-");
    let own = plan
        .instances
        .iter()
        .filter(|instance| template.is_none_or(|at| instance.template == ["spot", "steady"][at]));
    let pods = own.flat_map(|instance| &instance.pods).filter(|pod| pod.name.starts_with(&prefix));
    u8::try_from(pods.count()).unwrap()
}

#[test]
fn bound_within_limits_and_shares_of_templates_is_never_above_the_optimum() {
    let (mut limited, mut exact, mut tight) = (0, 0, 0);
    for seed in 1..=400u64 {
        let random = &mut Random::new(seed ^ 0x7E3B_1A7E);
        let below = |random: &mut Random, n: u64| i64::try_from(random.below(n)).unwrap();
        let world = World::random(random);
        let weights = [if random.percent(50) { 7 } else { 5 }, 5];
        let sizes: [Size; 2] =
            std::array::from_fn(|_| (300 + 100 * below(random, 9), 256 + 128 * below(random, 10)));
        let counts: [u8; 2] = std::array::from_fn(|_| u8::try_from(1 + random.below(3)).unwrap());
        let mut pods = Vec::new();
        for (n, ((cpu, memory), count)) in sizes.iter().zip(counts).enumerate() {
            for i in 0..count {
                pods.push(pod(&format!("p{n}-{i}"), &format!("{cpu}m"), &format!("{memory}Mi"), json!({})));
            }
        }
        let plan = solve(&cluster(world.pool(weights), &pods), &Options::default(), &|| false);
        let launched = plan.instances.iter().map(|instance| {
            let template = usize::from(instance.template == "steady");
            (template, instance.instance_type.strip_prefix('t').unwrap().parse().unwrap())
        });
        let launched: Vec<Launched> = launched.collect();
        assert!(world.is_within(&launched), "seed {seed}: {launched:?} is outside the limits");
        // The pods that the plan places; with weights, each on the template that it has there.
        let (mut groups, mut left) = (Vec::new(), Vec::new());
        let parts = if weights[0] == weights[1] { vec![None] } else { vec![Some(0), Some(1)] };
        for only in parts {
            for (n, size) in sizes.iter().enumerate() {
                groups.push(Group { size: *size, only });
                left.push(placed(&plan, n, only));
            }
        }
        let best = world.optimum(&groups, &left).expect("the plan itself is one");
        assert!(
            plan.bound.micros() <= best,
            "seed {seed}: bound {} above the optimum {best} of {left:?}",
            plan.bound
        );
        assert!(plan.cost.micros() >= best, "seed {seed}: cost {} below the optimum {best}", plan.cost);
        let free = World { of_template: [None; 2], of_pool: None, share: None, ..world };
        if best > free.optimum(&groups, &left).unwrap() && world.share.is_none() {
            limited += 1;
            exact += u32::from(plan.cost.micros() == best);
            tight += u32::from(plan.bound.micros() * 100 >= best * 85);
        }
    }
    println!("bound within limits of templates: limited={limited} exact={exact} tight={tight}");
    assert!(limited >= 50, "limits cost something in only {limited} cases");
    assert!(exact * 10 >= limited * 9, "{exact} of {limited} plans are optimal");
    assert!(tight * 10 >= limited * 6, "{tight} of {limited} bounds are near the optimum");
}

/// Templates of the same weight for pods of a node each: spot at 0.1 $ within its limits, and on-demand at 0.3 $.
fn two_prices(spot: &[(&str, &str)], pods: usize) -> Plan {
    let mut it = kind("t", "4", "16Gi", 0.3);
    it.offerings.truncate(2);
    it.offerings[0].capacity_type = CapacityType::Spot;
    it.offerings[0].price = Price::from_dollars(0.1);
    let template = |name: &str, capacity: &str| Pool {
        template: name.to_owned(),
        requirements: vec![requirement("karpenter.sh/capacity-type", &[capacity])],
        ..pool("p", vec![it.clone()])
    };
    let mut templates = vec![template("spot", "spot"), template("steady", "on-demand")];
    for (name, most) in spot {
        templates[0].template_limits.insert((*name).to_owned(), most.parse().unwrap());
    }
    let pods: Vec<_> = (0..pods).map(|n| pod(&format!("p-{n}"), "3", "1Gi", json!({}))).collect();
    solve(&cluster(templates, &pods), &Options::default(), &|| false)
}

#[test]
fn bound_counts_the_limit_of_a_cheaper_template() {
    for limit in [("nodes", "3"), ("cpu", "12"), ("memory", "48Gi"), ("costPerHour", "0.3")] {
        let plan = two_prices(&[limit], 10);
        assert_eq!(plan.cost, Price::from_dollars(3.0 * 0.1 + 7.0 * 0.3).unwrap(), "{limit:?}");
        assert!(plan.gap() < 1e-3, "{limit:?}: bound {} of {}", plan.bound, plan.cost);
        assert_eq!(plan.bound_relaxes, [], "{limit:?}");
    }
}

#[test]
fn limit_out_of_reach_changes_no_plan() {
    let (free, within) = (two_prices(&[], 10), two_prices(&[("nodes", "11"), ("costPerHour", "1.1")], 10));
    assert_eq!((free.cost, free.bound), (within.cost, within.bound));
    assert_eq!(within.bound_relaxes, []);
}

/// Ninety nodes hold these pods, and first-fit-decreasing needs 110 (Johnson 1973): the limit lets them all in once they are packed well.
#[test]
fn pods_that_first_fit_leaves_out_go_to_the_heavier_template_if_they_fit() {
    let template = |name: &str, weight: i32, nodes: &str| Pool {
        template: name.to_owned(),
        weight,
        template_limits: [("nodes".to_owned(), nodes.parse().unwrap())].into(),
        ..pool("p", vec![kind("t", "10", "100Gi", 1.0)])
    };
    let sizes = [(5_100, 60), (2_700, 60), (2_600, 60), (2_300, 120)];
    let pods = sizes.iter().flat_map(|(cpu, count)| {
        (0..*count).map(move |n| pod(&format!("p{cpu}-{n}"), &format!("{cpu}m"), "1Gi", json!({})))
    });
    let pods: Vec<_> = pods.collect();
    let plan_of = |nodes: &str| {
        let templates = vec![template("first", 7, nodes), template("second", 5, "1000")];
        let plan = solve(&cluster(templates, &pods), &Options::default(), &|| false);
        assert!(plan.unschedulable.is_empty());
        let own = plan.instances.iter().filter(|instance| instance.template == "first").count();
        (own, plan)
    };
    let (own, plan) = plan_of("100");
    assert_eq!(own, plan.instances.len(), "none is launched by the lighter template");
    let (own, plan) = plan_of("70");
    assert_eq!(own, 70);
    assert!(plan.gap() <= 0.03, "{} above the bound {}", plan.cost, plan.bound);
}
