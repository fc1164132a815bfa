//! The conditions of a TenantPool about its label and spec. `nodepool::status` writes the conditions about its
//! nodes.

use croft_api::condition::{ACCEPTED, Statement, set};
use croft_policy::Tenants;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    definitions::conditions as reasons,
    tenant::{action::Action, spec_valid::spec_valid, state::State},
};

/// The status writes that are due.
pub(super) fn status_writes(state: &State, view: &Tenants, wall: Timestamp) -> Vec<Action> {
    let mut actions = Vec::new();
    for (name, pool) in state.pools.iter().filter(|(_, pool)| pool.metadata.deletion_timestamp.is_none()) {
        let mut conditions = pool.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        let valid = spec_valid(state, "TenantPool", name, &conditions);
        let (mut event, mut differs) = (None, false);
        for statement in accepted(state, view, name).into_iter().chain(valid) {
            let was = conditions.iter().find(|c| c.type_ == statement.kind);
            let news = statement.status == Some(false)
                // It lasts less than a second.
                && statement.reason != reasons::KEY_NOT_IN_FORCE
                && was.is_none_or(|was| was.status != "False" || was.message != statement.message);
            event = news.then(|| (statement.reason, statement.message.clone())).or(event);
            differs |= set(&mut conditions, statement, pool.metadata.generation, Time(wall));
        }
        if differs {
            actions.push(Action::PoolStatus {
                pool: name.clone(),
                version: pool.metadata.resource_version.clone(),
                conditions,
                event,
            });
        }
    }
    actions
}

/// Returns `None` if the condition keeps its status: the policies' keys are unknown until a probe is answered.
fn accepted(state: &State, view: &Tenants, name: &str) -> Option<Statement> {
    let statement =
        |status, reason, message| Some(Statement { kind: ACCEPTED, status: Some(status), reason, message });
    let collision = view.declarations().collisions().iter().find(|(younger, _)| **younger == *name);
    if let Some((_, older)) = collision {
        let message = format!(
            "its nodes would carry a label of the older TenantPool {older}, so it is ignored, and pods that would go \
             there are refused; recreate it with another spec.key or spec.value, or another name"
        );
        return statement(false, reasons::LABEL_TAKEN, message);
    }
    let key = view
        .declarations()
        .pool_id(name)
        .and_then(|id| view.declarations().pool(id))
        .map(|pool| &*pool.key)?;
    if state.parameters.key_in_force(key)? {
        return statement(true, reasons::ACCEPTED, "no other pool has its label".to_owned());
    }
    let message = format!(
        "the admission policies don't know its key {key} yet, so no node is launched; check that Croft's \
         controller runs and that manifests/install/policies.yaml is applied"
    );
    statement(false, reasons::KEY_NOT_IN_FORCE, message)
}
