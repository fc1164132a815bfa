//! The bound is never above the optimum, and no plan is dearer than plain first-fit-decreasing.

use std::collections::BTreeMap;

use croft_scheduler::{InstanceType, Options, Plan, Price, solve};
use croft_simkit::Random;
use serde_json::{Value, json};

use crate::build::{self, cluster, kind, pod, pool};

/// (cpu in thousandths, memory in MiB)
type Size = (i64, i64);

/// The least cost of holding `left` pods of each size, by trying every content of the instance that takes the first
/// pod left. Types are (cpu, memory, price in micro-dollars).
fn optimum(
    sizes: &[Size],
    types: &[(i64, i64, i64)],
    left: &[u8],
    known: &mut BTreeMap<Vec<u8>, i64>,
) -> i64 {
    let Some(first) = left.iter().position(|n| *n > 0) else { return 0 };
    if let Some(cost) = known.get(left) {
        return *cost;
    }
    let mut best = i64::MAX;
    let mut content = vec![0u8; left.len()];
    content[first] = 1;
    loop {
        let sum = |f: &dyn Fn(&Size) -> i64| -> i64 {
            content.iter().zip(sizes).map(|(n, s)| i64::from(*n) * f(s)).sum()
        };
        let (cpu, memory) = (sum(&|s| s.0), sum(&|s| s.1));
        let price = types.iter().filter(|t| t.0 >= cpu && t.1 >= memory).map(|t| t.2).min();
        if let Some(price) = price {
            let rest: Vec<u8> = left.iter().zip(&content).map(|(l, c)| l - c).collect();
            best = best.min(optimum(sizes, types, &rest, known).saturating_add(price));
        }
        // The next content, as a number whose digits are copies.
        let mut at = 0;
        loop {
            if at == left.len() {
                known.insert(left.to_vec(), best);
                return best;
            }
            if content[at] < left[at] {
                content[at] += 1;
                break;
            }
            content[at] = u8::from(at == first);
            at += 1;
        }
    }
}

#[test]
fn never_above_the_optimum_nor_below_it_in_cost() {
    let (mut exact, mut worst) = (0, 0.0f64);
    for seed in 1..=1_000u64 {
        let random = &mut Random::new(seed);
        let types: Vec<(i64, i64, i64)> = (0..2 + random.below(4))
            .map(|_| {
                let cpu = 500 * i64::try_from(1 + random.below(16)).unwrap();
                let memory = 512 * i64::try_from(1 + random.below(32)).unwrap();
                let price = 10 * cpu + 5 * memory + i64::try_from(random.below(20_000)).unwrap();
                (cpu, memory, price)
            })
            .collect();
        let kinds: Vec<InstanceType> = types
            .iter()
            .enumerate()
            .map(|(n, (cpu, memory, price))| {
                kind(&format!("t{n}"), &format!("{cpu}m"), &format!("{memory}Mi"), *price as f64 / 1e6)
            })
            .collect();
        let fits = |s: &Size| types.iter().any(|t| t.0 >= s.0 && t.1 >= s.1);
        let sizes: Vec<Size> = (0..1 + random.below(3))
            .map(|_| {
                let cpu = i64::try_from(100 + 100 * random.below(30)).unwrap();
                (cpu, i64::try_from(128 + 128 * random.below(40)).unwrap())
            })
            .filter(fits)
            .collect();
        if sizes.is_empty() {
            continue;
        }
        let counts: Vec<u8> = sizes.iter().map(|_| u8::try_from(1 + random.below(4)).unwrap()).collect();
        let mut pods = Vec::new();
        for (n, ((cpu, memory), count)) in sizes.iter().zip(&counts).enumerate() {
            for i in 0..*count {
                pods.push(pod(&format!("p{n}-{i}"), &format!("{cpu}m"), &format!("{memory}Mi"), json!({})));
            }
        }
        let best = optimum(&sizes, &types, &counts, &mut BTreeMap::new());
        let c = cluster(vec![pool("p", kinds)], &pods);
        for effort in [0, 1, 6] {
            let plan = solve(&c, &Options { effort, ..Options::default() }, &|| false);
            assert!(plan.unschedulable.is_empty(), "seed {seed}");
            assert!(
                plan.bound.micros() <= best,
                "seed {seed}: bound {} above the optimum {best}",
                plan.bound.micros()
            );
            assert!(
                plan.cost.micros() >= best,
                "seed {seed}: cost {} below the optimum {best}",
                plan.cost.micros()
            );
            if effort == 6 {
                exact += u32::from(plan.cost.micros() == best);
                worst = worst.max(plan.cost.micros() as f64 / best as f64 - 1.0);
            }
        }
    }
    // Small instances are where a search has nowhere to hide.
    assert!(exact >= 900, "only {exact} of 1,000 plans are optimal, the worst {worst:.3} above");
}

