//! Objects that Croft keeps in tenants' namespaces, as their Tenants declare them: NetworkPolicies, ResourceQuotas,
//! LimitRanges and RoleBindings; and in the whole cluster the ClusterRoleBindings of owners who may create namespaces.
//!
//! ```text
//!  Tenant, its namespaces ──▶ expected ─┐
//!                                       ├──▶ compare ──▶ create, restore, remove
//!  watch, by Croft's label ──▶ held ────┘        └─────▶ namespaces that still lack one: no pod is let in
//! ```
//!
//! An object is Croft's if it carries [`TENANT_LABEL`](croft_policy::definitions::TENANT_LABEL). Objects of others are
//! neither watched nor written, not even one with the name of an object that Croft would create. A new namespace gets the
//! annotation that lets its first pod in once its objects are there.

mod compare;
mod comparison;
mod created;
mod expected;
mod share_writes;

pub(super) use compare::compare;
pub(super) use comparison::{Comparison, Kept};
pub(super) use created::{Created, let_in};
pub(super) use share_writes::share_used;
