//! First-fit-decreasing: plain, and with a choice of machine that looks at prices.

use super::{Masks, Packing, Yard, fits, together};

/// How a new machine is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// The largest, to be exchanged for the cheapest that holds its pods in the end: what every provisioner does.
    Largest,
    /// The one with which the pods that remain would cost least, were they divisible.
    Balanced,
}

/// Largest first: by the first resource (processors), then the second (memory), and so on. Where limits bind,
/// priority comes first.
pub(crate) fn order(yard: &Yard) -> Vec<usize> {
    let mut order: Vec<usize> = (0..yard.kinds.len()).collect();
    order.sort_by(|a, b| {
        let priority = |k: usize| yard.kinds.get(k).map_or(0, |kind| kind.priority);
        // Who needs another kind on its host comes after it.
        let needs = |k: usize| {
            let rules = yard.kinds.get(k).and_then(|kind| kind.rules.as_deref());
            rules.is_some_and(|r| !r.needs.is_empty())
        };
        priority(*b)
            .cmp(&priority(*a))
            .then(needs(*a).cmp(&needs(*b)))
            .then_with(|| yard.size(*b).cmp(yard.size(*a)))
            .then(a.cmp(b))
    });
    order
}

/// Packs every kind in order.
pub(crate) fn pack<'a>(yard: &'a Yard, masks: &mut Masks, opening: Opening) -> Packing<'a> {
    let mut packing = Packing::new(yard);
    let mut left: Vec<u32> = yard.kinds.iter().map(|k| k.count).collect();
    run(&mut packing, masks, opening, &mut left);
    packing.settle(masks);
    packing
}

/// Packs what `left` says beside what is packed already.
pub(crate) fn finish(packing: &mut Packing<'_>, masks: &mut Masks, left: &mut [u32]) {
    if left.iter().any(|n| *n > 0) {
        run(packing, masks, Opening::Balanced, left);
    }
}

fn run(packing: &mut Packing<'_>, masks: &mut Masks, opening: Opening, left: &mut [u32]) {
    let yard = packing.yard;
    let smallest = smallest(yard);
    let priority = |kind: usize| yard.kinds.get(kind).map_or(0, |k| k.priority);
    let mut open: Vec<usize> = (0..packing.bins.len()).collect();
    for kinds in order(yard).chunk_by(|a, b| priority(*a) == priority(*b)) {
        let known = packing.bins.len();
        together::place(packing, masks, kinds, left);
        open.extend(known..packing.bins.len());
        for kind in kinds {
            one(packing, masks, (opening, *kind), left, &mut open, &smallest);
        }
    }
}

/// Packs what is left of one kind.
fn one(
    packing: &mut Packing<'_>,
    masks: &mut Masks,
    (opening, kind): (Opening, usize),
    left: &mut [u32],
    open: &mut Vec<usize>,
    smallest: &[i64],
) {
    let Some(count) = left.get(kind).copied().filter(|n| *n > 0) else { return };
    if together::waits(packing, kind, left) {
        return;
    }
    let mut rest = fill(packing, masks, kind, count, open, smallest);
    while rest > 0 {
        if let Some(l) = left.get_mut(kind) {
            *l = rest;
        }
        let Some(bin) = launch(packing, masks, kind, opening, left) else { break };
        let Some((most, mask, offer)) = packing.room(masks, bin, kind) else {
            packing.close_empty();
            break;
        };
        let count = most.min(rest);
        packing.put(bin, kind, count, mask, offer);
        open.push(bin);
        rest -= count;
    }
    if let Some(l) = left.get_mut(kind) {
        *l = rest;
    }
}

/// The least that any kind asks of each resource.
fn smallest(yard: &Yard) -> Vec<i64> {
    let mut least = vec![i64::MAX; yard.d];
    for kind in 0..yard.kinds.len() {
        for (l, s) in least.iter_mut().zip(yard.size(kind)) {
            *l = (*l).min(*s);
        }
    }
    least
}

/// Puts what fits into open bins, first to last; answers what is left.
fn fill(
    packing: &mut Packing<'_>,
    masks: &mut Masks,
    kind: usize,
    count: u32,
    open: &mut Vec<usize>,
    smallest: &[i64],
) -> u32 {
    let mut rest = count;
    let mut full = false;
    for bin in open.iter() {
        packing.steps += 1;
        if rest == 0 {
            break;
        }
        if let Some((most, mask, offer)) = packing.room(masks, *bin, kind) {
            let count = most.min(rest);
            packing.put(*bin, kind, count, mask, offer);
            rest -= count;
            full |= is_full(packing, masks, *bin, smallest);
        }
    }
    if full {
        open.retain(|bin| !is_full(packing, masks, *bin, smallest));
    }
    rest
}