#[test]
fn no_plan_is_dearer_than_plain_first_fit() {
    for seed in 1..=200u64 {
        let random = &mut Random::new(seed ^ 0x1234_5678_9ABC_DEF1);
        let kinds: Vec<InstanceType> = (0..8)
            .map(|n| {
                let cpu = 1 + random.below(32);
                let memory = cpu * (1 + random.below(8));
                let dollars =
                    0.03 * cpu as f64 + 0.004 * memory as f64 * (1.0 + random.below(20) as f64 / 100.0);
                kind(&format!("t{n}"), &cpu.to_string(), &format!("{memory}Gi"), dollars)
            })
            .collect();
        let pods: Vec<_> = (0..1 + random.below(80))
            .map(|i| {
                let (cpu, memory) = (50 + random.below(900), 64 + random.below(2_000));
                let label = json!({"metadata": {"labels": {"app": format!("a{}", random.below(3))}}});
                pod(&format!("p{i}"), &format!("{cpu}m"), &format!("{memory}Mi"), label)
            })
            .collect();
        let c = cluster(vec![pool("p", kinds)], &pods);
        let plain = solve(&c, &Options { effort: 0, ..Options::default() }, &|| false);
        let plan = solve(&c, &Options::default(), &|| false);
        assert!(plan.cost <= plain.cost, "seed {seed}: {} > {}", plan.cost, plain.cost);
        assert!(plan.bound <= plan.cost, "seed {seed}");
    }
}

/// The pods of `p{class}-…` that a plan has on new instances in zone a.
fn in_zone_a(plan: &Plan, class: usize) -> u8 {
    let prefix = format!("p{class}-");
    let in_a = plan.instances.iter().filter(|instance| instance.zone == "zone-a");
    let pods = in_a.flat_map(|instance| &instance.pods).filter(|pod| pod.name.starts_with(&prefix));
    u8::try_from(pods.count()).unwrap()
}

fn spread_over_zones() -> Value {
    json!({"metadata": {"labels": {"app": "s"}}, "spec": {"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": build::ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "s"}}}]}})
}

fn together_in_a_zone() -> Value {
    json!({"metadata": {"labels": {"app": "t"}}, "spec": {"affinity": {"podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": build::ZONE, "labelSelector": {"matchLabels": {"app": "t"}}}]}}}})
}

