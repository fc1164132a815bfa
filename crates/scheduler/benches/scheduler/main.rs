//! `make bench-scheduler`: workloads A to E as a table, and one line for programs at the end.
//!
//! Every workload runs in a process of its own, so that its peak memory is its own. Times are of upserting the parsed
//! pods and of the first solve, nothing warmed before.
//!
//! Workload E has a pool of five templates. Weights come before price there, so its bound isn't that of the cheapest cluster, which
//! would have none of the heavier templates. A plan's bound is the sum of its tiers': for the pods that each weight took, the least
//! that they cost on the templates of that weight, within their limits. The gap is what the packing of each tier leaves open;
//! which pods a limit leaves to the next tier is no part of it. Equal weights, as of the two templates of spot, are one tier.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a benchmark: it measures time, and ends when its input is wrong"
)]

mod dump;
mod workloads;

use std::{
    path::PathBuf,
    process::{Command, ExitCode},
    sync::Arc,
    time::Instant,
};

use croft_scheduler::{Catalog, Cluster, InstanceType, Options, Plan, Pool, solve};
use dump::Input;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

/// Multiples of the default effort for workload C with 1,000 and 5,000 pods, besides the default itself.
const LONG_EFFORTS: [u32; 2] = [16, 160];
/// The effort whose plan of 50 pods is the best known: ten times as much finds nothing cheaper.
const BEST_KNOWN_EFFORT: u32 = 1_000;
/// Small clusters.
const SMALL: u64 = 200;
/// Their best known plans: seed, dollars an hour.
const SMALL_BEST: &str = include_str!("small_best.txt");

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let value = |flag: &str| args.iter().position(|a| a == flag).and_then(|at| args.get(at + 1)).cloned();
    let catalog = value("--catalog");
    let dump = value("--dump").map(PathBuf::from);
    if let Some(only) = value("--only") {
        let result = run(&only, catalog.as_deref(), dump.as_ref());
        println!("{result}");
        return ExitCode::SUCCESS;
    }
    let Some(catalog) = catalog else {
        eprintln!("bench-scheduler: pass --catalog FILE (make bench-scheduler writes the built-in one)");
        return ExitCode::FAILURE;
    };
    let part = |name: &str| -> Value {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--only", name, "--catalog", &catalog]);
        if let Some(dump) = &dump {
            command.arg("--dump").arg(dump);
        }
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (table, last) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim_end()));
        if !table.is_empty() {
            println!("{table}");
        }
        serde_json::from_str(last).unwrap_or_else(|e| {
            panic!("workload {name} failed: {e}\n{}", String::from_utf8_lossy(&output.stderr))
        })
    };
    println!(
        "{:<28}{:>8}{:>10}{:>12}{:>10}{:>11}",
        "workload", "pods", "seconds", "pods/s", "instances", "$/h"
    );
    let sizes = [1_000, 2_000, 5_000, 10_000, 20_000];
    let a: Vec<Value> = sizes.iter().map(|n| part(&format!("a{n}"))).collect();
    let [b, c, d, e, small] = ["b", "c", "d", "e", "small"].map(part);
    let f = |v: &Value, key: &str| v[key].as_f64().unwrap();
    // Least squares of log(seconds per pod) over log(pods): 0 is flat.
    let points: Vec<(f64, f64)> =
        sizes.iter().zip(&a).map(|(n, v)| ((*n as f64).ln(), (f(v, "seconds") / *n as f64).ln())).collect();
    let mean = |g: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(g).sum::<f64>() / points.len() as f64;
    let (mx, my) = (mean(&|p| p.0), mean(&|p| p.1));
    let exponent = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum::<f64>()
        / points.iter().map(|p| (p.0 - mx).powi(2)).sum::<f64>();
    println!(
        "bench-scheduler: a5000_pods_s={:.0} a20000_pods_s={:.0} a_cost_vs_ffd={:.4} b_pods_s={:.0} b_zone1={:.4} \
         c_gap_default={:.4} c_default_s={:.2} c_gap_effort16={:.4} c_effort16_s={:.1} c_gap_effort160={:.4} \
         c_effort160_s={:.1} c50_over_best={:.4} c50_ms={:.0} small_median={:.4} \
         small_worst={:.4} small_ms={:.0} d_ms={:.1} e_gap={:.4} e_s={:.2} a_rss_mb={:.0} d_rss_mb={:.0} exponent={:.3} \
         worse_than_ffd={}",
        f(&a[2], "pods_s"),
        f(&a[4], "pods_s"),
        a.iter().map(|v| f(v, "vs_ffd")).fold(0.0, f64::max),
        f(&b, "pods_s"),
        f(&b, "zone1"),
        f(&c, "gap_default"),
        f(&c, "seconds_default"),
        f(&c, "gap_16"),
        f(&c, "seconds_16"),
        f(&c, "gap_160"),
        f(&c, "seconds_160"),
        f(&c, "over_best_50"),
        f(&c, "ms_50"),
        f(&small, "median"),
        f(&small, "worst"),
        f(&small, "ms"),
        f(&d, "ms"),
        f(&e, "gap"),
        f(&e, "seconds"),
        f(&a[4], "rss_mb"),
        f(&d, "rss_mb"),
        exponent,
        c["worse"],
    );
    if c["worse"].as_u64() != Some(0) {
        eprintln!("bench-scheduler: a plan costs more than first-fit-decreasing");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap_or("VmHWM: 0 kB");
    line.split_whitespace().nth(1).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

fn row(name: &str, pods: usize, seconds: f64, plan: &Plan) {
    println!(
        "{name:<28}{pods:>8}{seconds:>10.4}{:>12.0}{:>10}{:>11.3}  gap {:.4}  steps {}  left {}",
        pods as f64 / seconds,
        plan.instances.len(),
        plan.cost.dollars(),
        plan.gap(),
        plan.steps,
        plan.unschedulable.len()
    );
}

fn timed(pools: &[Pool], pods: &[Pod], effort: u32) -> (Plan, f64) {
    let mut cluster = Cluster::new();
    for templates in pools.chunk_by(|one, next| one.name == next.name) {
        cluster.upsert_templates(templates.to_vec()).unwrap();
    }
    let start = Instant::now();
    for pod in pods {
        cluster.upsert_pod(pod).unwrap();
    }
    let plan = solve(&cluster, &Options { effort, ..Options::default() }, &|| false);
    (plan, start.elapsed().as_secs_f64())
}

fn read(catalog: Option<&str>) -> Arc<[InstanceType]> {
    let file = catalog.expect("--catalog FILE");
    let text = std::fs::read_to_string(file).unwrap();
    serde_json::from_str::<Catalog>(&text).unwrap().instance_types.into()
}

fn write(dump: Option<&PathBuf>, name: &str, input: &Input<'_>, plan: &Plan) {
    let Some(dir) = dump else { return };
    std::fs::create_dir_all(dir).unwrap();
    for (file, value) in [
        ("catalog", dump::catalog(input.kinds)),
        ("cluster", dump::cluster(input)),
        ("plan", dump::plan(plan)),
    ] {
        std::fs::write(dir.join(format!("{name}-{file}.json")), serde_json::to_string(&value).unwrap())
            .unwrap();
    }
}

fn run(name: &str, catalog: Option<&str>, dump: Option<&PathBuf>) -> Value {
    if let Some(count) = name.strip_prefix('a') {
        let count = count.parse().unwrap();
        let kinds: Arc<[InstanceType]> = workloads::catalog_a().into();
        let pools = [workloads::pool("a", Arc::clone(&kinds), workloads::any_capacity())];
        let pods = workloads::pods_a(count);
        let (plan, seconds) = timed(&pools, &pods, 1);
        let rss = peak_mb();
        row(name, count, seconds, &plan);
        write(dump, name, &Input { kinds: &kinds, pools: &pools, nodes: &[], pods: &pods }, &plan);
        let (plain, _) = timed(&pools, &pods, 0);
        return json!({"seconds": seconds, "pods_s": count as f64 / seconds, "rss_mb": rss,
            "vs_ffd": plan.cost.dollars() / plain.cost.dollars()});
    }
    if let Some(rest) = name.strip_prefix("c-") {
        // c-<mix>-<pods>-<effort>: one case of workload C.
        let parts: Vec<usize> = rest.split('-').map(|p| p.parse().unwrap()).collect();
        let kinds = read(catalog);
        let pools = [workloads::pool("c", Arc::clone(&kinds), workloads::compute())];
        let pods = workloads::pods_c(parts[0], parts[1]);
        let (plan, seconds) = timed(&pools, &pods, parts[2] as u32);
        row(name, pods.len(), seconds, &plan);
        return json!({"seconds": seconds, "gap": plan.gap()});
    }
    match name {
        "b" => {
            let kinds: Arc<[InstanceType]> = workloads::catalog_a().into();
            let pools = [workloads::pool("b", Arc::clone(&kinds), workloads::any_capacity())];
            let pods = workloads::pods_b(4_000);
            let (plan, seconds) = timed(&pools, &pods, 1);
            row(name, pods.len(), seconds, &plan);
            write(dump, name, &Input { kinds: &kinds, pools: &pools, nodes: &[], pods: &pods }, &plan);
            let there: usize =
                plan.instances.iter().filter(|m| m.zone == "zone-1").map(|m| m.pods.len()).sum();
            json!({"pods_s": pods.len() as f64 / seconds, "zone1": there as f64 / pods.len() as f64})
        }
        "c" => mixes(catalog, dump),
        "small" => small(catalog),
        "small-best" => small_best(catalog),
        "d" => existing(dump),
        "e" => templates(catalog, dump),
        other => panic!("no workload {other}"),
    }
}

/// Gaps and seconds of workload C, the worst of its three mixes: by effort for 1,000 and 5,000 pods, and for 50 pods at
/// the default effort above the best known plan.
fn mixes(catalog: Option<&str>, dump: Option<&PathBuf>) -> Value {
    let kinds = read(catalog);
    let pools = [workloads::pool("c", Arc::clone(&kinds), workloads::compute())];
    let efforts = [1, LONG_EFFORTS[0], LONG_EFFORTS[1]];
    let (mut gaps, mut longest) = ([0.0f64; 3], [0.0f64; 3]);
    let (mut over_best, mut seconds_50) = (0.0f64, 0.0f64);
    for mix in 0..3 {
        for count in [1_000, 5_000] {
            let pods = workloads::pods_c(mix, count);
            for (at, effort) in efforts.into_iter().enumerate() {
                let (plan, seconds) = timed(&pools, &pods, effort);
                row(&format!("c mix {mix} effort {effort}"), count, seconds, &plan);
                gaps[at] = gaps[at].max(plan.gap());
                longest[at] = longest[at].max(seconds);
                let input = Input { kinds: &kinds, pools: &pools, nodes: &[], pods: &pods };
                write(dump, &format!("c{mix}-{count}-{effort}"), &input, &plan);
            }
        }
        let pods = workloads::pods_c(mix, 50);
        let (best, seconds) = timed(&pools, &pods, BEST_KNOWN_EFFORT);
        row(&format!("c mix {mix} effort {BEST_KNOWN_EFFORT}"), 50, seconds, &best);
        let (plan, seconds) = timed(&pools, &pods, 1);
        row(&format!("c mix {mix} effort 1"), 50, seconds, &plan);
        over_best = over_best.max(plan.cost.dollars() / best.cost.dollars() - 1.0);
        seconds_50 = seconds_50.max(seconds);
    }
    let mut worse = 0;
    for seed in 0..500 {
        let pods = workloads::pods_random(seed);
        let (plan, _) = timed(&pools, &pods, 1);
        let (plain, _) = timed(&pools, &pods, 0);
        worse += u32::from(plan.cost > plain.cost);
    }
    json!({
        "gap_default": gaps[0], "seconds_default": longest[0], "gap_16": gaps[1], "seconds_16": longest[1],
        "gap_160": gaps[2], "seconds_160": longest[2], "over_best_50": over_best, "ms_50": seconds_50 * 1e3,
        "worse": worse,
    })
}

/// The largest gap and the longest time of workload E, over the three mixes of C. The limit of its last template is never
/// reached, so every pod has a place, and each of the others is used.
fn templates(catalog: Option<&str>, dump: Option<&PathBuf>) -> Value {
    let kinds = read(catalog);
    let pools = workloads::templates_e(&kinds);
    let (mut gap, mut longest) = (0.0f64, 0.0f64);
    for mix in 0..3 {
        let pods = workloads::pods_e(mix, 5_000);
        let (plan, seconds) = timed(&pools, &pods, 1);
        row(&format!("e mix {mix}"), pods.len(), seconds, &plan);
        assert!(plan.unschedulable.is_empty(), "{} pods have no place", plan.unschedulable.len());
        for Pool { template, .. } in &pools {
            assert!(plan.instances.iter().any(|m| m.template == *template), "{template} is not used");
        }
        gap = gap.max(plan.gap());
        longest = longest.max(seconds);
        let input = Input { kinds: &kinds, pools: &pools, nodes: &[], pods: &pods };
        write(dump, &format!("e{mix}"), &input, &plan);
    }
    json!({"gap": gap, "seconds": longest})
}

/// Costs of the small clusters at the default effort above the best known plans, and the longest time.
fn small(catalog: Option<&str>) -> Value {
    let kinds = read(catalog);
    let pools = [workloads::pool("small", Arc::clone(&kinds), workloads::compute())];
    let known = SMALL_BEST.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let mut words = line.split(' ');
        let mut number = || words.next().unwrap().parse::<f64>().unwrap();
        (number() as u64, number())
    });
    let (mut over, mut longest) = (Vec::new(), 0.0f64);
    for (seed, best) in known {
        let pods = workloads::pods_small(seed);
        let (plan, seconds) = timed(&pools, &pods, 1);
        let above = plan.cost.dollars() / best - 1.0;
        if !(-0.000_1..=0.02).contains(&above) {
            row(&format!("small {seed}: {above:+.4}"), pods.len(), seconds, &plan);
        }
        over.push(above);
        longest = longest.max(seconds);
    }
    over.sort_by(f64::total_cmp);
    json!({"median": over[over.len() / 2], "worst": over[over.len() - 1], "ms": longest * 1e3})
}

