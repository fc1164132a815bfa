//! One reconcile pass: what every decider is given, and how it asks for actions.

mod context;

pub use context::{PassInputs, ReconcileContext, node_reference, object_reference};
