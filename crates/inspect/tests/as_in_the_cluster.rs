//! A plan of files is what the cluster would do: requests that admission adds, nodes that are coming, evictions that are
//! allowed, and settings of classes.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;

use croft_inspect::simulation::{Simulation, simulate, simulate_with_consolidation};
use croft_manifest::{Input, LoadOptions, parse};
use croft_scheduler::{Catalog, InstanceType, Options};

const ZONES: [&str; 3] = ["eu-q-1a", "eu-q-1b", "eu-q-1c"];

/// 2, 4 and 16 cores, all of them allocatable.
fn types() -> Arc<[InstanceType]> {
    let kind = |(name, cpu, price): &(&str, u32, f64)| {
        let offering =
            |zone: &str| format!(r#"{{"zone": "{zone}", "capacityType": "on-demand", "price": {price}}}"#);
        let offerings = ZONES.map(offering).join(",");
        let memory = 2 * cpu;
        format!(
            r#"{{"name": "{name}", "arch": "amd64", "capacity": {{"cpu": "{cpu}", "memory": "{memory}Gi", "pods": "110",
                "ephemeral-storage": "20Gi"}}, "offerings": [{offerings}]}}"#
        )
    };
    let kinds = [("q7.s", 2, 0.1), ("q7.m", 4, 0.2), ("q7.x", 16, 0.8)]
        .iter()
        .map(kind)
        .collect::<Vec<_>>()
        .join(",");
    let text = format!(r#"{{"instanceTypes": [{kinds}]}}"#);
    serde_json::from_str::<Catalog>(&text).unwrap().instance_types.into()
}

const TENANT: &str = "
---
{apiVersion: v1, kind: Namespace, metadata: {name: lark}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: obs}}
---
{apiVersion: croft.dev/v1alpha1, kind: TenantPool, metadata: {name: larkp}, spec: {key: acme.test/pool, template: {spec: {nodeClassRef: {name: basic}}}}}
---
{apiVersion: croft.dev/v1alpha1, kind: CroftConfig, metadata: {name: default}, spec: {sharedWith: [obs]}}
";

/// The Tenant of these, with `more` in its spec.
fn tenant(more: &str) -> String {
    format!(
        "{TENANT}---\n{{apiVersion: croft.dev/v1alpha1, kind: Tenant, metadata: {{name: lark}}, spec: {{namespaces: [lark], \
         pools: [larkp]{more}}}}}\n"
    )
}

/// A class with `more` in its spec.
fn class(more: &str) -> String {
    format!(
        "---\n{{apiVersion: croft.dev/v1alpha1, kind: EC2NodeClass, metadata: {{name: basic}}, spec: {{amiSelectorTerms: \
         [{{alias: al2023@latest}}], role: r, subnetSelectorTerms: [{{id: subnet-01}}], securityGroupSelectorTerms: [{{id: \
         sg-01}}]{more}}}}}\n"
    )
}

/// A Deployment of pods with these resources.
fn deployment(replicas: usize, resources: &str) -> String {
    format!(
        "---\n{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: one, namespace: lark}}, spec: {{replicas: {replicas}, \
         selector: {{matchLabels: {{app: one}}}}, template: {{metadata: {{labels: {{app: one}}}}, spec: {{containers: \
         [{{name: app, image: i, resources: {resources}}}]}}}}}}}}\n"
    )
}

/// An agent in `namespace` with `more` in its pods' spec.
fn agent(namespace: &str, resources: &str, more: &str) -> String {
    format!(
        "---\n{{apiVersion: apps/v1, kind: DaemonSet, metadata: {{name: ag, namespace: {namespace}}}, spec: {{selector: \
         {{matchLabels: {{app: ag}}}}, template: {{metadata: {{labels: {{app: ag}}}}, spec: {{tolerations: [{{operator: \
         Exists}}], containers: [{{name: app, image: i, resources: {resources}}}]{more}}}}}}}}}\n"
    )
}

