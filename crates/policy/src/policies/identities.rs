//! Croft's own identities: the policies limit what a stolen token of the controller or the webhook can write, though
//! RBAC grants the verb.
//!
//! RBAC knows no fields. It can't name an object that is created, nor one whose name isn't known when the role is
//! written. Each policy here adds that to one granted verb. Its match condition is the user, in Croft's own namespace,
//! so that other requests are unaffected. Fields are compared by what may differ: a field that a later Kubernetes adds
//! is closed from its first day.
//!
//! The API server evaluates the object after mutation. If a mutating webhook of another project rewrites a DaemonSet on
//! every write, the controller's write is refused with it, and the message says where to look.

use serde_json::{Value, json};

use crate::{
    definitions::{NAME_LABEL, webhook},
    policies::{
        cel::{Cel, SHARED},
        namespaces::NAMESPACE_RESOURCES,
        policy::{Keys, Policy},
    },
    tenancy::model::BUILT_IN_EXEMPT,
};

const CEL: Cel = Cel("identities");

/// Every policy of this module.
pub(super) fn all() -> [Policy; 10] {
    [
        daemonsets(),
        namespaces(),
        tenant_objects(),
        namespace_creators(),
        pods(),
        nodes(),
        declarations(),
        pools_for_tenants(),
        configurations(),
        leases(),
    ]
}

/// A policy about requests of the identity that `condition` names.
fn policy(name: &'static str, constraints: Value, condition: &str, rules: &[&str]) -> Policy {
    Policy {
        name,
        constraints,
        conditions: vec![("by-this-identity", CEL.text(condition))],
        variables: Vec::new(),
        validations: rules.iter().map(|rule| CEL.rule(rule)).collect(),
        parameters: true,
    }
}

const BY_CONTROLLER: &str = "by_controller";
const BY_WEBHOOK: &str = "by_webhook";

fn constraints(group: &str, resources: &[&str], operations: &[&str]) -> Value {
    constraints_of(&[(group, resources)], operations)
}

fn constraints_of(groups: &[(&str, &[&str])], operations: &[&str]) -> Value {
    let rule = |(group, resources): &(&str, &[&str])| json!({"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": resources});
    json!({"resourceRules": groups.iter().map(rule).collect::<Vec<_>>()})
}

/// The controller writes the plan of a DaemonSet, and nothing that changes what its pods run. In the built-in exempt
/// namespaces it only takes out what an earlier version added and recorded.
fn daemonsets() -> Policy {
    policy(
        "croft-controller-daemonsets",
        constraints("apps", &["daemonsets"], &["UPDATE"]),
        BY_CONTROLLER,
        &["plans_daemonset", "keeps_daemonset_metadata", "only_takes_out"],
    )
}

/// The controller writes what webhooks and policies read from a namespace, and nothing else of it.
fn namespaces() -> Policy {
    policy(
        "croft-controller-namespaces",
        constraints("", &["namespaces"], &["UPDATE"]),
        BY_CONTROLLER,
        &["writes_namespace", "lowers_no_level"],
    )
}

/// The controller writes its own objects of tenants' namespaces, which carry its label and its names, and none in a
/// namespace that is exempt or known to be outside every tenant.
///
/// A policy can't know the owners that a Tenant declares: all that it can read is what the controller writes. The webhook
/// [`OWNERS`](webhook::OWNERS) compares bindings with Tenants; this holds without it, and against a Tenant that names Croft.
fn tenant_objects() -> Policy {
    let groups: [(&str, &[&str]); 3] = [
        ("networking.k8s.io", &["networkpolicies"]),
        ("", &["resourcequotas", "limitranges"]),
        ("rbac.authorization.k8s.io", &["rolebindings"]),
    ];
    policy(
        "croft-controller-tenant-objects",
        constraints_of(&groups, &["CREATE", "UPDATE", "DELETE"]),
        BY_CONTROLLER,
        &[
            "writes_own_objects",
            "is_in_tenants_namespace",
            "keeps_metadata",
            "binds_allowed_subjects",
            "binds_cluster_role",
        ],
    )
}

/// The controller lets a tenant's owners create namespaces, by its own ClusterRoleBindings, and gives no other role in the
/// whole cluster. It may bind further roles in single namespaces, and RBAC can't tell the two apart. Whether the subjects
/// are owners, the webhook [`OWNERS`](webhook::OWNERS) knows.
fn namespace_creators() -> Policy {
    policy(
        "croft-controller-namespace-creators",
        constraints("rbac.authorization.k8s.io", &["clusterrolebindings"], &["CREATE", "UPDATE", "DELETE"]),
        BY_CONTROLLER,
        &["binds_namespace_creators", "keeps_binding_metadata", "binds_allowed_creators"],
    )
}

/// The controller nominates a node for a pending pod.
fn pods() -> Policy {
    policy(
        "croft-controller-pods",
        constraints("", &["pods/status"], &["UPDATE"]),
        BY_CONTROLLER,
        &["nominates"],
    )
}

/// The controller writes nodes of pools, and of those only the fields of registration, cordon and repair.
fn nodes() -> Policy {
    let constraints = constraints("", &["nodes"], &["UPDATE", "DELETE"]);
    let rules = ["is_of_pool", "manages_node"];
    Policy {
        variables: vec![SHARED.variable(Keys::Declared.name()), CEL.variable("ofPool")],
        ..policy("croft-controller-nodes", constraints, BY_CONTROLLER, &rules)
    }
}

