//! Which limits there are, whose they are, what is left of each, and which pools' nodes each counts.

use std::{collections::BTreeMap, ops::RangeInclusive};

use rustc_hash::FxHashMap;

use crate::{
    demand::Demand,
    ids::{LimitIx, NodeIx, PoolIx, PoolOffer, ShareIx},
    index_vec::IndexVec,
    model::share::{ShareBound, ShareOf},
    model::{
        pool::{LIMIT_COST, LIMIT_NODES},
        quantity::Quantity,
        resources::native,
    },
    packing::{
        limits::cpu_of,
        problem::{Counted, Limit},
    },
    solve::shares::PlannedShare,
    state::{
        catalog_index::{CatalogIndex, Keys, Offer, OfferId},
        cluster::Cluster,
        interner::{Sym, label},
        pool::PoolRec,
        requests::amount,
    },
};

/// Whose limit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner<'a> {
    /// The template's own.
    Template,
    /// The TenantPool's own.
    Pool,
    /// The Tenant of this name.
    Tenant(&'a str),
    /// The whole cluster.
    Cluster,
    /// This share of the TenantPool.
    Share(ShareIx),
    /// An offering of which only so many instances can be had.
    Offering,
}

/// A limit as its owner wrote it.
#[derive(Clone, Copy, Debug)]
struct Declared<'a, 'm> {
    owner: Owner<'a>,
    amounts: &'m BTreeMap<String, Quantity>,
    /// The pools whose nodes it counts.
    members: &'m [PoolIx],
}

/// All limits: of templates, of pools, then of Tenants, then of the cluster, then of offerings and of shares.
#[derive(Debug, Default)]
pub(crate) struct Limits<'a> {
    /// The rest of each.
    pub(crate) left: IndexVec<LimitIx, Limit>,
    /// Whose each is.
    pub(crate) owners: IndexVec<LimitIx, Owner<'a>>,
    /// Limits that count each pool's nodes.
    pub(crate) of: IndexVec<PoolIx, Vec<LimitIx>>,
    /// The shares of all pools, each with a limit that is none until a plan breaks the share.
    pub(crate) shares: IndexVec<ShareIx, PlannedShare<'a>>,
    /// The cluster's limit, while it counts no pool: see [`Limits::is_overrun`].
    apart: Option<LimitIx>,
}

impl<'a> Limits<'a> {
    /// The limits of `cluster`. The cluster's own limit connects all pools into one block, which costs time and leaves
    /// each pool fewer steps. So it is left out at first (`joint` is false), and only a plan that overruns it is made
    /// again with it.
    pub(crate) fn new(
        cluster: &'a Cluster,
        demand: &Demand,
        pools: &IndexVec<PoolIx, &'a PoolRec>,
        joint: bool,
    ) -> Self {
        let mut limits = Self { of: IndexVec::filled(Vec::new(), pools.len()), ..Self::default() };
        let mut by_name: BTreeMap<&str, Vec<PoolIx>> = BTreeMap::new();
        for (number, rec) in pools.enumerate() {
            let (owner, amounts) = (Owner::Template, &rec.pool.template_limits);
            limits.add(cluster, demand, pools, Declared { owner, amounts, members: &[number] });
            by_name.entry(&rec.pool.name).or_default().push(number);
        }
        for templates in by_name.values() {
            let Some(first) = templates.first().and_then(|first| pools.find(*first)) else { continue };
            let (owner, amounts) = (Owner::Pool, &first.pool.limits);
            limits.add(cluster, demand, pools, Declared { owner, amounts, members: templates });
        }
        for tenant in cluster.tenants.values() {
            let members: Vec<PoolIx> = pools
                .enumerate()
                .filter(|(_, rec)| tenant.pools.contains(&rec.pool.name))
                .map(|(number, _)| number)
                .collect();
            let (owner, amounts) = (Owner::Tenant(&tenant.tenant), &tenant.limits);
            limits.add(cluster, demand, pools, Declared { owner, amounts, members: &members });
        }
        let all: Vec<PoolIx> = pools.ids().collect();
        let (owner, amounts) = (Owner::Cluster, &cluster.limits);
        limits.add(cluster, demand, pools, Declared { owner, amounts, members: &all });
        if !joint && !cluster.limits.is_empty() {
            limits.apart = limits.left.ids().next_back();
            limits.of.iter_mut().for_each(|of| of.retain(|limit| Some(*limit) != limits.apart));
        }
        limits.add_offerings(pools);
        for templates in by_name.into_values() {
            limits.add_shares(cluster, demand, pools, &templates);
        }
        limits
    }

