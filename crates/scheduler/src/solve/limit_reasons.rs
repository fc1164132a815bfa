//! Which limit leaves no room for a pod, and the same in words: its amounts, and what its nodes have of them already.

use std::collections::BTreeMap;

use crate::{
    demand::Cause,
    ids::{LimitIx, OfferIx, PoolIx},
    index_vec::IndexVec,
    model::{
        plan::{LimitOwner, ReachedLimit, ReasonKind, SHARES},
        pool::{LIMIT_COST, LIMIT_NODES},
        price::Price,
        quantity::Quantity,
        resources::{Round, readable},
    },
    packing::{limits::Overdrawn, problem::Limit},
    solve::{
        block::Context,
        limits::{Owner, node_price, nodes_of},
    },
    state::{pool::PoolRec, requests::amount},
};

/// Which limit is used up: the first that has no room for any of `offers`; `None` if they leave room for one of them.
pub(super) fn full_limit(
    context: &Context<'_>,
    left: &IndexVec<LimitIx, Limit>,
    number: PoolIx,
    offers: &[OfferIx],
) -> Option<LimitIx> {
    let rec = context.pools[number];
    let own = || context.limits.of.find(number).into_iter().flatten().copied();
    let has_room =
        |l: LimitIx, offer: OfferIx| left.find(l).is_none_or(|left| left.has_room(&rec.catalog, offer));
    if offers.iter().any(|offer| own().all(|l| has_room(l, *offer))) {
        return None;
    }
    // Where each has room and together they don't, the nearest is named.
    own().find(|l| !offers.iter().any(|offer| has_room(*l, *offer))).or_else(|| own().next())
}

/// A limit and the amounts that each of `offers` would overdraw. Where each amount has room for one of them, those that some would
/// overdraw are named, and otherwise all.
pub(super) fn reached(
    context: &Context<'_>,
    left: &IndexVec<LimitIx, Limit>,
    full: LimitIx,
    number: PoolIx,
    offers: &[OfferIx],
) -> Option<ReachedLimit> {
    let rec = context.pools[number];
    let owner = match context.limits.owners.find(full)? {
        Owner::Template => {
            LimitOwner::Template { pool: rec.pool.name.clone(), name: rec.pool.template.clone() }
        }
        Owner::Pool => LimitOwner::Pool(rec.pool.name.clone()),
        Owner::Tenant(tenant) => LimitOwner::Tenant((*tenant).to_owned()),
        Owner::Cluster => LimitOwner::Cluster,
        Owner::Share(_) => {
            let (owner, resources) = (LimitOwner::Pool(rec.pool.name.clone()), vec![SHARES.to_owned()]);
            return Some(ReachedLimit { owner, resources });
        }
        Owner::Offering => return None,
    };
    let left = left.find(full)?;
    let over: Vec<_> = offers.iter().map(|offer| left.overdrawn_by(&rec.catalog, *offer)).collect();
    let names = &context.cluster.tables.resources;
    let count = |is_over: &dyn Fn(&Overdrawn) -> bool| over.iter().filter(|one| is_over(one)).count();
    let mut amounts: Vec<(String, usize)> = Vec::new();
    amounts.extend(left.nodes.map(|_| (LIMIT_NODES.to_owned(), count(&|one| one.nodes))));
    amounts.extend(left.cost.map(|_| (LIMIT_COST.to_owned(), count(&|one| one.cost))));
    for (id, _) in &left.resources {
        amounts.push((names.name(*id).to_owned(), count(&|one| one.resources.contains(id))));
    }
    let most = amounts.iter().map(|(_, count)| *count).max().unwrap_or(0);
    let least = if most == offers.len() { most } else { most.min(1) };
    let mut resources: Vec<String> =
        amounts.into_iter().filter(|(_, count)| *count >= least).map(|(name, _)| name).collect();
    resources.sort_unstable();
    Some(ReachedLimit { owner, resources })
}

