//! `make day2`: operations of an ordinary day, under a stream of attacks, and their effects on running pods. With the name of
//! a case, that one alone.

use std::process::ExitCode;

use anyhow::Context as _;
use croft_tests::{
    attacks::{ADMITTED, DISTURBED, LOST, RELABELLED, Tally},
    day2::{Case, Day2},
    operations::{ACCEPTED, ENDED, Operation, Operations, STUCK},
};

/// In the order of the output's last line.
const COUNTERS: [&str; 7] = [ADMITTED, RELABELLED, DISTURBED, LOST, ENDED, ACCEPTED, STUCK];

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    croft_runtime::process::install_crypto();
    if let Some(name) = std::env::args().nth(1) {
        let case = Case::ALL.into_iter().find(|case| format!("{case:?}") == name);
        let case = case.with_context(|| format!("there is no case {name}: write one of {:?}", Case::ALL))?;
        return Ok(code(&attacked(Day2::start().await?, &[case]).await?));
    }
    let mut total = attacked(Day2::start().await?, &Case::ALL).await?;
    total.add(attacked(Day2::start_by_helm().await?, &Case::HELM).await?);
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
    Ok(code(&total))
}

/// Runs cases under attack, one after the other.
async fn attacked(mut day: Day2, cases: &[Case]) -> anyhow::Result<Tally> {
    let mut total = Tally::default();
    for case in cases {
        let tally = day.run(*case).await?;
        show(
            &format!("{case:?}: {} attempts", tally.answered),
            &tally,
            &[ADMITTED, RELABELLED, DISTURBED, LOST],
        );
        day.take_figures().iter().for_each(|line| println!("  {line}"));
        total.add(tally);
    }
    Ok(total)
}

fn code(total: &Tally) -> ExitCode {
    if total.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints what a case came to, and the first breaches.
fn show(name: &str, tally: &Tally, counters: &[&'static str]) {
    println!("{name}: {}", tally.words(counters));
    for (counter, breaches) in &tally.breaches {
        breaches.iter().take(3).for_each(|what| println!("  {counter}: {what}"));
    }
}