/// A class that is spread over two zones at `maxSkew` 1, and one that may be anywhere or has affinity to itself by zone,
/// with prices that differ by zone: every split of both classes is tried, and every one that has the plan's domains.
#[test]
fn bound_of_zone_rules_is_never_above_the_optimum_of_its_domains_and_the_plan_is_near_that_of_all() {
    let (mut exact, mut tight) = (0, 0);
    for seed in 1..=200u64 {
        let random = &mut Random::new(seed ^ 0x2045_D0AB);
        let below = |random: &mut Random, n: u64| i64::try_from(random.below(n)).unwrap();
        let types: Vec<(i64, i64, i64)> = (0..3)
            .map(|n| {
                let (cpu, memory) =
                    (1000 * (1 + 2 * n) + 500 * below(random, 3), 2048 + 1024 * below(random, 12));
                (cpu, memory, 10 * cpu + 5 * memory + below(random, 10_000))
            })
            .collect();
        let dearer = |price: i64| price + price / 4;
        let kinds: Vec<InstanceType> = types
            .iter()
            .enumerate()
            .map(|(n, (cpu, memory, price))| {
                let mut it =
                    kind(&format!("t{n}"), &format!("{cpu}m"), &format!("{memory}Mi"), *price as f64 / 1e6);
                it.offerings.truncate(2);
                it.offerings[1].price = Some(Price::from_micros(dearer(*price)));
                it
            })
            .collect();
        let sizes: Vec<Size> =
            (0..2).map(|_| (200 + 100 * below(random, 6), 256 + 128 * below(random, 8))).collect();
        let counts: Vec<u8> = (0..2).map(|_| u8::try_from(1 + random.below(4)).unwrap()).collect();
        let is_together = random.percent(50);
        let mut pods = Vec::new();
        for (n, ((cpu, memory), count)) in sizes.iter().zip(&counts).enumerate() {
            let more = match (n, is_together) {
                (0, _) => spread_over_zones(),
                (_, true) => together_in_a_zone(),
                _ => json!({}),
            };
            for i in 0..*count {
                pods.push(pod(
                    &format!("p{n}-{i}"),
                    &format!("{cpu}m"),
                    &format!("{memory}Mi"),
                    more.clone(),
                ));
            }
        }
        let in_b: Vec<(i64, i64, i64)> = types.iter().map(|t| (t.0, t.1, dearer(t.2))).collect();
        let plan = solve(&cluster(vec![pool("p", kinds)], &pods), &Options::default(), &|| false);
        assert!(plan.unschedulable.is_empty(), "seed {seed}");
        assert!(plan.bound_given_domains, "seed {seed}: the zones were chosen");
        let (mut known_a, mut known_b) = (BTreeMap::new(), BTreeMap::new());
        // Of all domains, and of those that the plan has.
        let (mut best, mut of_domains) = (i64::MAX, i64::MAX);
        for spread in [counts[0] / 2, counts[0].div_ceil(2)] {
            for other in (0..=counts[1]).filter(|n| !is_together || [0, counts[1]].contains(n)) {
                let a = optimum(&sizes, &types, &[spread, other], &mut known_a);
                let b = optimum(&sizes, &in_b, &[counts[0] - spread, counts[1] - other], &mut known_b);
                best = best.min(a + b);
                if spread == in_zone_a(&plan, 0) && (!is_together || other == in_zone_a(&plan, 1)) {
                    of_domains = of_domains.min(a + b);
                }
            }
        }
        assert!(of_domains < i64::MAX, "seed {seed}: the plan breaks a rule");
        assert!(
            plan.bound.micros() <= of_domains,
            "seed {seed}: bound {} above the optimum {of_domains} of its domains",
            plan.bound
        );
        assert!(
            plan.cost.micros() >= of_domains,
            "seed {seed}: cost {} below the optimum {of_domains} of its domains",
            plan.cost
        );
        exact += u32::from(plan.cost.micros() == best);
        tight += u32::from(plan.bound.micros() * 10 >= of_domains * 9);
    }
    println!("bound of zone rules: exact={exact} within_a_tenth={tight}");
    assert!(exact >= 160, "only {exact} of 200 plans are optimal");
    assert!(tight >= 160, "only {tight} of 200 bounds are within a tenth of the optimum");
}

/// The least cost of holding pods of two sizes, where at most one of the first size may be on an instance and all
/// instances together have at most some cpu; `i64::MAX` if there is no way.
struct Constrained<'a> {
    sizes: &'a [Size; 2],
    types: &'a [(i64, i64, i64)],
    is_alone: bool,
    known: BTreeMap<([u8; 2], i64), i64>,
}

impl Constrained<'_> {
    fn optimum(&mut self, left: [u8; 2], cpu: i64) -> i64 {
        if left == [0, 0] {
            return 0;
        }
        if let Some(cost) = self.known.get(&(left, cpu)) {
            return *cost;
        }
        let mut best = i64::MAX;
        // The instance that takes the first pod left takes any number of the others.
        let least = [u8::from(left[0] > 0), u8::from(left[0] == 0)];
        let most = if self.is_alone { left[0].min(1) } else { left[0] };
        for first in least[0]..=most {
            for second in least[1]..=left[1] {
                let sum = |part: fn(&Size) -> i64| {
                    i64::from(first) * part(&self.sizes[0]) + i64::from(second) * part(&self.sizes[1])
                };
                let needs = (sum(|size| size.0), sum(|size| size.1));
                for (own, memory, price) in self.types {
                    if *own >= needs.0 && *memory >= needs.1 && *own <= cpu {
                        let rest = [left[0] - first, left[1] - second];
                        best = best.min(self.optimum(rest, cpu - own).saturating_add(*price));
                    }
                }
            }
        }
        self.known.insert((left, cpu), best);
        best
    }
}

