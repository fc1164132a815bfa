//! The cached facts from which tenants are reconciled.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::{
    CroftConfig, CroftConfigSpec, Tenant, TenantPool,
    condition::{ACCEPTED, Statement},
    config::SINGLETON,
    convert::policy as convert,
};
use croft_policy::{
    Index, Tenants, Violation,
    audit::{self, Finding},
    definitions::{
        MIRROR_ANNOTATION, POOLS_ANNOTATION, SHARED_ANNOTATION, SURPLUS_ANNOTATION, TENANCY_LABEL,
        parameter::PREFIX,
    },
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

use crate::{
    kube_api::{Change, Kind, Object, ObjectId, ObjectKey, Version},
    state::InvalidObjects,
    tenant::{
        absences::Absences, class_facts::ClassFacts, notices::Notices, parameters::Parameters, pod_security,
        shared::SharedByOwner, tenant_objects::TenantObjects,
    },
};

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// [`TENANCY_LABEL`].
    pub tenancy: Option<String>,
    /// [`POOLS_ANNOTATION`].
    pub pools: Option<String>,
    /// [`SHARED_ANNOTATION`].
    pub shared: Option<String>,
    /// [`SURPLUS_ANNOTATION`].
    pub surplus: Option<String>,
    /// Its labels and annotations about Pod Security.
    pub pod_security: BTreeMap<String, String>,
    /// It is being deleted.
    pub deleting: bool,
    /// Its creation, in seconds since 1970.
    pub created: Option<i64>,
}

/// A pod that isn't finished.
#[derive(Clone, Debug, PartialEq)]
pub struct PodFacts {
    /// Its uid.
    pub uid: String,
    /// The node that it is bound to.
    pub node: Option<String>,
    /// Its controller.
    pub owner: Option<Arc<Owner>>,
    /// A kubelet's static pod.
    pub mirror: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// The scheduling fields of the pod, while it is pending.
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
    fn from_reference(reference: &OwnerReference) -> Self {
        let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
        Self {
            group: group.to_owned(),
            kind: reference.kind.clone(),
            name: reference.name.clone(),
            uid: reference.uid.clone(),
        }
    }

    /// Returns true if the owner certainly recreates a pod that is deleted or evicted. A Job counts the pod as failed
    /// and may end; other kinds are unknown.
    pub(super) fn recreates_pods(&self) -> bool {
        match self.kind.as_str() {
            "ReplicaSet" | "StatefulSet" => self.group == "apps",
            "ReplicationController" => self.group.is_empty(),
            _ => false,
        }
    }
}

/// A replica of the webhook.
#[derive(Clone, Debug, Default)]
pub struct Replica {
    /// The status that it reports.
    pub report: ReplicaStatus,
    /// The time of its last report, on the monotonic clock.
    pub heard_at: Duration,
}

/// Evictions that are in flight.
#[derive(Debug, Default)]
pub struct Evictions {
    /// The time of each pod's last eviction request, by uid.
    pub(super) requested: BTreeMap<String, Duration>,
    /// Owners, by uid, with evicted pods that aren't all running again.
    pub(super) owners: BTreeSet<String>,
}

/// Namespace and name.
pub type ObjectName = (String, String);

