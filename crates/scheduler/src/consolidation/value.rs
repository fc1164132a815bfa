//! Replacement value of pods, to rank nodes by wasted price.

use rustc_hash::FxHashMap;

use crate::{
    ids::{InstanceTypeIx, NodeIx},
    state::{
        cluster::Cluster,
        pod_shape::ShapeId,
        pool::PoolRec,
        requests::{ResourceId, amount},
    },
};

/// Allocatable and price of the cheapest offering per type of a template.
fn cheapest(rec: &PoolRec) -> impl Iterator<Item = (&[(ResourceId, i64)], i64)> {
    let mut best: FxHashMap<InstanceTypeIx, i64> = FxHashMap::default();
    for variant in rec.variants.iter() {
        for offer in variant.allowed.and(&rec.catalog.available).iter() {
            let offer = &rec.catalog.offers[offer];
            if let Some(price) = offer.price {
                best.entry(offer.kind).and_modify(|p| *p = (*p).min(price)).or_insert(price);
            }
        }
    }
    let row = |(kind, price): (InstanceTypeIx, i64)| Some((&**rec.catalog.allocatable.find(kind)?, price));
    best.into_iter().filter_map(row)
}

/// The shapes of a node's pods that would go elsewhere.
fn movable_shapes(cluster: &Cluster, node: NodeIx) -> impl Iterator<Item = ShapeId> {
    let pods = cluster.nodes.find(node).map(|slot| slot.pods.as_slice()).unwrap_or_default();
    let recs = pods.iter().filter_map(|ix| cluster.pods.find(*ix)?.as_ref());
    recs.filter(|rec| rec.is_movable()).map(|rec| rec.shape)
}

/// Prices of pod shapes in the linear relaxation: each in the offering where its largest share of an instance
/// costs least. An estimate for ranking, never for deciding.
#[derive(Debug)]
pub(super) struct ReplacementValue<'a> {
    cluster: &'a Cluster,
    /// One pool's catalogues: allocatable and price of the cheapest offering per type.
    offers: Vec<(&'a [(ResourceId, i64)], i64)>,
    known: FxHashMap<ShapeId, i64>,
    /// (price, amount) of the offering in which a resource is cheapest.
    cheapest: FxHashMap<ResourceId, Option<(i64, i64)>>,
}

/// What pods cost elsewhere at least, by resource, in micro-dollars per hour: no offering has it for less.
pub(super) type Floors = FxHashMap<ResourceId, i64>;

impl<'a> ReplacementValue<'a> {
    pub(super) fn new(cluster: &'a Cluster, templates: &'a [PoolRec]) -> Self {
        let offers = templates.iter().flat_map(cheapest).collect();
        Self { cluster, offers, known: FxHashMap::default(), cheapest: FxHashMap::default() }
    }

    /// In micro-dollars per hour; 0 where no offering is large enough.
    fn shape(&mut self, shape: ShapeId) -> i64 {
        if let Some(known) = self.known.get(&shape) {
            return *known;
        }
        let requests = &self.cluster.tables.shapes.get(shape).requests;
        let share = |(has, price): &(&[(ResourceId, i64)], i64)| {
            let mut largest = 0;
            for (id, size) in requests {
                let has = amount(has, *id);
                if has < *size {
                    return None;
                }
                if has > 0 {
                    largest = largest.max(i128::from(*price) * i128::from(*size) / i128::from(has));
                }
            }
            i64::try_from(largest).ok()
        };
        let value = self.offers.iter().filter_map(share).min().unwrap_or(0);
        self.known.insert(shape, value);
        value
    }

    /// The cost of a node's pods elsewhere, as far as they need another place.
    pub(super) fn node(&mut self, node: NodeIx) -> i64 {
        movable_shapes(self.cluster, node).map(|shape| self.shape(shape)).sum()
    }

    /// The floors of a node's pods. Those of several nodes add up, and the largest sum holds for all of them together. Their
    /// values do not: pods that need different resources share an instance.
    pub(super) fn floors(&mut self, node: NodeIx) -> Floors {
        let mut sums = Floors::default();
        for shape in movable_shapes(self.cluster, node) {
            for (id, size) in &self.cluster.tables.shapes.get(shape).requests {
                let sum = sums.entry(*id).or_default();
                *sum = sum.saturating_add(*size);
            }
        }
        for (id, sum) in &mut sums {
            let floor =
                self.cheapest(*id).map(|(price, has)| i128::from(*sum) * i128::from(price) / i128::from(has));
            *sum = floor.and_then(|floor| i64::try_from(floor).ok()).unwrap_or(0);
        }
        sums
    }

    fn cheapest(&mut self, id: ResourceId) -> Option<(i64, i64)> {
        let offers = &self.offers;
        *self.cheapest.entry(id).or_insert_with(|| {
            let rows =
                offers.iter().map(|(has, price)| (*price, amount(has, id))).filter(|(_, has)| *has > 0);
            rows.min_by(|(price, has), (other, more)| {
                (i128::from(*price) * i128::from(*more)).cmp(&(i128::from(*other) * i128::from(*has)))
            })
        })
    }
}
