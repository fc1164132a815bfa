//! A catalogue's offerings as rows of room and cost, shared by all pools with the same view of it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustc_hash::FxHashMap;

use crate::{
    ids::{InstanceTypeIx, OfferIx, RowIx},
    index_vec::IndexVec,
    packing::rows::{Rows, covers},
    state::{
        attachments::Dimension,
        catalog_index::{CatalogIndex, OfferSet},
        requests::{ResourceId, amount},
    },
};

/// Above every price: the search's cost of offerings without a price, so that they come last.
const UNPRICED: i64 = 1 << 40;

/// The non-dominated offerings of a set.
#[derive(Debug)]
pub(crate) struct Edges {
    /// Cheapest first: each larger in some resource than every cheaper one.
    pub(crate) ladder: Box<[OfferIx]>,
    /// The sets that no other set holds, dearest first.
    pub(crate) maximal: Box<[OfferIx]>,
}

/// Rows and costs of a catalogue's offerings.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Rows<RowIx>,
    /// Row of each offering.
    row_of: IndexVec<OfferIx, RowIx>,
    /// The search's cost, surcharges included.
    cost: IndexVec<OfferIx, i64>,
    edges: Mutex<FxHashMap<OfferSet, Arc<Edges>>>,
    by_cost: OnceLock<Box<[OfferIx]>>,
}

/// Surcharges of the search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surcharge {
    pub(crate) spot_permille: i64,
    pub(crate) per_node: i64,
}

impl Table {
    /// `amount_of` gives what a type has in a dimension, `taken` the requests of DaemonSets on an offering by dimension.
    pub(crate) fn new(
        catalog: &CatalogIndex,
        dims: &[Dimension],
        surcharge: Surcharge,
        amount_of: impl Fn(InstanceTypeIx, Dimension) -> i64,
        taken: impl Fn(OfferIx) -> Arc<[i64]>,
    ) -> Self {
        let mut numbers: FxHashMap<Vec<i64>, RowIx> = FxHashMap::default();
        let mut rows = Rows::new(dims.len());
        let (mut row_of, mut cost) = (IndexVec::new(), IndexVec::new());
        let mut last: Option<(InstanceTypeIx, Arc<[i64]>, RowIx)> = None;
        for (number, offer) in catalog.offers.enumerate() {
            let taken = taken(number);
            let has = catalog.allocatable.find(offer.kind).map_or(&[][..], |has| has);
            let row = match &last {
                Some((kind, t, row)) if *kind == offer.kind && *t == taken => *row,
                _ => {
                    let row: Vec<i64> = dims
                        .iter()
                        .zip(taken.iter())
                        .map(|(dim, t)| amount_of(offer.kind, *dim).saturating_sub(*t))
                        .collect();
                    *numbers.entry(row).or_insert_with_key(|row| rows.push(row))
                }
            };
            last = Some((offer.kind, taken, row));
            row_of.push(row);
            let own = match offer.price {
                Some(price) if offer.capacity == crate::CapacityType::Spot => {
                    price.saturating_add(price.saturating_mul(surcharge.spot_permille) / 1000)
                }
                Some(price) => price,
                // Without prices, smaller is better.
                None => {
                    let size = amount(has, ResourceId::CPU).saturating_mul(1000);
                    UNPRICED.saturating_add(size.saturating_add(amount(has, ResourceId::MEMORY) >> 20))
                }
            };
            cost.push(own.saturating_add(surcharge.per_node));
        }
        Self { rows, row_of, cost, edges: Mutex::default(), by_cost: OnceLock::new() }
    }

    /// Room on an offering, by dimension.
    #[inline]
    pub(crate) fn row(&self, offer: OfferIx) -> &[i64] {
        &self.rows[self.row_of[offer]]
    }

    /// The search's cost of an offering.
    #[inline]
    pub(crate) fn cost(&self, offer: OfferIx) -> i64 {
        self.cost[offer]
    }

    /// All offerings, cheapest first.
    pub(crate) fn by_cost(&self) -> &[OfferIx] {
        self.by_cost.get_or_init(|| {
            let mut all: Vec<OfferIx> = self.cost.ids().collect();
            all.sort_by_key(|o| self.cost[*o]);
            all.into()
        })
    }

    /// The non-dominated offerings of `bits`.
    pub(crate) fn edges(&self, bits: &OfferSet) -> Arc<Edges> {
        let mut known = self.edges.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(edges) = known.get(bits) {
            return Arc::clone(edges);
        }
        let edges = Arc::new(self.find_edges(bits));
        known.insert(bits.clone(), Arc::clone(&edges));
        edges
    }

    fn find_edges(&self, bits: &OfferSet) -> Edges {
        // One offering per row: the cheapest.
        let mut best: FxHashMap<RowIx, OfferIx> = FxHashMap::default();
        for offer in bits.iter() {
            best.entry(self.row_of[offer])
                .and_modify(|kept| {
                    if self.cost[offer] < self.cost[*kept] {
                        *kept = offer;
                    }
                })
                .or_insert(offer);
        }
        let mut all: Vec<OfferIx> = best.into_values().collect();
        all.sort_unstable_by(|a, b| {
            self.cost[*a].cmp(&self.cost[*b]).then_with(|| self.row(*b).cmp(self.row(*a))).then(a.cmp(b))
        });
        let holds = |a: OfferIx, b: OfferIx| covers(self.row(a), self.row(b));
        let mut ladder: Vec<OfferIx> = Vec::new();
        for offer in all {
            // Prices rise with size: a dominating offering is likely among the latest.
            if !ladder.iter().rev().any(|kept| holds(*kept, offer)) {
                ladder.push(offer);
            }
        }
        let mut maximal: Vec<OfferIx> = Vec::new();
        for offer in ladder.iter().rev() {
            if !maximal.iter().any(|kept| holds(*kept, *offer)) {
                maximal.push(*offer);
            }
        }
        Edges { ladder: ladder.into(), maximal: maximal.into() }
    }
}
