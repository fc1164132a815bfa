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
    definitions::{
        CLAIM_ANNOTATION, IDENTITY_PREFIX, INJECTED_ANNOTATION, NAME_LABEL, NAMESPACE_CREATOR_ROLE,
        POOL_NAME_LABEL, REPLICA_LABEL, TENANCY_LABEL, TENANT_LABEL, TENANT_OBJECT_PREFIX,
        UNREGISTERED_TAINT,
        parameter::{self, PREFIX},
        webhook,
    },
    policies::{
        cel,
        namespaces::NAMESPACE_RESOURCES,
        pod_security,
        policy::{Keys, Policy},
    },
    tenancy::{
        model::{BUILT_IN_EXEMPT, CERTIFICATE_LEASE, CONTROLLER_LEASE, TENANCY_NONE},
        replica_status::WEBHOOK,
    },
};

/// Fields that the API server itself writes with every change.
const KEPT_BY_THE_SERVER: [&str; 3] = ["managedFields", "resourceVersion", "generation"];
/// The DaemonSet's template generation, which the API server keeps as an annotation.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
/// Labels that nodes outside every pool carry as well: no evidence of a pool, even if a pool has such a key.
const ON_EVERY_NODE: &str = "^((beta|topology|failure-domain\\\\.beta)\\\\.)?kubernetes\\\\.io/|\
                             ^node\\\\.kubernetes\\\\.io/instance-type$|^node-role\\\\.";
/// Labels of nodes that run the control plane.
const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// The names of Croft's ServiceAccounts.
const CONTROLLER: &str = "croft-controller";
const WEBHOOK_ACCOUNT: &str = "croft-webhook";

/// Every policy of this module.
pub(super) fn all() -> [Policy; 9] {
    [
        daemonsets(),
        namespaces(),
        tenant_objects(),
        namespace_creators(),
        pods(),
        nodes(),
        declarations(),
        configurations(),
        leases(),
    ]
}

/// CEL: the request is made by this ServiceAccount of Croft.
fn is_by(account: &str) -> String {
    format!("request.userInfo.username == 'system:serviceaccount:' + params.metadata.name + ':{account}'")
}

