//! Objects that Croft keeps in tenants' namespaces, as their Tenants declare them: NetworkPolicies.
//!
//! ```text
//!  Tenant, its namespaces ──▶ expected ─┐
//!                                       ├──▶ compare ──▶ create, restore, remove
//!  watch, by Croft's label ──▶ facts ───┘        └─────▶ namespaces that still lack one: no pod is let in
//! ```
//!
//! An object is Croft's if it carries [`TENANT_LABEL`](croft_policy::definitions::TENANT_LABEL). Objects of others are
//! neither watched nor written, not even one with the name of an object that Croft would create. A new namespace gets the
//! annotation that lets its first pod in once its objects are there.

mod compare;
mod expected;
mod facts;

pub(super) use compare::{Comparison, Kept, compare};
pub use facts::TenantObjects;
