//! The snapshot: what is known of the cluster, and how changes enter it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::{CroftConfig, NodeClaim, Tenant, TenantPool, pause::Pause, zone::ClosedZone};
use croft_cloud::Shortage;
use croft_runtime::kubernetes::Release;
use croft_scheduler::{Cluster, InputError, InstanceType, PodKey, Price};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::{
    daemon_sets::DaemonSets,
    milestones::Milestones,
    pool_versions::PoolVersions,
    records::{
        BoundPod, ClassState, Headroom, InstanceList, InvalidObjects, LaunchHolds, Nomination, ReservedClaim,
        ScheduledPool, Unclaimed,
    },
    tombstones::Tombstones,
    views::{BudgetView, NodeView, PodView},
};
use crate::{
    kube_api::{Change, Kind, Object, ObjectId, Response, Target, Version},
    time::Now,
};

/// The known state of the cluster.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The scheduler's input.
    pub(super) cluster: Cluster,
    pub(super) claims: BTreeMap<String, Arc<NodeClaim>>,
    /// Pools as their schedules make them now.
    pub(super) pools: BTreeMap<String, Arc<TenantPool>>,
    pub(super) scheduled: BTreeMap<String, ScheduledPool>,
    /// Each pool as each of its templates describes it.
    pub(super) templates: BTreeMap<String, Vec<Arc<TenantPool>>>,
    pub(super) classes: BTreeMap<String, ClassState>,
    /// The claims on reserved capacity that the last list of offerings doesn't count, by name.
    pub(super) reserved: BTreeMap<String, ReservedClaim>,
    pub(super) tenants: BTreeMap<String, Arc<Tenant>>,
    pub(super) config: Option<Arc<CroftConfig>>,
    pub(super) nodes: BTreeMap<String, NodeView>,
    /// Pods that haven't finished.
    pub(super) pods: BTreeMap<PodKey, PodView>,
    /// Pending pods.
    pub(super) demand: BTreeSet<PodKey>,
    /// Schedulers whose pending pods are no demand.
    pub(super) ignored_schedulers: Vec<String>,
    /// PodDisruptionBudgets by namespace, then name.
    pub(super) budgets: BTreeMap<String, BTreeMap<String, BudgetView>>,
    /// The last list of the cloud's instances.
    pub(super) instances: Option<InstanceList>,
    /// The list before.
    pub(super) earlier_instances: Option<InstanceList>,
    /// Offerings without capacity, as last listed.
    pub(super) unavailable_offerings: Vec<Shortage>,
    /// How often these have changed.
    pub(super) unavailable_version: u64,
    /// Objects that the scheduler can't use, by kind and name, and why.
    pub(super) problems: BTreeMap<String, InputError>,
    /// The API server's release of Kubernetes, once it is known.
    pub(super) release: Option<Release>,
    /// Objects of Croft's whose newest version is invalid.
    pub(super) invalid: InvalidObjects,
    /// Grows with every change that could change a plan.
    pub(super) plan_version: u64,
    /// Grows with every pod that becomes pending.
    pub(super) arrivals: u64,
    /// Grows with every change.
    pub(super) changes: u64,
    /// Grows when a claim is created or deleted, or gets another instance.
    pub(super) claim_changes: u64,
    /// Price of the instances of all claims.
    pub(super) cost: Price,
    /// Since when a CroftConfig whose limits are in force is absent.
    pub(super) config_absent_since: Option<Duration>,
    /// The pause of the last CroftConfig; it stays in force until the absence has lasted.
    pub(super) cluster_pause: Option<Pause>,
    /// The zones that the last CroftConfig declares bad, likewise.
    pub(super) declared_zones: Vec<ClosedZone>,
    /// Those that are closed now, by name.
    pub(super) closed_zones: BTreeMap<String, ClosedZone>,
    pub(super) has_cluster_limits: bool,
    pub(super) dirty_claims: BTreeSet<String>,
    pub(super) milestones: BTreeMap<String, Milestones>,
    pub(super) listed_since: BTreeMap<String, Duration>,
    pub(super) pool_versions: PoolVersions,
    /// Pools by the labels that their nodes carry.
    pub(super) labelled: BTreeMap<(String, String), BTreeSet<String>>,
    /// Pools that don't count, since an older pool has their label, and the older pool.
    pub(super) collisions: BTreeMap<String, String>,
    /// Tenants by the pools that they name.
    pub(super) tenants_of_pool: BTreeMap<String, BTreeSet<String>>,
    pub(super) claims_of_pool: BTreeMap<String, BTreeSet<String>>,
    pub(super) nodes_of_pool: BTreeMap<String, BTreeSet<String>>,
    /// Claims that replace others.
    pub(super) replacements: BTreeSet<String>,
    pub(super) pods_on: BTreeMap<Box<str>, BTreeSet<PodKey>>,
    /// How many pods each owner has.
    pub(super) replicas: BTreeMap<Box<str>, usize>,
    /// Claims by the name of their instance's node: two may share a name, when an address was free again.
    pub(super) claims_of_node: BTreeMap<String, BTreeSet<String>>,
    pub(super) raw_nodes: BTreeMap<String, Box<Node>>,
    pub(super) attachments: BTreeMap<String, String>,
    pub(super) nominations: BTreeMap<PodKey, Nomination>,
    pub(super) nominated_to: BTreeMap<String, BTreeSet<PodKey>>,
    /// Nominated pods that were bound since the last pass; at most as many as were nominated.
    pub(super) bound: Vec<BoundPod>,
    /// Existing nodes that wait for pods by the last plan.
    pub(super) pods_expected_on: BTreeSet<String>,
    pub(super) unclaimed: Unclaimed,
    /// When templates may be launched again for which a launch found no capacity, by pool and template.
    pub(super) resting_templates: BTreeMap<(String, String), Duration>,
    pub(super) launch_holds: LaunchHolds,
    pub(super) headroom: Headroom,
    pub(super) daemon_sets: DaemonSets,
    /// Kinds whose first list is complete.
    pub(super) synced: BTreeSet<Kind>,
    /// Label sets in use, each held once.
    pub(super) labels: BTreeSet<Arc<BTreeMap<String, String>>>,
    pub(super) tombstones: Tombstones,
    /// True while a change of a fresh list is taken in.
    pub(super) is_listing: bool,
    /// True while a response is taken in.
    pub(super) is_response: bool,
}

