//! The comparison of a replayed time: its shape as JSON, which is part of the command line's contract, and its tables.

use std::{collections::BTreeMap, io::Write as _};

use croft_scheduler::Price;
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    commands::plan::impact::Edited,
    failure::Failure,
    inventory::estimate_mark,
    monthly::{cents, dollars, signed_dollars},
    output::Output,
    simulation::{Replay, Totals, Usage},
    table::{Align, BAD, BOLD, GOOD, NOTE, Table, counted},
};

/// A recorded time under its own settings and under others.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::commands::simulate) struct Comparison {
    from: String,
    to: String,
    /// Snapshots that were read.
    snapshots: usize,
    /// The objects that change.
    changes: Vec<Edited>,
    /// The recorded nodes. Evictions aren't known from snapshots.
    recorded: Cluster,
    /// Simulated under the recorded settings.
    before: Figures,
    /// Simulated under the changed ones.
    after: Figures,
    /// Dollars of `after` less those of `before`.
    difference: f64,
    /// Dollars by pool.
    pools: Vec<Row>,
    #[serde(skip)]
    pub(in crate::commands::simulate) warnings: Vec<String>,
}

/// The nodes of all pools over the time.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cluster {
    /// Dollars of the time.
    cost: Price,
    /// True if a price is an estimate.
    estimated: bool,
    /// True if a node has no known price, which the cost lacks.
    unknown_prices: bool,
    node_hours: f64,
    launched: usize,
    removed: usize,
    #[serde(skip)]
    pools: BTreeMap<String, Usage>,
}

/// One simulated side.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Figures {
    #[serde(flatten)]
    cluster: Cluster,
    /// Pods that consolidation or the edit moved.
    evictions: usize,
    /// Pods without a place, times hours; those that admission refuses included.
    pending_pod_hours: f64,
    #[serde(skip)]
    has_pending: bool,
}

/// Dollars of a pool's nodes.
#[derive(Clone, Debug, Serialize)]
struct Row {
    name: String,
    recorded: Price,
    before: Price,
    after: Price,
}

impl From<&Totals> for Cluster {
    fn from(totals: &Totals) -> Self {
        let all = totals.all();
        Self {
            cost: cents(all.cost()),
            estimated: all.estimated,
            unknown_prices: all.unknown,
            node_hours: tenths(all.node_hours()),
            launched: totals.launched,
            removed: totals.removed,
            pools: totals.pools.clone(),
        }
    }
}

impl Figures {
    pub(super) fn of(side: &Replay) -> Self {
        Self {
            cluster: side.totals().into(),
            evictions: side.evicted(),
            pending_pod_hours: tenths(side.pending_hours()),
            has_pending: side.pending_hours() > 0.0,
        }
    }
}

impl Comparison {
    pub(super) fn new(
        (from, to, snapshots): (Timestamp, Timestamp, usize),
        changes: Vec<Edited>,
        recorded: Cluster,
        before: Figures,
        after: Figures,
        warnings: Vec<String>,
    ) -> Self {
        let sides = [&recorded.pools, &before.cluster.pools, &after.cluster.pools];
        let mut names: Vec<&String> = sides.iter().flat_map(|pools| pools.keys()).collect();
        names.sort();
        names.dedup();
        let row = |name: &String| {
            let cost = |pools: &BTreeMap<String, Usage>| {
                cents(pools.get(name).map_or(Price::ZERO, |usage| usage.cost()))
            };
            let [recorded, before, after] = sides.map(cost);
            Row { name: name.clone(), recorded, before, after }
        };
        let pools = names.into_iter().map(row).collect();
        Self {
            from: from.to_string(),
            to: to.to_string(),
            snapshots,
            changes,
            difference: difference(before.cluster.cost, after.cluster.cost) as f64 / 1e6,
            recorded,
            before,
            after,
            pools,
            warnings,
        }
    }

    /// True if a pod had no place for some time under the changed settings.
    pub(in crate::commands::simulate) const fn has_pending(&self) -> bool {
        self.after.has_pending
    }

    /// The result in one sentence.
    fn verdict(&self) -> String {
        let (before, after) = (&self.before.cluster, &self.after.cluster);
        let about = estimate_mark(before.estimated || after.estimated);
        let micros = difference(before.cost, after.cost);
        let amount = dollars(Price::from_micros(micros.saturating_abs()));
        let (old, new) = (amount_text(before), amount_text(after));
        let share = match before.cost.micros() {
            0 => String::new(),
            all => format!(" ({:.1} %)", 100.0 * micros.saturating_abs() as f64 / all as f64),
        };
        match micros {
            0 => format!("the same cost: {new}"),
            micros if micros < 0 => format!("{about}{amount} less{share}: {new} instead of {old}"),
            _ => format!("{about}{amount} more{share}: {new} instead of {old}"),
        }
    }

