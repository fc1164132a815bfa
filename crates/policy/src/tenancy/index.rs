//! The index: the owner of each namespace and the pools of each node.
//!
//! ```text
//!  watch ──upsert/remove──▶ Index (mutable, keeps labels) ──snapshot()──▶ Tenants (immutable, shared)
//!                                                                           │ tenancy(namespace), node(name)
//!                                                                           ▼
//!                                                                        evaluate()
//! ```
//!
//! A snapshot shares everything that didn't change since the one before it. A changed namespace or node costs one
//! shard; a changed tenant or pool resolves every namespace and node again. The webhook, the controller and the CLI
//! keep one index each.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use rustc_hash::FxHashMap;

use crate::{
    definitions::{POOL_ANNOTATION, POOL_NAME_LABEL, POOLS_ANNOTATION, parameter::MUTATION},
    tenancy::{
        created::{CreatedNamespaces, Surplus},
        declarations::{Declarations, DeclaredTenant, PoolId, TenantId},
        interner::Interner,
        model::{Config, Mutation, Namespace, Node, Pool, Tenant},
        sharded_map::ShardedMap,
        taint::{Effect, Taint},
    },
};

/// The owner of a namespace.
#[derive(Clone, Copy, Debug)]
pub enum NamespaceTenancy<'t> {
    /// The namespace is exempt.
    Exempt,
    /// The namespace belongs to a tenant.
    Tenant {
        /// The tenant.
        tenant: &'t DeclaredTenant,
        /// The pool that the namespace's annotation names; never empty.
        default_pool: Option<&'t str>,
    },
    /// The namespace belongs to no tenant.
    NonTenant,
    /// The namespace is not in the index yet.
    Unknown,
    /// The namespace carries [`POOLS_ANNOTATION`], and a Tenant whose claims can't be read may own it. New pods are
    /// refused; what exists stays as it is.
    TenantUnreadable,
}

impl<'t> NamespaceTenancy<'t> {
    /// The tenant that owns the namespace.
    #[must_use]
    pub const fn tenant(self) -> Option<&'t DeclaredTenant> {
        match self {
            Self::Tenant { tenant, .. } => Some(tenant),
            _ => None,
        }
    }
}

/// A namespace in a snapshot.
#[derive(Clone, Debug, Default)]
struct NamespaceRecord {
    owner: Option<TenantId>,
    /// A Tenant whose claims can't be read may own it.
    tenant_unreadable: bool,
    /// Younger tenants whose selectors match it as well; hardly any namespace has one.
    younger: Box<[TenantId]>,
    default_pool: Option<Arc<str>>,
    /// It carries [`POOLS_ANNOTATION`].
    has_pools: bool,
    /// Its tenant needs objects there, and the controller hasn't written all of them yet.
    awaits_objects: bool,
}

/// The pools that a node is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePools {
    /// By its labels. A node is in one pool, unless a user gave it the labels of several.
    pub labelled: Box<[PoolId]>,
    /// By its labels or taints. A node with the taint of a pool is reserved for the pool even while the label is
    /// missing, so that no non-tenant pod may name it.
    pub reserved: Box<[PoolId]>,
    /// True if the node carries the pool-name label, but of no pool that exists.
    pub orphan: bool,
}

/// An immutable view of everything that an evaluation needs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tenants {
    declarations: Arc<Declarations>,
    namespaces: ShardedMap<NamespaceRecord>,
    created: CreatedNamespaces,
    nodes: ShardedMap<NodePools>,
    mutation: Mutation,
    offline: bool,
}

