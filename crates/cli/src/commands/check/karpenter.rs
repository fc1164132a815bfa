//! Karpenter beside Croft: whether it counts nodes of Croft's as its own.
//!
//! Karpenter v1 owns a node through its NodeClaim, and neither drains nor removes one without. But it subtracts the capacity of each node
//! with the label `karpenter.sh/nodepool` from the limits of the NodePool of that name, and counts it among that NodePool's unhealthy
//! nodes. Before 0.34 either label alone made a node Karpenter's own (kubernetes-sigs/karpenter#892); the CRD of Provisioners shows one.
//! Source: kubernetes-sigs/karpenter, pkg/controllers/state/statenode.go (`Managed`), provisioning/scheduling/scheduler.go
//! (`updateRemainingResources`), node/health/controller.go (`isNodePoolHealthy`).

use croft_api::{
    TenantPool,
    definitions::{KARPENTER_NODE_POOL_LABEL, KARPENTER_PROVISIONER_LABEL},
    pool::Provisioner,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use super::report::{Finding, Problem, warn};
use crate::table::shortened;

/// The CRDs of Karpenter's pools, and the label by which Karpenter knows their nodes.
const POOLS: [(&str, &str); 2] = [
    ("nodepools.karpenter.sh", KARPENTER_NODE_POOL_LABEL),
    ("provisioners.karpenter.sh", KARPENTER_PROVISIONER_LABEL),
];
/// At most this many pools are named.
const NAMED: usize = 5;

/// No node of Croft's has a label that an installed Karpenter reads.
pub(super) async fn check(client: &Client) -> Finding {
    let pools = Api::<TenantPool>::all(client.clone()).list(&ListParams::default()).await;
    let pools = pools.map_err(|error| Problem::unsaid("failed to list TenantPools", &error))?.items;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut read = Vec::new();
    for (crd, label) in POOLS {
        let found = crds.get_opt(crd).await;
        let found = found.map_err(|e| Problem::unsaid(&format!("failed to read the CRD {crd}"), &e))?;
        read.extend(found.map(|_| label));
    }
    finding(&pools, &read)
}

/// The finding, where `read` are the labels by which an installed Karpenter knows nodes.
fn finding(pools: &[TenantPool], read: &[&str]) -> Finding {
    if read.is_empty() {
        return Ok("it isn't installed".to_owned());
    }
    let counts = labels(pools, read);
    if counts.is_empty() {
        return Ok("it is installed as well, and no template gives a label that it reads".to_owned());
    }
    let owns = read.contains(&KARPENTER_PROVISIONER_LABEL)
        && !labels(pools, &[KARPENTER_PROVISIONER_LABEL]).is_empty();
    let effect = if owns {
        "Karpenter before 0.34 takes these nodes for its own, and may drain and delete them"
    } else {
        "Karpenter subtracts these nodes from the limits of its NodePool of that name, and counts them among its unhealthy nodes"
    };
    warn(
        format!(
            "it is installed as well, and templates give labels that it reads ({}): {effect}",
            shortened(&counts, NAMED)
        ),
        "delete Karpenter's pool of that name once its nodes are gone, or take the label out of the template's metadata.labels \
         until Karpenter is uninstalled (docs/tasks/migrate-from-karpenter.md#labels-that-pods-select)",
    )
}

/// The labels among `keys` that templates of Croft's pools give, each with its pool.
fn labels(pools: &[TenantPool], keys: &[&str]) -> Vec<String> {
    let mut given = Vec::new();
    for pool in pools.iter().filter(|pool| pool.spec.provisioner == Provisioner::Croft) {
        let one = pool.spec.template.iter().map(|template| &template.metadata);
        let metadata = one.chain(pool.spec.templates.iter().map(|template| &template.metadata));
        let labels = metadata.flat_map(|metadata| &metadata.labels);
        for (key, value) in labels.filter(|(key, _)| keys.contains(&key.as_str())) {
            given.push(format!("TenantPool {}: {key}={value}", pool.name_any()));
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::commands::check::report::Status;

    fn pool(name: &str, provisioner: &str, labels: Value) -> TenantPool {
        let template = json!({"metadata": {"labels": labels}, "spec": {"nodeClassRef": {"name": "c"}}});
        serde_json::from_value(json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool",
            "metadata": {"name": name}, "spec": {"provisioner": provisioner, "template": template}}))
        .unwrap()
    }

    #[test]
    fn labels_that_an_installed_karpenter_reads_are_a_warning() {
        let pools = [
            pool("a", "Croft", json!({KARPENTER_NODE_POOL_LABEL: "x"})),
            pool("b", "Croft", json!({"team": "b"})),
            pool("c", "Karpenter", json!({KARPENTER_NODE_POOL_LABEL: "c"})),
        ];
        let found = finding(&pools, &[KARPENTER_NODE_POOL_LABEL]);
        let Err(failed @ Problem { status: Status::Warn, .. }) = found else { panic!("{found:?}") };
        assert!(
            failed.what.contains("(TenantPool a: karpenter.sh/nodepool=x): Karpenter subtracts"),
            "{}",
            failed.what
        );
        assert!(finding(&pools, &[]).is_ok());
        assert!(finding(&pools, &[KARPENTER_PROVISIONER_LABEL]).is_ok());
        assert!(finding(&pools[1..], &[KARPENTER_NODE_POOL_LABEL]).is_ok());
    }

    #[test]
    fn nodes_that_an_old_karpenter_takes_for_its_own_are_named_first() {
        let pools = [pool("a", "Croft", json!({KARPENTER_PROVISIONER_LABEL: "team1"}))];
        let found = finding(&pools, &[KARPENTER_NODE_POOL_LABEL, KARPENTER_PROVISIONER_LABEL]);
        let Err(failed @ Problem { status: Status::Warn, .. }) = found else { panic!("{found:?}") };
        assert!(failed.what.contains("may drain and delete them"), "{}", failed.what);
    }
}