    fn tables(&self) -> [Table; 2] {
        let right = |title| (title, Align::Right);
        let heads = [right("RECORDED"), right("BEFORE"), right("AFTER"), right("DIFFERENCE")];
        let head = |title| [[(title, Align::Left)].as_slice(), &heads].concat();
        let (recorded, before, after) = (&self.recorded, &self.before, &self.after);
        let (old, new) = (&before.cluster, &after.cluster);
        let mut totals = Table::new(&head("THE TIME"));
        totals.row(vec![
            "cost".to_owned(),
            amount_text(recorded),
            amount_text(old),
            amount_text(new),
            signed_dollars(difference(old.cost, new.cost)),
        ]);
        let number = |value: f64| format!("{value:.1}");
        let change = |value: f64| if value == 0.0 { number(0.0) } else { format!("{value:+.1}") };
        totals.row(vec![
            "node hours".to_owned(),
            number(recorded.node_hours),
            number(old.node_hours),
            number(new.node_hours),
            change(new.node_hours - old.node_hours),
        ]);
        for (title, recorded, old, new) in [
            ("nodes launched", Some(recorded.launched), old.launched, new.launched),
            ("nodes removed", Some(recorded.removed), old.removed, new.removed),
            ("pods evicted", None, before.evictions, after.evictions),
        ] {
            let recorded = recorded.map_or_else(String::new, |count| count.to_string());
            let less = signed(old, new);
            totals.row(vec![title.to_owned(), recorded, old.to_string(), new.to_string(), less]);
        }
        let (old, new) = (before.pending_pod_hours, after.pending_pod_hours);
        totals.row(vec![
            "pending pods, hours".to_owned(),
            String::new(),
            number(old),
            number(new),
            change(new - old),
        ]);
        let mut pools = Table::new(&head("POOL"));
        for Row { name, recorded, before, after } in &self.pools {
            let [recorded, old, new] = [recorded, before, after].map(|cost| dollars(*cost));
            pools.row(vec![name.clone(), recorded, old, new, signed_dollars(difference(*before, *after))]);
        }
        [totals, pools]
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "before is simulated as well: compare after with it, and both with what was recorded to see how close the simulation is"
                .to_owned(),
        ];
        let sides = [&self.recorded, &self.before.cluster, &self.after.cluster];
        if sides.iter().any(|side| side.unknown_prices) {
            notes.push("the price of a node isn't known: the costs lack it".to_owned());
        }
        notes
    }
}

/// Writes the comparison for a terminal.
pub(in crate::commands::simulate) fn text(comparison: &Comparison, out: &mut Output) -> Result<(), Failure> {
    let Comparison { from, to, before, after, .. } = comparison;
    let snapshots = counted(comparison.snapshots, "snapshot");
    for object in &comparison.changes {
        writeln!(out, "{BOLD}{} {}{BOLD:#}: {}", object.kind, object.name, object.change)?;
    }
    writeln!(out, "{from} to {to}, {snapshots}\n")?;
    for table in comparison.tables() {
        table.write(out)?;
        writeln!(out)?;
    }
    let colour = match difference(before.cluster.cost, after.cluster.cost) {
        0 => BOLD,
        less if less < 0 => GOOD,
        _ => BAD,
    };
    writeln!(out, "{colour}{}{colour:#}", comparison.verdict())?;
    for note in comparison.notes() {
        writeln!(out, "{NOTE}{note}{NOTE:#}")?;
    }
    Ok(())
}

/// Writes the comparison for a pull request.
pub(in crate::commands::simulate) fn markdown(
    comparison: &Comparison,
    out: &mut Output,
) -> Result<(), Failure> {
    let Comparison { from, to, .. } = comparison;
    let snapshots = counted(comparison.snapshots, "snapshot");
    writeln!(out, "### {}\n", comparison.verdict())?;
    writeln!(out, "{from} to {to}, {snapshots}.\n")?;
    for object in &comparison.changes {
        writeln!(out, "- {} `{}`: {}", object.kind, object.name, object.change)?;
    }
    for table in comparison.tables() {
        writeln!(out)?;
        table.write_markdown(out)?;
    }
    for note in comparison.notes() {
        writeln!(out, "\n{note}.")?;
    }
    Ok(())
}

fn amount_text(cluster: &Cluster) -> String {
    format!("{}{}", estimate_mark(cluster.estimated), dollars(cluster.cost))
}

/// Micro-dollars.
const fn difference(before: Price, after: Price) -> i64 {
    after.micros().saturating_sub(before.micros())
}

fn signed(before: usize, after: usize) -> String {
    if after > before {
        format!("+{}", after - before)
    } else {
        format!("-{}", before - after).replace("-0", "0")
    }
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
