//! `croft uninstall` of a running installation, and what is left of one that was removed by hand.

use std::{collections::BTreeSet, time::Duration};

use croft_policy::policies::BREAK_GLASS_SUBJECT;
use croft_testkit::{
    CroftOptions, Options, Part,
    wait::{Seen, until},
};
use croft_tests::{
    arena::create,
    cli::{croft, croft_with_credentials},
    manifests::{daemon_set, joined},
    stack::{EVENTUALLY, Stack, running},
};
use kube::Client;
use serde_json::{Value, json};

const GRACE: Duration = Duration::from_secs(20);

/// A stack with two tenants whose pods run, and nodes of no pool, where evicted pods find room.
async fn two_tenants() -> Stack {
    let options = CroftOptions::find()
        .unwrap()
        .flag(Part::Controller, "--orphans-every=3s")
        .flag(Part::Controller, "--orphan-grace=6s");
    let stack = Stack::start_with(Options::default(), options).await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    for file in ["platform.yaml", "workloads.yaml"] {
        let manifest = stack.manifest(&format!("examples/two-tenants/{file}")).unwrap();
        stack.plane.apply(&manifest).await.unwrap();
    }
    running(&client, "tenant-a", 6).await.unwrap();
    running(&client, "tenant-b", 3).await.unwrap();
    let others = [("n-1", "us-east-1a"), ("n-2", "us-east-1b")].map(|(name, zone)| {
        let amounts = json!({"cpu": "32", "memory": "64Gi", "pods": "50"});
        json!({
            "apiVersion": "v1", "kind": "Node",
            // With the labels that the tenants' pods select.
            "metadata": {"name": name, "labels": {
                "lab.croft.dev/kubelet": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "arm64", "topology.kubernetes.io/zone": zone,
                "node.kubernetes.io/instance-type": "m5.large", "karpenter.sh/capacity-type": "spot",
            }},
            "status": {"allocatable": amounts, "capacity": amounts},
        })
    });
    stack.plane.apply(&joined(&others)).await.unwrap();
    stack
}

async fn get(stack: &Stack, arguments: &str) -> String {
    stack.plane.kubectl(["get"].into_iter().chain(arguments.split(' '))).await.unwrap().trim().to_owned()
}

/// Ids of the running instances.
async fn ids(stack: &mut Stack) -> BTreeSet<String> {
    let instances = stack.instances().await.unwrap();
    instances.iter().filter_map(|i| i["id"].as_str().map(str::to_owned)).collect()
}

/// Nothing of Croft is in the cluster but its namespace and, if kept, its CRDs.
async fn nothing_is_left(stack: &Stack) {
    let kinds = "deployments,services,secrets,serviceaccounts,roles,rolebindings,leases,clusterroles,clusterrolebindings,\
                 validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingwebhookconfigurations,\
                 validatingwebhookconfigurations";
    let left =
        get(stack, &format!("{kinds} --all-namespaces -l app.kubernetes.io/part-of=croft -o name")).await;
    assert_eq!(left, "");
    let namespaces: Value = serde_json::from_str(&get(stack, "namespaces -o json").await).unwrap();
    for namespace in namespaces["items"].as_array().unwrap() {
        let metadata = &namespace["metadata"];
        let written = |field: &str| {
            let map = metadata[field].as_object().cloned().unwrap_or_default();
            map.into_iter().map(|(key, _)| key).filter(|key| key.contains("croft.dev/")).collect::<Vec<_>>()
        };
        assert_eq!((written("labels"), written("annotations")), (vec![], vec![]), "{metadata}");
    }
    let nodes: Value = serde_json::from_str(&get(stack, "nodes -o json").await).unwrap();
    for node in nodes["items"].as_array().unwrap() {
        assert!(!node["metadata"]["finalizers"].to_string().contains("croft.dev/"), "{node}");
        let taints = node["spec"]["taints"].to_string();
        assert!(!taints.contains("croft.dev/disrupted"), "{node}");
    }
}

