//! The facts of which tenants are kept.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
    time::Duration,
};

use croft_api::{
    CroftConfig, CroftConfigSpec, NodeClaim, Tenant, TenantPool, condition::ACCEPTED, config::SINGLETON,
    convert::policy as convert,
};
use croft_policy::{
    Index, NamespaceTenancy, Tenants, Violation,
    audit::{self, Finding},
    definitions::{MIRROR_ANNOTATION, POOLS_ANNOTATION, SHARED_ANNOTATION, TENANCY_LABEL, parameter::PREFIX},
    model::CONFIG_ABSENCE,
    node::{NodeRepair, own_pool, repair},
    replica_status::ReplicaStatus,
};
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, DaemonSetSpec},
        core::v1::{Namespace, Node, Pod, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::ResourceExt;
use serde_json::Value;

use super::{
    daemonsets,
    evictions::{Absences, Evicted},
    parameters::Parameters,
    unread::{ClassFacts, Name, Wrong},
};
use crate::snapshot::Change;

/// Something new, beside what the engine's watches say.
#[derive(Clone, Debug)]
pub enum News {
    /// A webhook replica by the name of its Lease; `None` if it is gone.
    Replica(String, Option<ReplicaStatus>),
    /// A policy or a binding by kind and name; `None` if it is gone.
    Policy(String, String, Option<Box<Value>>),
    /// The API server was asked whether the parameters of this revision are in force.
    Probed {
        /// The revision.
        revision: String,
        /// The answer.
        in_force: bool,
    },
    /// The first full list of one of these is in.
    Synced(&'static str),
}

/// What must be listed once before anything is decided.
const NEEDED: [&str; 11] = [
    "Pod",
    "Node",
    "NodeClaim",
    "TenantPool",
    "Tenant",
    "DaemonSet",
    "Namespace",
    "CroftConfig",
    "Replica",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// [`TENANCY_LABEL`].
    pub tenancy: Option<String>,
    /// [`POOLS_ANNOTATION`].
    pub pools: Option<String>,
    /// [`SHARED_ANNOTATION`].
    pub shared: Option<String>,
    /// It is being deleted.
    pub deleting: bool,
}

/// A pod that is not finished.
#[derive(Clone, Debug, PartialEq)]
pub struct PodFacts {
    /// Its uid.
    pub uid: String,
    /// The node that it is bound to.
    pub node: Option<String>,
    /// Its controller.
    pub owner: Option<Owner>,
    /// A kubelet's static pod.
    pub mirror: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// What decides where it runs, as long as that isn't decided.
    pub waiting: Option<Arc<Pod>>,
}

/// The controller of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// API group of its kind.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl Owner {
    fn of(reference: &OwnerReference) -> Self {
        let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
        Self {
            group: group.to_owned(),
            kind: reference.kind.clone(),
            name: reference.name.clone(),
            uid: reference.uid.clone(),
        }
    }
}

/// A replica of the webhook.
#[derive(Clone, Debug, Default)]
pub struct Replica {
    /// What it says of itself.
    pub report: ReplicaStatus,
    /// When it was last heard of, on the monotonic clock.
    pub heard: Duration,
}

/// Namespace and name.
pub type Key = (String, String);

/// The facts.
#[derive(Debug)]
pub struct State {
    index: Index,
    snapshot: Option<Tenants>,
    /// Settings.
    pub config: CroftConfigSpec,
    /// Since when there is no CroftConfig, where there was one: `config` is the last one until that has lasted.
    config_absent: Option<Duration>,
    config_is_gone: bool,
    /// Tenants by name.
    pub tenants: BTreeMap<String, Arc<Tenant>>,
    /// Pools by name.
    pub pools: BTreeMap<String, Arc<TenantPool>>,
    /// Namespaces by name.
    pub namespaces: BTreeMap<String, NamespaceFacts>,
    /// For each node, the pool with provisioner None or Karpenter whose own label it has.
    pub nodes: BTreeMap<String, Option<String>>,
    /// Pool and price, in millionths of a dollar per hour, of each claim.
    pub claims: BTreeMap<String, (String, u64)>,
    /// Pods.
    pub pods: BTreeMap<Key, PodFacts>,
    /// What the waiting pods of each owner share.
    waiting_of: BTreeMap<String, Weak<Pod>>,
    /// DaemonSets, cut down to what is planned.
    pub daemonsets: BTreeMap<Key, Arc<DaemonSet>>,
    /// Their versions, which change with every word on their status.
    pub(super) daemonset_versions: BTreeMap<Key, String>,
    /// Those whose pods are being replaced.
    pub(super) daemonsets_rolling: BTreeSet<Key>,
    /// When those were last written that were not as they should be.
    pub(super) daemonsets_written: BTreeMap<Key, Duration>,
    /// How often each rule is broken, as of the last decision.
    pub violations: BTreeMap<Violation, i64>,
    /// What is wrong with nodes, by node.
    node_findings: BTreeMap<String, Vec<Finding>>,
    /// What is to be written on nodes that Croft doesn't make, by node.
    pub node_upkeep: BTreeMap<String, NodeRepair>,
    /// Nodes whose label of a pool was removed, and the pools, until that is told.
    pub left_pools: BTreeMap<String, String>,
    /// Tenants or pools are others than when the nodes were looked at.
    nodes_stale: bool,
    /// EC2NodeClasses by name.
    pub classes: BTreeMap<String, ClassFacts>,
    /// What is wrong with the newest versions of Croft's objects, by kind and name.
    pub(super) wrong: BTreeMap<Name, Wrong>,
    /// Replicas of the webhook.
    pub replicas: BTreeMap<String, Replica>,
    /// Policies and bindings by kind and name.
    pub policies: BTreeMap<Key, Value>,
    /// What the policies read.
    pub parameters: Parameters,
    /// Tenants that are missing, perhaps for a moment.
    pub(super) absences: Absences,
    /// Pods that were evicted as misplaced.
    pub(super) evicted: Evicted,
    missing: Vec<&'static str>,
}

impl State {
    /// Nothing is known yet of the cluster into whose `namespace` Croft is installed.
    #[must_use]
    pub fn new(namespace: &str) -> Self {
        let config = CroftConfigSpec::default();
        let mut index = Index::new();
        index.set_config(convert::config(&config, namespace));
        Self {
            index,
            snapshot: None,
            config,
            config_absent: None,
            config_is_gone: false,
            tenants: BTreeMap::new(),
            pools: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            nodes: BTreeMap::new(),
            claims: BTreeMap::new(),
            pods: BTreeMap::new(),
            waiting_of: BTreeMap::new(),
            daemonsets: BTreeMap::new(),
            daemonset_versions: BTreeMap::new(),
            daemonsets_rolling: BTreeSet::new(),
            daemonsets_written: BTreeMap::new(),
            violations: BTreeMap::new(),
            node_findings: BTreeMap::new(),
            node_upkeep: BTreeMap::new(),
            left_pools: BTreeMap::new(),
            nodes_stale: true,
            classes: BTreeMap::new(),
            wrong: BTreeMap::new(),
            replicas: BTreeMap::new(),
            policies: BTreeMap::new(),
            parameters: Parameters { namespace: namespace.to_owned(), ..Parameters::default() },
            absences: Absences::default(),
            evicted: Evicted::default(),
            missing: NEEDED.to_vec(),
        }
    }

    /// True once every first list is in.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Tenants and what is theirs, as admission sees it.
    pub fn view(&mut self) -> Tenants {
        self.snapshot.get_or_insert_with(|| self.index.snapshot()).clone()
    }

    /// What is wrong with nodes.
    pub fn node_findings(&self) -> impl Iterator<Item = &Finding> {
        self.node_findings.values().flatten()
    }

    /// The namespaces of a tenant.
    fn namespaces_of(&mut self, tenant: &str) -> BTreeSet<String> {
        let view = self.view();
        let is_own = |namespace: &&String| match view.tenancy(namespace) {
            NamespaceTenancy::Tenant { tenant: owner, .. } => *owner.name == *tenant,
            _ => false,
        };
        self.namespaces.keys().filter(is_own).cloned().collect()
    }

    /// Looks at every node again if tenants, pools or settings have changed since.
    pub fn refresh_nodes(&mut self) {
        if !std::mem::take(&mut self.nodes_stale) {
            return;
        }
        let view = self.view();
        self.node_findings.clear();
        self.node_upkeep.clear();
        let nodes: Vec<_> = self.index.nodes().collect();
        for node in nodes {
            self.look_at(&view, &node);
            // Nodes may be listed before their pools: without this, such a node would leave its pool unnoticed.
            let own = own_pool(view.declarations(), &node).map(|pool| pool.name.to_string());
            self.nodes.insert(node.name, own);
        }
    }

    /// Compares a node with what its pool's nodes are. True if that says something new.
    fn look_at(&mut self, view: &Tenants, node: &croft_policy::Node) -> bool {
        let findings = audit::node(view, node);
        let found = if findings.is_empty() {
            self.node_findings.remove(&node.name).is_some()
        } else {
            self.node_findings.insert(node.name.clone(), findings.clone()) != Some(findings)
        };
        match repair(view.declarations(), node) {
            Some(upkeep) => {
                self.node_upkeep.insert(node.name.clone(), upkeep.clone()) != Some(upkeep) || found
            }
            None => self.node_upkeep.remove(&node.name).is_some() || found,
        }
    }

    pub(super) fn indexed(&mut self, change: impl FnOnce(&mut Index)) {
        change(&mut self.index);
        self.snapshot = None;
        self.nodes_stale = true;
    }

    /// Takes in a change of the engine's watches. True if something that counts is new.
    pub fn observe(&mut self, change: &Change) -> bool {
        let mended = self.mended(change);
        let new = match change {
            Change::Unread(newest, flaw) => self.unread(newest, flaw),
            Change::Tenant(tenant) => {
                self.absences.end(&tenant.name_any());
                self.tenant(tenant)
            }
            Change::TenantGone(name) => {
                let own = self.namespaces_of(name);
                self.absences.begin(name, own);
                self.indexed(|index| index.remove_tenant(name));
                self.tenants.remove(name).is_some()
            }
            Change::Pool(pool) => {
                self.indexed(|index| index.upsert_pool(convert::pool(pool)));
                let said = |pool: &TenantPool| {
                    let conditions =
                        pool.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
                    conditions.iter().find(|c| c.type_ == ACCEPTED).cloned()
                };
                let new = self
                    .pools
                    .get(&pool.name_any())
                    .is_none_or(|old| old.spec != pool.spec || said(old) != said(pool));
                self.pools.insert(pool.name_any(), Arc::new((**pool).clone()));
                new
            }
            Change::PoolGone(name) => {
                self.indexed(|index| index.remove_pool(name));
                self.pools.remove(name).is_some()
            }
            Change::Namespace(namespace) => self.namespace(namespace),
            Change::NamespaceGone(name) => {
                self.index.remove_namespace(name);
                self.snapshot = None;
                if *name == self.parameters.namespace {
                    self.parameters.written = None;
                }
                self.namespaces.remove(name).is_some()
            }
            Change::Node(node) => self.node(node),
            Change::NodeGone(name) => {
                self.index.remove_node(name);
                self.snapshot = None;
                self.node_findings.remove(name);
                self.node_upkeep.remove(name);
                self.left_pools.remove(name);
                self.nodes.remove(name).is_some()
            }
            Change::Claim(claim) => self.observe_claim(claim),
            Change::ClaimGone(name) => self.claims.remove(name).is_some(),
            Change::Pod(pod) => self.pod(pod),
            Change::PodGone(key) => {
                self.pods.remove(&(key.namespace.to_string(), key.name.to_string())).is_some()
            }
            Change::DaemonSet(daemonset) => self.daemonset(daemonset),
            Change::DaemonSetGone(namespace, name) => {
                let key = (namespace.clone(), name.clone());
                self.daemonset_versions.remove(&key);
                self.daemonsets_rolling.remove(&key);
                self.daemonsets.remove(&key).is_some()
            }
            Change::Config(config) => self.observe_config(config),
            Change::ConfigGone(name) if name == SINGLETON => {
                self.config_is_gone = true;
                true
            }
            Change::Listed(change) | Change::Gone(_, change) => self.observe(change),
            Change::Synced(kind) => self.synced(kind),
            _ => false,
        };
        new || mended
    }

    pub(super) fn observe_config(&mut self, config: &CroftConfig) -> bool {
        if config.name_any() != SINGLETON {
            return false;
        }
        (self.config_is_gone, self.config_absent) = (false, None);
        self.config(config.spec.clone())
    }

    pub(super) fn observe_claim(&mut self, claim: &NodeClaim) -> bool {
        let price = claim.status.as_ref().and_then(|s| s.price_per_hour.as_deref());
        let facts = (claim.spec.pool.clone(), price.and_then(micros).unwrap_or_default());
        self.claims.insert(claim.name_any(), facts.clone()) != Some(facts)
    }

    /// Takes in what the watches of this module say, at `now` on the monotonic clock.
    pub fn learn(&mut self, news: News, now: Duration) -> bool {
        match news {
            News::Replica(name, Some(report)) => {
                let new = self.replicas.get(&name).is_none_or(|r| r.report != report);
                self.replicas.insert(name, Replica { report, heard: now });
                new
            }
            News::Replica(name, None) => self.replicas.remove(&name).is_some(),
            News::Policy(kind, name, Some(value)) => {
                self.policies.insert((kind, name), *value.clone()) != Some(*value)
            }
            News::Policy(kind, name, None) => self.policies.remove(&(kind, name)).is_some(),
            News::Probed { revision, in_force } => {
                if in_force {
                    self.parameters.confirm(&revision);
                }
                // What isn't in force yet is asked again.
                true
            }
            News::Synced(kind) => self.synced(kind),
        }
    }

    /// True if the settings are others than before; Croft's own status writes change nothing here.
    fn config(&mut self, config: CroftConfigSpec) -> bool {
        if self.config == config {
            return false;
        }
        let settings = convert::config(&config, &self.parameters.namespace);
        self.indexed(|index| index.set_config(settings));
        self.config = config;
        true
    }

    /// Returns to the defaults once the CroftConfig has been absent for long enough, counted from the first decision after
    /// it had gone.
    pub(super) fn confirm_absence(&mut self, now: Duration) {
        if self.config_is_gone && now.saturating_sub(*self.config_absent.get_or_insert(now)) >= CONFIG_ABSENCE
        {
            (self.config_is_gone, self.config_absent) = (false, None);
            self.config(CroftConfigSpec::default());
        }
    }

    fn synced(&mut self, kind: &str) -> bool {
        let before = self.missing.len();
        self.missing.retain(|missing| *missing != kind);
        self.missing.len() != before
    }

    fn tenant(&mut self, tenant: &Tenant) -> bool {
        // One with a selector that can't be read claims its names only; the API server refuses such a Tenant.
        let plain = || {
            let mut plain = tenant.clone();
            plain.spec.namespace_selector = None;
            convert::tenant(&plain)
        };
        if let Ok(converted) = convert::tenant(tenant).or_else(|_| plain()) {
            self.indexed(|index| index.upsert_tenant(converted));
        }
        let name = tenant.name_any();
        let new = self.tenants.get(&name).is_none_or(|old| {
            (&old.spec, &old.status, &old.metadata.uid)
                != (&tenant.spec, &tenant.status, &tenant.metadata.uid)
        });
        self.tenants.insert(name, Arc::new(tenant.clone()));
        new
    }

    fn namespace(&mut self, namespace: &Namespace) -> bool {
        self.index.upsert_namespace(&convert::namespace(&namespace.metadata));
        self.snapshot = None;
        let facts = NamespaceFacts {
            tenancy: namespace.labels().get(TENANCY_LABEL).cloned(),
            pools: namespace.annotations().get(POOLS_ANNOTATION).cloned(),
            shared: namespace.annotations().get(SHARED_ANNOTATION).cloned(),
            deleting: namespace.metadata.deletion_timestamp.is_some(),
        };
        if namespace.name_any() == self.parameters.namespace {
            let ours = namespace.annotations().iter().filter(|(name, _)| name.starts_with(PREFIX));
            self.parameters.written = Some(ours.map(|(name, text)| (name.clone(), text.clone())).collect());
        }
        self.namespaces.insert(namespace.name_any(), facts);
        // Other labels may decide whose it is.
        true
    }

    fn node(&mut self, node: &Node) -> bool {
        let converted = convert::node(node);
        let before = self.view();
        let was = before.node(&converted.name).cloned();
        self.index.upsert_node(&converted);
        let after = self.index.snapshot();
        let is = after.node(&converted.name).cloned();
        self.snapshot = Some(after);
        let view = self.view();
        let news = self.look_at(&view, &converted);
        let own = own_pool(view.declarations(), &converted).map(|pool| pool.name.to_string());
        let before = self.nodes.insert(converted.name.clone(), own.clone());
        if let (Some(Some(left)), None) = (&before, &own)
            && view.declarations().pool_id(left).is_some()
        {
            self.left_pools.insert(converted.name, left.clone());
        }
        before != Some(own) || was != is || news
    }

    fn pod(&mut self, pod: &Pod) -> bool {
        let key = (pod.namespace().unwrap_or_default(), pod.name_any());
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return self.pods.remove(&key).is_some();
        }
        let node = pod.spec.as_ref().and_then(|s| s.node_name.clone()).filter(|n| !n.is_empty());
        let owner = pod.owner_references().iter().find(|o| o.controller == Some(true));
        let waiting = node.is_none().then(|| self.share(owner.map(|o| o.uid.as_str()), slim(pod)));
        let facts = PodFacts {
            uid: pod.uid().unwrap_or_default(),
            owner: owner.map(Owner::of),
            mirror: pod.annotations().contains_key(MIRROR_ANNOTATION),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            waiting,
            node,
        };
        if self.pods.get(&key) == Some(&facts) {
            return false;
        }
        self.pods.insert(key, facts);
        true
    }

    /// One copy for all pods of an owner, as long as they are the same: thousands of them may wait at once.
    fn share(&mut self, owner: Option<&str>, pod: Pod) -> Arc<Pod> {
        let Some(owner) = owner else { return Arc::new(pod) };
        let held = self.waiting_of.get(owner).and_then(Weak::upgrade);
        if let Some(held) = held.filter(|held| **held == pod) {
            return held;
        }
        let new = Arc::new(pod);
        self.waiting_of.retain(|_, held| held.strong_count() > 0);
        self.waiting_of.insert(owner.to_owned(), Arc::downgrade(&new));
        new
    }

    fn daemonset(&mut self, daemonset: &DaemonSet) -> bool {
        let template = daemonset.spec.as_ref().map(|spec| &spec.template);
        let mut kept = DaemonSet::default();
        kept.metadata.uid.clone_from(&daemonset.metadata.uid);
        kept.metadata.deletion_timestamp.clone_from(&daemonset.metadata.deletion_timestamp);
        kept.spec = Some(DaemonSetSpec {
            template: PodTemplateSpec {
                metadata: template.and_then(|t| t.metadata.clone()).map(|metadata| {
                    k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                        annotations: metadata.annotations,
                        ..Default::default()
                    }
                }),
                spec: template.and_then(|t| t.spec.as_ref()).map(placement),
            },
            ..DaemonSetSpec::default()
        });
        let key = (daemonset.namespace().unwrap_or_default(), daemonset.name_any());
        self.daemonset_versions.insert(key.clone(), daemonset.resource_version().unwrap_or_default());
        let rolled = if daemonsets::is_rolling(daemonset) {
            self.daemonsets_rolling.insert(key.clone());
            false
        } else {
            self.daemonsets_rolling.remove(&key)
        };
        if self.daemonsets.get(&key).is_some_and(|old| **old == kept) {
            return rolled;
        }
        self.daemonsets.insert(key, Arc::new(kept));
        true
    }
}

/// What decides where a pod runs, without the rest.
fn placement(spec: &PodSpec) -> PodSpec {
    PodSpec {
        node_name: spec.node_name.clone(),
        node_selector: spec.node_selector.clone(),
        tolerations: spec.tolerations.clone(),
        affinity: spec.affinity.clone(),
        scheduling_gates: spec.scheduling_gates.clone(),
        ..PodSpec::default()
    }
}

fn slim(pod: &Pod) -> Pod {
    let mut slim = Pod::default();
    slim.metadata.annotations.clone_from(&pod.metadata.annotations);
    slim.spec = pod.spec.as_ref().map(placement);
    slim
}

/// Millionths of a dollar, from dollars as they are written in a claim's status.
fn micros(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let part: String = part.chars().chain(std::iter::repeat('0')).take(6).collect();
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(part.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_whole_millionths() {
        let cases =
            [("0.096", Some(96_000)), ("12", Some(12_000_000)), ("1.2345678", Some(1_234_567)), ("x", None)];
        for (text, expected) in cases {
            assert_eq!(micros(text), expected, "{text}");
        }
    }
}
