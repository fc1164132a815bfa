//! The inputs of the packing from a tier's variants: their offerings, less the requests of DaemonSets.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use crate::{
    existing::cache::TableKey,
    ids::{DaemonIx, InstanceTypeIx, LimitIx, OfferIx, PoolVariant, VariantIx},
    index_vec::IndexVec,
    packing::{
        offering_table::{Surcharge, Table},
        problem::{Limit, MinValues, VariantCtx},
    },
    solve::{block::Context, tier_packing::Tier},
    state::{
        attachments::Dimension,
        catalog_index::{CatalogIndex, OfferSet},
        interner::Sym,
        pod_shape::ShapeId,
        pool::PoolRec,
        requests::{ResourceId, amount},
        taint,
    },
};

/// A DaemonSet that will run on instances of a variant.
struct VariantDaemon {
    /// Offerings where it runs.
    offers: OfferSet,
    /// Its requests by dimension.
    size: Vec<i64>,
    shape: ShapeId,
}

/// True if some of the offerings is of a type that has what a DaemonSet's pod asks for.
fn fit_some(catalog: &CatalogIndex, requests: &[(ResourceId, i64)], offers: &OfferSet) -> bool {
    let allocatable = |offer: OfferIx| catalog.allocatable.find(catalog.kind(offer));
    offers
        .iter()
        .filter_map(allocatable)
        .any(|has| requests.iter().all(|(id, size)| *size <= amount(has, *id)))
}

