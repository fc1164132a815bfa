//! Items to item types before packing, and bins to launches after it.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    ids::{ClassIx, CompatSetIx, GroupIx, ItemTypeIx, LimitIx, OfferIx, VariantIx},
    index_vec::IndexVec,
    packing::{
        compatibility::CompatibilitySets,
        portfolio::Outcome,
        problem::{ItemType, Limit, PackingProblem, Rules, VariantCtx},
        rows::Rows,
    },
    solve::{
        block::{Context, Launch, Solved},
        tier_packing::{Tier, TierChoices},
    },
    state::{catalog_index::OfferSet, interner::Sym},
    topology::{
        domains::Item,
        groups::{BlockGroups, Topology},
        preferences::{self, PreferenceCounts},
    },
};

/// The parts of an item that the packing reads: items alike in all of them are one item type.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    priority: i64,
    queue_priority: i32,
    size: SmallVec<[i64; 4]>,
    options: SmallVec<[(VariantIx, CompatSetIx); 2]>,
    rules: Option<Box<Rules>>,
}

/// The packing problem of a tier, and the items of each of its item types.
pub(super) struct Merged {
    pub(super) problem: PackingProblem,
    pub(super) compat_sets: CompatibilitySets,
    sources: IndexVec<ItemTypeIx, Vec<Item>>,
}

