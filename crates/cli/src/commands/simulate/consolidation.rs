//! Consolidation commands, as text and as JSON.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
};

use croft_inspect::{amounts::per_month, simulation::Savings};
use croft_scheduler::{PodKey, Price, consolidation::Command};
use serde::Serialize;

use crate::{
    failure::Failure,
    output::Output,
    table::{BOLD, DIM, GOOD, Table, counted, shortened},
};

fn instances(one: &Command) -> String {
    let types: Vec<String> =
        one.instances.iter().map(|m| format!("{} in {}", m.instance_type, m.zone)).collect();
    if types.is_empty() { "nothing".to_owned() } else { shortened(&types, 3) }
}

/// A sum over `nodes`, of which those in `unpriced` are in no sum.
fn with_unknown(sum: Price, unpriced: &BTreeSet<String>, nodes: &[String]) -> String {
    match nodes.iter().filter(|node| unpriced.contains(*node)).count() {
        0 => sum.to_string(),
        all if all == nodes.len() => "unknown".to_owned(),
        some => format!("{sum} + {some} unknown"),
    }
}

/// Writes removed nodes with their replacements, savings, and why each other node is kept.
pub(super) fn text(savings: &Savings, out: &mut Output) -> Result<(), Failure> {
    let Savings { found, kept, in_time, unpriced } = savings;
    let mut table = Table::new("REMOVE|LAUNCH|PODS MOVED>|$/H BEFORE>|$/H AFTER>|SAVES>");
    for one in &found.commands {
        let onto_kept = one.onto.iter().map(|p| p.pods.len());
        let moved: usize = onto_kept.chain(one.instances.iter().map(|m| m.pods.len())).sum();
        table.row(vec![
            shortened(&one.nodes, 3),
            instances(one),
            moved.to_string(),
            with_unknown(one.before, unpriced, &one.nodes),
            one.after.to_string(),
            with_unknown(one.saves(), unpriced, &one.nodes),
        ]);
    }
    writeln!(out)?;
    if !table.is_empty() {
        table.write(out)?;
        writeln!(out)?;
    }
    let saved = found.before.saturating_sub(found.after);
    let removed: usize = found.commands.iter().map(|m| m.nodes.len()).sum();
    let count = counted(removed, "node");
    writeln!(out, "{BOLD}{count} would be removed by {}{BOLD:#}", counted(found.commands.len(), "command"))?;
    writeln!(
        out,
        "{GOOD}${saved}/h{GOOD:#} saved ({} a month): ${}/h instead of ${}/h",
        per_month(saved),
        found.after,
        found.before
    )?;
    if !unpriced.is_empty() {
        let count = counted(unpriced.len(), "node");
        writeln!(out, "without what {count} of unknown price saves: empty nodes go whatever they cost")?;
    }
    if let Some(in_time) = in_time {
        writeln!(
            out,
            "${in_time}/h ({} a month) in time: disruption budgets let only a few nodes be removed at once",
            per_month(*in_time)
        )?;
    }
    let kept: BTreeMap<&String, String> = kept
        .iter()
        .map(|(node, why)| (node, why.clone()))
        .chain(found.rejections.iter().map(|(node, rejection)| (node, rejection.to_string())))
        .collect();
    for (node, why) in kept {
        writeln!(out, "{DIM}{node} is kept: {why}{DIM:#}")?;
    }
    Ok(())
}

/// The same as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document {
    commands: Vec<CommandDocument>,
    kept: BTreeMap<String, KeptDocument>,
    cost_per_hour_before: Price,
    cost_per_hour_after: Price,
    #[serde(skip_serializing_if = "Option::is_none")]
    saves_per_hour_in_time: Option<Price>,
    /// Removed nodes whose price is in no sum.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    nodes_of_unknown_price: BTreeSet<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CommandDocument {
    nodes: Vec<String>,
    instances: Vec<InstanceDocument>,
    /// Pods that move to nodes which are kept, by node.
    onto: BTreeMap<String, Vec<String>>,
    cost_per_hour_before: Price,
    cost_per_hour_after: Price,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InstanceDocument {
    pool: String,
    instance_type: String,
    zone: String,
    capacity_type: &'static str,
    price: Option<Price>,
    pods: Vec<String>,
    instance_type_options: Vec<String>,
}

#[derive(Serialize)]
struct KeptDocument {
    reason: &'static str,
    detail: String,
}

impl Document {
    pub(super) fn new(savings: &Savings) -> Self {
        let names = |pods: &[PodKey]| pods.iter().map(ToString::to_string).collect::<Vec<_>>();
        let found = &savings.found;
        let commands = found.commands.iter().map(|one| CommandDocument {
            nodes: one.nodes.clone(),
            instances: one
                .instances
                .iter()
                .map(|m| InstanceDocument {
                    pool: m.pool.clone(),
                    instance_type: m.instance_type.clone(),
                    zone: m.zone.clone(),
                    capacity_type: m.capacity_type.as_str(),
                    price: m.price,
                    pods: names(&m.pods),
                    instance_type_options: m.options.clone(),
                })
                .collect(),
            onto: one.onto.iter().map(|p| (p.node.clone(), names(&p.pods))).collect(),
            cost_per_hour_before: one.before,
            cost_per_hour_after: one.after,
        });
        let kept = savings
            .kept
            .iter()
            .map(|(node, why)| (node.clone(), KeptDocument { reason: "NotACandidate", detail: why.clone() }));
        let rejected = found.rejections.iter().map(|(node, rejection)| {
            (node.clone(), KeptDocument { reason: rejection.reason(), detail: rejection.to_string() })
        });
        Self {
            commands: commands.collect(),
            kept: kept.chain(rejected).collect(),
            cost_per_hour_before: found.before,
            cost_per_hour_after: found.after,
            saves_per_hour_in_time: savings.in_time,
            nodes_of_unknown_price: savings.unpriced.clone(),
        }
    }
}
