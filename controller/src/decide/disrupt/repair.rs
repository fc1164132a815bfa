//! Node repair: nodes that have not been Ready for long are replaced, within the breaker's cap.

use croft_api::condition::INITIALIZED;

use super::tally::{self, Outcome};
use crate::{
    action::Key,
    decide::{Memory, Round, breaker::Cause, lifecycle, reference},
    snapshot::is,
};

/// Deletes the claims of nodes that have not been Ready for `repair_after`.
pub fn decide(round: &mut Round<'_>, memory: &mut Memory) {
    let snapshot = round.snapshot;
    for (name, claim) in snapshot.restless() {
        let Some((_, node)) = snapshot.node_of(claim) else { continue };
        let going = claim.metadata.deletion_timestamp.is_some() || !is(claim, INITIALIZED);
        if !snapshot.is_provisioned_by_croft(&claim.spec.pool) {
            continue;
        }
        let Some(since) = node.ready_since.filter(|_| !node.ready && !going) else { continue };
        if !round.is_older(since, round.settings.repair_after)
            || !round.may_remove(Cause::Unhealthy, &claim.spec.pool, name)
            || !round.is_idle(&Key::Claim(name.clone()))
        {
            continue;
        }
        let lasted = round.now.since(since).as_secs();
        let note = format!("its node has not been Ready for {lasted} s; the node is removed");
        round.tell(reference(&**claim), true, "Unhealthy", note);
        round.act(lifecycle::delete(name, claim));
        memory.disruption.tally.note(tally::UNHEALTHY, Outcome::Done);
    }
}
