//! The time to build the page's model, which is built again at every change: a pool, a namespace, a node with its NodeClaim and two
//! pods for each Tenant. Ten times as many of all may take about ten times as long.

use std::time::Duration;

use croft_manifest::Input;
use croft_page::{
    cluster::{
        objects::{Cluster, put},
        recorded::RecordedState,
    },
    model::facts::{Model, NodeFacts},
};
use croft_policy::definitions::POOL_NAME_LABEL;
use croft_runtime::clock::{Clock as _, SystemClock};
use croft_tests::manifests::on_demand;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Models of one cluster; the fastest counts.
const BUILDS: usize = 5;

/// The milliseconds to build the model of so many Tenants.
///
/// # Errors
/// An object that can't be read.
pub(crate) fn build(tenants: usize) -> anyhow::Result<f64> {
    let cluster = Cluster::new(input(tenants)?);
    let log = RecordedState::default();
    let mut least = Duration::MAX;
    for _ in 0..BUILDS {
        let begun = SystemClock.monotonic();
        let model = Model::build(&cluster, &log, 1, 0);
        least = least.min(SystemClock.monotonic() - begun);
        anyhow::ensure!(
            model.nodes.len() == tenants && model.tenants.len() == tenants,
            "objects are missing"
        );
        let connected =
            |node: &NodeFacts| node.info.pool.is_some() && node.info.claim.is_some() && node.pods.len() == 2;
        anyhow::ensure!(model.nodes.values().all(connected), "a node has no pool, no claim or no pods");
    }
    Ok(least.as_secs_f64() * 1e3)
}

fn read<K: DeserializeOwned>(object: Value) -> anyhow::Result<K> {
    Ok(serde_json::from_value(object)?)
}

fn input(tenants: usize) -> anyhow::Result<Input> {
    let mut input = Input::default();
    for at in 0..tenants {
        let (name, node, claim) =
            (format!("tenant-{at:05}"), format!("node-{at:05}"), format!("claim-{at:05}"));
        let id = format!("aws:///us-east-1a/i-{at:017}");
        put(&mut input.namespaces, read(json!({"metadata": {"name": name}}))?);
        put(
            &mut input.pools,
            read(
                json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": name},
                "spec": on_demand(&[], json!({}))}),
            )?,
        );
        put(
            &mut input.tenants,
            read(json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
                "spec": {"namespaces": [name], "pools": [name]}}))?,
        );
        put(
            &mut input.claims,
            read(
                json!({"apiVersion": "croft.dev/v1alpha1", "kind": "NodeClaim", "metadata": {"name": claim},
                "spec": {"pool": name, "instanceTypes": ["m5.xlarge"], "zones": ["us-east-1a"], "capacityType": "on-demand",
                    "nodeClassRef": {"group": "croft.dev", "kind": "EC2NodeClass", "name": "default"}},
                "status": {"nodeName": node, "providerId": id}}),
            )?,
        );
        put(&mut input.nodes, read(self::node(&node, &name, &id))?);
        for pod in ["web-a", "web-b"] {
            put(&mut input.pods, read(self::pod(pod, &name, &node))?);
        }
    }
    Ok(input)
}

fn node(name: &str, pool: &str, id: &str) -> Value {
    let resources = json!({"cpu": "4", "memory": "15Gi", "pods": "58"});
    json!({
        "metadata": {"name": name, "labels": {
            POOL_NAME_LABEL: pool, "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "node.kubernetes.io/instance-type": "m5.xlarge", "karpenter.sh/capacity-type": "on-demand",
            "topology.kubernetes.io/zone": "us-east-1a",
        }},
        "spec": {"providerID": id},
        "status": {"capacity": resources, "allocatable": resources, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn pod(name: &str, namespace: &str, node: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "registry.example/app:1",
            "resources": {"requests": {"cpu": "300m", "memory": "1Gi"}}}]},
    })
}
