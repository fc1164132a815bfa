//! What keeps a node whatever its pods are: the pause of its pool, or an annotation.

use croft_api::{NodeClaim, TenantPool};
use croft_disruption::blockers::DisruptionBlocker;
use jiff::Timestamp;

use crate::{
    reconcile::ReconcileContext,
    state::{NodeView, blockers::annotation_blocker},
};

/// The pause of the pool, or the blocker by annotation of a node, its pool or its claim. Asks for another pass when the
/// pause ends.
pub(crate) fn standing_blocker(
    ctx: &mut ReconcileContext<'_>,
    claim: &NodeClaim,
    node: &NodeView,
    pool: &TenantPool,
) -> Option<DisruptionBlocker> {
    let paused = ctx.snapshot.pause_of(pool, ctx.now.wall).map(|pause| (pause.blocker(), pause.end()));
    let Some((blocker, end)) = paused else { return annotation_blocker(claim, node, pool) };
    requeue_at_end(ctx, end);
    Some(blocker)
}

/// Asks for another pass when a blocker ends by itself.
pub(crate) fn requeue_at_end(ctx: &mut ReconcileContext<'_>, end: Option<Timestamp>) {
    if let Some(end) = end {
        ctx.has_come(end);
    }
}