/// Prints the lines of [`SMALL_BEST`] anew, with the share by which each plan is above its bound.
fn small_best(catalog: Option<&str>) -> Value {
    let kinds = read(catalog);
    let pools = [workloads::pool("small", Arc::clone(&kinds), workloads::compute())];
    for seed in 0..SMALL {
        let (plan, _) = timed(&pools, &workloads::pods_small(seed), BEST_KNOWN_EFFORT);
        println!("{seed} {:.6} {:.4}", plan.cost.dollars(), plan.gap());
    }
    json!({})
}

fn existing(dump: Option<&PathBuf>) -> Value {
    let kinds: Arc<[InstanceType]> = workloads::catalog_a().into();
    let mut cluster = Cluster::new();
    let pools = workloads::pools_d(200, &kinds);
    for pool in &pools {
        cluster.upsert_pool(pool.clone()).unwrap();
    }
    // Parsed objects come and go one by one, as they do in a watch: the state alone remains.
    for n in 0..5_000 {
        cluster.upsert_node(&workloads::node_d(200, n)).unwrap();
        for p in 0..10 {
            cluster.upsert_pod(&workloads::running_d(200, n, p)).unwrap();
        }
    }
    let new = workloads::pods_d(200, 500);
    let start = Instant::now();
    for pod in &new {
        cluster.upsert_pod(pod).unwrap();
    }
    let plan = solve(&cluster, &Options::default(), &|| false);
    let seconds = start.elapsed().as_secs_f64();
    row("d", new.len(), seconds, &plan);
    let rss = peak_mb();
    if dump.is_some() {
        let nodes: Vec<_> = (0..5_000).map(|n| workloads::node_d(200, n)).collect();
        let running = (0..5_000).flat_map(|n| (0..10).map(move |p| workloads::running_d(200, n, p)));
        let pods: Vec<Pod> = running.chain(new).collect();
        write(dump, "d", &Input { kinds: &kinds, pools: &pools, nodes: &nodes, pods: &pods }, &plan);
    }
    json!({"ms": seconds * 1e3, "rss_mb": rss})
}