/// The facts.
#[derive(Debug)]
pub struct State {
    index: Index,
    snapshot: Option<Tenants>,
    /// Settings: of the CroftConfig, or of the last one until its absence is confirmed.
    pub config: CroftConfigSpec,
    /// Tenants by name.
    pub tenants: BTreeMap<String, Arc<Tenant>>,
    /// Pools by name.
    pub pools: BTreeMap<String, Arc<TenantPool>>,
    /// Namespaces by name.
    pub namespaces: BTreeMap<String, NamespaceFacts>,
    /// For each node, the pool with provisioner None or Karpenter whose own label the node has.
    pub nodes: BTreeMap<String, Option<String>>,
    /// Pods.
    pub pods: BTreeMap<ObjectName, PodFacts>,
    /// The owners that pods share.
    owners: SharedByOwner<Owner>,
    /// The scheduling fields that the pending pods of an owner share.
    pending: SharedByOwner<Pod>,
    /// DaemonSets, reduced to the fields that admission plans.
    pub daemonsets: BTreeMap<ObjectName, Arc<DaemonSet>>,
    /// Their resourceVersions, which change with every status write.
    pub(super) daemonset_versions: BTreeMap<ObjectName, String>,
    /// DaemonSets with a rollout in flight.
    pub(super) daemonsets_rolling: BTreeSet<ObjectName>,
    /// The time of the last write of each DaemonSet that was out of date.
    pub(super) daemonsets_written: BTreeMap<ObjectName, Duration>,
    /// The number of violations of each rule, as of the last decision.
    pub violations: BTreeMap<Violation, i64>,
    /// Findings of nodes, by node.
    node_findings: BTreeMap<String, Vec<Finding>>,
    /// The label and taints that nodes lack which Croft didn't launch, by node.
    pub node_repairs: BTreeMap<String, NodeRepair>,
    /// Nodes whose pool label was removed, with the pool, until an event is recorded.
    pub left_pools: BTreeMap<String, String>,
    /// Tenants, pools or settings have changed since the nodes were audited.
    nodes_stale: bool,
    /// EC2NodeClasses by name.
    pub classes: BTreeMap<String, ClassFacts>,
    /// Replicas of the webhook.
    pub replicas: BTreeMap<String, Replica>,
    /// Admission policies and bindings by kind and name.
    pub policies: BTreeMap<(String, String), Value>,
    /// The parameters of the admission policies.
    pub parameters: Parameters,
    /// Objects that Croft keeps in tenants' namespaces.
    pub objects: TenantObjects,
    /// The conditions of pools about their label and spec, as of the last decision.
    pub(super) pool_statements: BTreeMap<String, Vec<Statement>>,
    /// Tenants that are absent, perhaps for a moment.
    pub(super) absences: Absences,
    /// Evictions of misplaced pods that are in flight.
    pub(super) evicted: Evictions,
    /// Events about misplaced pods that stay.
    pub(super) notices: Notices,
}

impl State {
    /// An empty state for a cluster with Croft in `namespace`.
    #[must_use]
    pub fn new(namespace: &str) -> Self {
        let config = CroftConfigSpec::default();
        let mut index = Index::new();
        index.set_config(convert::config(&config, namespace));
        Self {
            index,
            snapshot: None,
            config,
            tenants: BTreeMap::new(),
            pools: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            owners: SharedByOwner::new(),
            pending: SharedByOwner::new(),
            daemonsets: BTreeMap::new(),
            daemonset_versions: BTreeMap::new(),
            daemonsets_rolling: BTreeSet::new(),
            daemonsets_written: BTreeMap::new(),
            violations: BTreeMap::new(),
            node_findings: BTreeMap::new(),
            node_repairs: BTreeMap::new(),
            left_pools: BTreeMap::new(),
            nodes_stale: true,
            classes: BTreeMap::new(),
            replicas: BTreeMap::new(),
            policies: BTreeMap::new(),
            pool_statements: BTreeMap::new(),
            parameters: Parameters { namespace: namespace.to_owned(), ..Parameters::default() },
            objects: TenantObjects::default(),
            absences: Absences::default(),
            evicted: Evictions::default(),
            notices: Notices::default(),
        }
    }

    /// Tenants and their resources, as admission sees them.
    pub fn view(&mut self) -> Tenants {
        self.snapshot.get_or_insert_with(|| self.index.snapshot()).clone()
    }

    /// Findings of nodes.
    pub fn node_findings(&self) -> impl Iterator<Item = &Finding> {
        self.node_findings.values().flatten()
    }

    /// The namespaces of a tenant.
    fn namespaces_of(&mut self, tenant: &str) -> BTreeSet<String> {
        let view = self.view();
        let is_own = |namespace: &&String| {
            view.tenancy(namespace).tenant().is_some_and(|owner| *owner.name == *tenant)
        };
        self.namespaces.keys().filter(is_own).cloned().collect()
    }

    /// Audits every node again if tenants, pools or settings have changed since the last time.
    pub fn refresh_nodes(&mut self) {
        if !std::mem::take(&mut self.nodes_stale) {
            return;
        }
        let view = self.view();
        self.node_findings.clear();
        self.node_repairs.clear();
        let nodes: Vec<_> = self.index.nodes().collect();
        for node in nodes {
            self.audit_node(&view, &node);
            // Nodes may be listed before their pools: without this, such a node would leave its pool unnoticed. A
            // node whose pool is deleted stays in that pool: the parameters remain in force until such nodes are
            // gone.
            if let Some(pool) = own_pool(view.declarations(), &node) {
                self.nodes.insert(node.name, Some(pool.name.to_string()));
            }
        }
    }

