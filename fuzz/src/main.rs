//! `make fuzz`: tries every target, or one, for some seconds.

use std::{fs, path::Path, process::ExitCode, time::Duration};

use anyhow::Context as _;
use clap::Parser;
use croft_fuzz::{read, run, targets};
use croft_runtime::clock::{Clock as _, SystemClock};

/// Tries invalid and unusual inputs.
#[derive(Parser)]
struct Args {
    /// The target; every one if not given
    target: Option<String>,
    /// For how long, each
    #[arg(long, default_value = "20")]
    seconds: u64,
    /// Where the run begins; the same seed gives the same inputs
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Write what is new into the kept corpus
    #[arg(long)]
    keep: bool,
}

fn main() -> ExitCode {
    match tried(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

fn tried(args: &Args) -> anyhow::Result<bool> {
    let Args { target, seconds, seed, keep } = args;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut good = true;
    let chosen =
        targets::ALL.iter().filter(|(name, _)| target.as_deref().is_none_or(|target| target == *name));
    for (name, function) in chosen {
        let folder = root.join("corpus").join(name);
        let mut seeds = read(&folder)?;
        if targets::reads_reviews(name) {
            seeds.extend(read(&root.join("../tests/corpus/reviews"))?);
        }
        let begun = SystemClock.monotonic();
        let limit = Duration::from_secs(*seconds);
        let report = run(*function, &seeds, *seed, |_| SystemClock.monotonic() - begun < limit);
        let branches = match report.branches {
            Some((taken, all)) => format!(", {taken} of {all} branches taken"),
            None => String::new(),
        };
        println!("{name}: {} tried, {} new{branches}, seed {seed}", report.tried, report.kept.len());
        if *keep {
            for (number, input) in report.kept.iter().enumerate() {
                fs::write(folder.join(format!("{seed}-{number:04}")), input)?;
            }
        }
        if let Some(finding) = report.finding {
            let file = root.join(format!("finding-{name}"));
            fs::write(&file, &finding.input)
                .with_context(|| format!("failed to write {}", file.display()))?;
            println!("{name}: {}\nthe input is in {}", finding.what, file.display());
            good = false;
        }
    }
    Ok(good)
}
