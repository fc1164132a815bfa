//! The comparison for people.

use super::model::{Comparison, Difference, Figures, Row, cents};
use crate::{
    commands::simulate::report::{Report, Verdict, signed},
    costs::{estimate_mark, signed_dollars},
    table::Table,
};
use croft_inspect::{amounts::dollars, inventory::Cost};
use croft_scheduler::Price;

/// Pods whose reasons are shown.
const PODS_SHOWN: usize = 20;

impl Comparison {
    /// The comparison for people.
    pub(in crate::commands::simulate) fn report(&self) -> Report<'_> {
        let (before, after) = (self.before.end.cost, self.after.end.cost);
        Report {
            changes: &self.changes,
            subject: None,
            tables: tables(self),
            lines: pending_lines(self),
            verdict: Verdict {
                difference: Some(self.difference.cost),
                is_estimate: before.estimated || after.estimated,
                sides: [before, after].map(amount_text),
                unit: " a month",
                share: String::new(),
            },
            notes: notes(self),
        }
    }
}

fn notes(comparison: &Comparison) -> Vec<String> {
    let mut notes = Vec::new();
    for (side, name) in [(&comparison.before, "before"), (&comparison.after, "after")] {
        if side.cut_short {
            notes.push(format!("the search of {name} ended before it found nothing more: raise --effort"));
        }
        if side.end.cost.unknown > 0 {
            notes.push(format!("nodes of unknown price, {name}: {}", side.end.cost.unknown));
        }
    }
    notes
}

fn tables(comparison: &Comparison) -> Vec<Table> {
    let mut tables = vec![totals(comparison)];
    tables.push(scopes("POOL", &comparison.pools));
    tables.push(scopes("TENANT", &comparison.tenants));
    tables.push(launched(comparison));
    tables.retain(|table| !table.is_empty());
    tables
}

fn totals(comparison: &Comparison) -> Table {
    let mut table = Table::new("A MONTH|BEFORE>|AFTER>|DIFFERENCE>");
    let (before, after) = (&comparison.before, &comparison.after);
    for (title, old, new) in [
        ("as recorded", before.recorded, after.recorded),
        ("with pending pods placed", before.placed, after.placed),
        ("after consolidation", before.end.cost, after.end.cost),
    ] {
        let difference = signed_dollars(cents(new) - cents(old));
        table.row(vec![title.to_owned(), amount_text(old), amount_text(new), difference]);
    }
    let (old, new, difference) = (&before.end, &after.end, &comparison.difference);
    for (title, old, new, difference) in [
        ("nodes", old.nodes, new.nodes, difference.nodes),
        ("nodes launched", old.launched, new.launched, difference.launched),
        ("nodes removed", old.removed, new.removed, difference.removed),
        ("pods moved", old.moved, new.moved, difference.moved),
        ("pods pending", old.pending, new.pending, difference.pending),
    ] {
        table.row(vec![title.to_owned(), old.to_string(), new.to_string(), signed(difference)]);
    }
    table
}

/// Pools or tenants with something on either side.
fn scopes(title: &'static str, rows: &[Row]) -> Table {
    let mut table =
        Table::new(&format!("{title}|NODES>|LAUNCHED>|REMOVED>|MOVED>|PENDING>|BEFORE>|AFTER>|DIFFERENCE>"));
    let nothing = Figures::default();
    for Row { name, before, after, difference } in rows {
        if *before == nothing && *after == nothing {
            continue;
        }
        let Difference { cost, .. } = difference;
        table.row(vec![
            name.clone(),
            change(before.nodes, after.nodes),
            change(before.launched, after.launched),
            change(before.removed, after.removed),
            change(before.moved, after.moved),
            change(before.pending, after.pending),
            amount_text(before.cost),
            amount_text(after.cost),
            signed_dollars(*cost),
        ]);
    }
    table
}

fn launched(comparison: &Comparison) -> Table {
    let mut table = Table::new("LAUNCHED|POOL|ZONE|CAPACITY|$/H EACH>|BEFORE>|AFTER>");
    for row in &comparison.launched {
        table.row(vec![
            row.instance_type.clone(),
            row.pool.clone(),
            row.zone.clone(),
            row.capacity_type.clone(),
            row.price.map_or_else(|| "unknown".to_owned(), |price| price.to_string()),
            row.before.to_string(),
            row.after.to_string(),
        ]);
    }
    table
}

/// Pods that are pending on one side alone, and how many others there are.
fn pending_lines(comparison: &Comparison) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for row in &comparison.pending {
        match (&row.before, &row.after) {
            (None, Some(why)) => lines.push(format!("pod {} becomes pending: {why}", row.pod)),
            (Some(_), None) => lines.push(format!("pod {} is pending no longer", row.pod)),
            _ => {}
        }
    }
    if let Some(others) = lines.len().checked_sub(PODS_SHOWN).filter(|others| *others > 0) {
        lines.truncate(PODS_SHOWN);
        lines.push(format!("and {others} more, which -o json names"));
    }
    lines
}

fn amount_text(cost: Cost) -> String {
    format!("{}{}", estimate_mark(cost.estimated), dollars(Price::from_micros(cents(cost))))
}

/// One number, or both if they differ.
fn change(before: usize, after: usize) -> String {
    if before == after { before.to_string() } else { format!("{before} -> {after}") }
}
