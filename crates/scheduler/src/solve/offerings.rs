//! Offerings that a class may use, and the domain sets that topology keys partition them into.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError},
};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    existing::cache::{DomainOffers, DomainOffersKey},
    ids::{ClassIx, DomainOffersIx, DomainSetIx, LocalClassIx, OfferIx, PoolVariant, VariantIx},
    index_vec::IndexVec,
    packing::problem::fits,
    solve::{
        block::{Allowed, Context, Launch},
        findings::Findings,
        tier_packing::{ChoiceInput, ClassOptions, Tier, TierChoices, TierClass, Turn},
    },
    state::{catalog_index::OfferSet, interner::Sym, pod_shape::FilterId, requests::amount, taint},
    topology::{
        domains::{Choice, DomainSet, Item, OvertakenPods, TopologyView},
        groups::BlockGroups,
    },
};

impl Context<'_> {
    /// Available offerings of the tier's variants that the class may use and that are large enough; true if
    /// the class has more than it prefers.
    pub(super) fn options_of(
        &self,
        tier: &Tier<'_>,
        local: LocalClassIx,
        turn: Turn,
        findings: &Findings,
    ) -> (ClassOptions, bool) {
        let class = tier.block.classes[local].class;
        let size = self.size(tier, class);
        let mut result = SmallVec::new();
        for a in self.allowed[class].iter().filter(|a| self.weight(a) == turn.weight) {
            let Some(variant) = tier.variants.position(|v| *v == a.from) else { continue };
            let table = &tier.tables[variant];
            let mut open = a.bits.and(&self.pools[a.from.pool].catalog.available);
            if let Some(bounded) = tier.bounded[variant].as_ref().filter(|_| !turn.bounded) {
                open.take_away(bounded);
            }
            // The maximal offerings decide whether anything fits; the packing checks sizes again.
            let edges = table.edges(&open);
            if edges.maximal.iter().any(|offer| fits(&size, table.row(*offer)) > 0) {
                result.push((variant, open));
            }
        }
        let narrowed = !findings.widened.contains(&local) && self.prefer(tier, class, &mut result);
        (result, narrowed)
    }

    /// Narrows offerings to what the class prefers, heaviest preference first, wherever that costs nothing:
    /// every non-dominated instance must be left at the same price. Returns whether any offering is left out.
    pub(super) fn prefer(&self, tier: &Tier<'_>, class: ClassIx, options: &mut ClassOptions) -> bool {
        let cluster = self.cluster;
        let mut some = false;
        for (_, term) in &self.demand.classes[class].shape(cluster).preferred_nodes {
            let narrowed: ClassOptions = options
                .iter()
                .map(|(variant, bits)| {
                    let (rec, it) = self.variant(tier.variants[*variant]);
                    let with = it.preferred(&cluster.tables.symbols, &cluster.keys, &rec.catalog, term);
                    (*variant, bits.and(&with))
                })
                .collect();
            let free = options.iter().zip(&narrowed).all(|((variant, all), (_, some))| {
                let table = &tier.tables[*variant];
                let (all, some) = (table.edges(all), table.edges(some));
                all.ladder.len() == some.ladder.len()
                    && all
                        .ladder
                        .iter()
                        .zip(&some.ladder)
                        .all(|(a, b)| table.cost(*a) == table.cost(*b) && table.row(*a) == table.row(*b))
            });
            if free && self.may_keep_spreads(tier, class, options, &narrowed) {
                some |= *options != narrowed;
                *options = narrowed;
            }
        }
        some
    }

    /// True if the pods of the class keep their topology spread constraints in the domains that are left of `options` in
    /// `narrowed`: a domain that only a preference leaves out counts, as one with few pods.
    fn may_keep_spreads(
        &self,
        tier: &Tier<'_>,
        class: ClassIx,
        options: &ClassOptions,
        narrowed: &ClassOptions,
    ) -> bool {
        let cluster = self.cluster;
        let pods = self.demand.classes[class].pods.len();
        let domains = |options: &ClassOptions, key: Sym| -> BTreeSet<Sym> {
            let values = options.iter().flat_map(|(variant, bits)| {
                let (rec, it) = self.variant(tier.variants[*variant]);
                bits.iter().filter_map(move |offer| it.value(&cluster.keys, &rec.catalog, offer, key))
            });
            values.collect()
        };
        let spreads = self.demand.classes[class].shape(cluster).spreads.iter();
        spreads.filter(|spread| spread.hard && spread.key != cluster.keys.hostname).all(|spread| {
            let (all, left) = (domains(options, spread.key), domains(narrowed, spread.key));
            let most = usize::try_from(spread.max_skew).unwrap_or(1);
            all == left || pods <= left.len().saturating_mul(most)
        })
    }

    pub(super) fn size(&self, tier: &Tier<'_>, class: ClassIx) -> SmallVec<[i64; 4]> {
        let requests = &self.demand.classes[class].requests;
        tier.dims.iter().map(|dim| amount(requests, *dim)).collect()
    }

    /// The domain sets: every combination of the domains that some group of the block reads.
    pub(super) fn view(&self, tier: &Tier<'_>, groups: &BlockGroups) -> TopologyView {
        let mut keys: Vec<Sym> =
            groups.list.iter().map(|g| g.key).filter(|k| *k != self.cluster.keys.hostname).collect();
        keys.sort_unstable_by_key(|k| self.cluster.tables.symbols.text(*k));
        keys.dedup();
        let mut view = TopologyView {
            keys,
            domain_sets: IndexVec::new(),
            opened: Arc::clone(&self.opened),
            counts_opened_only: false,
        };
        if view.keys.is_empty() {
            return view;
        }
        let nothing: IndexVec<VariantIx, OfferSet> = tier
            .variants
            .iter()
            .map(|from| OfferSet::none(self.pools[from.pool].catalog.offers.len()))
            .collect();
        for (variant, from) in tier.variants.enumerate() {
            let (rec, it) = self.variant(*from);
            let open = it.allowed.and(&rec.catalog.available);
            for DomainOffers { values, offers } in self.domain_offers(*from, &view.keys).iter() {
                let offers = offers.and(&open);
                if offers.is_empty() {
                    continue;
                }
                let number = view.domain_sets.position(|c| c.values == *values).unwrap_or_else(|| {
                    view.domain_sets.push(DomainSet {
                        values: values.clone(),
                        offers: nothing.clone(),
                        whole: DomainSetIx::NONE,
                        fails: SmallVec::new(),
                    })
                });
                view.domain_sets[number].offers[variant] = offers;
            }
        }
        let text = |v: &Option<Sym>| v.map(|v| self.cluster.tables.symbols.text(v));
        view.domain_sets
            .sort_by_cached_key(|c| c.values.iter().map(|v| text(v).map(str::to_owned)).collect::<Vec<_>>());
        for (number, domain_set) in view.domain_sets.enumerate_mut() {
            domain_set.whole = number;
        }
        view
    }

    /// The catalogue of a variant, partitioned by the values of `keys`. Variants with the same labels share
    /// it.
    pub(super) fn domain_offers(&self, from: PoolVariant, keys: &[Sym]) -> Arc<[DomainOffers]> {
        let (rec, it) = self.variant(from);
        let own = keys.iter().map(|k| crate::state::interner::label(&it.labels, *k)).collect();
        let key = DomainOffersKey { catalog: Arc::as_ptr(&rec.catalog).addr(), keys: keys.to_vec(), own };
        let mut known = self.cache.domain_offers.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = known.entry(key).or_insert_with(|| {
            let size = rec.catalog.offers.len();
            let mut numbers: FxHashMap<Vec<Option<Sym>>, DomainOffersIx> = FxHashMap::default();
            let mut parts: IndexVec<DomainOffersIx, DomainOffers> = IndexVec::new();
            for offer in rec.catalog.offers.ids() {
                let values =
                    keys.iter().map(|k| it.value(&self.cluster.keys, &rec.catalog, offer, *k)).collect();
                let number = *numbers.entry(values).or_insert_with_key(|values| {
                    parts.push(DomainOffers { values: values.clone(), offers: OfferSet::none(size) })
                });
                parts[number].offers.insert(offer);
            }
            parts.into_iter().collect()
        });
        Arc::clone(parts)
    }

    /// The domain sets that a class may choose, and the groups that count it there.
    pub(super) fn choice(
        &self,
        input: ChoiceInput<'_>,
        view: &mut TopologyView,
        wanted: TierClass,
        options: &[(VariantIx, OfferSet)],
    ) -> Choice {
        let ChoiceInput { tier, groups, findings } = input;
        let TierClass { local, count, .. } = wanted;
        let class = tier.block.classes[local].class;
        let topology = &groups.of[local];
        let mut choice = Choice {
            class: local,
            count,
            priority: self.demand.classes[class].priority,
            domain_sets: Vec::new(),
            limited_room: findings.limited_room_of(local).map(|((_, c), n)| (*c, *n)).collect(),
            counting_groups: Vec::new(),
            undecided_filters: SmallVec::new(),
        };
        if !topology.needs_domain() && topology.host_affinity.is_none() {
            return choice;
        }
        let size = self.size(tier, class);
        let filters: SmallVec<[FilterId; 2]> = findings
            .partitioned
            .range((local, FilterId::LEAST)..=(local, FilterId::NONE))
            .map(|(_, f)| *f)
            .collect();
        for number in self.domain_sets(tier, view, &filters) {
            let domain_set = &view.domain_sets[number];
            let mut cheapest = None;
            for (variant, bits) in options {
                let table = &tier.tables[*variant];
                let in_domain_set = bits.and(&domain_set.offers[*variant]);
                if in_domain_set.is_empty() {
                    continue;
                }
                let edges = table.edges(&in_domain_set);
                let fit = edges.ladder.iter().find(|o| fits(&size, table.row(**o)) > 0);
                if let Some(cost) = fit.map(|o| table.cost(*o)) {
                    cheapest = Some(cheapest.map_or(cost, |c: i64| c.min(cost)));
                }
            }
            choice.domain_sets.extend(cheapest.map(|cost| (number, cost)));
        }
        for g in &topology.matching_groups {
            let Some(filter) = groups.list[*g].filter else {
                choice.counting_groups.push(*g);
                continue;
            };
            let (mut some, mut all) = (false, true);
            for (variant, bits) in options {
                let mut rest = bits.clone();
                rest.take_away(&self.passing(tier, *variant, filter));
                all &= rest.is_empty();
                some |= rest != *bits;
            }
            if some {
                choice.counting_groups.push(*g);
                if !all && !choice.undecided_filters.contains(&filter) {
                    choice.undecided_filters.push(filter);
                }
            }
        }
        choice
    }

    /// The domain sets of a class: whole ones, or their parts where some offerings pass one of `filters` and
    /// others don't.
    fn domain_sets(
        &self,
        tier: &Tier<'_>,
        view: &mut TopologyView,
        filters: &[FilterId],
    ) -> Vec<DomainSetIx> {
        let wholes: Vec<DomainSetIx> =
            view.domain_sets.enumerate().filter(|(set, c)| c.whole == *set).map(|(set, _)| set).collect();
        if filters.is_empty() {
            return wholes;
        }
        let mut result = Vec::new();
        for whole in wholes {
            let mut parts = vec![(view.domain_sets[whole].offers.clone(), SmallVec::<[FilterId; 2]>::new())];
            for filter in filters {
                let passing: IndexVec<VariantIx, OfferSet> =
                    tier.variants.ids().map(|variant| self.passing(tier, variant, *filter)).collect();
                for (mut offers, mut fails) in std::mem::take(&mut parts) {
                    let pass: IndexVec<VariantIx, OfferSet> =
                        offers.iter().zip(&passing).map(|(o, p)| o.and(p)).collect();
                    offers.iter_mut().zip(&passing).for_each(|(o, p)| o.take_away(p));
                    parts.push((pass, fails.clone()));
                    fails.push(*filter);
                    parts.push((offers, fails));
                }
                parts.retain(|(offers, _)| offers.iter().any(|bits| !bits.is_empty()));
            }
            for (offers, fails) in parts {
                let same = |c: &DomainSet| c.whole == whole && c.offers == offers && c.fails == fails;
                let number = view.domain_sets.position(same).unwrap_or_else(|| {
                    let values = view.domain_sets[whole].values.clone();
                    view.domain_sets.push(DomainSet { values, offers, whole, fails })
                });
                result.push(number);
            }
        }
        result
    }

    /// Offerings of a variant whose nodes pass `filter`.
    fn passing(&self, tier: &Tier<'_>, variant: VariantIx, filter: FilterId) -> OfferSet {
        let tables = &self.cluster.tables;
        let keys = &self.cluster.keys;
        let filter = tables.filters.get(filter);
        let (rec, it) = self.variant(tier.variants[variant]);
        let size = rec.catalog.offers.len();
        if let Some(t) = filter.tolerations
            && taint::untolerated(tables.tolerations.get(t), &rec.taints).is_some()
        {
            return OfferSet::none(size);
        }
        let mut bits = OfferSet::all(size);
        for req in &filter.reqs {
            let req = tables.reqs.get(*req);
            bits.intersect(&it.req(&tables.symbols, keys, &rec.catalog, req));
        }
        for key in filter.keys.iter().map(|k| keys.canonical(*k)) {
            // Every new node has these, and the variant's own.
            let always = [keys.hostname, keys.zone, keys.capacity_type].contains(&key);
            if always || crate::state::interner::label(&it.labels, key).is_some() {
                continue;
            }
            let mut with = OfferSet::none(size);
            let has_label = |offer: &OfferIx| rec.catalog.value(keys, *offer, key).is_some();
            rec.catalog.offers.ids().filter(has_label).for_each(|offer| with.insert(offer));
            bits.intersect(&with);
        }
        bits
    }

    /// Classes and filters of planned instances that count differently than assumed. Alternatives of an
    /// instance are narrowed to those that count as it does.
    pub(super) fn miscounted(
        &self,
        tier: &Tier<'_>,
        choices: &TierChoices,
        launches: &mut [Launch],
    ) -> BTreeSet<(LocalClassIx, FilterId)> {
        let mut miscounted = BTreeSet::new();
        let undecided: FxHashMap<ClassIx, &Choice> = choices
            .list
            .iter()
            .filter(|c| !c.undecided_filters.is_empty())
            .map(|c| (tier.block.classes[c.class].class, c))
            .collect();
        if undecided.is_empty() {
            return miscounted;
        }
        let mut known: FxHashMap<(VariantIx, FilterId), OfferSet> = FxHashMap::default();
        for launch in launches {
            let Some(variant) = tier.variants.position(|from| *from == launch.from) else { continue };
            let has_min_values = !self.pools[launch.from.pool].min_values.is_empty();
            for Item { class, domain_set, .. } in &launch.content {
                let Some(choice) = undecided.get(class) else { continue };
                for filter in &choice.undecided_filters {
                    if domain_set.is_some_and(|c| choices.view.domain_sets[c].fails.contains(filter)) {
                        continue;
                    }
                    let passing = known
                        .entry((variant, *filter))
                        .or_insert_with(|| self.passing(tier, variant, *filter));
                    let narrowed = launch.bits.and(passing);
                    if !passing.contains(launch.offer) || has_min_values && narrowed != launch.bits {
                        miscounted.insert((choice.class, *filter));
                    } else {
                        launch.bits = narrowed;
                    }
                }
            }
        }
        miscounted
    }

    /// Classes of overtaken pods that are on an instance which an earlier class may use, with room for it: kube-scheduler counts
    /// only nominations of its priority and above.
    pub(super) fn overtaken(
        &self,
        tier: &Tier<'_>,
        overtaken: &[OvertakenPods],
        launches: &[Launch],
    ) -> BTreeSet<LocalClassIx> {
        let class_of = |local: LocalClassIx| tier.block.classes[local].class;
        let has_room = |launch: &Launch, class: ClassIx| {
            let priority_of = |class: ClassIx| self.demand.classes[class].priority;
            let mut free = launch.table.row(launch.offer).to_vec();
            for item in launch.content.iter().filter(|item| priority_of(item.class) >= priority_of(class)) {
                for (free, size) in free.iter_mut().zip(self.size(tier, item.class)) {
                    *free = free.saturating_sub(size.saturating_mul(i64::from(item.count)));
                }
            }
            let is_allowed = |a: &Allowed| a.from == launch.from && a.bits.contains(launch.offer);
            self.allowed[class].iter().any(is_allowed) && fits(&self.size(tier, class), &free) > 0
        };
        let loses_place = |pods: &&OvertakenPods| {
            let is_theirs = |item: &Item<ClassIx>| {
                item.class == class_of(pods.class) && item.domain_set == Some(pods.domain_set)
            };
            let mut theirs = launches.iter().filter(|launch| launch.content.iter().any(is_theirs));
            theirs.any(|launch| has_room(launch, class_of(pods.earlier)))
        };
        overtaken.iter().filter(loses_place).map(|pods| pods.class).collect()
    }
}
