//! Defaults of pods and pod templates.

use std::collections::BTreeMap;

use croft_api::convert::pod_defaults;
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerPort, EnvVar, HTTPGetAction, LifecycleHandler, Pod, PodSpec, Probe,
        ResourceRequirements,
    },
    apimachinery::pkg::api::resource::Quantity,
};

use super::volume::{self, fill, fill_text};
use crate::quantity;

/// Fills in a Pod: what a template gets, and what only the pod itself does.
pub(crate) fn pod(pod: &mut Pod) {
    let Some(spec) = &mut pod.spec else { return };
    for container in all_containers(spec) {
        if let Some(resources) = &mut container.resources {
            pod_defaults::requests_from_limits(resources);
        }
    }
    if spec.resources.is_some() {
        pod_level_requests(spec);
    }
    fill(&mut spec.enable_service_links, true);
    if spec.host_network == Some(true) {
        for port in all_containers(spec).filter_map(|c| c.ports.as_mut()).flatten() {
            if port.host_port.unwrap_or(0) == 0 {
                port.host_port = Some(port.container_port);
            }
        }
    }
    pod_spec(spec);
}

/// Fills in a pod template's spec.
pub(crate) fn pod_spec(spec: &mut PodSpec) {
    fill_text(&mut spec.dns_policy, "ClusterFirst");
    fill_text(&mut spec.restart_policy, "Always");
    fill(&mut spec.security_context, Default::default());
    fill(&mut spec.termination_grace_period_seconds, 30);
    fill_text(&mut spec.scheduler_name, "default-scheduler");
    // The deprecated name of the same field is kept in step by the conversion to the internal version.
    match (&spec.service_account_name, &spec.service_account) {
        (Some(name), None) => spec.service_account = Some(name.clone()),
        (None, Some(name)) => spec.service_account_name = Some(name.clone()),
        _ => {}
    }
    for container in all_containers(spec) {
        fill_container(container);
    }
    for volume in spec.volumes.iter_mut().flatten() {
        volume::fill_volume(volume);
    }
}

fn all_containers(spec: &mut PodSpec) -> impl Iterator<Item = &mut Container> {
    spec.init_containers.iter_mut().flatten().chain(spec.containers.iter_mut())
}

/// Pod-level requests (KEP-2837): a resource that has a limit for the pod but no request gets the sum of the
/// containers' requests where every container asks for it, and the limit otherwise.
fn pod_level_requests(spec: &mut PodSpec) {
    let asked_by_all: Vec<BTreeMap<String, Quantity>> = spec
        .containers
        .iter()
        .map(|c| c.resources.as_ref().and_then(|r| r.requests.clone()).unwrap_or_default())
        .collect();
    let Some(resources) = &mut spec.resources else { return };
    let Some(limits) = resources.limits.clone() else { return };
    let requests = resources.requests.get_or_insert_default();
    for (name, limit) in limits {
        if requests.contains_key(&name) {
            continue;
        }
        let asks: Vec<&Quantity> = asked_by_all.iter().filter_map(|r| r.get(&name)).collect();
        let request = match asks.as_slice() {
            [] => limit,
            [one] => (*one).clone(),
            many => quantity::sum(&name, many).unwrap_or(limit),
        };
        requests.insert(name, request);
    }
}

fn fill_container(container: &mut Container) {
    fill_text(&mut container.termination_message_path, "/dev/termination-log");
    fill_text(&mut container.termination_message_policy, "File");
    if container.image_pull_policy.as_deref().unwrap_or_default().is_empty() {
        let policy =
            if is_latest(container.image.as_deref().unwrap_or_default()) { "Always" } else { "IfNotPresent" };
        container.image_pull_policy = Some(policy.to_owned());
    }
    fill(&mut container.resources, ResourceRequirements::default());
    container.ports.iter_mut().flatten().for_each(fill_port);
    container.env.iter_mut().flatten().for_each(fill_env);
    let probes =
        [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe];
    probes.into_iter().flatten().for_each(fill_probe);
    if let Some(lifecycle) = &mut container.lifecycle {
        for handler in [&mut lifecycle.post_start, &mut lifecycle.pre_stop] {
            if let Some(LifecycleHandler { http_get: Some(get), .. }) = handler {
                fill_get(get);
            }
        }
    }
}

/// An image without tag and digest, or with the tag `latest`.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let last = image.rsplit('/').next().unwrap_or_default();
    last.rsplit_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn fill_port(port: &mut ContainerPort) {
    fill_text(&mut port.protocol, "TCP");
}

fn fill_env(env: &mut EnvVar) {
    if let Some(field) = env.value_from.as_mut().and_then(|v| v.field_ref.as_mut()) {
        fill_text(&mut field.api_version, "v1");
    }
}

fn fill_probe(probe: &mut Probe) {
    let zero_or_none = |field: &mut Option<i32>, value: i32| {
        if field.unwrap_or(0) == 0 {
            *field = Some(value);
        }
    };
    zero_or_none(&mut probe.timeout_seconds, 1);
    zero_or_none(&mut probe.period_seconds, 10);
    zero_or_none(&mut probe.success_threshold, 1);
    zero_or_none(&mut probe.failure_threshold, 3);
    if let Some(get) = &mut probe.http_get {
        fill_get(get);
    }
    if let Some(grpc) = &mut probe.grpc {
        fill(&mut grpc.service, String::new());
    }
}

fn fill_get(get: &mut HTTPGetAction) {
    fill_text(&mut get.path, "/");
    fill_text(&mut get.scheme, "HTTP");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_tag_decides_the_pull_policy() {
        for (image, latest) in [
            ("nginx", true),
            ("nginx:latest", true),
            ("nginx:1.2", false),
            ("host:5000/nginx", true),
            ("host:5000/nginx:1", false),
            ("nginx@sha256:00", false),
        ] {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }
}
