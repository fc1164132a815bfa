//! Checks of the fields of a pod that decide placement, as the API server has them.

use std::collections::{BTreeMap, HashSet};

use croft_scheduler::Quantity;
use k8s_openapi::{
    api::core::v1::{
        Affinity, Container, NodeSelectorTerm, Pod, PodAffinityTerm, PodSpec, ResourceRequirements,
        Toleration, TopologySpreadConstraint,
    },
    apimachinery::pkg::{api::resource::Quantity as ApiQuantity, apis::meta::v1::LabelSelector},
};

use super::{
    metadata::{FieldErrors, labels},
    names::{label_value, qualified},
};
use crate::quantity;

/// Everything in a Pod.
pub(crate) fn pod(pod: &Pod, errors: &mut FieldErrors) {
    match &pod.spec {
        Some(pod_spec) => spec("spec", pod_spec, errors),
        None => errors.push(("spec".to_owned(), "this is required: a pod needs containers".to_owned())),
    }
}

/// Everything in a pod's spec at `path`.
pub(super) fn spec(path: &str, spec: &PodSpec, errors: &mut FieldErrors) {
    if spec.containers.is_empty() {
        errors.push((
            format!("{path}.containers"),
            "this is required: write at least one container".to_owned(),
        ));
    }
    let mut seen = HashSet::new();
    for (list, containers) in
        [("containers", Some(&spec.containers)), ("initContainers", spec.init_containers.as_ref())]
    {
        for (i, one) in containers.into_iter().flatten().enumerate() {
            container(&format!("{path}.{list}[{i}]"), one, &mut seen, errors);
        }
    }
    if let Some(resources) = &spec.resources {
        requirements(&format!("{path}.resources"), resources, errors);
    }
    amounts(&format!("{path}.overhead"), spec.overhead.as_ref(), errors);
    if !matches!(spec.restart_policy.as_deref(), None | Some("Always" | "OnFailure" | "Never")) {
        let given = spec.restart_policy.as_deref().unwrap_or_default();
        errors.push((
            format!("{path}.restartPolicy"),
            format!("{given:?} isn't one of Always, OnFailure, Never"),
        ));
    }
    labels(&format!("{path}.nodeSelector"), spec.node_selector.as_ref(), errors);
    for (i, one) in spec.tolerations.iter().flatten().enumerate() {
        toleration(&format!("{path}.tolerations[{i}]"), one, errors);
    }
    for (i, one) in spec.topology_spread_constraints.iter().flatten().enumerate() {
        spread(&format!("{path}.topologySpreadConstraints[{i}]"), one, errors);
    }
    if let Some(one) = &spec.affinity {
        affinity(&format!("{path}.affinity"), one, errors);
    }
}

fn container<'c>(
    path: &str,
    container: &'c Container,
    seen: &mut HashSet<&'c str>,
    errors: &mut FieldErrors,
) {
    if container.name.is_empty() {
        errors.push((format!("{path}.name"), "this is required: give the container a name".to_owned()));
    } else if !seen.insert(&container.name) {
        errors.push((format!("{path}.name"), format!("the name {:?} is there twice", container.name)));
    }
    if let Some(resources) = &container.resources {
        requirements(&format!("{path}.resources"), resources, errors);
    }
    for (i, port) in container.ports.iter().flatten().enumerate() {
        if !(1..=65_535).contains(&port.container_port) {
            let message = format!("{} is no port; write 1 to 65535", port.container_port);
            errors.push((format!("{path}.ports[{i}].containerPort"), message));
        }
        if port.host_port.is_some_and(|p| !(0..=65_535).contains(&p)) {
            let message = format!("{} is no port; write 1 to 65535", port.host_port.unwrap_or(0));
            errors.push((format!("{path}.ports[{i}].hostPort"), message));
        }
    }
    if !matches!(container.restart_policy.as_deref(), None | Some("Always" | "OnFailure" | "Never")) {
        let given = container.restart_policy.as_deref().unwrap_or_default();
        errors.push((
            format!("{path}.restartPolicy"),
            format!("{given:?} isn't one of Always, OnFailure, Never"),
        ));
    }
}

fn requirements(path: &str, resources: &ResourceRequirements, errors: &mut FieldErrors) {
    amounts(&format!("{path}.requests"), resources.requests.as_ref(), errors);
    amounts(&format!("{path}.limits"), resources.limits.as_ref(), errors);
    let parse = |q: &ApiQuantity| q.0.parse::<Quantity>().ok();
    for (name, request) in resources.requests.iter().flatten() {
        let Some(limit) = resources.limits.as_ref().and_then(|l| l.get(name)) else { continue };
        if let (Some(asked), Some(most)) = (parse(request), parse(limit))
            && asked > most
        {
            let message = format!("{} is more than the limit of {}", request.0, limit.0);
            errors.push((format!("{path}.requests.{name}"), message));
        }
    }
}

