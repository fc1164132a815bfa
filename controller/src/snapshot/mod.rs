//! What the controller knows: one incremental picture, fed by watches and by the answers to its own calls.
//!
//! ```text
//!   watch ──┐
//!           ├──Change──▶ Snapshot ──▶ scheduler::Cluster (interned: pods, nodes, volumes, ...)
//!   answer ─┘               └───────▶ views (few fields: pods, nodes), claims, pools, classes, tenants
//! ```
//!
//! Objects arrive by both ways and in any order between them, so each is taken only if its resourceVersion
//! is newer than what is held, and what was seen deleted stays deleted.

mod coming;
mod graves;
mod views;

pub use coming::future_node;
pub(crate) use coming::is;
pub use views::{BudgetView, NodeView, PodTraits, PodView};

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_api::{EC2NodeClass, NodeClaim, Tenant, TenantPool};
use croft_cloud::CloudMachine;
use croft_scheduler::{Cluster, InputError, InstanceType, PodKey, TenantLimits};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod},
    policy::v1::PodDisruptionBudget,
    storage::v1::{CSINode, StorageClass, VolumeAttachment},
};
use kube::ResourceExt;

use crate::{seam::Answer, time::Now};
use graves::Graves;
use views::version;

/// One thing that is new.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is the kind it is named for; `Gone` variants carry the object's name")]
pub enum Change {
    Pod(Box<Pod>),
    PodGone(PodKey),
    Node(Box<Node>),
    NodeGone(String),
    Claim(Box<NodeClaim>),
    ClaimGone(String),
    Pool(Box<TenantPool>),
    PoolGone(String),
    Class(Box<EC2NodeClass>),
    ClassGone(String),
    Tenant(Box<Tenant>),
    TenantGone(String),
    Namespace(Box<Namespace>),
    NamespaceGone(String),
    DaemonSet(Box<DaemonSet>),
    DaemonSetGone(String, String),
    Pvc(Box<PersistentVolumeClaim>),
    PvcGone(String, String),
    Pv(Box<PersistentVolume>),
    PvGone(String),
    StorageClass(Box<StorageClass>),
    StorageClassGone(String),
    CsiNode(Box<CSINode>),
    CsiNodeGone(String),
    Attachment(Box<VolumeAttachment>),
    AttachmentGone(String),
    Budget(Box<PodDisruptionBudget>),
    BudgetGone(String, String),
    /// An object as a fresh list shows it: that is so, whatever was seen before. After a restore from a backup
    /// versions go back, and what was deleted is there again.
    Listed(Box<Change>),
    /// The first full list of one kind is in.
    Synced(&'static str),
}

/// A class and what the cloud says about it.
#[derive(Clone, Debug)]
pub struct ClassState {
    /// The class.
    pub object: Arc<EC2NodeClass>,
    /// What it may launch, with offerings; `None` until asked for the first time.
    pub types: Option<Arc<[InstanceType]>>,
    /// Why the types couldn't be had, when they were last asked for.
    pub types_error: Option<String>,
}

/// What the cloud answered to a list, and when it was asked.
#[derive(Clone, Debug)]
pub struct MachineList {
    /// When the question was sent.
    pub asked: Now,
    /// The machines, by id.
    pub machines: BTreeMap<String, CloudMachine>,
}

/// The picture.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// What the scheduler plans on.
    pub cluster: Cluster,
    /// Claims by name.
    pub claims: BTreeMap<String, Arc<NodeClaim>>,
    /// Pools by name.
    pub pools: BTreeMap<String, Arc<TenantPool>>,
    /// Classes by name.
    pub classes: BTreeMap<String, ClassState>,
    /// Tenants by name.
    pub tenants: BTreeMap<String, Arc<Tenant>>,
    /// Nodes by name.
    pub nodes: BTreeMap<String, NodeView>,
    /// Pods that haven't ended.
    pub pods: BTreeMap<PodKey, PodView>,
    /// Pods that wait for a place.
    pub demand: BTreeSet<PodKey>,
    /// PodDisruptionBudgets by namespace, then name.
    pub budgets: BTreeMap<String, BTreeMap<String, BudgetView>>,
    /// Machines as the cloud last listed them, and the list before that.
    pub machines: (Option<MachineList>, Option<MachineList>),
    /// Objects that couldn't be read, by what they are, and why.
    pub problems: BTreeMap<String, InputError>,
    /// Grows with whatever could change a plan.
    pub plan_version: u64,
    /// Grows with every pod that begins to wait for a place.
    pub arrivals: u64,
    pods_on: BTreeMap<Box<str>, BTreeSet<PodKey>>,
    claim_of_node: BTreeMap<String, String>,
    raw_nodes: BTreeMap<String, Box<Node>>,
    attachments: BTreeMap<String, String>,
    nominations: BTreeMap<PodKey, Nomination>,
    nominated_to: BTreeMap<String, BTreeSet<PodKey>>,
    synced: BTreeSet<&'static str>,
    /// Label sets in use, each held once.
    labels: BTreeSet<Arc<BTreeMap<String, String>>>,
    graves: Graves,
    listing: bool,
}

