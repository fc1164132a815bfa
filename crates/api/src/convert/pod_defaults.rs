//! The additions of the API server's admission to a pod's requests: LimitRanges and the overhead of RuntimeClasses. The plans of
//! the controller and of the command line read templates through this, since a template doesn't have it yet.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        core::v1::{LimitRange, LimitRangeItem, PodSpec, ResourceRequirements},
        node::v1::RuntimeClass,
    },
    apimachinery::pkg::api::resource::Quantity,
};

/// Writes overhead, node selector and tolerations of a RuntimeClass into a pod that names it.
///
/// # Errors
/// The API server's refusal in words: a node selector that contradicts the class's.
pub fn runtime_class(spec: &mut PodSpec, class: &RuntimeClass) -> Result<(), String> {
    let name = class.metadata.name.as_deref().unwrap_or_default();
    if let Some(fixed) = class.overhead.as_ref().and_then(|o| o.pod_fixed.clone()) {
        spec.overhead = Some(fixed);
    }
    let Some(scheduling) = &class.scheduling else { return Ok(()) };
    for (key, value) in scheduling.node_selector.iter().flatten() {
        let selector = spec.node_selector.get_or_insert_default();
        if selector.get(key).is_some_and(|own| own != value) {
            return Err(format!(
                "nodeSelector[{key:?}] differs from that of RuntimeClass {name}, which is {value:?}"
            ));
        }
        selector.insert(key.clone(), value.clone());
    }
    for toleration in scheduling.tolerations.iter().flatten() {
        let own = spec.tolerations.get_or_insert_default();
        if !own.contains(toleration) {
            own.push(toleration.clone());
        }
    }
    Ok(())
}

/// Writes the defaults of the LimitRanges of a pod's namespace into its containers.
pub fn limit_ranges<'r>(spec: &mut PodSpec, ranges: impl IntoIterator<Item = &'r LimitRange>) {
    let specs = ranges.into_iter().filter_map(|range| range.spec.as_ref());
    let items: Vec<&LimitRangeItem> =
        specs.flat_map(|spec| &spec.limits).filter(|item| item.type_ == "Container").collect();
    for container in spec.init_containers.iter_mut().flatten().chain(spec.containers.iter_mut()) {
        // The API server defaults a pod before its admission, and templates not at all.
        container.resources.iter_mut().for_each(requests_from_limits);
        if items.is_empty() {
            continue;
        }
        let resources = container.resources.get_or_insert_default();
        for item in &items {
            container_defaults(resources, item);
        }
    }
}

/// A resource with a limit and without a request gets a request of that amount (pkg/apis/core/v1/defaults.go, SetDefaults_Pod).
pub fn requests_from_limits(resources: &mut ResourceRequirements) {
    let Some(limits) = &resources.limits else { return };
    let requests = resources.requests.get_or_insert_default();
    for (name, limit) in limits {
        requests.entry(name.clone()).or_insert_with(|| limit.clone());
    }
}

/// Limits first, then requests. The API server defaults the item's `defaultRequest` from `default`, and `default` from
/// `max` (pkg/apis/core/v1/defaults.go, SetDefaults_LimitRangeItem).
fn container_defaults(resources: &mut ResourceRequirements, item: &LimitRangeItem) {
    let empty = BTreeMap::new();
    let limits: BTreeMap<String, Quantity> =
        merged(item.default.as_ref().unwrap_or(&empty), item.max.as_ref().unwrap_or(&empty));
    let requests = merged(
        &merged(item.default_request.as_ref().unwrap_or(&empty), &limits),
        item.min.as_ref().unwrap_or(&empty),
    );
    for (field, defaults) in [(&mut resources.limits, limits), (&mut resources.requests, requests)] {
        if defaults.is_empty() {
            continue;
        }
        *field = Some(merged(field.as_ref().unwrap_or(&empty), &defaults));
    }
}

fn merged(
    first: &BTreeMap<String, Quantity>,
    second: &BTreeMap<String, Quantity>,
) -> BTreeMap<String, Quantity> {
    let mut result = second.clone();
    result.extend(first.iter().map(|(name, amount)| (name.clone(), amount.clone())));
    result
}
