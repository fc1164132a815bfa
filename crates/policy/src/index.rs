//! The index: who owns a namespace, which pools a node is in, which keys are pools' keys.
//!
//! ```text
//!  watch ──upsert/remove──▶ Index (mutable, keeps labels) ──snapshot()──▶ Tenants (immutable, shared)
//!                                                                           │ ground(namespace), node(name)
//!                                                                           ▼
//!                                                                        judge()
//! ```
//!
//! A snapshot shares everything that didn't change with the one before it: a changed namespace or node costs
//! one shard, a changed tenant or pool costs resolving every namespace and node anew.

mod rules;
mod shards;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

pub use rules::{KeyRule, PoolId, PoolRule, Rules, TenantId, TenantRule};
use rustc_hash::FxHashMap;

use self::{shards::Shards, words::Words};
use crate::{
    model::{Config, MARK_KEY, Namespace, Node, POOL_ANNOTATION, POOLS_ANNOTATION, Pool, Tenant},
    taint::{Effect, Taint},
};

/// Whose ground a namespace is.
#[derive(Clone, Copy, Debug)]
pub enum Ground<'t> {
    /// It is left alone, by the settings.
    Exempt,
    /// It belongs to a tenant.
    Tenant {
        /// The tenant.
        tenant: &'t TenantRule,
        /// What the namespace's own annotation says about the pool; never empty.
        default_pool: Option<&'t str>,
    },
    /// It belongs to nobody.
    Nobody,
    /// It isn't known yet, so nothing can be said.
    Unknown,
    /// It belonged to a tenant when it was last annotated, and may still: a Tenant's claims can't be read. What is in
    /// force stays in force: no new pods, and nothing is taken away.
    Unread,
}

/// What is known of a namespace that a snapshot holds.
#[derive(Clone, Debug, Default)]
struct Claimed {
    owner: Option<TenantId>,
    held: bool,
    /// Tenants whose selectors match it, too, and which are younger than the owner; in nearly every namespace none.
    younger: Box<[TenantId]>,
    default_pool: Option<Arc<str>>,
}

/// The pools that a node is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePools {
    /// By its labels. A node is in one pool, unless somebody labelled it for several.
    pub labelled: Box<[PoolId]>,
    /// By its taints or labels: a node that carries a pool's taint is that pool's even while its label is missing,
    /// and so not a stranger's.
    pub reserved: Box<[PoolId]>,
    /// It carries the mark, but of no pool that exists.
    pub orphan: bool,
}

/// An immutable view of everything that a judgement needs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tenants {
    rules: Arc<Rules>,
    namespaces: Shards<Claimed>,
    nodes: Shards<NodePools>,
    offline: bool,
}

impl Tenants {
    /// The view of these objects, with nothing else to come: a namespace that isn't among them has no labels.
    #[must_use]
    pub fn offline(
        config: Config,
        tenants: Vec<Tenant>,
        pools: Vec<Pool>,
        namespaces: Vec<Namespace>,
        nodes: Vec<Node>,
    ) -> Self {
        let mut index = Index::offline();
        index.set_config(config);
        tenants.into_iter().for_each(|t| index.upsert_tenant(t));
        pools.into_iter().for_each(|p| index.upsert_pool(p));
        for namespace in &namespaces {
            index.upsert_namespace(namespace);
        }
        for node in &nodes {
            index.upsert_node(node);
        }
        index.snapshot()
    }

    /// Tenants, pools and settings.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Whose ground `namespace` is.
    #[must_use]
    pub fn ground(&self, namespace: &str) -> Ground<'_> {
        if self.rules.is_exempt(namespace) {
            return Ground::Exempt;
        }
        let (owner, default_pool) = match self.namespaces.get(namespace) {
            Some(claimed) if claimed.held => return Ground::Unread,
            Some(claimed) => (claimed.owner, claimed.default_pool.as_deref()),
            None if self.offline => (self.rules.owner(namespace, |_| None), None),
            None => return Ground::Unknown,
        };
        match owner.and_then(|id| self.rules.tenant(id)) {
            Some(tenant) => Ground::Tenant { tenant, default_pool },
            None => Ground::Nobody,
        }
    }

    /// True if whose ground `namespace` is can be said.
    #[must_use]
    pub fn knows(&self, namespace: &str) -> bool {
        self.offline || self.rules.is_exempt(namespace) || self.namespaces.get(namespace).is_some()
    }

    /// The pools of the node `name`, or `None` if there is no such node.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&NodePools> {
        self.nodes.get(name)
    }

    /// Every namespace that is known, and its owner, in no order.
    pub fn namespaces(&self) -> impl Iterator<Item = (&str, Option<&TenantRule>)> {
        self.namespaces
            .iter()
            .map(|(name, claimed)| (name, claimed.owner.and_then(|id| self.rules.tenant(id))))
    }

    /// Namespaces that an older tenant owns and that the selector of a younger one matches, too: (namespace, owner,
    /// younger), in no order. Exempt namespaces are left out: no selector is meant for those.
    pub fn contested(&self) -> impl Iterator<Item = (&str, &TenantRule, &TenantRule)> {
        let contested = self.namespaces.iter().filter(|(_, claimed)| !claimed.younger.is_empty());
        contested.filter(|(name, _)| !self.rules.is_exempt(name)).flat_map(|(name, claimed)| {
            let owner = claimed.owner.and_then(|id| self.rules.tenant(id));
            let younger = claimed.younger.iter().filter_map(|id| self.rules.tenant(*id));
            younger.filter_map(move |younger| Some((name, owner?, younger)))
        })
    }
}