    /// Audits a node against its pool. Returns true if the findings changed.
    fn audit_node(&mut self, view: &Tenants, node: &croft_policy::Node) -> bool {
        let findings = audit::node(view, node);
        let found = if findings.is_empty() {
            self.node_findings.remove(&node.name).is_some()
        } else {
            self.node_findings.insert(node.name.clone(), findings.clone()) != Some(findings)
        };
        match repair(view.declarations(), node) {
            Some(missing) => {
                self.node_repairs.insert(node.name.clone(), missing.clone()) != Some(missing) || found
            }
            None => self.node_repairs.remove(&node.name).is_some() || found,
        }
    }

    pub(super) fn indexed(&mut self, change: impl FnOnce(&mut Index)) {
        change(&mut self.index);
        self.snapshot = None;
        self.nodes_stale = true;
    }

    /// Applies a change of the time `mono` on the monotonic clock, with which objects are invalid since then. Returns true if
    /// a fact changed.
    pub fn observe(&mut self, change: &Change, invalid: &InvalidObjects, mono: Duration) -> bool {
        match change {
            // Events of a first list are of the past.
            Change::Version(Version { object: Object::ShareExceeded(_), listed: true, .. }) => false,
            Change::Version(Version { object, flaw: Some(flaw), .. }) => {
                self.observe_invalid(object, flaw, invalid)
            }
            Change::Version(Version { object, flaw: None, .. }) => self.observe_object(object, mono),
            Change::Gone(id) => self.forget(id),
            Change::Synced(_) | Change::Release(_) => false,
        }
    }

    fn observe_object(&mut self, object: &Object, mono: Duration) -> bool {
        match object {
            Object::Tenant(tenant) => {
                self.absences.end(&tenant.name_any());
                self.tenant(tenant)
            }
            Object::TenantPool(pool) => self.observe_pool(pool),
            Object::EC2NodeClass(class) => {
                self.classes.insert(class.name_any(), ClassFacts::new(class));
                false
            }
            Object::Namespace(namespace) => self.namespace(namespace),
            Object::Node(node) => self.node(node),
            Object::Pod(pod) => self.pod(pod),
            Object::DaemonSet(daemonset) => self.daemonset(daemonset),
            Object::CroftConfig(config) => self.observe_config(config),
            Object::WebhookReplica(name, report) => self.observe_replica(name, (**report).clone(), mono),
            Object::ShareExceeded(namespace) => {
                self.objects.observe_share_exceeded(namespace, mono);
                true
            }
            Object::Json(Kind::TenantObject(kind), object) => self.objects.observe(*kind, object),
            Object::Json(kind, policy) => {
                let name = policy.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
                let key = (kind.name().to_owned(), name.to_owned());
                self.policies.insert(key, (**policy).clone()).as_ref() != Some(&**policy)
            }
            _ => false,
        }
    }

    /// Applies the deletion of an object. Returns true if a fact changed.
    fn forget(&mut self, id: &ObjectId) -> bool {
        let ObjectId { kind, namespace, name, .. } = id;
        match *kind {
            Kind::Tenant => {
                let own = self.namespaces_of(name);
                self.absences.begin(name, own);
                self.indexed(|index| index.remove_tenant(name));
                self.tenants.remove(name).is_some()
            }
            Kind::TenantPool => {
                self.indexed(|index| index.remove_pool(name));
                self.pools.remove(name).is_some()
            }
            Kind::EC2NodeClass => {
                self.classes.remove(name);
                false
            }
            Kind::Namespace => self.forget_namespace(name),
            Kind::Node => self.forget_node(name),
            Kind::Pod => self.pods.remove(&(namespace.clone(), name.clone())).is_some(),
            Kind::DaemonSet => {
                let key = (namespace.clone(), name.clone());
                self.daemonset_versions.remove(&key);
                self.daemonsets_rolling.remove(&key);
                self.daemonsets.remove(&key).is_some()
            }
            // It stays in force until the snapshot confirms its absence.
            Kind::CroftConfig => name == SINGLETON,
            Kind::WebhookReplica => self.replicas.remove(name).is_some(),
            Kind::ValidatingAdmissionPolicy | Kind::ValidatingAdmissionPolicyBinding => {
                self.policies.remove(&(kind.name().to_owned(), name.clone())).is_some()
            }
            Kind::TenantObject(kind) => {
                self.objects.forget(&ObjectKey { kind, namespace: namespace.clone(), name: name.clone() })
            }
            _ => false,
        }
    }

