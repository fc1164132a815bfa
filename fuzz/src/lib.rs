//! Invalid and unusual inputs, against what reads them.
//!
//! ```text
//!  kept corpus, captured reviews ──▶ pool ──pick──▶ mutate (bytes or JSON) ──▶ target ──▶ signature
//!                                     ▲                                         │           │ new
//!                                     └─────────────────────────────────────────┼───────────┘
//!                                                                               └─ panics or contradicts itself:
//!                                                                                  the input is the finding
//! ```
//!
//! An input is bred from if the target said something new about it (which rule decided, which refusal, how many
//! operations of a patch, which kind of error: its [signature](Signature)) or, where the program was built to tell, if
//! it took a [branch](coverage) that none before it took. `make fuzz` builds it so, on the stable compiler; the
//! bounded run of the tests goes by signatures alone. Runs are reproducible from their seed.

#![allow(
    clippy::indexing_slicing,
    reason = "what a JSON value doesn't have reads as null, and a target fails by panicking"
)]

pub mod coverage;
pub mod mutate;
mod scheduling;
mod selectors;
pub mod targets;

use std::{collections::HashSet, fs, panic, path::Path};

use anyhow::Context as _;
use croft_simkit::Random;

use self::coverage::Coverage;

/// The answer of a target to an input, without the parts that are the input's own.
pub type Signature = String;

/// A target: the signature, or what contradicts itself.
pub type Target = fn(&[u8]) -> Result<Signature, String>;

/// An input that a target didn't take well.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The input.
    pub input: Vec<u8>,
    /// The failure.
    pub what: String,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Inputs tried.
    pub tried: u64,
    /// Inputs whose signature was new.
    pub kept: Vec<Vec<u8>>,
    /// Branches that were taken, and how many there are; `None` where the program wasn't built to tell.
    pub branches: Option<(usize, usize)>,
    /// The first input that wasn't taken well.
    pub finding: Option<Finding>,
}

/// The inputs of a folder, sorted by name.
///
/// # Errors
/// When it can't be read.
pub fn read(folder: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("failed to read {}", folder.display()))? {
        files.push(entry?.path());
    }
    files.sort();
    files
        .into_iter()
        .map(|file| fs::read(&file).with_context(|| format!("failed to read {}", file.display())))
        .collect()
}

/// Tries `seeds` and then what is bred from them, while `go_on` says so, given how many have been tried.
pub fn run(target: Target, seeds: &[Vec<u8>], seed: u64, mut go_on: impl FnMut(u64) -> bool) -> Report {
    let mut report = Report::default();
    let mut signatures = HashSet::new();
    let mut pool: Vec<Vec<u8>> = Vec::new();
    let mut coverage = Coverage::find();
    let mut random = Random::new(seed);
    let mut given = seeds.iter();
    while go_on(report.tried) {
        let (input, bred) = match given.next() {
            Some(input) => (input.clone(), false),
            None => (mutate::breed(&pool, &mut random), true),
        };
        report.tried += 1;
        coverage.begin();
        match panic::catch_unwind(|| target(&input)) {
            Ok(Ok(signature)) => {
                let branched = coverage.is_new();
                if signatures.insert(signature) || branched {
                    pool.push(input.clone());
                    if bred {
                        report.kept.push(input);
                    }
                }
            }
            Ok(Err(what)) => {
                report.finding = Some(Finding { input, what });
                break;
            }
            Err(panicked) => {
                let text = panicked.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panicked.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                report.finding =
                    Some(Finding { input, what: format!("panicked: {}", text.unwrap_or_default()) });
                break;
            }
        }
    }
    report.branches = coverage.seen();
    report
}
