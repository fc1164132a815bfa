//! Reuses ids of interned values that are no longer referenced, so that memory is bounded by the live set.

use crate::{
    model::bit_set::BitSet,
    state::{
        cluster::Cluster,
        interner::{Interner, NamespacedName, Sym},
        node_requirement::{Expr, Term},
        pod_shape::{
            ClaimNames, FilterId, IdentId, NodeReqId, PodAffinity, PodAntiAffinity, SelectorId, Shape,
            ShapeId, Tables, TolerationsId,
        },
        requests::{Port, ResourceId},
        selector::{Namespaces, Selector},
        taint::Taint,
    },
};

/// Below this many entries, reuse gains nothing.
const WORTH_IT: usize = 10_000;

/// Ids in use.
struct Live {
    symbols: BitSet<Sym>,
    resources: BitSet<ResourceId>,
    reqs: BitSet<NodeReqId>,
    tolerations: BitSet<TolerationsId>,
    selectors: BitSet<SelectorId>,
    filters: BitSet<FilterId>,
    idents: BitSet<IdentId>,
    shapes: BitSet<ShapeId>,
}

impl Live {
    fn sym(&mut self, sym: Sym) {
        self.symbols.insert(sym);
    }

    fn object(&mut self, object: NamespacedName) {
        self.sym(object.namespace);
        self.sym(object.name);
    }

    fn pairs(&mut self, pairs: &[(Sym, Sym)]) {
        for (a, b) in pairs {
            self.sym(*a);
            self.sym(*b);
        }
    }

    fn amounts(&mut self, amounts: &[(ResourceId, i64)]) {
        for (id, _) in amounts {
            self.resources.insert(*id);
        }
    }

    fn taints(&mut self, taints: &[Taint]) {
        for taint in taints {
            self.sym(taint.key);
            self.sym(taint.value);
        }
    }

    fn ports(&mut self, ports: &[Port]) {
        for port in ports {
            self.sym(port.protocol);
            if let Some(address) = port.address {
                self.sym(address);
            }
        }
    }

    fn exprs(&mut self, exprs: &[Expr]) {
        for expr in exprs {
            self.sym(expr.key);
            expr.values.iter().for_each(|value| self.sym(*value));
        }
    }

    fn term(&mut self, term: &Term) {
        self.exprs(&term.labels);
        self.exprs(&term.fields);
    }

    fn selector(&mut self, selector: &Selector) {
        for part in &selector.parts {
            match &part.namespaces {
                Namespaces::Named(names) => names.iter().for_each(|name| self.sym(*name)),
                Namespaces::Labelled(names, exprs) => {
                    names.iter().for_each(|name| self.sym(*name));
                    self.exprs(exprs);
                }
            }
            self.exprs(part.exprs.as_deref().unwrap_or_default());
        }
    }

    fn shape(&mut self, shape: &Shape) {
        self.amounts(&shape.requests);
        shape.reqs.iter().for_each(|req| self.reqs.insert(*req));
        self.tolerations.insert(shape.tolerations);
        self.ports(&shape.ports);
        for spread in &shape.spreads {
            self.sym(spread.key);
            self.selectors.insert(spread.selector);
            self.filters.insert(spread.filter);
        }
        if let Some(PodAffinity { selector, keys }) = &shape.affinity {
            self.selectors.insert(*selector);
            keys.iter().for_each(|key| self.sym(*key));
        }
        for PodAntiAffinity { selector, key } in &shape.anti_affinity {
            self.selectors.insert(*selector);
            self.sym(*key);
        }
        shape.preferred_nodes.iter().for_each(|(_, term)| self.term(term));
        for preference in &shape.preferred_pods {
            self.selectors.insert(preference.selector);
            self.sym(preference.key);
        }
        shape.claims.iter().flat_map(ClaimNames::iter).for_each(|claim| self.object(claim));
        for volume in &shape.ephemeral {
            volume.template.symbols().for_each(|sym| self.sym(sym));
        }
    }
}

/// Values whose ids are in `live`.
fn each<'a, I, T>(table: &'a Interner<I, T>, live: &BitSet<I>) -> impl Iterator<Item = &'a T> + use<'a, I, T>
where
    I: Copy + Eq + From<usize> + Into<usize>,
    T: ?Sized + Eq + std::hash::Hash,
{
    let ids: Vec<I> = live.iter().collect();
    ids.into_iter().map(|id| table.get(id))
}

