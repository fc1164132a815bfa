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

mod change;
mod coming;
mod graves;
mod headroom;
mod held;
mod nodes;
mod pods;
mod seen;
mod touched;
mod unclaimed;
mod unread;
mod views;
mod wanted;

pub use change::Change;
pub use coming::future_node;
pub(crate) use coming::{is, is_accepted};
pub use headroom::Spare;
pub use held::Held;
pub use seen::Milestones;
pub use touched::price;
pub(crate) use views::version;
pub use views::{BudgetView, NodeView, PodTraits, PodView};

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::{CroftConfig, EC2NodeClass, NodeClaim, Tenant, TenantPool};
use croft_cloud::{CloudMachine, Shortage};
use croft_scheduler::{Cluster, InputError, InstanceType, PodKey, Price};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use crate::{
    seam::{Answer, Target},
    solver::Solver,
    time::Now,
};
use graves::Graves;
use headroom::Headroom;
use pods::Nomination;
use touched::Touched;
use unclaimed::Unclaimed;
pub use unread::Unread;

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
    /// What makes plans of it.
    pub solver: Solver,
    /// Claims by name.
    pub claims: BTreeMap<String, Arc<NodeClaim>>,
    /// Pools by name.
    pub pools: BTreeMap<String, Arc<TenantPool>>,
    /// Classes by name.
    pub classes: BTreeMap<String, ClassState>,
    /// Tenants by name.
    pub tenants: BTreeMap<String, Arc<Tenant>>,
    /// The CroftConfig, if there is one.
    pub config: Option<Arc<CroftConfig>>,
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
    /// What the cloud has set aside for want of capacity, as it was last asked, and how often that has changed.
    pub shortages: (Vec<Shortage>, u64),
    /// Objects that couldn't be read, by what they are, and why.
    pub problems: BTreeMap<String, InputError>,
    /// Objects of Croft's, by kind and name, whose newest version can't be read.
    pub unread: BTreeMap<(&'static str, String), Unread>,
    /// Grows with whatever could change a plan.
    pub plan_version: u64,
    /// Grows with every pod that begins to wait for a place.
    pub arrivals: u64,
    /// Grows with everything that is shown.
    pub changes: u64,
    /// Grows when a claim comes or goes, or gets another machine.
    pub claim_changes: u64,
    /// What the machines of all claims cost.
    pub cost: Price,
    /// Since when a CroftConfig whose limits are in force is gone.
    config_absent_since: Option<Duration>,
    has_cluster_limits: bool,
    restless: BTreeSet<String>,
    milestones: BTreeMap<String, Milestones>,
    listed_since: BTreeMap<String, Duration>,
    touched: Touched,
    /// Pools by the labels that their nodes carry.
    labelled: BTreeMap<(String, String), BTreeSet<String>>,
    /// Pools that do not count, since an older one has their label, and which one that is.
    collisions: BTreeMap<String, String>,
    claims_of_pool: BTreeMap<String, BTreeSet<String>>,
    nodes_of_pool: BTreeMap<String, BTreeSet<String>>,
    /// Claims that were made to replace others.
    replacements: BTreeSet<String>,
    pods_on: BTreeMap<Box<str>, BTreeSet<PodKey>>,
    /// How many pods each owner has.
    replicas: BTreeMap<Box<str>, usize>,
    /// Claims by the name of their machine's node: an address that was free again may give two the same.
    claims_of_node: BTreeMap<String, BTreeSet<String>>,
    raw_nodes: BTreeMap<String, Box<Node>>,
    attachments: BTreeMap<String, String>,
    nominations: BTreeMap<PodKey, Nomination>,
    unclaimed: Unclaimed,
    held: BTreeMap<String, Held>,
    headroom: Headroom,
    nominated_to: BTreeMap<String, BTreeSet<PodKey>>,
    synced: BTreeSet<&'static str>,
    /// Label sets in use, each held once.
    labels: BTreeSet<Arc<BTreeMap<String, String>>>,
    graves: Graves,
    listing: bool,
    answering: bool,
}

