//! The facts of which tenants are kept.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use croft_api::{
    CroftConfigSpec, Tenant, TenantPool, condition::ACCEPTED, config::SINGLETON, convert::policy as convert,
};
use croft_policy::{
    Index, Tenants,
    audit::{self, Broken, Finding},
    model::{MARK_KEY, MIRROR_ANNOTATION, POOLS_ANNOTATION, SHARED_ANNOTATION, TENANCY_LABEL},
    seen::Report,
};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, DaemonSetSpec},
    core::v1::{Namespace, Node, Pod, PodSpec, PodTemplateSpec},
};
use kube::ResourceExt;
use serde_json::Value;

use crate::snapshot::Change;

/// Something new, beside what the engine's watches say.
#[derive(Clone, Debug)]
pub enum News {
    /// A CroftConfig by name; `None` if it is gone.
    Config(String, Option<Box<CroftConfigSpec>>),
    /// A webhook replica by the name of its Lease; `None` if it is gone.
    Replica(String, Option<Report>),
    /// A policy or a binding by kind and name; `None` if it is gone.
    Policy(String, String, Option<Box<Value>>),
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
    /// Kind and uid of its controller.
    pub owner: Option<(String, String)>,
    /// A kubelet's static pod.
    pub mirror: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// What decides where it runs, as long as that isn't decided.
    pub waiting: Option<Arc<Pod>>,
}

/// A replica of the webhook.
#[derive(Clone, Debug, Default)]
pub struct Replica {
    /// What it says of itself.
    pub report: Report,
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
    /// Tenants by name.
    pub tenants: BTreeMap<String, Arc<Tenant>>,
    /// Pools by name.
    pub pools: BTreeMap<String, Arc<TenantPool>>,
    /// Namespaces by name.
    pub namespaces: BTreeMap<String, NamespaceFacts>,
    /// The mark of each node.
    pub nodes: BTreeMap<String, Option<String>>,
    /// Pool and price, in millionths of a dollar per hour, of each claim.
    pub claims: BTreeMap<String, (String, u64)>,
    /// Pods.
    pub pods: BTreeMap<Key, PodFacts>,
    /// What the waiting pods of each owner share.
    waiting_of: BTreeMap<String, Weak<Pod>>,
    /// DaemonSets, cut down to what is planned.
    pub daemonsets: BTreeMap<Key, Arc<DaemonSet>>,
    /// How often each rule is broken, as of the last decision.
    pub violations: BTreeMap<Broken, i64>,
    /// What is wrong with nodes, by node.
    node_findings: BTreeMap<String, Vec<Finding>>,
    /// Tenants or pools are others than when the nodes were looked at.
    nodes_stale: bool,
    /// Replicas of the webhook.
    pub replicas: BTreeMap<String, Replica>,
    /// Policies and bindings by kind and name.
    pub policies: BTreeMap<Key, Value>,
    missing: Vec<&'static str>,
}

impl Default for State {
    fn default() -> Self {
        let config = CroftConfigSpec::default();
        let mut index = Index::new();
        index.set_config(convert::config(&config));
        Self {
            index,
            snapshot: None,
            config,
            tenants: BTreeMap::new(),
            pools: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            nodes: BTreeMap::new(),
            claims: BTreeMap::new(),
            pods: BTreeMap::new(),
            waiting_of: BTreeMap::new(),
            daemonsets: BTreeMap::new(),
            violations: BTreeMap::new(),
            node_findings: BTreeMap::new(),
            nodes_stale: true,
            replicas: BTreeMap::new(),
            policies: BTreeMap::new(),
            missing: NEEDED.to_vec(),
        }
    }
}

impl State {
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
    pub fn node_findings(&mut self) -> impl Iterator<Item = &Finding> {
        if std::mem::take(&mut self.nodes_stale) {
            let view = self.view();
            let findings = self.index.nodes().map(|node| (node.name.clone(), audit::node(&view, &node)));
            self.node_findings = findings.filter(|(_, findings)| !findings.is_empty()).collect();
        }
        self.node_findings.values().flatten()
    }

    fn indexed(&mut self, change: impl FnOnce(&mut Index)) {
        change(&mut self.index);
        self.snapshot = None;
        self.nodes_stale = true;
    }

    /// Takes in a change of the engine's watches. True if something that counts is new.
    pub fn observe(&mut self, change: &Change) -> bool {
        match change {
            Change::Tenant(tenant) => self.tenant(tenant),
            Change::TenantGone(name) => {
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
                self.namespaces.remove(name).is_some()
            }
            Change::Node(node) => self.node(node),
            Change::NodeGone(name) => {
                self.index.remove_node(name);
                self.snapshot = None;
                self.node_findings.remove(name);
                self.nodes.remove(name).is_some()
            }
            Change::Claim(claim) => {
                let price = claim.status.as_ref().and_then(|s| s.price_per_hour.as_deref());
                let facts = (claim.spec.pool.clone(), price.and_then(micros).unwrap_or_default());
                self.claims.insert(claim.name_any(), facts.clone()) != Some(facts)
            }
            Change::ClaimGone(name) => self.claims.remove(name).is_some(),
            Change::Pod(pod) => self.pod(pod),
            Change::PodGone(key) => {
                self.pods.remove(&(key.namespace.to_string(), key.name.to_string())).is_some()
            }
            Change::DaemonSet(daemonset) => self.daemonset(daemonset),
            Change::DaemonSetGone(namespace, name) => {
                self.daemonsets.remove(&(namespace.clone(), name.clone())).is_some()
            }
            Change::Listed(change) | Change::Gone(_, change) => self.observe(change),
            Change::Synced(kind) => self.synced(kind),
            _ => false,
        }
    }

    /// Takes in what the watches of this module say, at `now` on the monotonic clock.
    pub fn learn(&mut self, news: News, now: Duration) -> bool {
        match news {
            News::Config(name, config) if name == SINGLETON => {
                let config = config.map(|c| *c).unwrap_or_default();
                self.indexed(|index| index.set_config(convert::config(&config)));
                std::mem::replace(&mut self.config, config.clone()) != config
            }
            News::Config(..) => false,
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
            News::Synced(kind) => self.synced(kind),
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
        let mark = node.labels().get(MARK_KEY).cloned();
        let findings = self.snapshot.as_ref().map(|view| audit::node(view, &converted)).unwrap_or_default();
        let name = converted.name;
        let judged = self.node_findings.get(&name).map_or(!findings.is_empty(), |old| *old != findings);
        if findings.is_empty() {
            self.node_findings.remove(&name);
        } else {
            self.node_findings.insert(name.clone(), findings);
        }
        self.nodes.insert(name, mark.clone()) != Some(mark) || was != is || judged
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
            owner: owner.map(|o| (o.kind.clone(), o.uid.clone())),
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
        if self.daemonsets.get(&key).is_some_and(|old| **old == kept) {
            return false;
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
