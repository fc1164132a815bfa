//! One entry of the log.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::payer::Share;

/// The longest message of an entry, in characters.
pub const MESSAGE_CHARS: usize = 1_000;
/// The most pods that one entry names.
pub const PODS_PER_ENTRY: usize = 200;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A process began to lead.
    Lead,
    /// A scheduling run whose result differs from the last one's.
    Plan,
    /// A NodeClaim was requested.
    Create,
    /// Pods stay pending.
    Pending,
    /// A condition of a NodeClaim changed.
    Condition,
    /// A decision that users also see as an Event.
    Event,
    /// The API server accepted an eviction.
    Evicted,
    /// The API server refused an eviction.
    EvictionBlocked,
    /// The controller deleted a NodeClaim, a Node or a pod.
    Delete,
    /// A NodeClaim is being deleted, by whomever.
    Deleting,
    /// The NodeClaim is gone, and with it its instance.
    Gone,
    /// The controller terminated an instance.
    Terminate,
    /// An instance began to terminate, by whomever: nothing is paid for it from then on.
    Ended,
    /// A pod was bound to the node that was launched for it.
    Bound,
    /// The state of a node: what it costs and which pods it runs.
    State,
    /// Entries that could not be kept until they were written.
    Lost,
    /// A kind that this version doesn't know.
    #[serde(other)]
    Unknown,
}

impl EntryKind {
    /// The kind in a table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lead => "leader",
            Self::Plan => "plan",
            Self::Create => "create",
            Self::Pending => "pending",
            Self::Condition => "condition",
            Self::Event => "event",
            Self::Evicted => "evicted",
            Self::EvictionBlocked => "eviction blocked",
            Self::Delete => "delete",
            Self::Deleting => "deleting",
            Self::Gone => "gone",
            Self::Terminate => "terminate",
            Self::Ended => "ended",
            Self::Bound => "bound",
            Self::State => "state",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
        }
    }
}

/// A reference to an object: `Kind/name` or `Kind/namespace/name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// The kind.
    pub kind: String,
    /// The namespace; empty for objects without one.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectRef {
    /// An object without a namespace.
    #[must_use]
    pub fn cluster(kind: &str, name: &str) -> Self {
        Self { kind: kind.to_owned(), namespace: String::new(), name: name.to_owned() }
    }

    /// An object in a namespace.
    #[must_use]
    pub fn namespaced(kind: &str, namespace: &str, name: &str) -> Self {
        Self { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// True if the entry is about no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kind.is_empty()
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}/{}", self.kind, self.name)
        } else {
            write!(f, "{}/{}/{}", self.kind, self.namespace, self.name)
        }
    }
}

impl Serialize for ObjectRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ObjectRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut parts = text.splitn(3, '/');
        let mut next = || parts.next().unwrap_or_default();
        let (kind, second, third) = (next(), next(), next());
        Ok(if third.is_empty() { Self::cluster(kind, second) } else { Self::namespaced(kind, second, third) })
    }
}

/// The figures of a scheduling run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanFigures {
    /// A digest of the objects that the run read, each by its uid and version, and of the offerings.
    pub inputs: String,
    /// Instances to launch.
    pub instances: usize,
    /// Pods that they are launched for.
    pub pods: usize,
    /// Pods with a place on an existing node or on one in flight.
    pub placed: usize,
    /// Pods that stay pending.
    pub unschedulable: usize,
    /// Price of the instances to launch, in millionths of a dollar per hour.
    pub cost: i64,
    /// No plan can be below this cost.
    pub bound: i64,
    /// Steps that the search counted.
    pub steps: u64,
}

