//! Pods that require a pod affinity target on their host while that target is pending too: one instance is opened for
//! both.

use std::cmp::Reverse;

use crate::ids::{BinIx, CompatSetIx, ItemTypeIx, OfferIx, VariantIx};
use crate::index_vec::IndexVec;
use crate::packing::{
    bins::{Fit, Packing},
    compatibility::CompatibilitySets,
    problem::fits,
};

/// Longest chain of affinity requirements that is followed; longer ones are left unschedulable.
const LONGEST_CHAIN: u32 = 4;

/// Opens instances for those of `item_types` that need an affinity target on their host, and places the
/// target and as many of them there as fit, in the order of kube-scheduler's queue. An item type that is its
/// own only target gets one instance for all its pods before other pods take the room. An item type with
/// enough targets is left to the search that follows.
pub(crate) fn place(
    packing: &mut Packing<'_>,
    compat_sets: &mut CompatibilitySets,
    item_types: &[ItemTypeIx],
    left: &mut IndexVec<ItemTypeIx, u32>,
) {
    if packing.problem.host_affinity.is_empty() {
        return;
    }
    let mut queue_order = item_types.to_vec();
    queue_order.sort_by_key(|item_type| Reverse(queue_priority(packing, *item_type)));
    for item_type in queue_order {
        if !needs_affinity_target(packing, item_type, left) {
            alone(packing, compat_sets, item_type, left);
        }
        // Pods without room on the host that they started join others of their kind.
        while needs_affinity_target(packing, item_type, left) {
            beside(packing, compat_sets, item_type, left);
            if left.find(item_type).is_none_or(|n| *n == 0) || !open(packing, compat_sets, item_type, left) {
                break;
            }
        }
    }
    packing.take_cheapest_offers(compat_sets);
}

/// Item types with pending pods that `item_type` requires on its host, other than itself.
fn pending_targets<'a>(
    packing: &'a Packing<'_>,
    item_type: ItemTypeIx,
    left: &'a IndexVec<ItemTypeIx, u32>,
) -> impl Iterator<Item = ItemTypeIx> + 'a {
    left.ids().filter(move |other| is_pending_target(packing, *other, item_type, left))
}

fn is_pending_target(
    packing: &Packing<'_>,
    other: ItemTypeIx,
    item_type: ItemTypeIx,
    left: &IndexVec<ItemTypeIx, u32>,
) -> bool {
    other != item_type
        && left.find(other).is_some_and(|n| *n > 0)
        && is_affinity_target(packing, other, item_type)
}

/// True if kube-scheduler may bind pods of `other` before those of `item_type`.
fn may_precede(packing: &Packing<'_>, other: ItemTypeIx, item_type: ItemTypeIx) -> bool {
    queue_priority(packing, other) >= queue_priority(packing, item_type)
}

fn queue_priority(packing: &Packing<'_>, item_type: ItemTypeIx) -> i32 {
    packing.problem.item_types.find(item_type).map_or(0, |item_type| item_type.queue_priority)
}

/// True if no pod of the item type can start a host, or if a target of another item type may be bound before
/// it. An item type that is its own target can start a host only while no other target of its priority or a higher one is
/// pending.
fn needs_affinity_target(
    packing: &Packing<'_>,
    item_type: ItemTypeIx,
    left: &IndexVec<ItemTypeIx, u32>,
) -> bool {
    let Some(rules) = packing.problem.rules(item_type) else { return false };
    !rules.needs.is_empty()
        && (!rules.may_be_first
            || rules.needs.iter().any(|g| packing.is_present(*g))
            || pending_targets(packing, item_type, left).any(|other| may_precede(packing, other, item_type)))
}

/// True if the item type could start a host, but a target that has no requirement of its own and a higher
/// rank found no room: that target may land in a lighter pool and be bound first.
pub(super) fn must_wait(
    packing: &Packing<'_>,
    item_type: ItemTypeIx,
    left: &IndexVec<ItemTypeIx, u32>,
) -> bool {
    let Some(rules) = packing.problem.rules(item_type) else { return false };
    let is_free =
        |other: ItemTypeIx| packing.problem.rules(other).is_some_and(|rules| rules.needs.is_empty());
    rules.may_be_first
        && rules.needs.iter().any(|group| !packing.is_present(*group))
        && pending_targets(packing, item_type, left)
            .any(|other| is_free(other) && may_precede(packing, other, item_type))
}

/// Places what fits beside affinity targets that are already placed.
fn beside(
    packing: &mut Packing<'_>,
    compat_sets: &mut CompatibilitySets,
    item_type: ItemTypeIx,
    left: &mut IndexVec<ItemTypeIx, u32>,
) {
    for bin in packing.bins.ids() {
        let Some(rest) = left.find_mut(item_type).filter(|n| **n > 0) else { return };
        packing.steps += 1;
        if let Some(fit) = packing.room(compat_sets, bin, item_type) {
            let count = fit.count.min(*rest);
            packing.put(bin, item_type, Fit { count, ..fit });
            *rest -= count;
        }
    }
}

/// An instance that could be opened for an item type.
struct Candidate {
    /// Pods of the item type that fit by their size; rules between pods of one host may allow fewer.
    count: u32,
    variant: VariantIx,
    compat_set: CompatSetIx,
    offer: OfferIx,
}

