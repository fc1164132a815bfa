//! Orders in which pods are opened.

use std::{cmp::Reverse, collections::BTreeMap};

use croft_simkit::Random;
use serde_json::Value;

use super::pods::{key, priority};

/// How pending pods are opened to kube-scheduler.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Nominated, in the order of the demand, those of one priority with a nomination first: kube-scheduler holds all of
    /// them in its queue when a node comes, and a nomination keeps pods of the same priority out, whichever is tried first.
    InOrder,
    /// Nominated, in a random order within each of three turns: pods for existing, coming and planned nodes.
    Shuffled,
    /// Nominated, with every node there and all pods in a random order: nominations alone keep pods from each other's
    /// places.
    AtOnce,
    /// In the order of the demand, all at the end, without nominations.
    Unaided,
}

impl Opening {
    /// Puts the pods of a turn in the order in which they are opened; `said` are those with a nomination.
    pub fn sort(self, pods: &mut [&Value], said: &BTreeMap<String, String>, random: &mut Random) {
        match self {
            Self::InOrder => {
                pods.sort_by_key(|pod| (Reverse(priority(&pod["spec"])), !said.contains_key(key(pod).1)))
            }
            Self::Shuffled | Self::AtOnce => pods.sort_by_cached_key(|_| random.index(usize::MAX)),
            Self::Unaided => {}
        }
    }
}