/// A pod's place on a claim that a plan made for it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Nomination {
    claim: String,
    pod_uid: Box<str>,
}

impl Snapshot {
    /// Takes in `change`; what it says about objects that were deleted before is ignored.
    pub fn observe(&mut self, change: Change, now: Now) {
        match change {
            Change::Pod(pod) => self.pod(&pod),
            Change::PodGone(key) => self.pod_gone(&key, now),
            Change::Node(node) => self.node(node),
            Change::NodeGone(name) => self.node_gone(&name, now),
            Change::Claim(claim) => self.claim(*claim),
            Change::ClaimGone(name) => self.claim_gone(&name, now),
            Change::Pool(pool) => self.pool(*pool),
            Change::PoolGone(name) => {
                self.pools.remove(&name);
                self.cluster.remove_pool(&name);
                self.plan_version += 1;
            }
            Change::Class(class) => self.class(*class),
            Change::ClassGone(name) => {
                self.classes.remove(&name);
                self.feed_pools_of(&name);
            }
            Change::Tenant(tenant) => self.tenant(*tenant),
            Change::TenantGone(name) => {
                self.tenants.remove(&name);
                self.cluster.remove_tenant_limits(&name);
                self.plan_version += 1;
            }
            Change::Attachment(attachment) => {
                self.attachments.insert(attachment.name_any(), attachment.spec.node_name);
            }
            Change::AttachmentGone(name) => {
                self.attachments.remove(&name);
            }
            Change::Budget(budget) => {
                let view = BudgetView::of(&budget);
                let (namespace, name) = (budget.namespace().unwrap_or_default(), budget.name_any());
                self.budgets.entry(namespace).or_default().insert(name, view);
            }
            Change::BudgetGone(namespace, name) => {
                if let Some(budgets) = self.budgets.get_mut(&namespace) {
                    budgets.remove(&name);
                }
            }
            Change::Listed(change) => {
                self.listing = true;
                self.observe(*change, now);
                self.listing = false;
            }
            Change::Synced(kind) => {
                self.synced.insert(kind);
                self.plan_version += 1;
            }
            other => self.placement_input(other),
        }
    }

    /// Takes in the object that a call was answered with.
    pub fn answered(&mut self, answer: Answer, now: Now) {
        match answer {
            Answer::Claim(o) => self.observe(Change::Claim(o), now),
            Answer::Pool(o) => self.observe(Change::Pool(o), now),
            Answer::Class(o) => self.observe(Change::Class(o), now),
            Answer::Node(o) => self.observe(Change::Node(o), now),
            Answer::Pod(o) => self.observe(Change::Pod(o), now),
            Answer::Done => {}
        }
    }

    /// True once the first list of every kind in `kinds` is in.
    #[must_use]
    pub fn is_synced(&self, kinds: &[&'static str]) -> bool {
        kinds.iter().all(|kind| self.synced.contains(kind))
    }

    /// Pods on a node.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = (&PodKey, &PodView)> {
        self.pods_on.get(node).into_iter().flatten().filter_map(|key| Some((key, self.pods.get(key)?)))
    }

    /// The claim whose machine has this node name.
    #[must_use]
    pub fn claim_of_node(&self, node: &str) -> Option<&Arc<NodeClaim>> {
        self.claims.get(self.claim_of_node.get(node)?)
    }

    /// The node of a claim: the one with the name that the cloud gives the claim's machine, if it also says
    /// that it is that machine.
    #[must_use]
    pub fn node_of(&self, claim: &NodeClaim) -> Option<(&str, &NodeView)> {
        let status = claim.status.as_ref()?;
        let (name, node) = self.nodes.get_key_value(status.node_name.as_deref()?)?;
        (node.provider_id.as_deref() == Some(status.provider_id.as_deref()?)).then_some((name.as_str(), node))
    }

    /// Volumes still attached to a node.
    #[must_use]
    pub fn attachments_on(&self, node: &str) -> usize {
        self.attachments.values().filter(|n| *n == node).count()
    }

