//! The policy that tells the controller which parameters are in force.

use crate::{
    definitions::parameter::{PROBE, PROBED_MUTATION, REVISION},
    policies::{
        cel,
        parameters::{IN_FORCE, MUTATED_BY},
        policy::{Policy, constraints},
    },
};

/// Tells the controller whether its parameters are in force: a dry run that names the revision is refused once the
/// policies read that revision. All policies read one cache, so one answer holds for all.
pub(super) fn policy() -> Policy {
    Policy {
        name: "croft-parameters",
        constraints: constraints("", &["namespaces"], &["UPDATE"], false),
        conditions: vec![
            ("own-namespace", "object.metadata.name == params.metadata.name".to_owned()),
            ("probe", format!("request.dryRun && '{PROBE}' in object.metadata.?annotations.orValue({{}})")),
        ],
        variables: Vec::new(),
        validations: vec![(
            format!("object.metadata.annotations['{PROBE}'] != {}", cel::text(REVISION)),
            format!(
                "'{IN_FORCE}' + {} + object.metadata.?annotations[?'{PROBED_MUTATION}'].optMap(v, '{MUTATED_BY}' + v)\
                 .orValue('')",
                cel::text(REVISION)
            ),
        )],
        parameters: true,
    }
}
