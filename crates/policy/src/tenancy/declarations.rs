//! Tenants, pools and settings, compiled for look-ups by name, label and namespace.
//!
//! Built by the index for each snapshot in which a declaration changed, and by the controller for its own pools.

use std::cmp::Ordering;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    definitions::POOL_NAME_LABEL,
    tenancy::{
        model::{
            BUILT_IN_EXEMPT, Config, Mutation, NamespaceCreation, NonTenantPods, OnConflict, Owner, Pool,
            PoolTenants, Provisioner, Subject, Tenant,
        },
        node_template::{NodeTemplate, Siblings},
        selector::Selector,
        taint::{Effect, Effects},
    },
};

/// Index of a tenant in [`Declarations`]; the lower, the older its claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(u32);

/// Index of a pool in [`Declarations`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(u32);

/// A tenant as it is in force.
#[derive(Clone, Debug)]
pub struct DeclaredTenant {
    /// Its index.
    pub id: TenantId,
    /// Its name.
    pub name: Box<str>,
    /// Action on a pod that asks for another pool.
    pub on_conflict: OnConflict,
    /// Its pools by name, the default first; `None` for a pool that doesn't exist or doesn't count.
    pub pools: Box<[(Box<str>, Option<PoolId>)]>,
    /// Pods of its namespaces wait until the controller has written the namespace's objects.
    pub needs_objects: bool,
    /// The declarations of its pools together, if it has several.
    pub(crate) siblings: Siblings,
    names: FxHashSet<Box<str>>,
    selector: Option<Selector>,
    creation: Option<NamespaceCreation>,
    owners: Box<[Owner]>,
}

impl DeclaredTenant {
    /// True if the tenant's pods may use `pool`.
    #[must_use]
    pub fn may_use(&self, pool: PoolId) -> bool {
        self.pools.iter().any(|(_, id)| *id == Some(pool))
    }

    /// The names of its pools, separated by commas.
    #[must_use]
    pub fn pool_names(&self) -> String {
        let names: Vec<&str> = self.pools.iter().map(|(name, _)| &**name).collect();
        names.join(", ")
    }

    /// True if the tenant claims a namespace of this name and these labels, whether or not an older tenant owns it.
    #[must_use]
    pub fn claims<'l>(&self, namespace: &str, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.names.contains(namespace)
            || self.has_prefix_of(namespace)
            || self.selector.as_ref().is_some_and(|s| s.matches(label))
    }

    /// The namespaces that its owners may create, which it claims by prefix.
    #[must_use]
    pub const fn creation(&self) -> Option<&NamespaceCreation> {
        self.creation.as_ref()
    }

    /// True if the name begins with the prefix under which the tenant's owners may create namespaces.
    #[must_use]
    pub fn has_prefix_of(&self, namespace: &str) -> bool {
        self.creation.as_ref().is_some_and(|creation| namespace.starts_with(&creation.prefix))
    }

    /// True if the namespace counts for the number of those that its owners may create: it has their prefix, and isn't
    /// claimed by name.
    #[must_use]
    pub fn counts_as_created(&self, namespace: &str) -> bool {
        self.has_prefix_of(namespace) && !self.names.contains(namespace)
    }

    /// Its owners, in the order of the Tenant.
    #[must_use]
    pub fn owners(&self) -> &[Owner] {
        &self.owners
    }

    /// True if `subject` is an owner; with `role`, one that has this ClusterRole.
    #[must_use]
    pub fn is_owned_by(&self, subject: &Subject, role: Option<&str>) -> bool {
        self.owners.iter().any(|owner| {
            owner.subject == *subject && role.is_none_or(|role| owner.roles.iter().any(|own| own == role))
        })
    }

    /// The selector of the namespaces that it claims by label.
    #[must_use]
    pub const fn selector(&self) -> Option<&Selector> {
        self.selector.as_ref()
    }

    /// The namespaces that it claims by name, in no order.
    pub fn claimed_names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|n| &**n)
    }
}

