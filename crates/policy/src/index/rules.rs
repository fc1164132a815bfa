//! Tenants, pools and settings, compiled for look-ups.

use std::cmp::Ordering;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    model::{BUILT_IN_EXEMPT, Config, MARK_KEY, OnConflict, Pool, Provisioner, Tenant, Unassigned},
    selector::Selector,
    taint::{Effect, Effects},
};

/// A tenant's place in [`Rules`]; the lower, the older its claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(u32);

/// A pool's place in [`Rules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(u32);

/// A tenant.
#[derive(Clone, Debug)]
pub struct TenantRule {
    /// Its place.
    pub id: TenantId,
    /// Its name.
    pub name: Box<str>,
    /// What happens to a pod that asks for another pool.
    pub on_conflict: OnConflict,
    /// Its pools by name, the default first; `None` for one that doesn't exist or doesn't count.
    pub pools: Box<[(Box<str>, Option<PoolId>)]>,
    names: FxHashSet<Box<str>>,
    selector: Option<Selector>,
}

impl TenantRule {
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

    /// True if the tenant claims a namespace of this name and labels, whether or not another comes first.
    #[must_use]
    pub fn claims<'l>(&self, namespace: &str, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.names.contains(namespace) || self.selector.as_ref().is_some_and(|s| s.matches(label))
    }

    /// Which namespaces it claims by their labels.
    #[must_use]
    pub const fn selector(&self) -> Option<&Selector> {
        self.selector.as_ref()
    }

    /// The namespaces that it claims by name, in no order.
    pub fn claimed_names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|n| &**n)
    }
}

/// A pool.
#[derive(Clone, Debug)]
pub struct PoolRule {
    /// Its place.
    pub id: PoolId,
    /// Its name.
    pub name: Box<str>,
    /// Key of its label and taint.
    pub key: Box<str>,
    /// Value of its label and taint.
    pub value: Box<str>,
    /// Effects of its taint; never empty.
    pub effects: Effects,
    /// Who makes its nodes.
    pub provisioner: Provisioner,
    shared_with: FxHashSet<Box<str>>,
}

impl PoolRule {
    /// The value of [`MARK_KEY`] on its nodes.
    #[must_use]
    pub fn mark(&self) -> &str {
        if &*self.key == MARK_KEY { &self.value } else { &self.name }
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

/// A key that is some pool's key.
#[derive(Clone, Debug, Default)]
pub struct KeyRule {
    values: FxHashMap<Box<str>, PoolId>,
    pools: Vec<PoolId>,
}

impl KeyRule {
    /// The pool whose nodes have this value of the key.
    #[must_use]
    pub fn pool(&self, value: &str) -> Option<PoolId> {
        self.values.get(value).copied()
    }

    /// The pools whose nodes have this key; every pool for [`MARK_KEY`].
    #[must_use]
    pub fn pools(&self) -> &[PoolId] {
        &self.pools
    }
}

/// Tenants, pools and settings.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    unassigned: Unassigned,
    namespace: Box<str>,
    exempt: FxHashSet<Box<str>>,
    schedulers: FxHashSet<Box<str>>,
    shared_with: FxHashSet<Box<str>>,
    tenants: Vec<TenantRule>,
    unread: bool,
    tenant_ids: FxHashMap<Box<str>, TenantId>,
    pools: Vec<PoolRule>,
    pool_ids: FxHashMap<Box<str>, PoolId>,
    keys: FxHashMap<Box<str>, KeyRule>,
    collisions: Vec<(Box<str>, Box<str>)>,
    by_name: FxHashMap<Box<str>, TenantId>,
    by_label: FxHashMap<Box<str>, FxHashMap<Box<str>, Vec<TenantId>>>,
    by_other: Vec<TenantId>,
}

fn set(words: &[String]) -> FxHashSet<Box<str>> {
    words.iter().map(|w| w.as_str().into()).collect()
}

/// Exempt namespaces that are built in, and those of the settings.
fn exempt(config: &Config) -> FxHashSet<Box<str>> {
    let built_in = BUILT_IN_EXEMPT.into_iter().chain([config.namespace.as_str()]);
    built_in.chain(config.exempt.iter().map(String::as_str)).map(Into::into).collect()
}

fn sorted(words: &FxHashSet<Box<str>>) -> Vec<&str> {
    let mut words: Vec<&str> = words.iter().map(|w| &**w).collect();
    words.sort_unstable();
    words
}

/// Older first; what has no age, such as a file's object, last; then by name.
fn rank(a: (Option<i64>, &str), b: (Option<i64>, &str)) -> Ordering {
    a.0.unwrap_or(i64::MAX).cmp(&b.0.unwrap_or(i64::MAX)).then_with(|| a.1.cmp(b.1))
}

impl Rules {
    /// Compiles what is declared.
    #[must_use]
    pub fn new<'a>(
        config: &Config,
        tenants: impl Iterator<Item = &'a Tenant>,
        pools: impl Iterator<Item = &'a Pool>,
    ) -> Self {
        let mut rules = Self {
            unassigned: config.unassigned,
            namespace: config.namespace.as_str().into(),
            exempt: exempt(config),
            schedulers: set(&config.schedulers),
            shared_with: set(&config.shared_with),
            ..Self::default()
        };
        let mut pools: Vec<&Pool> = pools.collect();
        pools.sort_by(|a, b| rank((a.created, &a.name), (b.created, &b.name)));
        rules.keys.insert(MARK_KEY.into(), KeyRule::default());
        pools.into_iter().for_each(|pool| rules.add_pool(pool));
        let mut tenants: Vec<&Tenant> = tenants.collect();
        tenants.sort_by(|a, b| rank((a.created, &a.name), (b.created, &b.name)));
        tenants.into_iter().for_each(|tenant| rules.add_tenant(tenant));
        if !rules.is_active() {
            // Without a tenant there is no pod to isolate.
            rules.unassigned = Unassigned::Allow;
        }
        rules
    }

