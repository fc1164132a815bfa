//! This version on the objects that an earlier one stored: no node is replaced, no instance is launched or terminated, and
//! no pod is refused that was admitted. And a restoration into another cluster, whose instances are the first one's.
//!
//! `make record-release` records the present version, `make upgrade-test` upgrades from an earlier commit that it builds.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::{collections::BTreeSet, env, fs, path::PathBuf};

use croft_api::{
    EC2NodeClass, NodeClaim, Tenant, TenantPool,
    condition::{DRIFTED, READY, is_true},
    definitions::LAUNCHED_WITH,
};
use croft_cloud::tags;
use croft_testkit::{
    Component, ControlPlane, Croft, CroftOptions, Options, Part, StoredObject,
    wait::{Seen, until},
};
use croft_tests::{
    cli::croft_with_credentials,
    stack::{EVENTUALLY, Stack, claims, condition_of, log_tail, running},
    upgrade::{IN_FLIGHT_POOL, Observed, POOLS, Recorded, make_scene, readmitted, scale},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// Nodes of the scene, without the launch in flight.
const NODES: usize = 4;
/// The version after the present one.
const BETA: &str = "v1beta1";
/// Croft's kinds, for kubectl.
const KINDS: &str = "tenants,tenantpools,ec2nodeclasses.croft.dev,nodeclaims.croft.dev,croftconfigs";
/// With which the objects in etcd can be recorded.
const STORE_AS_TEXT: &str = "--storage-media-type=application/json";

/// The instances that aren't ending.
async fn instances(stack: &mut Stack) -> BTreeSet<String> {
    let all = stack.instances().await.unwrap();
    all.iter().map(|instance| instance["id"].as_str().unwrap().to_owned()).collect()
}

/// Removes the record of what it was launched with from one NodeClaim of each pool. A controller that finds a claim without
/// one writes it, and by then has compared every claim of the pool.
fn forget_stamps(objects: &mut [StoredObject]) -> Vec<String> {
    let mut forgotten = Vec::new();
    for pool in POOLS {
        let of_pool = |object: &&mut StoredObject| {
            object.value["kind"] == "NodeClaim" && object.value["spec"]["pool"] == pool
        };
        let claim = objects.iter_mut().find(of_pool).unwrap();
        let annotations = claim.value["metadata"]["annotations"].as_object_mut().unwrap();
        annotations.remove(LAUNCHED_WITH).unwrap();
        forgotten.push(claim.value["metadata"]["name"].as_str().unwrap().to_owned());
    }
    forgotten
}

/// EC2 remembers tokens for a day. The record is older, and the upgrade comes right after it.
const CENTURY_MILLIS: u64 = 100 * 365 * 24 * 3_600_000;

/// A control plane with stored objects and the instances of `journal`. No process of Croft runs, and no controller of
/// Kubernetes, whose requests the stored webhook configurations would refuse until the webhook runs.
async fn restored(objects: Vec<StoredObject>, journal: &str) -> Stack {
    let options = Options::default().without(Component::ControllerManager).stored(objects);
    let plane = ControlPlane::start(options).await.unwrap();
    fs::write(plane.folder().join("ec2-sim.journal"), journal).unwrap();
    let options = CroftOptions::find().unwrap().flag(Part::Cloud, format!("--token-ttl-ms={CENTURY_MILLIS}"));
    let mut croft = Croft::install(&plane, options).await.unwrap();
    croft.resume(&plane, Part::Cloud).await.unwrap();
    Stack { croft, plane }
}

/// Starts webhook and controller on what `before` describes, and expects that nothing is replaced or refused.
async fn takes_over(stack: &mut Stack, before: &Observed, forgotten: &[String]) {
    let client = stack.plane.admin().await.unwrap();
    let launched = instances(stack).await;
    assert_eq!(launched.len(), NODES + 1, "{launched:?}");
    for part in [Part::Webhook, Part::Controller] {
        stack.croft.resume(&stack.plane, part).await.unwrap();
    }
    stack.plane.resume(Component::ControllerManager).await.unwrap();
    all_are_compared(stack, &client, forgotten).await;
    in_flight_launch_is_found(&client, &launched).await;
    let refused = until("pods to be admitted again", EVENTUALLY, async || {
        let refused = readmitted(&client, before).await?;
        // The configurations name the earlier version's replica until this one has registered itself.
        let is_early = refused.iter().any(|message| message.contains("failed calling webhook"));
        anyhow::Ok(if is_early { Seen::NotYet(format!("{refused:?}")) } else { Seen::Yes(refused) })
    });
    assert_eq!(refused.await.unwrap(), Vec::<String>::new());
    for name in ["a", "b"] {
        condition_of::<Tenant>(&client, name, READY, "True").await.unwrap();
    }
    assert_eq!(changes(stack, before, false).await, Vec::<String>::new());
    assert_eq!(instances(stack).await, launched, "an instance was launched or terminated");

    // The controller does its work: one more pod gets one more node.
    scale(&client, 3).await.unwrap();
    assert_eq!(changes(stack, before, true).await, Vec::<String>::new());
    let now = instances(stack).await;
    assert!(now.is_superset(&launched) && now.len() == launched.len() + 1, "{now:?} after {launched:?}");
}

/// The changes since `before`, without those of parameters of the policies.
async fn changes(stack: &Stack, before: &Observed, scaled: bool) -> Vec<String> {
    let mut changes = Observed::now(&stack.plane).await.unwrap().changes_since(before, scaled);
    changes.retain(|change| !is_parameter_of_policies(change));
    changes
}

/// Parameters that this version's policies read and those of 0.1.0 didn't: a Tenant's `Override`, what nodes of several pools can be,
/// and their revision.
fn is_parameter_of_policies(change: &str) -> bool {
    let Some((key, values)) = change.strip_prefix("Namespace ").and_then(|c| c.split_once(": \"")) else {
        return false;
    };
    let earlier = |pools: &str| -> Vec<String> {
        let entries = pools.split(';').filter(|entry| *entry != "Override:-:-");
        entries.map(|entry| entry.split(':').take(3).collect::<Vec<_>>().join(":")).collect()
    };
    let pools = key.ends_with("/policy.croft.dev/pools")
        && values
            .split_once("\" instead of \"")
            .is_some_and(|(new, old)| Some(earlier(new)) == old.strip_suffix('"').map(earlier));
    pools || key.ends_with("/policy.croft.dev/revision")
}

/// Waits until each pool's nodes were compared with what would be launched now.
async fn all_are_compared(stack: &Stack, client: &Client, forgotten: &[String]) {
    let api: Api<NodeClaim> = Api::all(client.clone());
    let found = until("the comparison of each pool's nodes", EVENTUALLY, async || {
        let mut missing = Vec::new();
        for name in forgotten {
            if !api.get(name).await?.annotations().contains_key(LAUNCHED_WITH) {
                missing.push(name);
            }
        }
        let seen = format!("{missing:?}");
        Ok::<_, kube::Error>(Seen::from_option(missing.is_empty().then_some(()), seen))
    });
    if let Err(error) = found.await {
        panic!("{error}\n{}", log_tail(&stack.plane, "croft-controller"));
    }
}

/// The claim whose launch was in flight gets the instance that was launched for it.
async fn in_flight_launch_is_found(client: &Client, launched: &BTreeSet<String>) {
    until("the instance of the launch in flight", EVENTUALLY, async || {
        let found = claims(client, IN_FLIGHT_POOL).await?;
        let ids: Vec<String> = found
            .iter()
            .filter_map(|claim| claim.status.as_ref()?.provider_id.as_deref())
            .map(|id| croft_cloud::instance_id(id).to_owned())
            .collect();
        let is_it = matches!(&ids[..], [id] if launched.contains(id));
        Ok::<_, kube::Error>(Seen::from_option(is_it.then_some(()), format!("{found:?}")))
    })
    .await
    .unwrap();
}

/// A claim whose record differs drifts: the comparison that found none can find one.
async fn other_hash_drifts(client: &Client) {
    let claim = claims(client, "pool-b").await.unwrap().remove(0);
    let mut stamp: Value = serde_json::from_str(&claim.annotations()[LAUNCHED_WITH]).unwrap();
    stamp["fields"]["class.userData"] = json!("0123456789ab");
    let patch = json!({"metadata": {"annotations": {LAUNCHED_WITH: stamp.to_string()}}});
    let api: Api<NodeClaim> = Api::all(client.clone());
    api.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let drifted = condition_of::<NodeClaim>(client, &claim.name_any(), DRIFTED, "True").await.unwrap();
    assert!(drifted.message.contains("class.userData"), "{}", drifted.message);
    for pool in POOLS {
        for other in claims(client, pool).await.unwrap() {
            let drifts = other.status.as_ref().is_some_and(|s| is_true(&s.conditions, DRIFTED));
            assert!(!drifts || other.uid() == claim.uid(), "{} drifts too", other.name_any());
        }
    }
}

/// Replaces the CRDs: both versions are served, and `stored` is the storage version.
async fn serve_both(client: &Client, stored: &str) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for mut crd in croft_api::crds() {
        let alpha = crd.spec.versions.remove(0);
        let beta = CustomResourceDefinitionVersion { name: BETA.to_owned(), ..alpha.clone() };
        crd.spec.versions = vec![alpha, beta];
        crd.spec.versions.iter_mut().for_each(|version| version.storage = version.name == stored);
        replace_crd(&api, crd).await.unwrap();
    }
}

