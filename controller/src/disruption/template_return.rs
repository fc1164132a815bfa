//! Returns: in a pool with `return: Eagerly`, nodes of a lighter template are due for replacement once a heavier one has launched
//! without failure for a while.
//!
//! ```text
//!   heavier template held, or a disruption failed ──▶ the wait begins anew
//!            │ `after` without either
//!            ▼
//!   nodes of lighter templates are due (reason Outweighed): drift's commands replace them, by heavier templates alone
//!            │ the pods of one fit nowhere: no capacity, a limit that is reached, a selector
//!            ▼
//!   that node is asked again `after` later
//! ```
//!
//! Nothing flaps: a return leaves fewer nodes of lighter templates, and no other command launches one in the place of a heavier
//! node, but where a drifted or expired node finds no room in its own template.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::{
    NodeClaim, TenantPool,
    convert::template_return::{self, after, heavier},
    disruption::DisruptionReason,
};
use croft_scheduler::{LaunchTemplates, Plan};

use crate::{disruption::outcomes::History, reconcile::ReconcileContext, state::Snapshot};

/// What each pool's nodes wait for. Times are on the monotonic clock; losing them makes the waits start anew.
#[derive(Debug, Default)]
pub(super) struct TemplateReturn {
    /// By pool and template: since when no launch or disruption has failed.
    steady_since: BTreeMap<(String, String), Duration>,
    /// Claims whose pods found no room, and when.
    without_room: BTreeMap<String, Duration>,
}

impl TemplateReturn {
    /// Forgets templates and claims that are gone: a template that comes again begins anew.
    pub(super) fn retain_known(&mut self, snapshot: &Snapshot) {
        self.steady_since.retain(|(pool, template), _| {
            let templates = snapshot.pools().get(pool).map(|pool| &pool.spec.templates);
            templates.is_some_and(|templates| templates.iter().any(|one| one.name == *template))
        });
        self.without_room.retain(|claim, _| snapshot.claims().contains_key(claim));
    }

    /// The templates of a pool to which nodes may return now.
    pub(super) fn ready(
        &mut self,
        ctx: &mut ReconcileContext<'_>,
        history: &History,
        name: &str,
        pool: &TenantPool,
    ) -> BTreeSet<String> {
        let mut ready = BTreeSet::new();
        let Some(after) = after(pool) else {
            // With the policy set again, the wait begins.
            self.steady_since.retain(|(known, _), _| known != name);
            return ready;
        };
        let snapshot = ctx.snapshot;
        let mut claims = snapshot.claims_of_pool(name);
        let failed = claims.any(|(claim, _)| history.is_in_backoff(claim, ctx));
        for template in &pool.spec.templates {
            let key = (name.to_owned(), template.name.clone());
            if failed || snapshot.launch_hold(name, &template.name).is_some() {
                self.steady_since.remove(&key);
                continue;
            }
            let since = *self.steady_since.entry(key).or_insert(ctx.now.mono);
            if ctx.has_lasted(since, after) {
                ready.insert(template.name.clone());
            }
        }
        ready
    }

    /// Why a node is due, if a heavier template than its own is `ready`.
    pub(super) fn due(
        &self,
        ctx: &mut ReconcileContext<'_>,
        pool: &TenantPool,
        name: &str,
        claim: &NodeClaim,
        ready: &BTreeSet<String>,
    ) -> Option<(DisruptionReason, String)> {
        let after = after(pool)?;
        let template = heavier(pool, claim.template()).find(|template| ready.contains(*template))?;
        if self.without_room.get(name).is_some_and(|at| !ctx.has_lasted(*at, after)) {
            return None;
        }
        let minutes = after.as_secs() / 60;
        let why =
            format!("template {template} weighs more, and no launch by it has failed for {minutes} min");
        Some((DisruptionReason::Outweighed, why))
    }

    /// When a claim's pods found no room.
    pub(super) fn without_room_since(&self, claim: &str) -> Option<Duration> {
        self.without_room.get(claim).copied()
    }

    /// Leaves a claim alone for a while: its pods have found no room.
    pub(super) fn observe_no_room(&mut self, ctx: &ReconcileContext<'_>, claim: &str) {
        self.without_room.insert(claim.to_owned(), ctx.now.mono);
    }
}

/// The templates by which nodes return: those that are `ready` and heavier than each of the nodes' own.
pub(super) fn heavier_ones<'a>(
    pool: &TenantPool,
    claims: impl IntoIterator<Item = &'a Arc<NodeClaim>>,
    ready: &BTreeSet<String>,
) -> LaunchTemplates {
    let mut templates = LaunchTemplates::default();
    for claim in claims {
        let own = heavier(pool, claim.template()).filter(|template| ready.contains(*template));
        templates.restrict(&claim.spec.pool, &own.map(str::to_owned).collect());
    }
    templates
}

/// True if a plan for nodes that return launches nothing in another pool, whose templates no weight of this one compares.
pub(super) fn is_return(pool: &TenantPool, plan: &Plan) -> bool {
    plan.instances.iter().all(|instance| Some(&instance.pool) == pool.metadata.name.as_ref())
}

/// The templates that may take the place of nodes that are replaced for another reason than their cost.
pub(super) fn not_heavier<'a>(
    snapshot: &Snapshot,
    claims: impl IntoIterator<Item = &'a Arc<NodeClaim>>,
) -> LaunchTemplates {
    common(snapshot, claims, template_return::not_heavier)
}

/// The templates that may take the place of nodes that are replaced for their cost.
pub(super) fn of_consolidation<'a>(
    snapshot: &Snapshot,
    claims: impl IntoIterator<Item = &'a Arc<NodeClaim>>,
) -> LaunchTemplates {
    common(snapshot, claims, template_return::of_consolidation)
}

fn common<'a>(
    snapshot: &Snapshot,
    claims: impl IntoIterator<Item = &'a Arc<NodeClaim>>,
    of: fn(&TenantPool, Option<&str>) -> Option<BTreeSet<String>>,
) -> LaunchTemplates {
    let mut templates = LaunchTemplates::default();
    for claim in claims {
        let pool = snapshot.pools().get(&claim.spec.pool);
        if let Some(own) = pool.and_then(|pool| of(pool, claim.template())) {
            templates.restrict(&claim.spec.pool, &own);
        }
    }
    templates
}