fn node(name: &str, kind: &str, cpu: u32) -> String {
    let memory = 2 * cpu;
    let amounts = format!("{{cpu: '{cpu}', memory: {memory}Gi, pods: '110', ephemeral-storage: 20Gi}}");
    format!(
        "---\n{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}, \
         topology.kubernetes.io/zone: eu-q-1a, node.kubernetes.io/instance-type: {kind}, karpenter.sh/capacity-type: \
         on-demand, acme.test/pool: larkp, node-restriction.kubernetes.io/pool: larkp}}}}, spec: {{providerID: \
         'aws:///eu-q-1a/i-{name}', taints: [{{key: acme.test/pool, value: larkp, effect: NoSchedule}}]}}, status: \
         {{capacity: {amounts}, allocatable: {amounts}, conditions: [{{type: Ready, status: 'True'}}]}}}}\n"
    )
}

/// A pod on a node, with `metadata`, `spec` and `status` besides.
fn running(name: &str, at: &str, (metadata, spec, status): (&str, &str, &str)) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: lark, uid: uid-{name}, labels: {{app: svc}}{metadata}}}, \
         spec: {{nodeName: {at}, nodeSelector: {{acme.test/pool: larkp}}, tolerations: [{{key: acme.test/pool, operator: \
         Equal, value: larkp, effect: NoSchedule}}], containers: [{{name: app, image: i, resources: {{requests: {{cpu: '1', \
         memory: 1Gi}}}}}}]{spec}}}, status: {{startTime: '2026-11-20T00:00:00Z', {status}}}}}\n"
    )
}

const OWNED: &str =
    ", ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: svc, uid: uid-svc, controller: true}]";
const READY: &str = "phase: Running, conditions: [{type: Ready, status: 'True'}]";
const UNREADY: &str = "phase: Running, conditions: [{type: Ready, status: 'False'}]";

