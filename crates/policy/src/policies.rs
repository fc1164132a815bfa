//! The rules that hold while Croft is away: ValidatingAdmissionPolicies, evaluated by the API server itself.
//!
//! ```text
//!  documents() ──files──▶ policies and their bindings, which never change
//!  Rules ──keys, exempt namespaces, claims──▶ parameters() ──▶ annotations of Croft's own Namespace
//!  Rules ──pools of a tenant────────────────▶ namespace_marks() ──▶ annotations and label on each namespace
//! ```
//!
//! The policies are static files, so that applying the manifests again changes nothing. They read a tenant's pools from
//! its namespace, so that a pod costs the same with one tenant and with ten thousand, and what holds for the whole
//! cluster from [`parameters`](mod@parameters). The rule for tenants' pods, and every rule for the built-in key, needs no parameter:
//! those hold even without Croft's namespace. Which node is in which pool can't be looked up in CEL; the webhook judges it.

mod identities;
mod namespaces;
mod nodes;
pub mod parameters;
mod pods;

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub use parameters::parameters;

use crate::{
    index::{Rules, TenantRule},
    model::{
        BUILT_IN_EXEMPT, MARK_KEY, POOLS_ANNOTATION, SHARED_ANNOTATION, TENANCY_LABEL, TENANCY_NONE,
        Unassigned,
    },
};

/// The subject whose verb `break-glass` on CroftConfig `default` stops enforcement: a ServiceAccount that needn't exist. As
/// (namespace, name).
pub const BREAK_GLASS_SUBJECT: (&str, &str) = ("croft-break-glass", "on");
/// The verb that stops enforcement.
pub const BREAK_GLASS_VERB: &str = "break-glass";

/// A policy without its boilerplate.
struct Policy {
    name: &'static str,
    constraints: Value,
    conditions: Vec<(&'static str, String)>,
    variables: Vec<(&'static str, String)>,
    /// Expression, and an expression of the message.
    validations: Vec<(String, String)>,
    /// Croft's own Namespace is `params`.
    parameters: bool,
}

/// The keys that a rule is about: without parameters the built-in one, with them also those that pools declare.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    BuiltIn,
    Declared,
}

impl Keys {
    /// The variable `keys` of a policy.
    fn variable(self) -> (&'static str, String) {
        let list = match self {
            Self::BuiltIn => json!([MARK_KEY]).to_string(),
            Self::Declared => format!("{} + ['{MARK_KEY}']", parameters::words(parameters::KEYS)),
        };
        ("keys", list)
    }
}

/// Every policy and its binding, for the API server's `admissionregistration.k8s.io/v1`. `namespace` is Croft's own.
#[must_use]
pub fn documents(namespace: &str) -> Vec<Value> {
    let policies = [
        pods::placement(),
        pods::declared_keys(),
        pods::updates(Keys::BuiltIn),
        pods::updates(Keys::Declared),
        nodes::kubelets(Keys::BuiltIn),
        nodes::kubelets(Keys::Declared),
        nodes::taints(Keys::BuiltIn),
        nodes::taints(Keys::Declared),
        namespaces::guarded(),
        namespaces::moves(),
        namespaces::names(),
        parameters::in_force(),
    ];
    let policies = policies.into_iter().chain(identities::all());
    policies.flat_map(|policy| [policy.document(), policy.binding(namespace)]).collect()
}

/// The names of the policies, each of which has a binding of the same name.
#[must_use]
pub fn names() -> Vec<String> {
    let kind = |document: &&Value| {
        document.pointer("/kind").and_then(Value::as_str) == Some("ValidatingAdmissionPolicy")
    };
    let documents = documents("");
    let names = documents.iter().filter(kind).filter_map(|d| d.pointer("/metadata/name")?.as_str());
    names.map(str::to_owned).collect()
}

/// CEL: enforcement is stopped by `croft break-glass on`. An authorization check costs much, so this stands last in an
/// expression: only what would be refused gets there.
fn break_glass() -> String {
    let (namespace, name) = BREAK_GLASS_SUBJECT;
    format!(
        "authorizer.serviceAccount('{namespace}', '{name}').group('croft.dev').resource('croftconfigs').name('default')\
         .check('{BREAK_GLASS_VERB}').allowed()"
    )
}

impl Policy {
    fn metadata(&self) -> Value {
        json!({"name": self.name, "labels": {"app.kubernetes.io/part-of": "croft"}})
    }

