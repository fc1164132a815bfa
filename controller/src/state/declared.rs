//! Objects that users write: pools, classes, tenants and the CroftConfig; and other inputs of placement.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::{
    CroftConfig, EC2NodeClass, Tenant, TenantPool,
    config::{CroftConfigSpec, SINGLETON},
    convert::policy::node_labels,
    per_tenant,
    pool::Provisioner,
};
use croft_disruption::pause::{self, PauseInForce};
use croft_policy::{
    declarations::Declarations,
    model::{self as policy, CONFIG_ABSENCE},
};
use croft_scheduler::{LIMIT_NODES, Quantity, TenantLimits};
use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::LimitRange, node::v1::RuntimeClass};
use kube::ResourceExt;

use super::{
    dirty_set::move_between_sets,
    records::ClassState,
    snapshot::{Snapshot, full_name, is_stale},
    views::{is_accepted, resource_version},
};
use crate::{
    kube_api::{Kind, Object, ObjectId},
    time::Now,
};

impl Snapshot {
    pub(super) fn observe_pool(&mut self, pool: TenantPool, now: Now) {
        let name = pool.name_any();
        let new = resource_version(pool.metadata.resource_version.as_deref());
        let old = self.pools.get(&name);
        if old.is_some_and(|old| {
            old.metadata.uid == pool.metadata.uid
                && !self.is_listing
                && is_stale(resource_version(old.metadata.resource_version.as_deref()), new)
        }) {
            return;
        }
        self.take_in_pool(pool, now);
    }

