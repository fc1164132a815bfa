//! Columns of FOCUS 1.2, the FinOps open cost and usage specification: one row for each hour and account. All that it makes mandatory are
//! there. A quantity is in dollars of list price: what a pod uses of a node has no unit of its own.

use croft_record::ledger::{
    amount::Amount,
    book::{HOUR_MILLIS, Line},
};
use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
use serde_json::json;

use super::{group::in_utc, write::dollars};
use crate::{failure::Failure, output::Output};

const COLUMNS: [&str; 26] = [
    "BilledCost",
    "EffectiveCost",
    "ListCost",
    "ContractedCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodStart",
    "BillingPeriodEnd",
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "InvoiceIssuerName",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ServiceCategory",
    "ServiceName",
    "ProviderName",
    "PublisherName",
    "SubAccountId",
    "SubAccountName",
    "Tags",
];
const MOMENT: &str = "%Y-%m-%dT%H:%M:%SZ";

/// Writes heading and rows. `account` is the AWS account that is billed.
pub(super) fn write(lines: &[Line], account: &str, out: &mut Output) -> Result<(), Failure> {
    out.csv_row(&COLUMNS.map(str::to_owned))?;
    for line in lines {
        out.csv_row(&row(line, account))?;
    }
    Ok(())
}

fn row(line: &Line, payer: &str) -> Vec<String> {
    let Line { hour, hours, account, amount } = line;
    let (start, end) = month(*hour);
    let lasts = HOUR_MILLIS.saturating_mul(i64::from(*hours));
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
        "template": account.template,
        "purpose": account.purpose.as_str(),
    });
    vec![
        // A commitment is billed by itself.
        dollars(if account.is_committed() { Amount::ZERO } else { *amount }),
        cost.clone(),
        cost.clone(),
        cost.clone(),
        payer.to_owned(),
        payer.to_owned(),
        "USD".to_owned(),
        start,
        end,
        in_utc(*hour, MOMENT),
        in_utc(hour.saturating_add(lasts), MOMENT),
        "Usage".to_owned(),
        String::new(),
        format!("{} capacity of pool {}", account.purpose.as_str(), account.pool),
        "Usage-Based".to_owned(),
        "AWS".to_owned(),
        pricing.to_owned(),
        cost,
        "Dollars".to_owned(),
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
