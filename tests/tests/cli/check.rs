//! `croft check` on a whole installation: healthy, and with each failure that it detects. Also other commands on a
//! running cluster.

use std::time::Duration;

use croft_policy::Mutation;
use croft_testkit::{
    ControlPlane, CroftOptions, Part,
    wait::{Seen, until},
};
use croft_tests::{
    arena::{in_mode, settings},
    cli::{croft, croft_with_credentials},
    stack::{Stack, node_of, running},
};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

/// A Lease has expired after twice its duration, 20 s; the rest is margin.
const SOON: Duration = Duration::from_secs(90);

/// Waits until `croft check` writes all of `words`, and no other check fails.
async fn says(stack: &Stack, words: &[&str]) {
    until(&words.join(", "), SOON, async || {
        let (code, text) = croft(&stack.plane, "check").await?;
        let all = words.iter().all(|word| text.contains(word));
        let failed = text.lines().filter(|line| line.starts_with("fail")).count();
        let ill = words.iter().filter(|word| word.starts_with("fail")).count();
        anyhow::Ok(Seen::from_option((all && failed == ill && code == u8::from(ill > 0)).then_some(()), text))
    })
    .await
    .unwrap();
}

async fn healthy(stack: &Stack) {
    says(stack, &["the installation is healthy"]).await;
}

async fn kubectl(stack: &Stack, arguments: &str) {
    stack.plane.kubectl(arguments.split(' ')).await.unwrap();
}

/// The webhooks are removed first: in this lab their client config has a URL, which excludes a Service.
async fn reinstall(stack: &Stack) {
    let folder = stack.croft.manifests().join("install");
    kubectl(stack, &format!("delete --ignore-not-found -f {}", folder.join("webhooks.yaml").display())).await;
    kubectl(stack, &format!("apply --server-side --force-conflicts -k {}", folder.display())).await;
}

const ODD: &str = "
apiVersion: croft.dev/v1alpha1
kind: EC2NodeClass
metadata: {name: nowhere}
spec:
  role: croft-node
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {no-such: tag}}]
  securityGroupSelectorTerms: [{tags: {croft.dev/discovery: croft}}]
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: classless}
spec: {key: node-pool, template: {spec: {nodeClassRef: {name: no-such-class}}}}
---
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: latecomer}
spec: {namespaces: [tenant-a], pools: [pool-a]}
";

/// The account's part of the check, with the region and the name that the controller recorded.
async fn account_is_checked_as_the_controller_uses_it(stack: &mut Stack) {
    let cloud = stack.croft.address(Part::Cloud).unwrap();
    let arguments = format!("check --aws-endpoint-url http://{cloud} --interruption-queue croft");
    let (code, text) = croft_with_credentials(&stack.plane, &arguments).await.unwrap();
    assert_eq!(code, 0, "{text}");
    for line in [
        "ok    reviews: the API server got the webhook's answer, in a dry run of ",
        "ok    prices: no price of ",
        "ok    placement: no pod of Croft is in the cluster",
        "ok    aws: asked as arn:aws:",
        "ok    cluster name: croft is this cluster\n",
        "ok    identity: arn:aws:iam::000000000000:role/croft-controller, by Pod Identity",
        "ok    access entries: instances with the 1 role of the classes may join",
        "ok    interruption queue: croft gets every announcement, by 4 rules",
        "ok    private network: the subnets have a route to the internet",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

/// A role for every ServiceAccount with wildcards gives the verb of the switch to the one that stands for it.
async fn broad_binding_stops_enforcement(stack: &Stack) {
    kubectl(stack, "create clusterrole broad --verb=* --resource=croftconfigs.croft.dev").await;
    kubectl(stack, "create clusterrolebinding broad --clusterrole=broad --group=system:serviceaccounts")
        .await;
    says(stack, &["fail  enforcement: enforcement is stopped, and not by croft break-glass"]).await;
    kubectl(stack, "delete clusterrolebinding,clusterrole broad").await;
    says(stack, &["ok    enforcement: enforcement is on"]).await;
}

/// Objects with a secret wherever one may be, and pods without a place.
const SECRET: &str = "pl4nted-s3cret";
const PLANTED: &str = r#"
{apiVersion: v1, kind: Secret, metadata: {name: planted, namespace: tenant-a}, stringData: {key: pl4nted-s3cret}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: planted, namespace: tenant-a}, data: {key: pl4nted-s3cret}}
---
apiVersion: croft.dev/v1alpha1
kind: EC2NodeClass
metadata: {name: planted, annotations: {note: pl4nted-s3cret}}
spec:
  role: croft-node
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {croft.dev/discovery: croft}}]
  securityGroupSelectorTerms: [{tags: {croft.dev/discovery: croft}}]
  userData: "echo pl4nted-s3cret"
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: planted, namespace: tenant-a, annotations: {note: pl4nted-s3cret}}
spec:
  replicas: 3
  selector: {matchLabels: {app: planted}}
  template:
    metadata: {labels: {app: planted}, annotations: {note: pl4nted-s3cret}}
    spec:
      containers:
      - name: a
        image: registry.k8s.io/pause:3.10
        command: [run, pl4nted-s3cret]
        args: [--token=pl4nted-s3cret]
        env: [{name: TOKEN, value: pl4nted-s3cret}]
        livenessProbe: {exec: {command: [probe, pl4nted-s3cret]}}
        lifecycle: {preStop: {exec: {command: [stop, pl4nted-s3cret]}}}
        resources: {requests: {cpu: "3", memory: 6Gi}}
      volumes: [{name: data, configMap: {name: planted, items: [{key: key, path: pl4nted-s3cret}]}}]
