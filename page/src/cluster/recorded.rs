//! Pods, nodes and NodeClaims as the decision log has them up to a time: reasons, refused evictions, conditions.

use std::collections::BTreeMap;

use croft_record::entry::{Entry, EntryKind};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Why a pod stayed pending when it was last recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastPending {
    /// The reason.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// The last word of the log about each pod and node.
#[derive(Clone, Debug, Default)]
pub struct RecordedState {
    /// The number of the last entry.
    pub last_entry: u64,
    pending: BTreeMap<String, LastPending>,
    blocked: BTreeMap<String, i64>,
}

impl RecordedState {
    /// The state after these entries, which are in order.
    pub fn after<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Self {
        let mut state = Self::default();
        for entry in entries {
            state.last_entry = entry.sequence;
            match entry.kind {
                EntryKind::Pending => {
                    for pod in &entry.pods {
                        let (reason, message) = (entry.reason.clone(), entry.message.clone());
                        state.pending.insert(pod.clone(), LastPending { reason, message });
                    }
                }
                EntryKind::Bound => {
                    for pod in &entry.pods {
                        state.pending.remove(pod);
                    }
                }
                EntryKind::EvictionBlocked if !entry.node.is_empty() => {
                    state.blocked.insert(entry.node.clone(), entry.at);
                }
                _ => {}
            }
        }
        state
    }

    /// Why a pod stayed pending when it was last recorded.
    #[must_use]
    pub fn pending(&self, pod: &str) -> Option<&LastPending> {
        self.pending.get(pod)
    }

    /// The time at which an eviction from the node was last refused, in milliseconds since 1970.
    #[must_use]
    pub fn blocked(&self, node: &str) -> Option<i64> {
        self.blocked.get(node).copied()
    }
}

/// The conditions of each NodeClaim after these entries, which are in order. Snapshots have no conditions.
pub fn claim_conditions<'a>(
    entries: impl IntoIterator<Item = &'a Entry>,
) -> BTreeMap<String, Vec<Condition>> {
    let mut claims: BTreeMap<String, Vec<Condition>> = BTreeMap::new();
    for entry in entries.into_iter().filter(|entry| entry.kind == EntryKind::Condition) {
        let Some((kind, status)) = entry.condition.split_once('=') else { continue };
        let condition = Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: entry.reason.clone(),
            message: entry.message.clone(),
            last_transition_time: Time(Timestamp::from_millisecond(entry.at).unwrap_or_default()),
            observed_generation: None,
        };
        let of_claim = claims.entry(entry.claim_name().to_owned()).or_default();
        match of_claim.iter_mut().find(|known| known.type_ == kind) {
            Some(known) => *known = condition,
            None => of_claim.push(condition),
        }
    }
    claims
}
