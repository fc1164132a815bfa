//! Groups as text, comma-separated values and JSON.

use std::{collections::BTreeMap, io::Write as _};

use croft_record::{ledger::amount::Amount, payer::Purpose};
use serde_json::{Map, Value, json};

use super::group::{Dimension, Sum};
use crate::{failure::Failure, output::Output, table::Table};

type Groups = BTreeMap<Vec<String>, Sum>;

/// Columns of purposes.
const PURPOSES: [Purpose; 6] = [
    Purpose::Used,
    Purpose::DaemonSets,
    Purpose::Headroom,
    Purpose::Idle,
    Purpose::Starting,
    Purpose::Draining,
];

/// Dollars, to the millionth.
pub(super) fn dollars(amount: Amount) -> String {
    let micros = amount.micros();
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

fn total(groups: &Groups) -> Sum {
    groups.values().fold(Sum::default(), |mut all, sum| {
        all.merge(sum);
        all
    })
}

fn cells(by: &[Dimension], sum: &Sum) -> Vec<String> {
    let mut cells = vec![dollars(sum.total)];
    if !by.contains(&Dimension::Purpose) {
        cells.extend(PURPOSES.map(|purpose| dollars(sum.of(purpose))));
    }
    cells.push(dollars(sum.committed));
    cells
}

/// A table with a line of totals.
pub(super) fn text(by: &[Dimension], groups: &Groups, out: &mut Output) -> Result<(), Failure> {
    if groups.is_empty() {
        writeln!(out, "nothing was paid in this time")?;
        return Ok(());
    }
    let mut titles: Vec<&str> = by.iter().map(|dimension| dimension.title()).collect();
    titles.push("COST $>");
    if !by.contains(&Dimension::Purpose) {
        titles.push("USED>|DAEMONSETS>|HEADROOM>|IDLE>|STARTING>|DRAINING>");
    }
    titles.push("COMMITTED $>");
    let mut table = Table::new(&titles.join("|"));
    let shown = |value: &String| if value.is_empty() { "-".to_owned() } else { value.clone() };
    for (values, sum) in groups {
        table.row(values.iter().map(shown).chain(cells(by, sum)).collect());
    }
    let label = (0..by.len()).map(|position| if position == 0 { "total".to_owned() } else { String::new() });
    table.row(label.chain(cells(by, &total(groups))).collect());
    table.write(out)?;
    Ok(())
}

/// A heading and a row for each group.
pub(super) fn csv(by: &[Dimension], groups: &Groups, out: &mut Output) -> Result<(), Failure> {
    let mut head: Vec<String> = by.iter().map(|d| d.title().to_lowercase()).collect();
    head.push("cost".to_owned());
    if !by.contains(&Dimension::Purpose) {
        head.extend(PURPOSES.map(|purpose| purpose.as_str().to_owned()));
    }
    head.push("committed".to_owned());
    out.csv_row(&head)?;
    for (values, sum) in groups {
        let row: Vec<String> = values.iter().cloned().chain(cells(by, sum)).collect();
        out.csv_row(&row)?;
    }
    Ok(())
}

/// A list of groups. `exact` has no rounding: millionths of a dollar per hour, times milliseconds.
pub(super) fn json(by: &[Dimension], groups: &Groups, out: &mut Output) -> Result<(), Failure> {
    let rows: Vec<Value> = groups
        .iter()
        .map(|(values, sum)| {
            let mut row: Map<String, Value> =
                by.iter().zip(values).map(|(d, value)| (d.title().to_lowercase(), json!(value))).collect();
            row.insert("cost".to_owned(), json!(dollars(sum.total)));
            row.insert("exact".to_owned(), json!(sum.total));
            row.insert("committed".to_owned(), json!(dollars(sum.committed)));
            if !by.contains(&Dimension::Purpose) {
                for purpose in PURPOSES {
                    row.insert(purpose.as_str().to_owned(), json!(dollars(sum.of(purpose))));
                }
            }
            Value::Object(row)
        })
        .collect();
    out.json(&rows)
}
