//! One run, again and again: the controller dies at every moment at which it touches the world.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::sleep;

use crate::{panics, run::Run, runs::rest};

/// Pods come, go and come again, with the controller dying at point `at`; what is broken, and how many points there were.
async fn play(seed: u64, at: u64) -> (Vec<String>, u64) {
    let mut run = Run::new(seed);
    run.environment.dies_at.store(at, Ordering::Relaxed);
    let (models, checks) = (run.start_models(), run.start_checks());
    run.start();
    let environment = Arc::clone(&run.environment);
    let users = Arc::clone(&run.model);
    let act = async move {
        sleep(Duration::from_secs(30)).await;
        for (n, workload) in users.lock().unwrap().workloads.iter_mut().enumerate() {
            workload.replicas = if n % 2 == 0 { 0 } else { workload.replicas + 2 };
        }
        sleep(Duration::from_secs(90)).await;
    };
    tokio::pin!(act);
    let died = tokio::select! {
        () = environment.died.notified() => true,
        () = &mut act => false,
    };
    if died {
        run.processes.clear();
        sleep(Duration::from_secs(1)).await;
        run.start();
        act.await;
    }
    let points = run.environment.points.load(Ordering::Relaxed);
    let broken = rest(&mut run).await;
    models.abort();
    checks.abort();
    (broken, points)
}

fn alone(seed: u64, at: u64) -> (Vec<String>, u64) {
    let (played, panicked) = panics::play(play(seed, at));
    let (mut broken, points) = played.unwrap_or_default();
    broken.extend(panicked);
    (broken, points)
}

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn a_controller_that_dies_at_any_moment_loses_nothing() {
    // All moments of ten seeds by `make soak`.
    let every = number("CROFT_SIM_POINTS").unwrap_or(7);
    let seeds = number("CROFT_SIM_CRASH_SEEDS").unwrap_or(1);
    for seed in (3..).take(seeds) {
        play_every_moment(seed, every);
    }
}

fn play_every_moment(seed: u64, every: usize) {
    let (broken, points) = alone(seed, u64::MAX);
    assert_eq!(broken, Vec::<String>::new(), "seed {seed}");
    assert!(points > 100, "seed {seed}: only {points} moments");
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let broken: Vec<(u64, Vec<String>)> = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|n| {
                scope.spawn(move || {
                    let mine = (0..points).step_by(every).skip(n).step_by(threads);
                    mine.map(|at| (at, alone(seed, at).0))
                        .filter(|(_, broken)| !broken.is_empty())
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    println!("crashes: seed={seed} points={points} every={every} violations={}", broken.len());
    assert_eq!(panics::take_of_pools(), Vec::<String>::new(), "seed {seed}");
    assert!(broken.is_empty(), "seed {seed}: {broken:#?}");
}