/// The reason of a limit, which names those of its amounts that are `reached`.
pub(super) fn limit(
    context: &Context<'_>,
    full: LimitIx,
    number: PoolIx,
    offers: &[OfferIx],
    reached: Option<&ReachedLimit>,
) -> Option<Cause> {
    let rec = context.pools[number];
    let name = &rec.pool.name;
    let at_fault = |limits: &BTreeMap<String, Quantity>| -> BTreeMap<String, Quantity> {
        let named = reached.map(|limit| &limit.resources).filter(|resources| !resources.is_empty());
        let is_named = |key: &String| named.is_none_or(|resources| resources.contains(key));
        limits.iter().filter(|(key, _)| is_named(key)).map(|(key, amount)| (key.clone(), *amount)).collect()
    };
    let unpriced = unpriced(context, full, number, offers);
    let (kind, mut detail) = match context.limits.owners.find(full)? {
        Owner::Template => {
            let limits = at_fault(&rec.pool.template_limits);
            let detail = format!(
                "its limits ({}) leave no room for another node; its nodes have {} already",
                show(&limits),
                used(context, &limits, &[rec]),
            );
            (ReasonKind::PoolLimit, detail)
        }
        Owner::Pool => {
            let limits = at_fault(&rec.pool.limits);
            let templates: Vec<&PoolRec> = context.cluster.pools.get(name).into_iter().flatten().collect();
            let detail = format!(
                "the limits of {name} ({}) leave no room for another node; its nodes have {} already",
                show(&limits),
                used(context, &limits, &templates),
            );
            (ReasonKind::PoolLimit, detail)
        }
        Owner::Tenant(tenant) => {
            let limits = context.cluster.tenants.get(*tenant).map(|t| show(&at_fault(&t.limits)));
            let limits = limits.unwrap_or_default();
            let detail = format!("the limits of tenant {tenant} ({limits}) leave no room for another node");
            (ReasonKind::TenantLimit, detail)
        }
        Owner::Cluster => {
            let limits = at_fault(&context.cluster.limits);
            let detail = format!(
                "the limits of the cluster ({}) leave no room for another node; the nodes of all pools have {} already",
                show(&limits),
                used(context, &limits, context.pools.as_slice()),
            );
            (ReasonKind::ClusterLimit, detail)
        }
        Owner::Share(share) => (ReasonKind::PoolShare, context.limits.shares[*share].reason(name)),
        Owner::Offering => {
            let detail = format!("what {name} offers and would hold the pod is used up by this plan");
            (ReasonKind::NoCapacity, detail)
        }
    };
    detail.extend(unpriced);
    Some(Cause { kind, detail })
}

/// A clause about costs that a limit in dollars can't be compared with; `None` if all of it has a price.
fn unpriced(context: &Context<'_>, limit: LimitIx, number: PoolIx, offers: &[OfferIx]) -> Option<String> {
    context.limits.left.find(limit)?.cost?;
    let (cluster, demand, rec) = (context.cluster, context.demand, context.pools[number]);
    let counts = |pool: &PoolIx| context.limits.of.find(*pool).is_some_and(|of| of.contains(&limit));
    let pools = context.pools.enumerate().filter(|(pool, _)| counts(pool)).map(|(_, rec)| *rec);
    let nodes = pools
        .flat_map(|rec| nodes_of(cluster, demand, rec).map(move |node| (rec, node)))
        .filter(|(rec, node)| {
            let is_there = cluster.nodes.find(*node).is_some_and(|slot| slot.info.is_some());
            is_there && node_price(cluster, rec, *node).is_none()
        })
        .count();
    if nodes > 0 {
        return Some(format!(
            "; the catalogue has no price of {nodes} of the nodes that it counts, and an unknown price is below no {LIMIT_COST}"
        ));
    }
    let has_price = |offer: &OfferIx| rec.catalog.offers.find(*offer).is_some_and(|o| o.price.is_some());
    if offers.is_empty() || offers.iter().any(has_price) {
        return None;
    }
    let kind = rec.catalog.instance_type(rec.catalog.kind(offers.first().copied()?))?;
    Some(format!(
        "; the catalogue has no price of what would hold the pod ({}), and an unknown price is below no {LIMIT_COST}",
        kind.name
    ))
}

fn show(limits: &BTreeMap<String, Quantity>) -> String {
    let amount = |(key, limit): (&String, &Quantity)| match key.as_str() {
        LIMIT_COST => format!("{key} {}", Price::from_micros(limit.micros_floor())),
        _ => format!("{key} {limit}"),
    };
    limits.iter().map(amount).collect::<Vec<_>>().join(", ")
}

/// The limited amounts that the nodes of `pools` have.
fn used(context: &Context<'_>, limits: &BTreeMap<String, Quantity>, pools: &[&PoolRec]) -> String {
    let (cluster, demand) = (context.cluster, context.demand);
    let nodes = || pools.iter().flat_map(|rec| nodes_of(cluster, demand, rec).map(move |node| (*rec, node)));
    let one = |key: &String| -> Option<String> {
        match key.as_str() {
            LIMIT_NODES => Some(format!("{} nodes", nodes().count())),
            LIMIT_COST => {
                let prices = nodes().filter_map(|(rec, node)| node_price(cluster, rec, node));
                let cost = prices.fold(0i64, i64::saturating_add);
                (cost > 0).then(|| format!("{key} {}", Price::from_micros(cost)))
            }
            _ => {
                let id = cluster.tables.resources.find(key)?;
                let sum = nodes()
                    .filter_map(|(_, node)| cluster.nodes.find(node)?.info.as_ref())
                    .fold(0i64, |sum, info| sum.saturating_add(amount(&info.capacity, id)));
                Some(format!("{key} {}", readable(key, sum, Round::Down)))
            }
        }
    };
    let amounts: Vec<String> = limits.keys().filter_map(one).collect();
    if amounts.is_empty() { "nothing".to_owned() } else { amounts.join(", ") }
}