    /// Pools whose catalogues share an offering share what is left of it.
    fn add_offerings(&mut self, pools: &IndexVec<PoolIx, &PoolRec>) {
        let mut known: FxHashMap<OfferId, LimitIx> = FxHashMap::default();
        for (pool, rec) in pools.enumerate() {
            for (offer, count) in &rec.catalog.counted {
                let Some(id) = rec.catalog.identity(*offer) else { continue };
                let count = Some(i64::from(*count));
                let limit = *known.entry(id).or_insert_with(|| {
                    self.owners.push(Owner::Offering);
                    self.left.push(Limit { nodes: count, counted: Counted::Only(id), ..Limit::default() })
                });
                if let Some(limit) = self.left.find_mut(limit) {
                    limit.nodes = limit.nodes.max(count);
                }
                if let Some(of) = self.of.find_mut(pool) {
                    of.push(limit);
                }
            }
        }
    }

    /// The shares of the TenantPool with these templates.
    fn add_shares(
        &mut self,
        cluster: &Cluster,
        demand: &Demand,
        pools: &IndexVec<PoolIx, &'a PoolRec>,
        templates: &[PoolIx],
    ) {
        let Some(first) = templates.first().and_then(|first| pools.find(*first)).copied() else { return };
        let is_gone = |node| demand.gone.contains(&node) || demand.leaving.contains(&node);
        for share in &first.pool.shares {
            let counted = match (&share.of, share.bound) {
                (ShareOf::Template(_), _) => Counted::All,
                (ShareOf::CapacityType(own), ShareBound::MaxPercent(_)) => Counted::Of(*own),
                (ShareOf::CapacityType(own), ShareBound::MinNodes(_)) => Counted::NotOf(*own),
            };
            self.owners.push(Owner::Share(self.shares.next_id()));
            let limit = self.left.push(Limit { counted, ..Limit::default() });
            let staying = cluster.balance(first, share, &is_gone);
            let planned = PlannedShare { share, members: templates.to_vec(), staying, limit };
            for member in templates {
                let is_bound = pools.find(*member).is_some_and(|rec| planned.may_bound(&rec.pool));
                if let Some(of) = self.of.find_mut(*member).filter(|_| is_bound) {
                    of.push(limit);
                }
            }
            self.shares.push(planned);
        }
    }

    /// True if a limit is that of a share.
    pub(crate) fn is_share(&self, limit: LimitIx) -> bool {
        matches!(self.owners.find(limit), Some(Owner::Share(_)))
    }

    /// True if a limit is one of amounts that somebody wrote.
    pub(crate) fn has_amounts(&self, limit: LimitIx) -> bool {
        !matches!(self.owners.find(limit), Some(Owner::Offering | Owner::Share(_)))
    }

    fn add(
        &mut self,
        cluster: &Cluster,
        demand: &Demand,
        pools: &IndexVec<PoolIx, &PoolRec>,
        declared: Declared<'a, '_>,
    ) {
        let Declared { owner, amounts, members } = declared;
        if amounts.is_empty() {
            return;
        }
        let mut limit = Limit::default();
        for (name, quantity) in amounts {
            match name.as_str() {
                LIMIT_NODES => limit.nodes = Some(quantity.units()),
                LIMIT_COST => limit.cost = Some(quantity.micros_floor()),
                // A resource that nothing has can't be used up.
                _ => limit
                    .resources
                    .extend(cluster.tables.resources.find(name).map(|id| (id, native(name, *quantity)))),
            }
        }
        for member in members {
            let Some(rec) = pools.find(*member) else { continue };
            for node in nodes_of(cluster, demand, rec) {
                let Some(info) = cluster.nodes.find(node).and_then(|s| s.info.as_ref()) else {
                    continue;
                };
                if owner == Owner::Template && label(&info.labels, cluster.keys.template) != rec.template {
                    continue;
                }
                if let Some(nodes) = &mut limit.nodes {
                    *nodes -= 1;
                }
                limit.pay(node_price(cluster, rec, node));
                for (id, left) in &mut limit.resources {
                    *left = left.saturating_sub(amount(&info.capacity, *id));
                }
            }
            if let Some(of) = self.of.find_mut(*member) {
                of.push(self.left.next_id());
            }
        }
        self.left.push(limit);
        self.owners.push(owner);
    }