    /// A pool that shares a label with an older one doesn't count: its nodes couldn't be told from the other's.
    fn add_pool(&mut self, pool: &Pool) {
        let Ok(id) = u32::try_from(self.pools.len()).map(PoolId) else { return };
        let rule = PoolRule {
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
            shared_with: set(&pool.shared_with),
        };
        let labels = [(&*rule.key, &*rule.value), (MARK_KEY, rule.mark())];
        if let Some(other) = labels.iter().find_map(|(key, value)| self.by_label(key, value)) {
            let other = self.pool(other).map(|p| p.name.clone()).unwrap_or_default();
            self.collisions.push((rule.name, other));
            return;
        }
        for (key, value) in labels {
            let of_key = self.keys.entry(key.into()).or_default();
            of_key.values.insert(value.into(), id);
            if of_key.pools.last() != Some(&id) {
                of_key.pools.push(id);
            }
        }
        self.pool_ids.insert(rule.name.clone(), id);
        self.pools.push(rule);
    }

    fn add_tenant(&mut self, tenant: &Tenant) {
        let Ok(id) = u32::try_from(self.tenants.len()).map(TenantId) else { return };
        self.unread |= tenant.unread;
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
        let rule = TenantRule {
            id,
            name: tenant.name.as_str().into(),
            on_conflict: tenant.on_conflict,
            pools: tenant.pools.iter().map(|p| (p.as_str().into(), self.pool_id(p))).collect(),
            names: set(&tenant.namespaces),
            selector: tenant.selector.clone(),
        };
        self.tenant_ids.insert(rule.name.clone(), id);
        self.tenants.push(rule);
    }

    /// The tenant at `id`.
    #[must_use]
    pub fn tenant(&self, id: TenantId) -> Option<&TenantRule> {
        self.tenants.get(id.0 as usize)
    }

    /// The tenant of this name.
    #[must_use]
    pub fn tenant_named(&self, name: &str) -> Option<&TenantRule> {
        self.tenant(*self.tenant_ids.get(name)?)
    }

    /// True if some tenant's claims can't be read.
    #[must_use]
    pub const fn has_unread(&self) -> bool {
        self.unread
    }

    /// Every tenant, the oldest first.
    #[must_use]
    pub fn tenants(&self) -> &[TenantRule] {
        &self.tenants
    }

