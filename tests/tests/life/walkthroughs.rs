//! Guides to Karpenter and Gatekeeper, followed with Croft: `croft import` converts the platform's objects, and tenants' manifests stay
//! as they are.

use std::collections::BTreeSet;

use croft_api::Tenant;
use croft_testkit::wait::{Seen, until};
use croft_tests::{
    lab,
    manifests::joined,
    stack::{EVENTUALLY, Stack, claims, condition_of, label, node_of, nodes, running},
};
use k8s_openapi::api::{
    core::v1::{Node, Pod, Toleration},
    networking::v1::NetworkPolicy,
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use serde_json::{Value, json};

const POOL: &str = "node-restriction.kubernetes.io/pool";
const TYPE: &str = "node.kubernetes.io/instance-type";
const ZONE: &str = "topology.kubernetes.io/zone";
const CAPACITY: &str = "karpenter.sh/capacity-type";

/// Subnets, groups and the instance profile of an account that was made ready for Karpenter.
fn account() -> Value {
    let cluster = json!({"karpenter.sh/discovery": "croft"});
    json!({
        "subnetSelector": cluster, "securityGroupSelector": cluster,
        "instanceProfile": "KarpenterNodeInstanceProfile-croft",
    })
}

/// A Provisioner that removes empty nodes, with these fields besides.
fn provisioner(name: &str, fields: Value) -> Value {
    let mut spec = json!({"ttlSecondsAfterEmpty": 30});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": {"name": name}, "spec": spec})
}

/// The Provisioner of a pool with the label and the taint `lane`, with these fields besides.
fn lane(name: &str, mut fields: Value) -> Value {
    fields["labels"] = json!({"lane": name});
    fields["taints"] = json!([{"key": "lane", "value": name, "effect": "NoSchedule"}]);
    provisioner(name, fields)
}

/// The mutations that pin the pods of a namespace to a pool.
fn assigns(namespace: &str, pool: &str) -> [Value; 2] {
    let assign = |part: &str, value: Value| {
        json!({
            "apiVersion": "mutations.gatekeeper.sh/v1", "kind": "Assign",
            "metadata": {"name": format!("{pool}-{}", part.to_lowercase()), "namespace": "gatekeeper-system"},
            "spec": {
                "applyTo": [{"groups": [""], "kinds": ["Pod"], "versions": ["v1"]}],
                "match": {
                    "scope": "Namespaced", "namespaces": [namespace],
                    "kinds": [{"apiGroups": ["*"], "kinds": ["Pod"]}],
                },
                "location": format!("spec.{part}"),
                "parameters": {"assign": {"value": value}},
            },
        })
    };
    [
        assign("nodeSelector", json!({"lane": pool})),
        assign("tolerations", json!([{"key": "lane", "operator": "Equal", "value": pool}])),
    ]
}

/// A Tenant that the platform team writes: Karpenter's objects alone don't say whose pods run on the nodes.
fn tenant(name: &str, namespace: &str, pools: &[&str]) -> Value {
    json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
        "spec": {"namespaces": [namespace], "pools": pools},
    })
}

