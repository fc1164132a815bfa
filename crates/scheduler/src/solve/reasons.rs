//! Why a pod is unschedulable, pool by pool: the first constraint that leaves no offering, with the number that would
//! suffice.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rustc_hash::FxHashMap;

use crate::{
    demand::{Cause, Class},
    ids::{ClassIx, LimitIx, OfferIx, PoolIx, PoolVariant, PoolVariantIx},
    index_vec::IndexVec,
    model::{
        plan::{LimitOwner, REPLICAS, ReachedLimit, Reason, ReasonKind},
        resources::{Round, is_given_later, readable},
    },
    packing::problem::Limit,
    solve::{
        block::Context,
        limit_reasons::{full_limit, limit, reached},
    },
    state::{
        attachments::Dimension, catalog_index::OfferSet, interner::Sym, node_requirement::NodeReq,
        pool::PoolRec, requests::ResourceId, taint,
    },
};

/// A class that stays unschedulable, and the constraint that kept it out, if it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UnplacedClass {
    pub(crate) class: ClassIx,
    pub(crate) kind: Option<ReasonKind>,
}

/// Reasons, computed once per class.
pub(crate) struct Reasons<'a> {
    context: &'a Context<'a>,
    /// The rest of each limit once the planned instances are there.
    left: IndexVec<LimitIx, Limit>,
    known: FxHashMap<UnplacedClass, Arc<[Reason]>>,
}

impl<'a> Reasons<'a> {
    pub(crate) fn new(context: &'a Context<'a>, left: IndexVec<LimitIx, Limit>) -> Self {
        Self { context, left, known: FxHashMap::default() }
    }

    /// One reason per pool, by name, and per template in their order.
    pub(crate) fn of(&mut self, unplaced: UnplacedClass) -> Arc<[Reason]> {
        if let Some(known) = self.known.get(&unplaced) {
            return Arc::clone(known);
        }
        let reasons: Arc<[Reason]> = find(self.context, &self.left, unplaced).into();
        self.known.insert(unplaced, Arc::clone(&reasons));
        reasons
    }
}

fn find(context: &Context<'_>, limits: &IndexVec<LimitIx, Limit>, unplaced: UnplacedClass) -> Vec<Reason> {
    let Some(class) = context.demand.classes.find(unplaced.class) else { return Vec::new() };
    if context.pools.is_empty() {
        let detail = "there is no pool".to_owned();
        return vec![Reason { pool: String::new(), reason: ReasonKind::NoPools, detail, limit: None }];
    }
    let one = |(number, rec): (PoolIx, &&PoolRec)| {
        let mut reason = of_template(context, limits, class, number, unplaced);
        let template = &rec.pool.template;
        if !template.is_empty() {
            reason.detail = format!("template {template}: {}", reason.detail);
        }
        reason
    };
    context.pools.enumerate().map(one).collect()
}

/// Why a pool with one kind of node, or one template of another, can't take the pods.
fn of_template(
    context: &Context<'_>,
    limits: &IndexVec<LimitIx, Limit>,
    class: &Class,
    number: PoolIx,
    unplaced: UnplacedClass,
) -> Reason {
    match suiting(context, class, number, unplaced) {
        Ok(open) => limited(context, limits, class, number, unplaced, &open),
        Err(Cause { kind: reason, detail }) => {
            let rec = &context.pools[number].pool;
            let pool = rec.name.clone();
            // Of the reasons without a node that would suit, a limit is that of a fixed size alone.
            let limit = (reason == ReasonKind::PoolLimit).then(|| ReachedLimit {
                owner: match rec.template_replicas {
                    Some(_) => LimitOwner::Template { pool: pool.clone(), name: rec.template.clone() },
                    None => LimitOwner::Pool(pool.clone()),
                },
                resources: vec![REPLICAS.to_owned()],
            });
            Reason { pool, reason, detail, limit }
        }
    }
}

