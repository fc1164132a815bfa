//! The actions that deciders ask for, and the keys that serialise them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::{EC2NodeClass, NodeClaim, NodeClaimSpec};
use croft_cloud::{InUse, Interruption, LaunchRequest, ObservedNode};
use croft_scheduler::{Cluster, PodKey, consolidation::Ask};
use k8s_openapi::api::core::v1::ObjectReference;

use crate::{
    kube_api::{Call, ObjectKey, Target, Verb},
    record_store::SlotWrite,
};

/// The object that an action locks while it is in flight: no second action on the same key starts before the first has ended and
/// its backoff is over.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// The creation of claims for a pool.
    CreateClaims(String),
    /// A claim: its launch, its status, its deletion.
    Claim(String),
    /// A node.
    Node(String),
    /// The eviction or deletion of a pod.
    Pod(PodKey),
    /// The termination of an instance, by id.
    Instance(String),
    /// The description of single instances.
    DescribeInstances,
    /// The tags of an instance, by id.
    InstanceTags(String),
    /// The status of a pool.
    Pool(String),
    /// The status of the CroftConfig.
    Config,
    /// The resolution and the status of a class.
    Class(String),
    /// The offerings of a class.
    Offerings(String),
    /// The list of instances.
    ListInstances,
    /// The removal of unused launch templates and profiles.
    Sweep,
    /// The search for a cheaper cluster.
    Consolidation,
    /// The interruption queue.
    Interruptions,
    /// The removal of handled messages from the interruption queue.
    Acknowledgements,
    /// The observed capacity of nodes.
    Capacity,
    /// The decision log.
    Record,
    /// The parameters of the admission policies.
    Parameters,
    /// The label and annotations of a namespace.
    Namespace(String),
    /// The status of a Tenant.
    Tenant(String),
    /// The template of a DaemonSet, by namespace and name.
    DaemonSet(String, String),
    /// An object that Croft keeps in a tenant's namespace.
    TenantObject(ObjectKey),
}

/// One effect.
#[derive(Clone, Debug)]
pub enum Action {
    /// Reserves names in the pool's counter, then creates the claims.
    CreateClaims(NewClaims),
    /// Launches a claim's instance, or learns the outcome of an earlier launch.
    Launch(Box<Launch>),
    /// Nominates the planned pods, then labels the node and removes its unregistered taint, then writes the claim's
    /// status.
    Register(Box<Registration>),
    /// One call to the API server.
    Write {
        /// The key that the call locks.
        key: Key,
        /// The call.
        call: Call,
        /// Time for which the key stays locked after success: until the watch shows what the response doesn't.
        requeue_after: Duration,
        /// What tells the write apart from others of its key, if the same one isn't repeated until the watch could show it.
        fingerprint: Option<String>,
        /// Events to record if the write starts.
        events: Vec<UserEvent>,
    },
    /// Lists the pods of an instance's node at the API server, before the instance is terminated.
    VerifyNoPods(PodCheck),
    /// Reads the Node of a claim at the API server.
    VerifyNoNode(Arc<NodeClaim>),
    /// Describes instances by their ids, whatever their tags.
    DescribeInstances(Vec<String>),
    /// Writes tags onto an instance, the cluster's own tag included.
    Tag {
        /// The instance's id.
        id: String,
        /// The other tags.
        tags: BTreeMap<String, String>,
    },
    /// Terminates instances, or asks for the progress of their termination.
    Terminate {
        /// The instances' ids.
        ids: Vec<String>,
    },
    /// Finds the instance of a claim that is being deleted or adopted, and whose launch has an unknown outcome.
    FindInstance(Arc<NodeClaim>),
    /// Lists the instances of the cluster.
    ListInstances,
    /// Resolves the terms of a class, and writes the findings into its status.
    Resolve(Resolution),
    /// Lists the offerings of a class.
    ListOfferings(Arc<EC2NodeClass>),
    /// Removes launch templates and profiles that nothing uses.
    Sweep(InUse),
    /// Searches for a cheaper cluster.
    Consolidate(Box<ConsolidationSearch>),
    /// Waits for messages on the interruption queue.
    ReceiveInterruptions,
    /// Removes handled messages from the interruption queue.
    AcknowledgeInterruptions(Vec<Interruption>),
    /// Reports the observed capacity of nodes to the cloud provider.
    ObserveCapacity(Vec<ObservedNode>),
    /// Asks the API server by a dry run whether its admission policies read the parameters of a revision.
    ProbeParameters {
        /// The revision.
        revision: String,
        /// The dry run, which the policies refuse if they read the revision.
        call: Call,
    },
    /// Writes an Event.
    RecordEvent(UserEvent),
    /// Reads what the store holds of the decision log.
    ReadRecord,
    /// Writes slots of the decision log, in this order.
    WriteRecord(Vec<SlotWrite>),
}

