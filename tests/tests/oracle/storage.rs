//! Volumes of a scene, for Croft and for the real scheduler, and the part of a storage driver that creates them.

use std::collections::BTreeSet;

use anyhow::Result;
use croft_scheduler::Cluster;
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::{CSINode, StorageClass},
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    generate::Scene,
    pods::{CLASS, Disk, NAMESPACES, claim_spec},
};

const ZONE: &str = "topology.kubernetes.io/zone";
const DRIVER: &str = "disk.oracle.croft.dev";

fn class(zones: &BTreeSet<&String>) -> Value {
    json!({"metadata": {"name": CLASS}, "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}]})
}

fn volume(name: &str, zone: &str, claim: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"],
        "storageClassName": CLASS, "csi": {"driver": DRIVER, "volumeHandle": name}, "claimRef": claim,
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": ZONE, "operator": "In", "values": [zone]}]}]}}}})
}

fn claim((namespace, name): (&str, &str), volume: Option<&str>) -> Value {
    let annotations = volume.map(|_| json!({"pv.kubernetes.io/bind-completed": "yes"}));
    json!({"metadata": {"namespace": namespace, "name": name, "annotations": annotations}, "spec": claim_spec(volume)})
}

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

impl Scene {
    fn class(&self) -> Value {
        class(&self.disk_zones.iter().collect())
    }

    /// Claims by namespace and name, with the zone of each existing volume.
    fn claims(&self) -> Vec<(&'static str, String, Option<&str>)> {
        let mut claims: Vec<(&'static str, String, Option<&str>)> = Vec::new();
        for (number, group) in self.waiting.iter().enumerate() {
            let zone = self.disk_zones.get(number % self.disk_zones.len().max(1)).map(String::as_str);
            for pod in 0..group.replicas {
                if let Some(name) = group.claim(pod).filter(|name| claims.iter().all(|(_, c, _)| c != name)) {
                    claims.push((group.namespace, name, zone.filter(|_| group.disk != Disk::New)));
                }
            }
        }
        claims
    }

    fn csi_nodes(&self) -> Vec<Value> {
        let one = |(name, count): (&String, &usize)| {
            json!({"metadata": {"name": name}, "spec": {"drivers": [
                {"name": DRIVER, "nodeID": name, "topologyKeys": [ZONE], "allocatable": {"count": count}}]}})
        };
        self.attach.iter().map(one).collect()
    }

    /// Storage for Croft.
    pub fn storage(&self, cluster: &mut Cluster) {
        cluster.upsert_storage_class(&object(self.class())).unwrap();
        for (namespace, name, zone) in self.claims() {
            let named = format!("v-{name}");
            if let Some(zone) = zone {
                let by = json!({"namespace": namespace, "name": name});
                cluster.upsert_pv(&object(volume(&named, zone, &by))).unwrap();
            }
            cluster.upsert_pvc(&object(claim((namespace, &name), zone.map(|_| named.as_str())))).unwrap();
        }
        for node in self.csi_nodes() {
            cluster.upsert_csi_node(&object(node)).unwrap();
        }
    }
}

/// Storage for the API server.
pub struct Storage {
    classes: Api<StorageClass>,
    volumes: Api<PersistentVolume>,
    claims: [Api<PersistentVolumeClaim>; 2],
    csi: Api<CSINode>,
    nodes: Api<Node>,
}

/// Deletes all objects, whatever their finalizers: the controllers that remove those don't run here.
async fn clear<T>(api: &Api<T>) -> Result<()>
where
    T: Resource + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    for object in api.list(&ListParams::default()).await?.items {
        let name = object.meta().name.clone().unwrap_or_default();
        api.patch(&name, &PatchParams::default(), &free).await?;
        api.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(())
}

impl Storage {
    pub fn new(client: Client) -> Self {
        Self {
            classes: Api::all(client.clone()),
            volumes: Api::all(client.clone()),
            claims: NAMESPACES.map(|namespace| Api::namespaced(client.clone(), namespace)),
            csi: Api::all(client.clone()),
            nodes: Api::all(client),
        }
    }

    pub async fn clear(&self) -> Result<()> {
        for claims in &self.claims {
            clear(claims).await?;
        }
        clear(&self.volumes).await?;
        clear(&self.csi).await?;
        clear(&self.classes).await
    }

    pub async fn make(&self, scene: &Scene) -> Result<()> {
        let new = PostParams::default();
        self.classes.create(&new, &object(scene.class())).await?;
        for node in scene.csi_nodes() {
            self.csi.create(&new, &object(node)).await?;
        }
        for (namespace, name, zone) in scene.claims() {
            let named = format!("v-{name}");
            let value = claim((namespace, &name), zone.map(|_| named.as_str()));
            let made = self.claims_in(namespace).create(&new, &object(value)).await?;
            if let Some(zone) = zone {
                self.bind(&made, &named, zone).await?;
            }
        }
        Ok(())
    }

    /// Creates the claims of a pod's generic ephemeral volumes, as the controller manager does.
    pub async fn create_ephemeral(&self, pod: &Pod) -> Result<()> {
        let (namespace, name) = (pod.metadata.namespace.as_deref().unwrap_or_default(), pod.name_any());
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let template = volume.ephemeral.as_ref().and_then(|source| source.volume_claim_template.as_ref());
            let Some(template) = template else { continue };
            let named = format!("{name}-{}", volume.name);
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod.metadata.uid,
                "controller": true, "blockOwnerDeletion": true});
            let created = json!({"metadata": {"namespace": namespace, "name": named, "ownerReferences": [owner]},
                "spec": template.spec});
            self.claims_in(namespace).create(&PostParams::default(), &object(created)).await?;
        }
        Ok(())
    }

    fn claims_in(&self, namespace: &str) -> &Api<PersistentVolumeClaim> {
        let [first, second] = &self.claims;
        if namespace == NAMESPACES[0] { first } else { second }
    }

    async fn bind(&self, made: &PersistentVolumeClaim, named: &str, zone: &str) -> Result<()> {
        let name = made.metadata.name.clone().unwrap_or_default();
        let namespace = made.metadata.namespace.as_deref().unwrap_or_default();
        let by = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name,
            "uid": made.metadata.uid});
        self.volumes.create(&PostParams::default(), &object(volume(named, zone, &by))).await?;
        let bound = json!({"status": {"phase": "Bound", "accessModes": ["ReadWriteMany"], "capacity": {"storage": "1Gi"}}});
        self.volumes
            .patch_status(
                named,
                &PatchParams::default(),
                &Patch::Merge(json!({"status": {"phase": "Bound"}})),
            )
            .await?;
        self.claims_in(namespace).patch_status(&name, &PatchParams::default(), &Patch::Merge(bound)).await?;
        Ok(())
    }

    /// Creates the volumes for which kube-scheduler has chosen nodes, as a driver's provisioner does.
    pub async fn provision(&self) -> Result<()> {
        let mut all = Vec::new();
        for claims in &self.claims {
            all.extend(claims.list(&ListParams::default()).await?.items);
        }
        for claim in all {
            let annotations = claim.metadata.annotations.clone().unwrap_or_default();
            let unbound = claim.spec.as_ref().is_some_and(|s| s.volume_name.is_none());
            let Some(node) = annotations.get("volume.kubernetes.io/selected-node").filter(|_| unbound) else {
                continue;
            };
            let node = self.nodes.get(node).await?;
            let zone = node.metadata.labels.unwrap_or_default().get(ZONE).cloned().unwrap_or_default();
            let name = claim.metadata.name.clone().unwrap_or_default();
            let named = format!("v-{name}");
            self.bind(&claim, &named, &zone).await?;
            let whole = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                "spec": {"volumeName": named}});
            let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
            self.claims_in(namespace).patch(&name, &PatchParams::default(), &Patch::Merge(whole)).await?;
        }
        Ok(())
    }
}
