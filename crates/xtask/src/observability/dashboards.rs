//! Grafana dashboards, from a table of rows and panels.

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    CHART_FILES, alerts,
    promql::{Known, with_matcher},
};
use crate::generated::File;

const DATA: &str = include_str!("../../data/dashboards.yaml");
const FOLDER: &str = "manifests/dashboards";
/// Columns of a dashboard.
const COLUMNS: usize = 24;
/// Panels of a row; further ones begin the next line.
const PANELS_PER_LINE: usize = 3;
const STATS_PER_LINE: usize = 6;
/// The data source, which the user chooses.
const SOURCE: &str = "${datasource}";
/// At each metric: the clusters that the user chooses. A Prometheus of one cluster has no such label, and all of `.*` match that.
const OF_CLUSTER: &str = r#"cluster=~"$cluster""#;
/// A metric that each cluster has.
const OF_EACH_CLUSTER: &str = "croft_controller_leader";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dashboard {
    file: String,
    uid: String,
    title: String,
    description: String,
    variables: Vec<Variable>,
    rows: Vec<Row>,
}

/// A label to choose by.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Variable {
    name: String,
    metric: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    title: String,
    panels: Vec<Panel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Panel {
    title: String,
    #[serde(default)]
    kind: Kind,
    description: String,
    #[serde(default = "short")]
    unit: String,
    targets: Vec<Target>,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Timeseries,
    Stat,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    expr: String,
    legend: String,
}

fn short() -> String {
    "short".to_owned()
}

/// The dashboards, as files and in the chart.
pub(super) fn files(known: &Known) -> anyhow::Result<Vec<File>> {
    let data: Vec<Dashboard> =
        serde_saphyr::from_str(DATA).context("failed to read crates/xtask/data/dashboards.yaml")?;
    let mut files = Vec::new();
    for dashboard in &data {
        check(known, dashboard)?;
        let contents = format!("{}\n", serde_json::to_string_pretty(&board(dashboard))?);
        for folder in [PathBuf::from(FOLDER), PathBuf::from(CHART_FILES).join("dashboards")] {
            files.push(File::new(folder, &format!("{}.json", dashboard.file), contents.clone()));
        }
    }
    Ok(files)
}

/// Fails if an expression, a legend or a variable uses a name that doesn't exist.
fn check(known: &Known, dashboard: &Dashboard) -> anyhow::Result<()> {
    let records = alerts::records()?;
    known.check(OF_EACH_CLUSTER)?;
    for variable in &dashboard.variables {
        known.check(&format!("sum by ({}) ({})", variable.name, variable.metric))?;
    }
    for panel in dashboard.rows.iter().flat_map(|row| &row.panels) {
        for Target { expr, legend } in &panel.targets {
            let context = || format!("the panel {:?} of {} is wrong", panel.title, dashboard.file);
            let grouped = if records.contains(expr) {
                BTreeSet::new()
            } else {
                known.check(expr).with_context(context)?
            };
            for label in legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()) {
                ensure!(grouped.contains(label), "{}: it isn't grouped by {label}", context());
            }
        }
    }
    Ok(())
}

fn board(dashboard: &Dashboard) -> Value {
    let mut panels = Vec::new();
    let mut top = 0;
    for row in &dashboard.rows {
        panels.push(json!({
            "id": panels.len() + 1, "type": "row", "title": row.title, "collapsed": false, "panels": [],
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": top},
        }));
        top += 1;
        let is_stats = row.panels.iter().all(|panel| panel.kind == Kind::Stat);
        let (per_line, height) = if is_stats { (STATS_PER_LINE, 4) } else { (PANELS_PER_LINE, 8) };
        let width = COLUMNS / per_line.min(row.panels.len().max(1));
        for (at, panel) in row.panels.iter().enumerate() {
            let place = json!({"h": height, "w": width, "x": at % per_line * width, "y": top + at / per_line * height});
            panels.push(shown(panel, panels.len() + 1, &place));
        }
        top += row.panels.len().div_ceil(per_line) * height;
    }
    json!({
        "uid": dashboard.uid, "title": dashboard.title, "description": dashboard.description, "tags": ["croft"],
        "schemaVersion": 39, "editable": false, "refresh": "1m", "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": variables(dashboard)},
        "panels": panels,
    })
}

fn variables(dashboard: &Dashboard) -> Vec<Value> {
    let source =
        json!({"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"});
    let variable = |name: &str, metric: &str| {
        let query = format!("label_values({metric}, {name})");
        json!({
            "name": name, "type": "query", "datasource": {"type": "prometheus", "uid": SOURCE},
            "definition": query, "query": {"query": query, "refId": name}, "refresh": 2, "sort": 1,
            "multi": true, "includeAll": true, "current": {"text": "All", "value": "$__all"},
        })
    };
    let mut cluster = variable("cluster", OF_EACH_CLUSTER);
    if let Some(cluster) = cluster.as_object_mut() {
        cluster.insert("label".to_owned(), json!("Cluster"));
        cluster.insert("allValue".to_owned(), json!(".*"));
    }
    let labels = dashboard
        .variables
        .iter()
        .map(|Variable { name, metric }| variable(name, &with_matcher(metric, OF_CLUSTER)));
    [source, cluster].into_iter().chain(labels).collect()
}

fn shown(panel: &Panel, id: usize, place: &Value) -> Value {
    let source = json!({"type": "prometheus", "uid": SOURCE});
    let target = |(target, id): (&Target, char)| json!({"refId": id.to_string(), "datasource": source, "expr": with_matcher(&target.expr, OF_CLUSTER), "legendFormat": target.legend});
    let targets: Vec<Value> = panel.targets.iter().zip('A'..='Z').map(target).collect();
    let (kind, options) = match panel.kind {
        Kind::Timeseries => (
            "timeseries",
            json!({"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}),
        ),
        Kind::Stat => {
            ("stat", json!({"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "value_and_name"}))
        }
    };
    json!({
        "id": id, "type": kind, "title": panel.title, "description": panel.description, "datasource": source,
        "gridPos": place, "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": options, "targets": targets,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_panel_uses_defined_metrics_and_none_overlaps() {
        let files = files(&Known::of_both_processes()).unwrap();
        assert_eq!(files.len(), 4);
        for file in files {
            let board: Value = serde_json::from_str(&file.contents).unwrap();
            let mut cells = BTreeSet::new();
            for panel in board["panels"].as_array().unwrap() {
                let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
                for (x, y) in (0..at("w")).flat_map(|x| (0..at("h")).map(move |y| (x, y))) {
                    assert!(cells.insert((at("x") + x, at("y") + y)), "{}: {panel}", file.path.display());
                    assert!(at("x") + x < 24);
                }
                let is_row = panel["type"] == json!("row");
                assert!(is_row || !panel["description"].as_str().unwrap().is_empty(), "{panel}");
                for target in panel["targets"].as_array().into_iter().flatten() {
                    let expr = target["expr"].as_str().unwrap();
                    let metrics = expr.matches("croft_").count() + expr.matches("croft:").count();
                    assert_eq!(expr.matches(r#"cluster=~"$cluster""#).count(), metrics, "{expr}");
                }
            }
        }
    }
}