impl Context<'_> {
    /// The packing problem of a tier, without item types.
    pub(super) fn problem(
        &self,
        tier: &Tier<'_>,
        groups: &BlockGroups,
        limits: &IndexVec<LimitIx, Limit>,
    ) -> PackingProblem {
        let mut problem = PackingProblem {
            d: tier.dims.len(),
            variants: self.variant_contexts(tier, limits),
            item_types: IndexVec::new(),
            sizes: Rows::new(tier.dims.len()),
            limits: limits.clone(),
            whole_limits: self.limits.left.clone(),
            present: Vec::new(),
            host_affinity: Vec::new(),
        };
        let host = self.cluster.keys.hostname;
        let present = groups.list.enumerate().filter(|(_, group)| group.key == host && group.total > 0);
        problem.present.extend(present.map(|(group, _)| group));
        problem.host_affinity.extend(groups.of.iter().filter_map(|topology| topology.host_affinity));
        problem.host_affinity.sort_unstable();
        problem.host_affinity.dedup();
        problem
    }

    /// Merges items that the packing can't tell apart into item types of `problem`, which has none yet.
    pub(super) fn merge(
        &self,
        tier: &Tier<'_>,
        groups: &BlockGroups,
        choices: &TierChoices,
        items: &[Item],
        problem: PackingProblem,
    ) -> Merged {
        let mut merged =
            Merged { problem, compat_sets: CompatibilitySets::default(), sources: IndexVec::new() };
        let Merged { problem, compat_sets, sources } = &mut merged;
        let mut numbers: FxHashMap<Key, ItemTypeIx> = FxHashMap::default();
        let mut known: FxHashMap<_, SmallVec<[(VariantIx, CompatSetIx); 2]>> = FxHashMap::default();
        let limited = problem.variants.iter().any(|v| !v.limits.is_empty());
        let required = problem.host_affinity.clone();
        let has_queue_order = |topology: &Topology| {
            topology.host_affinity.is_some()
                || topology.host_matching_groups.iter().any(|group| required.contains(group))
        };
        for item in items {
            let class = tier.block.classes[item.class].class;
            let options = known.entry((item.class, item.domain_set)).or_insert_with(|| {
                let mut list = SmallVec::new();
                for (variant, bits) in choices.options.get(&item.class).into_iter().flatten() {
                    let bits = match item.domain_set {
                        Some(domain_set) => bits.and(&choices.view.domain_sets[domain_set].offers[*variant]),
                        None => bits.clone(),
                    };
                    if let Some(compat_set) = compat_sets.number(problem, *variant, bits) {
                        list.push((*variant, compat_set));
                    }
                }
                list
            });
            let priority = self.demand.classes[class].priority;
            let key = Key {
                priority: if limited { tier.turn_of(item.class, priority) } else { 0 },
                queue_priority: if has_queue_order(&groups.of[item.class]) { priority } else { 0 },
                size: self.size(tier, class),
                options: options.clone(),
                rules: self.rules(groups, item, class),
            };
            let number = *numbers.entry(key).or_insert_with_key(|key| {
                problem.sizes.push(&key.size);
                problem.item_types.push(ItemType {
                    options: key.options.clone(),
                    rules: key.rules.clone(),
                    count: 0,
                    priority: key.priority,
                    queue_priority: key.queue_priority,
                });
                sources.push(Vec::new())
            });
            problem.item_types[number].count += item.count;
            sources[number].push(*item);
        }
        merged
    }

    fn rules(&self, groups: &BlockGroups, item: &Item, class: ClassIx) -> Option<Box<Rules>> {
        let topology = &groups.of[item.class];
        let it = &self.demand.classes[class];
        let mut caps: Vec<(GroupIx, u32)> = topology
            .host_spreads
            .iter()
            .map(|rule| (rule.group, u32::try_from(rule.max_skew).unwrap_or(u32::MAX)))
            .collect();
        for g in &topology.host_anti_affinity {
            caps.push((*g, u32::from(topology.host_matching_groups.contains(g))));
        }
        caps.sort_unstable();
        let share = self.options.max_share_percent;
        let most = if share == 0 {
            u32::MAX
        } else {
            let pods = u64::try_from(it.pods.len()).unwrap_or(u64::MAX);
            u32::try_from((pods.saturating_mul(u64::from(share)) / 100).max(1)).unwrap_or(u32::MAX)
        };
        let rules = Rules {
            counts: topology.host_matching_groups.as_slice().into(),
            caps: caps.into(),
            apart: topology.host_anti_affinity.as_slice().into(),
            needs: topology.host_affinity.into_iter().collect(),
            may_be_first: topology.may_be_first,
            ports: it.shape(self.cluster).ports.clone(),
            most,
        };
        (rules != Rules { most: u32::MAX, ..Rules::default() }).then(|| Box::new(rules))
    }

    /// The same instance at the same price in the zone that its pods prefer.
    fn preferred_offer(
        &self,
        ctx: &VariantCtx,
        bits: &OfferSet,
        offer: OfferIx,
        content: &[Item<ClassIx>],
        counts: &mut PreferenceCounts,
    ) -> OfferIx {
        let classes = || content.iter().map(|item| (&self.demand.classes[item.class], item.count));
        let value = |o: OfferIx| {
            let (_, variant) = self.variant(ctx.from);
            // A new instance is a host of its own in every zone.
            move |key: Sym| {
                if key == self.cluster.keys.hostname {
                    return None;
                }
                variant.value(&self.cluster.keys, &ctx.catalog, o, key)
            }
        };
        let mut best = offer;
        if classes().any(|(class, _)| preferences::class_preferences(self.cluster, class).next().is_some()) {
            let Some(own) = ctx.catalog.offers.find(offer) else { return offer };
            let mut most = i64::MIN;
            for (number, it) in ctx.catalog.offers_of(own.kind) {
                let same = it.capacity == own.capacity && ctx.table.cost(number) == ctx.table.cost(offer);
                if !same || !bits.contains(number) {
                    continue;
                }
                let score = classes().fold(0i64, |sum, (class, n)| {
                    let one = counts.score(self.cluster, self.demand, class, value(number));
                    sum.saturating_add(one.saturating_mul(i64::from(n)))
                });
                if score > most || (score == most && number == offer) {
                    (most, best) = (score, number);
                }
            }
        }
        for (class, n) in classes() {
            counts.record(class, n, value(best));
        }
        best
    }

    /// Index of the item, among items alike to the packing, that prefers the pods in `content` most.
    fn preferring_item(&self, tier: &Tier<'_>, items: &[Item], content: &[Item<ClassIx>]) -> usize {
        let host = self.cluster.keys.hostname;
        let score = |item: &Item| -> i64 {
            let class = &self.demand.classes[tier.block.classes[item.class].class];
            let on_host = preferences::class_preferences(self.cluster, class).filter(|p| p.key == host);
            on_host.fold(0i64, |sum, preference| {
                let there =
                    content.iter().filter(|it| self.demand.classes[it.class].matches(preference.selector));
                let count: i64 = there.map(|it| i64::from(it.count)).sum();
                sum.saturating_add(preference.weight.saturating_mul(count))
            })
        };
        // The last of the best, since items are taken from the end.
        items
            .iter()
            .map(score)
            .enumerate()
            .max_by_key(|(index, score)| (*score, *index))
            .map_or(0, |(index, _)| index)
    }

    /// True if the class of some of `items` prefers pods on its host, so that it matters which of them is taken.
    fn has_host_preference(&self, tier: &Tier<'_>, items: &[Item]) -> bool {
        let host = self.cluster.keys.hostname;
        let class = |item: &Item| &self.demand.classes[tier.block.classes[item.class].class];
        let prefers = |item: &Item| {
            preferences::class_preferences(self.cluster, class(item)).any(|preference| preference.key == host)
        };
        items.len() > 1 && items.iter().any(prefers)
    }

    /// Turns bins into launches; returns unplaced pods.
    pub(super) fn collect(
        &self,
        tier: &Tier<'_>,
        merged: Merged,
        outcome: Outcome,
        out: &mut Solved,
    ) -> Vec<Item> {
        let Merged { problem, compat_sets, mut sources } = merged;
        let mut counts = PreferenceCounts::default();
        let choosy: IndexVec<ItemTypeIx, bool> =
            sources.iter().map(|items| self.has_host_preference(tier, items)).collect();
        for bin in &outcome.bins {
            let ctx = &problem.variants[bin.variant];
            let mut used = vec![0i64; problem.d];
            let mut content: Vec<Item<ClassIx>> = Vec::new();
            for (item_type, count) in &bin.pattern {
                for (u, s) in used.iter_mut().zip(problem.size(*item_type)) {
                    *u = u.saturating_add(s.saturating_mul(i64::from(*count)));
                }
                let (items, choosy) = (&mut sources[*item_type], choosy[*item_type]);
                let mut need = *count;
                while need > 0 {
                    let last = items.len().saturating_sub(1);
                    let index = if choosy { self.preferring_item(tier, items, &content) } else { last };
                    let Some(item) = items.get_mut(index) else { break };
                    let take = if choosy { 1 } else { need.min(item.count) };
                    let class = tier.block.classes[item.class].class;
                    add(&mut content, Item { class, domain_set: item.domain_set, count: take });
                    item.count -= take;
                    need -= take;
                    if item.count == 0 {
                        items.remove(index);
                    }
                }
            }
            let offer =
                self.preferred_offer(ctx, compat_sets.bits(bin.compat_set), bin.offer, &content, &mut counts);
            out.launches.push(Launch {
                from: ctx.from,
                offer,
                bits: compat_sets.bits(bin.compat_set).clone(),
                table: Arc::clone(&ctx.table),
                dims: Arc::clone(&tier.dims),
                used,
                content,
                limited: ctx.limits.iter().any(|l| self.limits.has_amounts(*l))
                    || !self.cluster.limits.is_empty(),
            });
        }
        let mut failed: Vec<Item> = Vec::new();
        sources.into_iter().flatten().for_each(|item| add(&mut failed, item));
        failed
    }
}

/// Adds pods to those of the same class and domain set.
fn add<C: PartialEq>(list: &mut Vec<Item<C>>, more: Item<C>) {
    match list.iter_mut().find(|it| it.class == more.class && it.domain_set == more.domain_set) {
        Some(it) => it.count += more.count,
        None => list.push(more),
    }
}
