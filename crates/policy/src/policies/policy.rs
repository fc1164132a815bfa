//! One ValidatingAdmissionPolicy with its binding, and the parts that all of them share.

use serde_json::{Value, json};

use crate::{
    definitions::{NAME_LABEL, READS_LABEL},
    tenancy::model::BUILT_IN_EXEMPT,
};

/// The subject whose verb `break-glass` on CroftConfig `default` stops enforcement: a ServiceAccount that need not
/// exist, as (namespace, name).
pub const BREAK_GLASS_SUBJECT: (&str, &str) = ("croft-break-glass", "on");
/// The verb that stops enforcement.
pub const BREAK_GLASS_VERB: &str = "break-glass";

/// A variable of a policy: its name and its expression.
pub(super) type Variable = (&'static str, String);

/// A validation of a policy: its expression, and the expression of its message.
pub(super) type Validation = (String, String);

/// A policy.
pub(super) struct Policy {
    pub(super) name: &'static str,
    pub(super) constraints: Value,
    pub(super) conditions: Vec<Variable>,
    pub(super) variables: Vec<Variable>,
    pub(super) validations: Vec<Validation>,
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
    /// The one of two names that is about these keys.
    pub(super) const fn of(self, built_in: &'static str, declared: &'static str) -> &'static str {
        match self {
            Self::BuiltIn => built_in,
            Self::Declared => declared,
        }
    }

    /// The snippet of the variable `keys`.
    pub(super) const fn name(self) -> &'static str {
        self.of("keys/built-in", "keys/declared")
    }
}

/// A MutatingAdmissionPolicy, which reads Croft's own Namespace as `params`.
pub(super) struct Mutating {
    pub(super) name: &'static str,
    pub(super) constraints: Value,
    pub(super) conditions: Vec<Variable>,
    pub(super) variables: Vec<Variable>,
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
