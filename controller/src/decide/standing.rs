//! Pools of a fixed size: as many nodes as `replicas` says, whatever the demand.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

pub use croft_api::convert::static_capacity::replicas;
use croft_api::{
    NodeClaim, TenantPool,
    condition::REGISTERED,
    convert::static_capacity::{self, Shortfall},
};
use croft_scheduler::{Plan, ReasonKind};

use super::{
    Round, lifecycle,
    provision::{Provision, provision},
    reference,
};
use crate::{
    action::{Action, Key},
    snapshot::{Snapshot, is},
    solver::{Panicked, Run},
};

/// Between two tries to launch what can't be had, if nothing has changed.
const TRY_AGAIN: Duration = Duration::from_secs(30);
const TRY_AGAIN_CHANGED: Duration = Duration::from_secs(1);

/// What was tried for each pool.
#[derive(Debug, Default)]
pub struct Tried(BTreeMap<String, Attempt>);

#[derive(Debug)]
struct Attempt {
    picture: u64,
    at: Duration,
    lack: Option<Shortfall>,
    panicked: bool,
}

impl Tried {
    /// Why a pool lacks nodes.
    #[must_use]
    pub fn why(&self, pool: &str) -> Option<&str> {
        self.0.get(pool)?.lack.as_ref().map(|lack| lack.detail.as_str())
    }

    /// True if the cluster's limits keep a pool from having its nodes.
    #[must_use]
    pub fn is_held_by_cluster(&self, pool: &str) -> bool {
        let lack = self.0.get(pool).and_then(|tried| tried.lack.as_ref());
        lack.is_some_and(|lack| lack.reason == Some(ReasonKind::ClusterLimit))
    }
}

/// The claims that make up the pool's size.
fn counted<'a>(snapshot: &'a Snapshot, pool: &str) -> Vec<(&'a String, &'a Arc<NodeClaim>)> {
    let find = |name: &str| snapshot.claims.get(name).map(|claim| &**claim);
    let of_pool = snapshot.claims.iter().filter(|(_, claim)| claim.spec.pool == pool);
    of_pool.filter(|(_, claim)| static_capacity::counts(claim, find)).collect()
}

/// Decides what pools of a fixed size lack or have too many of.
pub fn decide(round: &mut Round<'_>, memory: &mut super::Memory) {
    let snapshot = round.snapshot;
    memory.standing.0.retain(|pool, _| snapshot.pools.contains_key(pool));
    let mut pools =
        snapshot.pools.iter().filter_map(|(name, pool)| Some((name, pool, replicas(pool)?))).peekable();
    if pools.peek().is_none() {
        return;
    }
    for (name, pool, wanted) in pools {
        if snapshot.is_ending(name, pool) || !snapshot.has_own_label(name) {
            continue;
        }
        let there = counted(snapshot, name);
        if there.len() > wanted {
            shrink(round, there, wanted);
        } else if there.len() < wanted {
            grow(round, memory, name, pool, wanted - there.len());
        } else {
            memory.standing.0.remove(name);
        }
    }
}

/// What costs the pods least goes first: machines that aren't there yet, then those with the fewest pods.
fn shrink(round: &mut Round<'_>, mut there: Vec<(&String, &Arc<NodeClaim>)>, wanted: usize) {
    let snapshot = round.snapshot;
    there.sort_by_key(|(name, claim)| {
        let node = snapshot.node_of(claim).map(|(node, _)| node);
        let pods = node.map_or(0, |node| snapshot.pods_on(node).filter(|(_, p)| p.counts_as_work()).count());
        (is(claim, REGISTERED), pods, std::cmp::Reverse(claim.metadata.creation_timestamp.clone()), *name)
    });
    let surplus = there.len().saturating_sub(wanted);
    for (name, claim) in there.into_iter().take(surplus) {
        let note =
            format!("pool {} has more nodes than its replicas; this one is given back", claim.spec.pool);
        round.tell(reference(&**claim), false, "ScaledDown", note);
        round.act(lifecycle::delete(name, claim));
    }
}

fn grow(round: &mut Round<'_>, memory: &mut super::Memory, name: &str, pool: &TenantPool, missing: usize) {
    let snapshot = round.snapshot;
    // A plan must know of what the last one asked for; and limits may be shared between pools.
    if round.is_planning() || !round.is_idle(&Key::Pool(name.to_owned())) {
        return;
    }
    if let Some(tried) = memory.standing.0.get(name) {
        let pause = if tried.panicked || tried.picture == snapshot.plan_version {
            TRY_AGAIN
        } else {
            TRY_AGAIN_CHANGED
        };
        if !round.has_lasted(tried.at, pause) {
            return;
        }
    }
    let planned = machines(snapshot, pool, missing);
    memory.apart.note(name, Run::Replicas, planned.as_ref().err());
    let panicked = planned.is_err();
    let (plan, lack) = planned.unwrap_or_else(|panicked| {
        (Plan::default(), Some(Shortfall { reason: None, detail: panicked.to_string() }))
    });
    let attempt = Attempt { picture: snapshot.plan_version, at: round.now.mono, lack, panicked };
    memory.standing.0.insert(name.to_owned(), attempt);
    let Provision { claims, .. } = provision(snapshot, &plan);
    for new in claims {
        round.act(Action::CreateClaims(new));
    }
}

/// `count` machines of the pool, as [`standing::machines`] plans them.
///
/// # Errors
/// When planning panics.
pub fn machines(
    snapshot: &Snapshot,
    pool: &TenantPool,
    count: usize,
) -> Result<(Plan, Option<Shortfall>), Panicked> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    if let Some(detail) = snapshot.held(name).and_then(|held| held.why.clone()) {
        return Ok((Plan::default(), Some(Shortfall { reason: Some(ReasonKind::LaunchBackoff), detail })));
    }
    let types = snapshot.types_of(name, pool);
    snapshot.solver.with(Run::Replicas, |solve| {
        static_capacity::new_nodes(&snapshot.cluster, pool, types, count, |cluster, options| {
            solve(cluster, options)
        })
    })
}