/// Read access.
impl Snapshot {
    /// The scheduler's input.
    #[must_use]
    pub const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Claims by name.
    #[must_use]
    pub const fn claims(&self) -> &BTreeMap<String, Arc<NodeClaim>> {
        &self.claims
    }

    /// Pools by name.
    #[must_use]
    pub const fn pools(&self) -> &BTreeMap<String, Arc<TenantPool>> {
        &self.pools
    }

    /// A pool as each of its templates describes it: once if it has only one kind of node.
    #[must_use]
    pub fn templates_of(&self, pool: &str) -> &[Arc<TenantPool>] {
        self.templates.get(pool).map(Vec::as_slice).unwrap_or_default()
    }

    /// A pool as the template of this name describes it; `None` asks for the only kind of node that it has.
    #[must_use]
    pub fn template(&self, pool: &str, name: Option<&str>) -> Option<&Arc<TenantPool>> {
        self.templates_of(pool).iter().find(|template| template.template_name() == name)
    }

    /// A claim's pool as the template describes it that the claim was launched by; `None` if either is gone.
    #[must_use]
    pub fn template_of(&self, claim: &NodeClaim) -> Option<&Arc<TenantPool>> {
        self.template(&claim.spec.pool, claim.template())
    }

    /// The classes that the templates of a pool name, as far as they are known.
    pub fn classes_of<'a>(&'a self, pool: &str) -> impl Iterator<Item = &'a ClassState> + use<'a> {
        let templates = self.templates.get(pool).into_iter().flatten();
        templates.filter_map(|template| self.classes.get(self.class_of(template)?))
    }

    /// Classes by name.
    #[must_use]
    pub const fn classes(&self) -> &BTreeMap<String, ClassState> {
        &self.classes
    }

    /// Tenants by name.
    #[must_use]
    pub const fn tenants(&self) -> &BTreeMap<String, Arc<Tenant>> {
        &self.tenants
    }

    /// The CroftConfig, if there is one.
    #[must_use]
    pub const fn config(&self) -> Option<&Arc<CroftConfig>> {
        self.config.as_ref()
    }

    /// Nodes by name.
    #[must_use]
    pub const fn nodes(&self) -> &BTreeMap<String, NodeView> {
        &self.nodes
    }

    /// Pods that haven't finished.
    #[must_use]
    pub const fn pods(&self) -> &BTreeMap<PodKey, PodView> {
        &self.pods
    }

    /// Pending pods.
    #[must_use]
    pub const fn demand(&self) -> &BTreeSet<PodKey> {
        &self.demand
    }

    /// The PodDisruptionBudgets that cover a pod, by name.
    pub fn budgets_of(&self, key: &PodKey) -> impl Iterator<Item = (&str, &BudgetView)> {
        let of_namespace = self.pods.get(key).zip(self.budgets.get(&*key.namespace));
        let covering = of_namespace.into_iter().flat_map(|(pod, budgets)| {
            let label = |name: &str| pod.labels.get(name).map(String::as_str);
            let covers =
                move |budget: &BudgetView| budget.selector.as_ref().is_some_and(|s| s.matches(label));
            budgets.iter().filter(move |(_, budget)| covers(budget))
        });
        covering.map(|(name, budget)| (name.as_str(), budget))
    }

    /// The last list of the cloud's instances.
    #[must_use]
    pub const fn instances(&self) -> Option<&InstanceList> {
        self.instances.as_ref()
    }

    /// The list before the last.
    #[must_use]
    pub const fn earlier_instances(&self) -> Option<&InstanceList> {
        self.earlier_instances.as_ref()
    }

    /// Offerings without capacity, as last listed.
    #[must_use]
    pub fn unavailable_offerings(&self) -> &[Shortage] {
        &self.unavailable_offerings
    }

    /// How often the offerings without capacity have changed.
    #[must_use]
    pub const fn unavailable_version(&self) -> u64 {
        self.unavailable_version
    }

    /// The API server's release of Kubernetes, once it is known.
    #[must_use]
    pub const fn release(&self) -> Option<Release> {
        self.release
    }

    /// Why the scheduler can't use an object.
    #[must_use]
    pub fn problem(&self, kind: &str, name: &str) -> Option<&InputError> {
        self.problems.get(&format!("{kind} {name}"))
    }

    /// Objects of Croft's whose newest version is invalid.
    #[must_use]
    pub const fn invalid_objects(&self) -> &InvalidObjects {
        &self.invalid
    }

    /// Grows with every change that could change a plan.
    #[must_use]
    pub const fn plan_version(&self) -> u64 {
        self.plan_version
    }

    /// Grows with every pod that becomes pending.
    #[must_use]
    pub const fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Grows with every change.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Grows when a claim is created or deleted, or gets another instance.
    #[must_use]
    pub const fn claim_changes(&self) -> u64 {
        self.claim_changes
    }

    /// Price of the instances of all claims.
    #[must_use]
    pub const fn cost(&self) -> Price {
        self.cost
    }

    /// When this process first observed the steps of a claim.
    #[must_use]
    pub fn milestones(&self, claim: &str) -> Milestones {
        self.milestones.get(claim).copied().unwrap_or_default()
    }

    /// When the first of the lists in a row that show the instance was requested.
    #[must_use]
    pub fn listed_since(&self, id: &str) -> Option<Duration> {
        self.listed_since.get(id).copied()
    }

    /// True once the first list of every kind is in that decisions about capacity wait for.
    #[must_use]
    pub fn is_synced_for_capacity(&self) -> bool {
        Kind::awaited_by_capacity().all(|kind| self.synced.contains(&kind))
    }

    /// True once the first list of every kind is in that decisions about tenancy wait for.
    #[must_use]
    pub fn is_synced_for_tenancy(&self) -> bool {
        Kind::awaited_by_tenancy().all(|kind| self.synced.contains(&kind))
    }

    /// Pods on a node.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = (&PodKey, &PodView)> {
        self.pods_on.get(node).into_iter().flatten().filter_map(|key| Some((key, self.pods.get(key)?)))
    }

    /// Claims that replace others, by name.
    pub fn replacements(&self) -> impl Iterator<Item = (&String, &Arc<NodeClaim>)> {
        self.replacements.iter().filter_map(|name| self.claims.get_key_value(name))
    }

    /// How many pods an owner has; 1 for a pod without one.
    #[must_use]
    pub fn replicas(&self, owner: &str) -> usize {
        self.replicas.get(owner).copied().unwrap_or(1)
    }

    /// The claim of a node: one whose instance the node is, or else one whose instance has the node's name.
    #[must_use]
    pub fn claim_of_node(&self, node: &str) -> Option<&Arc<NodeClaim>> {
        let mut claims = self.claims_of_node.get(node)?.iter().filter_map(|name| self.claims.get(name));
        let first = claims.next()?;
        if self.node_of(first).is_some() {
            return Some(first);
        }
        Some(claims.find(|claim| self.node_of(claim).is_some()).unwrap_or(first))
    }

    /// The claim of a node whose instance is the claim's.
    #[must_use]
    pub fn registered_claim_of(&self, node: &str) -> Option<&Arc<NodeClaim>> {
        self.claim_of_node(node).filter(|claim| self.node_of(claim).is_some())
    }

    /// The node of a claim: its name is the one that the cloud gives the claim's instance, and its provider id is the
    /// instance's.
    #[must_use]
    pub fn node_of(&self, claim: &NodeClaim) -> Option<(&str, &NodeView)> {
        let status = claim.status.as_ref()?;
        let (name, node) = self.nodes.get_key_value(status.node_name.as_deref()?)?;
        (node.provider_id.as_deref() == Some(status.provider_id.as_deref()?)).then_some((name.as_str(), node))
    }

    /// How many volumes are attached to a node.
    #[must_use]
    pub fn attachments_on(&self, node: &str) -> usize {
        self.attachments.values().filter(|n| *n == node).count()
    }

    /// The one tenant that may use a pool, if there is exactly one.
    #[must_use]
    pub fn tenant_of_pool(&self, pool: &str) -> Option<&str> {
        let mut owners = self.tenants_of_pool(pool);
        let (_, first) = owners.next()?;
        if owners.next().is_some() { None } else { first.metadata.name.as_deref() }
    }

    /// True if some limit counts the nodes of both pools together.
    #[must_use]
    pub fn share_limit(&self, pool: &str, other: &str) -> bool {
        let names_other = |tenant: &Tenant| self.pools_of_tenant(tenant).any(|name| name == other);
        self.has_cluster_limits
            || self.tenants_of_pool(pool).any(|(_, t)| !t.spec.limits.is_empty() && names_other(t))
    }

    /// True if the claim's node has pods, or plans put some there.
    #[must_use]
    pub fn has_work(&self, claim: &str, node: &str) -> bool {
        self.pods_on(node).any(|(_, pod)| pod.counts_as_work())
            || self.nominated_to(claim).next().is_some()
            || self.pods_expected_on.contains(node)
            || self.has_headroom_on(node)
            || self.has_headroom_on(claim)
    }
}

