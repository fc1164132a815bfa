//! A catalogue as tables, and its offerings as sets.

use std::{collections::BTreeSet, sync::Arc};

use rustc_hash::FxHashMap;

use crate::{
    ids::{InstanceTypeIx, OfferIx},
    index_vec::IndexVec,
    model::{
        bit_set::BitSet,
        catalog::{CapacityType, InstanceType, region_of_zone},
        well_known::{
            ALIASES, ARCH, CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, OS, POOL, REGION, TEMPLATE, ZONE,
        },
    },
    state::{
        interner::{Sym, Symbols},
        node_requirement::Expr,
        pod_shape::Tables,
        requests::{self, ResourceId},
    },
};

/// kubelet's default, for catalogues without a maximum of pods.
const DEFAULT_PODS: i64 = 110;

/// Keys with a meaning of their own, and their older names.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub(crate) hostname: Sym,
    pub(crate) zone: Sym,
    pub(crate) region: Sym,
    pub(crate) capacity_type: Sym,
    pub(crate) instance_type: Sym,
    pub(crate) arch: Sym,
    pub(crate) os: Sym,
    pub(crate) pool: Sym,
    pub(crate) template: Sym,
    aliases: FxHashMap<Sym, Sym>,
}

impl Keys {
    pub(crate) fn new(symbols: &mut Symbols) -> Self {
        Self {
            hostname: symbols.sym(HOSTNAME),
            zone: symbols.sym(ZONE),
            region: symbols.sym(REGION),
            capacity_type: symbols.sym(CAPACITY_TYPE),
            instance_type: symbols.sym(INSTANCE_TYPE),
            arch: symbols.sym(ARCH),
            os: symbols.sym(OS),
            pool: symbols.sym(POOL),
            template: symbols.sym(TEMPLATE),
            aliases: ALIASES.iter().map(|(old, new)| (symbols.sym(old), symbols.sym(new))).collect(),
        }
    }

    pub(crate) fn each(&self, mut see: impl FnMut(Sym)) {
        let Self { hostname, zone, region, capacity_type, instance_type, arch, os, pool, template, aliases } =
            self;
        for key in [hostname, zone, region, capacity_type, instance_type, arch, os, pool, template] {
            see(*key);
        }
        aliases.iter().for_each(|(old, new)| {
            see(*old);
            see(*new);
        });
    }

    /// The canonical form of a label key, for nodes that don't exist yet.
    pub(crate) fn canonical(&self, key: Sym) -> Sym {
        self.aliases.get(&key).copied().unwrap_or(key)
    }
}

/// One offering: instance type, zone and capacity type.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) kind: InstanceTypeIx,
    pub(crate) zone: Sym,
    pub(crate) region: Option<Sym>,
    pub(crate) capacity: CapacityType,
    pub(crate) capacity_sym: Sym,
    /// Micro-dollars per hour.
    pub(crate) price: Option<i64>,
}

/// An offer in any catalogue: instance type, zone and capacity type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OfferId {
    kind: Sym,
    zone: Sym,
    capacity: CapacityType,
}

/// Offerings of one catalogue.
pub(crate) type OfferSet = BitSet<OfferIx>;

/// A catalogue as tables.
#[derive(Debug)]
pub(crate) struct CatalogIndex {
    pub(crate) source: Arc<[InstanceType]>,
    /// By type, in the order of the catalogue.
    pub(crate) offers: IndexVec<OfferIx, Offer>,
    /// The first offering of each type.
    begins: IndexVec<InstanceTypeIx, OfferIx>,
    pub(crate) available: OfferSet,
    pub(crate) allocatable: IndexVec<InstanceTypeIx, Box<[(ResourceId, i64)]>>,
    pub(crate) capacity: IndexVec<InstanceTypeIx, Box<[(ResourceId, i64)]>>,
    by_name: FxHashMap<Sym, InstanceTypeIx>,
    names: IndexVec<InstanceTypeIx, Sym>,
    /// CSI drivers of which some type has a limit.
    pub(crate) attach_drivers: BTreeSet<String>,
    /// Offers of which only so many instances can be had.
    pub(crate) counted: Vec<(OfferIx, u32)>,
    /// Labels that depend on the type: each type's value.
    values: FxHashMap<Sym, IndexVec<InstanceTypeIx, Option<Sym>>>,
    pub(super) systems: FxHashMap<Sym, OfferSet>,
}

/// Amounts of a type, with the kubelet's default number of pods where the catalogue has none.
fn with_pods(mut list: Vec<(ResourceId, i64)>) -> Box<[(ResourceId, i64)]> {
    if !list.iter().any(|(id, _)| *id == ResourceId::PODS) {
        list.push((ResourceId::PODS, DEFAULT_PODS));
    }
    list.sort_unstable();
    list.into()
}

