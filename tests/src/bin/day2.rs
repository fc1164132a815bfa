//! `make day2`: operations of an ordinary day, under a stream of attacks, and their effects on running pods.

use std::process::ExitCode;

use croft_tests::{
    attacks::{ADMITTED, DISTURBED, RELABELLED, Tally},
    day2::{Case, Day2},
    operations::{ACCEPTED, ENDED, Operation, Operations, STUCK},
};

/// In the order of the output's last line.
const COUNTERS: [&str; 6] = [ADMITTED, RELABELLED, DISTURBED, ENDED, ACCEPTED, STUCK];

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    croft_runtime::process::install_crypto();
    let mut total = Tally::default();
    let only = std::env::args().nth(1);
    let mut day = Day2::start().await?;
    for case in
        Case::ALL.into_iter().filter(|case| only.as_ref().is_none_or(|only| format!("{case:?}") == *only))
    {
        let tally = day.run(case).await?;
        show(&format!("{case:?}: {} attempts", tally.answered), &tally, &[ADMITTED, RELABELLED, DISTURBED]);
        total.add(tally);
    }
    drop(day);
    if only.is_some() {
        return Ok(if total.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let mut day = Day2::start_by_helm().await?;
    for case in Case::HELM {
        let tally = day.run(case).await?;
        show(&format!("{case:?}: {} attempts", tally.answered), &tally, &[ADMITTED, RELABELLED, DISTURBED]);
        total.add(tally);
    }
    drop(day);
    let mut operations = Operations::start().await?;
    for operation in Operation::ALL {
        let tally = operations.run(operation).await?;
        show(&format!("{operation:?}"), &tally, &[ENDED, STUCK]);
        total.add(tally);
    }
    let tally = operations.accepted().await?;
    show("bad edits", &tally, &[ACCEPTED]);
    total.add(tally);
    println!(
        "day2: cases={} {}",
        Case::ALL.len() + Case::HELM.len() + Operation::ALL.len(),
        total.words(&COUNTERS)
    );
    Ok(if total.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints what a case came to, and the first breaches.
fn show(name: &str, tally: &Tally, counters: &[&'static str]) {
    println!("{name}: {}", tally.words(counters));
    for (counter, breaches) in &tally.breaches {
        breaches.iter().take(3).for_each(|what| println!("  {counter}: {what}"));
    }
}