impl Tenants {
    /// A view of these objects alone: a namespace that isn't among them has no labels.
    ///
    /// `namespaces` are in the order of their creation: of those that owners created, the first get pools until there are as many
    /// as their tenant allows, as the controller lets them in.
    ///
    /// ```
    /// use croft_policy::{Config, NamespaceTenancy, Tenant, Tenants};
    ///
    /// let tenant = Tenant { name: "a".to_owned(), namespaces: vec!["shop".to_owned()], ..Tenant::default() };
    /// let tenants = Tenants::offline(Config::default(), vec![tenant], vec![], vec![], vec![]);
    /// assert_eq!(tenants.tenancy("shop").tenant().map(|tenant| &*tenant.name), Some("a"));
    /// assert!(matches!(tenants.tenancy("other"), NamespaceTenancy::NonTenant));
    /// assert!(matches!(tenants.tenancy("kube-system"), NamespaceTenancy::Exempt));
    /// ```
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
        let mut tenants = index.snapshot();
        for namespace in &namespaces {
            tenants.let_in(&namespace.name);
        }
        tenants
    }

    /// Gives a namespace that owners created its pools, unless as many have some as their tenant allows.
    fn let_in(&mut self, name: &str) {
        let Some((name, record)) = self.namespaces.get_entry(name) else { return };
        let record = NamespaceRecord { has_pools: true, ..record.clone() };
        let declarations = self.declarations.clone();
        if let Some(tenant) = creating_tenant(&declarations, &name, &record)
            && self.surplus(&name).is_none()
        {
            self.created.add(tenant, &name);
            self.namespaces.insert(name, record);
        }
    }

    /// Tenants, pools and settings.
    #[must_use]
    pub fn declarations(&self) -> &Declarations {
        &self.declarations
    }

    /// The part of Croft that changes pods and DaemonSets, by the parameters of the policies.
    #[must_use]
    pub const fn mutation(&self) -> Mutation {
        self.mutation
    }

    /// The owner of `namespace`.
    #[must_use]
    pub fn tenancy(&self, namespace: &str) -> NamespaceTenancy<'_> {
        if self.declarations.is_exempt(namespace) {
            return NamespaceTenancy::Exempt;
        }
        let (owner, default_pool) = match self.namespaces.get(namespace) {
            Some(claimed) if claimed.tenant_unreadable => return NamespaceTenancy::TenantUnreadable,
            Some(claimed) => (claimed.owner, claimed.default_pool.as_deref()),
            None if self.offline => (self.declarations.owner(namespace, |_| None), None),
            None => return NamespaceTenancy::Unknown,
        };
        match owner.and_then(|id| self.declarations.tenant(id)) {
            Some(tenant) => NamespaceTenancy::Tenant { tenant, default_pool },
            None => NamespaceTenancy::NonTenant,
        }
    }

    /// True if [`Self::surplus`] or [`Self::awaits_objects`] may hold for the namespace, by one look-up. A surplus namespace of a
    /// cluster awaits its objects; files don't tell about those.
    pub(crate) fn may_be_closed(&self, namespace: &str) -> bool {
        self.offline || self.awaits_objects(namespace)
    }

    /// True if the namespace's tenant declares objects, such as a NetworkPolicy, that aren't all there yet.
    #[must_use]
    pub fn awaits_objects(&self, namespace: &str) -> bool {
        self.namespaces.get(namespace).is_some_and(|record| record.awaits_objects)
    }

    /// Why `namespace` gets no pools, if its tenant's owners created it beyond the number that they may create. A namespace
    /// that has pools is none, whatever the number.
    #[must_use]
    pub fn surplus(&self, namespace: &str) -> Option<Surplus<'_>> {
        let has_pools = match self.namespaces.get(namespace) {
            Some(record) => record.has_pools,
            // It would be the youngest.
            None if self.offline => false,
            None => return None,
        };
        let tenant = self.tenancy(namespace).tenant();
        let tenant = tenant.filter(|tenant| !has_pools && tenant.counts_as_created(namespace))?;
        Surplus::find(tenant, self.created.of(tenant))
    }

    /// True if the owner of `namespace` can be told.
    #[must_use]
    pub fn knows(&self, namespace: &str) -> bool {
        self.offline || self.declarations.is_exempt(namespace) || self.namespaces.get(namespace).is_some()
    }

    /// The pools of the node `name`, or `None` if there is no such node.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&NodePools> {
        self.nodes.get(name)
    }

    /// Every namespace in the index and its owner, in no order.
    pub fn namespaces(&self) -> impl Iterator<Item = (&str, Option<&DeclaredTenant>)> {
        self.namespaces
            .iter()
            .map(|(name, claimed)| (name, claimed.owner.and_then(|id| self.declarations.tenant(id))))
    }

    /// Namespaces that an older tenant owns and that the selector of a younger one matches as well: (namespace, owner,
    /// younger), in no order. Exempt namespaces are left out, since no selector is meant for them.
    pub fn contested(&self) -> impl Iterator<Item = (&str, &DeclaredTenant, &DeclaredTenant)> {
        let contested = self.namespaces.iter().filter(|(_, claimed)| !claimed.younger.is_empty());
        contested.filter(|(name, _)| !self.declarations.is_exempt(name)).flat_map(|(name, claimed)| {
            let owner = claimed.owner.and_then(|id| self.declarations.tenant(id));
            let younger = claimed.younger.iter().filter_map(|id| self.declarations.tenant(*id));
            younger.filter_map(move |younger| Some((name, owner?, younger)))
        })
    }
}

/// Keys and values, as ids of [`Interner`]: a quarter of the size of two pointers to text, and labels are most of the
/// index.
type Labels = Box<[(u32, u32)]>;

