//! A workload and its plan as files that `croft simulate` and anybody's checker can read.

use std::collections::BTreeMap;

use croft_scheduler::{InstanceType, Plan, Pool};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

/// The input of a plan.
pub struct Input<'a> {
    pub kinds: &'a [InstanceType],
    pub pools: &'a [Pool],
    pub nodes: &'a [Node],
    pub pods: &'a [Pod],
}

/// A catalogue file.
pub fn catalog(kinds: &[InstanceType]) -> Value {
    json!({"instanceTypes": kinds})
}

fn typed(object: &impl serde::Serialize, kind: &str) -> Value {
    let mut value = serde_json::to_value(object).unwrap();
    value["apiVersion"] = json!("v1");
    value["kind"] = json!(kind);
    value
}

/// Pools, each with a tenant whose namespace its pods are in; nodes; pods, running ones as a cluster has them.
pub fn cluster(input: &Input<'_>) -> Value {
    let mut items: Vec<Value> = Vec::new();
    // A pod's pool is its selector's; where it has none there is one pool for all.
    let pool_of = |pod: &Pod| {
        let selector = pod.spec.as_ref().and_then(|s| s.node_selector.as_ref());
        selector.and_then(|s| s.get("node-pool").cloned()).unwrap_or_else(|| input.pools[0].name.clone())
    };
    let mut namespaces: BTreeMap<String, String> = BTreeMap::new();
    for pod in input.pods {
        namespaces.insert(pod.metadata.namespace.clone().unwrap(), pool_of(pod));
    }
    let node = |pool: &Pool| json!({"requirements": pool.requirements, "nodeClassRef": {"name": "default"}});
    for templates in input.pools.chunk_by(|one, next| one.name == next.name) {
        let (name, key) = (&templates[0].name, &templates[0].key);
        let spec = match templates {
            [one] if one.template.is_empty() => json!({"key": key, "template": {"spec": node(one)}}),
            _ => {
                let template = |one: &Pool| {
                    json!({"name": one.template, "weight": one.weight, "limits": one.template_limits,
                        "spec": node(one)})
                };
                json!({"key": key, "templates": templates.iter().map(template).collect::<Vec<_>>()})
            }
        };
        items.push(json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool",
            "metadata": {"name": name}, "spec": spec}));
    }
    for (namespace, pool) in &namespaces {
        items.push(
            json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": namespace},
            "spec": {"namespaces": [namespace], "pools": [pool]}}),
        );
        items.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
    }
    items.extend(input.nodes.iter().map(|node| typed(node, "Node")));
    for pod in input.pods {
        let mut value = typed(pod, "Pod");
        for container in value["spec"]["containers"].as_array_mut().unwrap() {
            container["image"] = json!("registry.example/app");
        }
        if !value["spec"]["nodeName"].is_null() {
            value["status"] = json!({"phase": "Running"});
        }
        items.push(value);
    }
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// The plan, as `croft simulate -o json` says it.
pub fn plan(plan: &Plan) -> Value {
    let names = |pods: &[croft_scheduler::PodKey]| pods.iter().map(ToString::to_string).collect::<Vec<_>>();
    let new = plan.instances.iter().map(|m| {
        json!({"name": m.name, "pool": m.pool, "template": m.template, "instanceType": m.instance_type, "zone": m.zone,
            "capacityType": m.capacity_type, "price": m.price, "existing": false, "requests": m.requests,
            "pods": names(&m.pods), "instanceTypeOptions": m.options})
    });
    let old = plan.existing.iter().map(|e| {
        json!({"name": e.node, "pool": e.pool, "instanceType": e.instance_type, "zone": e.zone,
            "capacityType": e.capacity_type, "price": e.price, "existing": true, "requests": e.requests,
            "pods": names(&e.pods), "instanceTypeOptions": []})
    });
    let left: Vec<Value> =
        plan.unschedulable.iter().map(|u| json!({"pod": u.pod.to_string(), "reasons": *u.reasons})).collect();
    json!({"nodes": new.chain(old).collect::<Vec<_>>(), "unschedulable": left, "costPerHour": plan.cost,
        "lowerBoundPerHour": plan.bound, "gap": plan.gap()})
}
