//! What a TenantPool's status says of its label. Whether it can have nodes is the engine's to say, in other conditions of
//! the same status.

use croft_api::condition::{ACCEPTED, Statement, set};
use croft_policy::Tenants;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{decide::Action, state::State};

/// The pools of which it isn't said yet whether they count.
pub(super) fn stale(state: &State, view: &Tenants, wall: Timestamp) -> Vec<Action> {
    let mut actions = Vec::new();
    for (name, pool) in state.pools.iter().filter(|(_, pool)| pool.metadata.deletion_timestamp.is_none()) {
        let statement = accepted(view, name);
        let mut conditions = pool.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        let was = conditions.iter().find(|c| c.type_ == ACCEPTED);
        let news = statement.status == Some(false)
            && was.is_none_or(|was| was.status != "False" || was.message != statement.message);
        let tell = news.then(|| (statement.reason, statement.message.clone()));
        if set(&mut conditions, statement, pool.metadata.generation, Time(wall)) {
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

fn accepted(view: &Tenants, name: &str) -> Statement {
    let collision = view.rules().collisions().iter().find(|(younger, _)| **younger == *name);
    match collision {
        None => Statement {
            kind: ACCEPTED,
            status: Some(true),
            reason: "Accepted",
            message: "its label is its own".to_owned(),
        },
        Some((_, older)) => Statement {
            kind: ACCEPTED,
            status: Some(false),
            reason: "LabelTaken",
            message: format!(
                "its nodes would carry a label of the older TenantPool {older}, so it doesn't count, and pods that would go \
                 there are refused; make it anew with another spec.key or spec.value, or another name"
            ),
        },
    }
}