    /// The one tenant that may use a pool, if there is exactly one.
    #[must_use]
    pub fn tenant_of_pool(&self, pool: &str) -> Option<&str> {
        let mut owners = self.tenants.values().filter(|t| t.spec.pools.iter().any(|p| p == pool));
        let first = owners.next()?;
        if owners.next().is_some() { None } else { first.metadata.name.as_deref() }
    }

    /// Notes that a plan means `pod` for `claim`.
    pub fn nominate(&mut self, pod: &PodKey, claim: &str) {
        let Some(view) = self.pods.get(pod) else { return };
        let nomination = Nomination { claim: claim.to_owned(), pod_uid: view.uid.clone() };
        self.drop_nomination(pod);
        self.nominations.insert(pod.clone(), nomination);
        self.nominated_to.entry(claim.to_owned()).or_default().insert(pod.clone());
        self.tell_nomination(pod, claim);
    }

    /// Forgets what was planned for `claim`: its pods are demand again.
    pub fn release_nominations(&mut self, claim: &str) {
        for pod in self.nominated_to.get(claim).cloned().unwrap_or_default() {
            self.drop_nomination(&pod);
            self.arrivals += u64::from(self.demand.contains(&pod));
        }
    }

    /// Pods that a plan means for `claim` and that haven't got a node.
    pub fn nominated_to(&self, claim: &str) -> impl Iterator<Item = (&PodKey, &PodView)> {
        self.nominated_to.get(claim).into_iter().flatten().filter_map(|key| Some((key, self.pods.get(key)?)))
    }

    /// Claims that planned pods wait for.
    #[must_use]
    pub fn nominated_claims(&self) -> BTreeSet<String> {
        self.nominated_to.keys().cloned().collect()
    }

    /// Pods that wait for a place and aren't meant for any coming machine.
    pub fn unplanned(&self) -> impl Iterator<Item = &PodKey> {
        self.demand.iter().filter(|key| !self.nominations.contains_key(*key))
    }

    /// Keeps what the cloud listed.
    pub fn listed(&mut self, list: MachineList) {
        self.machines = (Some(list), self.machines.0.take());
    }

    /// Keeps what the cloud offers to a class.
    pub fn offers(&mut self, class: &str, types: Result<Arc<[InstanceType]>, String>) {
        let Some(state) = self.classes.get_mut(class) else { return };
        match types {
            Ok(types) => {
                let same =
                    state.types.as_ref().is_some_and(|old| Arc::ptr_eq(old, &types) || **old == *types);
                state.types_error = None;
                if !same {
                    state.types = Some(types);
                    self.feed_pools_of(class);
                }
            }
            Err(why) => state.types_error = Some(why),
        }
    }

    fn pod(&mut self, pod: &Pod) {
        let key = PodKey::new(pod.namespace().as_deref().unwrap_or_default(), &pod.name_any());
        let mut view = PodView::of(pod);
        if self.knows_better(&view.uid, self.pods.get(&key).map(|old| old.version), view.version) {
            return;
        }
        if view.is.finished {
            self.forget_pod(&key);
            return;
        }
        self.share_labels(&mut view);
        let read = self.cluster.upsert_pod(pod);
        self.judge("Pod", &key.to_string(), read);
        let before = self.pods.get(&key).map(|p| (p.is.demand, p.node.clone(), p.uid.clone()));
        if before.as_ref().is_none_or(|(_, node, _)| *node != view.node) {
            if let Some((_, Some(node), _)) = &before {
                self.unplace(node, &key);
            }
            if let Some(node) = &view.node {
                self.pods_on.entry(node.clone()).or_default().insert(key.clone());
            }
        }
        let nomination_holds =
            view.is.demand && self.nominations.get(&key).is_some_and(|n| n.pod_uid == view.uid);
        if view.is.demand {
            self.demand.insert(key.clone());
        } else {
            self.demand.remove(&key);
        }
        if before != Some((view.is.demand, view.node.clone(), view.uid.clone())) {
            self.plan_version += 1;
            self.arrivals += u64::from(view.is.demand);
        }
        self.pods.insert(key.clone(), view);
        if let Some(nomination) = self.nominations.get(&key) {
            if nomination_holds {
                // The cluster read the pod anew; what is planned for it holds.
                let claim = nomination.claim.clone();
                self.tell_nomination(&key, &claim);
            } else {
                self.drop_nomination(&key);
            }
        }
    }