/// Offerings of the pool that would hold the pod and suit it, limits aside; the reason if there is none.
fn suiting(
    context: &Context<'_>,
    class: &Class,
    number: PoolIx,
    unplaced: UnplacedClass,
) -> Result<IndexVec<PoolVariantIx, OfferSet>, Cause> {
    let rec = context.pools[number];
    let requests = &*class.requests;
    let left = suitable(context, class, rec)?;
    let name = &rec.pool.name;
    if let Some(replicas) = rec.pool.replicas {
        let detail =
            format!("{name} has a fixed size (replicas: {replicas}), and none of its nodes has room");
        return Err(Cause { kind: ReasonKind::PoolLimit, detail });
    }
    if let Some(replicas) = rec.pool.template_replicas {
        let detail = format!("it has a fixed size (replicas: {replicas}), and none of its nodes has room");
        return Err(Cause { kind: ReasonKind::PoolLimit, detail });
    }
    if let Some(why) = &rec.pool.held {
        let detail = format!("{name} launches nothing for now: {why}");
        return Err(Cause { kind: ReasonKind::LaunchBackoff, detail });
    }
    if !context.options.templates.allow(name, &rec.pool.template) {
        let detail = "no node of it may take the place of these".to_owned();
        return Err(Cause { kind: ReasonKind::NoCapacity, detail });
    }
    if let Some(cause) = resources(context, number, class, &left) {
        return Err(cause);
    }
    if !left.iter().any(|bits| bits.intersects(&rec.catalog.available)) {
        let detail = format!("what {name} offers and suits the pod is out of capacity now");
        return Err(Cause { kind: ReasonKind::NoCapacity, detail });
    }
    let mut open = left;
    open.iter_mut().for_each(|bits| bits.intersect(&rec.catalog.available));
    if let Some(Cause { detail, .. }) = resources(context, number, class, &open) {
        let detail = format!("what would be large enough is out of capacity now: {detail}");
        return Err(Cause { kind: ReasonKind::NoCapacity, detail });
    }
    if let Some(detail) = choice(context, number, requests, &open) {
        return Err(Cause { kind: ReasonKind::MinValues, detail });
    }
    let (kind, detail) = match unplaced.kind {
        Some(kind @ ReasonKind::TopologySpread) => (
            kind,
            "no domain that a node could be launched in keeps the skew of the topology spread constraint",
        ),
        Some(kind @ ReasonKind::PodAffinity) => {
            (kind, "no pod that the required pod affinity asks for is in reach")
        }
        Some(kind @ ReasonKind::PodAntiAffinity) => {
            (kind, "every domain holds a pod that required anti-affinity keeps apart")
        }
        _ => return Ok(open),
    };
    Err(Cause { kind, detail: detail.to_owned() })
}

/// Why no node of the pool is launched for a pod that the offerings in `open` suit: a limit, or the pod's domains.
fn limited(
    context: &Context<'_>,
    limits: &IndexVec<LimitIx, Limit>,
    class: &Class,
    number: PoolIx,
    unplaced: UnplacedClass,
    open: &IndexVec<PoolVariantIx, OfferSet>,
) -> Reason {
    let pool = context.pools[number].pool.name.clone();
    let offers = holding(context, number, &class.requests, open);
    let full = full_limit(context, limits, number, &offers);
    let in_its_domains = full.is_none().then(|| domain(context, class, number, open)).flatten();
    if let Some(Cause { kind: reason, detail }) = in_its_domains {
        return Reason { pool, reason, detail, limit: None };
    }
    let full = full.or_else(|| {
        // The limits leave room for a node, and the search found no better use of it.
        let any = context.limits.of.find(number).and_then(|of| of.first().copied());
        any.filter(|_| unplaced.kind == Some(ReasonKind::PoolLimit))
    });
    let found = full.and_then(|full| {
        let reached = reached(context, limits, full, number, &offers);
        let Cause { kind: reason, detail } = limit(context, full, number, &offers, reached.as_ref())?;
        Some(Reason { pool: pool.clone(), reason, detail, limit: reached })
    });
    found.unwrap_or_else(|| {
        let detail = format!("no node of {pool} has room beside what else it must hold");
        Reason { pool, reason: ReasonKind::InsufficientResources, detail, limit: None }
    })
}

