//! The templates of a pool: their nodes, what these cost, and why the pool launches no further one by a template. Called by
//! `croft explain pool` and by the page.

use std::sync::Arc;

use croft_api::{
    TenantPool,
    amount::Amount,
    pool::{NodeTemplateSpec, PoolTemplate},
};
use croft_cloud::pool_types;
use croft_manifest::Input;
use croft_scheduler::{InstanceType, LIMIT_COST, LIMIT_NODES, Price, Quantity, resources::native};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::{
    class_types::ClassTypes,
    inventory::{self, Cost, NodeInfo, total_cost},
};

/// One template of a pool.
#[derive(Clone, Debug)]
pub struct TemplateNodes<'n> {
    /// The template.
    pub template: PoolTemplate,
    /// Its nodes.
    pub nodes: Vec<&'n NodeInfo>,
    /// Their cost.
    pub cost: Cost,
    /// Why no further node is launched by it, in words; `None` if nothing here says so. Pods may still be unable to use it.
    pub passed_over: Option<String>,
}

/// The templates of `pool`, the heaviest first; none if it has only one kind of node. `nodes` are those of the pool. With a catalogue, reasons
/// also say what no instance type of it allows.
#[must_use]
pub fn templates<'n>(
    input: &Input,
    pool: &TenantPool,
    nodes: &[&'n NodeInfo],
    catalog: Option<&Arc<[InstanceType]>>,
    at: Timestamp,
) -> Vec<TemplateNodes<'n>> {
    let types =
        catalog.filter(|_| !pool.spec.templates.is_empty()).map(|types| ClassTypes::new(input, types));
    let mut all: Vec<TemplateNodes<'n>> = Vec::new();
    for (template, narrowed) in pool.by_template() {
        let Some(template) = template else { continue };
        let is_its = |node: &&'n NodeInfo| node.template.as_ref() == Some(&template.name);
        let nodes: Vec<&'n NodeInfo> = nodes.iter().copied().filter(is_its).collect();
        let possible = types.as_ref().map(|types| pool_types::possible(&narrowed, types.of_pool(&narrowed)));
        let cost = total_cost(nodes.iter().copied());
        let passed_over = unready_class(input, &template.spec)
            .or_else(|| delayed(pool, template, at))
            .or_else(|| no_type(possible.as_deref()))
            .or_else(|| reached(input, template, &nodes, cost, possible.as_deref()));
        all.push(TemplateNodes { template: template.clone(), nodes, cost, passed_over });
    }
    all.sort_by_key(|one| std::cmp::Reverse(one.template.weight));
    all
}

/// Its class exists and isn't Ready.
fn unready_class(input: &Input, spec: &NodeTemplateSpec) -> Option<String> {
    let name = &spec.node_class_ref.name;
    let conditions = &input.classes.get("", name)?.status.as_ref()?.conditions;
    let is_unready = |condition: &&Condition| {
        condition.type_ == croft_api::condition::READY && condition.status == "False"
    };
    let unready = conditions.iter().find(is_unready)?;
    Some(format!("EC2NodeClass {name} isn't Ready: {}", unready.message))
}

/// Nodes of it weren't initialized in time.
fn delayed(pool: &TenantPool, template: &PoolTemplate, at: Timestamp) -> Option<String> {
    let backoff = pool.status.as_ref()?.launch_backoff.as_ref()?;
    let failed = backoff.templates.iter().find(|one| one.template == template.name && one.until.0 > at)?;
    Some(format!(
        "launches by it wait until {}, since its last nodes weren't initialized in time",
        failed.until.0
    ))
}

/// No type meets its requirements.
fn no_type(possible: Option<&[InstanceType]>) -> Option<String> {
    possible.is_some_and(<[InstanceType]>::is_empty).then(|| {
        "no instance type of the catalogue meets its requirements: loosen spec.templates[].spec.requirements".to_owned()
    })
}

/// Limits of its own that leave no room for another node; without a catalogue, those that are used up.
fn reached(
    input: &Input,
    template: &PoolTemplate,
    nodes: &[&NodeInfo],
    cost: Cost,
    possible: Option<&[InstanceType]>,
) -> Option<String> {
    let of_types = |amount: &dyn Fn(&InstanceType) -> Option<i64>| {
        possible.and_then(|types| types.iter().filter_map(amount).min()).unwrap_or(1).max(1)
    };
    let is_reached = |(resource, limit): &(&String, &Amount)| {
        let (limit, used, next) = match resource.as_str() {
            LIMIT_NODES => (amount(resource, limit), count(nodes), 1),
            LIMIT_COST => {
                let price = |kind: &InstanceType| kind.offerings.iter().filter_map(|one| one.price).min();
                let limit = limit.0.parse::<Price>().ok().map(Price::micros);
                (limit, cost.sum.micros(), of_types(&|kind| price(kind).map(Price::micros)))
            }
            name => (
                amount(name, limit),
                capacity(input, nodes, name),
                of_types(&|kind| Some(kind.capacity.get(name))),
            ),
        };
        limit.is_some_and(|limit| used.saturating_add(next) > limit)
    };
    let reached: Vec<String> = template
        .limits
        .iter()
        .filter(is_reached)
        .map(|(name, limit)| format!("{name} {}", limit.0))
        .collect();
    (!reached.is_empty())
        .then(|| format!("its limits ({}) leave no room for another node", reached.join(", ")))
}

