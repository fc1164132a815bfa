//! Shares of pools, where nodes are removed that could stay: empty ones, those of consolidation, and those that return to a heavier
//! template.

use std::collections::{BTreeMap, BTreeSet};

use croft_scheduler::{PlannedInstance, ShareLedger};

use crate::{action::Key, reconcile::ReconcileContext};

/// Why a removal isn't started.
#[derive(Debug)]
pub(crate) enum ShareConflict {
    /// It would break this share.
    Broken(String),
    /// Claims of the pool are being created, which the snapshot doesn't show yet: a later pass decides.
    Creating,
}

/// Keeps removals within the shares of their pools. Losing its memory is harmless: only what is in flight is remembered.
#[derive(Debug, Default)]
pub(crate) struct ShareGuard {
    /// Of this pass.
    ledger: ShareLedger,
    leaving: Option<BTreeSet<String>>,
    /// Nodes whose removal was started and may not be in the snapshot yet, and their claims.
    started: BTreeMap<String, String>,
}

impl ShareGuard {
    /// Begins another pass.
    pub(crate) fn begin(&mut self, ctx: &ReconcileContext<'_>) {
        self.ledger = ShareLedger::default();
        self.leaving = None;
        // The answer to a write is in the snapshot once the write has ended.
        self.started.retain(|node, claim| {
            !ctx.is_idle(&Key::Node(node.clone())) || !ctx.is_idle(&Key::Claim(claim.clone()))
        });
    }

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
        if !ctx.is_idle(&Key::CreateClaims(pool.to_owned())) {
            return Err(ShareConflict::Creating);
        }
        let leaving = self.leaving.get_or_insert_with(|| snapshot.leaving_nodes().into_iter().collect());
        let started = &self.started;
        let is_leaving = |name: &str| started.contains_key(name) || leaving.contains(name);
        self.ledger.observe(snapshot.cluster(), pool, &is_leaving);
        self.ledger.check(snapshot.cluster(), nodes, instances).map_err(ShareConflict::Broken)
    }

    /// Counts a removal that is started.
    pub(crate) fn take(&mut self, ctx: &ReconcileContext<'_>, nodes: &[&str], instances: &[PlannedInstance]) {
        self.ledger.take(ctx.snapshot.cluster(), nodes, instances);
        for node in nodes {
            let claim = ctx.snapshot.claim_of_node(node).and_then(|claim| claim.metadata.name.clone());
            self.started.extend(claim.map(|claim| ((*node).to_owned(), claim)));
        }
    }
}
