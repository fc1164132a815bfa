//! Writes of claims and their nodes that several deciders ask for.

use std::time::Duration;

use croft_api::{NodeClaim, NodeClaimStatus};

use crate::{
    action::Action,
    kube_api::{Target, Verb},
    nodeclaim::conditions::write_status,
};

/// A key stays locked for this long after a deletion: until the watch has shown it.
pub(crate) const WATCH_LAG: Duration = Duration::from_secs(2);

/// Deletes a claim; its finalizer keeps it until the instance is terminated.
pub(crate) fn delete_claim(name: &str, claim: &NodeClaim) -> Action {
    Action::write_and_wait(
        Target::Claim(name.to_owned()),
        Verb::Delete { uid: claim.metadata.uid.clone().unwrap_or_default(), grace_seconds: None },
        WATCH_LAG,
    )
}

/// Writes a claim's status, unless it is that already.
pub(crate) fn status_action(name: &str, claim: &NodeClaim, status: &NodeClaimStatus) -> Option<Action> {
    let call = write_status(claim, status)?;
    Some(Action::write(Target::Claim(name.to_owned()), call.verb))
}

/// Patches a node.
pub(crate) fn patch_node(name: &str, verb: Verb) -> Action {
    Action::write(Target::Node(name.to_owned()), verb)
}
