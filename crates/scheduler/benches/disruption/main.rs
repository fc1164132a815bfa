//! How long searches over large clusters take, and what aged clusters cost after them: the first part of
//! `make bench-disruption`. Every part runs in a process of its own, so that its peak memory is its own. The last line
//! is a list of `key=value`.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a benchmark: it measures time, and ends when its input is wrong"
)]

mod world;

use std::{
    process::{Command, ExitCode},
    sync::Arc,
    time::Instant,
};

use croft_scheduler::{Catalog, InstanceType, Operator, Price, Requirement, consolidation::consolidate};
use croft_simkit::Random;
use serde_json::{Value, json};
use world::{Binding, CPUS, DEFAULTS, Deployment, FREE, MEMORIES, Rules, World};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let value = |flag: &str| args.iter().position(|a| a == flag).and_then(|at| args.get(at + 1)).cloned();
    let Some(catalog) = value("--catalog") else {
        eprintln!("bench-disruption: pass --catalog FILE (make bench-disruption writes the built-in one)");
        return ExitCode::FAILURE;
    };
    if let Some(only) = value("--only") {
        println!("{}", run(&only, &catalog));
        return ExitCode::SUCCESS;
    }
    let part = |name: &str| -> Value {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let output = command.args(["--only", name, "--catalog", &catalog]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (table, last) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim_end()));
        println!("{table}");
        serde_json::from_str(last)
            .unwrap_or_else(|e| panic!("{name} failed: {e}\n{}", String::from_utf8_lossy(&output.stderr)))
    };
    let f = |v: &Value, key: &str| v[key].as_f64().unwrap();
    let one = part("decide-1000-1");
    let twenty = part("decide-1000-20");
    let large = part("decide-5000-100");
    let aged = part("aged");
    let violations: u64 =
        [&one, &twenty, &large, &aged].iter().map(|v| v["violations"].as_u64().unwrap()).sum();
    println!(
        "decide1000_s={:.2} decide5000_s={:.2} rss_mb={:.0} cost_gap={:.4} cost_gap_defaults={:.4} \
         cost_gap_planned={:.4} cost_gap_defaults_planned={:.4} violations={violations}",
        f(&one, "seconds").max(f(&twenty, "seconds")),
        f(&large, "seconds"),
        f(&one, "rss_mb").max(f(&large, "rss_mb")),
        f(&aged, "gap"),
        f(&aged, "gap_defaults"),
        f(&aged, "gap_planned"),
        f(&aged, "gap_defaults_planned"),
    );
    if violations > 0 {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap_or("VmHWM: 0 kB");
    line.split_whitespace().nth(1).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

fn run(name: &str, catalog: &str) -> Value {
    if let Some(rest) = name.strip_prefix("decide-") {
        let (nodes, pools) = rest.split_once('-').unwrap();
        return decide(catalog, nodes.parse().unwrap(), pools.parse().unwrap());
    }
    match name {
        "aged" => aged(catalog),
        other => panic!("no part {other}"),
    }
}

fn read(catalog: &str) -> Arc<[InstanceType]> {
    let text = std::fs::read_to_string(catalog).unwrap();
    serde_json::from_str::<Catalog>(&text).unwrap().instance_types.into()
}

/// c, m and r of generation > 2, on-demand, x86.
fn compute() -> Vec<Requirement> {
    let any_of = |key: &str, values: &[&str]| Requirement::any_of(key, values.iter().copied());
    vec![
        any_of("karpenter.sh/capacity-type", &["on-demand"]),
        any_of("kubernetes.io/arch", &["amd64"]),
        any_of("karpenter.k8s.aws/instance-category", &["c", "m", "r"]),
        Requirement {
            key: "karpenter.k8s.aws/instance-generation".to_owned(),
            operator: Operator::Gt,
            values: vec!["2".to_owned()],
            min_values: None,
        },
    ]
}

/// `nodes` nodes with 10 pods each on average, of which about half were freed by removals.
fn decide(catalog: &str, nodes: usize, pools: usize) -> Value {
    let types = read(catalog);
    let small: Arc<[InstanceType]> =
        types.iter().filter(|t| t.capacity.get("cpu") <= 16_000).cloned().collect();
    let names: Vec<String> = (0..pools).map(|n| format!("pool-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = World::new(&small, &names, &compute());
    let mut random = Random::from_state(nodes as u64 + pools as u64);
    for _ in 0..pools.max(50) * 2 {
        let pool = names[world.deployments.len() % pools].to_owned();
        world.deployments.push(Deployment {
            pool,
            cpu: random.one_of(&CPUS),
            memory: random.one_of(&MEMORIES),
        });
    }
    // In waves, as clusters grow, until there are nodes enough with pods enough.
    let target = nodes * 10;
    while world.counts().0 < nodes || world.counts().1 < target {
        for _ in 0..(nodes / 2).max(100) {
            let deployment = random.index(world.deployments.len());
            world.add_pod(deployment);
        }
        world.provision();
        if world.counts().1 > target {
            for name in world.names() {
                if random.below(4) == 0 {
                    world.remove_pod(&name);
                }
            }
            world.drop_empty();
        }
        if world.counts().0 >= nodes {
            break;
        }
    }
    let (have_nodes, have_pods) = world.counts();
    world.now = 24 * 60;
    let ask = world.ask(DEFAULTS);
    let begun = Instant::now();
    let found = consolidate(&world.cluster, &ask, &|| false);
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "decide: {have_nodes} nodes, {have_pods} pods, {pools} pools: {seconds:.2} s, {} moves, ${}/h -> ${}/h, {} steps{}",
        found.commands.len(),
        found.before,
        found.after,
        found.steps,
        if found.cut_short { ", ended by its effort" } else { "" }
    );
    json!({"seconds": seconds, "rss_mb": peak_mb(), "violations": world.violations})
}

/// Consolidates until nothing is found though every pod has run for days. Answers rounds.
fn settle(world: &mut World, rules: Rules) -> u32 {
    let mut quiet = 0;
    for round in 1..200 {
        // Between two rounds pods grow old again.
        world.now += if quiet == 0 { 120 } else { 24 * 60 };
        quiet = if world.consolidate(rules).commands.is_empty() { quiet + 1 } else { 0 };
        if quiet == 5 {
            return round;
        }
    }
    200
}

/// A cluster from a good packing, with half of its pods removed at random.
fn age(types: &Arc<[InstanceType]>, seed: u64, binding: Binding) -> World {
    let mut random = Random::from_state(seed);
    let mut world = World::new(types, &["p"], &compute());
    world.binding = binding;
    for _ in 0..30 {
        world.deployments.push(Deployment {
            pool: "p".to_owned(),
            cpu: random.one_of(&CPUS),
            memory: random.one_of(&MEMORIES),
        });
    }
    for _ in 0..600 {
        let deployment = random.index(30);
        world.add_pod(deployment);
    }
    world.provision();
    for name in world.names() {
        if random.below(2) == 0 {
            world.remove_pod(&name);
        }
    }
    world
}

/// 20 aged clusters, consolidated without limits and with the defaults, and their pods bound by kube-scheduler's rule and
/// as planned. Gaps to the bound, the worst of each.
fn aged(catalog: &str) -> Value {
    let types = read(catalog);
    let mut worst = [[0.0f64; 2]; 2];
    let mut violations = 0;
    for seed in 0..20 {
        for (by, binding) in [Binding::Scheduler, Binding::Planned].into_iter().enumerate() {
            let mut free = age(&types, seed, binding);
            let (before, bound) = (free.cost(), free.fresh(10).bound);
            let gap = |cost: Price| cost.dollars() / bound.dollars() - 1.0;
            let begun = Instant::now();
            let rounds = settle(&mut free, FREE);
            let seconds = begun.elapsed().as_secs_f64();
            let mut defaults = age(&types, seed, binding);
            defaults.now = 24 * 60;
            let rounds_defaults = settle(&mut defaults, DEFAULTS);
            println!(
                "aged {seed:>2}, {binding:?}: ${before}/h -> ${}/h in {rounds} rounds, {} evictions, {seconds:.1} s, {:.2} % \
                 above the bound; with the defaults ${}/h in {rounds_defaults} rounds, {} evictions, {:.2} %",
                free.cost(),
                free.evictions,
                gap(free.cost()) * 100.0,
                defaults.cost(),
                defaults.evictions,
                gap(defaults.cost()) * 100.0
            );
            worst[by][0] = worst[by][0].max(gap(free.cost()));
            worst[by][1] = worst[by][1].max(gap(defaults.cost()));
            violations += free.violations + defaults.violations;
        }
    }
    let [[gap, gap_defaults], [gap_planned, gap_defaults_planned]] = worst;
    json!({
        "gap": gap, "gap_defaults": gap_defaults, "gap_planned": gap_planned,
        "gap_defaults_planned": gap_defaults_planned, "violations": violations,
    })
}
