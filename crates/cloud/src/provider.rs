//! The calls that the controller makes, and what goes in and comes out of them.

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
    supply::Shortage,
};

/// A cloud that machines come from. Every method can be called again after any failure.
#[async_trait]
pub trait CloudProvider: Send + Sync {
    /// Looks up what the class names. Never fails: what can't be found or asked is a condition, and what
    /// was found earlier stays usable while the cloud is away.
    async fn resolve(&self, class: &EC2NodeClass) -> ClassFindings;

    /// The types that the class's images, subnets and zones allow, with offerings and prices. An offering
    /// that lately had no machine to give is there with `available: false`.
    async fn instance_types(&self, class: &EC2NodeClass) -> Result<Arc<[InstanceType]>, CloudError>;

    /// Makes everything that a launch needs (launch template, instance profile) and fixes the request to
    /// the last byte. Launches nothing.
    async fn prepare(&self, request: &LaunchRequest) -> Result<Prepared, LaunchError>;

    /// Launches one machine. Sending the same `Prepared` twice launches one machine.
    async fn launch(&self, prepared: &Prepared) -> Result<Launched, LaunchError>;

    /// The machine of a claim, for when the answer to a launch was lost. `None` is not proof of absence
    /// until the cloud's eventual consistency has had its time: repeat the launch instead of giving up.
    async fn find_by_claim(&self, claim_uid: &str) -> Result<Option<Launched>, CloudError>;

    /// Every machine of this cluster that is not yet terminated.
    async fn list(&self) -> Result<Vec<CloudMachine>, CloudError>;

    /// The instances with these ids, whatever their tags, in any state that the cloud still shows. An id that the
    /// answer lacks is unknown to the account and region that were asked, which doesn't prove that its instance is
    /// gone: it may be another account's, or too young to be visible.
    async fn describe(&self, ids: &[String]) -> Result<Vec<CloudMachine>, CloudError>;

    /// The account and region that every call goes to.
    async fn account(&self) -> Result<Account, CloudError>;

    /// Terminates instances, and says of each how far it is. Terminating one again changes nothing. An id that the
    /// account and region don't have is [`MachineState::Unknown`], never terminated.
    async fn terminate(&self, ids: &[String]) -> Result<Vec<Terminated>, CloudError>;

    /// Adds tags to an instance, and the tag that says which cluster it belongs to.
    async fn tag(&self, id: &str, tags: &BTreeMap<String, String>) -> Result<(), CloudError>;

    /// Waits (up to 20 s) for news about machines that are about to be taken away. News comes again until
    /// it is acknowledged. Without an interruption queue it waits and returns nothing.
    async fn interruptions(&self) -> Result<Vec<Interruption>, CloudError>;

    /// Takes handled news off the queue.
    async fn acknowledge(&self, news: &[Interruption]) -> Result<(), CloudError>;

    /// Tells what a registered node really has, so that the next plan for its type uses that. Tell it of every
    /// initialized node, also after a restart: it costs nothing where nothing is new. Returns true if it
    /// changed what [`CloudProvider::instance_types`] answers.
    fn observe_capacity(&self, node: &ObservedNode) -> bool;

    /// The offerings that are set aside now, with the refusal of each: what pools' conditions say
    /// ([`crate::supply::survey`]).
    fn shortages(&self) -> Vec<Shortage>;

    /// Removes launch templates and instance profiles of this cluster that nothing of `used` uses any more.
    async fn sweep(&self, used: &InUse) -> Result<usize, CloudError>;
}

/// What uses launch templates and instance profiles.
#[derive(Clone, Debug, Default)]
pub struct InUse {
    /// Every class: the profile of its role stays.
    pub classes: Vec<EC2NodeClass>,
    /// The requests stored in claims, which may be sent again: what they name stays.
    pub unanswered: Vec<Prepared>,
    /// Ids of the claims' instances: their profiles stay, also where an instance has lost the tag by which it is listed.
    pub instances: Vec<String>,
}

/// The account and region that calls go to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The account's id.
    pub id: String,
    /// The region.
    pub region: String,
}

/// What a registered node says that it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedNode {
    /// Name of the EC2NodeClass.
    pub class: String,
    /// The machine's type.
    pub instance_type: String,
    /// The image it booted.
    pub image_id: String,
    /// The node's `status.capacity`.
    pub capacity: Resources,
    /// The node's `status.allocatable`.
    pub allocatable: Resources,
}

/// What the cloud has of what a class names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassFindings {
    /// Subnets that the terms match, by zone, the emptiest first.
    pub subnets: Vec<SubnetStatus>,
    /// Security groups that the terms match.
    pub security_groups: Vec<String>,
    /// Images that the terms match, newest first per architecture.
    pub amis: Vec<AmiStatus>,
    /// The instance profile of the machines.
    pub instance_profile: Option<String>,
    /// `SubnetsReady`, `SecurityGroupsReady`, `AMIsReady`, `InstanceProfileReady`, and `Ready` over them.
    pub conditions: Vec<Statement>,
}

impl ClassFindings {
    /// True if machines can be launched.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.conditions.iter().any(|c| c.kind == croft_api::condition::READY && c.status == Some(true))
    }

    /// The sentence of the first condition that doesn't hold.
    #[must_use]
    pub fn why_not(&self) -> Option<&str> {
        self.conditions.iter().find(|c| c.status != Some(true)).map(|c| c.message.as_str())
    }
}

