//! Prices of constraints: the cluster at its end, with each and without it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_manifest::{Input, InputError};
use croft_scheduler::{InstanceType, Options, Price};
use jiff::Timestamp;
use serde::Serialize;

use super::{
    find::{Focus, Found, find},
    parts::Parts,
    settle::{Search, Settled},
    take_out::take_out,
};

/// Below this no price is shown unless the user asks for it, in millionths of a dollar per hour: a cent.
pub const LEAST_SAVING_MICROS: i64 = 10_000;

/// The question: which constraints, and how far to search.
#[derive(Clone, Debug)]
pub struct Request {
    /// The objects whose constraints are priced.
    pub focus: Focus,
    /// Only constraints of this tenant.
    pub tenant: Option<String>,
    /// Only constraints of objects in this namespace.
    pub namespace: Option<String>,
    /// Only constraints of objects in these namespaces and of objects of the cluster, for a reader who sees no others.
    pub visible: Option<BTreeSet<String>>,
    /// Prices below this aren't shown.
    pub min_saving: Price,
    /// At most this many counterfactuals are searched.
    pub most: usize,
    /// The time for which disruption costs are computed.
    pub now: Timestamp,
}

/// A constraint and what it costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConstraintPrice {
    /// The savings per hour without it.
    #[serde(rename = "savesPerHour")]
    pub saving: Price,
    /// The tenants that it belongs to.
    pub tenants: Vec<String>,
    /// The namespace of its object.
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

/// Ranked prices. Their shape as JSON is part of the command line's contract.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Advice {
    /// The dearest constraint first.
    pub prices: Vec<ConstraintPrice>,
    /// The known prices of the pools' nodes, once pending pods have theirs.
    #[serde(rename = "costPerHour")]
    pub cost: Price,
    /// The savings per hour without all constraints at once, the cluster consolidated in both cases.
    #[serde(rename = "togetherPerHour")]
    pub together: Price,
    /// Number of constraints that could have a price.
    pub constraints: usize,
    /// Number of constraints that weren't tried.
    pub not_tried: usize,
}

/// Constraints of one part that save something at once.
struct Binding {
    part: Option<String>,
    constraints: Vec<Found>,
    /// The savings without all of them at once.
    together: Price,
}

/// Prices the constraints of `input`. Calls `on_search` before each counterfactual.
///
/// # Errors
/// Values that the scheduler refuses, by object and field.
pub fn advise(
    input: &Input,
    types: &Arc<[InstanceType]>,
    request: &Request,
    on_search: &mut dyn FnMut(),
) -> Result<Advice, InputError> {
    let search = Search { types: Arc::clone(types), options: Options::default(), now: request.now };
    let start = search.settle(input.clone(), &BTreeSet::new())?;
    let found = wanted(&start.input, input, types, request)?;
    let mut advice = Advice {
        prices: Vec::new(),
        cost: start.cost,
        together: Price::ZERO,
        constraints: found.len(),
        not_tried: 0,
    };
    let mut pricing = Pricing {
        search,
        names: input,
        parts: Parts::new(input),
        start,
        end: None,
        left: request.most,
        on_search,
    };
    let mut binding = Vec::new();
    for (part, constraints) in by_part(found) {
        match pricing.saving(part.as_deref(), &constraints)? {
            Some(together) if together >= request.min_saving => {
                // Limits of the cluster concern the nodes of all other parts once more.
                if part.is_some() {
                    advice.together += together;
                }
                binding.push(Binding { part, constraints, together });
            }
            Some(_) => {}
            None => advice.not_tried += constraints.len(),
        }
    }
    binding.sort_by(|a, b| b.together.cmp(&a.together).then_with(|| a.part.cmp(&b.part)));
    let last = binding.len().saturating_sub(1);
    for (at, binding) in binding.into_iter().enumerate() {
        // A part with many constraints leaves some counterfactuals to the others.
        let most = if at == last { pricing.left } else { pricing.left.div_ceil(2) };
        pricing.price_alone(binding, most, request.min_saving, &mut advice)?;
    }
    advice.prices.sort_by(|a, b| b.saving.cmp(&a.saving).then_with(|| a.object.cmp(&b.object)));
    let largest = advice.prices.first().map_or(Price::ZERO, |price| price.saving);
    advice.together = advice.together.max(largest);
    Ok(advice)
}