/// True if nothing more can come in, whatever it is.
fn is_full(packing: &Packing<'_>, masks: &Masks, bin: usize, smallest: &[i64]) -> bool {
    let Some(it) = packing.bins.get(bin) else { return true };
    let single = !it.flexible || matches!(masks.maximal(it.mask), [only] if *only == it.offer);
    single && packing.free(bin).iter().zip(smallest).any(|(f, s)| *s > 0 && f < s)
}

/// Opens a bin for `kind`, if the limits allow one.
pub(crate) fn launch(
    packing: &mut Packing<'_>,
    masks: &Masks,
    kind: usize,
    opening: Opening,
    left: &[u32],
) -> Option<usize> {
    let yard = packing.yard;
    let options = yard.kinds.get(kind)?.options.clone();
    let size = yard.size(kind);
    let wanted = match opening {
        Opening::Largest => options.iter().find_map(|(variant, mask)| {
            let fitting = masks.maximal(*mask).iter().find(|o| fits(size, yard.row(*variant, **o)) > 0);
            fitting.map(|offer| (*variant, *mask, *offer))
        }),
        Opening::Balanced => {
            let rest = remaining(yard, kind, left);
            packing.steps += u64::try_from(masks.ladder(options.first()?.1).len()).unwrap_or(0) / 4;
            let mut best: Option<((i128, u32, u32), u32)> = None;
            for (variant, mask) in &options {
                for offer in masks.ladder(*mask) {
                    let cost = yard.cost(*variant, *offer);
                    // Dearer ones follow, and one machine is the least that is paid.
                    if best.is_some_and(|((least, _, _), _)| i128::from(cost) > least) {
                        break;
                    }
                    let row = yard.row(*variant, *offer);
                    if fits(size, row) > 0 {
                        let rank = (divided(cost, row, &rest), *variant, *offer);
                        if best.is_none_or(|(least, _)| rank < least) {
                            best = Some((rank, *mask));
                        }
                    }
                }
            }
            best.map(|((_, variant, offer), mask)| (variant, mask, offer))
        }
    };
    let (variant, mask, offer) = wanted?;
    let flexible = opening == Opening::Largest;
    if let Some(bin) = packing.open(variant, mask, offer, flexible) {
        return Some(bin);
    }
    // A limit binds. What is open shrinks to what it holds, and what is left goes to the cheapest that is allowed.
    packing.settle(masks);
    if let Some(bin) = packing.open(variant, mask, offer, flexible) {
        return Some(bin);
    }
    for (variant, mask) in &options {
        for offer in masks.ladder(*mask) {
            packing.steps += 1;
            if fits(size, yard.row(*variant, *offer)) > 0
                && let Some(bin) = packing.open(*variant, *mask, *offer, true)
            {
                return Some(bin);
            }
        }
    }
    None
}

/// Sum of what remains of the kinds that may go where `kind` may.
fn remaining(yard: &Yard, kind: usize, left: &[u32]) -> Vec<i64> {
    let mut sum = vec![0i64; yard.d];
    let Some(options) = yard.kinds.get(kind).map(|k| &k.options) else { return sum };
    for (other, count) in left.iter().enumerate().filter(|(_, n)| **n > 0) {
        if yard.kinds.get(other).is_some_and(|k| k.options == *options) {
            for (s, size) in sum.iter_mut().zip(yard.size(other)) {
                *s = s.saturating_add(size.saturating_mul(i64::from(*count)));
            }
        }
    }
    sum
}

/// What `rest` would cost on machines of `row` at `cost` each, could it be divided at will.
fn divided(cost: i64, row: &[i64], rest: &[i64]) -> i128 {
    let one = rest.iter().zip(row).filter(|(r, _)| **r > 0).map(|(r, row)| {
        if *row <= 0 { i128::MAX } else { i128::from(cost).saturating_mul(i128::from(*r)) / i128::from(*row) }
    });
    // Never less than one machine.
    one.max().unwrap_or(0).max(i128::from(cost))
}
