//! Amounts of dollars, and dollars per month from dollars per hour.

use croft_scheduler::Price;

/// Hours of an average month: 365.25 days / 12.
const HOURS_PER_MONTH_TENTHS: u64 = 7_305;

/// The cost of an average month at `price` per hour.
pub(crate) fn monthly(price: Price) -> Price {
    Price::from_micros(price.saturating_mul(HOURS_PER_MONTH_TENTHS).micros() / 10)
}

/// The same as text, such as `$70.08`.
pub(crate) fn per_month(price: Price) -> String {
    dollars(monthly(price))
}

/// Micro-dollars of a cent.
const CENT: i64 = 10_000;

/// An amount cut to whole cents, as it is shown, so that differences are those of the shown amounts.
pub(crate) const fn cents(amount: Price) -> Price {
    Price::from_micros(amount.micros() - amount.micros() % CENT)
}

/// A difference in micro-dollars as text, such as `-$70.08`.
pub(crate) fn signed_dollars(micros: i64) -> String {
    let amount = dollars(Price::from_micros(micros.saturating_abs()));
    match micros {
        0 => amount,
        micros if micros < 0 => format!("-{amount}"),
        _ => format!("+{amount}"),
    }
}

/// An amount in whole cents, such as `$70.08`.
pub(crate) fn dollars(amount: Price) -> String {
    format!("${}.{:02}", amount.micros() / 1_000_000, amount.micros() % 1_000_000 / 10_000)
}