impl PartialEq for DeclaredTenant {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.name == other.name
    }
}

impl Eq for DeclaredTenant {}

/// A pool as it is in force.
#[derive(Clone, Debug)]
pub struct DeclaredPool {
    /// Its index.
    pub id: PoolId,
    /// Its name.
    pub name: Box<str>,
    /// Key of its label and taint.
    pub key: Box<str>,
    /// Value of its label and taint.
    pub value: Box<str>,
    /// Effects of its taint; never empty.
    pub effects: Effects,
    /// The process that launches its nodes.
    pub provisioner: Provisioner,
    /// The nodes that it can have, as far as they are known.
    pub template: NodeTemplate,
    /// The only tenant that may use it, if it was made for one.
    for_tenant: Option<Box<str>>,
    shared_with: FxHashSet<Box<str>>,
}

impl DeclaredPool {
    /// The value of [`POOL_NAME_LABEL`] on its nodes.
    #[must_use]
    pub fn pool_name_label(&self) -> &str {
        if &*self.key == POOL_NAME_LABEL { &self.value } else { &self.name }
    }

    /// The namespaces that the pool itself is shared with, in no order.
    pub fn shared_names(&self) -> impl Iterator<Item = &str> {
        self.shared_with.iter().map(|name| &**name)
    }

    /// True if the pool itself is shared with `namespace`.
    #[must_use]
    pub fn is_shared_with(&self, namespace: &str) -> bool {
        self.shared_with.contains(namespace)
    }
}

/// A label key of one or more pools.
#[derive(Clone, Debug, Default)]
pub struct DeclaredKey {
    values: FxHashMap<Box<str>, PoolId>,
    pools: Vec<PoolId>,
    awaits_croft: bool,
}

impl DeclaredKey {
    /// The pool whose nodes have this value of the key.
    #[must_use]
    pub fn pool(&self, value: &str) -> Option<PoolId> {
        self.values.get(value).copied()
    }

    /// The pools whose nodes have this key; every pool for [`POOL_NAME_LABEL`].
    #[must_use]
    pub fn pools(&self) -> &[PoolId] {
        &self.pools
    }

    /// True if Croft will launch nodes with this key, perhaps before there is such a pool: pools are made for tenants from one that
    /// has it.
    #[must_use]
    pub const fn awaits_croft(&self) -> bool {
        self.awaits_croft
    }
}

/// Tenants, pools and settings.
#[derive(Clone, Debug, Default)]
pub struct Declarations {
    non_tenant_pods: NonTenantPods,
    mutation: Mutation,
    namespace: Box<str>,
    exempt: FxHashSet<Box<str>>,
    schedulers: FxHashSet<Box<str>>,
    shared_with: FxHashSet<Box<str>>,
    owner_metadata: FxHashSet<Box<str>>,
    tenants: Vec<DeclaredTenant>,
    unreadable_claims: bool,
    tenant_ids: FxHashMap<Box<str>, TenantId>,
    pools: Vec<DeclaredPool>,
    pool_ids: FxHashMap<Box<str>, PoolId>,
    /// Pools that were made for a tenant, by the pool that it names and by its name.
    made: FxHashMap<(Box<str>, Box<str>), PoolId>,
    keys: FxHashMap<Box<str>, DeclaredKey>,
    collisions: Vec<(Box<str>, Box<str>)>,
    by_name: FxHashMap<Box<str>, TenantId>,
    by_label: FxHashMap<Box<str>, FxHashMap<Box<str>, Vec<TenantId>>>,
    by_other: Vec<TenantId>,
    by_prefix: FxHashMap<Box<str>, Vec<TenantId>>,
    by_opened: FxHashMap<Box<str>, Vec<TenantId>>,
}

fn set(names: &[String]) -> FxHashSet<Box<str>> {
    names.iter().map(|n| n.as_str().into()).collect()
}