/// Croft on a control plane, with the namespaces of tenants, what `croft import` prints for `objects`, and `tenants` besides. Waits until
/// each Tenant of `ready` is Ready.
async fn imported(
    from: &str,
    objects: &[Value],
    namespaces: &[&str],
    tenants: &[Value],
    ready: &[&str],
) -> (Stack, Client) {
    let stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("old.yaml");
    std::fs::write(&file, joined(objects)).unwrap();
    let output = lab::croft(folder.path()).unwrap().args(["import", from, "-f"]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", lab::text(&output));
    for &namespace in namespaces {
        stack.plane.kubectl(["create", "namespace", namespace]).await.unwrap();
    }
    stack.plane.apply(&String::from_utf8(output.stdout).unwrap()).await.unwrap();
    if !tenants.is_empty() {
        stack.plane.apply(&joined(tenants)).await.unwrap();
    }
    for name in ready {
        condition_of::<Tenant>(&client, name, "Ready", "True").await.unwrap();
    }
    (stack, client)
}

/// Runs kubectl, again while a new namespace is refused because its pools aren't known to the webhook yet.
async fn kubectl(stack: &Stack, arguments: &str, input: &str) {
    until(&format!("kubectl {arguments}"), EVENTUALLY, async || {
        stack.plane.kubectl_with(arguments.split(' '), input).await.map(Seen::Yes)
    })
    .await
    .unwrap();
}

/// Waits until exactly `count` pods of a namespace run. Returns each with its node.
async fn placed(client: &Client, namespace: &str, count: usize) -> Vec<(Pod, Node)> {
    let pods = running(client, namespace, count).await.unwrap();
    let homes = nodes(client).await.unwrap();
    let with_node = |pod: Pod| {
        let node = homes[&node_of(&pod)].clone();
        (pod, node)
    };
    pods.into_iter().map(with_node).collect()
}

fn assert_pool(pods: &[(Pod, Node)], pool: &str) {
    for (pod, node) in pods {
        assert_eq!(label(node, POOL), pool, "{} is on {}", pod.name_any(), node.name_any());
    }
}

/// The pod's own fields bind it to the pool with this label.
fn assert_pinned(pod: &Pod, key: &str, value: &str) {
    let spec = pod.spec.as_ref().unwrap();
    let selector = spec.node_selector.clone().unwrap_or_default();
    assert_eq!(selector.get(key).map(String::as_str), Some(value), "{selector:?}");
    let tolerations = spec.tolerations.clone().unwrap_or_default();
    let is_of_pool =
        |one: &Toleration| one.key.as_deref() == Some(key) && one.value.as_deref() == Some(value);
    assert!(tolerations.iter().any(is_of_pool), "{tolerations:?}");
}

/// Two tenants, each with a pool: bare pods without any field about nodes, and one that asks for an instance type.
#[tokio::test]
async fn bare_pods_of_two_tenants_run_in_their_pools_and_one_gets_its_instance_type() {
    let lanes = ["red", "blue"].map(|name| lane(name, json!({"provider": account()})));
    let objects = [lanes.to_vec(), assigns("team-red", "red").into(), assigns("team-blue", "blue").into()];
    let teams = ["team-red", "team-blue"];
    let (mut stack, client) = imported("gatekeeper", &objects.concat(), &teams, &[], &teams).await;

    for (team, pool) in [("team-red", "red"), ("team-blue", "blue")] {
        kubectl(&stack, &format!("run --image=nginx:alpine --namespace {team} nginx"), "").await;
        let pods = placed(&client, team, 1).await;
        assert_pool(&pods, pool);
        assert_eq!(label(&pods[0].1, "lane"), pool, "the label by which the guide lists nodes");
        assert_pinned(&pods[0].0, "lane", pool);
    }
    let large = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "large", "namespace": "team-red"},
        "spec": {
            "containers": [{"name": "nginx", "image": "nginx:alpine"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": TYPE, "operator": "In", "values": ["m5.large"]}]},
            ]}}},
        },
    });
    kubectl(&stack, "apply -f -", &large.to_string()).await;
    let pods = placed(&client, "team-red", 2).await;
    assert_pool(&pods, "red");
    let (_, node) = pods.iter().find(|(pod, _)| pod.name_any() == "large").unwrap();
    assert_eq!(label(node, TYPE), "m5.large");
    stack.check().unwrap();
}

