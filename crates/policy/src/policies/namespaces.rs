//! Namespaces: the metadata that only Croft writes, and the tenants that a write moves a namespace into or out of.

use crate::{
    policies::{
        cel::{Cel, SHARED},
        constants::CHECKS,
        policy::{Policy, Validation, Variable, constraints},
    },
    rules::namespace::OWNERS_ANNOTATIONS,
};

const CEL: Cel = Cel("namespaces");

pub(super) const NAMESPACE_RESOURCES: [&str; 3] = ["namespaces", "namespaces/status", "namespaces/finalize"];

/// A rule for each of the first tenants or objects.
fn each(rule: &str) -> impl Iterator<Item = Validation> {
    (0..CHECKS).map(move |i| CEL.rule_with(rule, &[&i.to_string()]))
}

/// The variables about Croft's annotations of a namespace: all that are written and all from before, and the keys of those of
/// Croft that differ.
pub(super) fn own_annotations() -> Vec<Variable> {
    CEL.variables(&["written", "before", "changed"])
}

/// Only Croft writes the label and the annotations that webhooks and policies read. What others change is taken back before,
/// by the webhook or a mutating policy: this one refuses what neither of them has seen.
pub(super) fn reserved() -> Policy {
    Policy {
        name: "croft-reserved-metadata",
        constraints: constraints("", &NAMESPACE_RESOURCES, &["CREATE", "UPDATE"], false),
        conditions: SHARED.variables(&["not-croft"]),
        variables: own_annotations(),
        validations: vec![CEL.rule("keeps_label"), CEL.rule("keeps_annotations")],
        parameters: true,
    }
}

/// Croft's own Namespace, which the policies read, stays while there are Tenants or they hold for pools alone: without it they would
/// hold for no pod.
pub(super) fn own_namespace() -> Policy {
    Policy {
        name: "croft-own-namespace",
        constraints: constraints("", &["namespaces"], &["DELETE"], false),
        conditions: CEL.variables(&["own-namespace"]),
        variables: Vec::new(),
        validations: vec![CEL.rule("may_go")],
        parameters: true,
    }
}

/// Only a user with the verb `assign` on a Tenant may begin or end its claim on a namespace.
pub(super) fn moves() -> Policy {
    let others = [CEL.rule("may_move_more"), CEL.rule("knows_all_tenants")];
    Policy {
        name: "croft-namespace-moves",
        constraints: constraints("", &NAMESPACE_RESOURCES, &["CREATE", "UPDATE"], true),
        conditions: CEL.variables(&["labels-change", "not-exempt"]),
        variables: CEL.variables(&["labels", "before/labels", "tenants", "owned/moves", "moved", "assigns"]),
        validations: each("may_move").chain(others).collect(),
        parameters: true,
    }
}

/// Only a user with the verb `assign` on each object that opens something to a name may create a namespace of that name:
/// see [`opened_by`](crate::namespace::opened_by).
pub(super) fn names() -> Policy {
    Policy {
        name: "croft-namespace-names",
        constraints: constraints("", &["namespaces"], &["CREATE"], false),
        conditions: Vec::new(),
        variables: CEL.variables(&["opened_by"]),
        validations: each("may_open").chain([CEL.rule("may_open_more")]).collect(),
        parameters: true,
    }
}

/// The name of the policy that keeps owners to their prefix.
pub const NAMESPACE_CREATION_POLICY: &str = "croft-namespace-creation";

/// Owners with the role [`NAMESPACE_CREATOR_ROLE`](crate::definitions::NAMESPACE_CREATOR_ROLE) create namespaces under their
/// tenants' prefixes, and none of any other name, whatever the parameters say and even while they lag.
pub(super) fn creation() -> Policy {
    let is_owners = OWNERS_ANNOTATIONS.map(|beginning| format!("k.startsWith('{beginning}')")).join(" || ");
    let mut variables =
        CEL.variables(&["own", "owned/creation", "full", "pending", "opened", "labels/refused"]);
    variables.push(CEL.variable_with("annotations/refused", &[&is_owners]));
    let rules = [
        "has_prefix",
        "is_within_maximum",
        "is_enforced",
        "has_owners_labels",
        "has_owners_annotations",
        "has_no_finalizer",
    ];
    Policy {
        name: NAMESPACE_CREATION_POLICY,
        constraints: constraints("", &["namespaces"], &["CREATE"], false),
        conditions: CEL.variables(&["by-an-owner-or-without-the-right-by-now", "not-by-an-operator"]),
        variables,
        validations: rules.map(|name| CEL.rule(name)).to_vec(),
        parameters: true,
    }
}