fn count(nodes: &[&NodeInfo]) -> i64 {
    i64::try_from(nodes.len()).unwrap_or(i64::MAX)
}

fn amount(resource: &str, amount: &Amount) -> Option<i64> {
    amount.0.parse::<Quantity>().ok().map(|quantity| native(resource, quantity))
}

/// Capacity of nodes as far as it is known, which is what limits count.
fn capacity(input: &Input, nodes: &[&NodeInfo], resource: &str) -> i64 {
    let known = nodes.iter().filter_map(|node| inventory::capacity(input, &node.name, resource));
    known.fold(0, i64::saturating_add)
}

#[cfg(test)]
mod tests {
    use croft_manifest::{LoadOptions, parse};
    use serde_json::json;

    use super::*;

    fn input(spot: &str, steady: &str) -> Input {
        let node = |name: &str, template: &str| {
            format!(
                "---
apiVersion: v1
kind: Node
metadata:
  name: {name}
  labels: {{node-restriction.kubernetes.io/pool: shop, croft.dev/template: {template}, node.kubernetes.io/instance-type: m5.large,
    topology.kubernetes.io/zone: us-east-1a, karpenter.sh/capacity-type: on-demand}}
status: {{capacity: {{cpu: '2', memory: 8Gi}}}}
"
            )
        };
        let text = format!(
            "
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {{name: shop}}
spec:
  templates:
  - {{name: steady, {steady} spec: {{nodeClassRef: {{name: default}}}}}}
  - {{name: spot, weight: 10, {spot} spec: {{nodeClassRef: {{name: default}}}}}}
{}{}{}",
            node("n1", "spot"),
            node("n2", "spot"),
            node("n3", "gone")
        );
        parse("t.yaml", &text, &LoadOptions::default()).unwrap()
    }

    fn reasons(input: &Input, catalog: Option<&Arc<[InstanceType]>>) -> Vec<(String, usize, Option<String>)> {
        let nodes = inventory::nodes(input);
        let nodes: Vec<&NodeInfo> = nodes.iter().collect();
        let at = "2026-11-30T12:00:00Z".parse().unwrap();
        let all = templates(input, input.pools.get("", "shop").unwrap(), &nodes, catalog, at);
        all.into_iter().map(|one| (one.template.name, one.nodes.len(), one.passed_over)).collect()
    }

    #[test]
    fn templates_have_their_own_nodes_and_the_limit_that_rules_them_out() {
        let catalog = croft_cloud::builtin_catalog();
        let why = |limits: &str, catalog| {
            let all = reasons(&input(&format!("limits: {{{limits}}},"), ""), catalog);
            assert_eq!((all[0].0.as_str(), all[0].1, all[1].0.as_str(), all[1].1), ("spot", 2, "steady", 0));
            assert_eq!(all[1].2, None);
            all[0].2.clone()
        };
        let full = |limit: &str| Some(format!("its limits ({limit}) leave no room for another node"));
        assert_eq!(why("nodes: 2", None), full("nodes 2"));
        assert_eq!(why("nodes: 3", None), None);
        assert_eq!(why("cpu: 4", None), full("cpu 4"));
        assert_eq!(why("costPerHour: '0.192'", None), full("costPerHour 0.192"));
        assert_eq!(why("costPerHour: '5', nodes: 2, cpu: 40", None), full("nodes 2"));
        // A tenth of a CPU is left, and no instance is so small.
        assert_eq!(why("cpu: 4100m", None), None);
        assert_eq!(why("cpu: 4100m", Some(&catalog)), full("cpu 4100m"));
    }

    #[test]
    fn launches_that_wait_say_until_when() {
        let catalog = croft_cloud::builtin_catalog();
        let waiting = |until: &str| {
            let mut input = input("", "");
            input.pools.for_each_mut(|pool| {
                let failed = json!({"template": "spot", "image": "ami-1", "rounds": 1, "until": until, "since": until, "missing": "x"});
                let backoff = json!({"rounds": 1, "until": until, "since": until, "instance": "i-1", "poolGeneration": 1,
                    "classGeneration": 1, "templates": [failed]});
                pool.status.get_or_insert_default().launch_backoff = serde_json::from_value(backoff).unwrap();
            });
            reasons(&input, Some(&catalog))
        };
        let delayed = waiting("2026-11-30T13:00:00Z");
        assert!(delayed[0].2.as_ref().unwrap().contains("until 2026-11-30T13:00:00Z"), "{delayed:?}");
        let over = waiting("2026-11-30T11:00:00Z");
        assert_eq!((&over[0].2, &over[1].2), (&None, &None));
    }
}
