//! Namespaces: what others write of Croft's label and annotations is taken back.

use crate::policies::{
    cel::{Cel, SHARED},
    namespaces::{NAMESPACE_RESOURCES, own_annotations},
    policy::{Mutating, constraints},
};

/// Takes back what a write by others changes of Croft's metadata, in both modes: where this acts, the webhook has nothing to
/// take back.
pub(super) fn policy() -> Mutating {
    Mutating {
        name: "croft-namespace-metadata",
        constraints: constraints("", &NAMESPACE_RESOURCES, &["CREATE", "UPDATE"], false),
        conditions: SHARED.variables(&["not-croft"]),
        variables: own_annotations(),
        patches: Cel("kept_metadata").text("patches"),
        failure: "Ignore",
    }
}