impl Snapshot {
    /// Takes in `change`; what it says about objects that were deleted before is ignored.
    pub fn observe(&mut self, change: Change, now: Now) {
        self.changes += 1;
        self.forget_unread(&change);
        match change {
            Change::Unread(newest, flaw) => self.unread(*newest, *flaw, now),
            Change::Pod(pod) => self.pod(&pod, now),
            Change::PodGone(key) => self.pod_gone(&key, now),
            Change::Node(node) => self.node(node, now),
            Change::NodeGone(name) => self.node_gone(&name, now),
            Change::Claim(claim) => self.claim(*claim, now),
            Change::ClaimGone(name) => self.claim_gone(&name, now),
            Change::Pool(pool) => self.pool(*pool),
            Change::PoolGone(name) => {
                let old = self.pools.remove(&name);
                self.feed_headroom(&name);
                self.cluster.remove_pool(&name);
                self.forget_touched(&name);
                self.plan_version += 1;
                self.problems.remove(&format!("TenantPool {name}"));
                self.relabel(&name, old.as_deref(), None);
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
                self.touch_all();
            }
            Change::Config(config) => self.config(*config),
            Change::ConfigGone(name) => self.config_gone(&name, now),
            Change::Attachment(attachment) => {
                self.attachments.insert(attachment.name_any(), attachment.spec.node_name);
            }
            Change::AttachmentGone(name) => {
                self.attachments.remove(&name);
            }
            Change::Budget(budget) => {
                let view = BudgetView::of(&budget);
                self.budget(budget.namespace().unwrap_or_default(), budget.name_any(), Some(view));
            }
            Change::BudgetGone(namespace, name) => self.budget(namespace, name, None),
            Change::Listed(change) => {
                let listed = match &*change {
                    Change::Unread(newest, _) => newest,
                    listed => listed,
                };
                let uid = match listed {
                    Change::Pod(o) => o.metadata.uid.as_deref(),
                    Change::Node(o) => o.metadata.uid.as_deref(),
                    Change::Claim(o) => o.metadata.uid.as_deref(),
                    _ => None,
                };
                self.graves.exhume(uid.unwrap_or_default());
                self.listing = true;
                self.observe(*change, now);
                self.listing = false;
            }
            Change::Gone(uid, change) => self.gone(uid, *change, now),
            Change::Synced(kind) => {
                self.synced.insert(kind);
                self.plan_version += 1;
            }
            other => self.placement_input(other),
        }
    }

    /// Takes in the object that a call was answered with.
    pub fn answered(&mut self, answer: Answer, now: Now) {
        self.answering = true;
        match answer {
            Answer::Claim(o) => self.observe(Change::Claim(o), now),
            Answer::Pool(o) => self.observe(Change::Pool(o), now),
            Answer::Class(o) => self.observe(Change::Class(o), now),
            Answer::Node(o) => self.observe(Change::Node(o), now),
            Answer::Pod(o) => self.observe(Change::Pod(o), now),
            Answer::Config(o) => self.observe(Change::Config(o), now),
            Answer::Done => {}
        }
        self.answering = false;
    }

    /// Takes in that the API server has no such object: it was deleted, whether or not a watch has shown it.
    pub fn not_found(&mut self, target: Target, uid: &str, now: Now) {
        let change = match target {
            Target::Claim(name) => Change::ClaimGone(name),
            Target::Pool(name) => Change::PoolGone(name),
            Target::Class(name) => Change::ClassGone(name),
            Target::Config(name) => Change::ConfigGone(name),
            Target::Node(name) => Change::NodeGone(name),
            Target::Pod(namespace, name) => Change::PodGone(PodKey::new(&namespace, &name)),
            Target::Event(_) => return,
        };
        self.gone(uid.into(), change, now);
    }