/// Offerings of each variant whose labels and taints suit the class, available or not; the reason if there is none.
fn suitable(
    context: &Context<'_>,
    class: &Class,
    rec: &PoolRec,
) -> Result<IndexVec<PoolVariantIx, OfferSet>, Cause> {
    let cluster = context.cluster;
    let tables = &cluster.tables;
    let symbols = &tables.symbols;
    let name = &rec.pool.name;
    let tolerations = tables.tolerations.get(class.shape(cluster).tolerations);
    // First of all, so that what is wrong with the pod is said for the pools that are meant for it, and for no other tenant's.
    if let Some(taint) = taint::untolerated(tolerations, &rec.taints) {
        let detail = format!("the pod doesn't tolerate {}", taint.show(symbols));
        return Err(Cause { kind: ReasonKind::TaintNotTolerated, detail });
    }
    if let Some(cause) = &class.blocked {
        return Err(cause.clone());
    }
    if !rec.pool.launches && rec.pool.replicas.or(rec.pool.template_replicas).is_none() {
        // Its nodes may still have been what the pod waits for; first report what can never suit.
        let detail = format!("the nodes of {name} come from elsewhere");
        return Err(Cause { kind: ReasonKind::PoolNotProvisioned, detail });
    }
    if rec.variants.iter().all(|v| v.allowed.is_empty()) {
        let without = match &*rec.excluding {
            [] => String::new(),
            each => format!(": some would be left without {}", each.join(", or without ")),
        };
        let detail = format!("the requirements of {name} exclude every offering{without}");
        return Err(Cause { kind: ReasonKind::NoOfferings, detail });
    }
    let mut left: IndexVec<PoolVariantIx, OfferSet> =
        rec.variants.iter().map(|v| v.allowed.clone()).collect();
    for (position, req) in
        class.reqs.iter().map(|r| tables.reqs.get(*r)).chain(class.extra.iter()).enumerate()
    {
        let next: IndexVec<PoolVariantIx, OfferSet> = left
            .iter()
            .zip(rec.variants.iter())
            .map(|(bits, v)| bits.and(&v.req(symbols, &cluster.keys, &rec.catalog, req)))
            .collect();
        if next.iter().all(OfferSet::is_empty) {
            return Err(if position >= class.own_reqs {
                let detail = format!("no offering of {name} has {}, which a volume needs", req.show(symbols));
                Cause { kind: ReasonKind::VolumeTopology, detail }
            } else {
                let lacking = unsatisfied(context, class, rec).unwrap_or_else(|| req.show(symbols));
                let detail = format!("no offering of {name} has {lacking}");
                Cause { kind: ReasonKind::NodeAffinityMismatch, detail }
            });
        }
        left = next;
    }
    Ok(left)
}

/// The conditions on labels, of all that the pod itself has, without each of which some offering would remain; if there is no such
/// condition, those that no offering meets. `None` if each is met by some, and any two of them may be what excludes each other.
fn unsatisfied(context: &Context<'_>, class: &Class, rec: &PoolRec) -> Option<String> {
    let cluster = context.cluster;
    let (tables, symbols) = (&cluster.tables, &cluster.tables.symbols);
    let own = class.reqs.iter().take(class.own_reqs).map(|req| tables.reqs.get(*req));
    let parts: Vec<NodeReq> = own.flat_map(NodeReq::parts).collect();
    let offers = |part: &NodeReq| -> Vec<OfferSet> {
        rec.variants.iter().map(|v| v.req(symbols, &cluster.keys, &rec.catalog, part)).collect()
    };
    let sets: Vec<Vec<OfferSet>> = parts.iter().map(offers).collect();
    let remains_without = |left_out: usize| {
        rec.variants.iter().enumerate().any(|(variant, all)| {
            let others = sets.iter().enumerate().filter(|(part, _)| *part != left_out);
            let mut left = all.allowed.clone();
            others.filter_map(|(_, of)| of.get(variant)).for_each(|bits| left.intersect(bits));
            !left.is_empty()
        })
    };
    let alone = parts.iter().enumerate().filter(|(part, _)| remains_without(*part));
    let shown: Vec<String> = alone.map(|(_, part)| part.show(symbols)).collect();
    match shown.as_slice() {
        [] => {
            let is_met = |of: &Vec<OfferSet>| {
                rec.variants.iter().zip(of).any(|(variant, bits)| variant.allowed.intersects(bits))
            };
            let unmet = parts.iter().zip(&sets).filter(|(_, of)| !is_met(of));
            let unmet: Vec<String> = unmet.map(|(part, _)| part.show(symbols)).collect();
            (!unmet.is_empty()).then(|| unmet.join(", and none has "))
        }
        [one] => Some(one.clone()),
        several => Some(format!("{} together", several.join(" and "))),
    }
}

