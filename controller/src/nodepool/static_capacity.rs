//! Static capacity: pools with `replicas` have as many nodes, whatever the demand.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

pub use croft_api::convert::static_capacity::replicas;
use croft_api::{
    NodeClaim, TenantPool,
    condition::REGISTERED,
    convert::static_capacity::{self as convert, Shortfall},
};
use croft_scheduler::{Plan, ReasonKind};

use crate::{
    action::{Action, Key},
    definitions::events,
    nodeclaim::writes::delete_claim,
    provisioning::{
        new_claims::{ProvisioningPlan, provision},
        panic_isolation::PanicIsolation,
    },
    reconcile::{ReconcileContext, object_reference},
    solver::{Panicked, Purpose, Solver},
    state::{Snapshot, has_condition},
};

/// Between two tries to launch nodes that couldn't be launched, if nothing has changed.
const RETRY_UNCHANGED: Duration = Duration::from_secs(30);
const RETRY_CHANGED: Duration = Duration::from_secs(1);

/// Scales pools with static capacity.
#[derive(Debug, Default)]
pub struct StaticCapacity {
    attempts: BTreeMap<String, Attempt>,
}

/// The last try to launch a pool's missing nodes.
#[derive(Debug)]
struct Attempt {
    plan_version: u64,
    at: Duration,
    lack: Option<Shortfall>,
    panicked: bool,
}

impl StaticCapacity {
    /// Why a pool lacks nodes.
    #[must_use]
    pub fn why(&self, pool: &str) -> Option<&str> {
        self.attempts.get(pool)?.lack.as_ref().map(|lack| lack.detail.as_str())
    }

    /// True if the cluster's limits keep a pool from having its nodes.
    #[must_use]
    pub fn is_held_by_cluster_limits(&self, pool: &str) -> bool {
        let lack = self.attempts.get(pool).and_then(|attempt| attempt.lack.as_ref());
        lack.is_some_and(|lack| lack.reason == Some(ReasonKind::ClusterLimit))
    }

    /// Launches missing nodes and removes surplus ones.
    pub fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>, panics: &mut PanicIsolation) {
        let snapshot = ctx.snapshot;
        self.attempts.retain(|pool, _| snapshot.pools().contains_key(pool));
        let mut pools =
            snapshot.pools().iter().filter_map(|(name, pool)| Some((name, pool, replicas(pool)?))).peekable();
        if pools.peek().is_none() {
            return;
        }
        for (name, pool, wanted) in pools {
            if snapshot.is_ending(name, pool) || !snapshot.has_own_label(name) {
                continue;
            }
            let there = counted_claims(snapshot, name);
            if there.len() > wanted {
                scale_down(ctx, there, wanted);
            } else if there.len() < wanted {
                self.scale_up(ctx, panics, name, pool, wanted - there.len());
            } else {
                self.attempts.remove(name);
            }
        }
    }

    fn scale_up(
        &mut self,
        ctx: &mut ReconcileContext<'_>,
        panics: &mut PanicIsolation,
        name: &str,
        pool: &TenantPool,
        missing: usize,
    ) {
        let snapshot = ctx.snapshot;
        // A plan must know the claims that the last one asked for; and pools may share limits.
        if ctx.is_creating_claims() || !ctx.is_idle(&Key::Pool(name.to_owned())) {
            return;
        }
        if let Some(last) = self.attempts.get(name) {
            let unchanged = last.panicked || last.plan_version == snapshot.plan_version();
            let wait = if unchanged { RETRY_UNCHANGED } else { RETRY_CHANGED };
            if !ctx.has_lasted(last.at, wait) {
                return;
            }
        }
        let planned = plan_nodes(snapshot, ctx.solver, pool, missing);
        panics.record(name, Purpose::Replicas, planned.as_ref().err());
        let panicked = planned.is_err();
        let (plan, lack) = planned.unwrap_or_else(|panicked| {
            (Plan::default(), Some(Shortfall { reason: None, detail: panicked.to_string() }))
        });
        let attempt = Attempt { plan_version: snapshot.plan_version(), at: ctx.now.mono, lack, panicked };
        self.attempts.insert(name.to_owned(), attempt);
        let ProvisioningPlan { claims, .. } = provision(snapshot, &plan);
        for new in claims {
            ctx.request(Action::CreateClaims(new));
        }
    }
}

/// The claims that count as the pool's replicas.
fn counted_claims<'a>(snapshot: &'a Snapshot, pool: &str) -> Vec<(&'a String, &'a Arc<NodeClaim>)> {
    let find = |name: &str| snapshot.claims().get(name).map(|claim| &**claim);
    snapshot.claims_of_pool(pool).filter(|(_, claim)| convert::counts(claim, find)).collect()
}

/// Removes surplus nodes, those first that cost the pods least: unregistered nodes, then those with the fewest pods.
fn scale_down(ctx: &mut ReconcileContext<'_>, mut there: Vec<(&String, &Arc<NodeClaim>)>, wanted: usize) {
    let snapshot = ctx.snapshot;
    there.sort_by_key(|(name, claim)| {
        let node = snapshot.node_of(claim).map(|(node, _)| node);
        let pods = node.map_or(0, |node| snapshot.pods_on(node).filter(|(_, p)| p.counts_as_work()).count());
        let age = std::cmp::Reverse(claim.metadata.creation_timestamp.clone());
        (has_condition(claim, REGISTERED), pods, age, *name)
    });
    let surplus = there.len().saturating_sub(wanted);
    for (name, claim) in there.into_iter().take(surplus) {
        let note = format!("pool {} has more nodes than its replicas; this one is removed", claim.spec.pool);
        ctx.event(object_reference(&**claim), false, events::SCALED_DOWN, note);
        ctx.request(delete_claim(name, claim));
    }
}

/// Plans `count` nodes of the pool beside those that it has, and why it can't have all of them.
///
/// # Errors
/// If planning panics.
pub fn plan_nodes(
    snapshot: &Snapshot,
    solver: &Solver,
    pool: &TenantPool,
    count: usize,
) -> Result<(Plan, Option<Shortfall>), Panicked> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    if let Some(detail) = snapshot.launch_hold(name).and_then(|hold| hold.why.clone()) {
        return Ok((Plan::default(), Some(Shortfall { reason: Some(ReasonKind::LaunchBackoff), detail })));
    }
    let types = |template: &TenantPool| snapshot.launchable_types(name, template);
    solver.run(Purpose::Replicas, |solve| {
        convert::new_nodes(snapshot.cluster(), pool, types, count, |cluster, options| solve(cluster, options))
    })
}