    fn gone(&mut self, uid: Box<str>, change: Change, now: Now) {
        let held = match &change {
            Change::PodGone(key) => self.pods.get(key).map(|o| &*o.uid),
            Change::NodeGone(name) => self.nodes.get(name).map(|o| &*o.uid),
            Change::ClaimGone(name) => self.claims.get(name).and_then(|o| o.metadata.uid.as_deref()),
            Change::PoolGone(name) => self.pools.get(name).and_then(|o| o.metadata.uid.as_deref()),
            Change::ClassGone(name) => self.classes.get(name).and_then(|c| c.object.metadata.uid.as_deref()),
            Change::TenantGone(name) => self.tenants.get(name).and_then(|o| o.metadata.uid.as_deref()),
            Change::ConfigGone(_) => self.config.as_ref().and_then(|o| o.metadata.uid.as_deref()),
            // Only watches tell of the others, so that their order holds.
            _ => Some(&*uid),
        };
        let is_held = held == Some(&*uid);
        self.graves.bury(uid, now);
        if is_held {
            self.observe(change, now);
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

    /// Claims that were made to replace others, by name.
    pub fn replacements(&self) -> impl Iterator<Item = (&String, &Arc<NodeClaim>)> {
        self.replacements.iter().filter_map(|name| self.claims.get_key_value(name))
    }

    /// How many pods an owner has; nobody's are each alone.
    #[must_use]
    pub fn replicas(&self, owner: &str) -> usize {
        self.replicas.get(owner).copied().unwrap_or(1)
    }

    /// The claim whose machine the node is, or else one whose machine has the node's name.
    #[must_use]
    pub fn claim_of_node(&self, node: &str) -> Option<&Arc<NodeClaim>> {
        let mut claims = self.claims_of_node.get(node)?.iter().filter_map(|name| self.claims.get(name));
        let first = claims.next()?;
        if self.node_of(first).is_some() {
            return Some(first);
        }
        Some(claims.find(|claim| self.node_of(claim).is_some()).unwrap_or(first))
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

    /// True if some limit counts the nodes of both pools together.
    #[must_use]
    pub fn share_limit(&self, pool: &str, other: &str) -> bool {
        let names = |tenant: &Tenant, pool: &str| tenant.spec.pools.iter().any(|name| name == pool);
        self.has_cluster_limits
            || self.tenants.values().any(|t| !t.spec.limits.is_empty() && names(t, pool) && names(t, other))
    }

    /// Keeps what the cloud listed.
    pub fn listed(&mut self, list: MachineList) {
        self.listed_since.retain(|id, _| list.machines.contains_key(id));
        for id in list.machines.keys() {
            self.listed_since.entry(id.clone()).or_insert(list.asked.mono);
        }
        self.machines = (Some(list), self.machines.0.take());
        self.touch_claims();
    }

    /// Keeps what the cloud offers to a class.
    pub fn offers(&mut self, class: &str, types: Result<Arc<[InstanceType]>, String>) {
        let Some(state) = self.classes.get_mut(class) else { return };
        self.changes += 1;
        let error = match types {
            Ok(types) => {
                let same =
                    state.types.as_ref().is_some_and(|old| Arc::ptr_eq(old, &types) || **old == *types);
                if !same {
                    state.types = Some(types);
                    self.feed_pools_of(class);
                }
                None
            }
            Err(why) => Some(why),
        };
        if let Some(state) = self.classes.get_mut(class).filter(|state| state.types_error != error) {
            state.types_error = error;
            self.touch_all();
        }
    }

    /// True if what is held of an object, by uid and version, is newer than `new`, or it was seen deleted. What a
    /// watch shows under the name of another object has taken its place, also where versions have gone back.
    fn knows_better(&self, uid: &str, held: Option<(&str, u64)>, new: u64) -> bool {
        !self.listing
            && (self.graves.holds(uid)
                || held
                    .is_some_and(|(held, version)| (held == uid || self.answering) && is_stale(version, new)))
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
