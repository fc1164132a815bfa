//! Bad edits: for each field of each kind a value that must be refused, and words that the refusal must have.

use anyhow::Context as _;
use kube::{
    Api, Client,
    api::{DynamicObject, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

/// Kind, place in the object, a bad value, and words of the answer.
pub type Case = (&'static str, &'static str, Value, &'static [&'static str]);

fn long(length: usize) -> Value {
    json!("a".repeat(length))
}

fn tenants() -> Vec<Case> {
    let names = &["spec.namespaces", "exact names of namespaces", "namespaceSelector"][..];
    vec![
        ("Tenant", "/spec/namespaces", json!(["team-*"]), names),
        ("Tenant", "/spec/namespaces", json!(["Team"]), names),
        ("Tenant", "/spec/namespaces", json!([""]), names),
        ("Tenant", "/spec/namespaces", json!(["a", "a"]), &["spec.namespaces[1]"]),
        ("Tenant", "/spec/namespaceSelector", json!({}), &["would claim every namespace"]),
        ("Tenant", "/spec/namespaceSelector/matchLabels", json!({"team a": "x"}), &["label's key"]),
        ("Tenant", "/spec/namespaceSelector/matchLabels", json!({"team": "-x"}), &["label's value"]),
        ("Tenant", "/spec/namespaceSelector/matchExpressions/0/key", json!("a/b/c"), &["label's key"]),
        (
            "Tenant",
            "/spec/namespaceSelector/matchExpressions/0/operator",
            json!("in"),
            &["operator", "\"in\"", "In", "NotIn", "Exists", "DoesNotExist"],
        ),
        ("Tenant", "/spec/namespaceSelector/matchExpressions/0/values", json!(["a b"]), &["label's value"]),
        (
            "Tenant",
            "/spec/namespaceSelector/matchExpressions/0",
            json!({"key": "a", "operator": "NotIn"}),
            &["NotIn without values would claim every namespace"],
        ),
        (
            "Tenant",
            "/spec/namespaceSelector/matchExpressions/0",
            json!({"key": "a", "operator": "In", "values": []}),
            &["need values: write at least one"],
        ),
        (
            "Tenant",
            "/spec/namespaceSelector/matchExpressions/0",
            json!({"key": "a", "operator": "Exists", "values": ["b"]}),
            &["take no values"],
        ),
        ("Tenant", "/spec/pools", json!([]), &["spec.pools"]),
        ("Tenant", "/spec/pools", json!(["pool-*"]), &["spec.pools", "exact names of TenantPools"]),
        ("Tenant", "/spec/pools", json!(["p", "p"]), &["spec.pools[1]"]),
        ("Tenant", "/spec/pools", json!([long(41)]), &["at most 40"]),
        ("Tenant", "/spec/onConflict", json!("Maybe"), &["Maybe", "Reject", "Override"]),
        ("Tenant", "/spec/limits/cpu", json!("-1"), &["spec.limits", "aren't negative"]),
        ("Tenant", "/spec/limits/nodes", json!(-1), &["spec.limits", "aren't negative"]),
        ("Tenant", "/spec/limits/cpu", json!("lots"), &["spec.limits", "500m"]),
        ("Tenant", "/spec/limits/nodes", json!("1500m"), &["nodes is a whole number"]),
        ("Tenant", "/spec/limits/memroy", json!("1Gi"), &["there are limits of cpu, memory"]),
        ("Tenant", "/spec", json!({"pools": ["p"]}), &["namespaces", "namespaceSelector"]),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn isolation() -> Vec<Case> {
    let peer = "/spec/networkIsolation/allowFrom/1";
    vec![
        ("Tenant", "/spec/networkIsolation/egress", json!("Closed"), &["Closed", "Open", "Restricted"][..]),
        (
            "Tenant",
            "/spec/networkIsolation/allowFrom/0/namespace",
            json!("team-*"),
            &["exact name of a namespace"],
        ),
        ("Tenant", "/spec/networkIsolation/allowFrom/0", json!({}), &["either namespace or cidr"]),
        (
            "Tenant",
            "/spec/networkIsolation/allowFrom/0/cidr",
            json!("10.0.0.0/8"),
            &["either namespace or cidr"],
        ),
        (
            "Tenant",
            "/spec/networkIsolation/allowFrom/0/except",
            json!(["10.1.0.0/16"]),
            &["write it beside cidr"],
        ),
        (
            "Tenant",
            "/spec/networkIsolation/allowFrom/1/cidr",
            json!("10.0.0.0"),
            &["a block of addresses such as"],
        ),
        (
            "Tenant",
            "/spec/networkIsolation/allowFrom/1/cidr",
            json!("10.0.0.1/8"),
            &["behind the prefix at zero"],
        ),
        (
            "Tenant",
            "/spec/networkIsolation/allowFrom/1/cidr",
            json!("fd00:10::1/64"),
            &["behind the prefix at zero"],
        ),
        (
            "Tenant",
            peer,
            json!({"cidr": "10.1.0.0/16", "except": ["10.2.0.0/24"]}),
            &["smaller blocks inside of it"],
        ),
        (
            "Tenant",
            peer,
            json!({"cidr": "10.1.0.0/16", "except": ["10.1.0.0/16"]}),
            &["smaller blocks inside of it"],
        ),
        (
            "Tenant",
            peer,
            json!({"cidr": "10.1.0.0/16", "except": ["fd00::/64"]}),
            &["smaller blocks inside of it"],
        ),
        (
            "Tenant",
            "/spec/networkIsolation/allowFrom/1/except",
            json!(["10.0.3.0/33"]),
            &["a block of addresses such as"],
        ),
        ("Tenant", "/spec/networkIsolation/allowTo/0/cidr", json!("fd00::/8"), &["either namespace or cidr"]),
        ("Tenant", "/spec/networkIsolation/allowTo/0/except", json!(["fd00::/8"]), &["write it beside cidr"]),
        (
            "Tenant",
            "/spec/networkIsolation/allowTo/0/namespace",
            json!("Team"),
            &["exact name of a namespace"],
        ),
        (
            "Tenant",
            "/spec/networkIsolation/allowTo/1/cidr",
            json!("::/129"),
            &["a block of addresses such as"],
        ),
        (
            "Tenant",
            "/spec/networkIsolation/allowTo/1/except",
            json!(["fd00:10::/60"]),
            &["smaller blocks inside of it"],
        ),
        ("Tenant", "/spec/networkIsolation/egress", json!("Open"), &["write egress: Restricted beside it"]),
    ]
}

fn given() -> Vec<Case> {
    let owner = "/spec/owners/1";
    vec![
        (
            "Tenant",
            "/spec/quota/perNamespace",
            json!({"nvidia.com/gpu": 1}),
            &["names that a ResourceQuota has"][..],
        ),
        (
            "Tenant",
            "/spec/quota/perNamespace/requests.cpus",
            json!(1),
            &["requests.cpus: write the names", "requests.cpu, requests.memory"],
        ),
        ("Tenant", "/spec/quota/perNamespace/pods", json!(-1), &["aren't negative"]),
        (
            "Tenant",
            "/spec/quota/perNamespace/pods",
            json!("500m"),
            &["pods", "objects are counted in whole numbers"],
        ),
        ("Tenant", "/spec/quota/total/requests.memory", json!("much"), &["aren't negative", "64Gi"]),
        ("Tenant", "/spec/quota/total/count~1deployments.apps", json!("1.5"), &["counted in whole numbers"]),
        ("Tenant", "/spec/quota/total", json!({"nodes": 5}), &["names that a ResourceQuota has"]),
        ("Tenant", "/spec/defaults", json!({}), &["write requests or limits of a container"]),
        ("Tenant", "/spec/defaults/requests/pods", json!(1), &["containers ask for cpu, memory"]),
        ("Tenant", "/spec/defaults/requests/cpu", json!("-1"), &["aren't negative"]),
        ("Tenant", "/spec/defaults/requests/memory", json!("2Gi"), &["isn't above its limit"]),
        ("Tenant", "/spec/defaults/requests/cpu", json!(2), &["isn't above its limit"]),
        ("Tenant", "/spec/defaults/limits/memroy", json!("1Gi"), &["containers ask for cpu, memory"]),
        ("Tenant", "/spec/defaults/limits/cpu", json!("50m"), &["isn't above its limit"]),
        ("Tenant", "/spec/podSecurity", json!({}), &["a level for enforce, audit or warn"]),
        ("Tenant", "/spec/podSecurity/enforce", json!("Baseline"), &["Baseline", "baseline", "restricted"]),
        ("Tenant", "/spec/podSecurity/audit", json!("strict"), &["strict", "baseline", "restricted"]),
        ("Tenant", "/spec/podSecurity/warn", json!(""), &["privileged", "baseline", "restricted"]),
        ("Tenant", "/spec/owners/0/kind", json!("user"), &["user", "User", "Group", "ServiceAccount"]),
        ("Tenant", "/spec/owners/0/name", json!("jane *"), &["exact name of a user or a group"]),
        ("Tenant", "/spec/owners/0/name", json!("system:authenticated"), &["stands for everybody"]),
        ("Tenant", "/spec/owners/0/name", json!("system:serviceaccounts"), &["stands for everybody"]),
        ("Tenant", "/spec/owners/0/name", json!("system:masters"), &["Kubernetes' own"]),
        ("Tenant", "/spec/owners/0/name", json!("system:node:a"), &["Kubernetes' own"]),
        ("Tenant", "/spec/owners/0/name", json!(""), &["spec.owners[0].name"]),
        ("Tenant", "/spec/owners/0/namespace", json!("build"), &["write namespace for kind ServiceAccount"]),
        (
            "Tenant",
            owner,
            json!({"kind": "ServiceAccount", "name": "ci"}),
            &["write namespace for kind ServiceAccount"],
        ),
        ("Tenant", "/spec/owners/1/name", json!("build:ci"), &["the name of a ServiceAccount"]),
        ("Tenant", "/spec/owners/1/namespace", json!("Build"), &["exact name of a namespace"]),
        ("Tenant", "/spec/owners/0/clusterRoles", json!([]), &["spec.owners[0].clusterRoles"]),
        ("Tenant", "/spec/owners/0/clusterRoles", json!(["a/b"]), &["exact name of a ClusterRole"]),
        ("Tenant", "/spec/owners/0/clusterRoles", json!(["admin", "admin"]), &["clusterRoles[1]"]),
        ("Tenant", "/spec/owners", json!([]), &["write spec.owners beside spec.namespaceCreation"]),
        ("Tenant", "/spec/namespaceCreation/prefix", json!("shop"), &["with '-' at its end, such as shop-"]),
        ("Tenant", "/spec/namespaceCreation/prefix", json!("Shop-"), &["lower-case letters, digits and '-'"]),
        ("Tenant", "/spec/namespaceCreation/prefix", json!("kube-x-"), &["a prefix of the tenant's own"]),
        ("Tenant", "/spec/namespaceCreation/maximum", json!(0), &["spec.namespaceCreation.maximum"]),
        ("Tenant", "/spec/namespaceCreation/maximum", json!(1001), &["spec.namespaceCreation.maximum"]),
    ]
}

fn configs() -> Vec<Case> {
    let names = &["exact names of namespaces"][..];
    vec![
        ("CroftConfig", "/spec/exemptNamespaces", json!(["team-*"]), names),
        ("CroftConfig", "/spec/exemptNamespaces", json!(["a", "a"]), &["spec.exemptNamespaces[1]"]),
        ("CroftConfig", "/spec/sharedWith", json!(["*"]), names),
        ("CroftConfig", "/spec/schedulers", json!(["system:*"]), &["exact user names"]),
        ("CroftConfig", "/spec/schedulers", json!([""]), &["exact user names"]),
        (
            "CroftConfig",
            "/spec/ignoredSchedulers",
            json!(["default-scheduler"]),
            &["name others, such as volcano"],
        ),
        ("CroftConfig", "/spec/ignoredSchedulers", json!([""]), &["spec.ignoredSchedulers[0]"]),
        ("CroftConfig", "/spec/ignoredSchedulers", json!(["a", "a"]), &["spec.ignoredSchedulers[1]"]),
        ("CroftConfig", "/spec/ownerMetadata", json!(["team"]), &["beginnings of keys with their domain"]),
        ("CroftConfig", "/spec/ownerMetadata", json!(["*.dev/"]), &["without patterns"]),
        ("CroftConfig", "/spec/ownerMetadata", json!(["croft.dev/"]), &["leave out croft.dev"]),
        ("CroftConfig", "/spec/ownerMetadata", json!(["x.croft.dev/a"]), &["leave out croft.dev"]),
        (
            "CroftConfig",
            "/spec/ownerMetadata",
            json!(["pod-security.kubernetes.io/"]),
            &["leave out croft.dev"],
        ),
        ("CroftConfig", "/spec/podsWithoutRequests/cpu", json!("-1"), &["isn't negative"]),
        ("CroftConfig", "/spec/podsWithoutRequests/memory", json!("much"), &["isn't negative"]),
        ("CroftConfig", "/spec/nonTenantPods", json!("Maybe"), &["Maybe", "KeepOut", "Reject", "Allow"]),
        ("CroftConfig", "/spec/misplaced", json!("Evict"), &["Evict", "Report", "Recreate"]),
        ("CroftConfig", "/spec/limits/nodes", json!(-1), &["spec.limits", "aren't negative"]),
        ("CroftConfig", "/spec/limits/costs", json!(1), &["there are limits of cpu, memory"]),
        ("CroftConfig", "/spec/admission/mutation", json!("Sometimes"), &["Sometimes", "Webhook", "Policy"]),
        ("CroftConfig", "/metadata/name", json!("other"), &["its name is default"]),
    ]
}

fn pools() -> Vec<Case> {
    let others = &["spec.key", "a key of your own"][..];
    let mut cases: Vec<Case> = [
        "kubernetes.io/os",
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "node.kubernetes.io/instance-type",
        "node-role.kubernetes.io/worker",
        "beta.kubernetes.io/arch",
        "k8s.io/pool",
        "croft.dev/pool",
        "karpenter.sh/nodepool",
        "karpenter.k8s.aws/instance-family",
    ]
    .map(|key| ("TenantPool", "/spec/key", json!(key), others))
    .to_vec();
    cases.extend([
        ("TenantPool", "/spec/key", json!("a b"), &["label's key"][..]),
        ("TenantPool", "/spec/value", json!("a b"), &["label's value"]),
        ("TenantPool", "/spec/value", json!(""), &["spec.value"]),
        ("TenantPool", "/spec/effects", json!(["Sometimes"]), &["Sometimes", "NoSchedule", "NoExecute"]),
        ("TenantPool", "/spec/effects", json!([]), &["spec.effects"]),
        ("TenantPool", "/spec/effects", json!(["NoExecute", "NoExecute"]), &["spec.effects[1]"]),
        ("TenantPool", "/spec/provisioner", json!("Magic"), &["Magic", "Croft", "Karpenter", "None"]),
        ("TenantPool", "/spec/weight", json!(101), &["spec.weight", "100"]),
        ("TenantPool", "/spec/weight", json!(-1), &["spec.weight", "0"]),
        ("TenantPool", "/spec/limits/cpu", json!("-1"), &["spec.limits", "aren't negative"]),
        ("TenantPool", "/spec/limits/costPerHour", json!("1$"), &["spec.limits", "aren't negative"]),
        ("TenantPool", "/spec/limits/cost", json!(1), &["costPerHour"]),
        ("TenantPool", "/spec/replicas", json!(-1), &["spec.replicas", "0"]),
        ("TenantPool", "/spec/replicas", json!(3), &["a pool of a fixed size has no headroom"]),
        ("TenantPool", "/spec/headroom/pods", json!(0), &["spec.headroom.pods", "1"]),
        ("TenantPool", "/spec/headroom/requests", json!({}), &["what each pod asks for"]),
        ("TenantPool", "/spec/headroom/requests/cpu", json!("-1"), &["aren't negative"]),
        ("TenantPool", "/spec/headroom/requests/nodes", json!("1"), &["pods ask for cpu, memory"]),
        ("TenantPool", "/spec/return/policy", json!("Sometimes"), &["Sometimes", "Eagerly"]),
        ("TenantPool", "/spec/return/policy", json!("Never"), &["set policy: Eagerly, or leave after out"]),
        ("TenantPool", "/spec/return/after", json!("30s"), &["write 1m or more"]),
        ("TenantPool", "/spec/return/after", json!("Never"), &["write a duration such as"]),
        ("TenantPool", "/spec/sharedWith", json!(["kube-*"]), &["exact names of namespaces"]),
        ("TenantPool", "/metadata/name", long(41), &["at most 40 characters"]),
        (
            "TenantPool",
            "/spec/provisioner",
            json!("None"),
            &["replicas and headroom need nodes that Croft launches"],
        ),
        ("TenantPool", "/spec/template", Value::Null, &["needs spec.template"]),
    ]);
    cases.extend(templates());
    cases.extend(shares());
    cases.extend(schedules());
    cases.extend(disruptions());
    cases
}

fn shares() -> Vec<Case> {
    let no_template = &["names a template that the pool doesn't have"][..];
    vec![
        ("TenantPool", "/spec/shares", json!([]), &["spec.shares"][..]),
        ("TenantPool", "/spec/shares/0", json!({"max": "70%"}), &["either template or capacityType"]),
        ("TenantPool", "/spec/shares/0/template", json!("a"), &["either template or capacityType"]),
        ("TenantPool", "/spec/shares/0", json!({"template": "a", "minNodes": 1}), no_template),
        (
            "TenantPool",
            "/spec/shares/0",
            json!({"capacityType": "spot"}),
            &["write max, such as 70%, or minNodes"],
        ),
        (
            "TenantPool",
            "/spec/shares/0/capacityType",
            json!("cheap"),
            &["cheap", "spot", "on-demand", "reserved"],
        ),
        ("TenantPool", "/spec/shares/0/max", json!("100%"), &["from 1% to 99%"]),
        ("TenantPool", "/spec/shares/0/max", json!("0.7"), &["from 1% to 99%"]),
        ("TenantPool", "/spec/shares/0/minNodes", json!(0), &["minNodes", "1"]),
        ("TenantPool", "/spec/provisioner", json!("Karpenter"), &["shares say which nodes Croft launches"]),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn templates() -> Vec<Case> {
    let labels = &["no kubelet may set", "a key of your own"][..];
    let mut cases: Vec<Case> = [
        "/spec/template/metadata/labels/kubernetes.io~1role",
        "/spec/template/metadata/labels/node-role.kubernetes.io~1worker",
        "/spec/template/metadata/labels/node-restriction.kubernetes.io~1team",
        "/spec/template/metadata/labels/topology.kubernetes.io~1zone",
        "/spec/template/metadata/labels/node.kubernetes.io~1instance-type",
        "/spec/template/metadata/labels/croft.dev~1pool",
        "/spec/template/metadata/labels/karpenter.sh~1capacity-type",
        "/spec/template/metadata/labels/karpenter.sh~1registered",
    ]
    .map(|path| ("TenantPool", path, json!("x"), labels))
    .to_vec();
    cases.extend([
        ("TenantPool", "/spec/templates/0/name", json!("Spot"), &["at most 40 lower-case letters"][..]),
        ("TenantPool", "/spec/templates/0/weight", json!(101), &["weight", "100"]),
        ("TenantPool", "/spec/templates/0/limits", json!({"nodes": -1}), &["aren't negative"]),
        ("TenantPool", "/spec/templates/0/limits", json!({"cost": 1}), &["costPerHour"]),
        ("TenantPool", "/spec/templates/0/replicas", json!(-1), &["replicas", "0"]),
        (
            "TenantPool",
            "/spec/templates/0/replicas",
            json!(3),
            &["every template of the pool has a fixed size"],
        ),
        (
            "TenantPool",
            "/spec",
            json!({"key": "node-pool", "value": "a", "replicas": 2,
                "templates": [{"name": "a", "replicas": 1, "spec": {"nodeClassRef": {"name": "default"}}}]}),
            &["leave spec.replicas out, or the replicas of templates"],
        ),
        (
            "TenantPool",
            "/spec",
            json!({"key": "node-pool", "value": "a", "provisioner": "None",
                "templates": [{"name": "a", "replicas": 1, "spec": {"nodeClassRef": {"name": "default"}}}]}),
            &["replicas and headroom need nodes that Croft launches"],
        ),
        (
            "TenantPool",
            "/spec/templates/0/metadata/labels/node-pool",
            json!("x"),
            &["the pool's key already", "of its templates"],
        ),
        ("TenantPool", "/spec/templates/0/spec/taints/0/key", json!("node-pool"), &["of its templates"]),
        (
            "TenantPool",
            "/spec/templates/0/spec/startupTaints/0/key",
            json!("node-pool"),
            &["of its templates"],
        ),
        (
            "TenantPool",
            "/spec/template/spec/resources/0/amounts",
            json!({"cpu": 1}),
            &["write devices such as"],
        ),
        ("TenantPool", "/spec/template/spec/resources/0/instanceTypes", json!([""]), &["instanceTypes[0]"]),
    ]);
    let requirement = "/spec/template/spec/requirements/0";
    let taint = |key: &str| json!([{"key": key, "effect": "NoSchedule"}]);
    cases.extend([
        ("TenantPool", "/spec/template/metadata/labels/team", json!("a b"), &["label's value"][..]),
        ("TenantPool", "/spec/template/metadata/labels/a b", json!("x"), &["label's key"]),
        ("TenantPool", "/spec/template/metadata/labels/node-pool", json!("x"), &["the pool's key already"]),
        ("TenantPool", "/spec/template/metadata/annotations/a b", json!("x"), &["label's key"]),
        (
            "TenantPool",
            "/spec/template/metadata/annotations/croft.dev~1claim",
            json!("x"),
            &["croft.dev/do-not-disrupt"],
        ),
        (
            "TenantPool",
            requirement,
            json!({"key": "croft.dev/zone", "operator": "In", "values": ["us-east-1a"]}),
            &["only croft.dev/capacity-type"],
        ),
        (
            "TenantPool",
            requirement,
            json!({"key": "karpenter.sh/nodepool", "operator": "Exists"}),
            &["only karpenter.sh/capacity-type"],
        ),
        (
            "TenantPool",
            requirement,
            json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}),
            &["before it is launched"],
        ),
        (
            "TenantPool",
            requirement,
            json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["ondemand"]}),
            &["on-demand, spot or reserved"],
        ),
        (
            "TenantPool",
            requirement,
            json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["x86_64"]}),
            &["amd64 or arm64"],
        ),
        (
            "TenantPool",
            requirement,
            json!({"key": "node-pool", "operator": "Exists"}),
            &["the pool's key already"],
        ),
        ("TenantPool", requirement, json!({"key": "a", "operator": "In"}), &["need values"]),
        (
            "TenantPool",
            requirement,
            json!({"key": "a", "operator": "Exists", "values": ["b"]}),
            &["take no values"],
        ),
        (
            "TenantPool",
            requirement,
            json!({"key": "a", "operator": "Gt", "values": ["many"]}),
            &["a whole number"],
        ),
        (
            "TenantPool",
            requirement,
            json!({"key": "a", "operator": "In", "values": ["b"], "minValues": 2}),
            &["fewer values than minValues"],
        ),
        (
            "TenantPool",
            requirement,
            json!({"key": "a", "operator": "NotIn", "values": ["b"], "minValues": 1}),
            &["minValues counts values"],
        ),
        ("TenantPool", "/spec/template/spec/requirements/0/key", json!("a b"), &["label's key"]),
        ("TenantPool", "/spec/template/spec/requirements/0/operator", json!("in"), &["\"in\"", "NotIn"]),
        (
            "TenantPool",
            "/spec/template/spec/requirements/0/values",
            json!(["a b"]),
            &["values[0]", "[A-Za-z0-9_.-]"],
        ),
        ("TenantPool", "/spec/template/spec/requirements/0/minValues", json!(0), &["minValues", "1"]),
        (
            "TenantPool",
            "/spec/template/spec/taints",
            taint("node.kubernetes.io/not-ready"),
            &["takes them away"],
        ),
        ("TenantPool", "/spec/template/spec/taints", taint("croft.dev/disrupted"), &["takes them away"]),
        (
            "TenantPool",
            "/spec/template/spec/taints",
            taint("node-pool"),
            &["taint of the pool's key already"],
        ),
        (
            "TenantPool",
            "/spec/template/spec/taints",
            json!([{"key": "a", "effect": "NoSchedule"}, {"key": "a", "value": "b", "effect": "NoSchedule"}]),
            &["one taint per key and effect"],
        ),
        ("TenantPool", "/spec/template/spec/taints/0/key", json!("a b"), &["label's key"]),
        ("TenantPool", "/spec/template/spec/taints/0/key", json!("node-pool"), &["write spec.effects"]),
        ("TenantPool", "/spec/template/spec/taints/0/value", json!("a b"), &["label's value"]),
        ("TenantPool", "/spec/template/spec/taints/0/effect", json!("Never"), &["Never", "NoExecute"]),
        (
            "TenantPool",
            "/spec/template/spec/startupTaints",
            taint("croft.dev/unregistered"),
            &["your own DaemonSet"],
        ),
        ("TenantPool", "/spec/template/spec/startupTaints/0/key", json!("a b"), &["label's key"]),
        ("TenantPool", "/spec/template/spec/startupTaints/0/value", json!("a b"), &["label's value"]),
        ("TenantPool", "/spec/template/spec/startupTaints/0/effect", json!("Never"), &["Never", "NoExecute"]),
        ("TenantPool", "/spec/template/spec/nodeClassRef/group", json!("apps"), &["apps", "croft.dev"]),
        ("TenantPool", "/spec/template/spec/nodeClassRef/kind", json!("Class"), &["Class", "EC2NodeClass"]),
        ("TenantPool", "/spec/template/spec/nodeClassRef/name", json!("A b"), &["the name of an object"]),
    ]);
    let expire = "/spec/template/spec/expireAfter";
    cases.extend([
        ("TenantPool", expire, json!("99999999999999999999h"), &["write a duration", "Never"][..]),
        ("TenantPool", expire, json!("30d"), &["write a duration", "720h"]),
        ("TenantPool", expire, json!("-1h"), &["write a duration"]),
        ("TenantPool", expire, json!("0s"), &["replaced for ever", "5m or more"]),
        ("TenantPool", expire, json!("299s"), &["5m or more"]),
        ("TenantPool", expire, json!("99999h"), &["ten years"]),
        ("TenantPool", "/spec/template/spec/terminationGracePeriod", json!("Never"), &["write a duration"]),
        ("TenantPool", "/spec/template/spec/terminationGracePeriod", json!("0s"), &["30s or more"]),
    ]);
    cases
}

