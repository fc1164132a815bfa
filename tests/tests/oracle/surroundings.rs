//! Objects of every scene: namespaces, PriorityClasses, a RuntimeClass with overhead.

use anyhow::Result;
use k8s_openapi::api::{
    core::v1::{Namespace, ServiceAccount},
    node::v1::RuntimeClass,
    scheduling::v1::PriorityClass,
};
use kube::{Api, Client, api::PostParams};
use serde_json::{Map, Value, json};

use super::pods::{NAMESPACES, OVERHEAD, PRIORITIES, RUNTIME, TEAM, TEAMS};

pub async fn make(client: &Client) -> Result<()> {
    let new = PostParams::default();
    for (name, team) in NAMESPACES.into_iter().zip(TEAMS) {
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": name, "labels": {TEAM: team}}}))?;
        Api::all(client.clone()).create(&new, &namespace).await?;
        // Its controller doesn't run here.
        let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "default"}}))?;
        Api::namespaced(client.clone(), name).create(&new, &account).await?;
    }
    for (name, value) in PRIORITIES {
        let class: PriorityClass = serde_json::from_value(
            json!({"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"}),
        )?;
        Api::all(client.clone()).create(&new, &class).await?;
    }
    // Pods without a PriorityClass don't preempt either.
    let class: PriorityClass = serde_json::from_value(
        json!({"metadata": {"name": "oracle-default"}, "value": 0, "globalDefault": true, "preemptionPolicy": "Never"}),
    )?;
    Api::all(client.clone()).create(&new, &class).await?;
    let overhead: Map<String, Value> = OVERHEAD.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
    let runtime: RuntimeClass = serde_json::from_value(
        json!({"metadata": {"name": RUNTIME}, "handler": "heavy", "overhead": {"podFixed": overhead}}),
    )?;
    Api::all(client.clone()).create(&new, &runtime).await?;
    Ok(())
}