/// Anti-affinity among the pods of one size, and a limit of the pool: every packing is tried.
#[test]
fn bound_with_anti_affinity_and_a_limit_is_never_above_the_optimum() {
    let (mut whole, mut exact) = (0, 0);
    for seed in 1..=300u64 {
        let random = &mut Random::new(seed ^ 0x0A77_1F1E);
        let below = |random: &mut Random, n: u64| i64::try_from(random.below(n)).unwrap();
        let types: Vec<(i64, i64, i64)> = (0..3)
            .map(|n| {
                let (cpu, memory) = (1000 * (1 + n) + 500 * below(random, 3), 1024 * (2 + below(random, 6)));
                (cpu, memory, 10 * cpu + 5 * memory + below(random, 10_000))
            })
            .collect();
        let kinds: Vec<InstanceType> = types
            .iter()
            .enumerate()
            .map(|(n, (cpu, memory, price))| {
                kind(&format!("t{n}"), &format!("{cpu}m"), &format!("{memory}Mi"), *price as f64 / 1e6)
            })
            .collect();
        let sizes: [Size; 2] =
            std::array::from_fn(|_| (200 + 100 * below(random, 7), 256 + 128 * below(random, 10)));
        let counts: [u8; 2] = std::array::from_fn(|_| u8::try_from(1 + random.below(4)).unwrap());
        let (is_alone, is_limited) = (random.percent(70), random.percent(50));
        let mut pods = Vec::new();
        for (n, ((cpu, memory), count)) in sizes.iter().zip(counts).enumerate() {
            let more = if n == 0 && is_alone {
                json!({"metadata": {"labels": {"app": "s"}}, "spec": {"affinity": {"podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": build::HOST, "labelSelector": {"matchLabels": {"app": "s"}}}]}}}})
            } else {
                json!({})
            };
            for i in 0..count {
                let (cpu, memory) = (format!("{cpu}m"), format!("{memory}Mi"));
                pods.push(pod(&format!("p{n}-{i}"), &cpu, &memory, more.clone()));
            }
        }
        let mut of = pool("p", kinds);
        let limit = 2_000 + 1_000 * below(random, 8);
        if is_limited {
            of.limits.insert("cpu".to_owned(), format!("{limit}m").parse().unwrap());
        }
        let plan = solve(&cluster(vec![of], &pods), &Options::default(), &|| false);
        assert!(plan.bound <= plan.cost, "seed {seed}: bound {} above the cost {}", plan.bound, plan.cost);
        let mut brute = Constrained { sizes: &sizes, types: &types, is_alone, known: BTreeMap::new() };
        let best = brute.optimum(counts, if is_limited { limit } else { 1_000_000 });
        if !plan.unschedulable.is_empty() {
            continue;
        }
        whole += 1;
        assert!(plan.bound.micros() <= best, "seed {seed}: bound {} above the optimum {best}", plan.bound);
        assert!(plan.cost.micros() >= best, "seed {seed}: cost {} below the optimum {best}", plan.cost);
        exact += u32::from(plan.cost.micros() == best);
    }
    assert!(whole >= 150 && exact * 10 >= whole * 7, "{exact} of {whole} whole plans are optimal");
}

#[test]
fn a_plan_cut_short_says_so_and_is_whole() {
    let pods: Vec<_> = (0..100).map(|i| pod(&format!("p{i}"), "700m", "3Gi", json!({}))).collect();
    let c = cluster(vec![pool("p", build::kinds())], &pods);
    let plan = solve(&c, &Options { effort: 1_000, ..Options::default() }, &|| true);
    assert!(plan.cut_short);
    assert_eq!(plan.instances.iter().map(|m| m.pods.len()).sum::<usize>(), 100);
}

#[test]
fn bound_is_divided_among_pools_that_share_no_constraint() {
    let pinned = |name: &str, pool: &str| {
        pod(name, "700m", "1Gi", json!({"spec": {"nodeSelector": {"node-pool": pool}}}))
    };
    let mut pods: Vec<_> = (0..9).map(|i| pinned(&format!("a{i}"), "a")).collect();
    pods.extend((0..5).map(|i| pinned(&format!("b{i}"), "b")));
    let pools = || vec![pool("a", build::kinds()), pool("b", build::kinds())];
    let plan = build::plan(&cluster(pools(), &pods));
    let names: Vec<&str> = plan.bound_by_pool.keys().map(String::as_str).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(plan.bound_by_pool.values().copied().sum::<Price>(), plan.bound);
    for (name, bound) in &plan.bound_by_pool {
        let own = plan.instances.iter().filter(|instance| instance.pool == *name);
        assert!(*bound <= own.filter_map(|instance| instance.price).sum::<Price>(), "{name}");
    }

    // A pod that may use either pool makes one problem of them.
    pods.push(pod("either", "700m", "1Gi", json!({})));
    let plan = build::plan(&cluster(pools(), &pods));
    assert!(plan.bound > Price::ZERO && plan.bound_by_pool.is_empty(), "{:?}", plan.bound_by_pool);
}
