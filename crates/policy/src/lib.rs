//! Who may run where: the rules of Croft's admission, without I/O.
//!
//! ```text
//!  Tenant, TenantPool, CroftConfig, Namespace, Node
//!        │ upsert                                      AdmissionReview (bytes)
//!        ▼                                                   │ review::parse: borrowed, only what is used
//!     Index ──snapshot──▶ Tenants ──────────────────▶ judge ◀┘
//!                            │                          │
//!                            │              Outcome { rule, denial | patch, warnings, tenant, pool }
//!                            ├──▶ audit: what is where it mustn't be
//!                            └──▶ policies: the same rules as CEL, for the API server itself
//! ```
//!
//! Enters: what is declared ([`model`]), and one request at a time ([`review`], [`view`]). Leaves: a verdict
//! ([`judge::Outcome`]) with a JSON Patch ([`patch`]) or a sentence ([`denial`]). The webhook, `croft admit`,
//! `croft plan`, `croft audit` and the controller call the same functions, so that they can't disagree.
//!
//! The invariant: no pod of a tenant runs outside its pools, and no other pod inside them unless shared.

pub mod audit;
mod binding;
mod daemonset;
pub mod denial;
pub mod index;
pub mod judge;
mod keepout;
pub mod model;
pub mod namespace;
pub mod node;
mod object;
pub mod patch;
mod place;
pub mod policies;
pub mod review;
pub mod seen;
pub mod selector;
pub mod stored;
pub mod taint;
mod terms;
mod text;
mod update;
pub mod view;

pub use denial::{Denial, Rule};
pub use index::{Ground, Index, Tenants};
pub use judge::{Outcome, Phase, judge, lost_pins, plan_daemonset, plan_pod, plan_recreated};
pub use model::{Config, Namespace, Node, OnConflict, Pool, Provisioner, Tenant, Unassigned};
pub use place::Source;
pub use text::{Map, Text};