/// Changes.
impl Snapshot {
    /// Takes in `change`. A change of an object that was deleted before is ignored.
    pub fn observe(&mut self, change: Change, now: Now) {
        self.changes += 1;
        match change {
            Change::Version(version) => self.observe_version(version, now),
            Change::Gone(id) => self.observe_deletion(&id, now),
            Change::Release(release) => self.release = Some(release),
            Change::Synced(kind) => {
                self.synced.insert(kind);
                self.plan_version += 1;
            }
        }
    }

    fn observe_version(&mut self, version: Version, now: Now) {
        let Version { object, listed, flaw } = version;
        if listed {
            self.tombstones.remove(object.uid());
        }
        self.is_listing = listed;
        if let Some(flaw) = flaw {
            self.observe_invalid(object, &flaw, now);
        } else {
            self.observe_object(object, now);
        }
        self.is_listing = false;
    }

    fn observe_object(&mut self, object: Object, now: Now) {
        match object {
            Object::Pod(pod) => self.observe_pod(&pod, now),
            Object::Node(node) => self.observe_node(node, now),
            Object::NodeClaim(claim) => self.observe_claim(*claim, now),
            Object::TenantPool(pool) => self.observe_pool(*pool, now),
            Object::EC2NodeClass(class) => self.observe_class(*class),
            Object::Tenant(tenant) => self.observe_tenant(*tenant),
            Object::CroftConfig(config) => self.observe_config(*config),
            Object::VolumeAttachment(attachment) => {
                self.attachments.insert(attachment.name_any(), attachment.spec.node_name);
            }
            Object::PodDisruptionBudget(budget) => {
                let view = BudgetView::read(&budget);
                self.observe_budget(budget.namespace().unwrap_or_default(), budget.name_any(), Some(view));
            }
            other => self.observe_placement_input(other),
        }
    }

