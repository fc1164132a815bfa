//! The rules that hold while Croft is away: ValidatingAdmissionPolicies, evaluated by the API server itself.
//!
//! ```text
//!  Rules ──keys, exempt namespaces──▶ documents() ──▶ six policies and their bindings, whatever the number of tenants
//!  Rules ──pools of a tenant────────▶ namespace_marks() ──▶ annotations and label on each namespace
//! ```
//!
//! A policy knows the pools' keys, which are few, from its own text, and a tenant's pools from its namespace, so
//! that a pod costs the same with one tenant and with ten thousand. The controller writes both anew when they
//! change. What can't be looked up in CEL, which node is in which pool, stays with the webhook.

mod namespaces;
mod nodes;
mod pods;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    index::{Rules, TenantRule},
    model::{POOLS_ANNOTATION, SHARED_ANNOTATION, TENANCY_LABEL, TENANCY_NONE, Unassigned},
};

/// A policy without its boilerplate.
struct Policy {
    name: &'static str,
    constraints: Value,
    conditions: Vec<(&'static str, String)>,
    variables: Vec<(&'static str, String)>,
    /// Expression, and an expression of the message.
    validations: Vec<(String, String)>,
    per_tenant: bool,
}

/// Every policy and its binding, for the API server's `admissionregistration.k8s.io/v1`.
#[must_use]
pub fn documents(rules: &Rules) -> Vec<Value> {
    let keys = list(rules.keys());
    let policies = [
        pods::tenants(rules),
        pods::strangers(rules, &keys),
        pods::updates(rules, &keys),
        nodes::kubelets(rules, &keys),
        namespaces::guarded(),
        namespaces::moves(rules),
    ];
    policies.into_iter().flat_map(|policy| [policy.document(), policy.binding()]).collect()
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
            "variables": named(&self.variables),
            "validations": validations,
        });
        if let (false, Some(spec)) = (self.conditions.is_empty(), spec.as_object_mut()) {
            spec.insert("matchConditions".to_owned(), named(&self.conditions).into());
        }
        if let (true, Some(spec)) = (self.per_tenant, spec.as_object_mut()) {
            spec.insert(
                "paramKind".to_owned(),
                json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant"}),
            );
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": self.metadata(),
            "spec": spec,
        })
    }

    fn binding(&self) -> Value {
        let mut spec = json!({"policyName": self.name, "validationActions": ["Deny"]});
        if let (true, Some(spec)) = (self.per_tenant, spec.as_object_mut()) {
            spec.insert("paramRef".to_owned(), json!({"selector": {}, "parameterNotFoundAction": "Allow"}));
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": self.metadata(),
            "spec": spec,
        })
    }
}

/// Words as a CEL list; JSON's strings are CEL's.
fn list(words: Vec<&str>) -> String {
    json!(words).to_string()
}

/// Constraints on one resource, with namespaces left out by name.
fn constraints(group: &str, resources: &[&str], operations: &[&str], except: &[&str]) -> Value {
    let mut constraints = json!({
        "resourceRules": [{
            "apiGroups": [group],
            "apiVersions": ["v1"],
            "operations": operations,
            "resources": resources,
        }],
    });
    if let (false, Some(map)) = (except.is_empty(), constraints.as_object_mut()) {
        map.insert(
            "namespaceSelector".to_owned(),
            json!({"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": except},
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
    let nobodys = owner.is_none() && !exempt;
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

/// The pools that are shared with a namespace of nobody, as `key=value`; a star for all.
fn shared_annotation(rules: &Rules, namespace: &str) -> Option<String> {
    if rules.is_shared_with(namespace) || rules.unassigned() == Unassigned::Allow {
        return rules.is_shared_with(namespace).then(|| "*".to_owned());
    }
    let shared = rules.pools().iter().filter(|pool| pool.is_shared_with(namespace));
    let entries: Vec<String> = shared.map(|pool| format!("{}={}", pool.key, pool.value)).collect();
    (!entries.is_empty()).then(|| entries.join(";"))
}
