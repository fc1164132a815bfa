//! What a class may use: offerings, and the cells that domains part them into.

use std::sync::{Arc, PoisonError};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{Context, Parts, Tier};
use crate::{
    bits::Bits,
    groups::Groups,
    intern::Sym,
    pack::fits,
    requests::amount,
    taint,
    zones::{Board, Cell, Choice},
};

#[expect(
    clippy::indexing_slicing,
    reason = "classes, pools and variants are numbered by the lists that they index"
)]
impl Context<'_> {
    /// Available offerings of the tier's variants that the class may use and that are large enough.
    pub(super) fn options_of(
        &self,
        tier: &Tier<'_>,
        local: usize,
        weight: i32,
    ) -> SmallVec<[(u32, Bits); 2]> {
        let class = tier.block.classes[local].0;
        let size = self.size(tier, class);
        let mut result = SmallVec::new();
        for a in self.allowed[class].iter().filter(|a| self.pools[a.pool].pool.weight == weight) {
            let Some(at) = tier.variants.iter().position(|v| *v == (a.pool, a.variant)) else { continue };
            let table = &tier.tables[at];
            let open = a.bits.and(&self.pools[a.pool].catalog.available);
            // The largest ones decide whether anything fits; the packing looks at sizes again.
            let edges = table.edges(&open);
            if edges.maximal.iter().any(|offer| fits(&size, table.row(*offer)) > 0) {
                result.push((u32::try_from(at).unwrap_or(u32::MAX), open));
            }
        }
        self.prefer(tier, class, &mut result);
        result
    }

    /// Narrows offerings to what the class prefers, heaviest preference first, wherever that costs nothing: when every
    /// machine worth launching is left, at the same price.
    pub(super) fn prefer(&self, tier: &Tier<'_>, class: usize, options: &mut SmallVec<[(u32, Bits); 2]>) {
        let cluster = self.cluster;
        for (_, term) in &self.demand.classes[class].shape(cluster).preferred_nodes {
            let narrowed: SmallVec<[(u32, Bits); 2]> = options
                .iter()
                .map(|(at, bits)| {
                    let (pool, variant) = tier.variants[*at as usize];
                    let rec = self.pools[pool];
                    let with = rec.variants[variant].preferred(
                        &cluster.tables.symbols,
                        &cluster.keys,
                        &rec.catalog,
                        term,
                    );
                    (*at, bits.and(&with))
                })
                .collect();
            let free = options.iter().zip(&narrowed).all(|((at, all), (_, some))| {
                let table = &tier.tables[*at as usize];
                let (all, some) = (table.edges(all), table.edges(some));
                all.ladder.len() == some.ladder.len()
                    && all.ladder.iter().zip(&some.ladder).all(|(a, b)| {
                        table.cost[*a as usize] == table.cost[*b as usize] && table.row(*a) == table.row(*b)
                    })
            });
            if free {
                *options = narrowed;
            }
        }
    }

    pub(super) fn size(&self, tier: &Tier<'_>, class: usize) -> SmallVec<[i64; 4]> {
        let shape = self.demand.classes[class].shape(self.cluster);
        tier.dims.iter().map(|dim| amount(&shape.requests, *dim)).collect()
    }

    /// Cells: every combination of the domains that some group of the block looks at.
    pub(super) fn board(&self, tier: &Tier<'_>, groups: &Groups) -> Board {
        let mut keys: Vec<Sym> =
            groups.list.iter().map(|g| g.key).filter(|k| *k != self.cluster.keys.hostname).collect();
        keys.sort_unstable_by_key(|k| self.cluster.tables.symbols.text(*k));
        keys.dedup();
        let mut board = Board { keys, cells: Vec::new(), opened: Arc::clone(&self.opened) };
        if board.keys.is_empty() {
            return board;
        }
        let sizes: Vec<usize> =
            tier.variants.iter().map(|(pool, _)| self.pools[*pool].catalog.offers.len()).collect();
        for (at, (pool, variant)) in tier.variants.iter().enumerate() {
            let rec = self.pools[*pool];
            let open = rec.variants[*variant].allowed.and(&rec.catalog.available);
            for (values, bits) in self.parts(*pool, *variant, &board.keys).iter() {
                let here = bits.and(&open);
                if here.is_empty() {
                    continue;
                }
                let number = board.cells.iter().position(|c| c.values == *values).unwrap_or_else(|| {
                    let offers = sizes.iter().map(|size| Bits::none(*size)).collect();
                    board.cells.push(Cell { values: values.clone(), offers });
                    board.cells.len() - 1
                });
                board.cells[number].offers[at] = here;
            }
        }
        let text = |v: &Option<Sym>| v.map(|v| self.cluster.tables.symbols.text(v));
        board
            .cells
            .sort_by_cached_key(|c| c.values.iter().map(|v| text(v).map(str::to_owned)).collect::<Vec<_>>());
        board
    }

    /// The catalogue of a variant, parted by the values of `keys`. Variants that agree in their own labels share it.
    pub(super) fn parts(&self, pool: usize, variant: usize, keys: &[Sym]) -> Arc<Parts> {
        let rec = self.pools[pool];
        let it = &rec.variants[variant];
        let own = keys.iter().map(|k| crate::intern::label(&it.labels, *k)).collect();
        let key = (Arc::as_ptr(&rec.catalog).addr(), keys.to_vec(), own);
        let mut known = self.warm.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = known.entry(key).or_insert_with(|| {
            let size = rec.catalog.offers.len();
            let mut numbers: FxHashMap<Vec<Option<Sym>>, usize> = FxHashMap::default();
            let mut parts: Parts = Vec::new();
            for offer in 0..size {
                let values =
                    keys.iter().map(|k| it.value(&self.cluster.keys, &rec.catalog, offer, *k)).collect();
                let number = *numbers.entry(values).or_insert_with_key(|values| {
                    parts.push((values.clone(), Bits::none(size)));
                    parts.len() - 1
                });
                parts[number].1.insert(offer);
            }
            Arc::new(parts)
        });
        Arc::clone(parts)
    }

    pub(super) fn choice(
        &self,
        tier: &Tier<'_>,
        groups: &Groups,
        board: &Board,
        local: usize,
        count: u32,
        options: &[(u32, Bits)],
    ) -> Choice {
        let class = tier.block.classes[local].0;
        let topology = &groups.of[local];
        let mut choice = Choice {
            class: local,
            count,
            priority: self.demand.classes[class].priority,
            cells: Vec::new(),
            counted: Vec::new(),
        };
        if !topology.chooses() && topology.host_near.is_none() {
            return choice;
        }
        let size = self.size(tier, class);
        for (number, cell) in board.cells.iter().enumerate() {
            let mut cheapest = None;
            for (at, bits) in options {
                let table = &tier.tables[*at as usize];
                let here = bits.and(&cell.offers[*at as usize]);
                if here.is_empty() {
                    continue;
                }
                let edges = table.edges(&here);
                let fit = edges.ladder.iter().find(|o| fits(&size, table.row(**o)) > 0);
                if let Some(cost) = fit.map(|o| table.cost[*o as usize]) {
                    cheapest = Some(cheapest.map_or(cost, |c: i64| c.min(cost)));
                }
            }
            choice.cells.extend(cheapest.map(|cost| (number, cost)));
        }
        for g in &topology.counted {
            let counts = groups.list[*g].filter.is_none_or(|filter| {
                options.iter().any(|(at, bits)| self.filter_allows(tier, *at as usize, bits, filter))
            });
            if counts {
                choice.counted.push(*g);
            }
        }
        choice
    }

    /// True if new nodes of some offering in `bits` count under `filter`.
    pub(super) fn filter_allows(&self, tier: &Tier<'_>, at: usize, bits: &Bits, filter: u32) -> bool {
        let tables = &self.cluster.tables;
        let filter = tables.filters.get(filter);
        let (pool, variant) = tier.variants[at];
        let rec = self.pools[pool];
        let it = &rec.variants[variant];
        if let Some(t) = filter.tolerations
            && taint::untolerated(tables.tolerations.get(t), &rec.taints).is_some()
        {
            return false;
        }
        let mut bits = bits.clone();
        for req in &filter.reqs {
            let req = tables.reqs.get(*req);
            bits.intersect(&it.req(&tables.symbols, &self.cluster.keys, &rec.catalog, req));
        }
        !bits.is_empty()
    }
}
