//! Records that the snapshot holds beside the objects themselves.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::{EC2NodeClass, NodeClaim, TenantPool};
use croft_cloud::CloudInstance;
use croft_scheduler::{CapacityType, InstanceType, PodKey};
use jiff::Timestamp;

use super::views::instance_of;
use crate::{kube_api::Kind, time::Now};

/// A class and its offerings.
#[derive(Clone, Debug)]
pub struct ClassState {
    /// The class.
    pub object: Arc<EC2NodeClass>,
    /// The instance types that it may launch, with offerings; `None` until they are first listed.
    pub types: Option<Arc<[InstanceType]>>,
    /// Why the last list of instance types failed.
    pub types_error: Option<String>,
}

/// A claim on reserved capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReservedClaim {
    pub(super) class: String,
    pub(super) instance_type: String,
    pub(super) zone: String,
}

/// A list of the cloud's instances.
#[derive(Clone, Debug)]
pub struct InstanceList {
    /// When the list was requested.
    pub asked: Now,
    /// The instances, by id.
    pub instances: BTreeMap<String, CloudInstance>,
}

/// What one template of a pool may not launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchHold {
    /// Why it launches nothing at all: nodes launched before didn't come.
    pub why: Option<String>,
    /// True while it rests, since a launch found no capacity for it.
    pub rests: bool,
    /// Offerings that are left out: instance type, zone, capacity type.
    pub offerings: BTreeSet<(String, String, CapacityType)>,
}

/// Launch holds by pool and template; the only template of a pool has an empty name.
pub type LaunchHolds = BTreeMap<String, BTreeMap<String, LaunchHold>>;

/// Objects of Croft's whose newest version is invalid, by kind and name.
#[derive(Debug, Default)]
pub struct InvalidObjects(BTreeMap<(Kind, String), InvalidObject>);

/// The problem of an object's newest version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidObject {
    /// The path of a field, and a sentence.
    pub why: String,
    /// True if no earlier version is held, so that a stand-in is in force.
    pub stands_in: bool,
    /// True if admission has no earlier version of the fields that it reads.
    pub has_no_valid_version: bool,
}

impl InvalidObjects {
    /// The problem of an object.
    #[must_use]
    pub fn get(&self, kind: Kind, name: &str) -> Option<&InvalidObject> {
        // Usually there is none, and each pass asks about every namespace.
        (!self.0.is_empty()).then(|| self.0.get(&(kind, name.to_owned()))).flatten()
    }

    /// True if admission has no valid version of an object.
    #[must_use]
    pub fn has_no_valid_version(&self, kind: Kind, name: &str) -> bool {
        self.get(kind, name).is_some_and(|invalid| invalid.has_no_valid_version)
    }

    /// The number of objects by kind.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&'static str, i64> {
        let mut counts = BTreeMap::new();
        for (kind, _) in self.0.keys() {
            *counts.entry(kind.name()).or_default() += 1;
        }
        counts
    }

    pub(super) fn insert(&mut self, kind: Kind, name: &str, invalid: InvalidObject) -> bool {
        if self.get(kind, name) == Some(&invalid) {
            return false;
        }
        tracing::warn!(
            kind = kind.name(),
            name,
            error = invalid.why,
            "invalid object: it can't be read or breaks a rule of its CRD"
        );
        self.0.insert((kind, name.to_owned()), invalid);
        true
    }

    pub(super) fn remove(&mut self, kind: Kind, name: &str) -> bool {
        !self.0.is_empty() && self.0.remove(&(kind, name.to_owned())).is_some()
    }
}

/// The headroom of all pools.
#[derive(Debug, Default)]
pub(super) struct Headroom {
    pub(super) pools: BTreeMap<String, HeadroomStatus>,
    /// The headroom pods that each node, or claim without a Node, holds.
    pub(super) at: BTreeMap<String, Vec<PodKey>>,
}

/// The headroom of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadroomStatus {
    /// Headroom pods that the spec asks for.
    pub wanted: usize,
    /// Headroom pods that have a place on a node, or on a claim that was requested.
    pub placed: usize,
    /// Why some have no place.
    pub why: Option<String>,
}

/// The claim that a pod is planned onto.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nomination {
    pub(super) claim: String,
    pub(super) pod_uid: Box<str>,
}

/// A pod that was bound after a node was launched for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundPod {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The pool of the node.
    pub pool: String,
    /// Time from its becoming pending until its binding was observed.
    pub waited: Duration,
}

/// Instances without a claim that count towards limits.
#[derive(Debug, Default)]
pub(super) struct Unclaimed {
    /// Deleted claims whose instance isn't certainly terminated, by uid.
    pub(super) lost: BTreeMap<String, LostClaim>,
    /// Their names in the scheduler's cluster.
    pub(super) counted: BTreeSet<String>,
    /// When the list of instances was requested that was last evaluated.
    pub(super) evaluated: Option<Now>,
}

/// A claim that was deleted.
#[derive(Debug)]
pub(super) struct LostClaim {
    pub(super) claim: Arc<NodeClaim>,
    /// When its deletion was observed.
    pub(super) since: Now,
    /// Croft released it, since its instance was gone: it doesn't count towards limits.
    pub(super) released: bool,
}

impl Unclaimed {
    /// The instances are to be counted again although their list is the same: what they are counted by has changed, such as a
    /// Node that an instance counted as.
    pub(super) fn count_again(&mut self) {
        self.evaluated = None;
    }

    /// Adds a deleted claim: its instance, or one that is being launched for it, may still exist.
    pub(super) fn insert_deleted(&mut self, claim: Arc<NodeClaim>, now: Now) {
        if let Some(uid) = claim.metadata.uid.clone() {
            self.lost.insert(uid, LostClaim { claim, since: now, released: false });
        }
    }

    /// Records that a claim was released. An instance that the cloud didn't know may still work, and is described again.
    pub(super) fn release(&mut self, uid: &str) {
        match self.lost.get_mut(uid) {
            Some(lost) if instance_of(&lost.claim).is_some() => lost.released = true,
            _ => self.remove(uid),
        }
    }

    /// Removes a claim that exists again.
    pub(super) fn remove(&mut self, uid: &str) {
        self.lost.remove(uid);
    }
}

/// A pool with schedules.
#[derive(Debug)]
pub struct ScheduledPool {
    /// The pool as it is declared.
    pub(super) declared: Arc<TenantPool>,
    /// The schedule that holds.
    pub in_force: Option<usize>,
    /// When that was found.
    pub(super) since: Timestamp,
    /// When the next schedule begins or ends.
    pub until: Option<Timestamp>,
}
