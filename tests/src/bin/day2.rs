//! `make day2`: operations of an ordinary day, under a stream of attacks.

use std::process::ExitCode;

use croft_tests::{
    attacks::{ADMITTED, DISTURBED, RELABELLED, Tally},
    day2::{Case, Day2},
};

/// In the order of the output's last line.
const COUNTERS: [&str; 3] = [ADMITTED, RELABELLED, DISTURBED];

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    croft_runtime::process::install_crypto();
    let mut day = Day2::start().await?;
    let mut total = Tally::default();
    for case in Case::ALL {
        let tally = day.run(case).await?;
        println!("{case:?}: {} attempts, {}", tally.answered, tally.words(&COUNTERS));
        for (counter, breaches) in &tally.breaches {
            breaches.iter().take(3).for_each(|what| println!("  {counter}: {what}"));
        }
        total.add(tally);
    }
    println!("day2: cases={} {}", Case::ALL.len(), total.words(&COUNTERS));
    Ok(if total.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