async fn replace_crd(
    api: &Api<CustomResourceDefinition>,
    mut crd: CustomResourceDefinition,
) -> kube::Result<CustomResourceDefinition> {
    crd.metadata.resource_version = api.get(&crd.name_any()).await?.metadata.resource_version;
    api.replace(&crd.name_any(), &PostParams::default(), &crd).await
}

/// Writes every object of Croft again, until all are stored in a version.
async fn rewrite(stack: &Stack, version: &str) {
    let wanted = format!("croft.dev/{version}");
    until(&format!("all objects stored as {wanted}"), EVENTUALLY, async || {
        let objects = stack.plane.kubectl(["get", KINDS, "--output=json"]).await?;
        // The controller may have written one of them in between.
        let written = stack.plane.kubectl_with(["replace", "-f", "-"], &objects).await;
        let stored = stack.plane.stored_objects().await?;
        let of_croft = stored.iter().filter(|object| object.key.starts_with("/registry/croft.dev/"));
        let others: Vec<&str> =
            of_croft.filter(|o| o.value["apiVersion"] != wanted).map(|o| o.key.as_str()).collect();
        anyhow::Ok(Seen::from_option(others.is_empty().then_some(()), format!("{others:?} {written:?}")))
    })
    .await
    .unwrap();
}

