//! The API server: the calls that the controller makes, the watches that it follows, and the leader gate.

mod api;
mod change;
mod client;
pub mod leader_gate;
mod tenant_object;
mod trim;
pub mod watch;

pub use api::{ApiError, Call, KubeApi, Response, Target, Verb};
pub use change::{ANY_LIMIT_RANGE, Change, WEBHOOK_REPLICA};
pub use client::{KubeClient, record_slot};
pub use tenant_object::{ObjectKey, ObjectKind};