impl CatalogIndex {
    pub(crate) fn new(tables: &mut Tables, keys: &Keys, source: &Arc<[InstanceType]>) -> Self {
        let (symbols, resources) = (&mut tables.symbols, &mut tables.resources);
        let mut offers = IndexVec::new();
        let mut available = Vec::new();
        let mut values: FxHashMap<Sym, Vec<Option<Sym>>> = FxHashMap::default();
        let (mut allocatable, mut capacity) = (IndexVec::new(), IndexVec::new());
        let mut by_name = FxHashMap::default();
        let (mut names, mut counted) = (IndexVec::new(), Vec::new());
        let mut systems: FxHashMap<Sym, Vec<OfferIx>> = FxHashMap::default();
        let mut begins = IndexVec::new();
        for (position, kind) in source.iter().enumerate() {
            let number = begins.push(offers.next_id());
            let name = symbols.sym(&kind.name);
            by_name.entry(name).or_insert(number);
            names.push(name);
            let mut set = |key: Sym, value: Sym| {
                let column = values.entry(key).or_default();
                column.resize(position, None);
                if column.len() == position {
                    column.push(Some(value));
                }
            };
            set(keys.instance_type, name);
            set(keys.arch, symbols.sym(&kind.arch));
            for (key, value) in &kind.labels {
                let key = keys.canonical(symbols.sym(key));
                let fixed = [keys.zone, keys.capacity_type, keys.os, keys.hostname];
                if !fixed.contains(&key) {
                    set(key, symbols.sym(value));
                }
            }
            for offering in &kind.offerings {
                for os in &kind.os {
                    systems.entry(symbols.sym(os)).or_default().push(offers.next_id());
                }
                if offering.available && offering.available_count != Some(0) {
                    available.push(offers.next_id());
                }
                counted.extend(offering.available_count.map(|count| (offers.next_id(), count)));
                offers.push(Offer {
                    kind: number,
                    zone: symbols.sym(&offering.zone),
                    region: region_of_zone(&offering.zone).map(|r| symbols.sym(r)),
                    capacity: offering.capacity_type,
                    capacity_sym: symbols.sym(offering.capacity_type.as_str()),
                    price: offering.price.map(crate::Price::micros),
                });
            }
            allocatable.push(with_pods(requests::from_resources(resources, &kind.allocatable()).to_vec()));
            capacity.push(with_pods(requests::from_resources(resources, &kind.capacity).to_vec()));
        }
        let total = offers.len();
        let bits = |list: Vec<OfferIx>| {
            let mut bits = OfferSet::none(total);
            list.into_iter().for_each(|offer| bits.insert(offer));
            bits
        };
        Self {
            source: Arc::clone(source),
            offers,
            begins,
            available: bits(available),
            allocatable,
            capacity,
            by_name,
            names,
            attach_drivers: source.iter().flat_map(|kind| kind.attach_limits.keys().cloned()).collect(),
            counted,
            values: values
                .into_iter()
                .map(|(key, mut column)| {
                    column.resize(source.len(), None);
                    (key, column.into())
                })
                .collect(),
            systems: systems.into_iter().map(|(os, list)| (os, bits(list))).collect(),
        }
    }

    /// Every string that the index names.
    pub(crate) fn symbols(&self, mut see: impl FnMut(Sym)) {
        for offer in &self.offers {
            see(offer.zone);
            see(offer.capacity_sym);
            offer.region.into_iter().for_each(&mut see);
        }
        self.by_name.keys().chain(self.systems.keys()).copied().for_each(&mut see);
        for (key, column) in &self.values {
            see(*key);
            column.iter().flatten().copied().for_each(&mut see);
        }
    }

    /// The name of a type.
    pub(crate) fn name(&self, kind: InstanceTypeIx) -> Option<Sym> {
        self.names.find(kind).copied()
    }

    /// The identity of an offer among all others, whatever the catalogue.
    pub(crate) fn identity(&self, offer: OfferIx) -> Option<OfferId> {
        let Offer { kind, zone, capacity, .. } = self.offers.find(offer)?;
        Some(OfferId { kind: *self.names.find(*kind)?, zone: *zone, capacity: *capacity })
    }

    pub(crate) fn find(&self, name: Sym) -> Option<InstanceTypeIx> {
        self.by_name.get(&name).copied()
    }

    /// The offerings of one type.
    pub(crate) fn offers_of(&self, kind: InstanceTypeIx) -> impl Iterator<Item = (OfferIx, &Offer)> {
        let begin = self.begins.find(kind).copied().unwrap_or(OfferIx::NONE);
        self.offers.enumerate_from(begin).take_while(move |(_, offer)| offer.kind == kind)
    }

    /// A type as the catalogue has it.
    pub(crate) fn instance_type(&self, kind: InstanceTypeIx) -> Option<&InstanceType> {
        self.source.get(usize::from(kind))
    }

    /// The type of an offering.
    pub(crate) fn kind(&self, offer: OfferIx) -> InstanceTypeIx {
        self.offers[offer].kind
    }

    /// The label `key` (canonical) of a node of `offer`, beside the pool's own labels.
    pub(crate) fn value(&self, keys: &Keys, offer: OfferIx, key: Sym) -> Option<Sym> {
        let it = &self.offers[offer];
        if key == keys.zone {
            return Some(it.zone);
        }
        if key == keys.capacity_type {
            return Some(it.capacity_sym);
        }
        let by_type = self.values.get(&key).and_then(|column| column[it.kind]);
        if key == keys.region { by_type.or(it.region) } else { by_type }
    }

    /// Labels of the type of `offer`, by key.
    pub(crate) fn type_labels(&self, offer: OfferIx) -> impl Iterator<Item = (Sym, Sym)> + '_ {
        let kind = self.kind(offer);
        self.values.iter().filter_map(move |(key, column)| Some((*key, column[kind]?)))
    }

    pub(super) fn has_label(&self, keys: &Keys, key: Sym) -> bool {
        key == keys.zone || key == keys.capacity_type || key == keys.region || self.values.contains_key(&key)
    }

    /// Offerings whose label `key` (canonical) satisfies `expr`.
    pub(super) fn matching(&self, symbols: &Symbols, keys: &Keys, key: Sym, expr: &Expr) -> OfferSet {
        let mut bits = OfferSet::none(self.offers.len());
        let mut known: FxHashMap<Option<Sym>, bool> = FxHashMap::default();
        for offer in self.offers.ids() {
            let value = self.value(keys, offer, key);
            if *known.entry(value).or_insert_with(|| expr.matches(symbols, value)) {
                bits.insert(offer);
            }
        }
        bits
    }
}