/// The steps of designs/resource-versions.md, and back.
async fn storage_version_changes_and_changes_back(stack: &Stack, before: &Observed) {
    let client = stack.plane.admin().await.unwrap();
    for stored in ["v1alpha1", BETA, "v1alpha1"] {
        serve_both(&client, stored).await;
        rewrite(stack, stored).await;
    }
    let text = stack.plane.kubectl(["get", "tenants.v1beta1.croft.dev", "a", "--output=json"]).await.unwrap();
    let tenant: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(tenant["apiVersion"], "croft.dev/v1beta1");
    // A version in which objects may be stored can't be dropped, as a rollback would.
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in croft_api::crds() {
        let refused = replace_crd(&api, crd.clone()).await.unwrap_err();
        assert!(refused.to_string().contains("storedVersions"), "{refused}");
        let patch = json!({"status": {"storedVersions": ["v1alpha1"]}});
        let name = crd.name_any();
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        replace_crd(&api, crd).await.unwrap();
    }
    scale(&client, 4).await.unwrap();
    assert_eq!(changes(stack, before, true).await, Vec::<String>::new());
}

#[tokio::test]
async fn objects_of_earlier_releases_replace_no_node_and_refuse_no_pod() {
    for folder in Recorded::folders().unwrap() {
        let Recorded { version, mut objects, journal } = Recorded::read(&folder).unwrap();
        println!("upgrade: from {version}, {} objects", objects.len());
        let forgotten = forget_stamps(&mut objects);
        let before = Observed::stored(&objects);
        let mut stack = restored(objects, &journal).await;
        takes_over(&mut stack, &before, &forgotten).await;
        storage_version_changes_and_changes_back(&stack, &before).await;
        other_hash_drifts(&stack.plane.admin().await.unwrap()).await;
        stack.check().unwrap();
    }
}