/// The pods to look for before an instance is terminated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodCheck {
    /// The claim's name, or the instance's id if no claim has it: the result is stored under this name.
    pub subject: String,
    /// The instance's id.
    pub instance: String,
    /// The provider id, as its Node has it.
    pub provider_id: String,
    /// The name that the cloud gives the instance's Node.
    pub node: String,
    /// Uids of pods that count as ended although they still exist.
    pub ended: BTreeSet<Box<str>>,
}

/// The input of a search for a cheaper cluster.
#[derive(Clone, Debug)]
pub struct ConsolidationSearch {
    /// A copy: the search takes long.
    pub cluster: Cluster,
    /// The question.
    pub ask: Ask,
}

/// Claims to create for one pool.
#[derive(Clone, Debug)]
pub struct NewClaims {
    /// The pool's name.
    pub pool: String,
    /// The pool's resourceVersion: the counter is reserved on this version, so that no other process gets the names.
    pub pool_version: Option<String>,
    /// The counter after the reservation.
    pub counter: i64,
    /// The claims.
    pub claims: Vec<NewClaim>,
}

/// One claim to create.
#[derive(Clone, Debug)]
pub struct NewClaim {
    /// Its name.
    pub name: String,
    /// Its spec.
    pub spec: NodeClaimSpec,
    /// The whole object, with finalizer, labels and annotations.
    pub object: serde_json::Value,
}

/// An instance to launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The claim as it is now, with the recorded attempt.
    pub claim: Arc<NodeClaim>,
    /// The request to send if the claim records none of unknown outcome. Its `attempt` is the next number.
    pub request: LaunchRequest,
}

/// A node to register.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The claim as it is now.
    pub claim: Arc<NodeClaim>,
    /// The node's name.
    pub node: String,
    /// JSON Patch of the node.
    pub patch: serde_json::Value,
    /// Pods to nominate for the node, with their uids.
    pub pods: Vec<(PodKey, Box<str>)>,
}

/// A class to resolve.
#[derive(Clone, Debug)]
pub struct Resolution {
    /// The class as it is now.
    pub class: Arc<EC2NodeClass>,
    /// True if earlier findings that are missing have been missing for long enough to be dropped.
    pub confirmed: bool,
}

/// An Event to write.
#[derive(Clone, Debug)]
pub struct UserEvent {
    /// The object that it is about.
    pub regarding: ObjectReference,
    /// True for type Warning.
    pub warning: bool,
    /// The reason, in CamelCase.
    pub reason: Cow<'static, str>,
    /// One or more sentences.
    pub note: String,
}

impl UserEvent {
    /// An Event of type Warning.
    #[must_use]
    pub fn warning(regarding: ObjectReference, reason: impl Into<Cow<'static, str>>, note: String) -> Self {
        Self { regarding, warning: true, reason: reason.into(), note }
    }
}

impl Key {
    /// The key of an object. Events and slots of the decision log have actions of their own.
    fn of(target: &Target) -> Self {
        match target.clone() {
            Target::Claim(name) => Self::Claim(name),
            Target::Pool(name) => Self::Pool(name),
            Target::Class(name) => Self::Class(name),
            Target::Config(_) => Self::Config,
            Target::Tenant(name) => Self::Tenant(name),
            Target::Node(name) => Self::Node(name),
            Target::Namespace(name) => Self::Namespace(name),
            Target::DaemonSet(namespace, name) => Self::DaemonSet(namespace, name),
            Target::Pod(namespace, name) => Self::Pod(PodKey::new(&namespace, &name)),
            Target::TenantObject(key) => Self::TenantObject(key),
            Target::Event(_) | Target::RecordSlot(..) => Self::Record,
        }
    }
}

impl Action {
    /// A call to the API server, whose response shows what it did.
    #[must_use]
    pub fn write(target: Target, verb: Verb) -> Self {
        Self::write_and_wait(target, verb, Duration::ZERO)
    }

    /// A call to the API server after which the object's key stays locked for `requeue_after`.
    #[must_use]
    pub fn write_and_wait(target: Target, verb: Verb, requeue_after: Duration) -> Self {
        let (key, call) = (Key::of(&target), Call { target, verb });
        Self::Write { key, call, requeue_after, fingerprint: None, events: Vec::new() }
    }

