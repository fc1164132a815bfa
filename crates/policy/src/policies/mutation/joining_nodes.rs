//! Nodes that join a pool and that Croft didn't launch.
//!
//! Such a node registers with its pool's own label and taint. The pool-name label, by which most pods are kept off, is the
//! controller's to write, a moment later or, while no controller leads, much later. Until then the node carries the label and
//! taint of a node that has just registered, as nodes of Croft's do: a pod that was created before its key was a pool's
//! stays off.

use crate::policies::{
    cel::Cel,
    policy::{Mutating, constraints},
};

const CEL: Cel = Cel("joining_nodes");

/// Marks a node that joins a pool, in both modes.
pub(super) fn policy() -> Mutating {
    Mutating {
        name: "croft-nodes",
        failure: "Fail",
        constraints: constraints("", &["nodes"], &["CREATE", "UPDATE"], false),
        conditions: CEL.variables(&["joins-a-pool"]),
        variables: Vec::new(),
        patches: CEL.text("patches"),
    }
}