/// A plane whose objects can be recorded, with the programs and manifests of a build.
async fn recordable(croft: CroftOptions) -> Stack {
    Stack::start_with(Options::default().flag(Component::ApiServer, STORE_AS_TEXT), croft).await.unwrap()
}

#[tokio::test]
#[ignore = "writes the record of the present version: make record-release"]
async fn record_the_present_version() {
    let mut stack = recordable(CroftOptions::find().unwrap()).await;
    make_scene(&mut stack).await.unwrap();
    let objects = stack.plane.stored_objects().await.unwrap();
    let journal = fs::read_to_string(stack.plane.folder().join("ec2-sim.journal")).unwrap();
    let recorded = Recorded::new(env!("CARGO_PKG_VERSION"), objects, &journal);
    let folder = Recorded::folder_of_this_version();
    recorded.write(&folder).unwrap();
    println!("upgrade: {} objects in {}", recorded.objects.len(), folder.display());
}

#[tokio::test]
#[ignore = "needs the build of an earlier commit: make upgrade-test"]
async fn upgrade_from_a_built_commit_replaces_no_node_and_refuses_no_pod() {
    let path = |name: &str| PathBuf::from(env::var_os(name).unwrap_or_else(|| panic!("{name} isn't set")));
    let mut options = CroftOptions::find().unwrap();
    options.manifests = path("CROFT_PREVIOUS_MANIFESTS");
    options.binaries = path("CROFT_PREVIOUS_BINARIES");
    let mut stack = recordable(options).await;
    make_scene(&mut stack).await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    let mut objects = stack.plane.stored_objects().await.unwrap();
    let forgotten = forget_stamps(&mut objects);
    let without = Patch::Merge(json!({"metadata": {"annotations": {LAUNCHED_WITH: null}}}));
    for name in &forgotten {
        let api: Api<NodeClaim> = Api::all(client.clone());
        api.patch(name, &PatchParams::default(), &without).await.unwrap();
    }
    let before = Observed::stored(&objects);
    let Stack { croft, plane } = stack;
    drop(croft);
    let mut croft = Croft::install(&plane, CroftOptions::find().unwrap()).await.unwrap();
    croft.resume(&plane, Part::Cloud).await.unwrap();
    let mut stack = Stack { croft, plane };
    takes_over(&mut stack, &before, &forgotten).await;
    other_hash_drifts(&client).await;
    stack.check().unwrap();
}

/// Left out of a restoration into another cluster: its kube-system, and objects that its own nodes and controllers make.
const OF_THE_CLUSTER: [&str; 5] = [
    "/registry/minions/",
    "/registry/pods/",
    "/registry/csinodes/",
    "/registry/namespaces/kube-system",
    "/registry/serviceaccounts/",
];

/// The command that the controller's log tells, if it refuses to lead.
fn told(stack: &Stack) -> Option<String> {
    let log = fs::read_to_string(stack.plane.log("croft-controller")).unwrap_or_default();
    let line = log.lines().find(|line| line.contains("this process doesn't lead"))?;
    let message: Value = serde_json::from_str(line).ok()?;
    let text = message["fields"]["message"].as_str().or(message["message"].as_str())?;
    text.split_once("run: kubectl ").map(|(_, command)| command.to_owned())
}

