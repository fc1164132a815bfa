//! `croft plan --live`: the effects of an edit of Tenants, TenantPools, EC2NodeClasses or the CroftConfig.
//!
//! ```text
//!  cluster ──▶ Input before ──┬─────────────────────────▶ admission, simulation ──┐
//!  -f ────────────────────────┴──put──▶ Input after ────▶ admission, simulation ──┴──difference──▶ Impact
//! ```
//!
//! The rules are the controller's own: admission of each pod and DaemonSet, drift and expiry of each claim, and the
//! scheduler's plan for displaced pods; and the objects that it keeps in tenants' namespaces. `croft simulate --record` begins
//! with the same edit of the cluster ([`edit`]), which may also remove objects.

mod changes;
mod compare;
mod given;
mod model;
mod nodes;
mod pods;
mod removal;
mod text;

pub(super) use compare::impact;
pub(in crate::commands) use compare::{Edit, edit, without_leaving};
pub(in crate::commands) use model::Edited;
pub(in crate::commands) use pods::created_under;
pub(in crate::commands) use removal::Removal;
pub(super) use text::write;
