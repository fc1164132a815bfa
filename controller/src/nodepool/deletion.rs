//! Deletion of a TenantPool: it waits until no Tenant names the pool, then until the nodes that Croft launched are gone.
//! Until then the pool counts: webhook, policies and index still guard its key, and its pods run. An instance that lost its
//! NodeClaim could neither be adopted nor count towards limits without the pool, so the pool waits for it, too.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_api::{TenantPool, condition::Statement, pool::Provisioner};

use crate::{
    definitions::conditions as reasons,
    nodeclaim::writes::delete_claim,
    reconcile::{ReconcileContext, object_reference},
    state::Snapshot,
};

/// How long no Tenant must name the pool before its nodes are removed: a Tenant that is deleted and created again
/// (`kubectl replace --force`) is absent for a moment.
const UNNAMED_FOR: Duration = Duration::from_secs(10);
/// Tenants that a message names.
const NAMED: usize = 5;

/// The next step of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It waits.
    Wait,
    /// The finalizer may be removed.
    Release,
}

/// Deletes pools.
#[derive(Debug, Default)]
pub(super) struct Deletion {
    /// Since when no Tenant has named a pool that is being deleted.
    unnamed_since: BTreeMap<String, Duration>,
}

impl Deletion {
    pub(super) fn retain_known(&mut self, snapshot: &Snapshot) {
        self.unnamed_since.retain(|name, _| snapshot.pools().contains_key(name));
    }

    /// Takes the next step of a pool that is being deleted.
    pub(super) fn advance(
        &mut self,
        ctx: &mut ReconcileContext<'_>,
        name: &str,
        pool: &Arc<TenantPool>,
    ) -> Step {
        let snapshot = ctx.snapshot;
        if let Some(statement) = named_by_tenants(snapshot, name) {
            self.unnamed_since.remove(name);
            ctx.event(object_reference(&**pool), true, statement.reason, statement.message);
            return Step::Wait;
        }
        let since = *self.unnamed_since.entry(name.to_owned()).or_insert(ctx.now.mono);
        if !ctx.has_lasted(since, UNNAMED_FOR) {
            return Step::Wait;
        }
        if snapshot.claims_of_pool(name).next().is_none() {
            let is_over = may_have_instances(snapshot, name, pool) == Some(false);
            return if is_over { Step::Release } else { Step::Wait };
        }
        for (claim_name, claim) in snapshot.claims_of_pool(name) {
            if claim.metadata.deletion_timestamp.is_none() {
                ctx.request(delete_claim(claim_name, claim));
            }
        }
        Step::Wait
    }
}

/// The objects that the deletion of a pool waits for.
pub(super) fn deletion_condition(snapshot: &Snapshot, name: &str, pool: &TenantPool) -> Option<Statement> {
    let nodes = snapshot.claims_of_pool(name).count();
    let message = if nodes > 0 {
        Some(format!("waits for {nodes} nodes to be drained and terminated"))
    } else {
        let why = match may_have_instances(snapshot, name, pool) {
            Some(true) => Some("waits until its instances without a NodeClaim are adopted or terminated"),
            None => Some("waits until the cloud has listed its instances"),
            Some(false) => None,
        };
        why.map(str::to_owned)
    };
    let remaining = message.map(|message| Statement {
        kind: reasons::DELETION_BLOCKED,
        status: Some(true),
        reason: reasons::NODES_REMAINING,
        message,
    });
    named_by_tenants(snapshot, name).or(remaining)
}

/// True if the pool may have instances without a claim; `None` while that is unknown.
fn may_have_instances(snapshot: &Snapshot, name: &str, pool: &TenantPool) -> Option<bool> {
    if pool.spec.provisioner != Provisioner::Croft {
        return Some(false);
    }
    snapshot.has_unclaimed(name)
}

fn named_by_tenants(snapshot: &Snapshot, name: &str) -> Option<Statement> {
    let tenants: Vec<&str> = snapshot.tenants_of_pool(name).map(|(tenant, _)| tenant.as_str()).collect();
    let shown = tenants.get(..NAMED).map_or_else(|| tenants.join(", "), |first| first.join(", ") + ", ...");
    let nodes = snapshot.nodes_of_pool(name).count();
    (!tenants.is_empty()).then(|| Statement {
        kind: reasons::DELETION_BLOCKED,
        status: Some(true),
        reason: reasons::NAMED_BY_TENANTS,
        message: format!(
            "waits until no Tenant names the pool: take it out of spec.pools of {shown} first. It works until then, with \
             {nodes} nodes"
        ),
    })
}
