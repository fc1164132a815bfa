//! Prices of the constraints of one node or pod.

use std::io::Write as _;

use croft_inspect::{
    AdviceRow, AdviceRows,
    advice::{Focus, LEAST_SAVING_MICROS},
    advice_rows,
    amounts::per_month,
};
use croft_manifest::Input;
use croft_scheduler::Price;

use crate::{
    activity::Activity,
    failure::Failure,
    output::Output,
    table::{NOTE, counted},
};

/// Counterfactuals that are searched: an answer about one object comes soon.
const MOST: usize = 8;

/// Writes what the constraints in `focus` cost, the dearest first. Nothing is searched if there is none.
pub(super) fn write_prices(input: &Input, focus: Focus, out: &mut Output) -> Result<(), Failure> {
    let AdviceRows { rows, together, constraints, not_tried: _ } = {
        let _activity = Activity::start("pricing the constraints");
        advice_rows(input, focus, None, None, MOST)?
    };
    for AdviceRow { saving, object, constraint, change, .. } in &rows {
        let saving = Price::from_micros(*saving);
        writeln!(
            out,
            "  {NOTE}{object} costs ${saving}/h{NOTE:#} ({} a month): {constraint}; {change}",
            per_month(saving)
        )?;
    }
    if rows.is_empty() && together >= LEAST_SAVING_MICROS {
        writeln!(
            out,
            "  {NOTE}{} cost ${}/h together{NOTE:#}, and none of them alone",
            counted(constraints, "constraint"),
            Price::from_micros(together)
        )?;
    }
    Ok(())
}