impl Context<'_> {
    /// DaemonSets that will run on instances of a variant. One that asks for more than any of its types has never runs there, and
    /// takes no room from pods that do.
    fn daemons(&self, from: PoolVariant, dims: &[Dimension]) -> IndexVec<DaemonIx, VariantDaemon> {
        let tables = &self.cluster.tables;
        let (rec, it) = self.variant(from);
        let mut result = IndexVec::new();
        for daemon in self.cluster.daemons.values() {
            let shape = tables.shapes.get(daemon.shape);
            let tolerations = tables.tolerations.get(shape.tolerations);
            if taint::untolerated(tolerations, &rec.taints).is_some() {
                continue;
            }
            let mut offers = it.allowed.clone();
            for req in &shape.reqs {
                let req = tables.reqs.get(*req);
                offers.intersect(&it.req(&tables.symbols, &self.cluster.keys, &rec.catalog, req));
            }
            if fit_some(&rec.catalog, &shape.requests, &offers) {
                let asked = |dim: &Dimension| dim.resource().map_or(0, |id| amount(&shape.requests, id));
                let size = dims.iter().map(asked).collect();
                result.push(VariantDaemon { offers, size, shape: daemon.shape });
            }
        }
        result
    }

    /// Offerings of a variant that have room for their DaemonSets, whatever the pods ask for. All of them if none has: where
    /// DaemonSets together fit nowhere, pods that ask for nothing stay schedulable.
    pub(super) fn with_room_for_daemons(&self, from: PoolVariant) -> OfferSet {
        let (rec, it) = self.variant(from);
        let tables = &self.cluster.tables;
        let shapes = self.cluster.daemons.values().map(|daemon| tables.shapes.get(daemon.shape));
        let mut resources: Vec<ResourceId> =
            shapes.flat_map(|shape| shape.requests.iter().map(|(id, _)| *id)).collect();
        resources.sort_unstable();
        resources.dedup();
        let dims: Vec<Dimension> = resources.iter().copied().map(Dimension::Resource).collect();
        let daemons = self.daemons(from, &dims);
        if daemons.is_empty() {
            return it.allowed.clone();
        }
        let mut roomy = OfferSet::none(rec.catalog.offers.len());
        for offer in it.allowed.iter() {
            let kind = rec.catalog.kind(offer);
            let has = rec.catalog.allocatable.find(kind).map_or(&[][..], |has| has);
            let running: Vec<&VariantDaemon> =
                daemons.iter().filter(|daemon| daemon.offers.contains(offer)).collect();
            let fits = resources.iter().enumerate().all(|(column, id)| {
                let sizes = running.iter().filter_map(|daemon| daemon.size.get(column));
                let sum = sizes.fold(0, |sum: i64, size| sum.saturating_add(*size));
                sum == 0 || sum <= amount(has, *id)
            });
            if fits {
                roomy.insert(offer);
            }
        }
        if roomy.is_empty() { it.allowed.clone() } else { roomy }
    }

    /// The amount that a type has in a dimension: a resource, or attachments.
    fn has(&self, catalog: &CatalogIndex, kind: InstanceTypeIx, dim: Dimension) -> i64 {
        match dim {
            Dimension::Attachments(driver) => {
                self.demand.attach_limits.of_kind(self.cluster, catalog, kind, driver)
            }
            Dimension::Resource(id) => catalog.allocatable.find(kind).map_or(0, |has| amount(has, id)),
        }
    }

    pub(crate) fn table(&self, from: PoolVariant, dims: &[Dimension]) -> Arc<Table> {
        let (rec, it) = self.variant(from);
        let daemons = self.daemons(from, dims);
        let surcharge = Surcharge {
            spot_permille: i64::from(self.options.spot_risk_permille),
            per_node: self.options.per_node_cost.micros(),
        };
        let uniform = daemons.iter().all(|daemon| daemon.offers == it.allowed);
        let mut all = vec![0i64; dims.len()];
        for daemon in &daemons {
            for (a, s) in all.iter_mut().zip(&daemon.size) {
                *a = a.saturating_add(*s);
            }
        }
        if uniform {
            let key = TableKey {
                catalog: Arc::as_ptr(&rec.catalog).addr(),
                dims: dims.to_vec(),
                daemons: all.clone(),
            };
            let mut known = self.cache.tables.lock().unwrap_or_else(PoisonError::into_inner);
            let all: Arc<[i64]> = all.into();
            let table = known.entry(key).or_insert_with(|| {
                let has = |kind, dim| self.has(&rec.catalog, kind, dim);
                Arc::new(Table::new(&rec.catalog, dims, surcharge, has, |_| Arc::clone(&all)))
            });
            return Arc::clone(table);
        }
        let sums: Mutex<FxHashMap<Vec<DaemonIx>, Arc<[i64]>>> = Mutex::default();
        let has = |kind, dim| self.has(&rec.catalog, kind, dim);
        Arc::new(Table::new(&rec.catalog, dims, surcharge, has, |offer| {
            let running = || daemons.enumerate().filter(|(_, daemon)| daemon.offers.contains(offer));
            let numbers: Vec<DaemonIx> = running().map(|(number, _)| number).collect();
            let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
            let sum = sums.entry(numbers).or_insert_with(|| {
                let mut sum = vec![0i64; dims.len()];
                for (_, daemon) in running() {
                    for (a, s) in sum.iter_mut().zip(&daemon.size) {
                        *a = a.saturating_add(*s);
                    }
                }
                sum.into()
            });
            Arc::clone(sum)
        }))
    }

    pub(super) fn variant_contexts(
        &self,
        tier: &Tier<'_>,
        limits: &IndexVec<LimitIx, Limit>,
    ) -> IndexVec<VariantIx, VariantCtx> {
        let bounds = |limit: &LimitIx| limits.find(*limit).is_some_and(Limit::is_bound);
        let mut list = IndexVec::new();
        for (from, table) in tier.variants.iter().zip(&tier.tables) {
            let rec = self.pools[from.pool];
            let ports = self
                .daemons(*from, &tier.dims)
                .iter()
                .flat_map(|daemon| self.cluster.tables.shapes.get(daemon.shape).ports.iter().copied())
                .collect();
            list.push(VariantCtx {
                from: *from,
                catalog: Arc::clone(&rec.catalog),
                table: Arc::clone(table),
                ports,
                limits: self.limits.of[from.pool].iter().copied().filter(bounds).collect(),
                min_values: self.min_values(rec),
            });
        }
        list
    }

    fn min_values(&self, rec: &PoolRec) -> Vec<MinValues> {
        let column = |key: Sym| {
            let value = |o| rec.catalog.value(&self.cluster.keys, o, key).unwrap_or(Sym::NONE);
            rec.catalog.offers.ids().map(value).collect()
        };
        let read = |(key, least): &(Sym, u32)| MinValues { values: column(*key), least: *least as usize };
        rec.min_values.iter().map(read).collect()
    }
}