    fn share_labels(&mut self, view: &mut PodView) {
        if let Some(held) = self.labels.get(&view.labels) {
            view.labels = Arc::clone(held);
            return;
        }
        // Sets that nothing uses any more go before they outnumber the pods.
        if self.labels.len() > self.pods.len() + 100 {
            self.labels.retain(|held| Arc::strong_count(held) > 1);
        }
        self.labels.insert(Arc::clone(&view.labels));
    }

    /// True if what is held of an object is newer than `new`, or it was seen deleted.
    fn knows_better(&self, uid: &str, held: Option<u64>, new: u64) -> bool {
        !self.listing && (self.graves.holds(uid) || held.is_some_and(|held| is_stale(held, new)))
    }

    fn pod_gone(&mut self, key: &PodKey, now: Now) {
        if let Some(view) = self.pods.get(key) {
            self.graves.bury(view.uid.clone(), now);
        }
        self.forget_pod(key);
    }

    fn forget_pod(&mut self, key: &PodKey) {
        self.drop_nomination(key);
        self.cluster.remove_pod(&key.namespace, &key.name);
        self.problems.remove(&format!("Pod {key}"));
        self.demand.remove(key);
        if let Some(PodView { node: Some(node), .. }) = self.pods.remove(key) {
            self.unplace(&node, key);
        }
        self.plan_version += 1;
    }

    fn unplace(&mut self, node: &str, key: &PodKey) {
        if let Some(pods) = self.pods_on.get_mut(node) {
            pods.remove(key);
            if pods.is_empty() {
                self.pods_on.remove(node);
            }
        }
    }

    fn node(&mut self, node: Box<Node>) {
        let name = node.name_any();
        let view = NodeView::of(&node);
        if self.knows_better(&view.uid, self.nodes.get(&name).map(|old| old.version), view.version) {
            return;
        }
        let planned_on = |v: &NodeView| {
            (v.labels.clone(), v.taints.clone(), v.unschedulable, v.allocatable.clone(), v.capacity.clone())
        };
        if self.nodes.get(&name).map(planned_on) != Some(planned_on(&view)) {
            self.plan_version += 1;
        }
        self.nodes.insert(name.clone(), view);
        self.raw_nodes.insert(name.clone(), node);
        self.feed_node(&name);
    }

    fn node_gone(&mut self, name: &str, now: Now) {
        if let Some(view) = self.nodes.remove(name) {
            self.graves.bury(view.uid, now);
        }
        self.raw_nodes.remove(name);
        self.cluster.remove_node(name);
        self.problems.remove(&format!("Node {name}"));
        self.plan_version += 1;
        if let Some(claim) = self.claim_of_node.get(name).cloned() {
            self.feed_claim(&claim);
        }
    }

    fn claim(&mut self, mut claim: NodeClaim) {
        claim.metadata.managed_fields = None;
        let name = claim.name_any();
        let new = version(claim.metadata.resource_version.as_deref());
        let old = self.claims.get(&name);
        let held = old.map(|old| version(old.metadata.resource_version.as_deref()));
        if self.knows_better(claim.metadata.uid.as_deref().unwrap_or_default(), held, new) {
            return;
        }
        let before = old.and_then(|c| c.status.as_ref()).and_then(|s| s.node_name.clone());
        let after = claim.status.as_ref().and_then(|s| s.node_name.clone());
        if let Some(gone) = before.filter(|b| Some(b) != after.as_ref()) {
            self.claim_of_node.remove(&gone);
        }
        if let Some(node) = after {
            self.claim_of_node.insert(node, name.clone());
        }
        self.claims.insert(name.clone(), Arc::new(claim));
        self.plan_version += 1;
        self.feed_claim(&name);
    }

    fn claim_gone(&mut self, name: &str, now: Now) {
        let Some(claim) = self.claims.remove(name) else { return };
        self.graves.bury(claim.metadata.uid.as_deref().unwrap_or_default().into(), now);
        self.cluster.remove_coming(name);
        self.release_nominations(name);
        self.nominated_to.remove(name);
        self.plan_version += 1;
        if let Some(node) = claim.status.as_ref().and_then(|s| s.node_name.as_deref()) {
            self.claim_of_node.remove(node);
            self.feed_node(node);
        }
    }

    fn pool(&mut self, mut pool: TenantPool) {
        pool.metadata.managed_fields = None;
        let name = pool.name_any();
        let new = version(pool.metadata.resource_version.as_deref());
        let old = self.pools.get(&name);
        if old.is_some_and(|old| {
            old.metadata.uid == pool.metadata.uid
                && !self.listing
                && is_stale(version(old.metadata.resource_version.as_deref()), new)
        }) {
            return;
        }
        let changed = old.is_none_or(|old| old.spec != pool.spec);
        self.pools.insert(name.clone(), Arc::new(pool));
        if changed {
            self.feed_pool(&name);
        }
    }

