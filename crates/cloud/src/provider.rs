//! The calls of the controller, with their inputs and results.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use croft_api::{
    EC2NodeClass,
    condition::Statement,
    nodeclass::{AmiStatus, SubnetStatus},
};
use croft_scheduler::{CapacityType, InstanceType, Price, Resources};
use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};

use crate::{
    error::{CloudError, LaunchError},
    health::InstanceHealth,
    supply::Shortage,
};

/// A cloud that launches instances. Every method can be called again after any failure.
#[async_trait]
pub trait CloudProvider: Send + Sync {
    /// Resolves what the class names. Never fails: a condition says what can't be found or reached, and earlier
    /// findings stay valid while the cloud is unreachable.
    async fn resolve(&self, class: &EC2NodeClass) -> ClassFindings;

    /// The types that the class's images, subnets and zones allow, with offerings and prices. An offering without
    /// capacity at its last launch has `available: false`.
    async fn instance_types(&self, class: &EC2NodeClass) -> Result<Arc<[InstanceType]>, CloudError>;

    /// Creates everything that a launch needs (launch template, instance profile) and fixes the request to the last
    /// byte. Launches nothing.
    async fn prepare(&self, request: &LaunchRequest) -> Result<Prepared, LaunchError>;

    /// Launches one instance. Sending the same `Prepared` twice launches one instance.
    async fn launch(&self, prepared: &Prepared) -> Result<Launched, LaunchError>;

    /// The instance of a claim, in case the answer to a launch was lost. `None` proves absence only after the cloud's
    /// eventual consistency: repeat the launch instead.
    async fn find_by_claim(&self, claim_uid: &str) -> Result<Option<Launched>, CloudError>;

    /// Every instance of this cluster that isn't terminated, with its health as far as the cloud tells it: health that can't
    /// be read doesn't fail the list.
    async fn list(&self) -> Result<Vec<CloudInstance>, CloudError>;

    /// The instances with these ids, whatever their tags, in any state that the cloud still shows. An id that the
    /// answer lacks is unknown to the account and region, which doesn't prove that its instance is terminated: it may
    /// belong to another account, or be too new to be visible.
    async fn describe(&self, ids: &[String]) -> Result<Vec<CloudInstance>, CloudError>;

    /// The account and region of every call.
    async fn account(&self) -> Result<Account, CloudError>;

    /// Terminates instances. Returns the state of each. Repeating it has no effect. An id that the account and region
    /// don't have is [`InstanceState::Unknown`], never terminated.
    async fn terminate(&self, ids: &[String]) -> Result<Vec<Terminated>, CloudError>;

    /// Adds tags to an instance, including the tag of its cluster.
    async fn tag(&self, id: &str, tags: &BTreeMap<String, String>) -> Result<(), CloudError>;

    /// Waits up to 20 s for interruption notices. A notice returns until it is acknowledged. Without an interruption
    /// queue the call waits and returns nothing.
    async fn interruptions(&self) -> Result<Vec<Interruption>, CloudError>;

    /// Deletes handled notices from the queue.
    async fn acknowledge(&self, news: &[Interruption]) -> Result<(), CloudError>;

    /// Records the resources of a registered node, for the next plan with its type. Called for every initialized node,
    /// also after a restart, and before its class is resolved; known values cost nothing. Returns true if it may change
    /// the result of [`CloudProvider::instance_types`].
    fn observe_capacity(&self, node: &ObservedNode) -> bool;

    /// The unavailable offerings, each with its refusal, for the pools' conditions ([`crate::supply::survey`]).
    fn shortages(&self) -> Vec<Shortage>;

    /// Deletes launch templates and instance profiles of this cluster that `used` doesn't name. Returns their number.
    async fn sweep(&self, used: &InUse) -> Result<usize, CloudError>;

    /// The answered calls to the cloud since the start, by call and result. None where no call leaves the process.
    fn calls(&self) -> Vec<CallCount> {
        Vec::new()
    }
}

/// Calls of one kind to the cloud that ended alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallCount {
    /// The call, such as `DescribeInstances`.
    pub call: &'static str,
    /// `ok`, or the class of the fault.
    pub result: &'static str,
    /// Their number.
    pub count: u64,
}