/// Keys and values, by their places in [`Words`]: a quarter of what two pointers to text would take, and labels are most
/// of what is kept.
type Labels = Box<[(u32, u32)]>;

/// What a namespace's resolution depends on.
#[derive(Debug)]
struct NamespaceSource {
    labels: Labels,
    /// It carries [`POOLS_ANNOTATION`]: some tenant owned it when that was written.
    owned: bool,
    default_pool: Option<Arc<str>>,
}

/// What a node's resolution depends on.
#[derive(Debug)]
struct NodeSource {
    labels: Labels,
    taints: Box<[(u32, u32, Effect)]>,
}

/// The mutable index behind [`Tenants`].
#[derive(Debug, Default)]
pub struct Index {
    config: Config,
    tenants: BTreeMap<String, Tenant>,
    pools: BTreeMap<String, Pool>,
    namespace_sources: FxHashMap<Arc<str>, NamespaceSource>,
    node_sources: FxHashMap<Arc<str>, NodeSource>,
    words: Words,
    rules: Arc<Rules>,
    namespaces: Shards<Claimed>,
    nodes: Shards<NodePools>,
    stale: bool,
    offline: bool,
}

impl Index {
    /// An index for files: what isn't in it doesn't exist.
    #[must_use]
    pub fn offline() -> Self {
        Self { offline: true, stale: true, ..Self::default() }
    }

    /// An index for a cluster: what isn't in it may yet come.
    #[must_use]
    pub fn new() -> Self {
        Self { stale: true, ..Self::default() }
    }

    /// Takes over the settings.
    pub fn set_config(&mut self, config: Config) {
        self.stale |= self.config != config;
        self.config = config;
    }

    /// Takes over a tenant.
    pub fn upsert_tenant(&mut self, tenant: Tenant) {
        self.stale |= self.tenants.get(&tenant.name) != Some(&tenant);
        self.tenants.insert(tenant.name.clone(), tenant);
    }

    /// Forgets a tenant.
    pub fn remove_tenant(&mut self, name: &str) {
        self.stale |= self.tenants.remove(name).is_some();
    }

    /// Takes over a pool.
    pub fn upsert_pool(&mut self, pool: Pool) {
        self.stale |= self.pools.get(&pool.name) != Some(&pool);
        self.pools.insert(pool.name.clone(), pool);
    }

    /// Forgets a pool.
    pub fn remove_pool(&mut self, name: &str) {
        self.stale |= self.pools.remove(name).is_some();
    }

    /// Takes over a namespace; its name comes back as the index holds it.
    pub fn upsert_namespace(&mut self, namespace: &Namespace) -> Arc<str> {
        let name = self.words.share(&namespace.name);
        let source = NamespaceSource {
            labels: self.words.pairs(namespace.labels.iter().map(|(k, v)| (k.as_str(), v.as_str()))),
            owned: namespace.annotations.contains_key(POOLS_ANNOTATION),
            default_pool: namespace
                .annotations
                .get(POOL_ANNOTATION)
                .filter(|pool| !pool.is_empty())
                .map(|pool| self.words.share(pool)),
        };
        if !self.stale {
            self.namespaces.insert(name.clone(), claimed(&self.rules, &self.words, &name, &source));
        }
        self.namespace_sources.insert(name.clone(), source);
        name
    }

    /// Forgets a namespace.
    pub fn remove_namespace(&mut self, name: &str) {
        self.namespace_sources.remove(name);
        self.namespaces.remove(name);
    }