/// Offerings that hold the pod, of any variant.
fn holding(
    context: &Context<'_>,
    number: PoolIx,
    requests: &[(Dimension, i64)],
    open: &IndexVec<PoolVariantIx, OfferSet>,
) -> Vec<OfferIx> {
    let dims: Vec<Dimension> = requests.iter().map(|(id, _)| *id).collect();
    let mut list = Vec::new();
    for (variant, bits) in open.enumerate() {
        let table = context.table(PoolVariant { pool: number, variant }, &dims);
        let holds =
            |offer: &OfferIx| table.row(*offer).iter().zip(requests).all(|(row, (_, size))| row >= size);
        list.extend(bits.iter().filter(holds));
    }
    list
}

/// The resource that no offering has enough of; `None` if some offering is large enough.
fn resources(
    context: &Context<'_>,
    number: PoolIx,
    class: &Class,
    left: &IndexVec<PoolVariantIx, OfferSet>,
) -> Option<Cause> {
    let rec = context.pools[number];
    let requests = &*class.requests;
    let names = &context.cluster.tables.resources;
    let dims: Vec<Dimension> = requests.iter().map(|(id, _)| *id).collect();
    let mut most: Vec<i64> = vec![0; dims.len()];
    for (variant, bits) in left.enumerate() {
        let table = context.table(PoolVariant { pool: number, variant }, &dims);
        for offer in bits.iter() {
            let row = table.row(offer);
            if row.iter().zip(requests).all(|(row, (_, size))| row >= size) {
                return None;
            }
            for (m, r) in most.iter_mut().zip(row) {
                *m = (*m).max(*r);
            }
        }
    }
    let name = &rec.pool.name;
    let too_small = requests.iter().zip(&most).find(|((_, size), most)| size > *most);
    if let Some(((id, size), most)) = too_small {
        let id = match id {
            Dimension::Resource(id) => *id,
            Dimension::Attachments(driver) => {
                let driver = context.cluster.tables.symbols.text(*driver);
                let detail =
                    format!("nodes of {name} attach at most {most} volumes of {driver}, pod has {size}");
                return Some(Cause { kind: ReasonKind::VolumeLimit, detail });
            }
        };
        let resource = names.name(id);
        if *most <= 0 && is_given_later(resource) {
            let detail = format!(
                "no instance type of {name} has {resource}; if a device plugin or user data gives it to nodes, declare it in resources of the template"
            );
            return Some(Cause { kind: ReasonKind::InsufficientResources, detail });
        }
        let asks = readable(resource, *size, Round::Up);
        let asks = if class.assumed(context.cluster, id) == 0 {
            format!("pod asks {asks}")
        } else {
            format!("pod asks none and counts for {asks} (podsWithoutRequests of CroftConfig)")
        };
        let detail = format!(
            "largest allocatable {resource} in {name} is {}, {asks}",
            readable(resource, (*most).max(0), Round::Down),
        );
        return Some(Cause { kind: ReasonKind::InsufficientResources, detail });
    }
    let asks: Vec<String> = requests
        .iter()
        .filter_map(|(dim, size)| Some((dim.resource().filter(|id| *id != ResourceId::PODS)?, *size)))
        .map(|(id, size)| format!("{} {}", names.name(id), readable(names.name(id), size, Round::Up)))
        .collect();
    let detail = format!("no type in {name} has {} together", asks.join(" and "));
    Some(Cause { kind: ReasonKind::InsufficientResources, detail })
}

