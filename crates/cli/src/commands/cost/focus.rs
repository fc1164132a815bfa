//! Columns of FOCUS 1.2, the FinOps open cost and usage specification: one row for each hour and account.

use croft_record::ledger::{
    amount::Amount,
    book::{HOUR_MILLIS, Line},
};
use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
use serde_json::json;

use super::{group::in_utc, write::dollars};
use crate::{failure::Failure, output::Output};

const COLUMNS: [&str; 20] = [
    "BilledCost",
    "EffectiveCost",
    "ListCost",
    "ContractedCost",
    "BillingCurrency",
    "BillingPeriodStart",
    "BillingPeriodEnd",
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "ChargeCategory",
    "ChargeDescription",
    "ChargeFrequency",
    "PricingCategory",
    "ServiceCategory",
    "ServiceName",
    "ProviderName",
    "PublisherName",
    "SubAccountId",
    "SubAccountName",
    "Tags",
];
const MOMENT: &str = "%Y-%m-%dT%H:%M:%SZ";

/// Writes heading and rows.
pub(super) fn write(lines: &[Line], out: &mut Output) -> Result<(), Failure> {
    out.csv_row(&COLUMNS.map(str::to_owned))?;
    for line in lines {
        out.csv_row(&row(line))?;
    }
    Ok(())
}

fn row(line: &Line) -> Vec<String> {
    let Line { hour, account, amount } = line;
    let (start, end) = month(*hour);
    // Capacity that a commitment covers is billed with the commitment.
    let committed = account.capacity_type == "reserved";
    let pricing = match account.capacity_type.as_str() {
        "spot" => "Dynamic",
        "reserved" => "Committed",
        _ => "Standard",
    };
    let cost = dollars(*amount);
    let tags = json!({
        "namespace": account.payer.namespace,
        "workload": account.payer.workload,
        "pool": account.pool,
        "purpose": account.purpose.as_str(),
    });
    vec![
        dollars(if committed { Amount::ZERO } else { *amount }),
        cost.clone(),
        cost.clone(),
        cost,
        "USD".to_owned(),
        start,
        end,
        in_utc(*hour, MOMENT),
        in_utc(hour.saturating_add(HOUR_MILLIS), MOMENT),
        "Usage".to_owned(),
        format!("{} capacity of pool {}", account.purpose.as_str(), account.pool),
        "Usage-Based".to_owned(),
        pricing.to_owned(),
        "Compute".to_owned(),
        "Amazon Elastic Compute Cloud".to_owned(),
        "AWS".to_owned(),
        "AWS".to_owned(),
        account.payer.tenant.clone(),
        account.payer.tenant.clone(),
        tags.to_string(),
    ]
}

/// Beginning and end of the month of a time.
fn month(millis: i64) -> (String, String) {
    let at = Timestamp::from_millisecond(millis).unwrap_or_default().to_zoned(TimeZone::UTC);
    let first = at.date().first_of_month();
    let next = first.saturating_add(1.month());
    (format!("{first}T00:00:00Z"), format!("{next}T00:00:00Z"))
}