    /// Takes over a node; its name comes back as the index holds it.
    pub fn upsert_node(&mut self, node: &Node) -> Arc<str> {
        let name = self.words.share(&node.name);
        let words = &mut self.words;
        let taints = node
            .taints
            .iter()
            .map(|taint| (words.place(&taint.key), words.place(&taint.value), taint.effect));
        let taints = taints.collect();
        let source = NodeSource {
            labels: self.words.pairs(node.labels.iter().map(|(k, v)| (k.as_str(), v.as_str()))),
            taints,
        };
        if !self.stale {
            self.nodes.insert(name.clone(), node_pools(&self.rules, &self.words, &source));
        }
        self.node_sources.insert(name.clone(), source);
        name
    }

    /// The names of the tenants.
    pub fn tenant_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tenants.keys().map(String::as_str)
    }

    /// The names of the pools.
    pub fn pool_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.pools.keys().map(String::as_str)
    }

    /// The names of the namespaces, in no order.
    pub fn namespace_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.namespace_sources.keys().map(|name| &**name)
    }

    /// The names of the nodes, in no order.
    pub fn node_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.node_sources.keys().map(|name| &**name)
    }

    /// Every node as it was taken over, in no order. Of its taints and labels it has all.
    pub fn nodes(&self) -> impl Iterator<Item = Node> {
        let word = |place: u32| self.words.at(place).to_owned();
        self.node_sources.iter().map(move |(name, source)| Node {
            name: name.to_string(),
            labels: source.labels.iter().map(|(key, value)| (word(*key), word(*value))).collect(),
            taints: source
                .taints
                .iter()
                .map(|(key, value, effect)| Taint { key: word(*key), value: word(*value), effect: *effect })
                .collect(),
        })
    }

    /// Forgets a node.
    pub fn remove_node(&mut self, name: &str) {
        self.node_sources.remove(name);
        self.nodes.remove(name);
    }

    /// What is known now, as something that can be shared.
    #[must_use]
    pub fn snapshot(&mut self) -> Tenants {
        if self.stale {
            self.rules = Arc::new(Rules::new(&self.config, self.tenants.values(), self.pools.values()));
            let (rules, words) = (&self.rules, &self.words);
            self.namespaces = self
                .namespace_sources
                .iter()
                .map(|(name, s)| (name.clone(), claimed(rules, words, name, s)))
                .collect();
            self.nodes = self
                .node_sources
                .iter()
                .map(|(name, s)| (name.clone(), node_pools(rules, words, s)))
                .collect();
            self.stale = false;
        }
        self.sweep();
        Tenants {
            rules: self.rules.clone(),
            namespaces: self.namespaces.clone(),
            nodes: self.nodes.clone(),
            offline: self.offline,
        }
    }
}

impl Index {
    /// Forgets words that nobody uses any more, once they may be many.
    fn sweep(&mut self) {
        if !self.words.is_swollen() {
            return;
        }
        let old = mem::take(&mut self.words);
        let words = &mut self.words;
        let mut moved = |place: &mut u32| *place = words.keep(&old, *place);
        for source in self.namespace_sources.values_mut() {
            source.labels.iter_mut().for_each(|(key, value)| {
                moved(key);
                moved(value);
            });
        }
        for source in self.node_sources.values_mut() {
            source.labels.iter_mut().for_each(|(key, value)| {
                moved(key);
                moved(value);
            });
            source.taints.iter_mut().for_each(|(key, value, _)| {
                moved(key);
                moved(value);
            });
        }
        words.swept();
    }
}

fn claimed(rules: &Rules, words: &Words, name: &str, source: &NamespaceSource) -> Claimed {
    let get = |key: &str| {
        let (_, value) = source.labels.iter().find(|(k, _)| words.at(*k) == key)?;
        Some(words.at(*value))
    };
    let (owner, younger) = rules.claimants(name, get);
    let held = owner.is_none() && source.owned && rules.has_unread();
    Claimed { owner, held, younger, default_pool: source.default_pool.clone() }
}

fn node_pools(rules: &Rules, words: &Words, source: &NodeSource) -> NodePools {
    let pool = |key: u32, value: u32| rules.by_label(words.at(key), words.at(value));
    let labelled: BTreeSet<PoolId> = source.labels.iter().filter_map(|(k, v)| pool(*k, *v)).collect();
    let tainted = source.taints.iter().filter_map(|(k, v, _)| pool(*k, *v));
    let reserved: BTreeSet<PoolId> = labelled.iter().copied().chain(tainted).collect();
    let marked = source.labels.iter().any(|(k, _)| words.at(*k) == MARK_KEY);
    NodePools {
        orphan: marked && labelled.is_empty(),
        labelled: labelled.into_iter().collect(),
        reserved: reserved.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests;
