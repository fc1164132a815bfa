//! What a decision can ask for, and what comes back.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::{EC2NodeClass, NodeClaim, NodeClaimSpec};
use croft_cloud::{
    ClassFindings, CloudMachine, InUse, Interruption, LaunchRequest, ObservedNode, Shortage, Terminated,
};
use croft_scheduler::{
    Cluster, InstanceType, PodKey,
    consolidation::{Ask, Consolidation},
};
use k8s_openapi::api::core::v1::ObjectReference;

use crate::{
    seam::{Answer, Call, Target},
    solver::Panicked,
    time::Now,
};

/// What an action holds while it is under way: no second action on the same key starts before it has ended,
/// and none before its rest after a failure is over.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// Making claims for a pool.
    Plan(String),
    /// A claim: its launch, its status, its deletion.
    Claim(String),
    /// A node.
    Node(String),
    /// A pod that is asked to leave.
    Pod(PodKey),
    /// A machine that is asked to go.
    Machine(String),
    /// The question about single instances.
    Instances,
    /// The tags of an instance.
    Tags(String),
    /// The status of a pool.
    Pool(String),
    /// The status of the CroftConfig.
    Config,
    /// What a class names.
    Class(String),
    /// What the cloud offers to a class.
    Offers(String),
    /// The list of machines.
    Machines,
    /// What launches left behind.
    Sweep,
    /// The search for a cheaper cluster.
    Consolidation,
    /// News from the cloud.
    News,
    /// Taking handled news off the queue.
    Receipts,
    /// What machines really have.
    Capacity,
}

/// One effect.
#[derive(Clone, Debug)]
pub enum Action {
    /// Reserves names in the pool's counter, then creates the claims.
    CreateClaims(NewClaims),
    /// Launches a claim's machine, or learns what became of an earlier launch.
    Launch(Box<Launch>),
    /// Tells the planned pods, then gives the node its labels and takes the unregistered taint off, then says so
    /// on the claim.
    Register(Box<Registration>),
    /// One call to the API server.
    Write {
        /// What it holds.
        key: Key,
        /// The call.
        call: Call,
        /// How long the key rests after success: until the watch has shown what the answer doesn't.
        rest: Duration,
    },
    /// Asks the API server itself whether pods are still on an instance that is to go.
    LookForPods(Look),
    /// Asks the API server itself whether the Node of a claim is there.
    LookForNode(Arc<NodeClaim>),
    /// Asks the cloud about instances by their ids, whatever their tags.
    DescribeInstances(Vec<String>),
    /// Writes tags onto an instance, with the one that says which cluster it belongs to.
    Tag {
        /// The instance's id.
        id: String,
        /// The other tags.
        tags: BTreeMap<String, String>,
    },
    /// Terminates machines, or asks how far their termination is.
    Terminate {
        /// The machines' ids.
        ids: Vec<String>,
    },
    /// Looks for the machine of a claim whose launch wasn't answered and which is to go.
    FindMachine(Arc<NodeClaim>),
    /// Lists the machines of the cluster.
    ListMachines,
    /// Looks up what a class names, and writes it into its status.
    Resolve(Resolution),
    /// Asks what the cloud offers to a class.
    AskOffers(Arc<EC2NodeClass>),
    /// Removes launch templates and profiles that nothing uses.
    Sweep(InUse),
    /// Searches for a cheaper cluster.
    Consolidate(Box<Search>),
    /// Waits for news about machines that are about to be taken away.
    AwaitNews,
    /// Takes handled news off the queue.
    Acknowledge(Vec<Interruption>),
    /// Tells the cloud's provider what nodes really have.
    ObserveCapacity(Vec<ObservedNode>),
    /// Tells a user.
    Tell(Notice),
}

/// Where to look for pods before an instance is terminated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The claim's name, or the instance's id where no claim has it: what the answer is kept under.
    pub subject: String,
    /// The instance.
    pub instance: String,
    /// The instance, as its Node says it.
    pub provider_id: String,
    /// The name that the cloud gives the instance's Node.
    pub node: String,
    /// Uids of pods that have ended for all that is known, though they are still there.
    pub ended: BTreeSet<Box<str>>,
}

/// What to search in, and for what.
#[derive(Clone, Debug)]
pub struct Search {
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
    /// The pool's resourceVersion: the counter is reserved on this one, so that nobody else has the names.
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
    /// What it asks for.
    pub spec: NodeClaimSpec,
    /// Owner, finalizer and the like: the object as it is created.
    pub object: serde_json::Value,
}

/// A machine to launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The claim as it is now, with the attempt that it records.
    pub claim: Arc<NodeClaim>,
    /// What to ask for, if no earlier request is still to be answered. Its `attempt` is the next number.
    pub request: LaunchRequest,
}

/// A node to take in.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The claim as it is now.
    pub claim: Arc<NodeClaim>,
    /// The node's name.
    pub node: String,
    /// Strategic merge patch of the node.
    pub patch: serde_json::Value,
    /// Pods, with their uids, that the plan means for it.
    pub pods: Vec<(PodKey, Box<str>)>,
}

/// A class to look up.
#[derive(Clone, Debug)]
pub struct Resolution {
    /// The class as it is now.
    pub class: Arc<EC2NodeClass>,
    /// What was found before and has been missing since then is believed to be gone.
    pub confirmed: bool,
}

/// Something to tell a user by an Event.
#[derive(Clone, Debug)]
pub struct Notice {
    /// The object that it's about.
    pub about: ObjectReference,
    /// True for a warning.
    pub warning: bool,
    /// A CamelCase word.
    pub reason: Cow<'static, str>,
    /// A sentence.
    pub note: String,
}

