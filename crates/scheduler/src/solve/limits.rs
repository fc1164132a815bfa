//! Which limits there are, whose they are, what is left of each, and which pools' nodes each counts.

use std::collections::BTreeMap;

use crate::{
    model::{
        pool::{LIMIT_COST, LIMIT_NODES},
        quantity::Quantity,
        resources::native,
    },
    packing::problem::Limit,
    solve::demand::Demand,
    state::{
        catalog_index::{Offer, PoolRec},
        cluster::{Cluster, NodeIx},
        interner::label,
        requests::amount,
    },
};

/// Whose limit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner<'a> {
    /// The pool's own.
    Pool,
    /// The Tenant of this name.
    Tenant(&'a str),
    /// The whole cluster.
    Cluster,
}

/// All limits: of pools, then of Tenants, then of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Limits<'a> {
    /// The rest of each.
    pub(crate) left: Vec<Limit>,
    /// Whose each is.
    pub(crate) owners: Vec<Owner<'a>>,
    /// Limits that count each pool's nodes.
    pub(crate) of: Vec<Vec<usize>>,
    /// The cluster's limit, while it counts no pool: see [`Limits::is_overrun`].
    apart: Option<usize>,
}

impl<'a> Limits<'a> {
    /// The limits of `cluster`. The cluster's own limit connects all pools into one block, which costs time and leaves
    /// each pool fewer steps. So it is left out at first (`joint` is false), and only a plan that overruns it is made
    /// again with it.
    pub(crate) fn new(cluster: &'a Cluster, demand: &Demand, pools: &[&PoolRec], joint: bool) -> Self {
        let mut limits = Self { of: vec![Vec::new(); pools.len()], ..Self::default() };
        for (number, rec) in pools.iter().enumerate() {
            limits.add(cluster, demand, pools, Owner::Pool, (&rec.pool.limits, &[number]));
        }
        for tenant in cluster.tenants.values() {
            let members: Vec<usize> = pools
                .iter()
                .enumerate()
                .filter(|(_, rec)| tenant.pools.contains(&rec.pool.name))
                .map(|(number, _)| number)
                .collect();
            limits.add(cluster, demand, pools, Owner::Tenant(&tenant.tenant), (&tenant.limits, &members));
        }
        let all: Vec<usize> = (0..pools.len()).collect();
        limits.add(cluster, demand, pools, Owner::Cluster, (&cluster.limits, &all));
        if !joint && !cluster.limits.is_empty() {
            let last = limits.left.len().saturating_sub(1);
            limits.apart = Some(last);
            limits.of.iter_mut().for_each(|of| of.retain(|limit| *limit != last));
        }
        limits
    }

    fn add(
        &mut self,
        cluster: &Cluster,
        demand: &Demand,
        pools: &[&PoolRec],
        owner: Owner<'a>,
        (wanted, members): (&BTreeMap<String, Quantity>, &[usize]),
    ) {
        if wanted.is_empty() {
            return;
        }
        let mut limit = Limit::default();
        for (name, quantity) in wanted {
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
            let Some(rec) = pools.get(*member) else { continue };
            for node in nodes_of(cluster, demand, rec) {
                let Some(info) = cluster.nodes.get(node as usize).and_then(|s| s.info.as_ref()) else {
                    continue;
                };
                if let Some(nodes) = &mut limit.nodes {
                    *nodes -= 1;
                }
                if let Some(cost) = &mut limit.cost {
                    *cost = cost.saturating_sub(node_price(cluster, rec, node).unwrap_or(0));
                }
                for (id, left) in &mut limit.resources {
                    *left = left.saturating_sub(amount(&info.capacity, *id));
                }
            }
            if let Some(of) = self.of.get_mut(*member) {
                of.push(self.left.len());
            }
        }
        self.left.push(limit);
        self.owners.push(owner);
    }

    /// True if `launches`, each a pool and an offering, overrun the cluster's limit, which they were planned without.
    pub(crate) fn is_overrun(
        &self,
        pools: &[&PoolRec],
        launches: impl Iterator<Item = (usize, u32)>,
    ) -> bool {
        let Some(mut left) = self.apart.and_then(|at| self.left.get(at)).cloned() else { return false };
        let mut any = false;
        for (pool, offer) in launches {
            any = true;
            if let Some(rec) = pools.get(pool) {
                left.spend(&rec.catalog, offer);
            }
        }
        any && left.is_overdrawn()
    }

    /// The rest of each limit once `launches` are there.
    pub(crate) fn after(
        &self,
        pools: &[&PoolRec],
        launches: impl Iterator<Item = (usize, u32)>,
    ) -> Vec<Limit> {
        let mut left = self.left.clone();
        for (pool, offer) in launches {
            let Some(rec) = pools.get(pool) else { continue };
            for limit in self.of.get(pool).into_iter().flatten() {
                if let Some(limit) = left.get_mut(*limit) {
                    limit.spend(&rec.catalog, offer);
                }
            }
        }
        left
    }
}

/// Nodes of a pool, coming ones included.
pub(crate) fn nodes_of<'a>(
    cluster: &'a Cluster,
    demand: &'a Demand,
    rec: &PoolRec,
) -> impl Iterator<Item = NodeIx> + 'a {
    let nodes = cluster.by_label.get(&rec.label).into_iter().flatten().copied();
    nodes.filter(|n| demand.gone_counts || !demand.gone.contains(n))
}

/// The catalogue's price of a node, by its labels; zero if unknown.
pub(crate) fn node_price(cluster: &Cluster, rec: &PoolRec, node: NodeIx) -> Option<i64> {
    let labels = &cluster.nodes.get(node as usize)?.info.as_ref()?.labels;
    let keys = &cluster.keys;
    let kind = rec.catalog.find(label(labels, keys.instance_type)?)?;
    let (zone, capacity) = (label(labels, keys.zone), label(labels, keys.capacity_type));
    let offers = rec.catalog.offers_of(kind).iter();
    let fits = |o: &&Offer| zone.is_none_or(|z| z == o.zone) && capacity.is_none_or(|c| c == o.capacity_sym);
    offers.filter(fits).filter_map(|o| o.price).max()
}
