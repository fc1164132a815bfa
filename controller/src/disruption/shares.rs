//! Shares of pools, where nodes are removed that could stay: empty ones, and those of consolidation.

use std::collections::BTreeMap;

use croft_scheduler::{PlannedInstance, ShareLedger};

use crate::{action::Key, reconcile::ReconcileContext};

/// Why a removal isn't started.
#[derive(Debug)]
pub(crate) enum ShareConflict {
    /// It would break this share.
    Broken(String),
    /// Nodes of the pool are being changed, which the snapshot doesn't show yet: a later pass decides.
    Changing,
}

/// Keeps the removals of one pass within the shares of their pools.
#[derive(Debug, Default)]
pub(crate) struct ShareGuard {
    ledger: ShareLedger,
    leaving: Option<Vec<String>>,
    /// Pools that were asked about, and whether their nodes are being changed.
    changing: BTreeMap<String, bool>,
}

impl ShareGuard {
    /// Checks that a pool may lose `nodes` once `instances` are there.
    ///
    /// # Errors
    /// Why it may not, or not now.
    pub(crate) fn check(
        &mut self,
        ctx: &ReconcileContext<'_>,
        pool: &str,
        nodes: &[&str],
        instances: &[PlannedInstance],
    ) -> Result<(), ShareConflict> {
        let snapshot = ctx.snapshot;
        if snapshot.pools().get(pool).is_none_or(|pool| pool.spec.shares.is_empty()) {
            return Ok(());
        }
        let leaving = self.leaving.get_or_insert_with(|| snapshot.leaving_nodes());
        self.ledger.observe(snapshot.cluster(), pool, &|name| leaving.iter().any(|leaving| leaving == name));
        let changing = self.changing.entry(pool.to_owned()).or_insert_with(|| is_changing(ctx, pool));
        if *changing {
            return Err(ShareConflict::Changing);
        }
        self.ledger.check(snapshot.cluster(), nodes, instances).map_err(ShareConflict::Broken)
    }

    /// Counts a removal that is started.
    pub(crate) fn take(&mut self, ctx: &ReconcileContext<'_>, nodes: &[&str], instances: &[PlannedInstance]) {
        self.ledger.take(ctx.snapshot.cluster(), nodes, instances);
    }
}

fn is_changing(ctx: &ReconcileContext<'_>, pool: &str) -> bool {
    let node = |claim| ctx.snapshot.node_of(claim).map(|(node, _)| Key::Node(node.to_owned()));
    !ctx.is_idle(&Key::CreateClaims(pool.to_owned()))
        || ctx.snapshot.claims_of_pool(pool).any(|(name, claim)| {
            !ctx.is_idle(&Key::Claim(name.clone())) || node(claim).is_some_and(|node| !ctx.is_idle(&node))
        })
}
