//! How actions end: the report of each, and what it learned.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_cloud::{ClassFindings, CloudInstance, Interruption, Shortage, Terminated};
use croft_scheduler::{InstanceType, PodKey, consolidation::Consolidation};

use crate::{
    action::Key,
    kube_api::{ObjectKey, Response, Target},
    record_store::ResumedRecord,
    solver::Panicked,
    time::Now,
};

/// How an action ended.
#[derive(Debug)]
pub struct ActionReport {
    /// The keys that it locked.
    pub keys: Vec<Key>,
    /// Objects as the API server returned them.
    pub responses: Vec<Response>,
    /// Results that are not objects.
    pub results: Vec<ActionResult>,
    /// When the keys are free again.
    pub backoff: Backoff,
}

impl ActionReport {
    /// The report of an action that succeeded and learned nothing.
    #[must_use]
    pub fn done(keys: Vec<Key>) -> Self {
        Self { keys, responses: Vec::new(), results: Vec::new(), backoff: Backoff::None }
    }
}

/// When a key is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backoff {
    /// At once.
    None,
    /// After this time; the action succeeded.
    After(Duration),
    /// After an exponential backoff: the time doubles with every failure in a row.
    Exponential,
    /// After an exponential backoff that starts at this time.
    ExponentialFrom(Duration),
    /// After this time, since the action failed with a pace of its own.
    Failed(Duration),
}

impl Backoff {
    /// True if the action failed.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        match self {
            Self::None | Self::After(_) => false,
            Self::Exponential | Self::ExponentialFrom(_) | Self::Failed(_) => true,
        }
    }
}

/// Results of an action that are not objects. Times are on the monotonic clock.
#[derive(Debug)]
pub enum ActionResult {
    /// The instance of this claim was launched.
    Launched(String),
    /// A launch has ended without an instance, for good.
    LaunchFailed {
        /// The claim.
        claim: String,
        /// The reason, in CamelCase.
        reason: &'static str,
        /// A sentence.
        message: String,
    },
    /// Claims that were not created: their nominations are void.
    ClaimsNotCreated(Vec<String>),
    /// The offerings of a class, or why they are unknown.
    Offerings(String, Result<Arc<[InstanceType]>, String>),
    /// The offerings without capacity.
    UnavailableOfferings(Vec<Shortage>),
    /// The resolved terms of a class.
    Findings(String, Box<ClassFindings>),
    /// The instances of the cluster, and when the list was requested.
    Instances(Now, Vec<CloudInstance>),
    /// The progress of terminations.
    Terminated(Vec<Terminated>),
    /// At this time the API server had no pod that must leave on the instance of this claim, or on this instance
    /// without a claim.
    NoPodsFound(String, Duration),
    /// At this time the API server had no Node of this claim.
    NoNode(String, Duration),
    /// The instances found for these ids, requested at this time.
    InstancesDescribed(Duration, Vec<String>, Vec<CloudInstance>),
    /// The API server refused a write of this node, as its policy on the controller's identity does for a node that has
    /// nothing of a pool; with its message.
    NodeRefused(String, String),
    /// The cloud shows no instance of this claim.
    InstanceNotFound(String),
    /// The result of the search for a cheaper cluster.
    Consolidation(Box<Consolidation>),
    /// The pools of a search, and the pools for which it panicked.
    PoolsSearched(BTreeSet<String>, BTreeMap<String, Panicked>),
    /// The API server accepted the eviction of a pod.
    Evicted(PodKey),
    /// The API server refused the eviction of a pod.
    EvictionBlocked(PodKey, String),
    /// The API server has no object of this name, so the object with this uid is deleted.
    NotFound(Target, String),
    /// The API server has another object of this name, which isn't Croft's, or which no watch has shown yet.
    NameTaken(ObjectKey),
    /// The API server refused such an object for what it is; with its message.
    ObjectRefused(ObjectKey, String),
    /// Messages of the interruption queue.
    Interruptions(Vec<Interruption>),
    /// Messages that were removed from the queue.
    Acknowledged(Vec<Interruption>),
    /// Whether the admission policies of the API server that answered read the parameters of this revision.
    ParametersProbed {
        /// The revision.
        revision: String,
        /// The parameters are in force.
        in_force: bool,
        /// The version of the mutating policies that act.
        mutated_by: Option<String>,
    },
    /// Observed capacities differ from what offerings were computed with: they must be listed again.
    OfferingsChanged,
    /// The decision log as the store holds it.
    RecordRead(Box<ResumedRecord>),
    /// Slots of the decision log were written; with their new versions.
    RecordWritten(Vec<(usize, String)>),
    /// A write of the decision log failed, or its outcome is unknown.
    RecordUnwritten,
}

impl ActionResult {
    /// The instances that it shows going, and since when, in seconds since 1970, if the cloud says so.
    pub(crate) fn going(&self) -> Vec<(&str, Option<i64>)> {
        match self {
            Self::Instances(_, instances) | Self::InstancesDescribed(_, _, instances) => {
                let going = instances.iter().filter(|instance| instance.state.is_going());
                going.map(|instance| (instance.id.as_str(), instance.ended_at)).collect()
            }
            Self::Terminated(instances) => {
                let going = instances.iter().filter(|instance| instance.state.is_going());
                going.map(|instance| (instance.id.as_str(), None)).collect()
            }
            _ => Vec::new(),
        }
    }
}