    /// Takes in the object that a call returned.
    pub fn observe_response(&mut self, response: Response, now: Now) {
        self.is_response = true;
        match response {
            Response::Claim(o) => self.observe(o.into(), now),
            Response::Pool(o) => self.observe(o.into(), now),
            Response::Class(o) => self.observe(o.into(), now),
            Response::Node(o) => self.observe(o.into(), now),
            Response::Pod(o) => self.observe(o.into(), now),
            Response::Config(o) => self.observe(o.into(), now),
            Response::RecordSlot { .. } | Response::Done => {}
        }
        self.is_response = false;
    }

    /// Takes in that the API server has no such object: it is deleted, whether or not a watch has shown it.
    pub fn observe_not_found(&mut self, target: &Target, uid: &str, now: Now) {
        let id = match target {
            Target::Claim(name) => ObjectId::new(Kind::NodeClaim, "", name),
            Target::Pool(name) => ObjectId::new(Kind::TenantPool, "", name),
            Target::Class(name) => ObjectId::new(Kind::EC2NodeClass, "", name),
            Target::Config(name) => ObjectId::new(Kind::CroftConfig, "", name),
            Target::Node(name) => ObjectId::new(Kind::Node, "", name),
            Target::Pod(namespace, name) => ObjectId::new(Kind::Pod, namespace, name),
            // Only watches report the other kinds.
            Target::Tenant(_)
            | Target::Namespace(_)
            | Target::DaemonSet(..)
            | Target::TenantObject(_)
            | Target::Event(_)
            | Target::RecordSlot(..) => return,
        };
        self.observe_deletion(&id.with_uid(uid), now);
    }