#[tokio::test]
async fn uninstall_refuses_without_a_controller_then_drains_and_leaves_nothing() {
    let mut stack = two_tenants().await;
    let client = stack.plane.admin().await.unwrap();
    let agent = daemon_set("tenant-b", "agent", json!({}));
    stack.plane.apply(&agent.to_string()).await.unwrap();
    let template = "daemonset agent -n tenant-b -o jsonpath={.spec.template}";
    assert!(get(&stack, template).await.contains("croft.dev/injected"));
    let closed = json!({"spec": {"networkIsolation": {"enabled": true}}}).to_string();
    stack.plane.kubectl(["patch", "tenant", "tenant-b", "--type=merge", "-p", &closed]).await.unwrap();
    stack
        .plane
        .kubectl(["wait", "tenant/tenant-b", "--for=condition=ObjectsKept", "--timeout=60s"])
        .await
        .unwrap();
    let own = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "own", "namespace": "tenant-b"}, "spec": {"podSelector": {}}});
    stack.plane.apply(&own.to_string()).await.unwrap();
    let before = ids(&mut stack).await;
    assert!(before.len() >= 2, "{before:?}");

    let (code, text) = croft(&stack.plane, "uninstall --skip-aws").await.unwrap();
    assert_eq!(code, 0, "{text}");
    for line in [
        "1. Tenants: 2 Tenants: tenant-a, tenant-b",
        "2. TenantPools: 2 TenantPools: pool-a, pool-b",
        "9 pods on ",
        "objects in tenants' namespaces: 1 object: tenant-b/croft-tenant-network",
        "are terminated, $",
        "instances in AWS: not checked: --skip-aws",
        "nothing was changed; to remove Croft: croft uninstall --yes",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    for id in &before {
        assert!(text.contains(id.as_str()), "{id}\n{text}");
    }

    // Nothing drains without a controller.
    stack.croft.stop(Part::Controller, GRACE).await.unwrap();
    let (code, text) = croft(&stack.plane, "uninstall --yes --skip-aws").await.unwrap();
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("refused: no controller leads") && text.contains("--keep-instances"), "{text}");
    assert_eq!(get(&stack, "tenants -o name").await.lines().count(), 2);
    assert_eq!(ids(&mut stack).await, before);
    let plane = &stack.plane;
    stack.croft.resume(plane, Part::Controller).await.unwrap();
    until("a leader", EVENTUALLY, async || {
        let (code, text) = croft(&stack.plane, "check").await?;
        anyhow::Ok(Seen::from_option((code == 0).then_some(()), text))
    })
    .await
    .unwrap();

    let cloud = stack.croft.address(Part::Cloud).unwrap();
    let command = format!("uninstall --yes --crds --timeout 2m --aws-endpoint-url http://{cloud}");
    let (code, text) = croft_with_credentials(&stack.plane, &command).await.unwrap();
    assert_eq!(code, 0, "{text}");
    for line in [
        "pools: 2 TenantPools drained and deleted",
        "CRDs: removed",
        "Croft is removed",
        "kubectl delete namespace",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert_eq!(ids(&mut stack).await, BTreeSet::new());
    nothing_is_left(&stack).await;
    assert_eq!(get(&stack, "crd -o name").await, "");
    assert!(!get(&stack, template).await.contains("croft.dev/"), "the DaemonSet is as it was written");
    assert_eq!(get(&stack, "nodes -o name").await, "node/n-1\nnode/n-2");
    assert_eq!(
        get(&stack, "networkpolicies -A -o name").await,
        "networkpolicy.networking.k8s.io/own",
        "policies of people stay"
    );
    running(&client, "tenant-a", 6).await.unwrap();
    let (code, text) = croft(&stack.plane, "uninstall --yes --crds --skip-aws").await.unwrap();
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("nothing of Croft is left"), "{text}");
}

/// An owner who may create namespaces under a prefix.
async fn owner_of_namespaces(stack: &Stack) -> Client {
    let owned = json!({"spec": {"owners": [{"kind": "User", "name": "carla"}],
        "namespaceCreation": {"prefix": "a-", "maximum": 3}}});
    stack
        .plane
        .kubectl(["patch", "tenant", "tenant-a", "--type=merge", "-p", &owned.to_string()])
        .await
        .unwrap();
    let owner = stack.plane.client_for("carla", &[]).await.unwrap();
    until("the owner to be kept to the prefix", EVENTUALLY, async || {
        let said = attempt(&owner).await;
        anyhow::Ok(Seen::from_option(said.contains("choose a name that begins with a-").then_some(()), said))
    })
    .await
    .unwrap();
    owner
}