/// True if some constraint could have a price. Searches nothing; pods without a node have no constraints yet.
///
/// # Errors
/// As [`advise`].
pub fn has_constraints(
    input: &Input,
    types: &Arc<[InstanceType]>,
    request: &Request,
) -> Result<bool, InputError> {
    Ok(!wanted(input, input, types, request)?.is_empty())
}

fn wanted(
    input: &Input,
    names: &Input,
    types: &Arc<[InstanceType]>,
    request: &Request,
) -> Result<Vec<Found>, InputError> {
    let mut found = find(input, names, types, request.now, &request.focus)?;
    let is_visible = |found: &Found| match (&request.visible, &found.namespace) {
        (Some(visible), Some(namespace)) => visible.contains(namespace),
        _ => true,
    };
    found.retain(|found| {
        is_visible(found)
            && request.tenant.as_ref().is_none_or(|tenant| found.tenants.contains(tenant))
            && (request.namespace.is_none() || found.namespace == request.namespace)
    });
    Ok(found)
}

fn by_part(found: Vec<Found>) -> Vec<(Option<String>, Vec<Found>)> {
    let mut parts: BTreeMap<Option<String>, Vec<Found>> = BTreeMap::new();
    for one in found {
        parts.entry(one.part.clone()).or_default().push(one);
    }
    let mut parts: Vec<_> = parts.into_iter().collect();
    let most = |found: &[Found]| found.iter().map(|one| one.touched).max();
    parts.sort_by(|a, b| most(&b.1).cmp(&most(&a.1)).then_with(|| a.0.cmp(&b.0)));
    parts
}

fn price(found: Found, saving: Price) -> ConstraintPrice {
    let Found { constraint, tenants, namespace, words, .. } = found;
    ConstraintPrice {
        saving,
        tenants,
        namespace,
        kind: constraint.kind(),
        object: words.object,
        constraint: words.constraint,
        change: words.change,
    }
}

struct Pricing<'a> {
    search: Search,
    /// The input as it was given.
    names: &'a Input,
    parts: Parts,
    start: Settled,
    /// The end of the last part that was asked for: large clusters have many parts and many objects.
    end: Option<(Option<String>, Settled)>,
    /// Counterfactuals that may still be searched.
    left: usize,
    on_search: &'a mut dyn FnMut(),
}

impl Pricing<'_> {
    /// Prices each of a part's constraints alone, those that touch the dearest nodes first; at most `most` of them.
    fn price_alone(
        &mut self,
        binding: Binding,
        most: usize,
        min_saving: Price,
        advice: &mut Advice,
    ) -> Result<(), InputError> {
        let Binding { part, mut constraints, together } = binding;
        if constraints.len() == 1 {
            advice.prices.extend(constraints.pop().map(|found| price(found, together)));
            return Ok(());
        }
        constraints.sort_by(|a, b| b.touched.cmp(&a.touched).then_with(|| a.constraint.cmp(&b.constraint)));
        for (at, found) in constraints.into_iter().enumerate() {
            let saving =
                if at < most { self.saving(part.as_deref(), std::slice::from_ref(&found))? } else { None };
            match saving {
                Some(saving) if saving >= min_saving => advice.prices.push(price(found, saving)),
                Some(_) => {}
                None => advice.not_tried += 1,
            }
        }
        Ok(())
    }

    /// The savings of the part without `constraints`; `None` if no more counterfactuals may be searched.
    fn saving(&mut self, part: Option<&str>, constraints: &[Found]) -> Result<Option<Price>, InputError> {
        if self.left == 0 {
            return Ok(None);
        }
        (self.on_search)();
        self.left -= 1;
        let pools = self.parts.pools(part);
        let end = match self.end.take() {
            Some((of, end)) if of.as_deref() == part => end,
            _ => self.search.settle(self.start.input.clone(), &pools)?,
        };
        let mut input = end.input.clone();
        constraints.iter().for_each(|found| take_out(&found.constraint, self.names, &mut input));
        let without = self.search.settle(input, &pools)?;
        let is_explained = constraints.iter().any(|found| found.may_explain(&end.input, &without.input));
        let saving = if is_explained { end.saving(&without) } else { Price::ZERO };
        self.end = Some((part.map(str::to_owned), end));
        Ok(Some(saving))
    }
}