/// No amount is below zero.
pub(super) fn amounts(path: &str, amounts: Option<&BTreeMap<String, ApiQuantity>>, errors: &mut FieldErrors) {
    for (name, amount) in amounts.into_iter().flatten() {
        if quantity::is_negative(&amount.0) {
            errors.push((format!("{path}.{name}"), format!("{} is below zero", amount.0)));
        }
    }
}

fn toleration(path: &str, toleration: &Toleration, errors: &mut FieldErrors) {
    let operator = toleration.operator.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let value = toleration.value.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    if !key.is_empty()
        && let Err(message) = qualified(key)
    {
        errors.push((format!("{path}.key"), message));
    }
    match operator {
        "" | "Equal" => {
            if key.is_empty() {
                let message = "a toleration without a key needs operator Exists".to_owned();
                errors.push((format!("{path}.operator"), message));
            }
            if let Err(message) = label_value(value) {
                errors.push((format!("{path}.value"), message));
            }
        }
        "Exists" => {
            if !value.is_empty() {
                errors.push((format!("{path}.value"), "operator Exists takes no value".to_owned()));
            }
        }
        "Lt" | "Gt" => {
            if value.parse::<i64>().is_err() {
                errors.push((
                    format!("{path}.value"),
                    format!("operator {operator} needs an integer, found {value:?}"),
                ));
            }
        }
        _ => errors.push((
            format!("{path}.operator"),
            format!("{operator:?} is no operator of a toleration; write Equal or Exists"),
        )),
    }
    if !matches!(effect, "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        let message = format!("{effect:?} is no effect; write NoSchedule, PreferNoSchedule or NoExecute");
        errors.push((format!("{path}.effect"), message));
    }
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        let message = "tolerationSeconds needs effect NoExecute".to_owned();
        errors.push((format!("{path}.effect"), message));
    }
}

fn spread(path: &str, constraint: &TopologySpreadConstraint, errors: &mut FieldErrors) {
    if constraint.max_skew < 1 {
        errors.push((format!("{path}.maxSkew"), format!("{} is below 1", constraint.max_skew)));
    }
    if constraint.topology_key.is_empty() {
        errors.push((format!("{path}.topologyKey"), "this is required".to_owned()));
    }
    if !matches!(constraint.when_unsatisfiable.as_str(), "DoNotSchedule" | "ScheduleAnyway") {
        let message =
            format!("{:?} isn't one of DoNotSchedule, ScheduleAnyway", constraint.when_unsatisfiable);
        errors.push((format!("{path}.whenUnsatisfiable"), message));
    }
    match constraint.min_domains {
        Some(n) if n < 1 => errors.push((format!("{path}.minDomains"), format!("{n} is below 1"))),
        Some(_) if constraint.when_unsatisfiable != "DoNotSchedule" => {
            errors.push((
                format!("{path}.minDomains"),
                "minDomains needs whenUnsatisfiable: DoNotSchedule".to_owned(),
            ));
        }
        _ => {}
    }
    for (field, policy) in [
        ("nodeAffinityPolicy", &constraint.node_affinity_policy),
        ("nodeTaintsPolicy", &constraint.node_taints_policy),
    ] {
        if let Some(policy) = policy
            && !matches!(policy.as_str(), "Honor" | "Ignore")
        {
            errors.push((format!("{path}.{field}"), format!("{policy:?} isn't one of Honor, Ignore")));
        }
    }
    selector(&format!("{path}.labelSelector"), constraint.label_selector.as_ref(), errors);
}

