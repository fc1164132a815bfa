//! One reconcile pass: what every decider is given, and how it asks for actions. [`breaker`] caps removals on evidence that can be wrong,
//! whichever decider asks for them; [`commands`] are the disruptions in flight, which other deciders leave alone.

pub mod breaker;
pub mod commands;
mod context;

pub use context::{PassInputs, ReconcileContext, node_reference, object_reference};