/// A namespace closed to others, but for answers of the cluster's DNS. The first policy has an empty selector as people write it.
const CLOSED: &str = "
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: own-namespace}
spec:
  podSelector:
    matchLabels:
  ingress: [{from: [{podSelector: {}}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: dns}
spec:
  podSelector: {matchLabels: {}}
  policyTypes: [Egress]
  egress:
  - to:
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}
      podSelector: {matchLabels: {k8s-app: kube-dns}}
    ports: [{protocol: UDP, port: 53}]
";

async fn network_policies(client: &Client, namespace: &str) -> Vec<Value> {
    let api: Api<NetworkPolicy> = Api::namespaced(client.clone(), namespace);
    let list = api.list(&ListParams::default()).await.unwrap();
    list.items.iter().map(|policy| serde_json::to_value(policy).unwrap()).collect()
}

/// Tenants whose namespaces have NetworkPolicies: Croft leaves these as they are and pins the pods.
#[tokio::test]
async fn network_policies_of_tenants_stay_as_written_and_their_pods_are_pinned() {
    let template = json!({
        "apiVersion": "karpenter.k8s.aws/v1alpha1", "kind": "AWSNodeTemplate", "metadata": {"name": "shared"},
        "spec": account(),
    });
    let lanes = ["red", "blue"].map(|name| lane(name, json!({"providerRef": {"name": "shared"}})));
    let objects =
        [vec![template], lanes.to_vec(), assigns("red", "red").into(), assigns("blue", "blue").into()];
    let names = ["red", "blue"];
    let (mut stack, client) = imported("gatekeeper", &objects.concat(), &names, &[], &names).await;

    let mut written = Vec::new();
    for name in names {
        kubectl(&stack, &format!("create -n {name} -f -"), CLOSED).await;
        written.push(network_policies(&client, name).await);
        kubectl(&stack, &format!("create deployment web --image=nginx --replicas=3 -n {name}"), "").await;
        kubectl(&stack, &format!("expose deployment web --port=8080 --target-port=80 -n {name}"), "").await;
    }
    for (name, written) in names.iter().zip(written) {
        let pods = placed(&client, name, 3).await;
        assert_pool(&pods, name);
        pods.iter().for_each(|(pod, _)| assert_pinned(pod, "lane", name));
        assert_eq!(written.len(), 2);
        // Not even a field of metadata has changed, and none was added.
        assert_eq!(network_policies(&client, name).await, written);
    }
    stack.check().unwrap();
}

/// Pools for jobs of a continuous integration beside one for all else: a job's own selector chooses the pool, and its own toleration
/// stays.
#[tokio::test]
async fn jobs_of_runners_run_in_the_pool_that_they_select() {
    let pool = |name: &str, sizes: Value, limits: Value, mut template: Value| {
        let requires = |key: &str, values: Value| json!({"key": key, "operator": "In", "values": values});
        template["spec"]["nodeClassRef"] = json!({"name": "shared"});
        template["spec"]["requirements"] = json!([
            requires("kubernetes.io/arch", json!(["amd64"])),
            requires("kubernetes.io/os", json!(["linux"])),
            requires(CAPACITY, json!(["on-demand"])),
            requires("karpenter.k8s.aws/instance-family", json!(["t3"])),
            requires("karpenter.k8s.aws/instance-size", sizes),
            {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]},
        ]);
        json!({
            "apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "metadata": {"name": name},
            "spec": {
                "template": template, "limits": limits,
                "disruption": {"consolidationPolicy": "WhenUnderutilized", "expireAfter": "720h"},
            },
        })
    };
    let tags = json!({"karpenter.sh/discovery": "croft"});
    let class = json!({
        "apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass", "metadata": {"name": "shared"},
        "spec": {
            "amiFamily": "AL2", "role": "croft-node", "tags": tags,
            "subnetSelectorTerms": [{"tags": tags}], "securityGroupSelectorTerms": [{"tags": tags}],
        },
    });
    let taint = json!({"key": "dedicated", "value": "jobs", "effect": "NoSchedule"});
    let jobs = json!({"metadata": {"labels": {"workload": "jobs"}}, "spec": {"taints": [taint]}});
    let sizes = json!(["medium", "large", "xlarge"]);
    let objects = [
        class,
        pool("general", sizes, json!({"cpu": "80", "memory": "320Gi"}), json!({"spec": {}})),
        pool("jobs", json!(["2xlarge"]), json!({"cpu": "32", "memory": "64Gi"}), jobs),
    ];
    let tenants = [tenant("builds", "builds", &["general", "jobs"])];
    let (mut stack, client) = imported("karpenter", &objects, &["builds"], &tenants, &["builds"]).await;

    kubectl(&stack, "run runner --image=runner:1 -n builds", "").await;
    // The pod that the runner makes of its configuration.
    let job = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job", "namespace": "builds"},
        "spec": {
            "nodeSelector": {"workload": "jobs"}, "tolerations": [taint],
            "containers": [{"name": "build", "image": "ubuntu:20.04"}, {"name": "helper", "image": "helper:1"}],
        },
    });
    kubectl(&stack, "apply -f -", &job.to_string()).await;
    let pods = placed(&client, "builds", 2).await;
    let (jobs, others): (Vec<_>, Vec<_>) = pods.into_iter().partition(|(pod, _)| pod.name_any() == "job");
    assert_pool(&jobs, "jobs");
    assert_pool(&others, "general");
    let (_, node) = &jobs[0];
    assert_eq!(label(node, TYPE), "t3.2xlarge");
    assert_eq!(label(node, "workload"), "jobs");
    stack.check().unwrap();
}