/// Opens the instance that holds most pods of an item type whose pods must all be on one host.
fn alone(
    packing: &mut Packing<'_>,
    compat_sets: &mut CompatibilitySets,
    item_type: ItemTypeIx,
    left: &mut IndexVec<ItemTypeIx, u32>,
) {
    let problem = packing.problem;
    let wanted = left.find(item_type).copied().unwrap_or(0);
    let Some(it) = problem.item_types.find(item_type).filter(|_| wanted > 0) else { return };
    if problem.rules(item_type).is_none_or(|rules| rules.needs.is_empty()) {
        return;
    }
    // A single pod has a host of its own only if others of its kind would start one before it.
    if wanted == 1 && pending_targets(packing, item_type, left).next().is_none() {
        return;
    }
    let mut candidates: Vec<Candidate> = Vec::new();
    for (variant, compat_set) in &it.options {
        for offer in compat_sets.maximal(*compat_set).iter().chain(compat_sets.ladder(*compat_set)) {
            let count = fits(problem.size(item_type), problem.row(*variant, *offer)).min(wanted);
            packing.steps += 1;
            if count > 0 {
                candidates.push(Candidate {
                    count,
                    variant: *variant,
                    compat_set: *compat_set,
                    offer: *offer,
                });
            }
        }
    }
    // Most pods first; among equals, the cheapest.
    candidates.sort_by_key(|candidate| {
        (Reverse(candidate.count), problem.cost(candidate.variant, candidate.offer))
    });
    for Candidate { variant, compat_set, offer, .. } in candidates {
        let Some(bin) = packing.open(variant, compat_set, offer, true) else { continue };
        let Some(fit) = packing.room(compat_sets, bin, item_type) else {
            packing.close_empty();
            continue;
        };
        let count = fit.count.min(wanted);
        packing.put(bin, item_type, Fit { count, ..fit });
        if let Some(n) = left.find_mut(item_type) {
            *n -= count;
        }
        return;
    }
}

/// Opens one instance for an affinity target and the first pod of `item_type`.
fn open(
    packing: &mut Packing<'_>,
    compat_sets: &mut CompatibilitySets,
    item_type: ItemTypeIx,
    left: &mut IndexVec<ItemTypeIx, u32>,
) -> bool {
    let problem = packing.problem;
    let Some(own) = problem.item_types.find(item_type) else { return false };
    for affinity_target in problem.largest_first() {
        if !is_pending_target(packing, affinity_target, item_type, left) {
            continue;
        }
        let Some(other) = problem.item_types.find(affinity_target) else { continue };
        for (variant, compat_set) in &own.options {
            let Some((_, theirs)) = other.options.iter().find(|(v, _)| v == variant) else { continue };
            let Some(both) = compat_sets.and(problem, *compat_set, *theirs) else { continue };
            let sum: Vec<i64> = problem
                .size(item_type)
                .iter()
                .zip(problem.size(affinity_target))
                .map(|(a, b)| a.saturating_add(*b))
                .collect();
            // The largest first, so that it becomes the cheapest that holds what follows; under a limit, what
            // the limit allows.
            let large = compat_sets.maximal(both).to_vec();
            let small = compat_sets.ladder(both).to_vec();
            for offer in large.into_iter().chain(small) {
                packing.steps += 1;
                if fits(&sum, problem.row(*variant, offer)) == 0 {
                    continue;
                }
                let present = packing.present_count();
                let Some(bin) = packing.open(*variant, both, offer, true) else { continue };
                let before = left.clone();
                // The target first, also where a pod of the item type could start the host: the target may be
                // bound first.
                if seat(packing, compat_sets, bin, affinity_target, left, 1)
                    && seat(packing, compat_sets, bin, item_type, left, LONGEST_CHAIN)
                {
                    return true;
                }
                left.clone_from(&before);
                packing.undo_last(present);
                break;
            }
        }
    }
    false
}

/// Places one pod of `item_type` into `bin`, after the affinity target that it needs there.
fn seat(
    packing: &mut Packing<'_>,
    compat_sets: &mut CompatibilitySets,
    bin: BinIx,
    item_type: ItemTypeIx,
    left: &mut IndexVec<ItemTypeIx, u32>,
    depth: u32,
) -> bool {
    if let Some(fit) = packing.room(compat_sets, bin, item_type) {
        packing.put(bin, item_type, Fit { count: 1, ..fit });
        if let Some(n) = left.find_mut(item_type) {
            *n = n.saturating_sub(1);
        }
        return true;
    }
    if depth >= LONGEST_CHAIN || !needs_affinity_target(packing, item_type, left) {
        return false;
    }
    for affinity_target in packing.problem.largest_first() {
        if is_pending_target(packing, affinity_target, item_type, left)
            && seat(packing, compat_sets, bin, affinity_target, left, depth + 1)
        {
            return packing.room(compat_sets, bin, item_type).is_some()
                && seat(packing, compat_sets, bin, item_type, left, LONGEST_CHAIN);
        }
    }
    false
}

/// True if `item_type` requires affinity to `affinity_target`.
fn is_affinity_target(packing: &Packing<'_>, affinity_target: ItemTypeIx, item_type: ItemTypeIx) -> bool {
    let rules = packing.problem.rules(affinity_target).zip(packing.problem.rules(item_type));
    rules.is_some_and(|(theirs, own)| own.needs.iter().any(|group| theirs.counts.contains(group)))
}