/// One machine wanted.
#[derive(Clone, Debug)]
pub struct LaunchRequest {
    /// The claim's name.
    pub claim_name: String,
    /// The claim's uid: with `attempt` it makes the client token.
    pub claim_uid: String,
    /// The pool.
    pub pool: String,
    /// The tenant that owns the pool, if exactly one does; for cost allocation.
    pub tenant: Option<String>,
    /// Counts from 1. A definite refusal starts the next; an unknown outcome keeps it.
    pub attempt: i64,
    /// How the machine is made.
    pub class: Arc<EC2NodeClass>,
    /// Types to launch one of, cheapest first.
    pub instance_types: Vec<String>,
    /// Zones to launch in, best first; empty for all.
    pub zones: Vec<String>,
    /// The one capacity type of the launch.
    pub capacity_type: CapacityType,
    /// Sum of what the planned pods ask for. Some of it needs hardware that a machine has only if its launch
    /// says so: network adapters of `vpc.amazonaws.com/efa`.
    pub requests: Resources,
    /// Labels for the kubelet to register with. Those that a kubelet may not set are left out by the
    /// provider, and so must the pool's key be by the caller.
    pub labels: BTreeMap<String, String>,
    /// Taints for the kubelet to register with: the pool's, the template's, startup and unregistered.
    pub taints: Vec<Taint>,
    /// Tags in addition to the class's and Croft's own.
    pub tags: BTreeMap<String, String>,
}

/// A launch fixed to the last byte. It is stored in the claim's status before the call, and a repeat
/// after a crash sends the stored one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// Hash of the whole request.
    pub hash: String,
    /// The request in the provider's own compact form.
    pub body: String,
}

/// A machine that was launched for a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Launched {
    /// The machine.
    pub machine: CloudMachine,
    /// What it has, as its kubelet will report.
    pub capacity: Resources,
    /// What pods may use of that.
    pub allocatable: Resources,
    /// Dollars per hour; `None` when nobody knows.
    pub price: Option<Price>,
    /// True if the price is an estimate.
    pub price_estimated: bool,
    /// Labels that follow from the machine: type, zone, capacity type, architecture, family, size, ...
    pub labels: BTreeMap<String, String>,
}

/// A machine as the cloud shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudMachine {
    /// The cloud's id, such as `i-0123456789abcdef0`.
    pub id: String,
    /// As the node's `spec.providerID` says it: `aws:///us-east-1a/i-0123456789abcdef0`.
    pub provider_id: String,
    /// The name that its node has: the only one that may register for it.
    pub node_name: String,
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// The image it booted.
    pub image_id: String,
    /// Life-cycle state.
    pub state: MachineState,
    /// When it was launched, in seconds since 1970.
    pub launched_at: i64,
    /// The claim's name, from its tags.
    pub claim: Option<String>,
    /// The claim's uid, from its tags.
    pub claim_uid: Option<String>,
    /// The pool, from its tags.
    pub pool: Option<String>,
    /// All tags.
    pub tags: BTreeMap<String, String>,
}

/// Life-cycle state of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MachineState {
    /// Being started.
    #[default]
    Pending,
    /// Up.
    Running,
    /// Being stopped; its node's pods are gone.
    Stopping,
    /// Stopped, which Croft treats as lost.
    Stopped,
    /// Being terminated.
    ShuttingDown,
    /// Gone.
    Terminated,
    /// The account and region that were asked have no instance with the id. Said of ids only, never by a list.
    Unknown,
}

impl MachineState {
    /// True while the machine runs or will.
    #[must_use]
    pub fn is_alive(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }

    /// True once the instance is stopping, stopped, shutting down or terminated: what ran there has ended or is about to.
    #[must_use]
    pub fn is_going(self) -> bool {
        matches!(self, Self::Stopping | Self::Stopped | Self::ShuttingDown | Self::Terminated)
    }
}

/// One instance that was asked to go, as the cloud said of its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminated {
    /// The machine's id.
    pub id: String,
    /// Its state now.
    pub state: MachineState,
}

/// News that a machine is about to be taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interruption {
    /// What is going to happen.
    pub kind: InterruptionKind,
    /// The machines it happens to.
    pub machines: Vec<String>,
    /// When it was said, in seconds since 1970; 0 if the news doesn't tell.
    pub at: i64,
    /// When it happens, in seconds since 1970: everything has to be off the machine by then. `None` if that
    /// isn't known, or has been already.
    pub deadline: Option<i64>,
    /// When it is over, in seconds since 1970: an instance that works then was spared. `None` if that isn't known.
    pub over_at: Option<i64>,
    /// What acknowledges it.
    pub receipt: String,
}

/// What is going to happen to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InterruptionKind {
    /// The cloud takes a spot machine back in two minutes.
    SpotWarning,
    /// A spot machine is likelier to be taken back than before.
    Rebalance,
    /// The host is retired or maintained at a set time.
    ScheduledChange,
    /// The machine is stopping or terminating, by whosever hand.
    StateChange,
    /// A message that isn't about machines: acknowledged, counted, and otherwise ignored.
    Other,
}

impl InterruptionKind {
    /// The word for events and metrics.
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

    /// True if the machine goes whatever anybody does, so that its pods must leave now.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::SpotWarning | Self::ScheduledChange | Self::StateChange)
    }
}
