//! The documents of a snapshot, from the objects of a cluster.

use croft_manifest::{Input, Objects};
use croft_record::snapshot::fields::{Fields, STORAGE_CLASS, VOLUME};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde_json::Value;

/// The documents of every object, kind by kind, each kind by namespace and name.
///
/// # Errors
/// If an object can't be written as JSON.
pub(super) fn documents(input: &Input) -> anyhow::Result<Vec<Value>> {
    // A NodeClaim of a TenantPool that is gone makes a file invalid.
    let mut claims = input.claims.clone();
    claims.retain(|claim| input.pools.get("", &claim.spec.pool).is_some());
    let mut all = Vec::new();
    macro_rules! write {
        ($($objects:expr => $fields:expr;)*) => { $(write(&$objects, &$fields, &mut all)?;)* };
    }
    write! {
        input.configs => Fields::of_croft(&[]);
        input.tenants => Fields::of_croft(&[]);
        input.pools => Fields::of_croft(&[]);
        input.classes => Fields::of_croft(&["spec.userData"]);
        claims => Fields::of_croft(&["status.attempt.request"]);
        input.namespaces => Fields::new(&["status.phase"]);
        input.nodes => Fields::new(&[
            "spec.providerID",
            "spec.taints",
            "spec.unschedulable",
            "status.allocatable",
            "status.capacity",
            "status.conditions.type",
            "status.conditions.status",
            "status.conditions.reason",
            "status.conditions.lastTransitionTime",
        ]);
        input.pods => Fields::of_pod();
        input.deployments => Fields::of_workload();
        input.replica_sets => Fields::of_workload();
        input.stateful_sets => Fields::of_stateful_set();
        input.daemon_sets => Fields::of_workload();
        input.replication_controllers => Fields::of_workload();
        input.jobs => Fields::of_job();
        input.cron_jobs => Fields::of_cron_job();
        input.budgets => Fields::new(&[
            "spec",
            "status.currentHealthy",
            "status.desiredHealthy",
            "status.disruptionsAllowed",
            "status.expectedPods",
            "status.observedGeneration",
        ]);
        input.limit_ranges => Fields::new(&["spec"]);
        input.priority_classes => Fields::new(&["value", "globalDefault", "preemptionPolicy"]);
        input.runtime_classes => Fields::new(&["handler", "overhead", "scheduling"]);
        input.volume_claims => Fields::of_volume_claim();
        input.volumes => Fields::new(VOLUME);
        input.storage_classes => Fields::new(STORAGE_CLASS);
        input.csi_nodes => Fields::new(&["spec"]);
    }
    Ok(all)
}

fn write<K>(objects: &Objects<K>, fields: &Fields, into: &mut Vec<Value>) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let objects: Vec<&K> = objects.iter().map(|sourced| &sourced.object).collect();
    into.extend(written(&objects, fields)?);
    Ok(())
}

/// Objects of one kind by namespace and name, with these fields.
///
/// # Errors
/// If an object can't be written as JSON.
pub(super) fn written<K>(objects: &[&K], fields: &Fields) -> anyhow::Result<Vec<Value>>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let mut objects = objects.to_vec();
    objects.sort_by_cached_key(|object| (object.namespace(), object.name_any()));
    objects.into_iter().map(|object| Ok(fields.cut(&serde_json::to_value(object)?))).collect()
}

#[cfg(test)]
mod tests {
    use croft_manifest::{LoadOptions, parse, to_yaml};

    use super::*;

    fn read(text: &str) -> Input {
        parse("test", text, &LoadOptions::default()).unwrap()
    }

    #[test]
    fn snapshot_is_read_as_it_was_written_and_doesnt_depend_on_the_order() {
        let pool = "{apiVersion: croft.dev/v1alpha1, kind: TenantPool, metadata: {name: p}, spec: {key: k, template: {spec: \
                    {nodeClassRef: {name: c}}}}}";
        let claim = "{apiVersion: croft.dev/v1alpha1, kind: NodeClaim, metadata: {name: claim}, spec: {pool: p, nodeClassRef: {name: \
                     c}, instanceTypes: [m5.large], zones: [a], capacityType: spot}}";
        let pods: Vec<String> = ["b", "a"]
            .map(|name| {
                format!(
                    "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: i, env: \
                     [{{name: A, value: s3cret}}]}}]}}}}"
                )
            })
            .into();
        let in_order = |texts: &[&str]| to_yaml(&documents(&read(&texts.join("\n---\n"))).unwrap()).unwrap();
        let written = in_order(&[pool, claim, &pods[0], &pods[1]]);
        assert_eq!(written, in_order(&[&pods[1], claim, pool, &pods[0]]));
        assert_eq!(written, to_yaml(&documents(&read(&written)).unwrap()).unwrap());
        assert!(!written.contains("s3cret"), "{written}");
        assert_eq!(read(&written).pods.len(), 2);
    }
}