    fn document(&self) -> Value {
        let named = |list: &[(&str, String)]| -> Vec<Value> {
            list.iter().map(|(name, expression)| json!({"name": name, "expression": expression})).collect()
        };
        let validations: Vec<Value> = self
            .validations
            .iter()
            .map(|(expression, message)| {
                json!({"expression": expression, "messageExpression": message, "reason": "Forbidden"})
            })
            .collect();
        let mut spec = json!({
            "failurePolicy": "Fail",
            "matchConstraints": self.constraints,
            "validations": validations,
        });
        if let Some(spec) = spec.as_object_mut() {
            if !self.variables.is_empty() {
                spec.insert("variables".to_owned(), named(&self.variables).into());
            }
            if !self.conditions.is_empty() {
                spec.insert("matchConditions".to_owned(), named(&self.conditions).into());
            }
            if self.parameters {
                spec.insert("paramKind".to_owned(), json!({"apiVersion": "v1", "kind": "Namespace"}));
            }
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": self.metadata(),
            "spec": spec,
        })
    }

    fn binding(&self, namespace: &str) -> Value {
        let mut binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": self.metadata(),
            "spec": {"policyName": self.name, "validationActions": ["Deny"]},
        });
        if self.parameters {
            let reference = json!({"name": namespace, "parameterNotFoundAction": "Allow"});
            for (pointer, name, value) in [
                ("/spec", "paramRef", reference),
                // By this an overlay finds the bindings that name Croft's namespace.
                ("/metadata/labels", "croft.dev/reads", json!("parameters")),
            ] {
                if let Some(map) = binding.pointer_mut(pointer).and_then(Value::as_object_mut) {
                    map.insert(name.to_owned(), value);
                }
            }
        }
        binding
    }
}

/// Constraints on one resource; `spare` leaves the built-in exempt namespaces out, by name.
fn constraints(group: &str, resources: &[&str], operations: &[&str], spare: bool) -> Value {
    let mut constraints = json!({
        "resourceRules": [{
            "apiGroups": [group],
            "apiVersions": ["v1"],
            "operations": operations,
            "resources": resources,
        }],
    });
    if let (true, Some(map)) = (spare, constraints.as_object_mut()) {
        map.insert(
            "namespaceSelector".to_owned(),
            json!({"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": BUILT_IN_EXEMPT},
            ]}),
        );
    }
    constraints
}

/// Labels or annotations by key; `None` is one that must not be there.
pub type Marks = BTreeMap<&'static str, Option<String>>;

/// The label and the annotations that a namespace must carry for the policies.
#[must_use]
pub fn namespace_marks(rules: &Rules, namespace: &str, owner: Option<&TenantRule>) -> (Marks, Marks) {
    let exempt = rules.is_exempt(namespace);
    let owner = owner.filter(|_| !exempt);
    // Without a tenant there is no pod to isolate, and no namespace is touched.
    let nobodys = owner.is_none() && !exempt && rules.is_active();
    let label = nobodys.then(|| TENANCY_NONE.to_owned());
    let pools = owner.map(|tenant| pools_annotation(rules, tenant));
    let shared = nobodys.then(|| shared_annotation(rules, namespace)).flatten();
    (
        BTreeMap::from([(TENANCY_LABEL, label)]),
        BTreeMap::from([(POOLS_ANNOTATION, pools), (SHARED_ANNOTATION, shared)]),
    )
}

/// A tenant's pools, as `key=value:effect,effect:mark`, separated by semicolons. None of these characters may be in
/// a label's key or value. A tenant without a pool that exists gets a dash, which no pod can have.
fn pools_annotation(rules: &Rules, tenant: &TenantRule) -> String {
    let pools = tenant.pools.iter().filter_map(|(_, id)| rules.pool((*id)?));
    let entries: Vec<String> = pools
        .map(|pool| {
            let effects: Vec<&str> = pool.effects.iter().map(crate::taint::Effect::as_str).collect();
            format!("{}={}:{}:{}", pool.key, pool.value, effects.join(","), pool.mark())
        })
        .collect();
    if entries.is_empty() { "-".to_owned() } else { entries.join(";") }
}

/// The pools that are open to a non-tenant namespace, as `key=value`; a star for all.
fn shared_annotation(rules: &Rules, namespace: &str) -> Option<String> {
    if rules.is_shared_with(namespace) || rules.unassigned() == Unassigned::Allow {
        return Some("*".to_owned());
    }
    let shared = rules.pools().iter().filter(|pool| pool.is_shared_with(namespace));
    let entries: Vec<String> = shared.map(|pool| format!("{}={}", pool.key, pool.value)).collect();
    (!entries.is_empty()).then(|| entries.join(";"))
}