    /// Takes in a pool as it is declared.
    pub(super) fn take_in_pool(&mut self, declared: TenantPool, now: Now) {
        let pool = self.under_schedules(declared, now);
        let name = pool.name_any();
        let old = self.pools.get(&name);
        let changed = old.is_none_or(|old| {
            old.spec != pool.spec
                || is_accepted(old) != is_accepted(&pool)
                || old.metadata.deletion_timestamp.is_some() != pool.metadata.deletion_timestamp.is_some()
        });
        // Its annotations may block disruption. Its status is written by the controller.
        let asks_otherwise = old.is_none_or(|old| old.metadata.annotations != pool.metadata.annotations);
        let pool = Arc::new(pool);
        let old = self.pools.insert(name.clone(), Arc::clone(&pool));
        let narrowed = |narrowed: Cow<'_, TenantPool>| match narrowed {
            Cow::Borrowed(_) => Arc::clone(&pool),
            Cow::Owned(narrowed) => Arc::new(narrowed),
        };
        let templates = pool.by_template().map(|(_, template)| narrowed(template)).collect();
        self.templates.insert(name.clone(), templates);
        if changed || asks_otherwise {
            self.pool_versions.bump(&name);
        }
        if changed {
            self.update_limits_of_tenants(&name, old.as_deref(), &pool);
            self.unclaimed.count_again();
            self.index_pool_labels(&name, old.as_deref(), Some(&pool));
            self.update_cluster_pool(&name);
            self.update_headroom_pods(&name);
        }
    }

    /// Tells the scheduler the limits of the Tenants whose pools are others by a changed pool: the one that it was made for, and, if it
    /// isn't for many any more or only now, those that name it.
    fn update_limits_of_tenants(&mut self, name: &str, old: Option<&TenantPool>, new: &TenantPool) {
        let made_for =
            [old, Some(new)].into_iter().flatten().filter_map(|pool| pool.spec.for_tenant.as_ref());
        let mut tenants: BTreeSet<String> = made_for.map(|of| of.tenant.clone()).collect();
        if old.is_none_or(|old| old.spec.per_tenant != new.spec.per_tenant) {
            tenants.extend(self.tenants_of_pool.get(name).into_iter().flatten().cloned());
        }
        tenants.iter().for_each(|tenant| self.update_tenant_limits(tenant));
    }

    /// Indexes the labels that the pool's nodes carry. If another pool has one of them, finds which of the two
    /// counts.
    pub(super) fn index_pool_labels(
        &mut self,
        name: &str,
        old: Option<&TenantPool>,
        new: Option<&TenantPool>,
    ) {
        let mut contested = false;
        for label in old.map(node_labels).into_iter().flatten() {
            if let Some(pools) = self.labelled.get_mut(&label) {
                contested |= pools.len() > 1;
                pools.remove(name);
                if pools.is_empty() {
                    self.labelled.remove(&label);
                }
            }
        }
        for label in new.map(node_labels).into_iter().flatten() {
            let pools = self.labelled.entry(label).or_default();
            pools.insert(name.to_owned());
            contested |= pools.len() > 1;
        }
        if contested {
            self.resolve_label_collisions();
        }
    }

    /// Finds the pools that don't count, by admission's own rule: of two pools with one label, or one pool-name
    /// label, the older counts. Pools for which that has changed are taken in again.
    fn resolve_label_collisions(&mut self) {
        let pools: Vec<policy::Pool> =
            self.pools.values().map(|pool| croft_api::convert::policy::pool(pool)).collect();
        let rules = Declarations::new(&policy::Config::default(), std::iter::empty(), pools.iter());
        let pair = |(younger, older): &(Box<str>, Box<str>)| (younger.to_string(), older.to_string());
        let now: BTreeMap<String, String> = rules.collisions().iter().map(pair).collect();
        let before = std::mem::replace(&mut self.collisions, now);
        let is_new = |pool: &&String| !before.contains_key(*pool);
        let lost: Vec<String> = self.collisions.keys().filter(is_new).cloned().collect();
        let counts = |pool: &String| self.pools.contains_key(pool) && !self.collisions.contains_key(pool);
        let won: Vec<String> = before.into_keys().filter(counts).collect();
        // Losers first: then the label is free.
        for pool in lost.into_iter().chain(won) {
            self.update_cluster_pool(&pool);
            self.update_headroom_pods(&pool);
        }
    }

    /// True unless another provisioner launches the pool's nodes: nodes that Croft launched before then stay as
    /// they are.
    #[must_use]
    pub fn is_provisioned_by_croft(&self, pool: &str) -> bool {
        self.pools.get(pool).is_none_or(|pool| pool.spec.provisioner == Provisioner::Croft)
    }

    /// The pause of voluntary disruption that keeps a pool's nodes at `now`.
    #[must_use]
    pub fn pause_of<'a>(&'a self, pool: &'a TenantPool, now: Timestamp) -> Option<PauseInForce<'a>> {
        pause::in_force(self.cluster_pause.as_ref(), pool.spec.disruption.paused.as_ref(), now)
    }

    /// True if the pool is being deleted and no Tenant names it any more: it launches nothing, and its nodes are
    /// removed. A pool that a Tenant still names works.
    #[must_use]
    pub fn is_ending(&self, name: &str, pool: &TenantPool) -> bool {
        pool.metadata.deletion_timestamp.is_some() && self.tenants_of_pool(name).next().is_none()
    }

    /// True unless an older pool has the label of the pool `name`.
    #[must_use]
    pub fn has_own_label(&self, name: &str) -> bool {
        !self.collisions.contains_key(name)
    }

    pub(super) fn observe_class(&mut self, class: EC2NodeClass) {
        let name = class.name_any();
        let new = resource_version(class.metadata.resource_version.as_deref());
        match self.classes.get_mut(&name) {
            Some(state)
                if state.object.metadata.uid == class.metadata.uid
                    && !self.is_listing
                    && is_stale(resource_version(state.object.metadata.resource_version.as_deref()), new) => {
            }
            Some(state) => {
                state.object = Arc::new(class);
                self.plan_version += 1;
                self.pool_versions.bump_all();
            }
            None => {
                let state = ClassState { object: Arc::new(class), types: None, types_error: None };
                self.classes.insert(name.clone(), state);
                self.update_cluster_pools_of_class(&name);
            }
        }
    }

    /// The Tenants whose pods may use a pool, in order of their names: those that name it, or the one that it was made for, while that
    /// names the pool it was made from.
    pub fn tenants_of_pool<'a>(
        &'a self,
        pool: &str,
    ) -> impl Iterator<Item = (&'a String, &'a Arc<Tenant>)> + use<'a> {
        let made_for = self.pools.get(pool).and_then(|pool| pool.spec.for_tenant.as_ref());
        let named = if made_for.is_some() { None } else { self.tenants_of_pool.get(pool) };
        let only = made_for.filter(|of| {
            let names = self.tenants_of_pool.get(&of.pool);
            // The name may be that of an ordinary pool since then. One that is missing may come back.
            self.pools.get(&of.pool).is_none_or(|pool| pool.spec.per_tenant)
                && names.is_some_and(|names| names.contains(&of.tenant))
        });
        let names = named.into_iter().flatten().chain(only.map(|of| &of.tenant));
        names.filter_map(|name| self.tenants.get_key_value(name))
    }

    /// The names of the pools that a Tenant's pods may use.
    pub fn pools_of_tenant<'a>(&'a self, tenant: &'a Tenant) -> impl Iterator<Item = Cow<'a, str>> {
        per_tenant::pools_of(tenant, |name| self.pools.get(name).map(|pool| &**pool))
    }

    /// Tells the scheduler the limits of a Tenant whose pools are others now.
    pub(super) fn update_tenant_limits(&mut self, name: &str) {
        if let Some(tenant) = self.tenants.get(name).cloned() {
            self.take_in_limits(&tenant);
        }
    }

    fn take_in_limits(&mut self, tenant: &Tenant) {
        let key = format!("Tenant {}", tenant.name_any());
        let pools: Vec<String> = self.pools_of_tenant(tenant).map(Cow::into_owned).collect();
        let limits = match croft_api::convert::scheduler::tenant_limits(tenant, pools.clone()) {
            Ok(limits) => {
                self.problems.remove(&key);
                limits
            }
            Err(problem) => {
                // Unreadable limits must not count as no limits: nothing is launched until they can be read.
                self.problems.insert(key, problem);
                let zero = [(LIMIT_NODES.to_owned(), Quantity::ZERO)];
                TenantLimits { tenant: tenant.name_any(), pools, limits: zero.into() }
            }
        };
        self.cluster.upsert_tenant_limits(limits);
    }

    pub(super) fn index_tenant_pools(&mut self, name: &str, old: Option<&Tenant>, new: Option<&Tenant>) {
        for pool in old.into_iter().flat_map(|tenant| &tenant.spec.pools) {
            move_between_sets(&mut self.tenants_of_pool, name, Some(pool), None);
        }
        for pool in new.into_iter().flat_map(|tenant| &tenant.spec.pools) {
            move_between_sets(&mut self.tenants_of_pool, name, None, Some(pool));
        }
    }

    pub(super) fn observe_tenant(&mut self, tenant: Tenant) {
        let name = tenant.name_any();
        if self.tenants.get(&name).is_some_and(|old| old.spec == tenant.spec) {
            // It may have been deleted and created unseen: its deletion is told from an older one's by the uid.
            self.tenants.insert(name, Arc::new(tenant));
            return;
        }
        self.take_in_limits(&tenant);
        let new = Arc::new(tenant);
        let old = self.tenants.insert(name.clone(), Arc::clone(&new));
        self.index_tenant_pools(&name, old.as_deref(), Some(&new));
        self.plan_version += 1;
        self.pool_versions.bump_all();
    }

    pub(super) fn observe_config(&mut self, config: CroftConfig) {
        let new = resource_version(config.metadata.resource_version.as_deref());
        let held = self.config.as_ref();
        let is_old = held.is_some_and(|held| {
            held.metadata.uid == config.metadata.uid
                && !self.is_listing
                && is_stale(resource_version(held.metadata.resource_version.as_deref()), new)
        });
        // A response that was sent before the deletion may arrive after it.
        let is_deleted = !self.is_listing
            && config.metadata.uid.as_deref().is_some_and(|uid| self.tombstones.contains(uid));
        if is_old || is_deleted || config.name_any() != SINGLETON {
            return;
        }
        let same = held.is_some_and(|held| held.spec.limits == config.spec.limits);
        if !same {
            let key = format!("CroftConfig {SINGLETON}");
            let limits = match croft_api::convert::scheduler::cluster_limits(&config) {
                Ok(limits) => {
                    self.problems.remove(&key);
                    limits
                }
                Err(problem) => {
                    // Unreadable limits must not count as no limits: nothing is launched until they can be read.
                    self.problems.insert(key, problem);
                    [(LIMIT_NODES.to_owned(), Quantity::ZERO)].into()
                }
            };
            self.has_cluster_limits = !limits.is_empty();
            self.cluster.set_limits(limits);
            self.plan_version += 1;
            self.pool_versions.bump_all();
        }
        let same =
            held.is_some_and(|held| held.spec.pods_without_requests == config.spec.pods_without_requests);
        if !same && let Ok(requests) = croft_api::convert::scheduler::pods_without_requests(&config) {
            self.cluster.set_pods_without_requests(&requests);
            self.plan_version += 1;
            self.pool_versions.bump_all();
        }
        let paused = &config.spec.disruption.paused;
        if self.cluster_pause != *paused {
            self.cluster_pause.clone_from(paused);
            self.pool_versions.bump_all();
        }
        self.declared_zones.clone_from(&config.spec.zones);
        self.config_absent_since = None;
        self.ignore_schedulers(config.spec.ignored_schedulers.clone());
        self.config = Some(Arc::new(config));
    }

    /// Removes the CroftConfig. Its limits stay in force until the absence has lasted: `kubectl replace --force` deletes
    /// it for a moment, too.
    pub(super) fn remove_config(&mut self, name: &str, now: Now) {
        if name == SINGLETON && self.config.take().is_some() {
            self.config_absent_since = Some(now.mono);
        }
    }

    /// True if there is no CroftConfig, and none whose settings are in force until its absence has lasted.
    #[must_use]
    pub const fn has_default_config(&self) -> bool {
        self.config.is_none() && self.config_absent_since.is_none()
    }

    /// Lifts the limits of a CroftConfig that has been absent for [`CONFIG_ABSENCE`]; otherwise returns when to check
    /// again.
    pub fn expire_config(&mut self, now: Now) -> Option<Duration> {
        let until = self.config_absent_since?.saturating_add(CONFIG_ABSENCE);
        if now.mono < until {
            return Some(until);
        }
        self.config_absent_since = None;
        self.problems.remove(&format!("CroftConfig {SINGLETON}"));
        self.cluster.set_limits(BTreeMap::new());
        self.has_cluster_limits = false;
        let defaults = CroftConfig::new(SINGLETON, CroftConfigSpec::default());
        if let Ok(requests) = croft_api::convert::scheduler::pods_without_requests(&defaults) {
            self.cluster.set_pods_without_requests(&requests);
        }
        self.ignore_schedulers(Vec::new());
        self.cluster_pause = None;
        self.declared_zones.clear();
        self.plan_version += 1;
        self.pool_versions.bump_all();
        None
    }

    pub(super) fn observe_placement_input(&mut self, object: Object) {
        self.plan_version += 1;
        match object {
            Object::Namespace(o) => self.cluster.upsert_namespace(&o),
            Object::DaemonSet(o) => self.observe_daemon_set(o),
            Object::LimitRange(o) => {
                self.observe_limit_range(o.namespace().unwrap_or_default(), o.name_any(), Some(o));
            }
            Object::RuntimeClass(o) => self.observe_runtime_class(o.name_any(), Some(o)),
            Object::PersistentVolumeClaim(o) => {
                let read = self.cluster.upsert_pvc(&o);
                self.record_problem("PersistentVolumeClaim", &full_name(&*o), read);
            }
            Object::PersistentVolume(o) => {
                let read = self.cluster.upsert_pv(&o);
                self.record_problem("PersistentVolume", &full_name(&*o), read);
            }
            Object::StorageClass(o) => {
                let read = self.cluster.upsert_storage_class(&o);
                self.record_problem("StorageClass", &full_name(&*o), read);
            }
            Object::CSINode(o) => {
                let read = self.cluster.upsert_csi_node(&o);
                self.record_problem("CSINode", &full_name(&*o), read);
            }
            _ => {}
        }
    }

    pub(super) fn remove_placement_input(&mut self, id: &ObjectId) {
        self.plan_version += 1;
        let ObjectId { kind, namespace, name, .. } = id;
        match kind {
            Kind::Namespace => self.cluster.remove_namespace(name),
            Kind::DaemonSet => self.remove_daemon_set(namespace.clone(), name.clone()),
            Kind::LimitRange => self.observe_limit_range(namespace.clone(), name.clone(), None),
            Kind::RuntimeClass => self.observe_runtime_class(name.clone(), None),
            Kind::PersistentVolumeClaim => self.cluster.remove_pvc(namespace, name),
            Kind::PersistentVolume => self.cluster.remove_pv(name),
            Kind::StorageClass => self.cluster.remove_storage_class(name),
            Kind::CSINode => self.cluster.remove_csi_node(name),
            _ => {}
        }
    }

    pub(super) fn observe_daemon_set(&mut self, set: Box<DaemonSet>) {
        let name = (set.namespace().unwrap_or_default(), set.name_any());
        self.plan_daemon_set(&set);
        self.daemon_sets.sets.insert(name, set);
    }

    pub(super) fn remove_daemon_set(&mut self, namespace: String, name: String) {
        self.cluster.remove_daemonset(&namespace, &name);
        self.daemon_sets.sets.remove(&(namespace, name));
    }

    pub(super) fn observe_limit_range(
        &mut self,
        namespace: String,
        name: String,
        new: Option<Box<LimitRange>>,
    ) {
        let key = (namespace.clone(), name);
        let spec = new.as_ref().and_then(|range| range.spec.clone());
        let old = match new {
            Some(range) => self.daemon_sets.limit_ranges.insert(key, range),
            None => self.daemon_sets.limit_ranges.remove(&key),
        };
        if old.and_then(|old| old.spec) != spec {
            self.plan_daemon_sets(|set| set.namespace().as_deref() == Some(&namespace));
        }
    }

    pub(super) fn observe_runtime_class(&mut self, name: String, new: Option<Box<RuntimeClass>>) {
        match new {
            Some(class) => drop(self.daemon_sets.runtime_classes.insert(name.clone(), class)),
            None => drop(self.daemon_sets.runtime_classes.remove(&name)),
        }
        self.plan_daemon_sets(|set| {
            let pod = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
            pod.and_then(|pod| pod.runtime_class_name.as_ref()) == Some(&name)
        });
    }

    fn plan_daemon_sets(&mut self, concerns: impl Fn(&DaemonSet) -> bool) {
        let sets: Vec<Box<DaemonSet>> =
            self.daemon_sets.sets.values().filter(|set| concerns(set)).cloned().collect();
        for set in sets {
            self.plan_daemon_set(&set);
        }
    }

    fn plan_daemon_set(&mut self, set: &DaemonSet) {
        let read = self.cluster.upsert_daemonset(&self.daemon_sets.planned(set));
        self.record_problem("DaemonSet", &full_name(set), read);
    }
}
