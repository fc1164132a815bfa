//! Why a pod stays pending, pool by pool: the first constraint that leaves nothing, with the number that would do.

use std::{collections::BTreeSet, sync::Arc};

use rustc_hash::FxHashMap;

use crate::{
    bits::Bits,
    block::Context,
    demand::Class,
    plan::{Reason, ReasonKind},
    pool::{LIMIT_COST, LIMIT_NODES},
    requests::amount,
    resources::{Round, readable},
    shape::Shape,
    space::PoolRec,
    taint,
};

/// A class that stays pending, and what the search saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Want {
    pub(crate) class: usize,
    pub(crate) kind: Option<ReasonKind>,
}

/// Reasons, made once per class.
pub(crate) struct Reasons<'a> {
    context: &'a Context<'a>,
    known: FxHashMap<Want, Arc<[Reason]>>,
}

impl<'a> Reasons<'a> {
    pub(crate) fn new(context: &'a Context<'a>) -> Self {
        Self { context, known: FxHashMap::default() }
    }

    /// One reason per pool, by name.
    pub(crate) fn of(&mut self, want: Want) -> Arc<[Reason]> {
        if let Some(known) = self.known.get(&want) {
            return Arc::clone(known);
        }
        let reasons: Arc<[Reason]> = find(self.context, want).into();
        self.known.insert(want, Arc::clone(&reasons));
        reasons
    }
}

fn find(context: &Context<'_>, want: Want) -> Vec<Reason> {
    let Some(class) = context.demand.classes.get(want.class) else { return Vec::new() };
    if context.pools.is_empty() {
        let detail = "there is no pool".to_owned();
        return vec![Reason { pool: String::new(), reason: ReasonKind::NoPools, detail }];
    }
    let one = |(number, rec): (usize, &&PoolRec)| {
        let (reason, detail) = pool(context, class, number, rec, want);
        Reason { pool: rec.pool.name.clone(), reason, detail }
    };
    context.pools.iter().enumerate().map(one).collect()
}

fn pool(
    context: &Context<'_>,
    class: &Class,
    number: usize,
    rec: &PoolRec,
    want: Want,
) -> (ReasonKind, String) {
    let cluster = context.cluster;
    let tables = &cluster.tables;
    let symbols = &tables.symbols;
    let shape = class.shape(cluster);
    let name = &rec.pool.name;
    if let Some((kind, detail)) = &class.blocked {
        return (*kind, detail.clone());
    }
    if let Some(taint) = taint::untolerated(tables.tolerations.get(shape.tolerations), &rec.taints) {
        return (ReasonKind::TaintNotTolerated, format!("the pod doesn't tolerate {}", taint.show(symbols)));
    }
    if !rec.pool.launches && rec.pool.replicas.is_none() {
        // Its nodes may still have been what the pod waits for; say first what could never suit.
        return (ReasonKind::PoolNotProvisioned, format!("the nodes of {name} come from elsewhere"));
    }
    if rec.variants.iter().all(|v| v.allowed.is_empty()) {
        return (ReasonKind::NoOfferings, format!("the requirements of {name} exclude every offering"));
    }
    let size = rec.catalog.offers.len();
    let mut left: Vec<Bits> = rec.variants.iter().map(|v| v.allowed.clone()).collect();
    for (at, req) in class.reqs.iter().map(|r| tables.reqs.get(*r)).chain(class.extra.iter()).enumerate() {
        let next: Vec<Bits> = left
            .iter()
            .zip(rec.variants.iter())
            .map(|(bits, v)| bits.and(&v.req(symbols, &cluster.keys, &rec.catalog, req)))
            .collect();
        if next.iter().all(Bits::is_empty) {
            if at >= class.own_reqs {
                let detail = format!("no offering of {name} has {}, which a volume needs", req.show(symbols));
                return (ReasonKind::VolumeTopology, detail);
            }
            return (
                ReasonKind::NodeAffinityMismatch,
                format!("no offering of {name} has {}", req.show(symbols)),
            );
        }
        left = next;
    }
    if let Some(replicas) = rec.pool.replicas {
        let detail =
            format!("{name} has a fixed size (replicas: {replicas}), and none of its nodes has room");
        return (ReasonKind::PoolLimit, detail);
    }
    let mut all = Bits::none(size);
    left.iter().for_each(|bits| all.unite(bits));
    if let Some(detail) = resources(context, number, shape, &left) {
        return (ReasonKind::InsufficientResources, detail);
    }
    if !all.intersects(&rec.catalog.available) {
        let detail = format!("what {name} offers and suits the pod is out of capacity now");
        return (ReasonKind::NoCapacity, detail);
    }
    let mut open: Vec<Bits> = left;
    open.iter_mut().for_each(|bits| bits.intersect(&rec.catalog.available));
    if let Some(detail) = resources(context, number, shape, &open) {
        return (
            ReasonKind::NoCapacity,
            format!("what would be large enough is out of capacity now: {detail}"),
        );
    }
    if let Some(detail) = choice(context, number, shape, &open) {
        return (ReasonKind::MinValues, detail);
    }
    match want.kind {
        Some(ReasonKind::TopologySpread) => (
            ReasonKind::TopologySpread,
            "no domain that a node could be launched in keeps the skew of the topology spread constraint"
                .to_owned(),
        ),
        Some(ReasonKind::PodAffinity) => {
            (ReasonKind::PodAffinity, "no pod that the required pod affinity asks for is in reach".to_owned())
        }
        Some(ReasonKind::PodAntiAffinity) => (
            ReasonKind::PodAntiAffinity,
            "every domain holds a pod that required anti-affinity keeps apart".to_owned(),
        ),
        _ => limit(context, number, rec),
    }
}