    fn observe_pool(&mut self, pool: &TenantPool) -> bool {
        self.indexed(|index| index.upsert_pool(convert::pool(pool)));
        let accepted_of = |pool: &TenantPool| {
            let conditions = pool.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
            conditions.iter().find(|c| c.type_ == ACCEPTED).cloned()
        };
        // Namespaces carry what nodes of the pool can have.
        let supply_of = |pool: &TenantPool| {
            pool.status.as_ref().map(|s| (s.extended_resources.clone(), s.instance_labels.clone()))
        };
        let old = self.pools.insert(pool.name_any(), Arc::new(pool.clone()));
        old.is_none_or(|old| {
            old.spec != pool.spec
                || accepted_of(&old) != accepted_of(pool)
                || supply_of(&old) != supply_of(pool)
        })
    }

    fn forget_namespace(&mut self, name: &str) -> bool {
        self.index.remove_namespace(name);
        self.snapshot = None;
        if name == self.parameters.namespace {
            self.parameters.written = None;
        }
        self.namespaces.remove(name).is_some()
    }

    fn forget_node(&mut self, name: &str) -> bool {
        self.index.remove_node(name);
        self.snapshot = None;
        self.node_findings.remove(name);
        self.node_repairs.remove(name);
        self.left_pools.remove(name);
        self.nodes.remove(name).is_some()
    }

    pub(super) fn observe_config(&mut self, config: &CroftConfig) -> bool {
        if config.name_any() != SINGLETON {
            return false;
        }
        self.config(config.spec.clone())
    }

    /// Applies the report of a webhook replica, heard at `now` on the monotonic clock. Returns true if it is new.
    pub fn observe_replica(&mut self, name: &str, report: ReplicaStatus, now: Duration) -> bool {
        let new = self.replicas.get(name).is_none_or(|r| r.report != report);
        self.replicas.insert(name.to_owned(), Replica { report, heard_at: now });
        new
    }

    /// Returns true if the settings changed; status writes change no setting.
    fn config(&mut self, config: CroftConfigSpec) -> bool {
        if self.config == config {
            return false;
        }
        let settings = convert::config(&config, &self.parameters.namespace);
        self.indexed(|index| index.set_config(settings));
        self.config = config;
        true
    }

    /// Returns to the defaults.
    pub(super) fn reset_config(&mut self) {
        self.config(CroftConfigSpec::default());
    }

    fn tenant(&mut self, tenant: &Tenant) -> bool {
        // A Tenant with an unreadable selector claims its names only; the API server refuses such a Tenant.
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
            surplus: namespace.annotations().get(SURPLUS_ANNOTATION).cloned(),
            pod_security: pod_security::facts(namespace),
            deleting: namespace.metadata.deletion_timestamp.is_some(),
            created: namespace.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second()),
        };
        if namespace.name_any() == self.parameters.namespace {
            let ours = namespace.annotations().iter().filter(|(name, _)| name.starts_with(PREFIX));
            self.parameters.written = Some(ours.map(|(name, text)| (name.clone(), text.clone())).collect());
        }
        self.namespaces.insert(namespace.name_any(), facts);
        // The labels may change the namespace's tenant.
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
        let news = self.audit_node(&view, &converted);
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
        let waiting = node.is_none().then(|| {
            let fields = scheduling_fields_of(pod);
            match owner {
                Some(owner) => self.pending.share(&owner.uid, fields),
                None => Arc::new(fields),
            }
        });
        let facts = PodFacts {
            uid: pod.uid().unwrap_or_default(),
            owner: owner.map(|owner| self.owners.share(&owner.uid, Owner::from_reference(owner))),
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
        let rolled = if is_rolling(daemonset) {
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

/// The scheduling fields of a pod.
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

fn scheduling_fields_of(pod: &Pod) -> Pod {
    let mut scheduling_fields_of = Pod::default();
    scheduling_fields_of.metadata.annotations.clone_from(&pod.metadata.annotations);
    scheduling_fields_of.spec = pod.spec.as_ref().map(placement);
    scheduling_fields_of
}

/// Returns true while the rollout of `daemonset` is in flight, by the rules of `kubectl rollout status`.
fn is_rolling(daemonset: &DaemonSet) -> bool {
    let strategy = daemonset.spec.as_ref().and_then(|s| s.update_strategy.as_ref()?.type_.as_deref());
    let Some(status) = daemonset.status.as_ref().filter(|_| strategy != Some("OnDelete")) else {
        return false;
    };
    let desired = status.desired_number_scheduled;
    daemonset.metadata.generation > status.observed_generation
        || status.updated_number_scheduled.unwrap_or(0) < desired
        || status.number_available.unwrap_or(0) < desired
}
