//! The instances that a search considers.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use smallvec::SmallVec;

use crate::{
    ids::{BinTypeIx, CompatSetIx, ItemTypeIx, OfferIx, VariantIx},
    index_vec::IndexVec,
    packing::{
        compatibility::CompatibilitySets,
        limit_rows::{LimitRows, Uses, uses_no_more},
        limits,
        problem::{PackingProblem, fits},
        rows::covers,
    },
    state::catalog_index::OfferSet,
};

/// An instance considered for some set of item types.
#[derive(Clone, Debug)]
pub(crate) struct BinType {
    pub(crate) variant: VariantIx,
    pub(crate) offer: OfferIx,
    /// Item types that may go onto it and that fit.
    pub(crate) item_types: Arc<[ItemTypeIx]>,
    /// How much it uses of the limits that the relaxation knows.
    pub(crate) uses: Uses,
}

/// All bin types considered: per variant and set of item types, those that no other dominates in room, in price and in what it uses
/// of `limit_rows`.
///
/// Room beyond the whole demand is no advantage, which leaves few bin types for few pods.
pub(crate) fn bin_types(
    problem: &PackingProblem,
    compat_sets: &CompatibilitySets,
    limit_rows: &LimitRows,
) -> IndexVec<BinTypeIx, BinType> {
    let mut bin_types = IndexVec::new();
    let mut clipped: Vec<(Vec<i64>, Uses)> = Vec::new();
    for (variant, ctx) in problem.variants.enumerate() {
        // Item types by compatibility set on this variant.
        let mut by_compat_set: BTreeMap<CompatSetIx, Vec<ItemTypeIx>> = BTreeMap::new();
        for (item_type, it) in problem.item_types.enumerate() {
            for (_, compat_set) in it.options.iter().filter(|(v, _)| *v == variant) {
                by_compat_set.entry(*compat_set).or_default().push(item_type);
            }
        }
        for (set, bits) in parts(compat_sets, by_compat_set.keys().copied(), ctx.catalog.offers.len()) {
            let all: Vec<ItemTypeIx> = set
                .iter()
                .flat_map(|compat_set| by_compat_set.get(compat_set).into_iter().flatten())
                .copied()
                .collect();
            let everyone: Arc<[ItemTypeIx]> = all.clone().into();
            let mut whole = vec![0i64; problem.d];
            for item_type in &all {
                let count = i64::from(problem.item_types[*item_type].count);
                for (w, s) in whole.iter_mut().zip(problem.size(*item_type)) {
                    *w = w.saturating_add(s.saturating_mul(count));
                }
            }
            let mut largest = vec![0i64; problem.d];
            for item_type in &all {
                for (l, s) in largest.iter_mut().zip(problem.size(*item_type)) {
                    *l = (*l).max(*s);
                }
            }
            clipped.clear();
            let edges = ctx.table.edges(&bits);
            let offers: Cow<'_, [OfferIx]> = if limit_rows.is_empty() {
                Cow::Borrowed(&edges.ladder)
            } else {
                let may_be = |offer: &&OfferIx| {
                    bits.contains(**offer) && limits::allows(problem, &problem.whole_limits, variant, **offer)
                };
                ctx.table.by_cost().iter().filter(may_be).copied().collect()
            };
            for offer in offers.iter() {
                let row = problem.row(variant, *offer);
                let useful: Vec<i64> = row.iter().zip(&whole).map(|(r, w)| (*r).min(*w)).collect();
                let uses = limit_rows.uses(problem, variant, *offer);
                let beaten =
                    |(kept, least): &(Vec<i64>, Uses)| covers(kept, &useful) && uses_no_more(least, &uses);
                if clipped.iter().rev().any(beaten) {
                    continue;
                }
                // An offering that holds the whole demand can't be improved upon.
                let holds_all = useful == whole && uses.is_empty();
                clipped.push((useful, uses.clone()));
                let item_types: Arc<[ItemTypeIx]> = if fits(&largest, row) > 0 {
                    Arc::clone(&everyone)
                } else {
                    all.iter().copied().filter(|k| fits(problem.size(*k), row) > 0).collect()
                };
                if item_types.is_empty() {
                    continue;
                }
                bin_types.push(BinType { variant, offer: *offer, item_types, uses });
                if holds_all {
                    break;
                }
            }
        }
    }
    bin_types
}

/// Offerings by the subset of `list` that contains them; those in no set are left out.
fn parts(
    compat_sets: &CompatibilitySets,
    list: impl Iterator<Item = CompatSetIx>,
    size: usize,
) -> Vec<(SmallVec<[CompatSetIx; 4]>, OfferSet)> {
    let mut parts: Vec<(SmallVec<[CompatSetIx; 4]>, OfferSet)> = vec![(SmallVec::new(), OfferSet::all(size))];
    for compat_set in list {
        let inside = compat_sets.bits(compat_set);
        let mut split = Vec::new();
        for (set, bits) in &mut parts {
            let both = bits.and(inside);
            if both.is_empty() {
                continue;
            }
            bits.take_away(inside);
            let mut with = set.clone();
            with.push(compat_set);
            split.push((with, both));
        }
        parts.retain(|(_, bits)| !bits.is_empty());
        parts.extend(split);
    }
    parts.retain(|(set, _)| !set.is_empty());
    parts.sort_by(|a, b| a.0.cmp(&b.0));
    parts
}