/// The reason that keeps a pod from the only domains that its topology rules leave it; `None` for a pod without such rules.
fn domain(
    context: &Context<'_>,
    class: &Class,
    number: PoolIx,
    open: &IndexVec<PoolVariantIx, OfferSet>,
) -> Option<Cause> {
    let (cluster, rec) = (context.cluster, context.pools[number]);
    let shape = class.shape(cluster);
    let spreads = shape.spreads.iter().filter(|spread| spread.hard).map(|spread| spread.key);
    let affinity = shape.affinity.iter().flat_map(|affinity| affinity.keys.iter().copied());
    let keys: BTreeSet<Sym> = spreads
        .clone()
        .chain(affinity)
        .chain(shape.anti_affinity.iter().map(|term| term.key))
        .filter(|key| *key != cluster.keys.hostname)
        .collect();
    for key in keys.into_iter().filter(|_| !rec.min_values.is_empty()) {
        let mut parts: BTreeMap<Sym, IndexVec<PoolVariantIx, OfferSet>> = BTreeMap::new();
        for (variant, bits) in open.enumerate() {
            for offer in bits.iter() {
                let value = rec.variants.find(variant);
                let Some(value) = value.and_then(|v| v.value(&cluster.keys, &rec.catalog, offer, key)) else {
                    continue;
                };
                let none = || open.iter().map(|_| OfferSet::none(rec.catalog.offers.len())).collect();
                if let Some(part) = parts.entry(value).or_insert_with(none).find_mut(variant) {
                    part.insert(offer);
                }
            }
        }
        if let Some(short) = parts.values().find_map(|part| choice(context, number, &class.requests, part)) {
            let key = cluster.tables.symbols.text(key);
            let detail = format!("{short} in one {key}, which is what its topology rules leave the pod");
            return Some(Cause { kind: ReasonKind::MinValues, detail });
        }
    }
    spreads.into_iter().next().map(|_| {
        let detail = "no node that could be launched in a domain that keeps the skew of the topology spread constraint \
                      has room for the pod"
            .to_owned();
        Cause { kind: ReasonKind::TopologySpread, detail }
    })
}

/// The pool's minValues that the offerings large enough for the pod can't satisfy; `None` if they can.
fn choice(
    context: &Context<'_>,
    number: PoolIx,
    requests: &[(Dimension, i64)],
    open: &IndexVec<PoolVariantIx, OfferSet>,
) -> Option<String> {
    let rec = context.pools[number];
    let cluster = context.cluster;
    let dims: Vec<Dimension> = requests.iter().map(|(id, _)| *id).collect();
    let mut lacking = None;
    for (variant, bits) in open.enumerate() {
        let table = context.table(PoolVariant { pool: number, variant }, &dims);
        let holds = |offer: &OfferIx| {
            let row = table.row(*offer);
            row.iter().zip(requests).all(|(row, (_, size))| row >= size)
        };
        let short = rec.min_values.iter().find_map(|(key, least)| {
            let values: BTreeSet<_> = bits
                .iter()
                .filter(holds)
                .filter_map(|o| rec.variants.find(variant)?.value(&cluster.keys, &rec.catalog, o, *key))
                .collect();
            let there = u32::try_from(values.len()).unwrap_or(u32::MAX);
            (there < *least).then_some((*key, *least, there))
        });
        lacking = Some(short?);
    }
    let (key, least, there) = lacking?;
    let key = cluster.tables.symbols.text(key);
    Some(format!("{} wants a choice of {least} different {key}; {there} hold the pod", rec.pool.name))
}