"#;

/// `croft simulate` on the snapshot gives the plan that it gives on the objects as kubectl writes them.
async fn snapshot_gives_the_clusters_plan_without_secrets(stack: &Stack) {
    const KINDS: &str = "tenants,tenantpools,ec2nodeclasses,nodeclaims,croftconfigs,namespaces,nodes,pods,deployments,\
                         replicasets,statefulsets,daemonsets,replicationcontrollers,jobs,cronjobs,persistentvolumeclaims,\
                         persistentvolumes,storageclasses,csinodes,priorityclasses,runtimeclasses,limitranges,\
                         poddisruptionbudgets";
    // Nothing is launched meanwhile, so that both show one state.
    stack.croft.process(Part::Controller).unwrap().freeze();
    stack.plane.apply(PLANTED).await.unwrap();
    until("three pods without a place", SOON, async || {
        let query = "get pods -n tenant-a -l app=planted -o jsonpath={.items[*].status.conditions[*].reason}";
        let reasons = stack.plane.kubectl(query.split(' ')).await?;
        let waiting = reasons.split(' ').filter(|reason| *reason == "Unschedulable").count();
        anyhow::Ok(Seen::from_option((waiting == 3).then_some(()), reasons))
    })
    .await
    .unwrap();
    let raw = stack.plane.kubectl(["get", KINDS, "--all-namespaces", "--output", "yaml"]).await.unwrap();
    assert!(raw.matches(SECRET).count() > 10, "the secrets are planted");
    let (code, dump) = croft(&stack.plane, "debug dump").await.unwrap();
    assert_eq!(code, 0, "{dump}");
    let (_, again) = croft(&stack.plane, "debug dump").await.unwrap();
    assert!(
        !dump.contains(SECRET),
        "{}",
        dump.lines().find(|line| line.contains(SECRET)).unwrap_or_default()
    );
    for part in
        ["kind: Snapshot", "kubernetes: v1.", "kind: Lease", "kind: Event", "kind: NodeClaim", "leader: "]
    {
        assert!(dump.contains(part), "{part}");
    }
    // Leases and events change meanwhile, objects don't.
    let objects = |dump: &str| dump[dump.find("kind: Tenant\n").unwrap()..].to_owned();
    assert_eq!(objects(&dump), objects(&again), "the order is the same each time");

    let plans: Vec<Value> = plans_of(&stack.plane, [("raw.yaml", &raw), ("dump.yaml", &dump)]).await;
    let [of_cluster, of_dump] = plans.as_slice() else { panic!("{plans:?}") };
    assert!(of_cluster["costPerHour"].as_f64().unwrap() > 0.0, "there is something to plan: {of_cluster}");
    assert_eq!(of_dump, of_cluster);
    kubectl(stack, "delete deployment,secret,configmap planted -n tenant-a").await;
    kubectl(stack, "delete ec2nodeclass planted --wait=false").await;
    stack.croft.process(Part::Controller).unwrap().thaw();
    healthy(stack).await;
}

/// The plans of `croft simulate` for these files, without the time that they took.
async fn plans_of<const N: usize>(plane: &ControlPlane, files: [(&str, &String); N]) -> Vec<Value> {
    let mut plans = Vec::new();
    for (name, text) in files {
        let path = plane.write(name, text).unwrap();
        let output = tokio::process::Command::new(CroftOptions::find().unwrap().binaries.join("croft"))
            .args(["simulate", "--consolidate", "-o", "json", "-f"])
            .arg(&path)
            .output()
            .await
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {errors}");
        let mut plan: Value = serde_json::from_slice(&output.stdout).unwrap();
        plan.as_object_mut().unwrap().remove("elapsedMs");
        plans.push(plan);
    }
    plans
}