    /// True if `launches` overrun the cluster's limit, which they were planned without.
    pub(crate) fn is_overrun(
        &self,
        pools: &IndexVec<PoolIx, &PoolRec>,
        launches: impl Iterator<Item = PoolOffer>,
    ) -> bool {
        let Some(mut left) = self.apart.and_then(|limit| self.left.find(limit)).cloned() else {
            return false;
        };
        let mut any = false;
        for PoolOffer { pool, offer } in launches {
            any = true;
            if let Some(rec) = pools.find(pool) {
                left.spend(&rec.catalog, offer);
            }
        }
        any && left.is_overdrawn()
    }

    /// Sets in `left` what the shares leave for one more node after `launches`.
    fn leave_shares(
        &self,
        left: &mut IndexVec<LimitIx, Limit>,
        pools: &IndexVec<PoolIx, &PoolRec>,
        launches: impl Iterator<Item = PoolOffer> + Clone,
    ) {
        for share in &self.shares {
            if let Some(limit) = left.find_mut(share.limit) {
                share.leave(limit, share.launched(pools, launches.clone()));
            }
        }
    }

    /// The vCPU that an instance may have that is launched in place of the planned one, so that the plan keeps the shares of its pool:
    /// of those that a maximum bounds no more, of the others no less.
    pub(super) fn replacement_cpu(&self, rec: &PoolRec, planned: PoolOffer) -> RangeInclusive<i64> {
        let PoolOffer { pool, offer } = planned;
        let (mut least, mut most) = (0, i64::MAX);
        for share in self.shares.iter().filter(|share| share.members.contains(&pool)) {
            if matches!(share.share.bound, ShareBound::MaxPercent(_)) {
                let end = if share.is_own(rec, offer) { &mut most } else { &mut least };
                *end = cpu_of(&rec.catalog, offer);
            }
        }
        least..=most
    }

    /// The rest of each limit once `launches` are there.
    pub(crate) fn after(
        &self,
        pools: &IndexVec<PoolIx, &PoolRec>,
        launches: impl Iterator<Item = PoolOffer> + Clone,
    ) -> IndexVec<LimitIx, Limit> {
        let mut left = self.left.clone();
        for PoolOffer { pool, offer } in launches.clone() {
            let Some(rec) = pools.find(pool) else { continue };
            for limit in self.of.find(pool).into_iter().flatten() {
                if let Some(limit) = left.find_mut(*limit) {
                    limit.spend(&rec.catalog, offer);
                }
            }
        }
        self.leave_shares(&mut left, pools, launches);
        left
    }
}

/// Nodes of a pool's template, coming ones included.
pub(crate) fn nodes_of<'a>(
    cluster: &'a Cluster,
    demand: &'a Demand,
    rec: &'a PoolRec,
) -> impl Iterator<Item = NodeIx> + 'a {
    let nodes = cluster.by_label.get(&rec.label).into_iter().flatten().copied();
    let is_of = move |node: &NodeIx| {
        let info = cluster.nodes.find(*node).and_then(|slot| slot.info.as_ref());
        rec.template.is_none() || info.is_some_and(|info| rec.has(&cluster.keys, &info.labels))
    };
    nodes.filter(|n| demand.gone_counts || !demand.gone.contains(n)).filter(is_of)
}

/// The catalogue's price of a node, by its labels; `None` if unknown. A node outlives its offering: a reservation ends, a class
/// leaves a zone. Then the dearest of its type counts, in its capacity type if that has any. A type that the template's class no longer has is
/// looked up in other catalogues.
pub(crate) fn node_price(cluster: &Cluster, rec: &PoolRec, node: NodeIx) -> Option<i64> {
    let labels = &cluster.nodes.find(node)?.info.as_ref()?.labels;
    let others = || cluster.templates().find_map(|other| price_in(&other.catalog, &cluster.keys, labels));
    price_in(&rec.catalog, &cluster.keys, labels).or_else(others)
}

fn price_in(catalog: &CatalogIndex, keys: &Keys, labels: &[(Sym, Sym)]) -> Option<i64> {
    let kind = catalog.find(label(labels, keys.instance_type)?)?;
    let (zone, capacity) = (label(labels, keys.zone), label(labels, keys.capacity_type));
    let dearest = |zone: Option<Sym>, capacity: Option<Sym>| {
        let fits =
            |o: &&Offer| zone.is_none_or(|z| z == o.zone) && capacity.is_none_or(|c| c == o.capacity_sym);
        catalog.offers_of(kind).map(|(_, offer)| offer).filter(fits).filter_map(|o| o.price).max()
    };
    dearest(zone, capacity).or_else(|| dearest(None, capacity)).or_else(|| dearest(None, None))
}
