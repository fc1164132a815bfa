//! One ValidatingAdmissionPolicy with its binding, and the parts that all of them share.

use serde_json::{Value, json};

use crate::{
    definitions::{NAME_LABEL, POOL_NAME_LABEL, READS_LABEL, parameter},
    policies::cel,
    tenancy::model::BUILT_IN_EXEMPT,
};

/// The subject whose verb `break-glass` on CroftConfig `default` stops enforcement: a ServiceAccount that need not
/// exist, as (namespace, name).
pub const BREAK_GLASS_SUBJECT: (&str, &str) = ("croft-break-glass", "on");
/// The verb that stops enforcement.
pub const BREAK_GLASS_VERB: &str = "break-glass";

/// A variable of a policy: its name and its expression.
pub(super) type Variable = (&'static str, String);

/// A policy.
pub(super) struct Policy {
    pub(super) name: &'static str,
    pub(super) constraints: Value,
    pub(super) conditions: Vec<(&'static str, String)>,
    pub(super) variables: Vec<(&'static str, String)>,
    /// Each validation: its expression, and the expression of its message.
    pub(super) validations: Vec<(String, String)>,
    /// True if the policy reads Croft's own Namespace as `params`.
    pub(super) parameters: bool,
}

/// The pool keys that a rule covers: the built-in one, or those that pools declare, which are parameters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    BuiltIn,
    Declared,
}

impl Keys {
    /// The variable `keys` of a policy.
    pub(super) fn variable(self) -> (&'static str, String) {
        let list = match self {
            Self::BuiltIn => json!([POOL_NAME_LABEL]).to_string(),
            Self::Declared => format!("{} + ['{POOL_NAME_LABEL}']", cel::words(parameter::POOL_KEYS)),
        };
        ("keys", list)
    }
}

/// CEL: enforcement is stopped by `croft break-glass on`. It comes last in an expression of a validating policy, so that
/// only a request that would be refused costs an authorization check.
pub(super) fn break_glass() -> String {
    let (namespace, name) = BREAK_GLASS_SUBJECT;
    format!(
        "authorizer.serviceAccount('{namespace}', '{name}').group('croft.dev').resource('croftconfigs').name('default')\
         .check('{BREAK_GLASS_VERB}').allowed()"
    )
}

/// A MutatingAdmissionPolicy, which reads Croft's own Namespace as `params`.
pub(super) struct Mutating {
    pub(super) name: &'static str,
    pub(super) constraints: Value,
    pub(super) conditions: Vec<(&'static str, String)>,
    pub(super) variables: Vec<(&'static str, String)>,
    /// The expression of the list of JSON patches.
    pub(super) patches: String,
    /// A request whose patches can't be evaluated: `Fail` refuses it, `Ignore` leaves it to the validating policies.
    pub(super) failure: &'static str,
}

fn named(list: &[(&str, String)]) -> Vec<Value> {
    list.iter().map(|(name, expression)| json!({"name": name, "expression": expression})).collect()
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "labels": {"app.kubernetes.io/part-of": "croft"}})
}

impl Mutating {
    pub(super) fn document(&self) -> Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingAdmissionPolicy",
            "metadata": metadata(self.name),
            "spec": {
                "failurePolicy": self.failure,
                "reinvocationPolicy": "IfNeeded",
                "paramKind": {"apiVersion": "v1", "kind": "Namespace"},
                "matchConstraints": self.constraints,
                "matchConditions": named(&self.conditions),
                "variables": named(&self.variables),
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": self.patches}}],
            },
        })
    }

    pub(super) fn binding(&self, namespace: &str) -> Value {
        let mut metadata = metadata(self.name);
        if let Some(labels) = metadata.pointer_mut("/labels").and_then(Value::as_object_mut) {
            labels.insert(READS_LABEL.to_owned(), json!("parameters"));
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {
                "policyName": self.name,
                "paramRef": {"name": namespace, "parameterNotFoundAction": "Allow"},
            },
        })
    }
}

impl Policy {
    pub(super) fn document(&self) -> Value {
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
            "metadata": metadata(self.name),
            "spec": spec,
        })
    }

    pub(super) fn binding(&self, namespace: &str) -> Value {
        let mut binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata(self.name),
            "spec": {"policyName": self.name, "validationActions": ["Deny"]},
        });
        if self.parameters {
            let reference = json!({"name": namespace, "parameterNotFoundAction": "Allow"});
            for (pointer, name, value) in [
                ("/spec", "paramRef", reference),
                // The label by which an overlay finds the bindings that name Croft's own namespace.
                ("/metadata/labels", READS_LABEL, json!("parameters")),
            ] {
                if let Some(map) = binding.pointer_mut(pointer).and_then(Value::as_object_mut) {
                    map.insert(name.to_owned(), value);
                }
            }
        }
        binding
    }
}

/// Constraints on one resource; `spare_built_in` leaves the built-in exempt namespaces out, by name.
pub(super) fn constraints(
    group: &str,
    resources: &[&str],
    operations: &[&str],
    spare_built_in: bool,
) -> Value {
    let mut constraints = json!({
        "resourceRules": [{
            "apiGroups": [group],
            "apiVersions": ["v1"],
            "operations": operations,
            "resources": resources,
        }],
    });
    if let (true, Some(map)) = (spare_built_in, constraints.as_object_mut()) {
        map.insert(
            "namespaceSelector".to_owned(),
            json!({"matchExpressions": [
                {"key": NAME_LABEL, "operator": "NotIn", "values": BUILT_IN_EXEMPT},
            ]}),
        );
    }
    constraints
}