/// `croft check` with the cloud's answers.
async fn check(stack: &mut Stack) -> String {
    let cloud = stack.croft.address(Part::Cloud).unwrap();
    let arguments = format!("check --aws-region us-east-1 --aws-endpoint-url http://{cloud}");
    croft_with_credentials(&stack.plane, &arguments).await.unwrap().1
}

#[tokio::test]
async fn restoration_into_another_cluster_ends_no_instance_of_the_first_and_reports_them() {
    let folder = Recorded::folders().unwrap().pop().unwrap();
    let Recorded { version: _, mut objects, journal } = Recorded::read(&folder).unwrap();
    let is_system = |object: &StoredObject| object.key == "/registry/namespaces/kube-system";
    let system = objects.iter().find(|object| is_system(object)).unwrap();
    let first_uid = system.value["metadata"]["uid"].as_str().unwrap().to_owned();
    objects.retain(|object| !OF_THE_CLUSTER.iter().any(|prefix| object.key.starts_with(prefix)));
    let mut stack = restored(objects, &journal).await;
    let client = stack.plane.admin().await.unwrap();
    let first = instances(&mut stack).await;
    assert_eq!(first.len(), NODES + 1);

    // The controller sees that this is another cluster, and leaves everything as it is.
    stack.croft.resume(&stack.plane, Part::Webhook).await.unwrap();
    stack.plane.resume(Component::ControllerManager).await.unwrap();
    stack.croft.launch(&stack.plane, Part::Controller).await.unwrap();
    let command = until("the refusal to lead", EVENTUALLY, async || {
        Ok::<_, kube::Error>(Seen::from_option(told(&stack), log_tail(&stack.plane, "croft-controller")))
    });
    let command = command.await.unwrap();
    let text = check(&mut stack).await;
    let differs =
        format!("fail  recorded cluster: Croft ran in the cluster {first_uid}, and this is the cluster ");
    assert!(text.contains(&differs), "{text}");
    let left = format!("fail  former clusters: {} instances of the cluster {first_uid}", first.len());
    assert!(text.contains(&left), "{text}");
    assert!(text.contains("fail  controller: no controller leads"), "{text}");
    assert_eq!(instances(&mut stack).await, first);

    // As its message says: the claims' instances belong to the first cluster, so they are deleted without their finalizers.
    let all: Api<NodeClaim> = Api::all(client.clone());
    let claims = all.list(&Default::default()).await.unwrap();
    assert_eq!(claims.items.len(), NODES + 1);
    for claim in claims {
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        all.patch(&claim.name_any(), &PatchParams::default(), &free).await.unwrap();
        all.delete(&claim.name_any(), &Default::default()).await.unwrap();
    }
    stack.plane.kubectl(command.split(' ')).await.unwrap();
    stack.croft.ready(Part::Controller).await.unwrap();
    running(&client, "a", 2).await.unwrap();
    running(&client, "b", 1).await.unwrap();
    condition_of::<EC2NodeClass>(&client, "full", READY, "True").await.unwrap();
    condition_of::<TenantPool>(&client, "pool-fixed", READY, "True").await.unwrap();

    // The first cluster's instances run as before, with its tag, and are reported until they are gone.
    for instance in stack.instances().await.unwrap() {
        let is_first = first.contains(instance["id"].as_str().unwrap());
        assert_eq!(instance["tags"][tags::CLUSTER] == json!(first_uid), is_first, "{instance}");
    }
    assert!(instances(&mut stack).await.is_superset(&first));
    let text = check(&mut stack).await;
    assert!(text.contains(&left), "{text}");
    assert!(first.iter().all(|id| text.contains(id)), "{text}");
    for id in &first {
        stack.control(&json!({"do": "end", "instance": id})).await.unwrap();
    }
    let text = check(&mut stack).await;
    assert!(text.contains("former clusters: no instance is left"), "{text}");
    stack.check().unwrap();
}