/// A Deployment of one-core pods that starts with no replica, with these fields of its pods besides.
fn inflate(mut pod: Value) -> Value {
    let requests = json!({"cpu": 1, "memory": "256M"});
    pod["containers"] = json!([{"name": "pause", "image": "pause:3", "resources": {"requests": requests}}]);
    pod["terminationGracePeriodSeconds"] = json!(0);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "inflate"},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": "inflate"}},
            "template": {"metadata": {"labels": {"app": "inflate"}}, "spec": pod},
        },
    })
}

/// One pool of spot instances without a label or a taint, for the namespace `default`: nodes come with the pods, and go with them.
#[tokio::test]
async fn spot_nodes_come_with_the_replicas_of_a_deployment_and_go_with_them() {
    let spot = json!({"key": CAPACITY, "operator": "In", "values": ["spot"]});
    let fields =
        json!({"requirements": [spot], "limits": {"resources": {"cpu": 1000}}, "provider": account()});
    let tenants = [tenant("default", "default", &["default"])];
    let objects = [provisioner("default", fields)];
    let (mut stack, client) = imported("karpenter", &objects, &[], &tenants, &["default"]).await;

    kubectl(&stack, "apply -f -", &inflate(json!({})).to_string()).await;
    kubectl(&stack, "scale deployment inflate --replicas 4", "").await;
    let pods = placed(&client, "default", 4).await;
    assert_pool(&pods, "default");
    assert!(pods.iter().all(|(_, node)| label(node, CAPACITY) == "spot"), "{pods:?}");

    kubectl(&stack, "scale deployment inflate --replicas 0", "").await;
    until("no node and no claim", EVENTUALLY, async || {
        let left = (claims(&client, "default").await?.len(), nodes(&client).await?.len());
        Ok::<_, kube::Error>(Seen::from_option((left == (0, 0)).then_some(()), format!("{left:?}")))
    })
    .await
    .unwrap();
    stack.check().unwrap();
}

/// A pool whose taint has no value, for pods that tolerate its key and are spread over zones. The import reads the tenant's manifest
/// as well, and leaves it as it is.
#[tokio::test]
async fn replicas_that_tolerate_a_taint_by_its_key_are_spread_over_zones() {
    let mut provider = account();
    provider["amiFamily"] = json!("Bottlerocket");
    let fields = json!({
        "labels": {"intent": "apps"}, "taints": [{"key": "green", "effect": "NoSchedule"}],
        "requirements": [{"key": CAPACITY, "operator": "In", "values": ["on-demand"]}],
        "limits": {"resources": {"cpu": 1000, "memory": "1000Gi"}},
        "ttlSecondsUntilExpired": 2_592_000, "provider": provider,
    });
    let pod = json!({
        "nodeSelector": {"intent": "apps", "kubernetes.io/arch": "amd64", "karpenter.sh/provisioner-name": "green"},
        "tolerations": [{"key": "green", "operator": "Exists"}],
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "inflate"}},
        }],
    });
    let objects = [provisioner("green", fields), inflate(pod)];
    let tenants = [tenant("green", "default", &["green"])];
    let (mut stack, client) = imported("karpenter", &objects, &[], &tenants, &["green"]).await;

    kubectl(&stack, "apply -f -", &objects[1].to_string()).await;
    kubectl(&stack, "scale deployment inflate --replicas 4", "").await;
    let pods = placed(&client, "default", 4).await;
    assert_pool(&pods, "green");
    let zones: BTreeSet<String> = pods.iter().map(|(_, node)| label(node, ZONE)).collect();
    assert!(zones.len() > 1, "{zones:?}");
    for (_, node) in &pods {
        assert_eq!(label(node, "intent"), "apps");
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        assert!(taints.iter().any(|taint| taint.key == "green"), "{taints:?}");
    }
    stack.check().unwrap();
}
