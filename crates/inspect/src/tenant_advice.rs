//! The prices of a tenant's constraints.

use croft_manifest::{Input, InputError};
use croft_scheduler::Price;
use serde::Serialize;

use crate::{
    advice::{Advice, ConstraintPrice, Focus, LEAST_SAVING_MICROS, Request, advise},
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

/// The prices of a tenant's constraints, ranked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantAdvice {
    /// The dearest constraint first.
    pub rows: Vec<AdviceRow>,
    /// The savings without all of them at once, in millionths of a dollar per hour.
    pub together: i64,
    /// Number of constraints that could have a price.
    pub constraints: usize,
    /// Number of constraints that weren't tried.
    pub not_tried: usize,
}

/// The prices of a tenant's constraints in `input`, as `croft advise --tenant` has them. At most `most` clusters without a
/// constraint are searched.
///
/// # Errors
/// Values that the scheduler refuses, by object and field.
pub fn tenant_advice(input: &Input, tenant: &str, most: usize) -> Result<TenantAdvice, InputError> {
    let request = Request {
        focus: Focus::All,
        tenant: Some(tenant.to_owned()),
        namespace: None,
        min_saving: Price::from_micros(LEAST_SAVING_MICROS),
        most,
        now: time_of(input),
    };
    let Advice { prices, cost: _, together, constraints, not_tried } =
        advise(input, &croft_cloud::builtin_catalog(), &request, &mut || {})?;
    let row = |price: ConstraintPrice| {
        let ConstraintPrice { saving, tenants: _, namespace, kind, object, constraint, change } = price;
        AdviceRow { saving: saving.micros(), namespace, kind, object, constraint, change }
    };
    let rows = prices.into_iter().map(row).collect();
    Ok(TenantAdvice { rows, together: together.micros(), constraints, not_tried })
}
