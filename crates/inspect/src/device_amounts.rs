//! Amounts of devices and huge pages that nodes show, beside those that their templates declare. Called by `croft advise`.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use croft_api::{
    condition::{INITIALIZED, is_true},
    convert::declared,
    sentence::shortened,
};
use croft_manifest::Input;
use croft_policy::definitions::TEMPLATE_LABEL;
use croft_scheduler::Quantity;
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::api::resource::Quantity as Amount};
use kube::ResourceExt as _;

use crate::node_index::NodeIndex;

const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// A declared amount of which nodes show another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Difference {
    pool: String,
    template: Option<String>,
    resource: String,
    instance_type: String,
    declared: String,
    shown: String,
}

/// A sentence for each amount that a template declares and of which nodes show another one; of the pools of one tenant if it is named. A
/// node that doesn't show the resource at all counts once it is initialized: until then its device plugin may come.
#[must_use]
pub fn other_amounts(input: &Input, tenant: Option<&str>) -> Vec<String> {
    let index = NodeIndex::new(input);
    let own: Option<BTreeSet<Cow<'_, str>>> = tenant.map(|name| {
        let tenant = input.tenants.get("", name).into_iter();
        tenant.flat_map(|tenant| input.pools_of_tenant(tenant)).collect()
    });
    let mut found: BTreeMap<Difference, BTreeSet<String>> = BTreeMap::new();
    for node in &input.nodes {
        let node = &node.object;
        let Some(pool) = index.pool_of(node) else { continue };
        let name = pool.name_any();
        if own.as_ref().is_some_and(|own| !own.contains(name.as_str())) {
            continue;
        }
        let template = node.labels().get(TEMPLATE_LABEL);
        let of_template = pool.of_template(template.map(String::as_str));
        let (Some(of_template), Some(instance_type)) = (of_template, node.labels().get(INSTANCE_TYPE)) else {
            continue;
        };
        let claim = index.claim_of(node).and_then(|claim| claim.status.as_ref());
        let is_initialized = claim.is_some_and(|status| is_true(&status.conditions, INITIALIZED));
        let declared = declared::amounts(of_template.declared_resources(), instance_type);
        let declared: BTreeMap<&str, &str> =
            declared.map(|(name, amount)| (name.as_str(), amount.0.as_str())).collect();
        for (resource, declared) in declared {
            let Some(shown) = shown(node, resource, is_initialized) else { continue };
            if !is_other(declared, shown) {
                continue;
            }
            let difference = Difference {
                pool: name.clone(),
                template: template.cloned(),
                resource: resource.to_owned(),
                instance_type: instance_type.clone(),
                declared: declared.to_owned(),
                shown: shown.to_owned(),
            };
            found.entry(difference).or_default().insert(node.name_any());
        }
    }
    found.iter().map(|(difference, nodes)| sentence(difference, nodes)).collect()
}

/// The amount that a node shows; `None` if that isn't known.
fn shown<'n>(node: &'n Node, resource: &str, is_initialized: bool) -> Option<&'n str> {
    let capacity = node.status.as_ref()?.capacity.as_ref()?;
    match capacity.get(resource) {
        Some(Amount(amount)) => Some(amount),
        None => is_initialized.then_some("0"),
    }
}

/// True if both can be read, and differ.
fn is_other(declared: &str, shown: &str) -> bool {
    let read = |amount: &str| amount.parse::<Quantity>().ok();
    read(declared).zip(read(shown)).is_some_and(|(declared, shown)| declared != shown)
}

fn sentence(difference: &Difference, nodes: &BTreeSet<String>) -> String {
    let Difference { pool, template, resource, instance_type, declared, shown } = difference;
    let field = match template {
        Some(name) => format!("spec.templates[{name}].spec.resources"),
        None => "spec.template.spec.resources".to_owned(),
    };
    let verb = if nodes.len() == 1 { "shows" } else { "show" };
    let names = shortened(&nodes.iter().collect::<Vec<_>>(), 3);
    format!(
        "TenantPool {pool} declares {resource}: {declared} of {instance_type}, and {names} {verb} {shown}: pods are planned with what \
         is declared; write the amount into {field}, or correct the device plugin or user data"
    )
}

#[cfg(test)]
mod tests {
    use croft_manifest::{LoadOptions, parse};

    use super::*;

    const POOLS: &str = "
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: shop}
spec: {namespaces: [shop], pools: [shared]}
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: shared}
spec:
  template:
    spec:
      nodeClassRef: {name: default}
      resources: [{amounts: {example.com/fuse: 20, hugepages-2Mi: 1Gi}}, {instanceTypes: [g4dn.xlarge], amounts: {nvidia.com/gpu: 4}}]
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: several}
spec:
  templates:
  - {name: big, spec: {nodeClassRef: {name: default}, resources: [{amounts: {example.com/fuse: 20}}]}}
";

    fn node(name: &str, pool: &str, labels: &str, capacity: &str) -> String {
        format!(
            "---
apiVersion: v1
kind: Node
metadata:
  name: {name}
  labels: {{node-restriction.kubernetes.io/pool: {pool}, {labels}}}
status: {{capacity: {{cpu: '4', {capacity}}}}}
"
        )
    }

    fn amounts_of(nodes: &[String], tenant: Option<&str>) -> Vec<String> {
        let text = format!("{POOLS}{}", nodes.concat());
        other_amounts(&parse("cluster.yaml", &text, &LoadOptions::default()).unwrap(), tenant)
    }

    #[test]
    fn another_amount_than_the_declared_one_is_named_with_its_nodes() {
        let of_type = |name: &str| format!("node.kubernetes.io/instance-type: {name}");
        let gpu = of_type("g4dn.xlarge");
        let same = "example.com/fuse: '20', hugepages-2Mi: 1024Mi, nvidia.com/gpu: '4'";
        let less = "example.com/fuse: '20', hugepages-2Mi: 1Gi, nvidia.com/gpu: '1'";
        let nodes = [
            node("a", "shared", &gpu, same),
            node("b", "shared", &gpu, less),
            node("c", "shared", &gpu, less),
            // The entry of another type says nothing of it, and what it doesn't show may still come.
            node("d", "shared", &of_type("m5.large"), "nvidia.com/gpu: '8'"),
        ];
        let found = amounts_of(&nodes, Some("shop"));
        let [one] = found.as_slice() else { panic!("{found:?}") };
        let start = "TenantPool shared declares nvidia.com/gpu: 4 of g4dn.xlarge, and b, c show 1: ";
        assert!(one.starts_with(start), "{one}");
        assert!(one.contains("spec.template.spec.resources"), "{one}");
    }

    #[test]
    fn amounts_of_a_template_are_those_of_its_nodes() {
        let labels = "node.kubernetes.io/instance-type: m5.large, croft.dev/template: ";
        let nodes = [
            node("a", "several", &format!("{labels}big"), "example.com/fuse: '10'"),
            node("b", "several", &format!("{labels}gone"), "example.com/fuse: '10'"),
        ];
        let found = amounts_of(&nodes, None);
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert!(
            one.contains("and a shows 10: ") && one.contains("spec.templates[big].spec.resources"),
            "{one}"
        );
        assert_eq!(
            amounts_of(&nodes, Some("shop")),
            [""; 0],
            "the pool of no tenant is none of the tenant's"
        );
    }
}