/// The controller doesn't change the specs that users declare. Pools that it made for a tenant are its own.
fn declarations() -> Policy {
    let resources = ["tenants", "tenantpools", "ec2nodeclasses", "croftconfigs"];
    policy(
        "croft-controller-declarations",
        constraints("croft.dev", &resources, &["UPDATE"]),
        BY_CONTROLLER,
        &["keeps_declaration"],
    )
}

/// The controller makes pools for tenants, from those with `perTenant`, and no others.
fn pools_for_tenants() -> Policy {
    policy(
        "croft-controller-pools",
        constraints("croft.dev", &["tenantpools"], &["CREATE", "DELETE"]),
        BY_CONTROLLER,
        &["makes_pools_for_tenants"],
    )
}

/// The webhook writes its registration: address, caBundle, namespace selectors and match conditions. Rules, failure
/// policy and time limit stay as in [`shipped`], and none of those webhooks is removed.
fn configurations() -> Policy {
    let resources = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    let constraints = constraints("admissionregistration.k8s.io", &resources, &["UPDATE"]);
    let shipped = CEL.variable_with("shipped", &[&as_cel(&shipped(true)), &as_cel(&shipped(false))]);
    Policy {
        variables: [CEL.variables(&["before", "after"]), vec![shipped]].concat(),
        ..policy("croft-webhook-configurations", constraints, BY_WEBHOOK, &["writes_registration"])
    }
}

/// The fields that the webhook doesn't choose, by name of the registered webhook.
fn shipped(mutating: bool) -> Value {
    let scoped = |group: &str, resources: &[&str], operations: &[&str], scope: &str| {
        json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": resources,
            "scope": scope})
    };
    let rule = |group: &str, resources: &[&str], operations: &[&str]| {
        scoped(group, resources, operations, "Namespaced")
    };
    let hook = |name: &str, declarations: &[Value], failure: &str, seconds: i64| {
        let mut fields = json!({
            "name": name, "rules": declarations, "failurePolicy": failure, "timeoutSeconds": seconds,
            "matchPolicy": "Equivalent", "sideEffects": "None", "objectSelector": {}, "admissionReviewVersions": ["v1"],
        });
        if let (true, Some(map)) = (mutating, fields.as_object_mut()) {
            map.insert("reinvocationPolicy".to_owned(), json!("IfNeeded"));
        }
        (name.to_owned(), fields)
    };
    let (created, written) = (["CREATE"], ["CREATE", "UPDATE"]);
    let hooks = if mutating {
        let pods = [rule("", &["pods"], &created), rule("apps", &["daemonsets"], &written)];
        vec![
            hook(webhook::PODS, &pods, "Fail", 3),
            hook(webhook::NON_TENANT, &pods, "Fail", 3),
            hook(webhook::NAMESPACES, &[scoped("", &NAMESPACE_RESOURCES, &written, "Cluster")], "Ignore", 3),
        ]
    } else {
        let workloads = [
            rule("apps", &["deployments", "statefulsets", "replicasets"], &written),
            rule("batch", &["jobs", "cronjobs"], &written),
            rule("", &["replicationcontrollers", "podtemplates"], &written),
        ];
        let group = "rbac.authorization.k8s.io";
        let bindings = [
            rule(group, &["rolebindings"], &written),
            scoped(group, &["clusterrolebindings"], &written, "Cluster"),
        ];
        vec![
            hook(webhook::OWNERS, &bindings, "Fail", 3),
            hook(webhook::PLACEMENT, &[rule("", &["pods"], &created)], "Fail", 3),
            hook(webhook::BINDINGS, &[rule("", &["pods/binding", "bindings"], &created)], "Fail", 3),
            hook(webhook::WARNINGS, &workloads, "Ignore", 1),
        ]
    };
    Value::Object(hooks.into_iter().collect())
}

/// JSON as CEL. CEL's maps and lists hold values of one type, so each value is wrapped in `dyn`.
fn as_cel(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let entries: Vec<String> =
                map.iter().map(|(key, value)| format!("{}: dyn({})", json!(key), as_cel(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| format!("dyn({})", as_cel(item))).collect();
            format!("[{}]", items.join(", "))
        }
        scalar => scalar.to_string(),
    }
}

/// The controller writes its own Lease; the webhook writes the Lease of the certificate and each replica its own.
///
/// RBAC can't name an object that is created, nor the Lease of a replica, which has the name of its pod. The token of a
/// pod carries that name. A token without a pod, as in the lab, is limited by the replicas' label alone.
fn leases() -> Policy {
    let mut constraints = constraints("coordination.k8s.io", &["leases"], &["CREATE", "UPDATE", "DELETE"]);
    // Every node renews a Lease every few seconds, in a namespace that is left out by name.
    if let Some(map) = constraints.as_object_mut() {
        map.insert(
            "namespaceSelector".to_owned(),
            json!({"matchExpressions": [{"key": NAME_LABEL, "operator": "NotIn", "values": BUILT_IN_EXEMPT}]}),
        );
    }
    let conditions = CEL.variables(&["by-croft"]);
    Policy {
        conditions,
        variables: CEL.variables(&["name", "pod"]),
        ..policy(
            "croft-leases",
            constraints,
            BY_CONTROLLER,
            &["writes_controllers_lease", "writes_webhooks_lease"],
        )
    }
}
