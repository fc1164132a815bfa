//! Prices of constraints as rows: of a tenant, a node or a pod.

use std::collections::BTreeSet;

use croft_manifest::{Input, InputError};
use croft_scheduler::Price;
use serde::Serialize;

use crate::{
    advice::{Advice, ConstraintPrice, Focus, LEAST_SAVING_MICROS, Request, advise, has_constraints},
    simulation::time_of,
};

/// A constraint and what it costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdviceRow {
    /// The savings without it, in millionths of a dollar per hour.
    pub saving: i64,
    /// The namespace of its object; none for an object of the cluster.
    pub namespace: Option<String>,
    /// Its kind, in CamelCase.
    pub kind: &'static str,
    /// Kind and name of its object.
    pub object: String,
    /// The constraint.
    pub constraint: String,
    /// The edit that takes it out.
    pub change: String,
}

/// The prices of constraints, ranked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdviceRows {
    /// The dearest constraint first.
    pub rows: Vec<AdviceRow>,
    /// The savings without all of them at once, in millionths of a dollar per hour.
    pub together: i64,
    /// Number of constraints that could have a price.
    pub constraints: usize,
    /// Number of constraints that weren't tried.
    pub not_tried: usize,
}

/// The prices of the constraints in `focus` of `input`, as `croft advise` and `croft explain` have them: of one tenant, if one is given,
/// and without those of objects in namespaces that aren't `visible`, if these are given. At most `most` clusters without a constraint are
/// searched.
///
/// # Errors
/// Values that the scheduler refuses, by object and field.
pub fn advice_rows(
    input: &Input,
    focus: Focus,
    tenant: Option<&str>,
    visible: Option<BTreeSet<String>>,
    most: usize,
) -> Result<AdviceRows, InputError> {
    // A pod without a node has its constraints once a plan gives it one.
    let is_all = matches!(focus, Focus::All);
    let request = Request {
        focus,
        tenant: tenant.map(str::to_owned),
        namespace: None,
        visible,
        min_saving: Price::from_micros(LEAST_SAVING_MICROS),
        most,
        now: time_of(input),
    };
    let types = croft_cloud::builtin_catalog();
    if !is_all && !has_constraints(input, &types, &request)? {
        return Ok(AdviceRows::default());
    }
    let Advice { prices, cost: _, together, constraints, not_tried } =
        advise(input, &types, &request, &mut || {})?;
    let row = |price: ConstraintPrice| {
        let ConstraintPrice { saving, tenants: _, namespace, kind, object, constraint, change } = price;
        AdviceRow { saving: saving.micros(), namespace, kind, object, constraint, change }
    };
    let rows = prices.into_iter().map(row).collect();
    Ok(AdviceRows { rows, together: together.micros(), constraints, not_tried })
}