    /// A call to the API server that isn't repeated until the watch could show it.
    #[must_use]
    pub fn write_once(target: Target, verb: Verb) -> Self {
        let fingerprint = format!("{verb:?}");
        Self::write_once_as(target, verb, fingerprint, Vec::new())
    }

    /// The same, but for what tells the call apart, and with events to record if it starts.
    #[must_use]
    pub fn write_once_as(target: Target, verb: Verb, fingerprint: String, events: Vec<UserEvent>) -> Self {
        let (key, call, fingerprint) = (Key::of(&target), Call { target, verb }, Some(fingerprint));
        Self::Write { key, call, requeue_after: Duration::ZERO, fingerprint, events }
    }

    /// What tells the action apart from others of its key, if the same one isn't repeated until the watch could show it.
    #[must_use]
    pub fn fingerprint(&self) -> Option<&str> {
        match self {
            Self::Write { fingerprint, .. } => fingerprint.as_deref(),
            Self::ProbeParameters { revision, .. } => Some(revision),
            _ => None,
        }
    }

    /// The keys that the action locks.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        let name = |o: &NodeClaim| o.metadata.name.clone().unwrap_or_default();
        match self {
            Self::CreateClaims(new) => {
                // A claim is locked until its create can no longer be repeated: a claim that was created and deleted in
                // between would be created a second time.
                let claims = new.claims.iter().map(|claim| Key::Claim(claim.name.clone()));
                let pool = [Key::CreateClaims(new.pool.clone()), Key::Pool(new.pool.clone())];
                pool.into_iter().chain(claims).collect()
            }
            Self::Launch(launch) => vec![Key::Claim(name(&launch.claim))],
            Self::Register(registration) => {
                vec![Key::Claim(name(&registration.claim)), Key::Node(registration.node.clone())]
            }
            Self::Write { key, .. } => vec![key.clone()],
            Self::VerifyNoPods(check) => vec![Key::Instance(check.instance.clone())],
            Self::VerifyNoNode(claim) => {
                let node = claim.status.as_ref().and_then(|s| s.node_name.clone());
                vec![Key::Node(node.unwrap_or_default())]
            }
            Self::DescribeInstances(_) => vec![Key::DescribeInstances],
            Self::Tag { id, .. } => vec![Key::InstanceTags(id.clone())],
            Self::Terminate { ids } => ids.iter().cloned().map(Key::Instance).collect(),
            Self::FindInstance(claim) => vec![Key::Claim(name(claim))],
            Self::ListInstances => vec![Key::ListInstances],
            Self::Resolve(Resolution { class, .. }) => {
                vec![Key::Class(class.metadata.name.clone().unwrap_or_default())]
            }
            Self::ListOfferings(class) => {
                vec![Key::Offerings(class.metadata.name.clone().unwrap_or_default())]
            }
            Self::Sweep(_) => vec![Key::Sweep],
            Self::Consolidate(_) => vec![Key::Consolidation],
            Self::ReceiveInterruptions => vec![Key::Interruptions],
            Self::AcknowledgeInterruptions(_) => vec![Key::Acknowledgements],
            Self::ObserveCapacity(_) => vec![Key::Capacity],
            Self::ProbeParameters { .. } => vec![Key::Parameters],
            Self::RecordEvent(_) => Vec::new(),
            Self::ReadRecord | Self::WriteRecord(_) => vec![Key::Record],
        }
    }

    /// The action's name in the metric `actions`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::CreateClaims(_) => "create_claims",
            Self::Launch(_) => "launch",
            Self::Register(_) => "register",
            Self::Write { .. } => "write",
            Self::VerifyNoPods(_) => "verify_no_pods",
            Self::VerifyNoNode(_) => "verify_no_node",
            Self::DescribeInstances(_) => "describe_instances",
            Self::Tag { .. } => "tag",
            Self::Terminate { .. } => "terminate",
            Self::FindInstance(_) => "find_instance",
            Self::ListInstances => "list_instances",
            Self::Resolve(_) => "resolve",
            Self::ListOfferings(_) => "list_offerings",
            Self::Sweep(_) => "sweep",
            Self::Consolidate(_) => "consolidate",
            Self::ReceiveInterruptions => "receive_interruptions",
            Self::AcknowledgeInterruptions(_) => "acknowledge_interruptions",
            Self::ObserveCapacity(_) => "observe_capacity",
            Self::ProbeParameters { .. } => "probe_parameters",
            Self::RecordEvent(_) => "record_event",
            Self::ReadRecord => "read_record",
            Self::WriteRecord(_) => "write_record",
        }
    }
}