/// Waits until `croft check` writes `line`, whatever the other checks say.
async fn says_among_others(stack: &Stack, line: &str) {
    until(line, SOON, async || {
        let (_, text) = croft(&stack.plane, "check").await?;
        let all = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>();
        // A long line is wrapped.
        anyhow::Ok(Seen::from_option(all.join(" ").contains(line).then_some(()), text))
    })
    .await
    .unwrap();
}

const BESIDE: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: nodepools.karpenter.sh}
spec:
  group: karpenter.sh
  scope: Cluster
  names: {kind: NodePool, plural: nodepools}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: beside}
spec: {template: {metadata: {labels: {karpenter.sh/nodepool: x}}, spec: {nodeClassRef: {name: default}}}}
";

/// A Karpenter beside that would count nodes with its label.
async fn karpenter_beside_is_a_warning(stack: &Stack) {
    says_among_others(stack, "karpenter: it isn't installed").await;
    stack.plane.apply(BESIDE).await.unwrap();
    says_among_others(stack, "TenantPool beside: karpenter.sh/nodepool=x").await;
    kubectl(stack, "delete tenantpool beside").await;
    says_among_others(
        stack,
        "karpenter: it is installed as well, and no template gives a label that it reads",
    )
    .await;
    kubectl(stack, "delete crd nodepools.karpenter.sh").await;
    healthy(stack).await;
}

