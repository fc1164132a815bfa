//! Drops the fields of watched objects that neither a view nor a simulation reads. Environment, commands, images and foreign
//! annotations never reach the state, so that no view can show them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{Container, Node, Pod, PodSpec, Volume},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource;

/// Annotations that are kept, by their prefix.
const KEPT_ANNOTATIONS: [&str; 4] = [
    "croft.dev/",
    "policy.croft.dev/",
    "karpenter.sh/do-not-disrupt",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
];

/// Drops `managedFields` and the annotations of others.
pub fn metadata<K: Resource>(object: &mut K) {
    metadata_of(object.meta_mut());
}

fn metadata_of(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|key, _| KEPT_ANNOTATIONS.iter().any(|prefix| key.starts_with(prefix)));
    }
}

/// The same, and of a node its images and addresses.
pub fn node(node: &mut Node) {
    metadata(node);
    if let Some(status) = &mut node.status {
        status.images = None;
        status.addresses = None;
        status.node_info = None;
    }
}

/// The same, and of a pod everything that doesn't decide where it runs.
pub fn pod(pod: &mut Pod) {
    metadata(pod);
    if let Some(spec) = &mut pod.spec {
        pod_spec(spec);
    }
    if let Some(status) = &mut pod.status {
        status.container_statuses = None;
        status.init_container_statuses = None;
        status.ephemeral_container_statuses = None;
        status.host_ips = None;
        status.pod_ips = None;
        status.host_ip = None;
        status.pod_ip = None;
        status.message = None;
    }
}

/// The same of a DaemonSet and its template.
pub fn daemon_set(set: &mut DaemonSet) {
    metadata(set);
    let Some(spec) = &mut set.spec else { return };
    if let Some(metadata) = &mut spec.template.metadata {
        metadata_of(metadata);
    }
    if let Some(spec) = &mut spec.template.spec {
        pod_spec(spec);
    }
}

fn pod_spec(spec: &mut PodSpec) {
    spec.containers.iter_mut().for_each(container);
    spec.init_containers.iter_mut().flatten().for_each(container);
    spec.ephemeral_containers = None;
    spec.host_aliases = None;
    spec.dns_config = None;
    spec.image_pull_secrets = None;
    spec.security_context = None;
    spec.service_account = None;
    spec.service_account_name = None;
    if let Some(volumes) = &mut spec.volumes {
        // Only claims decide where a pod may run.
        volumes.retain(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some());
    }
    if spec.volumes.as_ref().is_some_and(Vec::<Volume>::is_empty) {
        spec.volumes = None;
    }
}

/// Keeps name, resources, ports and the restart policy that makes a sidecar.
fn container(container: &mut Container) {
    let kept = Container {
        name: std::mem::take(&mut container.name),
        resources: container.resources.take(),
        ports: container.ports.take(),
        restart_policy: container.restart_policy.take(),
        ..Container::default()
    };
    *container = kept;
}

/// Drops the labels as well: for kinds of which only the spec counts.
pub fn without_labels<K: Resource>(object: &mut K) {
    metadata(object);
    object.meta_mut().labels = None::<BTreeMap<String, String>>;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn environment_commands_and_images_of_a_pod_are_dropped_and_its_requests_stay() {
        let mut given: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "annotations": {"note": "secret", "croft.dev/pool": "a"},
                "managedFields": [{"manager": "m"}]},
            "spec": {"nodeName": "node-1", "volumes": [
                    {"name": "s", "secret": {"secretName": "token"}},
                    {"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
                "containers": [{"name": "c", "image": "registry/secret", "command": ["--password=secret"],
                    "env": [{"name": "K", "value": "secret"}], "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1"}
        }))
        .unwrap();
        pod(&mut given);
        let text = serde_json::to_string(&given).unwrap();
        assert!(!text.contains("secret") && !text.contains("10.0.0.1"), "{text}");
        assert!(text.contains(r#""requests":{"cpu":"1"}"#) && text.contains("data"), "{text}");
        assert!(
            text.contains("croft.dev/pool") && text.contains("node-1") && text.contains("Running"),
            "{text}"
        );
    }
}
