//! Invalid and unusual inputs, against what reads them.
//!
//! ```text
//!  kept corpus, captured reviews ──▶ libFuzzer ──▶ mutate (bytes or JSON) ──▶ target
//!                                     ▲                                        │
//!                                     └──────── branches and comparisons ──────┤
//!                                                                              └─ panics or contradicts itself:
//!                                                                                 the input is the finding
//! ```
//!
//! `make fuzz` runs the program `fuzz`, which libFuzzer drives on the stable compiler, once for each target. Here are the
//! [`targets`] and the [mutator](mutate) for JSON documents. `tests/bounded.rs` tries each target with inputs of a fixed
//! number, the same in every run.

#![allow(
    clippy::indexing_slicing,
    reason = "what a JSON value doesn't have reads as null, and a target fails by panicking"
)]

pub mod mutate;
mod scheduling;
mod selectors;
pub mod targets;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// The answer of a target to an input, without the parts that are the input's own.
pub type Signature = String;

/// A target: the signature, or what contradicts itself.
pub type Target = fn(&[u8]) -> Result<Signature, String>;

/// The folders of a target's inputs: its kept corpus, and the captured reviews if it reads those.
#[must_use]
pub fn folders(target: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("corpus").join(target)];
    if targets::reads_reviews(target) {
        folders.push(root.join("../../tests/corpus/reviews"));
    }
    folders
}

/// The inputs of a target: its folders' files, sorted by name.
///
/// # Errors
/// If they can't be read.
pub fn inputs(target: &str) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut inputs = Vec::new();
    for folder in folders(target) {
        let mut files = Vec::new();
        for entry in fs::read_dir(&folder).with_context(|| format!("failed to read {}", folder.display()))? {
            files.push(entry?.path());
        }
        files.sort();
        for file in files {
            inputs.push(fs::read(&file).with_context(|| format!("failed to read {}", file.display()))?);
        }
    }
    Ok(inputs)
}