fn schedules() -> Vec<Case> {
    vec![
        ("TenantPool", "/spec/perTenant", json!(true), &["leave value and forTenant out"][..]),
        ("TenantPool", "/spec/forTenant/pool", json!("A"), &["the name of an object"]),
        ("TenantPool", "/spec/forTenant/tenant", json!("a b"), &["the name of an object"]),
        ("TenantPool", "/spec/schedules/0/schedule", json!("0 19 * *"), &["five fields as in crontab"]),
        ("TenantPool", "/spec/schedules/0/duration", json!("soon"), &["hours and minutes"]),
        ("TenantPool", "/spec/schedules/0/timeZone", json!("+02:00"), &["IANA database"]),
        ("TenantPool", "/spec/schedules/0/replicas", json!(-1), &["0"]),
        ("TenantPool", "/spec/schedules/0/limits", json!({"cost": 1}), &["costPerHour"]),
        ("TenantPool", "/spec/schedules/0/headroomPods", json!(1_001), &["1000"]),
        (
            "TenantPool",
            "/spec/schedules/0",
            json!({"schedule": "@daily", "duration": "8h"}),
            &["replicas, limits or headroomPods"],
        ),
    ]
}

fn disruptions() -> Vec<Case> {
    let schedule = "/spec/disruption/budgets/0/schedule";
    let words = &["five fields as in crontab"][..];
    let mut cases: Vec<Case> = [
        "0 9 * *",
        "61 9 * * *",
        "0 24 * * *",
        "0 9 32 * *",
        "0 9 * 13 *",
        "0 9 * * 8",
        "@often",
        "*/0 * * * *",
    ]
    .map(|text| ("TenantPool", schedule, json!(text), words))
    .to_vec();
    cases.extend([
        ("TenantPool", "/spec/disruption/consolidationPolicy", json!("Always"), &["Always", "WhenEmpty"][..]),
        ("TenantPool", "/spec/disruption/consolidateAfter", json!("soon"), &["write a duration", "Never"]),
        ("TenantPool", "/spec/disruption/consolidateAfter", json!("99999h"), &["ten years"]),
        ("TenantPool", "/spec/disruption/initializationTimeout", json!("30s"), &["1m or more"]),
        (
            "TenantPool",
            "/spec/disruption/initializationTimeout",
            json!("soon"),
            &["write a duration", "Never"],
        ),
        ("TenantPool", "/spec/disruption/repairAfter", json!({"Ready": "30s"}), &["1m or more"]),
        (
            "TenantPool",
            "/spec/disruption/repairAfter",
            json!({"Ready": "soon"}),
            &["write a duration", "Never"],
        ),
        ("TenantPool", "/spec/disruption/repairAfter", json!({"Ready": "99999h"}), &["ten years"]),
        (
            "TenantPool",
            "/spec/disruption/repairAfter",
            json!({"DiskPressure": "10m"}),
            &["DiskPressure", "Ready, AcceleratedHardwareReady"],
        ),
        ("TenantPool", "/spec/disruption/paused/until", json!("tomorrow"), &["2026-12-31T18:00:00Z"]),
        ("TenantPool", "/spec/disruption/paused/reason", json!(" "), &["write why"]),
        ("CroftConfig", "/spec/disruption/paused/until", json!("2026-12-31"), &["2026-12-31T18:00:00Z"]),
        ("CroftConfig", "/spec/disruption/paused/reason", json!(""), &["write why"]),
        ("CroftConfig", "/spec/zones/0/name", json!("us-east-1*"), &["the name of one zone"]),
        ("CroftConfig", "/spec/zones/0/state", json!("Closed"), &["Closed", "Evacuate"]),
        ("CroftConfig", "/spec/zones/0/until", json!("tomorrow"), &["2026-12-31T18:00:00Z"]),
        ("CroftConfig", "/spec/zones/0/reason", json!(" "), &["write why"]),
        ("TenantPool", "/spec/disruption/rebalanceRecommendations", json!("Wait"), &["Wait", "Ignore"]),
        ("TenantPool", "/spec/disruption/preference", json!("Quiet"), &["Balanced", "Calm", "Cheapest"]),
        ("TenantPool", "/spec/disruption/minSavings", json!("-1"), &["dollars per hour"]),
        ("TenantPool", "/spec/disruption/evictionCost", json!("1 cent"), &["dollars per hour"]),
        ("TenantPool", "/spec/disruption/budgets/0/nodes", json!("101%"), &["a share from 0% to 100%"]),
        ("TenantPool", "/spec/disruption/budgets/0/nodes", json!("-1"), &["a number of nodes"]),
        ("TenantPool", "/spec/disruption/budgets/0/reasons", json!(["Bored"]), &["Bored", "Drifted"]),
        ("TenantPool", "/spec/disruption/budgets/0/reasons", json!(["Empty", "Empty"]), &["reasons[1]"]),
        ("TenantPool", "/spec/disruption/budgets/0/duration", json!("30s"), &["hours and minutes"]),
        ("TenantPool", "/spec/disruption/budgets/0/duration", json!("0m"), &["changes nothing"]),
        (
            "TenantPool",
            "/spec/disruption/budgets/0/timeZone",
            json!("berlin"),
            &["IANA database", "Europe/Berlin"],
        ),
        (
            "TenantPool",
            "/spec/disruption/budgets/0",
            json!({"nodes": "1", "timeZone": "Europe/Berlin"}),
            &["write schedule as well"],
        ),
        (
            "TenantPool",
            "/spec/disruption/budgets/0",
            json!({"nodes": "1", "schedule": "@daily"}),
            &["write both or neither"],
        ),
    ]);
    cases
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn classes() -> Vec<Case> {
    let mut cases = images();
    cases.extend(disks());
    let tags = |count: usize| (0..count).map(|n| (format!("t{n}"), json!("x"))).collect::<Value>();
    cases.extend([
        ("EC2NodeClass", "/spec/role", json!("arn:aws:iam::1:role/x"), &["the name alone"][..]),
        ("EC2NodeClass", "/spec/role", json!(""), &["spec.role"]),
        (
            "EC2NodeClass",
            "/spec/instanceProfile",
            json!("profile"),
            &["exactly one of spec.role and spec.instanceProfile"],
        ),
        ("EC2NodeClass", "/spec/subnetSelectorTerms", json!([]), &["spec.subnetSelectorTerms"]),
        ("EC2NodeClass", "/spec/subnetSelectorTerms/0", json!({}), &["exactly one of id and tags"]),
        ("EC2NodeClass", "/spec/subnetSelectorTerms/0", json!({"id": "sg-1"}), &["a subnet's id"]),
        ("EC2NodeClass", "/spec/subnetSelectorTerms/0/id", long(129), &["subnetSelectorTerms[0].id", "128"]),
        ("EC2NodeClass", "/spec/subnetSelectorTerms/0/tags", json!({"": "x"}), &["a tag's key"]),
        ("EC2NodeClass", "/spec/securityGroupSelectorTerms", json!([]), &["spec.securityGroupSelectorTerms"]),
        (
            "EC2NodeClass",
            "/spec/securityGroupSelectorTerms/0",
            json!({"id": "subnet-1"}),
            &["a security group's id"],
        ),
        (
            "EC2NodeClass",
            "/spec/securityGroupSelectorTerms/0/id",
            json!(""),
            &["securityGroupSelectorTerms[0].id"],
        ),
        ("EC2NodeClass", "/spec/securityGroupSelectorTerms/0/tags", json!({"": "x"}), &["a tag's key"]),
        (
            "EC2NodeClass",
            "/spec/capacityReservationSelectorTerms/0",
            json!({"id": "x"}),
            &["a capacity reservation's id"],
        ),
        (
            "EC2NodeClass",
            "/spec/capacityReservationSelectorTerms/0/id",
            json!(""),
            &["capacityReservationSelectorTerms[0].id"],
        ),
        ("EC2NodeClass", "/spec/capacityReservationSelectorTerms/0/tags", json!({"": "x"}), &["a tag's key"]),
        ("EC2NodeClass", "/spec/userData", long(16_385), &["spec.userData", "16384"]),
        ("EC2NodeClass", "/spec/placementGroup", json!(""), &["spec.placementGroup"]),
        ("EC2NodeClass", "/spec/instanceStorePolicy", json!("RAID1"), &["RAID1", "RAID0"]),
        ("EC2NodeClass", "/spec/metadataOptions/httpEndpoint", json!("on"), &["on", "enabled", "disabled"]),
        (
            "EC2NodeClass",
            "/spec/metadataOptions/httpProtocolIPv6",
            json!("on"),
            &["on", "enabled", "disabled"],
        ),
        (
            "EC2NodeClass",
            "/spec/metadataOptions/httpTokens",
            json!("maybe"),
            &["maybe", "required", "optional"],
        ),
        (
            "EC2NodeClass",
            "/spec/metadataOptions/httpPutResponseHopLimit",
            json!(0),
            &["httpPutResponseHopLimit", "1"],
        ),
        ("EC2NodeClass", "/spec/kubelet/maxPods", json!(0), &["spec.kubelet.maxPods", "1"]),
        ("EC2NodeClass", "/spec/kubelet/clusterDNS", json!(["dns"]), &["addresses such as"]),
        ("EC2NodeClass", "/spec/kubelet/clusterDNS", json!(["10.0.0.1", "10.0.0.1"]), &["clusterDNS[1]"]),
        ("EC2NodeClass", "/spec/kubelet/kubeReserved/cpu", json!("-1"), &["aren't negative"]),
        ("EC2NodeClass", "/spec/kubelet/kubeReserved/pods", json!("1"), &["a kubelet reserves"]),
        ("EC2NodeClass", "/spec/kubelet/systemReserved/memory", json!("much"), &["aren't negative"]),
        ("EC2NodeClass", "/spec/kubelet/systemReserved/pods", json!("1"), &["a kubelet reserves"]),
        (
            "EC2NodeClass",
            "/spec/kubelet/evictionHard/memory.available",
            json!("101%"),
            &["a share such as 5%"],
        ),
        ("EC2NodeClass", "/spec/kubelet/evictionHard/memory", json!("5%"), &["a kubelet evicts by"]),
        ("EC2NodeClass", "/spec/tags", json!({"croft.dev/cluster": "x"}), &["reserved", "a key of your own"]),
        ("EC2NodeClass", "/spec/tags", json!({"aws:x": "x"}), &["reserved"]),
        ("EC2NodeClass", "/spec/tags", json!({"kubernetes.io/cluster/x": "owned"}), &["reserved"]),
        ("EC2NodeClass", "/spec/tags", json!({"": "x"}), &["a tag's key"]),
        ("EC2NodeClass", "/spec/tags", json!({"a": "<x>"}), &["a tag's key"]),
        ("EC2NodeClass", "/spec/tags", tags(41), &["spec.tags", "40"]),
    ]);
    cases
}

fn images() -> Vec<Case> {
    let term = "/spec/amiSelectorTerms/0";
    vec![
        ("EC2NodeClass", "/spec/amiFamily", json!("Debian"), &["Debian", "AL2023", "Bottlerocket"]),
        ("EC2NodeClass", "/spec/amiSelectorTerms", json!([]), &["spec.amiSelectorTerms"]),
        (
            "EC2NodeClass",
            "/spec/amiSelectorTerms",
            json!([{"alias": "al2023@latest"}, {"id": "ami-1"}]),
            &["an alias stands alone"],
        ),
        ("EC2NodeClass", term, json!({"alias": "al2023@latest", "id": "ami-1"}), &["exactly one of alias"]),
        ("EC2NodeClass", "/spec/amiSelectorTerms/0/alias", json!("al2023"), &["a family and a version"]),
        (
            "EC2NodeClass",
            "/spec/amiSelectorTerms/0/alias",
            json!("debian@latest"),
            &["a family and a version"],
        ),
        ("EC2NodeClass", term, json!({"id": "image"}), &["an image's id"]),
        ("EC2NodeClass", "/spec/amiSelectorTerms/0/id", json!("ami"), &["an image's id"]),
        ("EC2NodeClass", "/spec/amiSelectorTerms/0/ssmParameter", json!("a b"), &["an SSM parameter"]),
        ("EC2NodeClass", "/spec/amiSelectorTerms/0/tags", json!({"": "x"}), &["a tag's key"]),
    ]
}

fn disks() -> Vec<Case> {
    let ebs = "/spec/blockDeviceMappings/0/ebs";
    vec![
        (
            "EC2NodeClass",
            "/spec/blockDeviceMappings",
            json!([{"deviceName": "/dev/xvda", "ebs": {}}, {"deviceName": "/dev/xvda", "ebs": {}}]),
            &["a deviceName of its own"],
        ),
        (
            "EC2NodeClass",
            "/spec/blockDeviceMappings",
            json!([{"deviceName": "/dev/xvda", "rootVolume": true, "ebs": {}}, {"deviceName": "/dev/xvdb", "rootVolume": true, "ebs": {}}]),
            &["at most one", "rootVolume"],
        ),
        (
            "EC2NodeClass",
            "/spec/blockDeviceMappings/0/deviceName",
            json!("the disk"),
            &["the name of a device"],
        ),
        (
            "EC2NodeClass",
            "/spec/blockDeviceMappings/0/ebs/volumeSize",
            json!("100"),
            &["a size with its unit"],
        ),
        (
            "EC2NodeClass",
            "/spec/blockDeviceMappings/0/ebs/volumeSize",
            json!("-1Gi"),
            &["a size with its unit"],
        ),
        ("EC2NodeClass", "/spec/blockDeviceMappings/0/ebs/volumeSize", json!("65Ti"), &["from 1Gi to 64Ti"]),
        ("EC2NodeClass", "/spec/blockDeviceMappings/0/ebs/volumeSize", json!("0Gi"), &["from 1Gi to 64Ti"]),
        ("EC2NodeClass", "/spec/blockDeviceMappings/0/ebs/volumeType", json!("ssd"), &["ssd", "gp3"]),
        ("EC2NodeClass", "/spec/blockDeviceMappings/0/ebs/iops", json!(-1), &["iops", "100"]),
        ("EC2NodeClass", "/spec/blockDeviceMappings/0/ebs/throughput", json!(1), &["throughput", "125"]),
        ("EC2NodeClass", "/spec/blockDeviceMappings/0/ebs/kmsKeyID", json!("a b"), &["a KMS key"]),
        ("EC2NodeClass", "/spec/blockDeviceMappings/0/ebs/snapshotID", json!("vol-1"), &["a snapshot's id"]),
        ("EC2NodeClass", ebs, json!({"volumeType": "st1", "iops": 3000}), &["take iops"]),
        ("EC2NodeClass", ebs, json!({"volumeType": "io2"}), &["need iops"]),
        ("EC2NodeClass", ebs, json!({"volumeType": "gp2", "throughput": 125}), &["takes throughput"]),
        ("EC2NodeClass", ebs, json!({"encrypted": false, "kmsKeyID": "k"}), &["encrypted: true"]),
    ]
}

fn claims() -> Vec<Case> {
    vec![
        ("NodeClaim", "/spec/pool", json!(""), &["spec.pool"]),
        ("NodeClaim", "/spec/resources/0/amounts", json!({"cpu": 1}), &["write devices such as"]),
        ("NodeClaim", "/spec/resources/0/instanceTypes", json!([""]), &["instanceTypes[0]"]),
        ("NodeClaim", "/spec/nodeClassRef/group", json!("apps"), &["apps", "croft.dev"]),
        ("NodeClaim", "/spec/nodeClassRef/kind", json!("Class"), &["Class", "EC2NodeClass"]),
        ("NodeClaim", "/spec/nodeClassRef/name", json!("A"), &["the name of an object"]),
        ("NodeClaim", "/spec/instanceTypes", json!([]), &["spec.instanceTypes"]),
        ("NodeClaim", "/spec/zones", json!([]), &["spec.zones"]),
        ("NodeClaim", "/spec/capacityType", json!("ondemand"), &["ondemand", "on-demand", "spot"]),
        ("NodeClaim", "/spec/requirements/0/key", json!("a b"), &["label's key"]),
        ("NodeClaim", "/spec/requirements/0/operator", json!("in"), &["\"in\"", "NotIn"]),
        ("NodeClaim", "/spec/requirements/0/values", json!(["a b"]), &["values[0]", "[A-Za-z0-9_.-]"]),
        ("NodeClaim", "/spec/requirements/0/minValues", json!(0), &["minValues", "1"]),
        ("NodeClaim", "/spec/requests", json!({"a b": 1}), &["names of resources"]),
        ("NodeClaim", "/spec/taints/0/key", json!(""), &["spec.taints[0].key"]),
        ("NodeClaim", "/spec/taints/0/value", long(254), &["spec.taints[0].value"]),
        ("NodeClaim", "/spec/taints/0/effect", json!("Never"), &["Never", "NoExecute"]),
        ("NodeClaim", "/spec/startupTaints/0/key", json!(""), &["spec.startupTaints[0].key"]),
        ("NodeClaim", "/spec/startupTaints/0/value", long(254), &["spec.startupTaints[0].value"]),
        ("NodeClaim", "/spec/startupTaints/0/effect", json!("Never"), &["Never", "NoExecute"]),
        ("NodeClaim", "/spec/labels/a", long(254), &["spec.labels"]),
        ("NodeClaim", "/spec/terminationGracePeriod", long(65), &["spec.terminationGracePeriod"]),
    ]
}

/// Every bad edit.
#[must_use]
pub fn cases() -> Vec<Case> {
    [tenants(), isolation(), given(), configs(), pools(), classes(), claims()].concat()
}

/// A Tenant's spec with every field.
fn tenant_base() -> Value {
    json!({
        "namespaces": ["a"], "pools": ["p"], "onConflict": "Reject", "limits": {"cpu": 1, "costPerHour": "2.5", "nvidia.com/gpu": "4"},
        "namespaceSelector": {"matchLabels": {"team": "a"}, "matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]},
        "networkIsolation": {
            "enabled": true, "egress": "Restricted",
            "allowFrom": [{"namespace": "ingress"}, {"cidr": "10.0.0.0/16", "except": ["10.0.3.0/24"]}],
            "allowTo": [{"namespace": "registry"}, {"cidr": "fd00:10::/64", "except": ["fd00:10::1:0/112"]}],
        },
        "quota": {
            "perNamespace": {"requests.cpu": "1500m", "pods": 20, "requests.nvidia.com/gpu": 1},
            "total": {"requests.cpu": 4, "requests.memory": "16Gi", "count/deployments.apps": "10"},
        },
        "defaults": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": 1, "memory": "1Gi"}},
        "podSecurity": {"enforce": "baseline", "audit": "restricted", "warn": "restricted"},
        "owners": [
            {"kind": "User", "name": "jane@example.com", "clusterRoles": ["admin"]},
            {"kind": "ServiceAccount", "name": "ci", "namespace": "build", "clusterRoles": ["edit"]},
        ],
        "namespaceCreation": {"prefix": "a-", "maximum": 5},
    })
}

/// An object with every field that allows for it.
#[must_use]
pub fn base(kind: &str) -> Value {
    let requirement = json!({"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m"], "minValues": 1});
    let taint = json!({"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule"});
    let declared = json!({"instanceTypes": ["m5.large"], "amounts": {"example.com/fuse": 2}});
    let (name, spec) = match kind {
        "Tenant" => ("bad-edit", tenant_base()),
        "CroftConfig" => (
            "default",
            json!({
                "nonTenantPods": "KeepOut", "exemptNamespaces": ["kube-system"], "schedulers": ["system:kube-scheduler"],
                "ignoredSchedulers": ["volcano"], "sharedWith": ["monitoring"], "misplaced": "Report", "limits": {"nodes": 100, "costPerHour": "250"},
                "admission": {"mutation": "Webhook"}, "ownerMetadata": ["example.com/", "app.kubernetes.io/managed-by"],
                "podsWithoutRequests": {"cpu": "100m", "memory": "200Mi"},
                "disruption": {"paused": {"until": "2026-12-31T18:00:00Z", "reason": "a release"}},
                "zones": [{"name": "us-east-1a", "state": "Evacuate", "until": "2026-12-31T18:00:00Z", "reason": "an incident"}],
            }),
        ),
        "TenantPool" => (
            "bad-edit",
            json!({
                "key": "node-pool", "value": "a", "forTenant": {"pool": "p", "tenant": "t"}, "effects": ["NoSchedule"], "provisioner": "Croft", "weight": 1,
                "limits": {"cpu": "1000", "memory": "1000Gi", "nodes": 50, "costPerHour": "25"},
                "headroom": {"pods": 1, "requests": {"cpu": "500m"}}, "sharedWith": ["monitoring"],
                "schedules": [{"schedule": "0 19 * * mon-fri", "duration": "12h", "timeZone": "Europe/Berlin", "replicas": 0, "limits": {"nodes": "2"},
                    "headroomPods": 0}],
                "return": {"policy": "Eagerly", "after": "10m"},
                "shares": [{"capacityType": "spot", "max": "70%", "minNodes": 2}],
                "template": {
                    "metadata": {"labels": {"team": "a", "node.kubernetes.io/class": "x", "karpenter.sh/nodepool": "a"}, "annotations": {"croft.dev/do-not-disrupt": "true"}},
                    "spec": {
                        "requirements": [requirement], "taints": [taint],
                        "startupTaints": [{"key": "node.cilium.io/agent-not-ready", "value": "x", "effect": "NoExecute"}],
                        "nodeClassRef": {"group": "croft.dev", "kind": "EC2NodeClass", "name": "default"},
                        "resources": [declared], "expireAfter": "2592000s", "terminationGracePeriod": "1h30m",
                    },
                },
                "disruption": {
                    "consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s", "minSavings": "0.05", "evictionCost": "0.016", "preference": "Calm",
                    "rebalanceRecommendations": "Ignore", "initializationTimeout": "20m", "repairAfter": {"Ready": "1h", "EBSStatusCheck": "Never"}, "paused": {"until": "2026-12-31T18:00:00+01:00", "reason": "a release"},
                    "budgets": [{"nodes": "10%", "schedule": "0 9,12-14/2 * jan-Mar mon-fri", "duration": "8h", "timeZone": "America/New_York", "reasons": ["Empty"]}],
                },
            }),
        ),
        "EC2NodeClass" => (
            "bad-edit",
            json!({
                "amiFamily": "AL2023", "amiSelectorTerms": [{"alias": "al2023@v20260715"}], "role": "croft-node",
                "subnetSelectorTerms": [{"tags": {"croft.dev/discovery": "*"}}], "securityGroupSelectorTerms": [{"id": "sg-0123456789abcdef0"}],
                "capacityReservationSelectorTerms": [{"id": "cr-0123456789abcdef0"}], "userData": "#!/bin/sh", "placementGroup": "near",
                "instanceStorePolicy": "RAID0", "detailedMonitoring": true, "associatePublicIPAddress": false,
                "metadataOptions": {"httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 1, "httpProtocolIPv6": "disabled"},
                "blockDeviceMappings": [{"deviceName": "/dev/xvda", "rootVolume": true, "ebs": {
                    "volumeSize": "100Gi", "volumeType": "gp3", "iops": 3000, "throughput": 125, "encrypted": true,
                    "kmsKeyID": "arn:aws:kms:us-east-1:111122223333:key/1234", "snapshotID": "snap-0123456789abcdef0", "deleteOnTermination": true,
                }}],
                "kubelet": {"maxPods": 110, "clusterDNS": ["10.100.0.10", "fd00::10"], "kubeReserved": {"cpu": "100m", "memory": 1},
                    "systemReserved": {"cpu": "100m"}, "evictionHard": {"memory.available": "5%", "nodefs.available": "1Gi"}},
                "tags": {"cost-center": "Größe +1@x", "Name": ""},
            }),
        ),
        _ => (
            "bad-edit",
            json!({
                "pool": "p", "nodeClassRef": {"group": "croft.dev", "kind": "EC2NodeClass", "name": "default"},
                "instanceTypes": ["m5.large"], "zones": ["us-east-1a"], "capacityType": "spot", "requirements": [requirement],
                "requests": {"cpu": "1"}, "taints": [taint], "startupTaints": [taint], "labels": {"kubernetes.io/os": "linux"},
                "resources": [declared], "terminationGracePeriod": "1h",
            }),
        ),
    };
    json!({"apiVersion": "croft.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// The object of [`base`] with `value` at `path`; the last step may be new. `null` removes it.
///
/// # Errors
/// When the object has no such place.
pub fn edited(kind: &str, path: &str, value: &Value) -> anyhow::Result<Value> {
    let mut object = base(kind);
    if path.starts_with("/spec/templates/") {
        // The same pool with its template as one of a list.
        let spec = object.pointer_mut("/spec").and_then(Value::as_object_mut).context("no spec")?;
        let mut template = spec.remove("template").context("no template")?;
        template.as_object_mut().context("a template is an object")?.insert("name".to_owned(), json!("a"));
        spec.insert("templates".to_owned(), json!([template]));
    }
    let (parent, last) = path.rsplit_once('/').with_context(|| format!("{path} isn't a pointer"))?;
    let last = last.replace("~1", "/");
    match object.pointer_mut(parent).with_context(|| format!("{kind} has no {parent}"))? {
        Value::Array(items) => {
            *items.get_mut(last.parse::<usize>()?).with_context(|| format!("{kind} has no {path}"))? =
                value.clone();
        }
        Value::Object(fields) if value.is_null() => drop(fields.remove(&last)),
        Value::Object(fields) => drop(fields.insert(last, value.clone())),
        other => anyhow::bail!("{path} is in {other}"),
    }
    Ok(object)
}

/// The API server's answer to the creation of an object of Croft's, in a dry run.
///
/// # Errors
/// The refusal's sentence.
pub async fn create(client: &Client, kind: &str, object: &Value) -> Result<(), String> {
    let crds = croft_api::crds();
    let crd = crds.iter().find(|crd| crd.spec.names.kind == kind).ok_or("no such kind")?;
    let gvk = GroupVersionKind::gvk(croft_api::GROUP, croft_api::VERSION, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &crd.spec.names.plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let object = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
    let params = PostParams { dry_run: true, ..PostParams::default() };
    api.create(&params, &object).await.map(drop).map_err(|error| error.to_string())
}

/// The bad edits that the API server accepts.
///
/// # Errors
/// When a case doesn't fit its kind.
pub async fn accepted(client: &Client) -> anyhow::Result<Vec<String>> {
    let mut accepted = Vec::new();
    for (kind, path, value, _) in cases() {
        if create(client, kind, &edited(kind, path, &value)?).await.is_ok() {
            accepted.push(format!("{kind} {path} = {value}"));
        }
    }
    Ok(accepted)
}