fn input(text: &str) -> Input {
    parse("input.yaml", text, &LoadOptions::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn planned(text: &str) -> Simulation {
    simulate(&input(text), types(), &Options::default()).unwrap()
}

fn kinds(simulation: &Simulation) -> Vec<&str> {
    simulation.plan.instances.iter().map(|instance| instance.instance_type.as_str()).collect()
}

/// Nodes that could be removed now, and why each other is kept.
fn removed(text: &str) -> (Vec<String>, Vec<String>) {
    let simulation = simulate_with_consolidation(&input(text), types(), &Options::default(), true).unwrap();
    let savings = simulation.savings.unwrap();
    let nodes = savings.found.commands.iter().flat_map(|one| one.nodes.clone()).collect();
    let kept = savings.kept.into_values().chain(savings.found.rejections.values().map(ToString::to_string));
    (nodes, kept.collect())
}

const LARGE: &str = "{requests: {cpu: 1500m, memory: 1Gi}}";

#[test]
fn agents_request_what_admission_adds_to_their_pods() {
    let limit_range = "---\n{apiVersion: v1, kind: LimitRange, metadata: {name: def, namespace: obs}, spec: {limits: [{type: \
                       Container, defaultRequest: {cpu: 600m}}]}}\n";
    let overhead = "---\n{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: vm}, handler: vm, overhead: {podFixed: {cpu: 600m}}}\n";
    let defaults = ", defaults: {requests: {cpu: 600m}}";
    let small = "{requests: {cpu: 100m}}";
    for (case, text, expected) in [
        ("nothing", tenant("") + &agent("obs", "{}", ""), "q7.s"),
        ("a LimitRange", tenant("") + limit_range + &agent("obs", "{}", ""), "q7.m"),
        ("a LimitRange, and requests", tenant("") + limit_range + &agent("obs", small, ""), "q7.s"),
        (
            "a LimitRange, and limits alone",
            tenant("") + limit_range + &agent("obs", "{limits: {cpu: 100m}}", ""),
            "q7.s",
        ),
        ("defaults of the Tenant", tenant(defaults) + &agent("lark", "{}", ""), "q7.m"),
        ("defaults of another namespace's Tenant", tenant(defaults) + &agent("obs", "{}", ""), "q7.s"),
        ("overhead", tenant("") + overhead + &agent("obs", small, ", runtimeClassName: vm"), "q7.m"),
    ] {
        assert_eq!(kinds(&planned(&(text + &deployment(1, LARGE)))), [expected], "{case}");
    }
    let missing = tenant("")
        + &agent("obs", "{requests: {cpu: 600m}}", ", runtimeClassName: gone")
        + &deployment(1, LARGE);
    let simulation = planned(&missing);
    assert_eq!(kinds(&simulation), ["q7.s"], "the API server refuses its pods");
    let warning = "DaemonSet obs/ag creates no pods: there is no RuntimeClass gone: add it to the input, or leave runtimeClassName out";
    assert!(simulation.warnings.iter().any(|w| w == warning), "{:?}", simulation.warnings);
}

#[test]
fn pods_of_workloads_request_the_defaults_of_their_tenant() {
    for (defaults, expected) in [("", "q7.s"), (", defaults: {requests: {cpu: '3'}}", "q7.m")] {
        assert_eq!(kinds(&planned(&(tenant(defaults) + &deployment(1, "{}")))), [expected], "{defaults}");
    }
    // An object that the controller wrote for an earlier version doesn't count besides.
    let written = "---\n{apiVersion: v1, kind: LimitRange, metadata: {name: croft-tenant-defaults, namespace: lark}, spec: {limits: \
                   [{type: Container, defaultRequest: {cpu: '3'}}]}}\n";
    assert_eq!(kinds(&planned(&(tenant("") + written + &deployment(1, "{}")))), ["q7.s"]);
    let limited = tenant(", defaults: {requests: {cpu: '3'}}") + &deployment(1, "{limits: {cpu: '1'}}");
    assert_eq!(kinds(&planned(&limited)), ["q7.s"], "a limit is the request of a container without one");
}

#[test]
fn pods_go_to_a_node_that_is_not_initialized_yet() {
    let claim = |conditions: &str| {
        format!(
            "---\n{{apiVersion: croft.dev/v1alpha1, kind: NodeClaim, metadata: {{name: c}}, spec: {{pool: larkp, nodeClassRef: {{name: \
             basic}}, instanceTypes: [q7.m], zones: [eu-q-1a], capacityType: on-demand, startupTaints: [{{key: acme.test/wait, \
             effect: NoSchedule}}], labels: {{acme.test/pool: larkp, node-restriction.kubernetes.io/pool: larkp}}}}, status: \
             {{providerId: 'aws:///eu-q-1a/i-n0', nodeName: n0, instanceType: q7.m, conditions: [{conditions}]}}}}\n"
        )
    };
    let condition = |kind: &str| {
        format!(
            "{{type: {kind}, status: 'True', reason: Done, message: '', lastTransitionTime: '2026-11-20T00:00:00Z'}}"
        )
    };
    let tainted = |taint: &str| {
        node("n0", "q7.m", 4)
            .replace("taints: [", &format!("taints: [{{key: {taint}, effect: NoSchedule}}, "))
    };
    let waits = deployment(1, LARGE);
    for (taint, initialized, launched) in [
        ("acme.test/wait", false, 0),
        ("node.kubernetes.io/not-ready", false, 0),
        ("acme.test/other", false, 1),
        ("acme.test/wait", true, 1),
    ] {
        let conditions = if initialized { condition("Initialized") } else { condition("Launched") };
        let simulation = planned(&(tenant("") + &tainted(taint) + &claim(&conditions) + &waits));
        let case = format!("{taint}, initialized: {initialized}");
        assert_eq!((simulation.plan.instances.len(), simulation.is_complete()), (launched, true), "{case}");
    }
    let simulation = planned(&(tenant("") + &tainted("acme.test/wait") + &waits));
    assert_eq!(simulation.plan.instances.len(), 1, "without a claim nothing says that the taint goes");
}

#[test]
fn nodes_go_whose_pods_the_eviction_api_lets_go() {
    let budget = |policy: &str, healthy: u32| {
        format!(
            "---\n{{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {{name: svc, namespace: lark}}, spec: {{selector: \
             {{matchLabels: {{app: svc}}}}, minAvailable: 1{policy}}}, status: {{expectedPods: 1, desiredHealthy: 1, \
             currentHealthy: {healthy}, disruptionsAllowed: 0}}}}\n"
        )
    };
    let always = ", unhealthyPodEvictionPolicy: AlwaysAllow";
    let pending = "phase: Pending, conditions: [{type: Ready, status: 'False'}]";
    for (case, status, policy, healthy, goes) in [
        ("a ready pod", READY, "", 1, false),
        ("a ready pod, unready ones always allowed", READY, always, 1, false),
        ("an unready pod below the budget", UNREADY, "", 0, false),
        ("an unready pod, always allowed", UNREADY, always, 0, true),
        ("an unready pod within the budget", UNREADY, "", 1, true),
        ("a pod that has not begun", pending, "", 0, true),
    ] {
        let text = tenant("")
            + &node("n0", "q7.x", 16)
            + &running("svc-1", "n0", (OWNED, "", status))
            + &budget(policy, healthy);
        let (nodes, kept) = removed(&text);
        assert_eq!(nodes.len(), usize::from(goes), "{case}: {kept:?}");
        if !goes {
            assert_eq!(
                kept,
                ["pod lark/svc-1 can't be evicted now: PodDisruptionBudget svc allows none"],
                "{case}"
            );
        }
    }
}

#[test]
fn node_with_mirror_pods_alone_is_empty() {
    let mirror = ", annotations: {kubernetes.io/config.mirror: hash}, ownerReferences: [{apiVersion: v1, kind: Node, name: n0, uid: u, controller: true}]";
    let text = tenant("") + &node("n0", "q7.x", 16) + &running("proxy", "n0", (mirror, "", READY));
    let simulation = simulate_with_consolidation(&input(&text), types(), &Options::default(), true).unwrap();
    let commands = simulation.savings.unwrap().found.commands;
    assert_eq!(commands.len(), 1);
    assert!(commands[0].instances.is_empty() && commands[0].nodes == ["n0"]);
}

#[test]
fn empty_node_of_unknown_price_goes_as_in_the_cluster() {
    let empty = tenant("") + &node("n0", "zz.unknown", 16);
    let (nodes, kept) = removed(&empty);
    assert!(nodes == ["n0"] && kept.is_empty(), "{nodes:?}, {kept:?}");
    let simulation = simulate_with_consolidation(&input(&empty), types(), &Options::default(), true).unwrap();
    assert!(simulation.savings.unwrap().unpriced.contains("n0"), "what it saves is no zero");
    let (nodes, kept) = removed(&(empty + &running("web", "n0", (OWNED, "", READY))));
    assert!(nodes.is_empty() && kept == ["its price is unknown"], "{nodes:?}, {kept:?}");
}

/// What is in the place of the pod runs elsewhere already, or nothing will.
#[test]
fn node_whose_pods_are_being_deleted_goes_and_none_is_launched_for_them() {
    for owned in [OWNED, ""] {
        let metadata = format!("{owned}, deletionTimestamp: '2026-11-20T01:00:00Z'");
        let text =
            tenant("") + &node("n0", "q7.x", 16) + &running("web", "n0", (metadata.as_str(), "", READY));
        let simulation =
            simulate_with_consolidation(&input(&text), types(), &Options::default(), true).unwrap();
        let found = simulation.savings.unwrap().found;
        let [command] = found.commands.as_slice() else { panic!("{owned:?}: {:?}", found.commands) };
        assert!(command.instances.is_empty() && command.nodes == ["n0"], "{owned:?}: {command:?}");
    }
}

#[test]
fn full_nodes_are_not_merged_beyond_what_a_node_attaches() {
    let storage = "---\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: gp9}, provisioner: ebs.csi.aws.com, volumeBindingMode: WaitForFirstConsumer}\n";
    let with_volume = |number: u32, count: u32| {
        let (at, claim, volume) = (format!("n{number}"), format!("c{number}"), format!("w{number}"));
        let bound = format!(
            "---\n{{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {{name: {at}}}, spec: {{drivers: [{{name: ebs.csi.aws.com, nodeID: x, topologyKeys: [], allocatable: {{count: {count}}}}}]}}}}\n\
             ---\n{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {claim}, namespace: lark}}, spec: {{accessModes: [ReadWriteOnce], storageClassName: gp9, resources: {{requests: {{storage: 5Gi}}}}, volumeName: {volume}}}, status: {{phase: Bound}}}}\n\
             ---\n{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: {volume}}}, spec: {{capacity: {{storage: 5Gi}}, accessModes: [ReadWriteOnce], storageClassName: gp9, claimRef: {{namespace: lark, name: {claim}}}, csi: {{driver: ebs.csi.aws.com, volumeHandle: {volume}}}}}}}\n"
        );
        let volumes = format!(", volumes: [{{name: data, persistentVolumeClaim: {{claimName: {claim}}}}}]");
        node(&at, "q7.m", 4) + &bound + &running(&format!("p{number}"), &at, (OWNED, &volumes, READY))
    };
    for (count, goes) in [(1, 0), (2, 1)] {
        let text = tenant("") + storage + &with_volume(1, count) + &with_volume(2, count);
        let simulation =
            simulate_with_consolidation(&input(&text), types(), &Options::default(), true).unwrap();
        let commands = simulation.savings.unwrap().found.commands;
        let merged = commands.iter().filter(|one| one.nodes.len() > one.instances.len()).count();
        assert_eq!(merged, goes, "{count} volumes a node: {commands:?}");
    }
}

#[test]
fn settings_of_the_class_hold_offline() {
    let builtin =
        |text: &str| simulate(&input(text), croft_cloud::builtin_catalog(), &Options::default()).unwrap();
    let tiny = deployment(60, "{requests: {cpu: 1m, memory: 1Mi}}");
    let all = builtin(&(tenant("") + &class(", kubelet: {maxPods: 20}") + &tiny));
    assert!(
        all.is_complete()
            && all.plan.instances.len() >= 3
            && all.plan.instances.iter().all(|m| m.pods.len() <= 20)
    );

    let disk = deployment(1, "{requests: {cpu: '1', ephemeral-storage: 60Gi}}");
    for (settings, local) in [
        (", instanceStorePolicy: RAID0", true),
        (", blockDeviceMappings: [{deviceName: /dev/xvda, ebs: {volumeSize: 100Gi}}]", false),
    ] {
        let plan = builtin(&(tenant("") + &class(settings) + &disk)).plan;
        let instance = plan.instances.first().expect(settings);
        assert_eq!(
            instance.labels.contains_key("karpenter.k8s.aws/instance-local-nvme"),
            local,
            "{settings}"
        );
    }
    assert!(!builtin(&(tenant("") + &class("") + &disk)).is_complete(), "a root of 20 Gi is too small");

    // Of a catalogue file, too.
    let plan = planned(&(tenant("") + &class(", kubelet: {maxPods: 20}") + &tiny)).plan;
    assert_eq!((plan.instances.len(), plan.unschedulable.len()), (3, 0));
}

#[test]
fn input_of_another_region_is_planned_there_with_a_warning() {
    let text = tenant("")
        + &class("")
        + &deployment(1, LARGE).replace(
            "spec: {containers",
            "spec: {nodeSelector: {topology.kubernetes.io/region: eu-west-1}, containers",
        );
    let simulation = simulate(&input(&text), croft_cloud::builtin_catalog(), &Options::default()).unwrap();
    assert!(simulation.is_complete());
    let instance = &simulation.plan.instances[0];
    assert!(instance.zone.starts_with("eu-west-1") && simulation.is_estimate(instance));
    assert!(
        simulation.warnings[0].contains("what its pods and pools ask for are of eu-west-1"),
        "{:?}",
        simulation.warnings
    );
}
