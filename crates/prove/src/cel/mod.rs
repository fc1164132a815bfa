//! CEL as the API server evaluates it, as far as Croft's policies use it: an evaluator of the syntax trees that the crate
//! `cel` parses.
//!
//! That crate's own interpreter, and with it kube-cel's, lacks the construction of `JSONPatch` and macros of two variables,
//! and takes a field that is absent behind `.?` for an error. What this one can't evaluate, it panics about, so that no
//! policy is understood in part.

mod evaluate;
mod functions;
mod value;

pub use evaluate::{Evaluation, Expression};
pub use value::{Failure, Value};