/// Ids that live shapes refer to, transitively.
fn follow(tables: &Tables, live: &mut Live) {
    for shape in each(&tables.shapes, &live.shapes) {
        live.shape(shape);
    }
    for filter in each(&tables.filters, &live.filters) {
        filter.reqs.iter().for_each(|req| live.reqs.insert(*req));
        if let Some(tolerations) = filter.tolerations {
            live.tolerations.insert(tolerations);
        }
        filter.keys.iter().for_each(|key| live.sym(*key));
    }
    for req in each(&tables.reqs, &live.reqs) {
        req.terms.iter().for_each(|term| live.term(term));
    }
    for list in each(&tables.tolerations, &live.tolerations) {
        list.iter().flat_map(|t| t.symbols()).for_each(|sym| live.sym(sym));
    }
    for selector in each(&tables.selectors, &live.selectors) {
        live.selector(selector);
    }
    for ident in each(&tables.idents, &live.idents) {
        live.sym(ident.namespace);
        live.pairs(&ident.labels);
    }
}

impl Cluster {
    /// Frees ids that are no longer referenced, once the tables have doubled since the last time. Called
    /// before an object is read, never while ids of it are held.
    pub(super) fn tidy(&mut self) {
        if self.entries() > WORTH_IT.saturating_add(self.tidied.saturating_mul(2)) {
            self.tidy_now();
        }
    }

    fn entries(&self) -> usize {
        let t = &self.tables;
        t.symbols.0.known()
            + t.reqs.known()
            + t.tolerations.known()
            + t.selectors.known()
            + t.filters.known()
            + t.idents.known()
            + t.shapes.known()
            + t.resources.0.known()
    }

    fn tidy_now(&mut self) {
        let mut live = self.live();
        follow(&self.tables, &mut live);
        let t = &mut self.tables;
        t.symbols.0.keep(&live.symbols);
        t.resources.0.keep(&live.resources);
        t.reqs.keep(&live.reqs);
        t.tolerations.keep(&live.tolerations);
        t.selectors.keep(&live.selectors);
        t.filters.keep(&live.filters);
        t.idents.keep(&live.idents);
        t.shapes.keep(&live.shapes);
        self.tidied = self.entries();
    }

    /// Ids that the cluster itself refers to.
    fn live(&self) -> Live {
        let t = &self.tables;
        let mut live = Live {
            symbols: BitSet::none(t.symbols.0.len()),
            resources: BitSet::none(t.resources.len()),
            reqs: BitSet::none(t.reqs.len()),
            tolerations: BitSet::none(t.tolerations.len()),
            selectors: BitSet::none(t.selectors.len()),
            filters: BitSet::none(t.filters.len()),
            idents: BitSet::none(t.idents.len()),
            shapes: BitSet::none(t.shapes.len()),
        };
        self.keys.each(|sym| live.sym(sym));
        for id in [ResourceId::CPU, ResourceId::MEMORY, ResourceId::PODS, ResourceId::EPHEMERAL_STORAGE] {
            live.resources.insert(id);
        }
        let mut catalogs: Vec<*const crate::state::catalog_index::CatalogIndex> = Vec::new();
        for rec in self.templates() {
            rec.variants.iter().for_each(|variant| live.pairs(&variant.labels));
            live.taints(&rec.taints);
            live.pairs(&[rec.label]);
            rec.template.iter().chain(&*rec.siblings).for_each(|template| live.sym(*template));
            rec.min_values.iter().for_each(|(key, _)| live.sym(*key));
            let address = std::sync::Arc::as_ptr(&rec.catalog);
            if !catalogs.contains(&address) {
                catalogs.push(address);
                rec.catalog.symbols(|sym| live.sym(sym));
                rec.catalog.allocatable.iter().chain(&rec.catalog.capacity).for_each(|a| live.amounts(a));
            }
        }
        for (name, labels) in &self.namespaces {
            live.sym(*name);
            live.pairs(labels);
        }
        for (key, daemon) in &self.daemons {
            live.object(*key);
            live.shapes.insert(daemon.shape);
        }
        for rec in self.pods.iter().flatten() {
            live.shapes.insert(rec.shape);
            live.idents.insert(rec.ident);
            rec.daemon.into_iter().for_each(|daemon| live.object(daemon));
            rec.chosen.into_iter().for_each(|node| live.sym(node));
        }
        for slot in &self.nodes {
            live.sym(slot.name);
            live.ports(&slot.ports);
            slot.daemons.iter().chain(&slot.claims).for_each(|object| live.object(*object));
            if let Some(info) = &slot.info {
                live.pairs(&info.labels);
                live.taints(&info.taints);
                live.amounts(&info.allocatable);
                live.amounts(&info.capacity);
            }
        }
        self.volumes.symbols(|sym| live.symbols.insert(sym), |req| live.reqs.insert(req));
        live
    }
}

#[cfg(test)]
#[path = "id_reuse_test.rs"]
mod tests;
