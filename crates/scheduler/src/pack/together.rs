//! Pods that must be on the host of another pod which waits as well: a machine is opened for both at once.

use super::{Masks, Packing, ffd, fits};

/// Who needs whom needs whom ...: longer chains are given up.
const LONGEST_CHAIN: u32 = 4;

/// Opens machines for those of `kinds` that need a mate on their host, and puts the mate and as many of them there as fit.
/// Who is a mate to itself alone gets one machine for all of its kind, before others take the room there. What has mates
/// enough is left to the search that follows.
pub(crate) fn place(packing: &mut Packing<'_>, masks: &mut Masks, kinds: &[usize], left: &mut [u32]) {
    if packing.yard.near.is_empty() {
        return;
    }
    for kind in kinds.iter().copied() {
        if !needs_mate(packing, kind, left) {
            alone(packing, masks, kind, left);
            continue;
        }
        loop {
            beside(packing, masks, kind, left);
            if left.get(kind).is_none_or(|n| *n == 0) || !open(packing, masks, kind, left) {
                break;
            }
        }
    }
    packing.settle(masks);
}

/// True if no pod of the kind can be the first on a host, or if a mate of another kind may be bound before it: a kind that is
/// a mate to itself can be the first only while nobody else is one.
fn needs_mate(packing: &Packing<'_>, kind: usize, left: &[u32]) -> bool {
    let Some(rules) = packing.yard.kinds.get(kind).and_then(|k| k.rules.as_deref()) else { return false };
    let waits = |mate: usize| left.get(mate).is_some_and(|n| *n > 0);
    !rules.needs.is_empty()
        && (!rules.starts
            || rules.needs.iter().any(|g| packing.is_present(*g))
            || (0..left.len()).any(|mate| mate != kind && waits(mate) && is_mate(packing, mate, kind)))
}

/// True if the kind could be the first on a host, but a mate that needs nobody and comes before it has found no room: it may
/// have one in a lighter pool, and be bound first.
pub(super) fn waits(packing: &Packing<'_>, kind: usize, left: &[u32]) -> bool {
    let kinds = &packing.yard.kinds;
    let Some((own, rules)) = kinds.get(kind).and_then(|own| Some((own, own.rules.as_deref()?))) else {
        return false;
    };
    let leads = |mate: &usize| {
        let other = kinds.get(*mate);
        let free = |r: &super::Rules| r.needs.is_empty();
        other.is_some_and(|o| o.priority >= own.priority && o.rules.as_deref().is_some_and(free))
            && is_mate(packing, *mate, kind)
    };
    rules.starts
        && rules.needs.iter().any(|group| !packing.is_present(*group))
        && (0..left.len()).filter(|mate| left.get(*mate).is_some_and(|n| *n > 0)).any(|mate| leads(&mate))
}

/// Puts what fits beside mates that are there.
fn beside(packing: &mut Packing<'_>, masks: &mut Masks, kind: usize, left: &mut [u32]) {
    for bin in 0..packing.bins.len() {
        let Some(rest) = left.get_mut(kind).filter(|n| **n > 0) else { return };
        packing.steps += 1;
        if let Some((most, mask, offer)) = packing.room(masks, bin, kind) {
            let count = most.min(*rest);
            packing.put(bin, kind, count, mask, offer);
            *rest -= count;
        }
    }
}