/// Users of launch templates and instance profiles.
#[derive(Clone, Debug, Default)]
pub struct InUse {
    /// Every class: the profile of its role is kept.
    pub classes: Vec<EC2NodeClass>,
    /// The requests stored in claims, which may be sent again: what they name is kept.
    pub unanswered: Vec<Prepared>,
    /// Ids of the claims' instances: their profiles are kept, also if an instance has lost the tag by which it is listed.
    pub instances: Vec<String>,
}

/// The account and region of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The account's id.
    pub id: String,
    /// The region.
    pub region: String,
}

/// Resources that a registered node reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedNode {
    /// Name of the EC2NodeClass.
    pub class: String,
    /// Its instance type.
    pub instance_type: String,
    /// Its image.
    pub image_id: String,
    /// The node's `status.capacity`.
    pub capacity: Resources,
    /// The node's `status.allocatable`.
    pub allocatable: Resources,
}

/// The resolved terms of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassFindings {
    /// Subnets that the terms match, by zone, those with the most free addresses first.
    pub subnets: Vec<SubnetStatus>,
    /// Security groups that the terms match.
    pub security_groups: Vec<String>,
    /// Images that the terms match, newest first per architecture.
    pub amis: Vec<AmiStatus>,
    /// The instance profile.
    pub instance_profile: Option<String>,
    /// `SubnetsReady`, `SecurityGroupsReady`, `AMIsReady`, `InstanceProfileReady`, `UserDataReady`, and `Ready` over them;
    /// others that aren't part of it.
    pub conditions: Vec<Statement>,
}

impl ClassFindings {
    /// True if instances can be launched.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.conditions.iter().any(|c| c.kind == croft_api::condition::READY && c.status == Some(true))
    }

    /// Why instances can't be launched.
    #[must_use]
    pub fn why_not(&self) -> Option<&str> {
        let ready = self.conditions.iter().find(|c| c.kind == croft_api::condition::READY);
        ready.filter(|c| c.status != Some(true)).map(|c| c.message.as_str())
    }
}

/// A request for one instance.
#[derive(Clone, Debug)]
pub struct LaunchRequest {
    /// The claim's name.
    pub claim_name: String,
    /// The claim's uid: with `attempt` it gives the client token.
    pub claim_uid: String,
    /// The pool.
    pub pool: String,
    /// The tenant that owns the pool, if exactly one does; for cost allocation.
    pub tenant: Option<String>,
    /// Counts from 1. A definite refusal increments it; an unknown outcome keeps it.
    pub attempt: i64,
    /// The EC2NodeClass.
    pub class: Arc<EC2NodeClass>,
    /// Types to launch one of, cheapest first.
    pub instance_types: Vec<String>,
    /// Zones to launch in, best first; empty for all.
    pub zones: Vec<String>,
    /// The launch's only capacity type.
    pub capacity_type: CapacityType,
    /// Total requests of the planned pods. Some need hardware that an instance has only if its launch requests it:
    /// network adapters of `vpc.amazonaws.com/efa`.
    pub requests: Resources,
    /// Labels for the kubelet to register with. The provider leaves out those that a kubelet may not set; the caller
    /// has to leave out the pool's key.
    pub labels: BTreeMap<String, String>,
    /// Taints for the kubelet to register with: the pool's, the template's, startup and unregistered.
    pub taints: Vec<Taint>,
    /// Tags in addition to the class's and Croft's own.
    pub tags: BTreeMap<String, String>,
}

/// A launch fixed to the last byte. It is stored in the claim's status before the call, and a retry after a crash sends
/// the stored one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// Hash of the whole request.
    pub hash: String,
    /// The request in the provider's compact form.
    pub body: String,
}

/// An instance that was launched for a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Launched {
    /// The instance.
    pub instance: CloudInstance,
    /// The capacity that its kubelet will report.
    pub capacity: Resources,
    /// Its allocatable resources.
    pub allocatable: Resources,
    /// Dollars per hour; `None` if unknown.
    pub price: Option<Price>,
    /// True if the price is an estimate.
    pub price_estimated: bool,
    /// Labels that follow from the instance: type, zone, capacity type, architecture, family, size, ...
    pub labels: BTreeMap<String, String>,
}