    fn class(&mut self, mut class: EC2NodeClass) {
        class.metadata.managed_fields = None;
        let name = class.name_any();
        let new = version(class.metadata.resource_version.as_deref());
        match self.classes.get_mut(&name) {
            Some(state)
                if state.object.metadata.uid == class.metadata.uid
                    && !self.listing
                    && is_stale(version(state.object.metadata.resource_version.as_deref()), new) => {}
            Some(state) => {
                state.object = Arc::new(class);
                self.plan_version += 1;
            }
            None => {
                let state = ClassState { object: Arc::new(class), types: None, types_error: None };
                self.classes.insert(name.clone(), state);
                self.feed_pools_of(&name);
            }
        }
    }

    fn tenant(&mut self, mut tenant: Tenant) {
        tenant.metadata.managed_fields = None;
        let name = tenant.name_any();
        if self.tenants.get(&name).is_some_and(|old| old.spec == tenant.spec) {
            return;
        }
        match croft_api::convert::scheduler::tenant_limits(&tenant) {
            Ok(limits) => {
                self.problems.remove(&format!("Tenant {name}"));
                self.cluster.upsert_tenant_limits(limits);
            }
            Err(problem) => {
                // Limits that can't be read must not count as none: nothing is launched until they can be.
                let spec = &tenant.spec;
                let zero = [(croft_scheduler::LIMIT_NODES.to_owned(), croft_scheduler::Quantity::ZERO)];
                self.cluster.upsert_tenant_limits(TenantLimits {
                    tenant: name.clone(),
                    pools: spec.pools.clone(),
                    limits: zero.into(),
                });
                self.problems.insert(format!("Tenant {name}"), problem);
            }
        }
        self.tenants.insert(name, Arc::new(tenant));
        self.plan_version += 1;
    }

    fn placement_input(&mut self, change: Change) {
        self.plan_version += 1;
        match change {
            Change::Namespace(o) => self.cluster.upsert_namespace(&o),
            Change::NamespaceGone(name) => self.cluster.remove_namespace(&name),
            Change::DaemonSet(o) => {
                let read = self.cluster.upsert_daemonset(&o);
                self.judge("DaemonSet", &full_name(&*o), read);
            }
            Change::DaemonSetGone(namespace, name) => self.cluster.remove_daemonset(&namespace, &name),
            Change::Pvc(o) => {
                let read = self.cluster.upsert_pvc(&o);
                self.judge("PersistentVolumeClaim", &full_name(&*o), read);
            }
            Change::PvcGone(namespace, name) => self.cluster.remove_pvc(&namespace, &name),
            Change::Pv(o) => {
                let read = self.cluster.upsert_pv(&o);
                self.judge("PersistentVolume", &full_name(&*o), read);
            }
            Change::PvGone(name) => self.cluster.remove_pv(&name),
            Change::StorageClass(o) => {
                let read = self.cluster.upsert_storage_class(&o);
                self.judge("StorageClass", &full_name(&*o), read);
            }
            Change::StorageClassGone(name) => self.cluster.remove_storage_class(&name),
            Change::CsiNode(o) => {
                let read = self.cluster.upsert_csi_node(&o);
                self.judge("CSINode", &full_name(&*o), read);
            }
            Change::CsiNodeGone(name) => self.cluster.remove_csi_node(&name),
            _ => {}
        }
    }

    fn judge(&mut self, kind: &str, name: &str, read: Result<(), InputError>) {
        let key = format!("{kind} {name}");
        match read {
            Ok(()) => {
                self.problems.remove(&key);
            }
            Err(problem) => {
                if self.problems.get(&key) != Some(&problem) {
                    tracing::warn!(object = key, %problem, "can't be planned with");
                    self.problems.insert(key, problem);
                }
            }
        }
    }

    fn drop_nomination(&mut self, pod: &PodKey) {
        if let Some(nomination) = self.nominations.remove(pod) {
            if let Some(pods) = self.nominated_to.get_mut(&nomination.claim) {
                pods.remove(pod);
                if pods.is_empty() {
                    self.nominated_to.remove(&nomination.claim);
                }
            }
            self.cluster.release(pod);
            self.plan_version += 1;
        }
    }
}

/// Answers and watch events of one object come in any order: the newer version wins. Versions are absent
/// only in tests of pure logic.
fn is_stale(held: u64, new: u64) -> bool {
    new != 0 && new <= held
}

fn full_name<K: ResourceExt>(object: &K) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}
