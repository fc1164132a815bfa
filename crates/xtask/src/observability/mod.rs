//! What operators watch: alerts, dashboards and log keys, generated from short tables, and checked against the definitions of
//! metrics and the sources.
//!
//! ```text
//!  data/alerts.yaml ──────▶ manifests/alerts/croft.yaml, and the same in the chart
//!  data/dashboards.yaml ──▶ manifests/dashboards, and the same in the chart
//!  data/log-keys.yaml ────▶ docs/reference/log-keys.md        ◀── checked against the fields of tracing's macros
//!         ▲ names and labels checked against the definitions of both processes
//! ```

mod alerts;
mod dashboards;
mod log_keys;
mod promql;

use std::{fs, path::Path};

use anyhow::{Context as _, ensure};

use self::promql::Known;
use crate::generated::File;

/// The folder of the chart whose files its templates include.
const CHART_FILES: &str = "manifests/chart/croft/files";
const RUNBOOKS: &str = "docs/runbooks.md";
const RULE_TESTS: &str = "manifests/alerts/tests.yaml";
/// Pages whose PromQL and names of metrics must exist.
const PAGES: [&str; 3] = [RUNBOOKS, "docs/slo.md", "certs/README.md"];

/// The generated files.
///
/// # Errors
/// If a table uses a metric or a label that isn't defined, or a field of a log line has no documentation.
pub(crate) fn files(root: &Path) -> anyhow::Result<Vec<File>> {
    let known = Known::of_both_processes();
    let mut files = alerts::files(&known)?;
    files.extend(dashboards::files(&known)?);
    files.push(log_keys::file(root)?);
    Ok(files)
}

/// Fails if an alert has no section in the runbooks or no test, or a page names a metric that isn't defined.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let read =
        |name: &str| fs::read_to_string(root.join(name)).with_context(|| format!("failed to read {name}"));
    let names = alerts::names()?;
    alerts::check_sections(&names, &read(RUNBOOKS)?)?;
    let tests = read(RULE_TESTS)?;
    let untested: Vec<&String> =
        names.iter().filter(|name| !tests.contains(&format!("- name: {name}\n"))).collect();
    ensure!(untested.is_empty(), "{RULE_TESTS} has no test of {untested:?}");
    let mut known = Known::of_both_processes();
    known.insert_records(&alerts::records()?);
    for page in PAGES {
        promql::check_page(&known, &read(page)?).with_context(|| format!("{page} is wrong"))?;
    }
    println!("{} alerts have a runbook and a test", names.len());
    Ok(())
}
