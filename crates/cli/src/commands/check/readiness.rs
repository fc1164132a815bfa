//! The Ready conditions of Croft's objects.

use croft_api::{
    condition::{READY, UNLIMITED},
    stored::{HasConditions, INVALID_SPEC, Kind, Stored},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use super::report::{Finding, Problem, fail};

/// Every object of a kind is Ready.
pub(super) async fn ready<K: Kind + HasConditions>(client: &Client) -> Finding {
    let api: Api<Stored<K>> = Api::all(client.clone());
    let kind = K::kind(&()).into_owned();
    let listed = api.list(&ListParams::default()).await;
    let listed = listed.map_err(|error| Problem::unread("failed to list them", &error))?;
    let items: Vec<K> = listed.items.into_iter().filter_map(Stored::legible).collect();
    for object in &items {
        let name = object.name_any();
        let found = object.conditions();
        if let Some(flaw) = found.iter().find(|c| c.reason == INVALID_SPEC && c.status == "False") {
            return fail(
                format!("{kind} {name} is invalid and not in force ({INVALID_SPEC})"),
                &flaw.message,
            );
        }
        match found.iter().find(|c| c.type_ == READY) {
            Some(condition) if condition.status == "True" => {}
            Some(condition) => {
                let mut message = condition.message.clone();
                // Ready sums up the other conditions; the false one says what to do.
                let is_cause =
                    |c: &&Condition| c.status == "False" && ![READY, UNLIMITED].contains(&c.type_.as_str());
                if let Some(cause) = found.iter().find(is_cause) {
                    message = cause.message.clone();
                }
                return fail(format!("{kind} {name} isn't ready ({})", condition.reason), message);
            }
            None => {
                return fail(
                    format!("{kind} {name} has no status yet"),
                    "see that the controller leads; it writes the status",
                );
            }
        }
    }
    Ok(format!("{} ready", items.len()))
}