/// Opens the machine that holds most of a kind whose pods must all be on one host.
fn alone(packing: &mut Packing<'_>, masks: &mut Masks, kind: usize, left: &mut [u32]) {
    let yard = packing.yard;
    let wanted = left.get(kind).copied().unwrap_or(0);
    let Some(it) = yard.kinds.get(kind).filter(|_| wanted > 1) else { return };
    if it.rules.as_deref().is_none_or(|rules| rules.needs.is_empty()) {
        return;
    }
    let mut places: Vec<(u32, u32, u32, u32)> = Vec::new();
    for (variant, mask) in &it.options {
        for offer in masks.maximal(*mask).iter().chain(masks.ladder(*mask)) {
            let count = fits(yard.size(kind), yard.row(*variant, *offer)).min(wanted);
            packing.steps += 1;
            if count > 0 {
                places.push((count, *variant, *mask, *offer));
            }
        }
    }
    // Most first; of those that hold as many, the cheapest.
    places.sort_by_key(|(count, variant, _, offer)| (std::cmp::Reverse(*count), yard.cost(*variant, *offer)));
    for (_, variant, mask, offer) in places {
        let Some(bin) = packing.open(variant, mask, offer, true) else { continue };
        let Some((most, mask, offer)) = packing.room(masks, bin, kind) else {
            packing.close_empty();
            continue;
        };
        let count = most.min(wanted);
        packing.put(bin, kind, count, mask, offer);
        if let Some(n) = left.get_mut(kind) {
            *n -= count;
        }
        return;
    }
}

/// Opens one machine for a mate and the first of `kind`.
fn open(packing: &mut Packing<'_>, masks: &mut Masks, kind: usize, left: &mut [u32]) -> bool {
    let yard = packing.yard;
    let Some(own) = yard.kinds.get(kind) else { return false };
    for mate in ffd::order(yard) {
        if mate == kind || left.get(mate).is_none_or(|n| *n == 0) || !is_mate(packing, mate, kind) {
            continue;
        }
        let Some(other) = yard.kinds.get(mate) else { continue };
        for (variant, mask) in &own.options {
            let Some((_, theirs)) = other.options.iter().find(|(v, _)| v == variant) else { continue };
            let Some(both) = masks.and(yard, *mask, *theirs) else { continue };
            let sum: Vec<i64> =
                yard.size(kind).iter().zip(yard.size(mate)).map(|(a, b)| a.saturating_add(*b)).collect();
            // The largest first, to become the cheapest that holds what comes; under a limit, what the limit allows.
            let large = masks.maximal(both).to_vec();
            let small = masks.ladder(both).to_vec();
            for offer in large.into_iter().chain(small) {
                packing.steps += 1;
                if fits(&sum, yard.row(*variant, offer)) == 0 {
                    continue;
                }
                let present = packing.present_count();
                let Some(bin) = packing.open(*variant, both, offer, true) else { continue };
                let before = left.to_vec();
                // The mate first, also where one of the kind could be: it may be bound before.
                if seat(packing, masks, bin, mate, left, 1)
                    && seat(packing, masks, bin, kind, left, LONGEST_CHAIN)
                {
                    return true;
                }
                left.copy_from_slice(&before);
                packing.undo_last(present);
                break;
            }
        }
    }
    false
}

/// Puts one of `kind` into `bin`, after the mate that it needs there.
fn seat(
    packing: &mut Packing<'_>,
    masks: &mut Masks,
    bin: usize,
    kind: usize,
    left: &mut [u32],
    depth: u32,
) -> bool {
    if let Some((_, mask, offer)) = packing.room(masks, bin, kind) {
        packing.put(bin, kind, 1, mask, offer);
        if let Some(n) = left.get_mut(kind) {
            *n = n.saturating_sub(1);
        }
        return true;
    }
    if depth >= LONGEST_CHAIN || !needs_mate(packing, kind, left) {
        return false;
    }
    for mate in ffd::order(packing.yard) {
        if mate != kind
            && left.get(mate).is_some_and(|n| *n > 0)
            && is_mate(packing, mate, kind)
            && seat(packing, masks, bin, mate, left, depth + 1)
        {
            return packing.room(masks, bin, kind).is_some()
                && seat(packing, masks, bin, kind, left, LONGEST_CHAIN);
        }
    }
    false
}

/// True if `mate` is one that `kind` needs.
fn is_mate(packing: &Packing<'_>, mate: usize, kind: usize) -> bool {
    let rules = |k: usize| packing.yard.kinds.get(k).and_then(|k| k.rules.as_deref());
    let (Some(theirs), Some(own)) = (rules(mate), rules(kind)) else { return false };
    own.needs.iter().any(|group| theirs.counts.contains(group))
}
