//! Items to item types before packing, and bins to launches after it.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    model::bit_set::BitSet,
    packing::{
        compatibility::CompatibilitySets,
        portfolio::Outcome,
        problem::{ItemType, PackingProblem, Rules, VariantCtx},
    },
    solve::tiers::{Context, Launch, Solved, Tier},
    state::interner::Sym,
    topology::{
        domains::{Item, TopologyView},
        groups::Groups,
        preferences::{self, Tally},
    },
};

#[expect(
    clippy::indexing_slicing,
    reason = "classes, pools and variants are numbered by the lists that they index"
)]
impl Context<'_> {
    /// Merges items that the packing can't tell apart into item types. Returns the items of each item type.
    #[expect(clippy::too_many_arguments, reason = "one step of pack_tier, which owns all of these")]
    pub(super) fn kinds(
        &self,
        tier: &Tier<'_>,
        groups: &Groups,
        view: &TopologyView,
        items: &[Item],
        compat_sets_of: &FxHashMap<usize, SmallVec<[(u32, BitSet); 2]>>,
        problem: &mut PackingProblem,
        compat_sets: &mut CompatibilitySets,
    ) -> Vec<Vec<Item>> {
        type Key = (i32, SmallVec<[i64; 4]>, SmallVec<[(u32, u32); 2]>, Option<Box<Rules>>);
        let mut numbers: FxHashMap<Key, usize> = FxHashMap::default();
        let mut sources: Vec<Vec<Item>> = Vec::new();
        type Options = SmallVec<[(u32, u32); 2]>;
        let mut known: FxHashMap<(usize, Option<usize>), Options> = FxHashMap::default();
        let limited = problem.variants.iter().any(|v| !v.limits.is_empty());
        for item in items {
            let class = tier.block.classes[item.class].0;
            let options = known.entry((item.class, item.domain_set)).or_insert_with(|| {
                let mut list = SmallVec::new();
                for (at, bits) in compat_sets_of.get(&item.class).into_iter().flatten() {
                    let bits = match item.domain_set {
                        Some(domain_set) => bits.and(&view.domain_sets[domain_set].offers[*at as usize]),
                        None => bits.clone(),
                    };
                    if let Some(compat_set) = compat_sets.number(problem, *at, bits) {
                        list.push((*at, compat_set));
                    }
                }
                list
            });
            let priority = if limited { self.demand.classes[class].priority } else { 0 };
            let key = (priority, self.size(tier, class), options.clone(), self.rules(groups, item, class));
            let number = *numbers.entry(key).or_insert_with_key(|(priority, size, options, rules)| {
                problem.sizes.extend_from_slice(size);
                problem.item_types.push(ItemType {
                    options: options.clone(),
                    rules: rules.clone(),
                    count: 0,
                    priority: *priority,
                });
                sources.push(Vec::new());
                sources.len() - 1
            });
            problem.item_types[number].count += item.count;
            sources[number].push(*item);
        }
        sources
    }

    pub(super) fn rules(&self, groups: &Groups, item: &Item, class: usize) -> Option<Box<Rules>> {
        let topology = &groups.of[item.class];
        let it = &self.demand.classes[class];
        let number = |g: usize| u32::try_from(g).unwrap_or(u32::MAX);
        let mut caps: Vec<(u32, u32)> = topology
            .host_spreads
            .iter()
            .map(|rule| (number(rule.group), u32::try_from(rule.max_skew).unwrap_or(u32::MAX)))
            .collect();
        for g in &topology.host_anti {
            caps.push((number(*g), u32::from(topology.host_counted.contains(g))));
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
            counts: topology.host_counted.iter().map(|g| number(*g)).collect(),
            caps: caps.into(),
            apart: topology.host_anti.iter().map(|g| number(*g)).collect(),
            needs: topology.host_near.iter().map(|g| number(*g)).collect(),
            starts: topology.starts,
            ports: it.shape(self.cluster).ports.clone(),
            most,
        };
        (rules != Rules { most: u32::MAX, ..Rules::default() }).then(|| Box::new(rules))
    }

    /// The same instance at the same price in the zone that its pods prefer.
    fn softly(
        &self,
        ctx: &VariantCtx,
        bits: &BitSet,
        offer: u32,
        content: &[(usize, Option<usize>, u32)],
        tally: &mut Tally,
    ) -> u32 {
        let classes = || content.iter().map(|(class, _, n)| (&self.demand.classes[*class], *n));
        let value = |o: u32| {
            let variant = &self.pools[ctx.pool].variants[ctx.variant];
            // A new instance is a host of its own in every zone.
            move |key: Sym| {
                if key == self.cluster.keys.hostname {
                    return None;
                }
                variant.value(&self.cluster.keys, &ctx.catalog, o as usize, key)
            }
        };
        let mut best = offer;
        if classes().any(|(class, _)| preferences::wishes(self.cluster, class).next().is_some()) {
            let own = &ctx.catalog.offers[offer as usize];
            let mut most = i64::MIN;
            for (o, it) in ctx.catalog.numbered(own.kind) {
                let Ok(number) = u32::try_from(o) else { continue };
                let same = it.capacity == own.capacity && ctx.table.cost[o] == ctx.table.cost[offer as usize];
                if !same || !bits.contains(o) {
                    continue;
                }
                let score = classes().fold(0i64, |sum, (class, n)| {
                    let one = tally.score(self.cluster, self.demand, class, value(number));
                    sum.saturating_add(one.saturating_mul(i64::from(n)))
                });
                if score > most || (score == most && number == offer) {
                    (most, best) = (score, number);
                }
            }
        }
        for (class, n) in classes() {
            tally.note(class, n, value(best));
        }
        best
    }

    /// Index of the item, among items alike to the packing, that prefers the pods in `content` most.
    fn willing(&self, tier: &Tier<'_>, items: &[Item], content: &[(usize, Option<usize>, u32)]) -> usize {
        let host = self.cluster.keys.hostname;
        let score = |item: &Item| -> i64 {
            let class = &self.demand.classes[tier.block.classes[item.class].0];
            let wishes = preferences::wishes(self.cluster, class).filter(|w| w.key == host);
            wishes.fold(0i64, |sum, wish| {
                let there = content.iter().filter(|(c, _, _)| self.demand.classes[*c].matches(wish.selector));
                let count: i64 = there.map(|(_, _, n)| i64::from(*n)).sum();
                sum.saturating_add(wish.weight.saturating_mul(count))
            })
        };
        // The last of the best, since items are taken from the end.
        (0..items.len()).max_by_key(|at| (score(&items[*at]), *at)).unwrap_or(0)
    }

    /// Turns bins into launches; returns (local class, domain set, count) of unplaced pods.
    pub(super) fn collect(
        &self,
        tier: &Tier<'_>,
        problem: &PackingProblem,
        compat_sets: &CompatibilitySets,
        outcome: Outcome,
        mut sources: Vec<Vec<Item>>,
        out: &mut Solved,
    ) -> Vec<(usize, Option<usize>, u32)> {
        let mut tally = Tally::default();
        let host = self.cluster.keys.hostname;
        let choosy: Vec<bool> = sources
            .iter()
            .map(|items| {
                let class = |item: &Item| &self.demand.classes[tier.block.classes[item.class].0];
                let wishes =
                    |item: &Item| preferences::wishes(self.cluster, class(item)).any(|w| w.key == host);
                items.len() > 1 && items.iter().any(wishes)
            })
            .collect();
        for bin in &outcome.bins {
            let ctx = &problem.variants[bin.variant as usize];
            let mut used = vec![0i64; problem.d];
            let mut content: Vec<(usize, Option<usize>, u32)> = Vec::new();
            for (kind, count) in &bin.pattern {
                let kind = *kind as usize;
                for (u, s) in used.iter_mut().zip(problem.size(kind)) {
                    *u = u.saturating_add(s.saturating_mul(i64::from(*count)));
                }
                let mut need = *count;
                while need > 0 && !sources[kind].is_empty() {
                    let at = if choosy[kind] {
                        self.willing(tier, &sources[kind], &content)
                    } else {
                        sources[kind].len() - 1
                    };
                    let item = &mut sources[kind][at];
                    let take = if choosy[kind] { 1 } else { need.min(item.count) };
                    let (class, domain_set) = (tier.block.classes[item.class].0, item.domain_set);
                    match content.iter_mut().find(|(c, e, _)| (*c, *e) == (class, domain_set)) {
                        Some((_, _, n)) => *n += take,
                        None => content.push((class, domain_set, take)),
                    }
                    item.count -= take;
                    need -= take;
                    if item.count == 0 {
                        sources[kind].remove(at);
                    }
                }
            }
            let offer = self.softly(ctx, compat_sets.bits(bin.compat_set), bin.offer, &content, &mut tally);
            out.launches.push(Launch {
                pool: ctx.pool,
                variant: ctx.variant,
                offer,
                bits: compat_sets.bits(bin.compat_set).clone(),
                table: Arc::clone(&ctx.table),
                dims: Arc::clone(&tier.dims),
                used,
                content,
                limited: !ctx.limits.is_empty() || !self.cluster.limits.is_empty(),
            });
        }
        let mut failed: Vec<(usize, Option<usize>, u32)> = Vec::new();
        for item in sources.into_iter().flatten() {
            match failed
                .iter_mut()
                .find(|(class, domain_set, _)| (*class, *domain_set) == (item.class, item.domain_set))
            {
                Some((_, _, n)) => *n += item.count,
                None => failed.push((item.class, item.domain_set, item.count)),
            }
        }
        failed
    }
}