fn affinity(path: &str, affinity: &Affinity, errors: &mut FieldErrors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    if let Some(node) = &affinity.node_affinity {
        let path = format!("{path}.nodeAffinity");
        if let Some(required) = &node.required_during_scheduling_ignored_during_execution {
            let path = format!("{path}.{REQUIRED}.nodeSelectorTerms");
            if required.node_selector_terms.is_empty() {
                errors.push((path.clone(), "this is required: write at least one term".to_owned()));
            }
            for (i, one) in required.node_selector_terms.iter().enumerate() {
                term(&format!("{path}[{i}]"), one, errors);
            }
        }
        for (i, one) in node.preferred_during_scheduling_ignored_during_execution.iter().flatten().enumerate()
        {
            let path = format!("{path}.{PREFERRED}[{i}]");
            weight(&path, one.weight, errors);
            term(&format!("{path}.preference"), &one.preference, errors);
        }
    }
    let pods = affinity.pod_affinity.as_ref().map(|a| {
        (
            "podAffinity",
            &a.required_during_scheduling_ignored_during_execution,
            &a.preferred_during_scheduling_ignored_during_execution,
        )
    });
    let anti = affinity.pod_anti_affinity.as_ref().map(|a| {
        (
            "podAntiAffinity",
            &a.required_during_scheduling_ignored_during_execution,
            &a.preferred_during_scheduling_ignored_during_execution,
        )
    });
    for (name, required, preferred) in pods.into_iter().chain(anti) {
        for (i, one) in required.iter().flatten().enumerate() {
            pod_term(&format!("{path}.{name}.{REQUIRED}[{i}]"), one, errors);
        }
        for (i, one) in preferred.iter().flatten().enumerate() {
            let path = format!("{path}.{name}.{PREFERRED}[{i}]");
            weight(&path, one.weight, errors);
            pod_term(&format!("{path}.podAffinityTerm"), &one.pod_affinity_term, errors);
        }
    }
}

fn weight(path: &str, weight: i32, errors: &mut FieldErrors) {
    if !(1..=100).contains(&weight) {
        errors.push((format!("{path}.weight"), format!("{weight} is out of range, write 1 to 100")));
    }
}

const LABEL_OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];
const NODE_OPERATORS: [&str; 6] = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];

/// One requirement on a label, of a selector that knows `operators`.
fn expression(
    path: &str,
    key: &str,
    operator: &str,
    values: &[String],
    operators: &[&str],
    errors: &mut FieldErrors,
) {
    if let Err(message) = qualified(key) {
        errors.push((format!("{path}.key"), message));
    }
    match operator {
        _ if !operators.contains(&operator) => {
            let message = format!("{operator:?} isn't one of {}", operators.join(", "));
            errors.push((format!("{path}.operator"), message));
        }
        "In" | "NotIn" if values.is_empty() => {
            errors.push((format!("{path}.values"), format!("operator {operator} needs at least one value")));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.push((format!("{path}.values"), format!("operator {operator} takes no values")));
        }
        "Gt" | "Lt" if !matches!(values, [one] if one.parse::<i64>().is_ok()) => {
            errors.push((format!("{path}.values"), format!("operator {operator} needs exactly one integer")));
        }
        _ => {}
    }
}

fn term(path: &str, term: &NodeSelectorTerm, errors: &mut FieldErrors) {
    for (i, one) in term.match_expressions.iter().flatten().enumerate() {
        let path = format!("{path}.matchExpressions[{i}]");
        let values = one.values.as_deref().unwrap_or_default();
        expression(&path, &one.key, &one.operator, values, &NODE_OPERATORS, errors);
    }
    for (i, one) in term.match_fields.iter().flatten().enumerate() {
        let path = format!("{path}.matchFields[{i}]");
        if one.key != "metadata.name" {
            errors.push((
                format!("{path}.key"),
                format!("{:?} can't be matched; only metadata.name can", one.key),
            ));
        }
        let one_value = one.values.as_ref().is_some_and(|v| v.len() == 1);
        if !matches!(one.operator.as_str(), "In" | "NotIn") || !one_value {
            errors.push((path, "a field is matched with In or NotIn and exactly one value".to_owned()));
        }
    }
}

fn pod_term(path: &str, term: &PodAffinityTerm, errors: &mut FieldErrors) {
    if term.topology_key.is_empty() {
        errors.push((format!("{path}.topologyKey"), "this is required".to_owned()));
    }
    selector(&format!("{path}.labelSelector"), term.label_selector.as_ref(), errors);
    selector(&format!("{path}.namespaceSelector"), term.namespace_selector.as_ref(), errors);
}

/// A label selector's keys, operators and values.
pub(crate) fn selector(path: &str, selector: Option<&LabelSelector>, errors: &mut FieldErrors) {
    let Some(selector) = selector else { return };
    labels(&format!("{path}.matchLabels"), selector.match_labels.as_ref(), errors);
    for (i, one) in selector.match_expressions.iter().flatten().enumerate() {
        let path = format!("{path}.matchExpressions[{i}]");
        let values = one.values.as_deref().unwrap_or_default();
        expression(&path, &one.key, &one.operator, values, &LABEL_OPERATORS, errors);
    }
}
