//! Static capacity: pools and templates with `replicas` have as many nodes, whatever the demand.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_api::{
    NodeClaim, TenantPool,
    condition::REGISTERED,
    convert::static_capacity::{self as convert, FixedSize, Shortfall, sizes},
};
use croft_scheduler::{Options, Plan, ReasonKind};

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

/// Scales pools and templates with static capacity.
#[derive(Debug, Default)]
pub struct StaticCapacity {
    /// By pool and template; the name of the template is empty for the whole pool.
    attempts: BTreeMap<(String, String), Attempt>,
}

/// The last try to launch missing nodes.
#[derive(Debug)]
struct Attempt {
    plan_version: u64,
    at: Duration,
    lack: Option<Shortfall>,
    panicked: bool,
}

fn key(pool: &str, size: &FixedSize<'_>) -> (String, String) {
    (pool.to_owned(), size.template.unwrap_or_default().to_owned())
}

impl StaticCapacity {
    /// Why a pool or template lacks nodes.
    #[must_use]
    pub fn why(&self, pool: &str, size: &FixedSize<'_>) -> Option<&str> {
        self.attempts.get(&key(pool, size))?.lack.as_ref().map(|lack| lack.detail.as_str())
    }

    /// True if the cluster's limits keep a pool or template from having its nodes.
    #[must_use]
    pub fn is_held_by_cluster_limits(&self) -> bool {
        let mut lacks = self.attempts.values().filter_map(|attempt| attempt.lack.as_ref());
        lacks.any(|lack| lack.reason == Some(ReasonKind::ClusterLimit))
    }

    /// Launches missing nodes and removes surplus ones.
    pub fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>, panics: &mut PanicIsolation) {
        let snapshot = ctx.snapshot;
        self.attempts.retain(|(pool, template), _| {
            let pool = snapshot.pools().get(pool);
            pool.is_some_and(|pool| sizes(pool).any(|size| size.template.unwrap_or_default() == template))
        });
        for (name, pool) in snapshot.pools() {
            for size in sizes(pool) {
                if snapshot.is_ending(name, pool) || !snapshot.has_own_label(name) {
                    continue;
                }
                let there = counted_claims(snapshot, name, &size);
                if there.len() > size.replicas {
                    scale_down(ctx, there, &size);
                } else if there.len() < size.replicas {
                    self.scale_up(ctx, panics, pool, &size, size.replicas - there.len());
                } else {
                    self.attempts.remove(&key(name, &size));
                }
            }
        }
    }

    fn scale_up(
        &mut self,
        ctx: &mut ReconcileContext<'_>,
        panics: &mut PanicIsolation,
        pool: &TenantPool,
        size: &FixedSize<'_>,
        missing: usize,
    ) {
        let snapshot = ctx.snapshot;
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        // A plan must know the claims that the last one asked for; and pools may share limits.
        if ctx.is_creating_claims() || !ctx.is_idle(&Key::Pool(name.to_owned())) {
            return;
        }
        if let Some(last) = self.attempts.get(&key(name, size)) {
            let unchanged = last.panicked || last.plan_version == snapshot.plan_version();
            let wait = if unchanged { RETRY_UNCHANGED } else { RETRY_CHANGED };
            if !ctx.has_lasted(last.at, wait) {
                return;
            }
        }
        let planned = plan_nodes(snapshot, ctx.solver, pool, size, missing, &[]);
        panics.record(name, Purpose::Replicas, planned.as_ref().err());
        let panicked = planned.is_err();
        let (plan, lack) = planned.unwrap_or_else(|panicked| {
            (Plan::default(), Some(Shortfall { reason: None, detail: panicked.to_string() }))
        });
        let attempt = Attempt { plan_version: snapshot.plan_version(), at: ctx.now.mono, lack, panicked };
        self.attempts.insert(key(name, size), attempt);
        let ProvisioningPlan { claims, .. } = provision(snapshot, &plan);
        for new in claims {
            ctx.request(Action::CreateClaims(new));
        }
    }
}

/// The claims that count for a fixed size.
fn counted_claims<'a>(
    snapshot: &'a Snapshot,
    pool: &str,
    size: &FixedSize<'_>,
) -> Vec<(&'a String, &'a Arc<NodeClaim>)> {
    let find = |name: &str| snapshot.claims().get(name).map(|claim| &**claim);
    let claims = snapshot.claims_of_pool(pool);
    claims.filter(|(_, claim)| size.has(claim.template()) && convert::counts(claim, find)).collect()
}

/// The fixed size that a claim counts for; `None` if its pool is gone, or if its node follows the demand.
#[must_use]
pub fn size_of<'a>(snapshot: &'a Snapshot, claim: &NodeClaim) -> Option<FixedSize<'a>> {
    convert::size_of(snapshot.pools().get(&claim.spec.pool)?, claim.template())
}

/// Removes surplus nodes, those first that cost the pods least: unregistered nodes, then those with the fewest pods.
fn scale_down(
    ctx: &mut ReconcileContext<'_>,
    mut there: Vec<(&String, &Arc<NodeClaim>)>,
    size: &FixedSize<'_>,
) {
    let snapshot = ctx.snapshot;
    there.sort_by_key(|(name, claim)| {
        let node = snapshot.node_of(claim).map(|(node, _)| node);
        let pods = node.map_or(0, |node| snapshot.pods_on(node).filter(|(_, p)| p.counts_as_work()).count());
        let age = std::cmp::Reverse(claim.metadata.creation_timestamp.clone());
        (has_condition(claim, REGISTERED), pods, age, *name)
    });
    let surplus = there.len().saturating_sub(size.replicas);
    for (name, claim) in there.into_iter().take(surplus) {
        let what = size.describe(&claim.spec.pool);
        let note = format!("{what} has more nodes than its replicas; this one is removed");
        ctx.event(object_reference(&**claim), false, events::SCALED_DOWN, note);
        ctx.request(delete_claim(name, claim));
    }
}

/// Plans `count` nodes of a fixed size beside those that there are, and why there can't be all of them. `leaving` are the nodes that they
/// replace: no share counts them.
///
/// # Errors
/// If planning panics.
pub fn plan_nodes(
    snapshot: &Snapshot,
    solver: &Solver,
    pool: &TenantPool,
    size: &FixedSize<'_>,
    count: usize,
    leaving: &[&str],
) -> Result<(Plan, Option<Shortfall>), Panicked> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let plannable = snapshot.plannable_templates(name, pool);
    let mut all = snapshot.leaving_nodes();
    all.extend(leaving.iter().map(|node| (*node).to_owned()));
    solver.run(Purpose::Replicas, |solve| {
        convert::new_nodes(snapshot.cluster(), pool, size, plannable, count, |cluster, options| {
            solve(cluster, &Options { leaving: all, ..options.clone() })
        })
    })
}
