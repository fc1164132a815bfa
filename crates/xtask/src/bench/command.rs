//! `croft-xtask bench`.

use std::{
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Args;
use croft_runtime::clock::{Clock as _, SystemClock};

use crate::bench::{
    comparison::{Row, compare},
    figures::{Figures, defects, medians, read},
    history::{self, Entry},
    runner,
    suite::{self, Bench},
    tree::{Tree, git},
};

/// Runs of each benchmark beside a base, unless the caller says another number.
const RUNS_WITH_BASE: usize = 3;
/// Outputs, and the catalog that the programs read, relative to the root.
const FOLDER: &str = "target/bench";

/// The benchmarks to run, and the figures to compare theirs with.
#[derive(Args)]
pub(crate) struct BenchArgs {
    /// Names of benchmarks; all without one.
    names: Vec<String>,
    /// Commit whose build runs in turns with this one. A median that is more than 10 % worse than its fails.
    #[arg(long)]
    base: Option<String>,
    /// Runs of each benchmark: 3 with a base, else 1.
    #[arg(long)]
    runs: Option<NonZeroUsize>,
    /// File of figures, to which a line is added for each benchmark.
    #[arg(long, default_value = "target/bench/history.jsonl")]
    history: PathBuf,
}

/// Runs the benchmarks, shows how their figures changed and adds them to the history.
///
/// # Errors
/// A benchmark that fails, reports a violation or an error, or is worse than the base.
pub(crate) fn run(root: &Path, args: &BenchArgs) -> anyhow::Result<()> {
    let BenchArgs { names, base, runs, history } = args;
    let benches = suite::select(names)?;
    let root = root.canonicalize().context("failed to find the checkout")?;
    let catalog = write_catalog(&root)?;
    let head = Tree::head(&root);
    let base = base.as_ref().map(|commit| Tree::base(&root, commit)).transpose()?;
    let default = if base.is_some() { RUNS_WITH_BASE } else { 1 };
    let session = Session {
        folder: root.join(FOLDER),
        catalog,
        runs: runs.map_or(default, NonZeroUsize::get),
        commit: commit(&root)?,
        computer: computer(),
        history: root.join(history),
        head,
        base,
    };
    session.build(&benches)?;
    let mut failures = Vec::new();
    for bench in &benches {
        failures.extend(session.measure(bench)?);
    }
    println!(
        "bench: {} benchmarks, {} failures; figures: {}",
        benches.len(),
        failures.len(),
        session.history.display()
    );
    if failures.is_empty() { Ok(()) } else { bail!("{}", failures.join("\n")) }
}

struct Session {
    folder: PathBuf,
    catalog: PathBuf,
    runs: usize,
    commit: String,
    computer: String,
    history: PathBuf,
    head: Tree,
    base: Option<Tree>,
}

impl Session {
    /// The trees in the order of a run, so that neither always comes first.
    fn turn(&self, number: usize) -> Vec<&Tree> {
        let mut trees: Vec<&Tree> = [&self.head].into_iter().chain(&self.base).collect();
        if number % 2 == 1 {
            trees.reverse();
        }
        trees
    }

    /// Builds everything before anything is measured.
    fn build(&self, benches: &[&Bench]) -> anyhow::Result<()> {
        for tree in self.turn(0) {
            for bench in benches {
                println!("bench: build {} of the {}", bench.name, tree.name);
                tree.build(bench)?;
            }
        }
        Ok(())
    }

    /// Runs a benchmark, shows and keeps its figures. Returns why it fails.
    fn measure(&self, bench: &Bench) -> anyhow::Result<Vec<String>> {
        let (mut heads, mut bases, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..self.runs {
            for tree in self.turn(number) {
                println!("bench: {}, run {} of {}, {}", bench.name, number + 1, self.runs, tree.name);
                match self.run_once(bench, tree, number) {
                    Ok(figures) if tree.name == self.head.name => heads.push(figures),
                    Ok(figures) => bases.push(figures),
                    Err(error) => failures.push(format!("{} of the {}: {error:#}", bench.name, tree.name)),
                }
            }
        }
        if heads.is_empty() {
            return Ok(failures);
        }
        let found = heads.iter().flat_map(defects);
        failures.extend(found.map(|defect| format!("{} reports {defect}", bench.name)));
        let now = medians(&heads);
        if self.base.is_some() {
            failures.extend(regressions(bench.name, &show(bench.name, "base", &medians(&bases), &now)));
        } else {
            match history::last(&self.history, bench.name)? {
                Some(last) => drop(show(bench.name, &origin(&last, &self.computer), &last.figures, &now)),
                None => drop(show(bench.name, "nothing", &Figures::new(), &now)),
            }
        }
        let entry = Entry {
            bench: bench.name.to_owned(),
            commit: self.commit.clone(),
            date: SystemClock.wall().to_string(),
            computer: self.computer.clone(),
            runs: heads.len(),
            figures: now,
        };
        history::append(&self.history, &entry)?;
        Ok(failures)
    }

    fn run_once(&self, bench: &Bench, tree: &Tree, number: usize) -> anyhow::Result<Figures> {
        // Again, and at once: benchmarks build Croft's programs with other features, in the place where this one starts them.
        tree.build(bench)?;
        let file = self.folder.join(format!("{}-{}-{}.txt", bench.name, tree.name, number + 1));
        let limit = Duration::from_secs(bench.limit_s);
        let output = runner::run(&mut tree.cargo(&bench.runs(&self.catalog)), &file, limit)?;
        read(bench.format, &output).with_context(|| format!("{} can't be read", file.display()))
    }
}

/// Prints how figures changed.
fn show(bench: &str, before_is: &str, before: &Figures, now: &Figures) -> Vec<Row> {
    let rows = compare(before, now);
    println!("{bench}, now beside {before_is}:");
    rows.iter().for_each(|row| println!("{row}"));
    rows
}

fn regressions(bench: &str, rows: &[Row]) -> Vec<String> {
    let worse = rows.iter().filter(|row| row.is_regression);
    worse.map(|row| format!("{bench} is more than 10 % worse than the base:{row}")).collect()
}

/// Where the last line of the history comes from.
fn origin(last: &Entry, computer: &str) -> String {
    let elsewhere = if last.computer == computer { "" } else { ", another computer" };
    format!("{} of {}{elsewhere}", last.commit, last.date)
}

/// The built-in catalog, which both trees plan with, in a file.
fn write_catalog(root: &Path) -> anyhow::Result<PathBuf> {
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
    let file = folder.join("catalog.json");
    let catalog = croft_scheduler::Catalog { instance_types: croft_cloud::builtin_catalog().to_vec() };
    fs::write(&file, serde_json::to_vec(&catalog)?)
        .with_context(|| format!("failed to write {}", file.display()))?;
    Ok(file)
}

fn commit(root: &Path) -> anyhow::Result<String> {
    let commit = git(root, &["rev-parse", "--short=12", "HEAD"])?;
    let is_changed = git(root, &["diff", "--quiet", "HEAD"]).is_err();
    Ok(if is_changed { format!("{commit}-changed") } else { commit })
}

/// Number and model of the processors.
fn computer() -> String {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        text.lines().find_map(|line| line.strip_prefix("model name")).and_then(|rest| rest.split_once(':'));
    format!("{processors} x {}", model.map_or("unknown", |(_, model)| model.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worse_figures_than_the_base_are_failures_by_name() {
        let figures =
            |d: f64, errors: f64| Figures::from([("d_ms".to_owned(), d), ("errors".to_owned(), errors)]);
        let rows = compare(&figures(10.0, 0.0), &figures(20.0, 0.0));
        let failures = regressions("scheduler", &rows);
        assert_eq!(failures.len(), 1);
        assert!(
            failures
                .iter()
                .all(|failure| failure.contains("scheduler is more than 10 % worse")
                    && failure.contains("d_ms"))
        );
        assert_eq!(
            regressions("scheduler", &compare(&figures(10.0, 0.0), &figures(10.5, 0.0))),
            Vec::<String>::new()
        );
    }

    #[test]
    fn figures_of_another_computer_are_named_so() {
        let last = Entry {
            bench: "scheduler".to_owned(),
            commit: "0123456789ab".to_owned(),
            date: "2026-11-26T00:00:00Z".to_owned(),
            computer: "2 x Model".to_owned(),
            runs: 1,
            figures: Figures::new(),
        };
        assert_eq!(origin(&last, "2 x Model"), "0123456789ab of 2026-11-26T00:00:00Z");
        assert_eq!(origin(&last, "4 x Model"), "0123456789ab of 2026-11-26T00:00:00Z, another computer");
    }
}
