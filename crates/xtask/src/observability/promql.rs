//! The metrics and labels of a PromQL expression, compared with the definitions.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use anyhow::ensure;
use croft_controller::definitions as controller;
use croft_webhook::definitions as webhook;
use regex_lite::{Captures, Regex};

/// Labels that a scrape adds.
const OF_SCRAPE: [&str; 4] = ["job", "instance", "namespace", "pod"];

/// A name, with the matchers behind it.
static NAME: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"\b(croft[_:][A-Za-z0-9_:]*)(?:\s*\{((?:[^}"]|"(?:[^"\\]|\\.)*")*)\})?"#));
static MATCHER: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"([A-Za-z_][A-Za-z0-9_]*)\s*(?:=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*""#));
static GROUPING: LazyLock<Regex> =
    LazyLock::new(|| regex(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)"));

#[expect(clippy::expect_used, reason = "constant expressions, compiled in every test")]
fn regex(text: &str) -> Regex {
    Regex::new(text).expect("the expression is valid")
}

/// The metrics that exist, as they are queried, with their labels.
pub(super) struct Known(BTreeMap<String, BTreeSet<String>>);

impl Known {
    /// The metrics of webhook, controller and page.
    pub(super) fn of_both_processes() -> Self {
        let metrics = webhook::METRICS
            .iter()
            .chain(controller::metrics::METRICS)
            .chain(croft_page::definitions::METRICS);
        Self::of(metrics.map(|metric| (metric.full_name(), metric.kind.as_str(), metric.labels)))
    }

    /// The metrics with these names, types and labels.
    fn of<'l>(metrics: impl Iterator<Item = (String, &'l str, &'l [&'l str])>) -> Self {
        let mut known = BTreeMap::new();
        for (name, kind, labels) in metrics {
            let labels: BTreeSet<String> = labels.iter().map(|label| (*label).to_owned()).collect();
            if kind == "histogram" {
                let mut of_bucket = labels.clone();
                of_bucket.insert("le".to_owned());
                known.insert(format!("{name}_bucket"), of_bucket);
                known.insert(format!("{name}_count"), labels.clone());
                known.insert(format!("{name}_sum"), labels);
            } else {
                known.insert(name, labels);
            }
        }
        Self(known)
    }

    /// Adds the names that recording rules record, without labels.
    pub(super) fn insert_records(&mut self, records: &[String]) {
        self.0.extend(records.iter().map(|name| (name.clone(), BTreeSet::new())));
    }

    /// Fails if `expression` uses a metric or label of Croft's that doesn't exist. Returns the labels that it groups by.
    ///
    /// # Errors
    /// With the name that is wrong.
    pub(super) fn check(&self, expression: &str) -> anyhow::Result<BTreeSet<String>> {
        let mut all: BTreeSet<&str> = OF_SCRAPE.into();
        let mut found = false;
        for uses in NAME.captures_iter(expression) {
            let name = uses.get(1).map(|name| name.as_str()).unwrap_or_default();
            let Some(labels) = self.0.get(name) else {
                anyhow::bail!("no metric is called {name}, in {expression}");
            };
            found = true;
            all.extend(labels.iter().map(String::as_str));
            let matchers = uses.get(2).map(|matchers| matchers.as_str()).unwrap_or_default();
            for matcher in MATCHER.captures_iter(matchers) {
                let label = matcher.get(1).map(|label| label.as_str()).unwrap_or_default();
                let exists = labels.contains(label) || OF_SCRAPE.contains(&label);
                ensure!(exists, "{name} has no label {label}, in {expression}");
            }
        }
        ensure!(found, "no metric of Croft's is in {expression}");
        let mut grouped = BTreeSet::new();
        for grouping in GROUPING.captures_iter(expression) {
            let labels = grouping.get(1).map(|labels| labels.as_str()).unwrap_or_default();
            for label in labels.split(',').map(str::trim).filter(|label| !label.is_empty()) {
                ensure!(all.contains(label), "no metric has the label {label}, in {expression}");
                grouped.insert(label.to_owned());
            }
        }
        Ok(grouped)
    }
}

