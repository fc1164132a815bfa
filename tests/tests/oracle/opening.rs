//! Orders in which pods are opened.

use std::{cmp::Reverse, collections::BTreeSet};

use croft_simkit::Random;
use serde_json::Value;

use super::pods::{group_of, key, priority};

/// How pending pods are opened to kube-scheduler.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Nominated, in the order of the demand, those of one priority with a nomination first, and the planned ones of their
    /// groups: kube-scheduler holds all of them in its queue when a node comes, and a nomination keeps its room from pods of
    /// the same priority, whichever is tried first.
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
    /// Puts the pods of a turn in the order in which they are opened; `said` are those with a nomination, `planned` those with a
    /// place.
    pub fn sort(
        self,
        pods: &mut [&Value],
        said: &BTreeSet<&str>,
        planned: &BTreeSet<&str>,
        random: &mut Random,
    ) {
        let groups: BTreeSet<&str> = said.iter().map(|pod| group_of(pod)).collect();
        let is_first =
            |pod: &str| said.contains(pod) || planned.contains(pod) && groups.contains(group_of(pod));
        match self {
            Self::InOrder => {
                pods.sort_by_key(|pod| (Reverse(priority(&pod["spec"])), !is_first(key(pod).1)));
            }
            Self::Shuffled | Self::AtOnce => pods.sort_by_cached_key(|_| random.index(usize::MAX)),
            Self::Unaided => {}
        }
    }
}