/// The resource that no offering has enough of; `None` if some offering is large enough.
fn resources(context: &Context<'_>, number: usize, shape: &Shape, left: &[Bits]) -> Option<String> {
    let rec = context.pools.get(number)?;
    let names = &context.cluster.tables.resources;
    let dims: Vec<u32> = shape.requests.iter().map(|(id, _)| *id).collect();
    let mut most: Vec<i64> = vec![0; dims.len()];
    for (variant, bits) in left.iter().enumerate() {
        let table = context.table(number, variant, &dims);
        for offer in bits.iter() {
            let row = table.row(u32::try_from(offer).ok()?);
            if row.iter().zip(&shape.requests).all(|(row, (_, size))| row >= size) {
                return None;
            }
            for (m, r) in most.iter_mut().zip(row) {
                *m = (*m).max(*r);
            }
        }
    }
    let name = &rec.pool.name;
    let too_small = shape.requests.iter().zip(&most).find(|((_, size), most)| size > *most);
    if let Some(((id, size), most)) = too_small {
        let resource = names.name(*id);
        return Some(format!(
            "largest allocatable {resource} in {name} is {}, pod asks {}",
            readable(resource, (*most).max(0), Round::Down),
            readable(resource, *size, Round::Up)
        ));
    }
    let asks: Vec<String> = shape
        .requests
        .iter()
        .filter(|(id, _)| *id != crate::requests::RES_PODS)
        .map(|(id, size)| format!("{} {}", names.name(*id), readable(names.name(*id), *size, Round::Up)))
        .collect();
    Some(format!("no type in {name} has {} together", asks.join(" and ")))
}

/// The minValues of the pool that what holds the pod can't keep; `None` if some of its nodes keep them all.
fn choice(context: &Context<'_>, number: usize, shape: &Shape, open: &[Bits]) -> Option<String> {
    let rec = context.pools.get(number)?;
    let cluster = context.cluster;
    let dims: Vec<u32> = shape.requests.iter().map(|(id, _)| *id).collect();
    let mut lacking = None;
    for (variant, bits) in open.iter().enumerate() {
        let table = context.table(number, variant, &dims);
        let holds = |offer: &usize| {
            let row = u32::try_from(*offer).map(|o| table.row(o)).unwrap_or_default();
            row.iter().zip(&shape.requests).all(|(row, (_, size))| row >= size)
        };
        let short = rec.min_values.iter().find_map(|(key, least)| {
            let values: BTreeSet<_> = bits
                .iter()
                .filter(holds)
                .filter_map(|o| rec.variants.get(variant)?.value(&cluster.keys, &rec.catalog, o, *key))
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

/// Which limit is used up.
fn limit(context: &Context<'_>, number: usize, rec: &PoolRec) -> (ReasonKind, String) {
    let name = &rec.pool.name;
    let own = !rec.pool.limits.is_empty();
    let show = |limits: &std::collections::BTreeMap<String, crate::Quantity>| {
        let parts: Vec<String> = limits.iter().map(|(k, v)| format!("{k} {v}")).collect();
        parts.join(", ")
    };
    let used = |key: &str| -> Option<String> {
        let nodes: Vec<_> = crate::solver::nodes_of(context.cluster, context.demand, rec).collect();
        match key {
            LIMIT_NODES => Some(format!("{} nodes", nodes.len())),
            LIMIT_COST => None,
            _ => {
                let id = context.cluster.tables.resources.find(key)?;
                let sum = nodes
                    .iter()
                    .filter_map(|n| context.cluster.nodes.get(*n as usize)?.info.as_ref())
                    .fold(0i64, |sum, info| sum.saturating_add(amount(&info.capacity, id)));
                Some(format!("{key} {}", readable(key, sum, Round::Down)))
            }
        }
    };
    if own {
        let there: Vec<String> = rec.pool.limits.keys().filter_map(|k| used(k)).collect();
        let detail = format!(
            "the limits of {name} ({}) leave no room for another node; its nodes have {} already",
            show(&rec.pool.limits),
            if there.is_empty() { "nothing".to_owned() } else { there.join(", ") }
        );
        return (ReasonKind::PoolLimit, detail);
    }
    let tenant = context.cluster.tenants.values().find(|t| t.pools.contains(name) && !t.limits.is_empty());
    if let Some(tenant) = tenant.filter(|_| context.limits_of.get(number).is_some_and(|l| !l.is_empty())) {
        let detail = format!(
            "the limits of tenant {} ({}) leave no room for another node",
            tenant.tenant,
            show(&tenant.limits)
        );
        return (ReasonKind::TenantLimit, detail);
    }
    (ReasonKind::InsufficientResources, format!("no node of {name} has room beside what else it must hold"))
}
