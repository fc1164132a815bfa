//! A catalogue's offerings as rows of room and cost, shared by all pools with the same view of it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustc_hash::FxHashMap;

use crate::{
    model::bit_set::BitSet,
    state::{catalog_index::CatalogIndex, requests::amount},
};

/// Above every price: the search's cost of offerings without a price, so that they come last.
const UNPRICED: i64 = 1 << 40;

/// The non-dominated offerings of a set.
#[derive(Debug)]
pub(crate) struct Edges {
    /// Cheapest first: each larger in some resource than every cheaper one.
    pub(crate) ladder: Box<[u32]>,
    /// The sets that no other set holds, dearest first.
    pub(crate) maximal: Box<[u32]>,
}

/// Rows and costs of a catalogue's offerings.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) d: usize,
    rows: Vec<i64>,
    /// Row of each offering.
    pub(crate) row_of: Vec<u32>,
    /// The search's cost, surcharges included.
    pub(crate) cost: Vec<i64>,
    edges: Mutex<FxHashMap<BitSet, Arc<Edges>>>,
    by_cost: OnceLock<Box<[u32]>>,
}

/// Surcharges of the search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surcharge {
    pub(crate) spot_permille: i64,
    pub(crate) per_node: i64,
}

#[expect(clippy::indexing_slicing, reason = "every offering has a row and a cost")]
impl Table {
    /// `taken` gives the requests of DaemonSets on an offering, by dimension.
    pub(crate) fn new(
        catalog: &CatalogIndex,
        dims: &[u32],
        surcharge: Surcharge,
        taken: impl Fn(usize) -> Arc<[i64]>,
    ) -> Self {
        let mut numbers: FxHashMap<Vec<i64>, u32> = FxHashMap::default();
        let mut rows: Vec<i64> = Vec::new();
        let (mut row_of, mut cost) = (Vec::new(), Vec::new());
        let mut last: Option<(u32, Arc<[i64]>, u32)> = None;
        for (at, offer) in catalog.offers.iter().enumerate() {
            let taken = taken(at);
            let number = match &last {
                Some((kind, t, number)) if *kind == offer.kind && *t == taken => *number,
                _ => {
                    let has = &catalog.allocatable[offer.kind as usize];
                    let row: Vec<i64> = dims
                        .iter()
                        .zip(taken.iter())
                        .map(|(dim, t)| amount(has, *dim).saturating_sub(*t))
                        .collect();
                    let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
                    *numbers.entry(row).or_insert_with_key(|row| {
                        rows.extend_from_slice(row);
                        next
                    })
                }
            };
            last = Some((offer.kind, taken, number));
            row_of.push(number);
            let own = match offer.price {
                Some(price) if offer.capacity == crate::CapacityType::Spot => {
                    price.saturating_add(price.saturating_mul(surcharge.spot_permille) / 1000)
                }
                Some(price) => price,
                // Without prices, smaller is better.
                None => {
                    let has = &catalog.allocatable[offer.kind as usize];
                    let size = amount(has, crate::state::requests::RES_CPU).saturating_mul(1000);
                    UNPRICED.saturating_add(
                        size.saturating_add(amount(has, crate::state::requests::RES_MEMORY) >> 20),
                    )
                }
            };
            cost.push(own.saturating_add(surcharge.per_node));
        }
        Self { d: dims.len(), rows, row_of, cost, edges: Mutex::default(), by_cost: OnceLock::new() }
    }

    pub(crate) fn row(&self, offer: u32) -> &[i64] {
        let row = self.row_of[offer as usize] as usize;
        &self.rows[row * self.d..(row + 1) * self.d]
    }

    /// All offerings, cheapest first.
    pub(crate) fn by_cost(&self) -> &[u32] {
        self.by_cost.get_or_init(|| {
            let mut all: Vec<u32> = (0..self.cost.len()).filter_map(|o| u32::try_from(o).ok()).collect();
            all.sort_by_key(|o| self.cost[*o as usize]);
            all.into()
        })
    }

    /// The non-dominated offerings of `bits`.
    pub(crate) fn edges(&self, bits: &BitSet) -> Arc<Edges> {
        let mut known = self.edges.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(edges) = known.get(bits) {
            return Arc::clone(edges);
        }
        let edges = Arc::new(self.find_edges(bits));
        known.insert(bits.clone(), Arc::clone(&edges));
        edges
    }

    fn find_edges(&self, bits: &BitSet) -> Edges {
        // One offering per row: the cheapest.
        let mut best: FxHashMap<u32, u32> = FxHashMap::default();
        for offer in bits.iter() {
            let number = u32::try_from(offer).unwrap_or(u32::MAX);
            best.entry(self.row_of[offer])
                .and_modify(|kept| {
                    if self.cost[offer] < self.cost[*kept as usize] {
                        *kept = number;
                    }
                })
                .or_insert(number);
        }
        let mut all: Vec<u32> = best.into_values().collect();
        all.sort_unstable_by(|a, b| {
            self.cost[*a as usize]
                .cmp(&self.cost[*b as usize])
                .then_with(|| self.row(*b).cmp(self.row(*a)))
                .then(a.cmp(b))
        });
        let holds = |a: u32, b: u32| self.row(a).iter().zip(self.row(b)).all(|(a, b)| a >= b);
        let mut ladder: Vec<u32> = Vec::new();
        for offer in all {
            // Prices rise with size: a dominating offering is likely among the latest.
            if !ladder.iter().rev().any(|kept| holds(*kept, offer)) {
                ladder.push(offer);
            }
        }
        let mut maximal: Vec<u32> = Vec::new();
        for offer in ladder.iter().rev() {
            if !maximal.iter().any(|kept| holds(*kept, *offer)) {
                maximal.push(*offer);
            }
        }
        Edges { ladder: ladder.into(), maximal: maximal.into() }
    }
}
