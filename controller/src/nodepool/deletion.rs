//! Deletion of a TenantPool: it waits until no Tenant names the pool, then until the nodes that Croft launched are gone.
//! Until then the pool counts: webhook, policies and index still guard its key, and its pods run. An instance that lost its
//! NodeClaim could neither be adopted nor count towards limits without the pool, so the pool waits for it, too.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_api::{TenantPool, condition::Statement, pool::Provisioner, sentence::counted};

use crate::{
    action::Action,
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

/// Deletes pools. Times are on the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Deletion {
    /// Since when no Tenant has named a pool that is being deleted.
    unnamed_since: BTreeMap<String, Duration>,
    /// Since when a pool that is being deleted has had no NodeClaim.
    emptied_since: BTreeMap<String, Duration>,
}

impl Deletion {
    pub(super) fn retain_known(&mut self, snapshot: &Snapshot) {
        self.unnamed_since.retain(|name, _| snapshot.pools().contains_key(name));
        self.emptied_since.retain(|name, _| snapshot.pools().contains_key(name));
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
            self.emptied_since.entry(name.to_owned()).or_insert(ctx.now.mono);
            if may_have_instances(snapshot, name, pool) == Some(false) {
                return Step::Release;
            }
            // The last list may be from before the last instance was terminated, and the next is due in a minute.
            if self.awaits_list(snapshot, name) {
                ctx.request(Action::ListInstances);
            }
            return Step::Wait;
        }
        self.emptied_since.remove(name);
        for (claim_name, claim) in snapshot.claims_of_pool(name) {
            if claim.metadata.deletion_timestamp.is_none() {
                ctx.request(delete_claim(claim_name, claim));
            }
        }
        Step::Wait
    }

    /// True while the last list of instances is older than the end of the pool's last NodeClaim.
    fn awaits_list(&self, snapshot: &Snapshot, name: &str) -> bool {
        let emptied = self.emptied_since.get(name);
        emptied.is_some_and(|at| snapshot.instances().is_none_or(|list| list.asked.mono < *at))
    }

    /// What the deletion of a pool waits for, as of its last step.
    pub(super) fn statement(
        &self,
        ctx: &ReconcileContext<'_>,
        name: &str,
        pool: &TenantPool,
    ) -> Option<Statement> {
        let snapshot = ctx.snapshot;
        if let Some(statement) = named_by_tenants(snapshot, name) {
            return Some(statement);
        }
        let nodes = snapshot.claims_of_pool(name).count();
        let unnamed = self.unnamed_since.get(name);
        let may_return = unnamed.is_none_or(|since| ctx.now.mono.saturating_sub(*since) < UNNAMED_FOR);
        let (reason, message) = if may_return {
            let seconds = UNNAMED_FOR.as_secs();
            let then = if nodes == 0 {
                String::new()
            } else {
                format!("; then drains and terminates {}", counted(nodes, "node"))
            };
            let message = format!(
                "waits until no Tenant has named the pool for {seconds} s, since one that is replaced is away for a moment{then}"
            );
            (reasons::TENANT_MAY_RETURN, message)
        } else if nodes > 0 {
            let message = format!("waits for {} to be drained and terminated", counted(nodes, "node"));
            (reasons::NODES_REMAINING, message)
        } else {
            let why = match may_have_instances(snapshot, name, pool) {
                Some(false) => return None,
                Some(true) if !self.awaits_list(snapshot, name) => {
                    "waits until its instances without a NodeClaim are adopted or terminated"
                }
                Some(true) | None => "waits until the cloud has listed its instances",
            };
            (reasons::NODES_REMAINING, why.to_owned())
        };
        Some(Statement { kind: reasons::DELETION_BLOCKED, status: Some(true), reason, message })
    }

    /// True if the pool's status doesn't say yet what its deletion waits for. Counts of nodes may follow later.
    pub(super) fn is_untold(&self, ctx: &ReconcileContext<'_>, name: &str, pool: &TenantPool) -> bool {
        let mut conditions = pool.status.iter().flat_map(|status| &status.conditions);
        let told = conditions.find(|one| one.type_ == reasons::DELETION_BLOCKED);
        let has_nodes = ctx.snapshot.claims_of_pool(name).next().is_some();
        self.statement(ctx, name, pool).is_some_and(|statement| {
            told.is_none_or(|one| {
                one.reason != statement.reason || (!has_nodes && one.message != statement.message)
            })
        })
    }
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
    let nodes = counted(snapshot.nodes_of_pool(name).count(), "node");
    (!tenants.is_empty()).then(|| Statement {
        kind: reasons::DELETION_BLOCKED,
        status: Some(true),
        reason: reasons::NAMED_BY_TENANTS,
        message: format!(
            "waits until no Tenant names the pool: take it out of spec.pools of {shown} first. It works until then, with \
             {nodes}"
        ),
    })
}
