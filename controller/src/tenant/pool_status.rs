//! The conditions of TenantPools about their label and spec. [`crate::nodepool::status`] writes them, with those about
//! their nodes.

use std::collections::BTreeMap;

use croft_api::condition::{ACCEPTED, Statement};
use croft_policy::Tenants;

use crate::{
    definitions::conditions as reasons,
    kube_api::Kind,
    state::InvalidObjects,
    tenant::{spec_valid::spec_valid, state::State},
};

/// Waiting pods that a condition names.
const MAX_NAMED_PODS: usize = 5;

/// The conditions of each pool that isn't being deleted. `open` has by pool the waiting pods that could be bound to its nodes.
pub(super) fn pool_statements(
    state: &State,
    invalid: &InvalidObjects,
    view: &Tenants,
    open: &BTreeMap<String, Vec<String>>,
) -> BTreeMap<String, Vec<Statement>> {
    let pools = state.pools.iter().filter(|(_, pool)| pool.metadata.deletion_timestamp.is_none());
    pools
        .map(|(name, pool)| {
            let conditions =
                pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            let valid = spec_valid(invalid, Kind::TenantPool, name, conditions);
            let open = open.get(name).map(Vec::as_slice).unwrap_or_default();
            (name.clone(), accepted(state, view, name, open).into_iter().chain(valid).collect())
        })
        .collect()
}

/// Returns `None` if the condition keeps its status: what the policies know is unknown until a probe is answered.
fn accepted(state: &State, view: &Tenants, name: &str, open: &[String]) -> Option<Statement> {
    let statement =
        |status, reason, message| Some(Statement { kind: ACCEPTED, status: Some(status), reason, message });
    if state.pools.get(name).is_some_and(|pool| pool.spec.per_tenant) {
        let message = "a pool is made from it for each Tenant that names it".to_owned();
        return statement(true, reasons::ACCEPTED, message);
    }
    let collision = view.declarations().collisions().iter().find(|(younger, _)| **younger == *name);
    if let Some((_, older)) = collision {
        let message = format!(
            "its nodes would carry a label of the older TenantPool {older}, so it is ignored, and pods that would go \
             there are refused; recreate it with another spec.key or spec.value, or another name"
        );
        return statement(false, reasons::LABEL_TAKEN, message);
    }
    let pool = view.declarations().pool_id(name).and_then(|id| view.declarations().pool(id))?;
    if state.parameters.pool_in_force(pool)? {
        if !open.is_empty() {
            let named = open.iter().take(MAX_NAMED_PODS).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = open.len().saturating_sub(MAX_NAMED_PODS);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            let message = format!(
                "no node is launched or admitted, since pods that are not its own wait and could be bound there: {named}{more}; \
                 they tolerate its taint and were created before it was theirs to keep off: delete them, or the workloads \
                 that made them, and what is created again is kept off"
            );
            return statement(false, reasons::OPEN_TO_WAITING_PODS, message);
        }
        return statement(true, reasons::ACCEPTED, "no other pool has its label".to_owned());
    }
    let message = format!(
        "the admission policies don't know its label {}={} yet, so no node is launched; check that Croft's \
         controller runs and that manifests/install/policies.yaml is applied",
        pool.key, pool.value
    );
    statement(false, reasons::KEY_NOT_IN_FORCE, message)
}
