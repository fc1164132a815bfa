//! A catalogue as tables, and the offerings that a pool may launch as sets.

use std::{collections::BTreeSet, sync::Arc};

use rustc_hash::FxHashMap;

use crate::{
    ids::{InstanceTypeIx, OfferIx, PoolVariantIx},
    index_vec::IndexVec,
    model::{
        bit_set::BitSet,
        catalog::{CapacityType, InstanceType, region_of_zone},
        pool::Pool,
        requirement::{Operator, Requirement},
        well_known::{
            ALIASES, ARCH, CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, OS, POOL, REGION, TEMPLATE, ZONE,
        },
    },
    state::{
        interner::{Labels, Sym, Symbols, label},
        node_requirement::{Expr, NodeReq, Term},
        pod_shape::Tables,
        requests::{self, Problem, ResourceId},
        taint::Taint,
    },
};

/// kubelet's default, for catalogues without a maximum of pods.
const DEFAULT_PODS: i64 = 110;
/// Pools whose own labels leave a choice are expanded into at most this many variants.
const MAX_VARIANTS: usize = 64;

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
    systems: FxHashMap<Sym, OfferSet>,
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

    fn has_label(&self, keys: &Keys, key: Sym) -> bool {
        key == keys.zone || key == keys.capacity_type || key == keys.region || self.values.contains_key(&key)
    }

    /// Offerings whose label `key` (canonical) satisfies `expr`.
    fn matching(&self, symbols: &Symbols, keys: &Keys, key: Sym, expr: &Expr) -> OfferSet {
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

/// A pool, or one choice of the labels that it leaves open.
#[derive(Debug)]
pub(crate) struct Variant {
    /// Labels that every node of it carries, whatever its type. Keys are canonical.
    pub(crate) labels: Labels,
    /// Offerings that the pool's requirements allow, available or not.
    pub(crate) allowed: OfferSet,
}

impl Variant {
    /// Offerings of `catalog` on which a new node satisfies `expr`.
    fn expr(&self, symbols: &Symbols, keys: &Keys, catalog: &CatalogIndex, expr: &Expr) -> OfferSet {
        let size = catalog.offers.len();
        let key = keys.canonical(expr.key);
        let same = |yes: bool| if yes { OfferSet::all(size) } else { OfferSet::none(size) };
        if key == keys.hostname {
            // A hostname that nothing has yet: it exists, and differs from every name that could be written.
            return same(matches!(expr.operator, Operator::Exists | Operator::NotIn));
        }
        match label(&self.labels, key) {
            Some(value) => same(expr.matches(symbols, Some(value))),
            None => catalog.matching(symbols, keys, key, expr),
        }
    }

    fn term(&self, symbols: &Symbols, keys: &Keys, catalog: &CatalogIndex, term: &Term) -> OfferSet {
        let mut bits = OfferSet::all(catalog.offers.len());
        if term.labels.is_empty() && term.fields.is_empty()
            || term.fields.iter().any(|e| !matches!(e.operator, Operator::Exists | Operator::NotIn))
        {
            return OfferSet::none(catalog.offers.len());
        }
        for expr in &term.labels {
            bits.intersect(&self.expr(symbols, keys, catalog, expr));
        }
        bits
    }

    /// Offerings on which a new node satisfies `req`.
    pub(crate) fn req(
        &self,
        symbols: &Symbols,
        keys: &Keys,
        catalog: &CatalogIndex,
        req: &NodeReq,
    ) -> OfferSet {
        let mut bits = OfferSet::none(catalog.offers.len());
        for term in &req.terms {
            bits.unite(&self.term(symbols, keys, catalog, term));
        }
        bits
    }

    /// True if a new node of `offer` satisfies `req`.
    pub(crate) fn satisfies(
        &self,
        symbols: &Symbols,
        keys: &Keys,
        catalog: &CatalogIndex,
        offer: OfferIx,
        req: &NodeReq,
    ) -> bool {
        let new_name = |e: &Expr| matches!(e.operator, Operator::Exists | Operator::NotIn);
        req.terms.iter().any(|term| {
            !(term.labels.is_empty() && term.fields.is_empty())
                && term.fields.iter().all(new_name)
                && term.labels.iter().all(|e| {
                    if keys.canonical(e.key) == keys.hostname {
                        new_name(e)
                    } else {
                        e.matches(symbols, self.value(keys, catalog, offer, e.key))
                    }
                })
        })
    }

    /// True if no offering can satisfy `req`, by the variant's own labels.
    pub(crate) fn rejects(&self, symbols: &Symbols, keys: &Keys, req: &NodeReq) -> bool {
        req.terms.iter().all(|term| {
            term.labels.iter().any(|e| {
                label(&self.labels, keys.canonical(e.key)).is_some_and(|v| !e.matches(symbols, Some(v)))
            })
        })
    }

    /// True if every offering satisfies `req`, by the variant's own labels.
    pub(crate) fn accepts(&self, symbols: &Symbols, keys: &Keys, req: &NodeReq) -> bool {
        req.terms.iter().any(|term| {
            !term.labels.is_empty()
                && term.fields.is_empty()
                && term.labels.iter().all(|e| {
                    label(&self.labels, keys.canonical(e.key)).is_some_and(|v| e.matches(symbols, Some(v)))
                })
        })
    }

    /// Offerings on which a new node satisfies one preferred `term`.
    pub(crate) fn preferred(
        &self,
        symbols: &Symbols,
        keys: &Keys,
        catalog: &CatalogIndex,
        term: &Term,
    ) -> OfferSet {
        self.term(symbols, keys, catalog, term)
    }

    /// The label `key` of a new node of `offer`.
    pub(crate) fn value(&self, keys: &Keys, catalog: &CatalogIndex, offer: OfferIx, key: Sym) -> Option<Sym> {
        let key = keys.canonical(key);
        label(&self.labels, key).or_else(|| catalog.value(keys, offer, key))
    }
}

/// A pool, compiled; of a pool with several templates, one of them.
#[derive(Clone, Debug)]
pub(crate) struct PoolRec {
    pub(crate) pool: Arc<Pool>,
    pub(crate) catalog: Arc<CatalogIndex>,
    pub(crate) variants: Arc<IndexVec<PoolVariantIx, Variant>>,
    /// If all requirements together exclude every offering: those without each of which some would be left.
    pub(crate) excluding: Arc<[String]>,
    /// Permanent taints.
    pub(crate) taints: Arc<[Taint]>,
    pub(crate) label: (Sym, Sym),
    /// The value of the template's label; `None` if the pool has only one kind of node.
    pub(crate) template: Option<Sym>,
    /// Of the first template: the names of all templates of the pool.
    pub(crate) siblings: Arc<[Sym]>,
    pub(crate) min_values: Arc<[(Sym, u32)]>,
}

impl PoolRec {
    /// Compiles `pool`.
    pub(crate) fn new(
        tables: &mut Tables,
        keys: &Keys,
        pool: Pool,
        catalog: Arc<CatalogIndex>,
    ) -> Result<Self, Problem> {
        let symbols = &mut tables.symbols;
        let label_pair = (symbols.sym(&pool.key), symbols.sym(&pool.value));
        let taints = |list: &[k8s_openapi::api::core::v1::Taint], symbols: &mut Symbols, field: &str| {
            let list = list.iter().map(|t| Taint::from_api(symbols, t));
            list.collect::<Result<Arc<[_]>, _>>()
                .map_err(|problem| Problem { field: field.to_owned(), problem })
        };
        let kept = taints(&pool.taints, symbols, "spec.template.spec.taints")?;
        // Validated only; they don't keep pods off.
        taints(&pool.startup_taints, symbols, "spec.template.spec.startupTaints")?;

        let mut exprs = Vec::new();
        let mut min_values = Vec::new();
        for requirement in &pool.requirements {
            let expr = Expr::new(symbols, requirement).map_err(|problem| Problem {
                field: "spec.template.spec.requirements".to_owned(),
                problem,
            })?;
            let key = keys.canonical(expr.key);
            if let Some(count) = requirement.min_values {
                min_values.push((key, count));
            }
            exprs.push((key, expr));
        }
        for (key, value) in [(keys.os, "linux"), (keys.capacity_type, "on-demand")] {
            if !exprs.iter().any(|(k, _)| *k == key) {
                let requirement = Requirement::any_of(symbols.text(key), [value]);
                if let Ok(expr) = Expr::new(symbols, &requirement) {
                    exprs.push((key, expr));
                }
            }
        }

        let mut labels: Vec<(Sym, Sym)> = Vec::new();
        let mut set = |key: Sym, value: Sym| {
            if !labels.iter().any(|(k, _)| *k == key) {
                labels.push((key, value));
            }
        };
        set(label_pair.0, label_pair.1);
        set(keys.pool, symbols.sym(&pool.name));
        let template = (!pool.template.is_empty()).then(|| symbols.sym(&pool.template));
        if let Some(template) = template {
            set(keys.template, template);
        }
        for (key, value) in &pool.labels {
            let key = keys.canonical(symbols.sym(key));
            set(key, symbols.sym(value));
        }
        let variants = expand(symbols, keys, &catalog, &exprs, labels.clone());
        let is_dead = variants.iter().all(|variant| variant.allowed.is_empty());
        let excluding =
            if is_dead { excluding(symbols, keys, &catalog, &exprs, &labels) } else { Vec::new() };
        Ok(Self {
            pool: Arc::new(pool),
            catalog,
            variants: Arc::new(variants.into()),
            excluding: excluding.into(),
            taints: kept,
            label: label_pair,
            template,
            siblings: Arc::default(),
            min_values: min_values.into(),
        })
    }

    /// True if a node with the pool's label is of this template. The first template has the nodes of none of them, such as
    /// those from before a template was renamed, so that a limit of the pool counts each node once.
    pub(crate) fn has(&self, keys: &Keys, labels: &[(Sym, Sym)]) -> bool {
        let Some(own) = self.template else { return true };
        match label(labels, keys.template) {
            Some(name) if name == own => true,
            Some(name) => !self.siblings.is_empty() && !self.siblings.contains(&name),
            None => !self.siblings.is_empty(),
        }
    }
}

/// One variant per choice of the keys that neither template nor catalogue fixes: the operating system, and
/// custom keys with `In`.
fn expand(
    symbols: &Symbols,
    keys: &Keys,
    catalog: &CatalogIndex,
    exprs: &[(Sym, Expr)],
    labels: Vec<(Sym, Sym)>,
) -> Vec<Variant> {
    let size = catalog.offers.len();
    let mut choices: Vec<(Sym, Vec<Sym>)> = Vec::new();
    let mut allowed = OfferSet::all(size);
    // Lists first, whatever the order in the pool, so that the other conditions on a label find the values that they choose among.
    let is_list = |(_, expr): &&(Sym, Expr)| expr.operator == Operator::In;
    let others = exprs.iter().filter(|one| !is_list(one));
    for (key, expr) in exprs.iter().filter(is_list).chain(others) {
        if let Some((_, value)) = labels.iter().find(|(k, _)| k == key) {
            if !expr.matches(symbols, Some(*value)) {
                allowed = OfferSet::none(size);
            }
        } else if *key == keys.os {
            let systems = catalog.systems.keys().copied().collect();
            narrow(symbols, &mut choices, *key, systems, expr);
        } else if catalog.has_label(keys, *key) {
            allowed.intersect(&catalog.matching(symbols, keys, *key, expr));
        } else if expr.operator == Operator::In {
            narrow(symbols, &mut choices, *key, expr.values.to_vec(), expr);
        } else if let Some(open) = choices.iter_mut().find(|(k, _)| k == key) {
            open.1.retain(|v| expr.matches(symbols, Some(*v)));
        } else if !expr.matches(symbols, None) {
            // Exists, Gt, ... on a key that no node of the pool would carry.
            allowed = OfferSet::none(size);
        }
    }
    let mut lists = vec![labels];
    for (key, mut values) in choices {
        values.sort_unstable_by(|a, b| symbols.text(*a).cmp(symbols.text(*b)));
        let mut next = Vec::new();
        for list in &lists {
            for value in &values {
                if next.len() < MAX_VARIANTS {
                    let mut list = list.clone();
                    list.push((key, *value));
                    next.push(list);
                }
            }
        }
        lists = next;
    }
    lists
        .into_iter()
        .map(|mut labels| {
            labels.sort_unstable();
            let mut allowed = allowed.clone();
            match label(&labels, keys.os).and_then(|os| catalog.systems.get(&os)) {
                Some(bits) => allowed.intersect(bits),
                None => allowed = OfferSet::none(size),
            }
            Variant { labels: labels.into(), allowed }
        })
        .collect()
}

/// The requirements without each of which the others would leave an offering. Each node has an operating system, so a requirement on it
/// is left out as one that every system meets.
fn excluding(
    symbols: &Symbols,
    keys: &Keys,
    catalog: &CatalogIndex,
    exprs: &[(Sym, Expr)],
    labels: &[(Sym, Sym)],
) -> Vec<String> {
    let is_left_without = |at: usize| {
        let mut others = exprs.to_vec();
        let (key, left_out) = others.remove(at);
        if key == keys.os {
            others.push((key, Expr { operator: Operator::Exists, values: Box::default(), ..left_out }));
        }
        let variants = expand(symbols, keys, catalog, &others, labels.to_vec());
        variants.iter().any(|variant| !variant.allowed.is_empty())
    };
    let at_fault = exprs.iter().enumerate().filter(|(at, _)| is_left_without(*at));
    at_fault.map(|(_, (_, expr))| expr.show(symbols)).collect()
}

fn narrow(symbols: &Symbols, choices: &mut Vec<(Sym, Vec<Sym>)>, key: Sym, all: Vec<Sym>, expr: &Expr) {
    match choices.iter_mut().find(|(k, _)| *k == key) {
        Some((_, values)) => values.retain(|v| expr.matches(symbols, Some(*v))),
        None => {
            let values = all.into_iter().filter(|v| expr.matches(symbols, Some(*v))).collect();
            choices.push((key, values));
        }
    }
}
