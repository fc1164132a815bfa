//! Costs and their differences as text.

use croft_inspect::{amounts::dollars, inventory::Cost};
use croft_scheduler::Price;

use crate::table::counted;

/// The prefix of an estimated price.
pub(crate) fn estimate_mark(estimated: bool) -> &'static str {
    if estimated { "~" } else { "" }
}

/// A cost in a sentence, which marks estimates and counts unknown prices.
pub(crate) fn cost_text(cost: Cost) -> String {
    let (mark, sum) = (estimate_mark(cost.estimated), cost.sum);
    match cost.unknown {
        0 => format!("{mark}${sum}/h"),
        n => format!("{mark}${sum}/h and {} of unknown price", counted(n, "node")),
    }
}

/// A cost in a table.
pub(crate) fn cost_cell(cost: Cost) -> String {
    let (mark, sum) = (estimate_mark(cost.estimated), cost.sum);
    if cost.unknown == 0 { format!("{mark}{sum}") } else { format!("{mark}{sum} + {} unknown", cost.unknown) }
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

#[cfg(test)]
mod tests {
    use croft_inspect::inventory::{NodeInfo, total_cost};

    use super::*;

    fn node(price: Option<i64>, estimated: bool) -> NodeInfo {
        NodeInfo {
            name: "n".to_owned(),
            pool: None,
            template: None,
            instance_type: String::new(),
            zone: String::new(),
            capacity_type: String::new(),
            price: price.map(Price::from_micros),
            estimated,
            claim: None,
            ready: true,
        }
    }

    #[test]
    fn cost_with_an_estimate_is_marked_as_one() {
        let listed = node(Some(96_000), false);
        let guessed = node(Some(43_200), true);
        let unknown = node(None, false);
        assert_eq!(cost_text(total_cost([&listed].into_iter())), "$0.096/h");
        assert_eq!(cost_cell(total_cost([&listed, &guessed].into_iter())), "~0.1392");
        assert_eq!(
            cost_text(total_cost([&guessed, &unknown].into_iter())),
            "~$0.0432/h and 1 node of unknown price"
        );
    }
}
