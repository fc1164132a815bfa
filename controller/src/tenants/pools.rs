//! What a TenantPool's status says of its label. Whether it can have nodes is the engine's to say, in other conditions of
//! the same status.

use croft_api::condition::{ACCEPTED, Statement, set};
use croft_policy::Tenants;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{decide::Action, state::State, unread::spec_valid};

/// Passes by itself within a second, so no Event tells of it.
const KEY_NOT_IN_FORCE: &str = "KeyNotInForce";

/// The pools of which it isn't said yet whether they count.
pub(super) fn stale(state: &State, view: &Tenants, wall: Timestamp) -> Vec<Action> {
    let mut actions = Vec::new();
    for (name, pool) in state.pools.iter().filter(|(_, pool)| pool.metadata.deletion_timestamp.is_none()) {
        let mut conditions = pool.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        let valid = spec_valid(state, "TenantPool", name, &conditions);
        let (mut tell, mut differs) = (None, false);
        for statement in accepted(state, view, name).into_iter().chain(valid) {
            let was = conditions.iter().find(|c| c.type_ == statement.kind);
            let news = statement.status == Some(false)
                && statement.reason != KEY_NOT_IN_FORCE
                && was.is_none_or(|was| was.status != "False" || was.message != statement.message);
            tell = news.then(|| (statement.reason, statement.message.clone())).or(tell);
            differs |= set(&mut conditions, statement, pool.metadata.generation, Time(wall));
        }
        if differs {
            actions.push(Action::PoolStatus {
                pool: name.clone(),
                version: pool.metadata.resource_version.clone(),
                conditions,
                tell,
            });
        }
    }
    actions
}

/// `None` if what was said before stands: as long as the API server wasn't asked which keys its policies know.
fn accepted(state: &State, view: &Tenants, name: &str) -> Option<Statement> {
    let say =
        |status, reason, message| Some(Statement { kind: ACCEPTED, status: Some(status), reason, message });
    let collision = view.declarations().collisions().iter().find(|(younger, _)| **younger == *name);
    if let Some((_, older)) = collision {
        let message = format!(
            "its nodes would carry a label of the older TenantPool {older}, so it doesn't count, and pods that would go \
             there are refused; make it anew with another spec.key or spec.value, or another name"
        );
        return say(false, "LabelTaken", message);
    }
    let key = view
        .declarations()
        .pool_id(name)
        .and_then(|id| view.declarations().pool(id))
        .map(|pool| &*pool.key)?;
    if state.parameters.knows(key)? {
        return say(true, "Accepted", "its label is its own".to_owned());
    }
    let message = format!(
        "the admission policies don't know its key {key} yet, and no node is launched before they do; see that Croft's \
         controller runs and that manifests/install/policies.yaml is applied"
    );
    say(false, KEY_NOT_IN_FORCE, message)
}
