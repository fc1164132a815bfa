//! The policies that tell the controller which parameters, and which mutating policies, are in force.

use crate::policies::{
    cel::Cel,
    policy::{Mutating, Policy, Variable, constraints},
};

const CEL: Cel = Cel("in_force");

fn conditions() -> Vec<Variable> {
    CEL.variables(&["own-namespace", "probe"])
}

/// Tells the controller whether its parameters are in force: a dry run that names the revision is refused once the
/// policies read that revision. All policies read one cache, so one answer holds for all.
pub(super) fn policy() -> Policy {
    Policy {
        name: "croft-parameters",
        constraints: constraints("", &["namespaces"], &["UPDATE"], false),
        conditions: conditions(),
        variables: Vec::new(),
        validations: vec![CEL.rule("is_another_revision")],
        parameters: true,
    }
}

/// Adds the version of the mutating policies to a probe of the parameters, so that its answer says whether they act.
pub(super) fn mutation(version: &str) -> Mutating {
    Mutating {
        name: "croft-mutation-probe",
        constraints: constraints("", &["namespaces"], &["UPDATE"], false),
        conditions: conditions(),
        variables: Vec::new(),
        patches: CEL.with("patches", &[version]),
        failure: "Fail",
    }
}
