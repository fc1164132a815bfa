//! The benchmarks, and how long each may take.

use std::path::Path;

use anyhow::bail;

use crate::bench::figures::Format;

/// A program with figures.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) name: &'static str,
    /// Arguments of cargo for each further build that the program needs.
    needs: &'static [&'static str],
    /// Arguments of cargo that build the program; to run it, `program` follows.
    target: &'static str,
    /// Arguments of the program. `CATALOG` stands for the path of the built-in catalog.
    program: &'static str,
    pub(crate) format: Format,
    /// A run ends after this time, in seconds, and fails.
    pub(crate) limit_s: u64,
    /// It starts the control plane.
    pub(crate) has_plane: bool,
}

/// In the order in which they run. The limits together are half an hour.
pub(crate) const SUITE: [Bench; 10] = [
    Bench { format: Format::Table, ..bench("policy-inner", 20, "bench -p croft-policy --bench inner", "") },
    Bench {
        format: Format::Table,
        ..bench("scheduler-inner", 40, "bench -p croft-scheduler --bench inner", "")
    },
    bench("scheduler", 120, "bench -p croft-scheduler --bench scheduler", "--catalog CATALOG"),
    bench("disruption", 100, "bench -p croft-scheduler --bench disruption", "--catalog CATALOG"),
    // A day; `make bench-disruption` plays the month.
    bench("day", 230, "bench -p croft-controller --no-default-features --bench month", "--days 1"),
    bench("scale", 95, "bench -p croft-controller --no-default-features --bench scale", ""),
    Bench { has_plane: true, ..bench("webhook", 205, "bench --bench webhook", "") },
    // Without the part `steady`, which fills 2,000 nodes first.
    Bench {
        needs: &[PROGRAMS],
        has_plane: true,
        ..bench("lab", 580, "bench -p croft-tests --bench lab", "ready bind neighbour")
    },
    Bench {
        needs: &[PROGRAMS],
        has_plane: true,
        ..bench("consolidation-curve", 330, "run --release --bin consolidation-curve", "")
    },
    Bench {
        needs: &["build --release --bin croft-page"],
        has_plane: true,
        ..bench("page", 80, "run --release --bin bench-page", "")
    },
];

/// Builds what the lab starts.
const PROGRAMS: &str = "build --release --bin croft-webhook --bin croft-controller --bin ec2-sim";

/// A program that needs no other and prints a line.
const fn bench(name: &'static str, limit_s: u64, target: &'static str, program: &'static str) -> Bench {
    Bench { name, needs: &[], target, program, format: Format::Line, limit_s, has_plane: false }
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split_whitespace().map(str::to_owned)
}

impl Bench {
    /// Arguments of cargo for every build, the program's last.
    pub(crate) fn builds(&self) -> Vec<Vec<String>> {
        let needs = self.needs.iter().map(|arguments| words(arguments).collect());
        let program = match self.target.strip_prefix("run ") {
            Some(target) => words("build").chain(words(target)).collect(),
            None => words(self.target).chain(words("--no-run")).collect(),
        };
        needs.chain([program]).collect()
    }

    /// Arguments of cargo that run the program.
    pub(crate) fn runs(&self, catalog: &Path) -> Vec<String> {
        let catalog = catalog.display().to_string();
        let program = words(self.program).map(|word| if word == "CATALOG" { catalog.clone() } else { word });
        words(self.target).chain(words("--quiet --")).chain(program).collect()
    }
}

/// The benchmarks of these names, in the suite's order; all if there is no name.
///
/// # Errors
/// A name that no benchmark has.
pub(crate) fn select(names: &[String]) -> anyhow::Result<Vec<&'static Bench>> {
    if let Some(unknown) = names.iter().find(|name| SUITE.iter().all(|bench| bench.name != **name)) {
        let known: Vec<&str> = SUITE.iter().map(|bench| bench.name).collect();
        bail!("no benchmark has the name {unknown}: write some of {}", known.join(", "));
    }
    Ok(SUITE.iter().filter(|bench| names.is_empty() || names.iter().any(|name| name == bench.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_suite_are_half_an_hour_at_most() {
        assert!(SUITE.iter().map(|bench| bench.limit_s).sum::<u64>() <= 1_800);
    }

    #[test]
    fn every_bench_target_of_the_workspace_is_in_the_suite() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut missing = Vec::new();
        for folder in ["controller", "webhook", "tests", "crates"].map(|name| root.join(name)) {
            for manifest in manifests(&folder) {
                let text = std::fs::read_to_string(&manifest).unwrap();
                let package =
                    text.lines().find_map(|line| line.strip_prefix("name = ")).unwrap().trim_matches('"');
                for part in text.split("[[bench]]").skip(1) {
                    let name =
                        part.lines().find_map(|line| line.strip_prefix("name = ")).unwrap().trim_matches('"');
                    let is_it = |bench: &Bench| {
                        let words: Vec<&str> = bench.target.split_whitespace().collect();
                        let of = words.iter().position(|word| *word == "-p").and_then(|at| words.get(at + 1));
                        of.is_none_or(|of| *of == package)
                            && words.windows(2).any(|two| two == ["--bench", name])
                    };
                    if !SUITE.iter().any(is_it) {
                        missing.push(format!("{package} {name}"));
                    }
                }
            }
        }
        assert_eq!(missing, Vec::<String>::new());
    }

    fn manifests(folder: &Path) -> Vec<std::path::PathBuf> {
        let own = folder.join("Cargo.toml");
        if own.exists() {
            return vec![own];
        }
        let folders =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().join("Cargo.toml"));
        folders.filter(|manifest| manifest.exists()).collect()
    }

    #[test]
    fn a_name_selects_in_the_order_of_the_suite_and_an_unknown_one_is_refused() {
        let names = ["day".to_owned(), "scheduler".to_owned()];
        let selected: Vec<&str> = select(&names).unwrap().iter().map(|bench| bench.name).collect();
        assert_eq!(selected, ["scheduler", "day"]);
        assert_eq!(select(&[]).unwrap().len(), SUITE.len());
        let error = select(&["month".to_owned()]).unwrap_err().to_string();
        assert!(
            error.starts_with("no benchmark has the name month: write some of policy-inner, "),
            "{error}"
        );
    }

    #[test]
    fn a_bench_is_built_without_running_and_run_with_the_catalog() {
        let [scheduler, curve] = ["scheduler", "consolidation-curve"]
            .map(|name| *select(&[name.to_owned()]).unwrap().first().unwrap());
        assert_eq!(
            scheduler.builds(),
            [["bench", "-p", "croft-scheduler", "--bench", "scheduler", "--no-run"]]
        );
        let runs = scheduler.runs(Path::new("/t/catalog.json")).join(" ");
        assert_eq!(runs, "bench -p croft-scheduler --bench scheduler --quiet -- --catalog /t/catalog.json");
        let builds: Vec<String> = curve.builds().iter().map(|build| build.join(" ")).collect();
        assert_eq!(
            builds,
            [
                "build --release --bin croft-webhook --bin croft-controller --bin ec2-sim",
                "build --release --bin consolidation-curve",
            ]
        );
    }
}