fn policy(
    name: &'static str,
    account: &str,
    constraints: Value,
    variables: Vec<(&'static str, String)>,
    validations: Vec<(String, String)>,
) -> Policy {
    let conditions = vec![("by-this-identity", is_by(account))];
    Policy { name, constraints, conditions, variables, validations, parameters: true }
}

/// Strings as a CEL list. JSON strings are CEL strings.
fn list(words: &[&str]) -> String {
    json!(words).to_string()
}

fn constraints(group: &str, resources: &[&str], operations: &[&str]) -> Value {
    constraints_of(&[(group, resources)], operations)
}

fn constraints_of(groups: &[(&str, &[&str])], operations: &[&str]) -> Value {
    let rule = |(group, resources): &(&str, &[&str])| json!({"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": resources});
    json!({"resourceRules": groups.iter().map(rule).collect::<Vec<_>>()})
}

/// CEL: every entry of the map at `path`, such as `.?spec.?template`, is unchanged, but for keys `k` for which `free`
/// holds. `dyn` keeps the API server's type checker from warning that an object is no map; at run time it is one.
fn same_but(path: &str, free: &str) -> String {
    let (new, old) =
        (format!("dyn(object){path}.orValue({{}})"), format!("dyn(oldObject){path}.orValue({{}})"));
    let free = if free.is_empty() { String::new() } else { format!("{free} || ") };
    format!("{new}.all(k, {free}(k in {old} && {new}[k] == {old}[k])) && {old}.all(k, {free}k in {new})")
}

fn same(path: &str) -> String {
    format!("dyn(object){path} == dyn(oldObject){path}")
}

fn same_but_these(path: &str, free: &[&str]) -> String {
    same_but(path, &format!("k in {}", list(free)))
}

fn metadata_but(free: &[&str]) -> String {
    same_but_these(".?metadata", &[&KEPT_BY_THE_SERVER, free].concat())
}

fn every(parts: &[String]) -> String {
    parts.iter().map(|part| format!("({part})")).collect::<Vec<_>>().join(" && ")
}

/// The controller writes the plan of a DaemonSet, and nothing that changes what its pods run. In the built-in exempt
/// namespaces it only takes out what an earlier version added and recorded.
fn daemonsets() -> Policy {
    let template = ".?spec.?template";
    let exempt = list(&BUILT_IN_EXEMPT);
    let recorded = |object: &str| {
        format!("'{INJECTED_ANNOTATION}' in dyn({object}){template}.?metadata.?annotations.orValue({{}})")
    };
    let planned = every(&[
        same_but_these(".?spec", &["template"]),
        same_but_these(template, &["metadata", "spec"]),
        same_but_these(&format!("{template}.?metadata"), &["annotations"]),
        same_but_these(&format!("{template}.?metadata.?annotations"), &[INJECTED_ANNOTATION]),
        same_but_these(&format!("{template}.?spec"), &["nodeSelector", "tolerations", "affinity"]),
        same_but_these(&format!("{template}.?spec.?affinity"), &["nodeAffinity"]),
        same_but_these(
            &format!("{template}.?spec.?affinity.?nodeAffinity"),
            &["requiredDuringSchedulingIgnoredDuringExecution"],
        ),
    ]);
    policy(
        "croft-controller-daemonsets",
        CONTROLLER,
        constraints("apps", &["daemonsets"], &["UPDATE"]),
        Vec::new(),
        vec![
            (
                planned,
                format!(
                    "'the controller may change nodeSelector, tolerations, required node affinity and the annotation \
                     {INJECTED_ANNOTATION} of the pod template of DaemonSet ' + object.metadata.name + ', and nothing else: look \
                     for another mutating webhook that rewrites DaemonSets'"
                ),
            ),
            (
                every(&[
                    metadata_but(&["annotations"]),
                    same_but_these(".?metadata.?annotations", &[TEMPLATE_GENERATION]),
                ]),
                "'the controller may not change the metadata of DaemonSet ' + object.metadata.name".to_owned(),
            ),
            (
                format!(
                    "!(request.namespace == params.metadata.name || request.namespace in {exempt}) || \
                     object.spec == oldObject.spec || ({} && !({}))",
                    recorded("oldObject"),
                    recorded("object")
                ),
                "'the controller may take what was injected out of a DaemonSet of namespace ' + request.namespace + ', which is \
                 always exempt, and change nothing else of it'"
                    .to_owned(),
            ),
        ],
    )
}

/// The controller writes what webhooks and policies read from a namespace, and nothing else of it.
fn namespaces() -> Policy {
    let labels = [[TENANCY_LABEL].as_slice(), &pod_security::MODES.map(|(_, label)| label)].concat();
    let exempt = format!(
        "object.metadata.name == params.metadata.name || object.metadata.name in {}",
        list(&BUILT_IN_EXEMPT)
    );
    policy(
        "croft-controller-namespaces",
        CONTROLLER,
        constraints("", &["namespaces"], &["UPDATE"]),
        Vec::new(),
        vec![(
            every(&[
                metadata_but(&["labels", "annotations"]),
                same_but_these(".?metadata.?labels", &labels),
                // The installation's identity is written once, by the first start, and never changed.
                same_but(
                    ".?metadata.?annotations",
                    &format!(
                        "(k.startsWith('{PREFIX}') || k.startsWith('{IDENTITY_PREFIX}') && \
                         !(k in dyn(oldObject).?metadata.?annotations.orValue({{}})))"
                    ),
                ),
                same(".?spec"),
                same(".?status"),
            ]),
            format!(
                "'the controller may change the label {TENANCY_LABEL}, Pod Security labels, and annotations under {PREFIX} \
                 (and once under {IDENTITY_PREFIX}) of namespace ' + object.metadata.name + ', and nothing else'"
            ),
        ), (
            pod_security::allowed(&exempt),
            "'the controller may raise the Pod Security levels of namespace ' + object.metadata.name + ' above those that \
             people set, and put those back, and may not lower them'"
                .to_owned(),
        )],
    )
}

/// The controller writes its own objects of tenants' namespaces, which carry its label and its names, and none in a
/// namespace that is exempt or known to be outside every tenant.
///
/// A policy can't know the owners that a Tenant declares: all that it can read is what the controller writes. The webhook
/// [`OWNERS`](webhook::OWNERS) compares bindings with Tenants; this holds without it, and against a Tenant that names Croft.
fn tenant_objects() -> Policy {
    let own = |object: &str| {
        format!(
            "({object} == null || ('{TENANT_LABEL}' in {object}.metadata.?labels.orValue({{}}) && \
             {object}.metadata.name.startsWith('{TENANT_OBJECT_PREFIX}')))"
        )
    };
    let what = "request.resource.resource + ' ' + request.namespace + '/' + request.name";
    let is_not_binding = "request.resource.resource != 'rolebindings' || request.operation == 'DELETE'";
    policy(
        "croft-controller-tenant-objects",
        CONTROLLER,
        constraints_of(
            &[
                ("networking.k8s.io", &["networkpolicies"]),
                ("", &["resourcequotas", "limitranges"]),
                ("rbac.authorization.k8s.io", &["rolebindings"]),
            ],
            &["CREATE", "UPDATE", "DELETE"],
        ),
        Vec::new(),
        vec![
            (
                format!("{} && {}", own("object"), own("oldObject")),
                format!(
                    "'the controller may write objects with the label {TENANT_LABEL} and a name that begins with \
                     {TENANT_OBJECT_PREFIX}, and not ' + {what}"
                ),
            ),
            (
                format!(
                    "request.operation == 'DELETE' || !(request.namespace == params.metadata.name || request.namespace in {} || \
                     request.namespace in {} || \
                     namespaceObject.metadata.?labels[?'{TENANCY_LABEL}'].orValue('') == '{TENANCY_NONE}')",
                    list(&BUILT_IN_EXEMPT),
                    cel::words(parameter::EXEMPT)
                ),
                format!("'the controller may not write ' + {what} + ': the namespace belongs to no tenant'"),
            ),
            (
                format!(
                    "request.operation != 'UPDATE' || ({} && {})",
                    metadata_but(&["labels"]),
                    same_but_these(".?metadata.?labels", &[TENANT_LABEL])
                ),
                format!("'the controller may not change the metadata of ' + {what} + ' but its own label'"),
            ),
            (
                format!("{is_not_binding} || !({})", binds_reserved_subject()),
                format!("{RESERVED_SUBJECTS} + {what}"),
            ),
            (
                format!("{is_not_binding} || dyn(object).roleRef.kind == 'ClusterRole'"),
                format!("'the controller binds ClusterRoles, and no Roles: ' + {what}"),
            ),
        ],
    )
}

/// CEL: the binding gives its role to a user or group of Kubernetes' own (`system:`), or to a ServiceAccount of Croft, in
/// any spelling. ServiceAccounts of other namespaces may own a tenant: by name, by user name, or by the group of their
/// namespace. Groups that hold every ServiceAccount hold Croft's.
fn binds_reserved_subject() -> String {
    let prefixes = |prefix: &str, end: &str| {
        format!(
            "(s.name.startsWith('{prefix}') && !(s.name + '{end}').startsWith('{prefix}' + params.metadata.name + ':'))"
        )
    };
    format!(
        "dyn(object).?subjects.orValue([]).exists(s, s.kind == 'ServiceAccount' ? \
         s.?namespace.orValue('') == params.metadata.name : (s.name.startsWith('system:') && !(s.kind == 'User' ? {} : {})))",
        prefixes("system:serviceaccount:", ""),
        prefixes("system:serviceaccounts:", ":"),
    )
}

/// CEL: the beginning of the message about such a binding.
const RESERVED_SUBJECTS: &str = "'the controller may not give a role to Croft\\'s own ServiceAccounts, or to a user or group \
                                 whose name begins with system:, but for ServiceAccounts of other namespaces: '";

/// The controller lets a tenant's owners create namespaces, by its own ClusterRoleBindings, and gives no other role in the
/// whole cluster. It may bind further roles in single namespaces, and RBAC can't tell the two apart. Whether the subjects
/// are owners, the webhook [`OWNERS`](webhook::OWNERS) knows.
fn namespace_creators() -> Policy {
    let own = |object: &str| {
        format!(
            "({object} == null || ('{TENANT_LABEL}' in {object}.metadata.?labels.orValue({{}}) && \
             {object}.metadata.name.startsWith('{TENANT_OBJECT_PREFIX}')))"
        )
    };
    let role = format!(
        "(object == null || (object.roleRef.kind == 'ClusterRole' && object.roleRef.name == '{NAMESPACE_CREATOR_ROLE}'))"
    );
    policy(
        "croft-controller-namespace-creators",
        CONTROLLER,
        constraints("rbac.authorization.k8s.io", &["clusterrolebindings"], &["CREATE", "UPDATE", "DELETE"]),
        Vec::new(),
        vec![
            (
                format!("{} && {} && {role}", own("object"), own("oldObject")),
                format!(
                    "'the controller may write ClusterRoleBindings of ClusterRole {NAMESPACE_CREATOR_ROLE} with the label \
                     {TENANT_LABEL} and a name that begins with {TENANT_OBJECT_PREFIX}, and not ' + request.name"
                ),
            ),
            (
                format!(
                    "request.operation != 'UPDATE' || ({} && {})",
                    metadata_but(&["labels"]),
                    same_but_these(".?metadata.?labels", &[TENANT_LABEL])
                ),
                "'the controller may not change the metadata of ClusterRoleBinding ' + request.name + ' but its own label'"
                    .to_owned(),
            ),
            (
                format!("request.operation == 'DELETE' || !({})", binds_reserved_subject()),
                format!("{RESERVED_SUBJECTS} + 'ClusterRoleBinding ' + request.name"),
            ),
        ],
    )
}

/// The controller nominates a node for a pending pod.
fn pods() -> Policy {
    policy(
        "croft-controller-pods",
        CONTROLLER,
        constraints("", &["pods/status"], &["UPDATE"]),
        Vec::new(),
        vec![(
            every(&[metadata_but(&[]), same(".?spec"), same_but_these(".?status", &["nominatedNodeName"])]),
            "'the controller may change status.nominatedNodeName of pod ' + object.metadata.name + ', and nothing else'"
                .to_owned(),
        )],
    )
}

/// The controller writes nodes of pools, and of those only the fields of registration, cordon and repair.
fn nodes() -> Policy {
    let old = |field: &str| format!("oldObject.metadata.?{field}.orValue({{}})");
    let (labels, annotations) = (old("labels"), old("annotations"));
    let taints = |object: &str| format!("{object}.spec.?taints.orValue([])");
    let of_a_pool = format!(
        "!{labels}.exists(k, k in {control_plane}) && ('{POOL_NAME_LABEL}' in {labels} || '{CLAIM_ANNOTATION}' in {annotations} \
         || {old_taints}.exists(t, t.key == '{UNREGISTERED_TAINT}' || t.key in variables.keys) || \
         {labels}.exists(k, k in variables.keys && !k.matches('{ON_EVERY_NODE}')))",
        control_plane = list(&CONTROL_PLANE),
        old_taints = taints("oldObject"),
    );
    let managed = every(&[
        metadata_but(&["labels", "annotations", "finalizers"]),
        // A pool's template chooses labels and annotations, but none that makes a node part of the control plane.
        CONTROL_PLANE.map(|key| format!("!('{key}' in object.metadata.?labels.orValue({{}}))")).join(" && "),
        finalizers(),
        same_but_these(".?spec", &["unschedulable", "taints"]),
        format!(
            "{}.all(t, t.key.startsWith('croft.dev/') || {}.exists(n, n.key == t.key && n.effect == t.effect))",
            taints("oldObject"),
            taints("object")
        ),
        same(".?status"),
    ]);
    policy(
        "croft-controller-nodes",
        CONTROLLER,
        constraints("", &["nodes"], &["UPDATE", "DELETE"]),
        vec![Keys::Declared.variable(), ("ofPool", of_a_pool)],
        vec![
            (
                "variables.ofPool".to_owned(),
                format!(
                    "'the controller may not touch node ' + request.name + ': it has neither the label of a pool, nor the taint \
                     {UNREGISTERED_TAINT}, or it runs the control plane'"
                ),
            ),
            (
                format!("request.operation == 'DELETE' || ({managed})"),
                "'the controller may change labels, annotations, its own finalizers, spec.unschedulable and taints of node ' + \
                 request.name + ', may take away only taints under croft.dev/, and may change nothing else'"
                    .to_owned(),
            ),
        ],
    )
}

/// CEL: only finalizers under croft.dev/ differ.
fn finalizers() -> String {
    let of = |object: &str| {
        format!("{object}.metadata.?finalizers.orValue([]).filter(f, !f.startsWith('croft.dev/'))")
    };
    format!("{} == {}", of("object"), of("oldObject"))
}

/// The controller doesn't change the specs that users declare.
fn declarations() -> Policy {
    policy(
        "croft-controller-declarations",
        CONTROLLER,
        constraints(
            "croft.dev",
            &["tenants", "tenantpools", "ec2nodeclasses", "croftconfigs"],
            &["UPDATE"],
        ),
        Vec::new(),
        vec![(
            every(&[metadata_but(&["finalizers"]), finalizers(), same(".?spec")]),
            "'the controller may change its own finalizers of ' + request.resource.resource + ' ' + request.name + ', and \
             nothing else'"
                .to_owned(),
        )],
    )
}

/// The webhook writes its registration: address, caBundle, namespace selectors and match conditions. Rules, failure
/// policy and time limit stay as in [`shipped`], and none of those webhooks is removed.
fn configurations() -> Policy {
    const MUTATING: &str = "mutatingwebhookconfigurations";
    let owned = list(&["clientConfig", "namespaceSelector", "matchConditions"]);
    policy(
        "croft-webhook-configurations",
        WEBHOOK_ACCOUNT,
        constraints(
            "admissionregistration.k8s.io",
            &[MUTATING, "validatingwebhookconfigurations"],
            &["UPDATE"],
        ),
        vec![
            ("before", "dyn(oldObject).?webhooks.orValue([])".to_owned()),
            ("after", "dyn(object).?webhooks.orValue([])".to_owned()),
            (
                "shipped",
                format!(
                    "request.resource.resource == '{MUTATING}' ? {} : {}",
                    cel(&shipped(true)),
                    cel(&shipped(false))
                ),
            ),
        ],
        vec![(
            format!(
                "({}) && variables.after.all(w, w.name in variables.shipped && w.all(k, k in {owned} || \
                 (k in variables.shipped[w.name] && w[k] == variables.shipped[w.name][k])) && \
                 variables.shipped[w.name].all(k, k in w)) && variables.before.all(o, !(o.name in variables.shipped) || \
                 variables.after.exists(w, w.name == o.name))",
                metadata_but(&[])
            ),
            "'the webhook may write its own webhooks into ' + request.resource.resource + ' ' + request.name + ', with \
             clientConfig, namespaceSelector and matchConditions of its choice, and nothing else'"
                .to_owned(),
        )],
    )
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
fn cel(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let entries: Vec<String> =
                map.iter().map(|(key, value)| format!("{}: dyn({})", json!(key), cel(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| format!("dyn({})", cel(item))).collect();
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
    let (controller, webhook) = (is_by(CONTROLLER), is_by(WEBHOOK_ACCOUNT));
    let replica =
        |object: &str| format!("{object}.metadata.?labels[?'{REPLICA_LABEL}'].orValue('') == '{WEBHOOK}'");
    let own = format!(
        "request.operation == 'DELETE' ? {old} : ({new} && (oldObject == null || {old}) && \
         variables.name != '{CONTROLLER_LEASE}' && (variables.pod == '' || variables.pod == variables.name))",
        old = replica("oldObject"),
        new = replica("object"),
    );
    let mut constraints = constraints("coordination.k8s.io", &["leases"], &["CREATE", "UPDATE", "DELETE"]);
    // Every node renews a Lease every few seconds, in a namespace that is left out by name.
    if let Some(map) = constraints.as_object_mut() {
        map.insert(
            "namespaceSelector".to_owned(),
            json!({"matchExpressions": [{"key": NAME_LABEL, "operator": "NotIn", "values": BUILT_IN_EXEMPT}]}),
        );
    }
    Policy {
        name: "croft-leases",
        constraints,
        conditions: vec![("by-croft", format!("{controller} || {webhook}"))],
        variables: vec![
            (
                "name",
                "request.operation == 'DELETE' ? oldObject.metadata.name : object.metadata.name".to_owned(),
            ),
            (
                "pod",
                "request.userInfo.?extra[?'authentication.kubernetes.io/pod-name'].orValue([''])[0]"
                    .to_owned(),
            ),
        ],
        validations: vec![
            (
                format!(
                    "!({controller}) || (variables.name == '{CONTROLLER_LEASE}' && \
                     request.operation != 'DELETE')"
                ),
                format!("'the controller writes the Lease {CONTROLLER_LEASE}, and not ' + variables.name"),
            ),
            (
                format!(
                    "!({webhook}) || (variables.name == '{CERTIFICATE_LEASE}' ? \
                     request.operation != 'DELETE' : ({own}))"
                ),
                format!(
                    "'a replica of the webhook writes the Leases {CERTIFICATE_LEASE} and its own, and not ' + variables.name"
                ),
            ),
        ],
        parameters: true,
    }
}
