//! Deletion of a TenantPool: it waits until no Tenant names the pool, then until the nodes that Croft launched are gone. Until
//! then the pool counts: webhook, policies and index still guard its key, and its pods run.

use std::{sync::Arc, time::Duration};

use croft_api::{TenantPool, condition::Statement};

use crate::{
    decide::{Memory, Round, lifecycle, pools::write_finalizers, reference},
    snapshot::Snapshot,
};

/// The condition of a pool that is being deleted.
const DELETION_BLOCKED: &str = "DeletionBlocked";
/// How long no Tenant must name the pool before its nodes are removed: one that is deleted and created again (`kubectl
/// replace --force`) is absent for a moment.
const UNNAMED_FOR: Duration = Duration::from_secs(10);
/// Tenants that a sentence names.
const NAMED: usize = 5;

/// Takes the next step. True if the pool is released: nothing is left to say of it.
pub(super) fn advance(
    round: &mut Round<'_>,
    memory: &mut Memory,
    name: &str,
    pool: &Arc<TenantPool>,
) -> bool {
    let snapshot = round.snapshot;
    if let Some(said) = named(snapshot, name) {
        memory.unnamed_since.remove(name);
        round.tell(reference(&**pool), true, said.reason, said.message);
        return false;
    }
    let since = *memory.unnamed_since.entry(name.to_owned()).or_insert(round.now.mono);
    if !round.has_lasted(since, UNNAMED_FOR) {
        return false;
    }
    let mut claims = snapshot.claims_of_pool(name).peekable();
    if claims.peek().is_none() {
        write_finalizers(round, name, pool, false);
        return true;
    }
    for (claim_name, claim) in claims {
        if claim.metadata.deletion_timestamp.is_none() {
            round.act(lifecycle::delete(claim_name, claim));
        }
    }
    false
}

/// What the deletion waits for.
pub(super) fn statement(snapshot: &Snapshot, name: &str) -> Option<Statement> {
    let nodes = snapshot.claims_of_pool(name).count();
    let draining = (nodes > 0).then(|| Statement {
        kind: DELETION_BLOCKED,
        status: Some(true),
        reason: "NodesRemaining",
        message: format!("waits for {nodes} nodes to be drained and terminated"),
    });
    named(snapshot, name).or(draining)
}

fn named(snapshot: &Snapshot, name: &str) -> Option<Statement> {
    let names = |t: &croft_api::Tenant| t.spec.pools.iter().any(|pool| pool == name);
    let tenants: Vec<&str> =
        snapshot.tenants.iter().filter(|(_, t)| names(t)).map(|(tenant, _)| tenant.as_str()).collect();
    let shown = tenants.get(..NAMED).map_or_else(|| tenants.join(", "), |first| first.join(", ") + ", ...");
    let nodes = snapshot.nodes_of_pool(name).count();
    (!tenants.is_empty()).then(|| Statement {
        kind: DELETION_BLOCKED,
        status: Some(true),
        reason: "NamedByTenants",
        message: format!(
            "waits until no Tenant names the pool: take it out of spec.pools of {shown} first. It works until then, with {nodes} \
             nodes"
        ),
    })
}
