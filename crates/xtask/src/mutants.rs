//! Summary of `make mutants`: how many changes of the code the tests noticed, and which they didn't.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde::Deserialize;

/// The list of survivors with a reason, relative to the root.
const ACCEPTED: &str = "crates/xtask/data/mutants.yaml";
/// The share of mutants that the tests must notice, in per cent.
const LEAST_PERCENT: usize = 90;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    accepted: Vec<Accepted>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Accepted {
    mutant: String,
    #[expect(dead_code, reason = "read by people")]
    reason: String,
}

/// Mutants by what became of them. A mutant that doesn't compile counts nowhere.
#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    caught: usize,
    /// Survivors with a reason.
    accepted: usize,
    /// Survivors without one.
    missed: Vec<String>,
}

impl Summary {
    fn percent(&self) -> usize {
        let all = self.caught + self.missed.len();
        (self.caught * 100).checked_div(all).unwrap_or(100)
    }
}

/// Prints the summary of these output folders of cargo-mutants.
///
/// # Errors
/// A folder without results, or fewer caught than the least share.
pub(crate) fn check(root: &Path, folders: &[PathBuf]) -> anyhow::Result<()> {
    let text =
        fs::read_to_string(root.join(ACCEPTED)).with_context(|| format!("failed to read {ACCEPTED}"))?;
    let list: List = serde_saphyr::from_str(&text).with_context(|| format!("failed to read {ACCEPTED}"))?;
    let accepted: BTreeSet<String> = list.accepted.into_iter().map(|one| one.mutant).collect();
    let mut summary = Summary::default();
    for folder in folders {
        add(&mut summary, folder, &accepted)?;
    }
    for mutant in &summary.missed {
        println!("mutants: no test notices {mutant}");
    }
    let percent = summary.percent();
    let Summary { caught, accepted, missed } = summary;
    println!("mutants: caught={caught} missed={} accepted={accepted} percent={percent}", missed.len());
    if percent < LEAST_PERCENT {
        bail!(
            "{percent} % of the mutants are noticed, fewer than {LEAST_PERCENT}: write tests, or reasons into {ACCEPTED}"
        );
    }
    Ok(())
}

fn add(summary: &mut Summary, folder: &Path, accepted: &BTreeSet<String>) -> anyhow::Result<()> {
    let read = |name: &str| {
        let file = folder.join(name);
        fs::read_to_string(&file)
            .with_context(|| format!("failed to read {}: run make mutants", file.display()))
    };
    // A mutant that runs for ever is noticed, too.
    summary.caught += read("caught.txt")?.lines().count() + read("timeout.txt")?.lines().count();
    for line in read("missed.txt")?.lines() {
        let mutant = without_position(line);
        if accepted.contains(&mutant) {
            summary.accepted += 1;
        } else {
            summary.missed.push(line.to_owned());
        }
    }
    Ok(())
}

/// `file.rs:12:5: replace ..` without line and column, which move with every edit above.
fn without_position(line: &str) -> String {
    let Some((position, change)) = line.split_once(": ") else { return line.to_owned() };
    let file = position.split(':').next().unwrap_or_default();
    format!("{file}: {change}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(caught: &str, missed: &str, timeout: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("caught.txt", caught), ("missed.txt", missed), ("timeout.txt", timeout)] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn survivors_with_a_reason_count_apart_wherever_their_line_is() {
        let folder = folder(
            "a.rs:1:1: x\nb.rs:2:2: y\n",
            "a.rs:30:9: replace f -> bool with true\na.rs:3:1: z\n",
            "c.rs:1:1: w\n",
        );
        let accepted = BTreeSet::from(["a.rs: replace f -> bool with true".to_owned()]);
        let mut summary = Summary::default();
        add(&mut summary, folder.path(), &accepted).unwrap();
        assert_eq!(summary, Summary { caught: 3, accepted: 1, missed: vec!["a.rs:3:1: z".to_owned()] });
        assert_eq!(summary.percent(), 75);
    }

    #[test]
    fn a_share_below_nine_tenths_fails_and_a_folder_without_results_is_named() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let caught = "a.rs:1:1: x\n".repeat(9);
        let enough = folder(&caught, "a.rs:3:1: z\n", "");
        check(&root, &[enough.path().to_owned()]).unwrap();
        let short = folder(&caught, "a.rs:3:1: z\na.rs:4:1: z\n", "");
        let error = check(&root, &[short.path().to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("81 % of the mutants are noticed, fewer than 90"), "{error}");
        let error = check(&root, &[PathBuf::from("/nowhere")]).unwrap_err().to_string();
        assert_eq!(error, "failed to read /nowhere/caught.txt: run make mutants");
    }
}
