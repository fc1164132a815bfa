//! The same load at several points: cost against evictions.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use croft_api::disruption::Preference;

use crate::{
    demand::Demand,
    play::{Figures, Point, Policy, play},
};

const MIN_SAVINGS: [&str; 5] = ["0", "0.03", "0.1", "0.3", "1"];
const AGE_PERCENT: [u64; 4] = [0, 50, 200, 400];
const EVICTION_COST: [&str; 4] = ["0.008", "0.016", "0.024", "0.064"];
const CONSOLIDATE_AFTER: [&str; 2] = ["5m", "30m"];

/// Each preference, and the usual policy.
pub fn preferences() -> Vec<Policy> {
    let points = Preference::ALL.into_iter().map(Point::of);
    points.map(Policy::Croft).chain([Policy::Usual]).collect()
}

/// The default, points that differ from it in one setting, and the usual policy.
pub fn points() -> Vec<Policy> {
    let default = Point::default();
    let min_savings = MIN_SAVINGS.map(|value| Point { min_savings: value.to_owned(), ..default.clone() });
    let age = AGE_PERCENT.map(|age_percent| Point { age_percent, ..default.clone() });
    let cost = EVICTION_COST.map(|value| Point { eviction_cost: value.to_owned(), ..default.clone() });
    let after =
        CONSOLIDATE_AFTER.map(|value| Point { consolidate_after: value.to_owned(), ..default.clone() });
    let points = [default].into_iter().chain(min_savings).chain(age).chain(cost).chain(after);
    points.map(Policy::Croft).chain([Policy::Usual]).collect()
}

/// Plays every point, as many at a time as there are processors, and prints the table. Returns the violations.
pub fn print(demand: &Demand, seed: u64, points: &[Policy]) -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(points.len());
    let (next, played) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((at, point)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    points.get(at).map(|point| (at, point))
                } {
                    let figures = play(demand, seed, point, false);
                    played.lock().unwrap().push((at, figures));
                }
            });
        }
    });
    let mut played = played.into_inner().unwrap();
    played.sort_by_key(|(at, _)| *at);
    println!(
        "{:>10} {:>10} {:>16} {:>7} {:>12} {:>8} {:>8} {:>17} {:>17} {:>8}",
        "preference",
        "minSavings",
        "consolidateAfter",
        "age %",
        "evictionCost",
        "gap %",
        "paid %",
        "evictions/pod-day",
        "launches/node-day",
        "waited s"
    );
    for (at, figures) in &played {
        println!("{}", row(&points[*at], figures));
    }
    played.iter().map(|(_, figures)| figures.violations).sum()
}

fn row(policy: &Policy, figures: &Figures) -> String {
    let name = match policy {
        Policy::Croft(point) => {
            let Point { preference, min_savings, consolidate_after, age_percent, eviction_cost, .. } = point;
            let preference = preference.as_str();
            format!(
                "{preference:>10} {min_savings:>10} {consolidate_after:>16} {age_percent:>7} {eviction_cost:>12}"
            )
        }
        Policy::Usual => format!("{:>59}", "the usual policy"),
    };
    let Figures { gap, gap_paid, evictions_pod_day, launches_node_day, waited_s, .. } = figures;
    format!(
        "{name} {:>8.2} {:>8.2} {evictions_pod_day:>17.3} {launches_node_day:>17.2} {waited_s:>8.1}",
        gap * 100.0,
        gap_paid * 100.0
    )
}