/// The API server's answer to an owner who takes a name of another, with a level of Pod Security of the owner's choice.
async fn attempt(owner: &Client) -> String {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "of-another",
        "labels": {"pod-security.kubernetes.io/enforce": "privileged"}}});
    create(owner, &namespace, true).await.unwrap().sentence()
}

/// Runs `work` while an owner takes names all the time. Returns what was allowed.
async fn with_attempts<T>(owner: &Client, work: impl Future<Output = anyhow::Result<T>>) -> (T, Vec<String>) {
    let mut taken = Vec::new();
    let mut work = std::pin::pin!(work);
    let done = loop {
        tokio::select! {
            biased;
            done = &mut work => break done.unwrap(),
            said = attempt(owner) => {
                if said.contains("allowed") {
                    taken.push(said);
                }
            }
        }
    };
    (done, taken)
}

#[tokio::test]
async fn kept_instances_are_listed_reported_and_adopted_and_crds_deleted_by_hand_leave_none() {
    let mut stack = two_tenants().await;
    let client = stack.plane.admin().await.unwrap();
    let before = ids(&mut stack).await;
    let owner = owner_of_namespaces(&stack).await;

    // The test's own process isn't run by the Deployment that the command scales down.
    stack.croft.stop(Part::Controller, GRACE).await.unwrap();
    let of_a_pool = "nodes -l node-restriction.kubernetes.io/pool -o jsonpath={.items[0].metadata.name}";
    let node = get(&stack, of_a_pool).await;
    let taint = "croft.dev/disrupted=:NoSchedule";
    stack.plane.kubectl(["taint", "--overwrite", "node", &node, taint]).await.unwrap();
    let uninstalled = croft(&stack.plane, "uninstall --yes --keep-instances --skip-aws");
    let ((code, text), taken) = with_attempts(&owner, uninstalled).await;
    assert_eq!(code, 0, "{text}");
    assert_eq!(taken, Vec::<String>::new(), "names that the owner could take meanwhile");
    for id in &before {
        assert!(text.contains(id.as_str()), "{id}\n{text}");
    }
    for line in
        ["are left running, for you to pay for", "/h", "aws ec2 terminate-instances --instance-ids i-"]
    {
        assert!(text.contains(line), "{line}\n{text}");
    }
    nothing_is_left(&stack).await;
    assert_eq!(get(&stack, "nodeclaims,tenants,tenantpools -o name").await, "");
    assert_eq!(ids(&mut stack).await, before);
    running(&client, "tenant-a", 6).await.unwrap();

    // Installed again, Croft reports the instances, and adopts them once their pools are declared.
    stack.croft.stop(Part::Webhook, GRACE).await.unwrap();
    let folder = stack.croft.manifests().join("install").display().to_string();
    stack.plane.kubectl(["apply", "--server-side", "--force-conflicts", "-k", &folder]).await.unwrap();
    let plane = &stack.plane;
    for part in [Part::Webhook, Part::Controller] {
        stack.croft.resume(plane, part).await.unwrap();
    }
    let (code, text) = croft(&stack.plane, "check --skip-aws").await.unwrap();
    assert_eq!(code, 1, "{text}");
    let found =
        format!("fail  instances: {} instances without a NodeClaim, which are paid for", before.len());
    assert!(text.contains(&found), "{text}");
    assert!(text.contains("create the TenantPools pool-a, pool-b again"), "{text}");
    let platform = stack.manifest("examples/two-tenants/platform.yaml").unwrap();
    stack.plane.apply(&platform).await.unwrap();
    until("every instance adopted", EVENTUALLY, async || {
        let (_, text) = croft(&stack.plane, "check --skip-aws").await?;
        let adopted = text.contains("ok    instances: each has a NodeClaim");
        anyhow::Ok(Seen::from_option(adopted.then_some(()), text))
    })
    .await
    .unwrap();
    assert!(before.is_subset(&ids(&mut stack).await));

    // The CRDs are deleted by hand while no controller runs. Finalizers keep what has instances. Once the CRDs are applied
    // again, the next controller drains it, and the deletion ends.
    stack.croft.stop(Part::Controller, GRACE).await.unwrap();
    let crds = ["tenants", "tenantpools", "nodeclaims", "ec2nodeclasses", "croftconfigs"];
    let crds = crds.map(|kind| format!("{kind}.croft.dev"));
    let delete = ["delete", "crd", "--wait=false"].into_iter().chain(crds.iter().map(String::as_str));
    stack.plane.kubectl(delete).await.unwrap();
    let (code, text) = croft(&stack.plane, "check --skip-aws").await.unwrap();
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("fail  crds: ") && text.contains("kubectl apply --server-side -k manifests/crds"),
        "{text}"
    );
    let folder = stack.croft.manifests().join("crds").display().to_string();
    stack.plane.kubectl(["apply", "--server-side", "--force-conflicts", "-k", &folder]).await.unwrap();
    let plane = &stack.plane;
    stack.croft.launch(plane, Part::Controller).await.unwrap();
    until("no NodeClaim and no TenantPool", EVENTUALLY, async || {
        let crds = stack.plane.kubectl(["get", "crd", "-o", "name"]).await?;
        let done = !crds.contains("nodeclaims") && !crds.contains("tenantpools");
        anyhow::Ok(Seen::from_option(done.then_some(()), crds))
    })
    .await
    .unwrap();
    // A NodeClaim's finalizer goes once its instance is terminated.
    assert_eq!(ids(&mut stack).await, BTreeSet::new());
}