/// An instance as the cloud describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudInstance {
    /// The cloud's id, such as `i-0123456789abcdef0`.
    pub id: String,
    /// The node's `spec.providerID`: `aws:///us-east-1a/i-0123456789abcdef0`.
    pub provider_id: String,
    /// The name of its node, under which alone it may register.
    pub node_name: String,
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// Its image.
    pub image_id: String,
    /// Life-cycle state.
    pub state: InstanceState,
    /// Launch time, in seconds since 1970.
    pub launched_at: i64,
    /// Its status checks and scheduled changes. `None` if they aren't known; only [`CloudProvider::list`] asks for them.
    pub health: Option<InstanceHealth>,
    /// When it began to stop or terminate, in seconds since 1970, if the cloud says so.
    pub ended_at: Option<i64>,
    /// The claim's name, from its tags.
    pub claim: Option<String>,
    /// The claim's uid, from its tags.
    pub claim_uid: Option<String>,
    /// The pool, from its tags.
    pub pool: Option<String>,
    /// All tags.
    pub tags: BTreeMap<String, String>,
}

/// Life-cycle state of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InstanceState {
    /// Starting.
    #[default]
    Pending,
    /// Running.
    Running,
    /// Stopping; its node's pods have ended.
    Stopping,
    /// Stopped, which Croft treats as lost.
    Stopped,
    /// Terminating.
    ShuttingDown,
    /// Terminated.
    Terminated,
    /// The account and region have no instance with the id. Only an answer about ids has it, never a list.
    Unknown,
}

impl InstanceState {
    /// True while the instance is starting or running.
    #[must_use]
    pub fn is_alive(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }

    /// True once the instance is stopping, stopped, shutting down or terminated: its pods have ended or are about to.
    #[must_use]
    pub fn is_going(self) -> bool {
        matches!(self, Self::Stopping | Self::Stopped | Self::ShuttingDown | Self::Terminated)
    }
}

/// The result of terminating one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminated {
    /// The instance's id.
    pub id: String,
    /// Its state.
    pub state: InstanceState,
}

/// A notice that instances are about to be interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interruption {
    /// The kind of interruption.
    pub kind: InterruptionKind,
    /// The instances.
    pub instances: Vec<String>,
    /// Time of the notice, in seconds since 1970; 0 if unknown.
    pub at: i64,
    /// Time of the interruption, in seconds since 1970, by which the node must be drained. `None` if unknown or past.
    pub deadline: Option<i64>,
    /// Time at which the interruption is over, in seconds since 1970: an instance that runs then was spared. `None` if
    /// unknown.
    pub over_at: Option<i64>,
    /// The handle that acknowledges it.
    pub receipt: String,
}

/// A kind of interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InterruptionKind {
    /// Spot interrupts the instance in two minutes.
    SpotWarning,
    /// The risk of a spot interruption has risen.
    Rebalance,
    /// The instance is stopped, retired, maintained or rebooted at a set time.
    ScheduledChange,
    /// The instance is stopping or terminating, for any cause.
    StateChange,
    /// A message about no instance: acknowledged, counted, and otherwise ignored.
    Other,
}

impl InterruptionKind {
    /// The name in events and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SpotWarning => "SpotWarning",
            Self::Rebalance => "RebalanceRecommendation",
            Self::ScheduledChange => "ScheduledChange",
            Self::StateChange => "StateChange",
            Self::Other => "Other",
        }
    }

    /// True if the interruption can't be avoided, so that the node must be drained now.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::SpotWarning | Self::ScheduledChange | Self::StateChange)
    }
}

/// The cloud's id in a provider id such as `aws:///us-east-1a/i-0123456789abcdef0`.
#[must_use]
pub fn instance_id(provider_id: &str) -> &str {
    provider_id.rsplit('/').next().unwrap_or(provider_id)
}
