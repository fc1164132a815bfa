//! Hostile clusters against the scheduler: whatever it takes in, the plan holds.

use std::{collections::BTreeMap, sync::Arc};

use croft_scheduler::{
    CapacityType, Cluster, InstanceType, Offering, Options, Plan, Pool, Price, Quantity, Requirement,
    Resources, solve as plan,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// More objects of a kind than this are left out: size has tests of its own.
const MOST: usize = 24;

fn each<T: DeserializeOwned>(input: &Value, list: &str) -> Vec<T> {
    let all = input[list].as_array().into_iter().flatten().take(MOST);
    all.filter_map(|value| serde_json::from_value(value.clone()).ok()).collect()
}

/// Some types at the price that the input says, which may be none at all.
fn types(input: &Value) -> Arc<[InstanceType]> {
    let given: Vec<InstanceType> = each(input, "types");
    if !given.is_empty() {
        return given.into();
    }
    let kind = |cpu: u32| {
        let mut capacity = Resources::new();
        capacity.set("cpu", i64::from(cpu) * 1000);
        capacity.set("memory", i64::from(cpu) << 32);
        capacity.set("pods", 30);
        let offer = |zone: &str| Offering {
            zone: zone.to_owned(),
            capacity_type: CapacityType::OnDemand,
            price: input["price"]
                .as_f64()
                .map_or_else(|| Price::from_dollars(f64::from(cpu)), Price::from_dollars),
            available: true,
            estimated: false,
            available_count: None,
        };
        InstanceType {
            name: format!("t.{cpu}"),
            arch: "amd64".to_owned(),
            os: vec!["linux".to_owned()],
            capacity,
            overhead: Resources::new(),
            labels: BTreeMap::from([("size".to_owned(), cpu.to_string())]),
            attach_limits: BTreeMap::new(),
            offerings: vec![offer("zone-a"), offer("zone-b")],
        }
    };
    [1, 2, 8].map(kind).into_iter().collect()
}

/// A pool as the input describes it, in the fields' own words.
fn pool(value: &Value, number: usize, types: &Arc<[InstanceType]>) -> Pool {
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    let limits = value["limits"].as_object().into_iter().flatten();
    let limit = |(name, amount): (&String, &Value)| {
        let amount: Quantity = amount.as_str()?.parse().ok()?;
        Some((name.clone(), amount))
    };
    Pool {
        name: text("name").unwrap_or_else(|| format!("pool-{number}")),
        key: text("key").unwrap_or_else(|| "node-pool".to_owned()),
        value: text("value").unwrap_or_else(|| format!("pool-{number}")),
        template: text("template").unwrap_or_default(),
        template_limits: value["templateLimits"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(limit)
            .collect(),
        weight: value["weight"].as_i64().and_then(|w| i32::try_from(w).ok()).unwrap_or(0),
        limits: limits.filter_map(limit).collect(),
        requirements: each::<Requirement>(value, "requirements"),
        labels: serde_json::from_value(value["labels"].clone()).unwrap_or_default(),
        taints: each(value, "taints"),
        startup_taints: each(value, "startupTaints"),
        instance_types: Arc::clone(types),
        launches: value["launches"] != false,
        replicas: value["replicas"].as_u64().and_then(|n| u32::try_from(n).ok()),
        template_replicas: value["templateReplicas"].as_u64().and_then(|n| u32::try_from(n).ok()),
        shares: Vec::new(),
        held: text("held"),
    }
}

/// Whatever objects come, in whatever order: each is taken in or refused with its field; each pod that waits is placed once
/// or has reasons; no instance holds more than it has; the bound is no higher than the cost; and a second look says the same.
pub fn solve(input: &[u8]) -> Result<String, String> {
    let Ok(input) = serde_json::from_slice::<Value>(input) else { return Ok("no JSON".to_owned()) };
    let mut cluster = Cluster::new();
    let mut refused: Vec<String> = Vec::new();
    let mut note = |result: Result<(), croft_scheduler::InputError>| {
        if let Err(error) = result {
            refused.push(format!("{}.{}", error.kind, error.field.len()));
        }
    };
    let types = types(&input);
    let pools = input["pools"].as_array().cloned().unwrap_or_else(|| vec![Value::Null]);
    for (number, value) in pools.iter().take(4).enumerate() {
        note(cluster.upsert_pool(pool(value, number, &types)));
    }
    for namespace in each(&input, "namespaces") {
        cluster.upsert_namespace(&namespace);
    }
    each(&input, "classes").iter().for_each(|class| note(cluster.upsert_storage_class(class)));
    each(&input, "volumes").iter().for_each(|volume| note(cluster.upsert_pv(volume)));
    each(&input, "claims").iter().for_each(|claim| note(cluster.upsert_pvc(claim)));
    each(&input, "attach").iter().for_each(|node| note(cluster.upsert_csi_node(node)));
    each(&input, "nodes").iter().for_each(|node| note(cluster.upsert_node(node)));
    each(&input, "daemons").iter().for_each(|daemon| note(cluster.upsert_daemonset(daemon)));
    let pods: Vec<k8s_openapi::api::core::v1::Pod> = each(&input, "pods");
    pods.iter().for_each(|pod| note(cluster.upsert_pod(pod)));
    let options = Options {
        effort: u32::try_from(input["effort"].as_u64().unwrap_or(1).min(2)).unwrap_or(1),
        max_share_percent: u32::try_from(input["share"].as_u64().unwrap_or(0).min(200)).unwrap_or(0),
        ..Options::default()
    };
    let first = plan(&cluster, &options, &|| false);
    holds(&cluster, &first)?;
    let again = plan(&cluster, &options, &|| false);
    if format!("{first:?}") != format!("{again:?}") {
        return Err("the same cluster gave two plans".to_owned());
    }
    let mut words: Vec<&str> =
        first.unschedulable.iter().flat_map(|u| u.reasons.iter()).map(|r| r.reason.as_str()).collect();
    words.sort_unstable();
    words.dedup();
    refused.sort_unstable();
    refused.dedup();
    Ok(format!(
        "{}m{}e{}u{words:?}{refused:?}",
        first.instances.len().min(5),
        first.existing.len().min(3),
        first.unschedulable.len().min(3)
    ))
}

fn holds(cluster: &Cluster, plan: &Plan) -> Result<(), String> {
    let placed: usize = plan.instances.iter().map(|m| m.pods.len()).sum();
    let old: usize = plan.existing.iter().map(|e| e.pods.len()).sum();
    if placed + old + plan.unschedulable.len() != cluster.pending() {
        return Err(format!("{placed} + {old} + {} of {} pods", plan.unschedulable.len(), cluster.pending()));
    }
    if let Some(left) = plan.unschedulable.iter().find(|u| u.reasons.is_empty()) {
        return Err(format!("{} is left without a reason", left.pod));
    }
    if plan.bound > plan.cost {
        return Err(format!("the bound {} is above the cost {}", plan.bound, plan.cost));
    }
    for instance in &plan.instances {
        if instance.pods.is_empty() {
            return Err(format!("{} is launched for no pod", instance.name));
        }
        for (name, amount) in instance.requests.iter() {
            if amount > instance.allocatable.get(name).max(0) {
                return Err(format!("{} holds {amount} of {name}", instance.name));
            }
        }
    }
    Ok(())
}