    pub(super) fn observe_deletion(&mut self, id: &ObjectId, now: Now) {
        let name = &id.name;
        if let Some(uid) = &id.uid {
            let held = match id.kind {
                Kind::Pod => self.pods.get(&PodKey::new(&id.namespace, name)).map(|o| &*o.uid),
                Kind::Node => self.nodes.get(name).map(|o| &*o.uid),
                Kind::NodeClaim
                | Kind::TenantPool
                | Kind::EC2NodeClass
                | Kind::Tenant
                | Kind::CroftConfig => self.metadata_of(id.kind, name).and_then(|o| o.uid.as_deref()),
                // Only watches report the other kinds, so their order holds.
                _ => Some(&**uid),
            };
            let is_held = held == Some(&**uid);
            self.tombstones.insert(uid.clone(), now);
            if !is_held {
                return;
            }
        }
        self.changes += 1;
        self.remove_object(id, now);
    }

    fn remove_object(&mut self, id: &ObjectId, now: Now) {
        let name = id.name.as_str();
        match id.kind {
            Kind::Pod => self.remove_pod(&PodKey::new(&id.namespace, name), now),
            Kind::Node => self.remove_node(name, now),
            Kind::NodeClaim => self.remove_claim(name, now),
            Kind::TenantPool => {
                let old = self.pools.remove(name);
                self.scheduled.remove(name);
                self.templates.remove(name);
                self.update_headroom_pods(name);
                self.cluster.remove_pool(name);
                self.pool_versions.forget(name);
                self.plan_version += 1;
                self.problems.remove(&format!("TenantPool {name}"));
                self.index_pool_labels(name, old.as_deref(), None);
                if let Some(of) = old.and_then(|old| old.spec.for_tenant.clone()) {
                    self.update_tenant_limits(&of.tenant);
                }
            }
            Kind::EC2NodeClass => {
                self.classes.remove(name);
                self.update_cluster_pools_of_class(name);
            }
            Kind::Tenant => {
                let old = self.tenants.remove(name);
                self.index_tenant_pools(name, old.as_deref(), None);
                self.cluster.remove_tenant_limits(name);
                self.plan_version += 1;
                self.pool_versions.bump_all();
            }
            Kind::CroftConfig => self.remove_config(name, now),
            Kind::VolumeAttachment => drop(self.attachments.remove(name)),
            Kind::PodDisruptionBudget => self.observe_budget(id.namespace.clone(), id.name.clone(), None),
            _ => self.remove_placement_input(id),
        }
    }