/// The fields that the owner of a namespace depends on.
#[derive(Debug)]
struct NamespaceSource {
    labels: Labels,
    /// True if it carries [`POOLS_ANNOTATION`]: a tenant owned it when that was written.
    owned: bool,
    default_pool: Option<Arc<str>>,
}

/// The fields that the pools of a node depend on.
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
    strings: Interner,
    declarations: Arc<Declarations>,
    namespaces: ShardedMap<NamespaceRecord>,
    created: CreatedNamespaces,
    nodes: ShardedMap<NodePools>,
    /// By the parameters of the policies, which Croft's own namespace carries.
    mutation: Mutation,
    stale: bool,
    offline: bool,
}

impl Index {
    /// An index of files: an object that isn't in it doesn't exist.
    #[must_use]
    pub fn offline() -> Self {
        Self { offline: true, stale: true, ..Self::default() }
    }

    /// An index of a cluster: an object that isn't in it may exist.
    ///
    /// ```
    /// use croft_policy::{Index, Namespace, NamespaceTenancy};
    ///
    /// let mut index = Index::new();
    /// assert!(matches!(index.snapshot().tenancy("shop"), NamespaceTenancy::Unknown));
    /// index.upsert_namespace(&Namespace { name: "shop".to_owned(), ..Namespace::default() });
    /// assert!(matches!(index.snapshot().tenancy("shop"), NamespaceTenancy::NonTenant));
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self { stale: true, ..Self::default() }
    }

    /// Replaces the settings.
    pub fn set_config(&mut self, config: Config) {
        self.stale |= self.config != config;
        self.config = config;
    }

    /// Adds or replaces a tenant.
    pub fn upsert_tenant(&mut self, tenant: Tenant) {
        self.stale |= self.tenants.get(&tenant.name) != Some(&tenant);
        self.tenants.insert(tenant.name.clone(), tenant);
    }

    /// Removes a tenant.
    pub fn remove_tenant(&mut self, name: &str) {
        self.stale |= self.tenants.remove(name).is_some();
    }

    /// Adds or replaces a pool.
    pub fn upsert_pool(&mut self, pool: Pool) {
        self.stale |= self.pools.get(&pool.name) != Some(&pool);
        self.pools.insert(pool.name.clone(), pool);
    }

    /// Removes a pool.
    pub fn remove_pool(&mut self, name: &str) {
        self.stale |= self.pools.remove(name).is_some();
    }

    /// Adds or replaces a namespace. Returns its name as the index holds it.
    pub fn upsert_namespace(&mut self, namespace: &Namespace) -> Arc<str> {
        let name = self.strings.shared(&namespace.name);
        if namespace.name == self.config.namespace {
            let written = namespace.annotations.get(MUTATION).and_then(|mode| Mutation::parse(mode));
            self.mutation = written.unwrap_or_default();
        }
        let source = NamespaceSource {
            labels: self.strings.pairs(namespace.labels.iter().map(|(k, v)| (k.as_str(), v.as_str()))),
            owned: namespace.annotations.contains_key(POOLS_ANNOTATION),
            default_pool: namespace
                .annotations
                .get(POOL_ANNOTATION)
                .filter(|pool| !pool.is_empty())
                .map(|pool| self.strings.shared(pool)),
        };
        if !self.stale {
            let record = resolve_namespace(&self.declarations, &self.strings, &name, &source);
            self.forget_created(&name);
            if let Some(tenant) = creating_tenant(&self.declarations, &name, &record) {
                self.created.add(tenant, &name);
            }
            self.namespaces.insert(name.clone(), record);
        }
        self.namespace_sources.insert(name.clone(), source);
        name
    }

    /// Removes a namespace.
    pub fn remove_namespace(&mut self, name: &str) {
        self.namespace_sources.remove(name);
        self.forget_created(name);
        self.namespaces.remove(name);
    }

    /// Adds or replaces a node. Returns its name as the index holds it.
    pub fn upsert_node(&mut self, node: &Node) -> Arc<str> {
        let name = self.strings.shared(&node.name);
        let strings = &mut self.strings;
        let taints =
            node.taints.iter().map(|taint| (strings.id(&taint.key), strings.id(&taint.value), taint.effect));
        let taints = taints.collect();
        let source = NodeSource {
            labels: self.strings.pairs(node.labels.iter().map(|(k, v)| (k.as_str(), v.as_str()))),
            taints,
        };
        if !self.stale {
            self.nodes.insert(name.clone(), resolve_node(&self.declarations, &self.strings, &source));
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

    /// Every node with all its labels and taints, in no order.
    pub fn nodes(&self) -> impl Iterator<Item = Node> {
        let word = |id: u32| self.strings.text(id).to_owned();
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

    /// Removes a node.
    pub fn remove_node(&mut self, name: &str) {
        self.node_sources.remove(name);
        self.nodes.remove(name);
    }

    /// The current state as an immutable view.
    #[must_use]
    pub fn snapshot(&mut self) -> Tenants {
        if self.stale {
            self.declarations =
                Arc::new(Declarations::new(&self.config, self.tenants.values(), self.pools.values()));
            let (declarations, strings) = (&self.declarations, &self.strings);
            self.namespaces = self
                .namespace_sources
                .iter()
                .map(|(name, s)| (name.clone(), resolve_namespace(declarations, strings, name, s)))
                .collect();
            self.created = CreatedNamespaces::default();
            for name in self.namespace_sources.keys() {
                let record = self.namespaces.get(name);
                if let Some(tenant) = record.and_then(|r| creating_tenant(declarations, name, r)) {
                    self.created.add(tenant, name);
                }
            }
            self.nodes = self
                .node_sources
                .iter()
                .map(|(name, s)| (name.clone(), resolve_node(declarations, strings, s)))
                .collect();
            self.stale = false;
        }
        self.drop_unreferenced();
        Tenants {
            declarations: self.declarations.clone(),
            namespaces: self.namespaces.clone(),
            created: self.created.clone(),
            nodes: self.nodes.clone(),
            mutation: self.mutation,
            offline: self.offline,
        }
    }
}

impl Index {
    /// Takes a namespace out of the count of its tenant, before its record changes. A stale index is counted again.
    fn forget_created(&mut self, name: &str) {
        let record = self.namespaces.get(name).filter(|_| !self.stale);
        if let Some(tenant) = record.and_then(|record| creating_tenant(&self.declarations, name, record)) {
            self.created.remove(tenant, name);
        }
    }

    /// Drops interned strings that are no longer referenced, once there may be many, so that memory is bounded by the
    /// live set.
    fn drop_unreferenced(&mut self) {
        if !self.strings.needs_sweep() {
            return;
        }
        let old = mem::take(&mut self.strings);
        let strings = &mut self.strings;
        let mut moved = |id: &mut u32| *id = strings.copy(&old, *id);
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
        strings.end_sweep();
    }
}

fn resolve_namespace(
    declarations: &Declarations,
    strings: &Interner,
    name: &str,
    source: &NamespaceSource,
) -> NamespaceRecord {
    let get = |key: &str| {
        let (_, value) = source.labels.iter().find(|(k, _)| strings.text(*k) == key)?;
        Some(strings.text(*value))
    };
    let (owner, younger) = declarations.claimants(name, get);
    let tenant_unreadable = owner.is_none() && source.owned && declarations.has_unreadable_claims();
    // The annotation is the last of what the controller writes for a namespace.
    let needs_objects =
        owner.and_then(|id| declarations.tenant(id)).is_some_and(|tenant| tenant.needs_objects);
    NamespaceRecord {
        owner,
        tenant_unreadable,
        younger,
        default_pool: source.default_pool.clone(),
        has_pools: source.owned,
        awaits_objects: needs_objects && !source.owned,
    }
}

/// The tenant for which a namespace counts as created by its owners, with pools.
fn creating_tenant<'d>(
    declarations: &'d Declarations,
    name: &str,
    record: &NamespaceRecord,
) -> Option<&'d DeclaredTenant> {
    let tenant = record.owner.and_then(|id| declarations.tenant(id))?;
    let counts = record.has_pools && tenant.counts_as_created(name) && !declarations.is_exempt(name);
    counts.then_some(tenant)
}

fn resolve_node(declarations: &Declarations, strings: &Interner, source: &NodeSource) -> NodePools {
    let pool = |key: u32, value: u32| declarations.pool_by_label(strings.text(key), strings.text(value));
    let labelled: BTreeSet<PoolId> = source.labels.iter().filter_map(|(k, v)| pool(*k, *v)).collect();
    let tainted = source.taints.iter().filter_map(|(k, v, _)| pool(*k, *v));
    let reserved: BTreeSet<PoolId> = labelled.iter().copied().chain(tainted).collect();
    let has_pool_name = source.labels.iter().any(|(k, _)| strings.text(*k) == POOL_NAME_LABEL);
    NodePools {
        orphan: has_pool_name && labelled.is_empty(),
        labelled: labelled.into_iter().collect(),
        reserved: reserved.into_iter().collect(),
    }
}

#[cfg(test)]
#[path = "index_test.rs"]
mod tests;
