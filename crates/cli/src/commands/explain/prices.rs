//! Prices of the constraints of one node or pod.

use std::io::Write as _;

use croft_inspect::{
    advice::{Focus, LEAST_SAVING_MICROS, Request, advise, has_constraints},
    amounts::per_month,
    simulation::time_of,
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
    let types = croft_cloud::builtin_catalog();
    let request = Request {
        focus,
        tenant: None,
        namespace: None,
        visible: None,
        min_saving: Price::from_micros(LEAST_SAVING_MICROS),
        most: MOST,
        now: time_of(input),
    };
    if !has_constraints(input, &types, &request)? {
        return Ok(());
    }
    let advice = {
        let _activity = Activity::start("pricing the constraints");
        advise(input, &types, &request, &mut || {})?
    };
    for price in &advice.prices {
        writeln!(
            out,
            "  {NOTE}{} costs ${}/h{NOTE:#} ({} a month): {}; {}",
            price.object,
            price.saving,
            per_month(price.saving),
            price.constraint,
            price.change
        )?;
    }
    if advice.prices.is_empty() && advice.together >= request.min_saving {
        writeln!(
            out,
            "  {NOTE}{} cost ${}/h together{NOTE:#}, and none of them alone",
            counted(advice.constraints, "constraint"),
            advice.together
        )?;
    }
    Ok(())
}