/// An instance that a NodeClaim has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceFacts {
    /// Its id at EC2.
    pub id: String,
    /// Its type.
    #[serde(rename = "type")]
    pub instance_type: String,
    /// Its zone.
    pub zone: String,
    /// `on-demand`, `spot` or `reserved`.
    #[serde(rename = "paid")]
    pub capacity_type: String,
    /// The template of its pool that it was launched by; empty if the pool had only one kind of node.
    #[serde(rename = "tpl", default, skip_serializing_if = "String::is_empty")]
    pub template: String,
    /// When it was launched, by EC2's clock, in milliseconds since 1970.
    #[serde(rename = "up", default, skip_serializing_if = "Option::is_none")]
    pub launched: Option<i64>,
    /// When it began to terminate, by EC2's clock if that says so, in milliseconds since 1970.
    #[serde(rename = "down", default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<i64>,
    /// The list price of a reserved instance, which a commitment pays for, in millionths of a dollar per hour.
    #[serde(rename = "list", default, skip_serializing_if = "Option::is_none")]
    pub list_price: Option<i64>,
}

/// The allocatable resources of a node, and the requests of its pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Allocatable CPU, in thousandths.
    #[serde(rename = "cpu")]
    pub cpu_millis: u64,
    /// Allocatable memory, in bytes.
    #[serde(rename = "mem")]
    pub memory_bytes: u64,
    /// Requests, by workload.
    #[serde(rename = "of", default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<Share>,
}

/// One entry. Fields that an entry doesn't need are empty and aren't written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number; numbers grow, also from one leader to the next.
    #[serde(rename = "n")]
    pub sequence: u64,
    /// Milliseconds since 1970, by the leader's clock.
    #[serde(rename = "t")]
    pub at: i64,
    /// The kind.
    #[serde(rename = "k")]
    pub kind: EntryKind,
    /// The object that it is about.
    #[serde(rename = "o", default, skip_serializing_if = "ObjectRef::is_empty")]
    pub object: ObjectRef,
    /// The NodeClaim that it concerns, if that isn't the object.
    #[serde(rename = "claim", default, skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// The node that it concerns.
    #[serde(rename = "node", default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The pool.
    #[serde(rename = "pool", default, skip_serializing_if = "String::is_empty")]
    pub pool: String,
    /// The tenants that it concerns.
    #[serde(rename = "ten", default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<String>,
    /// Pods that it concerns, as `namespace/name`.
    #[serde(rename = "pods", default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<String>,
    /// Type and status of a condition: `Launched=True`.
    #[serde(rename = "c", default, skip_serializing_if = "String::is_empty")]
    pub condition: String,
    /// The reason, in CamelCase.
    #[serde(rename = "r", default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A sentence.
    #[serde(rename = "m", default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Price of the node, in millionths of a dollar per hour.
    #[serde(rename = "usd", default, skip_serializing_if = "Option::is_none")]
    pub price: Option<i64>,
    /// The figures of a plan.
    #[serde(rename = "plan", default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanFigures>,
    /// The instance of the NodeClaim.
    #[serde(rename = "inst", default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<InstanceFacts>,
    /// The resources of the node, and the requests of its pods.
    #[serde(rename = "use", default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

impl Entry {
    /// An entry of `kind` at a time, with everything else empty.
    #[must_use]
    pub const fn new(at: i64, kind: EntryKind) -> Self {
        Self {
            sequence: 0,
            at,
            kind,
            object: ObjectRef { kind: String::new(), namespace: String::new(), name: String::new() },
            claim: String::new(),
            node: String::new(),
            pool: String::new(),
            tenants: Vec::new(),
            pods: Vec::new(),
            condition: String::new(),
            reason: String::new(),
            message: String::new(),
            price: None,
            plan: None,
            instance: None,
            usage: None,
        }
    }

    /// The name of the NodeClaim that it concerns; empty if it concerns none.
    #[must_use]
    pub fn claim_name(&self) -> &str {
        if self.object.kind == "NodeClaim" { &self.object.name } else { &self.claim }
    }

    /// The same within the bounds of an entry, so that one entry can't fill a segment.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        if let Some((end, _)) = self.message.char_indices().nth(MESSAGE_CHARS) {
            self.message.truncate(end);
        }
        self.pods.truncate(PODS_PER_ENTRY);
        if let Some(usage) = &mut self.usage {
            usage.shares.truncate(PODS_PER_ENTRY);
        }
        self
    }
}
