//! Machines that are broken: their node hasn't been Ready for long.

use std::{collections::BTreeMap, time::Duration};

use croft_api::condition::INITIALIZED;

use super::tally::{self, Outcome};
use crate::{
    action::Key,
    decide::{Memory, Round, lifecycle, reference},
    snapshot::is,
};

/// However few nodes a pool has, one may be repaired.
const ALWAYS_REPAIRED: usize = 1;
/// When more than this share of a pool's nodes is unhealthy, it isn't the machines: a network, an image, the control
/// plane. Replacing them would only lose what still runs there.
const BREAKER_PERCENT: usize = 20;

/// Gives back what has been broken for long.
pub fn decide(round: &mut Round<'_>, memory: &mut Memory) {
    let snapshot = round.snapshot;
    // What has been broken for long, and how long.
    let mut pools: BTreeMap<&str, Vec<(&String, Duration)>> = BTreeMap::new();
    for (name, claim) in snapshot.restless() {
        let Some((_, node)) = snapshot.node_of(claim) else { continue };
        let going = claim.metadata.deletion_timestamp.is_some() || !is(claim, INITIALIZED);
        if let Some(since) = node.ready_since.filter(|_| !node.ready && !going)
            && round.is_older(since, round.settings.repair_after)
        {
            pools.entry(&claim.spec.pool).or_default().push((name, round.now.since(since)));
        }
    }
    for (pool, broken) in pools {
        let nodes = snapshot.claims_of_pool(pool).filter(|(_, claim)| snapshot.node_of(claim).is_some());
        let total = nodes.count();
        let most = ALWAYS_REPAIRED.max(total * BREAKER_PERCENT / 100);
        if broken.len() > most {
            if let Some(pool) = snapshot.pools.get(pool) {
                let note = format!(
                    "{} of {total} nodes aren't Ready; more than {most} at once are not replaced by themselves, \
                     since the cause is hardly the machines",
                    broken.len(),
                );
                round.tell(reference(&**pool), true, "RepairStopped", note);
            }
            continue;
        }
        for (name, lasted) in broken {
            let Some(claim) = snapshot.claims.get(name) else { continue };
            if round.is_idle(&Key::Claim(name.clone())) {
                let note = format!("its node hasn't been Ready for {} s; it is given back", lasted.as_secs());
                round.tell(reference(&**claim), true, "Unhealthy", note);
                round.act(lifecycle::delete(name, claim));
                memory.disruption.tally.note(tally::UNHEALTHY, Outcome::Done);
            }
        }
    }
}
