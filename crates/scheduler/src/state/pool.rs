//! A pool, compiled: its variants, and the offerings that each of them may launch.

use std::sync::Arc;

use crate::{
    ids::{OfferIx, PoolVariantIx},
    index_vec::IndexVec,
    model::{
        pool::Pool,
        requirement::{Operator, Requirement},
    },
    state::{
        catalog_index::{CatalogIndex, Keys, OfferSet},
        interner::{Labels, Sym, Symbols, label},
        node_requirement::{Expr, NodeReq, Term},
        pod_shape::Tables,
        requests::Problem,
        taint::Taint,
    },
};

/// Pools whose own labels leave a choice are expanded into at most this many variants.
const MAX_VARIANTS: usize = 64;

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