    /// True if there is a tenant: without one, no pod and no namespace is touched.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !self.tenants.is_empty()
    }

    /// The pool at `id`.
    #[must_use]
    pub fn pool(&self, id: PoolId) -> Option<&PoolRule> {
        self.pools.get(id.0 as usize)
    }

    /// The place of the pool of this name.
    #[must_use]
    pub fn pool_id(&self, name: &str) -> Option<PoolId> {
        self.pool_ids.get(name).copied()
    }

    /// Every pool that counts, the oldest first.
    #[must_use]
    pub fn pools(&self) -> &[PoolRule] {
        &self.pools
    }

    /// Pools that don't count since an older one has their label: (name, the older one's name).
    #[must_use]
    pub fn collisions(&self) -> &[(Box<str>, Box<str>)] {
        &self.collisions
    }

    /// What is known of `key`, if it is the key of some pool. [`MARK_KEY`] always is.
    #[must_use]
    pub fn key(&self, key: &str) -> Option<&KeyRule> {
        self.keys.get(key)
    }

    /// Every key of a pool, [`MARK_KEY`] included, sorted.
    #[must_use]
    pub fn keys(&self) -> Vec<&str> {
        let mut keys: Vec<&str> = self.keys.keys().map(|k| &**k).collect();
        keys.sort_unstable();
        keys
    }

    /// The pool whose nodes have this label.
    #[must_use]
    pub fn by_label(&self, key: &str, value: &str) -> Option<PoolId> {
        self.keys.get(key)?.pool(value)
    }

    /// The namespace that Croft is installed in.
    #[must_use]
    pub fn croft_namespace(&self) -> &str {
        &self.namespace
    }

    /// The user that the controller acts as: the only one that writes the guarded labels and annotations.
    #[must_use]
    pub fn controller_user(&self) -> String {
        format!("system:serviceaccount:{}:croft-controller", self.namespace)
    }

    /// True if Croft leaves `namespace` alone.
    #[must_use]
    pub fn is_exempt(&self, namespace: &str) -> bool {
        self.exempt.contains(namespace)
    }

    /// True if the settings say that Croft leaves `namespace` alone, and not every cluster's rules.
    #[must_use]
    pub fn is_exempt_by_settings(&self, namespace: &str) -> bool {
        self.is_exempt(namespace) && !BUILT_IN_EXEMPT.contains(&namespace) && namespace != &*self.namespace
    }

    /// The namespaces that Croft leaves alone, sorted.
    #[must_use]
    pub fn exempt(&self) -> Vec<&str> {
        sorted(&self.exempt)
    }

    /// The namespaces whose pods may run on every pool's nodes, sorted.
    #[must_use]
    pub fn shared_with(&self) -> Vec<&str> {
        sorted(&self.shared_with)
    }

    /// The users whose bindings aren't judged, sorted.
    #[must_use]
    pub fn schedulers(&self) -> Vec<&str> {
        sorted(&self.schedulers)
    }

    /// True if `user` is a scheduler whose bindings aren't judged.
    #[must_use]
    pub fn is_scheduler(&self, user: &str) -> bool {
        self.schedulers.contains(user)
    }

    /// True if pods of `namespace` may run on every pool's nodes.
    #[must_use]
    pub fn is_shared_with(&self, namespace: &str) -> bool {
        self.shared_with.contains(namespace)
    }

    /// What happens to a pod of nobody that would be let onto a pool's nodes.
    #[must_use]
    pub const fn unassigned(&self) -> Unassigned {
        self.unassigned
    }

    /// The tenant that owns a namespace of this name and these labels: the oldest that claims it.
    #[must_use]
    pub fn owner<'l>(
        &self,
        namespace: &str,
        label: impl Fn(&str) -> Option<&'l str> + Copy,
    ) -> Option<TenantId> {
        self.by_name.get(namespace).copied().into_iter().chain(self.selecting(namespace, label)).min()
    }

    /// The owner, and the younger tenants whose selectors match the namespace, too, the oldest of them first.
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

    /// Tenants whose selectors may match, and that claim the namespace; one may come twice.
    fn selecting<'l, 's>(
        &'s self,
        namespace: &'s str,
        label: impl Fn(&str) -> Option<&'l str> + Copy + 's,
    ) -> impl Iterator<Item = TenantId> + 's {
        let anchored =
            self.by_label.iter().filter_map(move |(key, values)| values.get(label(key)?)).flatten();
        let claims = move |id: &TenantId| self.tenant(*id).is_some_and(|t| t.claims(namespace, label));
        anchored.chain(&self.by_other).copied().filter(claims)
    }
}