impl Action {
    /// What the action holds.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        let name = |o: &NodeClaim| o.metadata.name.clone().unwrap_or_default();
        match self {
            Self::CreateClaims(new) => {
                // Nothing touches a claim before it is certain that its create isn't repeated any more: one that
                // came and went in between would be made a second time.
                let claims = new.claims.iter().map(|claim| Key::Claim(claim.name.clone()));
                [Key::Plan(new.pool.clone()), Key::Pool(new.pool.clone())].into_iter().chain(claims).collect()
            }
            Self::Launch(launch) => vec![Key::Claim(name(&launch.claim))],
            Self::Register(registration) => {
                vec![Key::Claim(name(&registration.claim)), Key::Node(registration.node.clone())]
            }
            Self::Write { key, .. } => vec![key.clone()],
            Self::LookForPods(look) => vec![Key::Machine(look.instance.clone())],
            Self::LookForNode(claim) => {
                let node = claim.status.as_ref().and_then(|s| s.node_name.clone());
                vec![Key::Node(node.unwrap_or_default())]
            }
            Self::DescribeInstances(_) => vec![Key::Instances],
            Self::Tag { id, .. } => vec![Key::Tags(id.clone())],
            Self::Terminate { ids } => ids.iter().cloned().map(Key::Machine).collect(),
            Self::FindMachine(claim) => vec![Key::Claim(name(claim))],
            Self::ListMachines => vec![Key::Machines],
            Self::Resolve(Resolution { class, .. }) => {
                vec![Key::Class(class.metadata.name.clone().unwrap_or_default())]
            }
            Self::AskOffers(class) => vec![Key::Offers(class.metadata.name.clone().unwrap_or_default())],
            Self::Sweep(_) => vec![Key::Sweep],
            Self::Consolidate(_) => vec![Key::Consolidation],
            Self::AwaitNews => vec![Key::News],
            Self::Acknowledge(_) => vec![Key::Receipts],
            Self::ObserveCapacity(_) => vec![Key::Capacity],
            Self::Tell(_) => Vec::new(),
        }
    }

    /// The action's name, for metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::CreateClaims(_) => "create_claims",
            Self::Launch(_) => "launch",
            Self::Register(_) => "register",
            Self::Write { .. } => "write",
            Self::LookForPods(_) => "look_for_pods",
            Self::LookForNode(_) => "look_for_node",
            Self::DescribeInstances(_) => "describe_instances",
            Self::Tag { .. } => "tag",
            Self::Terminate { .. } => "terminate",
            Self::FindMachine(_) => "find_machine",
            Self::ListMachines => "list_machines",
            Self::Resolve(_) => "resolve",
            Self::AskOffers(_) => "ask_offers",
            Self::Sweep(_) => "sweep",
            Self::Consolidate(_) => "consolidate",
            Self::AwaitNews => "await_news",
            Self::Acknowledge(_) => "acknowledge",
            Self::ObserveCapacity(_) => "observe_capacity",
            Self::Tell(_) => "tell",
        }
    }
}

/// How an action ended.
#[derive(Debug)]
pub struct Report {
    /// What it held.
    pub keys: Vec<Key>,
    /// Objects as they are now.
    pub answers: Vec<Answer>,
    /// What was learned beside them.
    pub news: Vec<News>,
    /// When the keys are free again.
    pub rest: Rest,
}

impl Report {
    /// Ended well.
    #[must_use]
    pub fn done(keys: Vec<Key>) -> Self {
        Self { keys, answers: Vec::new(), news: Vec::new(), rest: Rest::None }
    }
}

/// When a key is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// At once.
    None,
    /// After this long; nothing went wrong.
    For(Duration),
    /// After a while that grows with every failure in a row.
    Grow,
    /// After this long at first, and twice as long with every failure in a row.
    GrowFrom(Duration),
    /// After this long, since something failed that has its own pace.
    Failed(Duration),
}

/// What an action learned beside objects.
#[derive(Debug)]
pub enum News {
    /// A launch has ended for good without a machine.
    LaunchFailed {
        /// The claim.
        claim: String,
        /// Why, as a word.
        reason: &'static str,
        /// Why, as a sentence.
        message: String,
    },
    /// Claims that weren't made, so that what was planned for them isn't any more.
    NotCreated(Vec<String>),
    /// What the cloud offers to a class.
    Offers(String, Result<Arc<[InstanceType]>, String>),
    /// What the cloud has set aside for want of capacity.
    Shortages(Vec<Shortage>),
    /// What the cloud has of what a class names.
    Findings(String, Box<ClassFindings>),
    /// The machines, and when they were asked for.
    Machines(Now, Vec<CloudMachine>),
    /// How far the termination of machines is.
    Terminated(Vec<Terminated>),
    /// Nothing that would have to leave was on the instance of this claim, or on this instance without a claim, as the
    /// API server said after this moment of the monotonic clock.
    Vacant(String, Duration),
    /// The API server had no Node of this claim after this moment of the monotonic clock.
    NoNode(String, Duration),
    /// What the cloud said of these ids, asked at this moment of the monotonic clock.
    Described(Duration, Vec<String>, Vec<CloudMachine>),
    /// There is no machine of this claim, as far as the cloud shows.
    NoMachine(String),
    /// What the search for a cheaper cluster found.
    Consolidation(Box<Consolidation>),
    /// The pools that a search was about, and those for which it panicked.
    Searched(BTreeSet<String>, BTreeMap<String, Panicked>),
    /// A pod can't be evicted now.
    EvictionBlocked(PodKey, String),
    /// The API server has no object of this name, so that the one with this uid is gone.
    NotFound(Target, String),
    /// Machines are about to be taken away.
    Interruptions(Vec<Interruption>),
    /// These were taken off the queue.
    Acknowledged(Vec<Interruption>),
    /// What the cloud offers is to be asked for anew.
    OffersStale,
}