/// The namespaces that are exempt by default and by the settings.
fn exempt(config: &Config) -> FxHashSet<Box<str>> {
    let built_in = BUILT_IN_EXEMPT.into_iter().chain([config.namespace.as_str()]);
    built_in.chain(config.exempt.iter().map(String::as_str)).map(Into::into).collect()
}

fn sorted(names: &FxHashSet<Box<str>>) -> Vec<&str> {
    let mut names: Vec<&str> = names.iter().map(|n| &**n).collect();
    names.sort_unstable();
    names
}

/// Orders by age, the oldest first, then by name. Objects without an age, such as those of files, come last.
fn rank(a: (Option<i64>, &str), b: (Option<i64>, &str)) -> Ordering {
    a.0.unwrap_or(i64::MAX).cmp(&b.0.unwrap_or(i64::MAX)).then_with(|| a.1.cmp(b.1))
}

impl Declarations {
    /// Compiles declarations. Of two pools with the same label only the older counts.
    #[must_use]
    pub fn new<'a>(
        config: &Config,
        tenants: impl Iterator<Item = &'a Tenant>,
        pools: impl Iterator<Item = &'a Pool>,
    ) -> Self {
        let mut declarations = Self {
            non_tenant_pods: config.non_tenant_pods,
            mutation: config.mutation,
            namespace: config.namespace.as_str().into(),
            exempt: exempt(config),
            schedulers: set(&config.schedulers),
            shared_with: set(&config.shared_with),
            owner_metadata: set(&config.owner_metadata),
            ..Self::default()
        };
        let mut pools: Vec<&Pool> = pools.collect();
        pools.sort_by(|a, b| rank((a.created, &a.name), (b.created, &b.name)));
        declarations.keys.insert(POOL_NAME_LABEL.into(), DeclaredKey::default());
        let many = pools.iter().copied().filter(|pool| pool.tenants == PoolTenants::Each);
        let many: FxHashMap<&str, &Pool> = many.map(|pool| (pool.name.as_str(), pool)).collect();
        for pool in pools {
            // A made pool is open as people declared it, whatever was written into it: also with a stolen token of the controller.
            let declared = match &pool.tenants {
                PoolTenants::One { made_from, .. } => many.get(made_from.as_str()).copied(),
                PoolTenants::AllThatNameIt | PoolTenants::Each => None,
            };
            declarations.add_pool(pool, &declared.unwrap_or(pool).shared_with);
        }
        let mut tenants: Vec<&Tenant> = tenants.collect();
        tenants.sort_by(|a, b| rank((a.created, &a.name), (b.created, &b.name)));
        tenants.into_iter().for_each(|tenant| declarations.add_tenant(tenant));
        if !declarations.is_active() {
            // Without a tenant and a pool there is nothing to isolate.
            declarations.non_tenant_pods = NonTenantPods::Allow;
        }
        declarations
    }

    /// Adds a pool that is shared with these namespaces, unless an older one has one of its labels: the nodes of the two could not be
    /// told apart.
    fn add_pool(&mut self, pool: &Pool, shared_with: &[String]) {
        if pool.tenants == PoolTenants::Each {
            // Its nodes are those of the pools that are made from it. Until there is one, its key is guarded all the same.
            let key = self.keys.entry(pool.key.as_str().into()).or_default();
            key.awaits_croft |= pool.provisioner == Provisioner::Croft;
            return;
        }
        let Ok(id) = u32::try_from(self.pools.len()).map(PoolId) else { return };
        let mut declared = DeclaredPool {
            id,
            name: pool.name.as_str().into(),
            key: pool.key.as_str().into(),
            value: pool.value.as_str().into(),
            effects: if pool.effects.is_empty() {
                [Effect::NoSchedule].into_iter().collect()
            } else {
                pool.effects
            },
            provisioner: pool.provisioner,
            template: NodeTemplate::default(),
            for_tenant: None,
            shared_with: set(shared_with),
        };
        let labels = [(&*declared.key, &*declared.value), (POOL_NAME_LABEL, declared.pool_name_label())];
        if let Some(other) = labels.iter().find_map(|(key, value)| self.pool_by_label(key, value)) {
            let other = self.pool(other).map(|p| p.name.clone()).unwrap_or_default();
            self.collisions.push((declared.name, other));
            return;
        }
        let template = pool.template.clone().with_own_labels(labels);
        for (key, value) in labels {
            let of_key = self.keys.entry(key.into()).or_default();
            of_key.values.insert(value.into(), id);
            if of_key.pools.last() != Some(&id) {
                of_key.pools.push(id);
            }
        }
        declared.template = template;
        if let PoolTenants::One { made_from, tenant } = &pool.tenants {
            // Of two pools that say they are the same tenant's, the older counts.
            self.made.entry((made_from.as_str().into(), tenant.as_str().into())).or_insert(id);
            declared.for_tenant = Some(tenant.as_str().into());
        }
        self.pool_ids.insert(declared.name.clone(), id);
        self.pools.push(declared);
    }

    fn add_tenant(&mut self, tenant: &Tenant) {
        let Ok(id) = u32::try_from(self.tenants.len()).map(TenantId) else { return };
        self.unreadable_claims |= tenant.unreadable_claims;
        for name in &tenant.namespaces {
            self.by_name.entry(name.as_str().into()).or_insert(id);
        }
        if let Some(selector) = &tenant.selector {
            match selector.anchor() {
                Some((key, values)) => {
                    let of_key = self.by_label.entry(key.into()).or_default();
                    for value in values {
                        of_key.entry(value.as_str().into()).or_default().push(id);
                    }
                }
                None => self.by_other.push(id),
            }
        }
        // An empty prefix would claim every namespace there is.
        let creation = tenant.creation.clone().filter(|creation| !creation.prefix.is_empty());
        if let Some(creation) = &creation {
            self.by_prefix.entry(creation.prefix.as_str().into()).or_default().push(id);
        }
        let accounts = tenant.owners.iter().filter_map(|owner| owner.subject.namespace());
        for name in tenant.peers.iter().map(String::as_str).chain(accounts) {
            let tenants = self.by_opened.entry(name.into()).or_default();
            if tenants.last() != Some(&id) {
                tenants.push(id);
            }
        }
        let pools: Vec<_> = tenant.pools.iter().map(|name| self.pool_of_tenant(&tenant.name, name)).collect();
        let declared = DeclaredTenant {
            id,
            name: tenant.name.as_str().into(),
            on_conflict: tenant.on_conflict,
            siblings: self.siblings(&pools),
            pools: pools.into(),
            needs_objects: tenant.needs_objects,
            names: set(&tenant.namespaces),
            selector: tenant.selector.clone(),
            creation,
            owners: tenant.owners.clone().into(),
        };
        self.tenant_ids.insert(declared.name.clone(), id);
        self.tenants.push(declared);
    }

    /// The pool that `tenant` means by `name`: the one that was made for it from the pool of this name, unless an ordinary one is called
    /// so by now; or else the pool itself, unless that is for another tenant.
    fn pool_of_tenant(&self, tenant: &str, name: &str) -> (Box<str>, Option<PoolId>) {
        let made = self.made.get(&(name.into(), tenant.into())).filter(|_| self.pool_id(name).is_none());
        let made = made.and_then(|id| self.pool(*id));
        if let Some(pool) = made {
            return (pool.name.clone(), Some(pool.id));
        }
        let is_open = |id: &PoolId| {
            let owner = self.pool(*id).and_then(|pool| pool.for_tenant.as_deref());
            owner.is_none_or(|owner| owner == tenant)
        };
        (name.into(), self.pool_id(name).filter(is_open))
    }

    fn siblings(&self, pools: &[(Box<str>, Option<PoolId>)]) -> Siblings {
        let templates = pools.iter().filter_map(|(_, id)| Some(&self.pool((*id)?)?.template));
        if pools.len() > 1 { Siblings::of(templates) } else { Siblings::default() }
    }

    /// The tenant at `id`.
    #[must_use]
    pub fn tenant(&self, id: TenantId) -> Option<&DeclaredTenant> {
        self.tenants.get(id.0 as usize)
    }

    /// The tenant of this name.
    #[must_use]
    pub fn tenant_named(&self, name: &str) -> Option<&DeclaredTenant> {
        self.tenant(*self.tenant_ids.get(name)?)
    }

    /// True if some tenant's claims can't be read.
    #[must_use]
    pub const fn has_unreadable_claims(&self) -> bool {
        self.unreadable_claims
    }

    /// Every tenant, the oldest first.
    #[must_use]
    pub fn tenants(&self) -> &[DeclaredTenant] {
        &self.tenants
    }

    /// True if there is a tenant or a pool. Without either, Croft changes no pod and no namespace. A pool keeps others out without a
    /// tenant, too: pods of the last tenant run on its nodes until it is drained.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !self.tenants.is_empty() || !self.pools.is_empty()
    }

    /// The pool at `id`.
    #[must_use]
    pub fn pool(&self, id: PoolId) -> Option<&DeclaredPool> {
        self.pools.get(id.0 as usize)
    }

    /// The index of the pool of this name.
    #[must_use]
    pub fn pool_id(&self, name: &str) -> Option<PoolId> {
        self.pool_ids.get(name).copied()
    }

    /// Every pool that counts, the oldest first.
    #[must_use]
    pub fn pools(&self) -> &[DeclaredPool] {
        &self.pools
    }

    /// Pools that don't count because an older pool has their label, each with the name of the older one.
    #[must_use]
    pub fn collisions(&self) -> &[(Box<str>, Box<str>)] {
        &self.collisions
    }

    /// The pools of `key`, if it is the key of some pool. [`POOL_NAME_LABEL`] always is.
    #[must_use]
    pub fn key(&self, key: &str) -> Option<&DeclaredKey> {
        self.keys.get(key)
    }

    /// Every key of a pool, [`POOL_NAME_LABEL`] included, sorted.
    #[must_use]
    pub fn keys(&self) -> Vec<&str> {
        let mut keys: Vec<&str> = self.keys.keys().map(|k| &**k).collect();
        keys.sort_unstable();
        keys
    }

    /// The pool whose nodes have this label.
    #[must_use]
    pub fn pool_by_label(&self, key: &str, value: &str) -> Option<PoolId> {
        self.keys.get(key)?.pool(value)
    }

    /// The user name of the controller, the only one that writes reserved labels and annotations.
    #[must_use]
    pub fn controller_user(&self) -> String {
        format!("system:serviceaccount:{}:croft-controller", self.namespace)
    }

    /// The namespace that Croft is installed in.
    #[must_use]
    pub fn own_namespace(&self) -> &str {
        &self.namespace
    }

    /// True if `namespace` is exempt.
    #[must_use]
    pub fn is_exempt(&self, namespace: &str) -> bool {
        self.exempt.contains(namespace)
    }

    /// True if `namespace` is exempt by the settings alone, and not in every cluster.
    #[must_use]
    pub fn is_exempt_by_settings(&self, namespace: &str) -> bool {
        self.is_exempt(namespace) && !BUILT_IN_EXEMPT.contains(&namespace) && namespace != &*self.namespace
    }

    /// The exempt namespaces, sorted.
    #[must_use]
    pub fn exempt(&self) -> Vec<&str> {
        sorted(&self.exempt)
    }

    /// The namespaces whose pods may run on every pool's nodes, sorted.
    #[must_use]
    pub fn shared_with(&self) -> Vec<&str> {
        sorted(&self.shared_with)
    }

    /// Beginnings of labels and annotations that owners may give to the namespaces that they create, sorted.
    #[must_use]
    pub fn owner_metadata(&self) -> Vec<&str> {
        sorted(&self.owner_metadata)
    }

    /// The users whose bindings are always allowed, sorted.
    #[must_use]
    pub fn schedulers(&self) -> Vec<&str> {
        sorted(&self.schedulers)
    }

    /// True if `user` is a scheduler, whose bindings are always allowed.
    #[must_use]
    pub fn is_scheduler(&self, user: &str) -> bool {
        self.schedulers.contains(user)
    }

    /// True if pods of `namespace` may run on every pool's nodes.
    #[must_use]
    pub fn is_shared_with(&self, namespace: &str) -> bool {
        self.shared_with.contains(namespace)
    }

    /// Action on a non-tenant pod whose tolerations let it onto the nodes of a pool.
    #[must_use]
    pub const fn non_tenant_pods(&self) -> NonTenantPods {
        self.non_tenant_pods
    }

    /// The part of Croft that changes pods and DaemonSets, by the settings.
    #[must_use]
    pub const fn mutation(&self) -> Mutation {
        self.mutation
    }

    /// True if a tenant claims every namespace of this name, whatever its labels are.
    #[must_use]
    pub fn is_claimed_by_name(&self, namespace: &str) -> bool {
        self.by_name.contains_key(namespace) || self.prefixing(namespace).next().is_some()
    }

    /// The tenants that open something to any namespace of this name, the oldest first: their closed networks name it, or one
    /// of its ServiceAccounts owns them. None if a tenant claims the name, or it is exempt in every cluster.
    pub fn opened_by_tenants(&self, namespace: &str) -> impl Iterator<Item = &DeclaredTenant> {
        let is_kept = self.is_exempt(namespace) && !self.is_exempt_by_settings(namespace);
        let is_open = !is_kept && !self.is_claimed_by_name(namespace);
        let tenants = self.by_opened.get(namespace).filter(|_| is_open);
        tenants.into_iter().flatten().filter_map(|id| self.tenant(*id))
    }

    /// The names for which [`Self::opened_by_tenants`] has any, in no order.
    pub fn names_opened_by_tenants(&self) -> impl Iterator<Item = &str> {
        self.by_opened.keys().map(|name| &**name).filter(|name| self.opened_by_tenants(name).next().is_some())
    }

    /// Tenants whose prefix the name has.
    fn prefixing<'s>(&'s self, namespace: &'s str) -> impl Iterator<Item = TenantId> + 's {
        let prefixes = (1..=namespace.len()).filter_map(move |end| namespace.get(..end));
        prefixes.filter_map(|prefix| self.by_prefix.get(prefix)).flatten().copied()
    }

    /// The tenant that owns a namespace of this name and these labels: the oldest one that claims it.
    #[must_use]
    pub fn owner<'l>(
        &self,
        namespace: &str,
        label: impl Fn(&str) -> Option<&'l str> + Copy,
    ) -> Option<TenantId> {
        self.by_name.get(namespace).copied().into_iter().chain(self.selecting(namespace, label)).min()
    }

    /// The owner, and the younger tenants whose selectors or prefixes match the namespace as well, the oldest of them first.
    pub(super) fn claimants<'l>(
        &self,
        namespace: &str,
        label: impl Fn(&str) -> Option<&'l str> + Copy,
    ) -> (Option<TenantId>, Box<[TenantId]>) {
        let owner = self.owner(namespace, label);
        let mut younger: Vec<TenantId> =
            self.selecting(namespace, label).filter(|id| Some(*id) != owner).collect();
        younger.sort_unstable();
        younger.dedup();
        (owner, younger.into())
    }

    /// Tenants whose selectors or prefixes match the namespace. One may come twice.
    fn selecting<'l, 's>(
        &'s self,
        namespace: &'s str,
        label: impl Fn(&str) -> Option<&'l str> + Copy + 's,
    ) -> impl Iterator<Item = TenantId> + 's {
        let anchored =
            self.by_label.iter().filter_map(move |(key, values)| values.get(label(key)?)).flatten();
        let claims = move |id: &TenantId| self.tenant(*id).is_some_and(|t| t.claims(namespace, label));
        anchored.chain(&self.by_other).copied().filter(claims).chain(self.prefixing(namespace))
    }
}