#[tokio::test]
async fn namespace_deleted_by_hand_ends_no_instance_and_the_next_installation_takes_them_over() {
    let mut stack = two_tenants().await;
    let client = stack.plane.admin().await.unwrap();
    let before = ids(&mut stack).await;
    let namespace = stack.croft.namespace().to_owned();

    // The processes end with their namespace.
    for part in [Part::Webhook, Part::Controller] {
        stack.croft.stop(part, GRACE).await.unwrap();
    }
    let delete = ["delete", "namespace", namespace.as_str(), "--timeout=60s"];
    let refused = stack.plane.kubectl(delete).await.unwrap_err().to_string();
    assert!(refused.contains("croft uninstall") && refused.contains("croft break-glass on"), "{refused}");
    // With the right alone, so that the webhooks stay registered.
    let (subject_namespace, subject) = BREAK_GLASS_SUBJECT;
    let account = format!("--serviceaccount={subject_namespace}:{subject}");
    let by_hand = ["create", "clusterrolebinding", "by-hand", "--clusterrole=croft-break-glass", &account];
    stack.plane.kubectl(by_hand).await.unwrap();
    until("the namespace may be deleted", EVENTUALLY, async || {
        let deleted = stack.plane.kubectl(delete).await;
        anyhow::Ok(Seen::from_option(deleted.is_ok().then_some(()), format!("{deleted:?}")))
    })
    .await
    .unwrap();
    stack.plane.kubectl(["delete", "clusterrolebinding", "by-hand"]).await.unwrap();
    let (code, text) = croft(&stack.plane, "check --skip-aws").await.unwrap();
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("fail  namespace") || text.contains(&format!("namespace {namespace}")), "{text}");
    // Fails closed: what runs goes on, and no pod of a tenant starts unplaced.
    running(&client, "tenant-a", 6).await.unwrap();
    let refused = stack
        .plane
        .kubectl(["run", "late", "-n", "tenant-a", "--image=registry.k8s.io/pause:3.10"])
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("croft"), "{refused}");
    assert_eq!(ids(&mut stack).await, before);

    let folder = stack.croft.manifests().join("install").display().to_string();
    stack.plane.kubectl(["apply", "--server-side", "--force-conflicts", "-k", &folder]).await.unwrap();
    let plane = &stack.plane;
    for part in [Part::Webhook, Part::Controller] {
        stack.croft.resume(plane, part).await.unwrap();
    }
    until("a whole installation", EVENTUALLY, async || {
        let (code, text) = croft(&stack.plane, "check --skip-aws").await?;
        anyhow::Ok(Seen::from_option((code == 0).then_some(()), text))
    })
    .await
    .unwrap();
    assert_eq!(ids(&mut stack).await, before);
    stack.plane.kubectl(["scale", "deployment", "-n", "tenant-a", "--all", "--replicas=4"]).await.unwrap();
    until("more pods of the tenant", EVENTUALLY, async || {
        let names = stack
            .plane
            .kubectl(["get", "pods", "-n", "tenant-a", "-o", "name", "--field-selector=status.phase=Running"])
            .await?;
        anyhow::Ok(Seen::from_option((names.lines().count() > 6).then_some(()), names))
    })
    .await
    .unwrap();
    let kept = ids(&mut stack).await;
    assert!(before.is_subset(&kept), "{before:?} {kept:?}");
}
