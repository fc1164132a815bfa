//! Croft's containers as the kernel sees them, compared with what their manifests ask for.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, bail, ensure};
use croft_testkit::nodes::RealNode;
use k8s_openapi::api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Pod};
use kube::{Api, Client, ResourceExt as _, api::ListParams};

const NAMESPACE: &str = "croft-system";
/// The value of system-cluster-critical.
const CRITICAL: i32 = 2_000_000_000;
/// The Deployments, and the priority of their pods.
const DEPLOYMENTS: [(&str, i32); 3] =
    [("croft-webhook", CRITICAL), ("croft-controller", CRITICAL), ("croft-page", 0)];

/// A container's use of memory.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Most that it had, in bytes.
    pub peak: u64,
    /// Its limit, in bytes.
    pub limit: u64,
}

/// The running pods of a Deployment of Croft.
///
/// # Errors
/// If they can't be listed.
pub async fn pods(client: &Client, deployment: &str) -> anyhow::Result<Vec<Pod>> {
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let params = ListParams::default().labels(&format!("app.kubernetes.io/name={deployment}"));
    let mut pods = api.list(&params).await?.items;
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(pods)
}

/// Compares each container's process with what its manifest asks for. Returns their use of memory, by pod.
///
/// # Errors
/// The first difference, with the pod's name.
pub async fn containers(
    client: &Client,
    real_nodes: &[RealNode],
) -> anyhow::Result<BTreeMap<String, Memory>> {
    let mut memories = BTreeMap::new();
    for (deployment, expected) in DEPLOYMENTS {
        for pod in pods(client, deployment).await? {
            let priority = pod.spec.as_ref().and_then(|spec| spec.priority);
            ensure!(priority == Some(expected), "the priority of {} is {priority:?}", pod.name_any());
            let memory = container(&pod, real_nodes).await;
            memories.insert(pod.name_any(), memory.with_context(|| format!("pod {}", pod.name_any()))?);
        }
    }
    Ok(memories)
}

/// The process of a pod's container, and how often the container was restarted.
///
/// # Errors
/// If the pod has no running container on one of `real_nodes`.
pub async fn process(pod: &Pod, real_nodes: &[RealNode]) -> anyhow::Result<(u32, i32)> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).context("not bound")?;
    let real_node = real_nodes.iter().find(|real_node| real_node.name == node);
    let real_node = real_node.with_context(|| format!("bound to {node}, which is no real node"))?;
    let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()?.first());
    let status = status.context("no container status")?;
    let id = status.container_id.as_deref().context("no container")?.trim_start_matches("containerd://");
    Ok((real_node.process_of(id).await?, status.restart_count))
}

async fn container(pod: &Pod, real_nodes: &[RealNode]) -> anyhow::Result<Memory> {
    let (process, _) = process(pod, real_nodes).await?;

    let facts = fs::read_to_string(format!("/proc/{process}/status"))?;
    let fact = |name: &str| {
        let line = facts.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|value| value.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap_or_default()
    };
    for (name, expected) in [
        ("Uid", "65532 65532 65532 65532"),
        ("Gid", "65532 65532 65532 65532"),
        ("CapEff", "0000000000000000"),
        ("CapPrm", "0000000000000000"),
        ("CapBnd", "0000000000000000"),
        ("NoNewPrivs", "1"),
        // 2: a filter is in force.
        ("Seccomp", "2"),
    ] {
        ensure!(fact(name) == expected, "{name} of process {process} is {:?}, not {expected:?}", fact(name));
    }
    let mounts = fs::read_to_string(format!("/proc/{process}/mounts"))?;
    let root = mounts.lines().find(|line| line.split(' ').nth(1) == Some("/")).context("no root mount")?;
    let options = root.split(' ').nth(3).unwrap_or_default();
    ensure!(options.split(',').any(|option| option == "ro"), "the root can be written: {root}");
    ensure!(mounts.contains("/run/secrets/kubernetes.io/serviceaccount"), "no token is mounted: {mounts}");

    memory(process)
}

/// Limit and peak of the cgroup of a process.
fn memory(process: u32) -> anyhow::Result<Memory> {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup"))?;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (folder, limit, peak) = match controllers {
            "" => ("/sys/fs/cgroup".to_owned(), "memory.max", "memory.peak"),
            "memory" => {
                ("/sys/fs/cgroup/memory".to_owned(), "memory.limit_in_bytes", "memory.max_usage_in_bytes")
            }
            _ => continue,
        };
        let read = |file: &str| -> anyhow::Result<u64> {
            let path = Path::new(&folder).join(path.trim_start_matches('/')).join(file);
            let text =
                fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
            text.trim().parse().with_context(|| format!("{} is {text:?}", path.display()))
        };
        if let (Ok(limit), Ok(peak)) = (read(limit), read(peak)) {
            return Ok(Memory { peak, limit });
        }
    }
    bail!("process {process} is in no cgroup with a memory limit: {groups}")
}

/// That no container of Croft was restarted.
///
/// # Errors
/// Which was, and why.
pub async fn no_restarts(client: &Client) -> anyhow::Result<()> {
    for (deployment, _) in DEPLOYMENTS {
        for pod in pods(client, deployment).await? {
            for status in pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten()) {
                ensure!(
                    status.restart_count == 0,
                    "{} was restarted {} times: {:?}",
                    pod.name_any(),
                    status.restart_count,
                    status.last_state
                );
            }
        }
    }
    Ok(())
}

/// That every webhook is called through Croft's Service with a caBundle.
///
/// # Errors
/// Which isn't.
pub async fn registration(client: &Client) -> anyhow::Result<usize> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let hooks = api.get("croft-webhook").await?.webhooks.unwrap_or_default();
    ensure!(!hooks.is_empty(), "the configuration croft-webhook is empty");
    for hook in &hooks {
        let config = &hook.client_config;
        let service = config.service.as_ref().with_context(|| format!("{} has no service", hook.name))?;
        ensure!(
            (service.namespace.as_str(), service.name.as_str()) == (NAMESPACE, "croft-webhook"),
            "{} is sent to {}/{}",
            hook.name,
            service.namespace,
            service.name
        );
        ensure!(config.url.is_none(), "{} has a URL", hook.name);
        ensure!(
            config.ca_bundle.as_ref().is_some_and(|bundle| !bundle.0.is_empty()),
            "{} has no caBundle",
            hook.name
        );
    }
    Ok(hooks.len())
}