    /// Takes in a list of the cloud's instances.
    pub fn set_instances(&mut self, list: InstanceList) {
        self.listed_since.retain(|id, _| list.instances.contains_key(id));
        for id in list.instances.keys() {
            self.listed_since.entry(id.clone()).or_insert(list.asked.mono);
        }
        self.earlier_instances = self.instances.replace(list);
        self.mark_all_claims_dirty();
    }

    /// Takes in the offerings of a class, or why they are unknown.
    pub fn set_offerings(&mut self, class: &str, types: Result<Arc<[InstanceType]>, String>) {
        let counts_more = types.is_ok() && self.count_reserved(class);
        let Some(state) = self.classes.get_mut(class) else { return };
        self.changes += 1;
        let error = match types {
            Ok(types) => {
                let same = !counts_more
                    && state.types.as_ref().is_some_and(|old| Arc::ptr_eq(old, &types) || **old == *types);
                if !same {
                    state.types = Some(types);
                    self.unclaimed.count_again();
                    self.update_cluster_pools_of_class(class);
                }
                None
            }
            Err(why) => Some(why),
        };
        if let Some(state) = self.classes.get_mut(class).filter(|state| state.types_error != error) {
            state.types_error = error;
            self.pool_versions.bump_all();
        }
    }

    /// Takes in the offerings without capacity.
    pub fn set_unavailable_offerings(&mut self, offerings: Vec<Shortage>) {
        if self.unavailable_offerings != offerings {
            self.unavailable_offerings = offerings;
            self.unavailable_version += 1;
        }
    }

    /// Drops both lists of instances, as if none was ever received.
    pub fn clear_instances(&mut self) {
        (self.instances, self.earlier_instances) = (None, None);
    }

    /// Makes the next scheduling run due, although no object has changed.
    pub fn request_plan(&mut self) {
        self.plan_version += 1;
    }

    /// Takes in which existing nodes wait for pods by the last plan: they aren't empty.
    pub fn expect_pods_on<'a>(&mut self, nodes: impl Iterator<Item = &'a str>) {
        let nodes: BTreeSet<&str> = nodes.collect();
        self.pods_expected_on = nodes.into_iter().map(str::to_owned).collect();
    }

    /// True if the held version of an object is newer than `new`, or the object is deleted. An object with another uid
    /// under the same name replaces the held one, even if versions have gone back.
    pub(super) fn is_superseded(&self, uid: &str, held: Option<(&str, u64)>, new: u64) -> bool {
        !self.is_listing
            && (self.tombstones.contains(uid)
                || held.is_some_and(|(held, version)| {
                    (held == uid || self.is_response) && is_stale(version, new)
                }))
    }

    pub(super) fn record_problem(&mut self, kind: &str, name: &str, read: Result<(), InputError>) {
        let key = format!("{kind} {name}");
        match read {
            Ok(()) => {
                self.problems.remove(&key);
            }
            Err(problem) => {
                if self.problems.get(&key) != Some(&problem) {
                    tracing::warn!(object = key, error = %problem, "the scheduler can't use an object; correct it");
                    self.problems.insert(key, problem);
                }
            }
        }
    }
}

/// True if `new` is not newer than `held`. Responses and watch events of one object arrive in any order. Versions are
/// absent only in tests of pure logic.
pub(super) fn is_stale(held: u64, new: u64) -> bool {
    new != 0 && new <= held
}

pub(super) fn full_name<K: ResourceExt>(object: &K) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}