/// `expression` with one more matcher at each metric of Croft's.
pub(super) fn with_matcher(expression: &str, matcher: &str) -> String {
    let with = |uses: &Captures<'_>| {
        let part = |at| uses.get(at).map(|found| found.as_str()).unwrap_or_default();
        let comma = if part(2).is_empty() { "" } else { ", " };
        format!("{}{{{}{comma}{matcher}}}", part(1), part(2))
    };
    NAME.replace_all(expression, with).into_owned()
}

/// Checks what a page says of metrics: each block of PromQL with a metric of Croft's, and each name in backticks.
///
/// # Errors
/// With the name that is wrong.
pub(super) fn check_page(known: &Known, text: &str) -> anyhow::Result<()> {
    let mut prose = String::new();
    for (number, part) in text.split("```").enumerate() {
        if number % 2 == 0 {
            prose.push_str(part);
        } else if let Some(expressions) = part.strip_prefix("promql\n") {
            for expression in expressions.split("\n\n").filter(|e| NAME.is_match(e)) {
                known.check(expression)?;
            }
        }
    }
    let is_name = |word: &&str| {
        let mut parts = word.splitn(3, '_');
        // `croft_controller=debug` is a log filter.
        word.starts_with("croft:") || (parts.next() == Some("croft") && parts.nth(1).is_some())
    };
    let is_listed = |word: &str| ["croft_violations", "croft_invalid_objects"].contains(&word);
    for quoted in prose.split('`').skip(1).step_by(2) {
        if NAME
            .find(quoted)
            .is_some_and(|name| name.start() == 0 && (is_name(&name.as_str()) || is_listed(name.as_str())))
        {
            known.check(quoted)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        let counter = ("croft_some_total".to_owned(), "counter", ["rule"].as_slice());
        Known::of([counter, ("croft_times_seconds".to_owned(), "histogram", ["pool"].as_slice())].into_iter())
    }

    #[test]
    fn an_expression_of_defined_names_is_accepted_with_its_grouping() {
        let right = r#"sum by (rule) (rate(croft_some_total{rule=~"a}b|c", job="x"}[5m])) > on (rule) group_left () 0"#;
        assert_eq!(known().check(right).unwrap(), BTreeSet::from(["rule".to_owned()]));
        let right =
            r#"histogram_quantile(0.9, sum by (le, pool) (rate(croft_times_seconds_bucket{le="1.0"}[5m])))"#;
        assert_eq!(known().check(right).unwrap().len(), 2);
    }

    #[test]
    fn matcher_is_added_at_each_metric_beside_those_that_it_has() {
        let of_one = r#"a="b""#;
        assert_eq!(
            with_matcher(
                r#"sum by (rule) (rate(croft_some_total{rule="x}"}[5m])) / sum(croft:ratio)"#,
                of_one
            ),
            r#"sum by (rule) (rate(croft_some_total{rule="x}", a="b"}[5m])) / sum(croft:ratio{a="b"})"#
        );
    }

    #[test]
    fn a_name_or_label_that_is_not_defined_is_refused() {
        for (wrong, why) in [
            ("croft_some", "no metric is called croft_some"),
            ("croft_times_seconds", "no metric is called croft_times_seconds"),
            (r#"croft_some_total{pool="x"}"#, "croft_some_total has no label pool"),
            (r#"croft_times_seconds_count{le="1"}"#, "has no label le"),
            ("sum by (pool) (croft_some_total)", "no metric has the label pool"),
            ("croft:recorded", "no metric is called croft:recorded"),
            ("up == 0", "no metric of Croft's"),
        ] {
            let error = known().check(wrong).unwrap_err().to_string();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_page_is_checked_in_its_blocks_and_backticks() {
        let page = "`croft_some_total` and `croft_controller=debug`\n```promql\nrate(croft_some_total[5m])\n\nup\n```\n";
        check_page(&known(), page).unwrap();
        for wrong in ["`croft_no_such`", "```promql\ncroft_some_total\n\ncroft_no_such\n```"] {
            assert!(check_page(&known(), wrong).is_err(), "{wrong}");
        }
    }
}
