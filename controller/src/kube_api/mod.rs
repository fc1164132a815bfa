//! The API server: the calls that the controller makes, the watches that it follows, and the leader gate.

mod api;
mod change;
mod client;
mod kind;
pub mod leader_gate;
mod tenant_object;
mod trim;
pub mod watch;

pub use api::{ApiError, Call, KubeApi, Response, Target, Verb};
pub use change::{Change, Object, ObjectId, Version};
pub use client::{KubeClient, record_slot};
pub use kind::{Kind, Selector};
pub use tenant_object::{ObjectKey, ObjectKind};
