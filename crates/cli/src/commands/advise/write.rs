//! Prices as tables, JSON, YAML and comma-separated values.

use std::io::Write as _;

use croft_inspect::{
    advice::{Advice, ConstraintPrice},
    amounts::{monthly, per_month},
};
use croft_manifest::to_yaml;
use croft_scheduler::Price;

use crate::{
    costs::cents,
    failure::Failure,
    output::Output,
    table::{BOLD, DIM, GOOD, NOTE, Table, counted},
};

const DASH: &str = "-";

fn tenants(price: &ConstraintPrice) -> String {
    if price.tenants.is_empty() { DASH.to_owned() } else { price.tenants.join(", ") }
}

/// Dollars of an average month; in words where that is none in whole cents.
fn month(price: Price) -> String {
    if is_below_a_cent(monthly(price)) { "less than a cent".to_owned() } else { per_month(price) }
}

/// The same in a column of dollars.
fn month_cell(price: Price) -> String {
    if is_below_a_cent(monthly(price)) {
        "<0.01".to_owned()
    } else {
        per_month(price).trim_start_matches('$').to_owned()
    }
}

/// True for an amount that is more than nothing and shown as nothing.
fn is_below_a_cent(amount: Price) -> bool {
    amount > Price::ZERO && cents(amount) == Price::ZERO
}

/// The prices, and below each what to change.
pub(super) fn text(advice: &Advice, out: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new("$/MONTH>|$/H>|TENANT|OBJECT|CONSTRAINT");
    for price in &advice.prices {
        table.row(vec![
            month_cell(price.saving),
            price.saving.to_string(),
            tenants(price),
            price.object.clone(),
            price.constraint.clone(),
        ]);
    }
    if !table.is_empty() {
        table.write(out)?;
        writeln!(out)?;
        for price in &advice.prices {
            writeln!(out, "{GOOD}${}/h{GOOD:#}  {}: {}", price.saving, price.object, price.change)?;
        }
        writeln!(out)?;
    }
    summary(advice, out)
}

/// One table with everything.
pub(super) fn wide(advice: &Advice, out: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new("$/MONTH>|$/H>|TENANT|NAMESPACE|KIND|OBJECT|CONSTRAINT|CHANGE");
    for price in &advice.prices {
        table.row(vec![
            month_cell(price.saving),
            price.saving.to_string(),
            tenants(price),
            price.namespace.clone().unwrap_or_else(|| DASH.to_owned()),
            price.kind.to_owned(),
            price.object.clone(),
            price.constraint.clone(),
            price.change.clone(),
        ]);
    }
    if !table.is_empty() {
        table.write(out)?;
        writeln!(out)?;
    }
    summary(advice, out)
}

fn summary(advice: &Advice, out: &mut Output) -> Result<(), Failure> {
    let Advice { prices, cost, together, constraints, not_tried } = advice;
    let of = counted(*constraints, "constraint");
    if prices.is_empty() && *together == Price::ZERO {
        writeln!(out, "{BOLD}No constraint costs anything:{BOLD:#} {of} looked at, ${cost}/h in pools")?;
    } else {
        let all = if *constraints == 1 { "it".to_owned() } else { format!("all {of} at once") };
        writeln!(
            out,
            "{BOLD}Without {all}: ${together}/h less{BOLD:#} ({} a month) of ${cost}/h in pools",
            month(*together)
        )?;
    }
    if prices.len() != 1 && *together > Price::ZERO {
        writeln!(out, "{DIM}Prices don't add up: several constraints may keep the same node.{DIM:#}")?;
    }
    if *not_tried > 0 {
        let left = counted(*not_tried, "constraint");
        writeln!(out, "{NOTE}{left} not tried{NOTE:#}: raise --most, or narrow by --tenant or -n")?;
    }
    Ok(())
}

/// The advice as YAML.
pub(super) fn yaml(advice: &Advice, out: &mut Output) -> Result<(), Failure> {
    let document = serde_json::to_value(advice).map_err(anyhow::Error::from)?;
    out.write_all(to_yaml(&[document])?.as_bytes())?;
    Ok(())
}

/// A heading and a row for each constraint. Several tenants are separated by blanks.
pub(super) fn csv(advice: &Advice, out: &mut Output) -> Result<(), Failure> {
    writeln!(out, "saves_per_hour,tenants,namespace,kind,object,constraint,change")?;
    for price in &advice.prices {
        out.csv_row(&[
            price.saving.to_string(),
            price.tenants.join(" "),
            price.namespace.clone().unwrap_or_default(),
            price.kind.to_owned(),
            price.object.clone(),
            price.constraint.clone(),
            price.change.clone(),
        ])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn month_below_a_cent_says_so() {
        for (micros, sentence, cell) in
            [(0, "$0.00", "0.00"), (5, "less than a cent", "<0.01"), (100, "$0.07", "0.07")]
        {
            let price = Price::from_micros(micros);
            assert_eq!((month(price).as_str(), month_cell(price).as_str()), (sentence, cell));
        }
    }
}