/// The mode of the settings against the mutating policies that are installed.
async fn mutation_line_follows_mode_and_policies(stack: &Stack, client: &Client) {
    const NAME: &str = "croft-pods";
    let kinds = "mutatingadmissionpolicies,mutatingadmissionpolicybindings";
    let file = stack.croft.manifests().join("overlays/policy-mode/mutation.yaml");
    let install = format!("apply --server-side --force-conflicts -f {}", file.display());
    let remedy = "manifests/overlays/policy-mode/mutation.yaml";
    says_among_others(
        stack,
        "ok mutation: Webhook mode is set; Policy mode fits as well: the mutating policies",
    )
    .await;

    kubectl(stack, &format!("delete mutatingadmissionpolicy {NAME}")).await;
    says_among_others(
        stack,
        "warn mutation: Webhook mode is set, and MutatingAdmissionPolicy croft-pods is missing",
    )
    .await;
    stack.plane.apply(&settings(Mutation::Policy)).await.unwrap();
    says_among_others(
        stack,
        "fail mutation: Policy mode is set, and MutatingAdmissionPolicy croft-pods is missing or of another version",
    )
    .await;
    says_among_others(stack, remedy).await;
    kubectl(stack, &install).await;
    says_among_others(stack, "ok mutation: Policy mode is set, and fits").await;
    in_mode(client, Mutation::Policy).await.unwrap();
    let none = "[JSONPatch{op:'remove',path:'/spec'}].filter(p,false)";
    let patch =
        format!(r#"[{{"op":"replace","path":"/spec/mutations/0/jsonPatch/expression","value":"{none}"}}]"#);
    kubectl(stack, &format!("patch mutatingadmissionpolicy {NAME} --type=json -p={patch}")).await;
    says_among_others(stack, "croft-pods is missing or of another version").await;
    kubectl(stack, &install).await;
    healthy(stack).await;

    stack.plane.apply(&settings(Mutation::Webhook)).await.unwrap();
    in_mode(client, Mutation::Webhook).await.unwrap();
    kubectl(stack, &format!("delete {kinds} -l app.kubernetes.io/part-of=croft")).await;
    says_among_others(stack, "warn mutation: Webhook mode is set, and without the mutating policies").await;
    // The mode isn't switched meanwhile: the controller's last probe was answered by the policies.
    stack.croft.process(Part::Controller).unwrap().freeze();
    stack.plane.apply(&settings(Mutation::Policy)).await.unwrap();
    says_among_others(
        stack,
        "fail mutation: Policy mode is set, and the mutating policies are not installed",
    )
    .await;
    stack.plane.apply(&settings(Mutation::Webhook)).await.unwrap();
    stack.croft.process(Part::Controller).unwrap().thaw();
    kubectl(stack, &install).await;
    healthy(stack).await;
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one cluster, broken and mended step by step")]
async fn check_finds_every_failure_with_its_remedy() {
    let mut stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    for file in ["platform.yaml", "workloads.yaml"] {
        let manifest = stack.manifest(&format!("examples/two-tenants/{file}")).unwrap();
        stack.plane.apply(&manifest).await.unwrap();
    }
    let pods = running(&client, "tenant-a", 6).await.unwrap();
    running(&client, "tenant-b", 3).await.unwrap();
    healthy(&stack).await;

    // Pods, nodes and cost.
    let (code, text) = croft(&stack.plane, "top --nodes").await.unwrap();
    assert_eq!(code, 0, "{text}");
    let row = text.lines().find(|line| line.starts_with("tenant-a ")).unwrap_or_else(|| panic!("{text}"));
    let row: Vec<_> = row.split_whitespace().collect();
    // tenant, pools, namespaces, pods, pending
    assert_eq!(row[..5], ["tenant-a", "pool-a", "1", "6", "0"], "{text}");
    assert_ne!(row[6], "0", "{text}");
    for pod in &pods {
        assert!(text.contains(&node_of(pod)), "{text}");
    }
    let (pod, node) = (pods[0].name_any(), node_of(&pods[0]));
    let (code, text) = croft(&stack.plane, &format!("explain pod {pod} -n tenant-a")).await.unwrap();
    assert_eq!(code, 0, "{text}");
    assert!(text.contains(&format!("runs on node {node} of pool pool-a")), "{text}");
    assert!(text.contains("placement ok"), "{text}");
    let (code, text) = croft(&stack.plane, "audit").await.unwrap();
    assert_eq!(code, 0, "{text}");

    account_is_checked_as_the_controller_uses_it(&mut stack).await;
    broad_binding_stops_enforcement(&stack).await;
    snapshot_gives_the_clusters_plan_without_secrets(&stack).await;

    // The API server gets no answer: what a closed security group looks like, too.
    stack.croft.process(Part::Webhook).unwrap().freeze();
    says(
        &stack,
        &["fail  reviews: the webhook doesn't answer the API server", "authorize-security-group-ingress"],
    )
    .await;

    // Faults that the webhook repairs, while it is down.
    let patch = r#"patch mutatingwebhookconfiguration croft-webhook --type=json -p=[{"op":"replace","path":"/webhooks/0/clientConfig/caBundle","value":"b2RkCg=="}]"#;
    kubectl(&stack, patch).await;
    says(&stack, &["fail  configurations: their caBundles differ", "certs/README.md"]).await;
    kubectl(&stack, "delete mutatingwebhookconfiguration croft-webhook").await;
    says(
        &stack,
        &["fail  configurations: there is no MutatingWebhookConfiguration croft-webhook: no pod is placed in its pool"],
    )
    .await;
    stack.croft.process(Part::Webhook).unwrap().thaw();
    reinstall(&stack).await;
    healthy(&stack).await;
    stack.croft.process(Part::Webhook).unwrap().freeze();
    let patch = r#"patch mutatingwebhookconfiguration croft-webhook --type=json -p=[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]"#;
    kubectl(&stack, patch).await;
    says(&stack, &["fail  configurations:", "don't fail closed"]).await;
    // The webhook repairs what differs from its own output.
    stack.croft.process(Part::Webhook).unwrap().thaw();
    healthy(&stack).await;

    // Faults that the controller repairs, while it is down.
    stack.croft.process(Part::Controller).unwrap().freeze();
    kubectl(&stack, "delete validatingadmissionpolicy croft-pod-placement-keys").await;
    let (code, text) = croft(&stack.plane, "check").await.unwrap();
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("fail  policies: the policy croft-pod-placement-keys doesn't exist"), "{text}");
    assert!(text.contains("kubectl apply -f manifests/install/policies.yaml"), "{text}");
    stack.croft.process(Part::Controller).unwrap().thaw();
    reinstall(&stack).await;
    healthy(&stack).await;

    // User errors.
    stack.plane.apply(ODD).await.unwrap();
    says(
        &stack,
        &[
            "fail  classes: EC2NodeClass nowhere isn't ready",
            "fail  pools: TenantPool classless isn't ready",
            "fail  tenants: Tenant latecomer isn't ready",
        ],
    )
    .await;
    kubectl(&stack, "delete tenant latecomer").await;
    kubectl(&stack, "delete tenantpool classless").await;
    kubectl(&stack, "delete ec2nodeclass nowhere").await;
    healthy(&stack).await;

    mutation_line_follows_mode_and_policies(&stack, &client).await;
    karpenter_beside_is_a_warning(&stack).await;

    // An old CRD.
    let patch = r#"patch crd tenants.croft.dev --type=json -p=[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/onConflict"}]"#;
    kubectl(&stack, patch).await;
    says(&stack, &["fail  crds: tenants.croft.dev are of another version than this command"]).await;
    reinstall(&stack).await;
    healthy(&stack).await;

    // No process runs.
    stack.croft.kill(Part::Webhook).unwrap();
    stack.croft.kill(Part::Controller).unwrap();
    says(
        &stack,
        &[
            "fail  webhook: no replica of the webhook renews its Lease: pods of tenants can't be created",
            "fail  controller: no controller leads: no instance is launched or terminated",
        ],
    )
    .await;
    for part in [Part::Webhook, Part::Controller] {
        stack.croft.resume(&stack.plane, part).await.unwrap();
    }
    healthy(&stack).await;
}
