//! `croft uninstall`: removes Croft from a cluster, in an order that leaves no instance without an owner and nothing stuck.
//!
//! ```text
//!  drain (default)    Tenants ─▶ TenantPools, whose nodes the controller drains and terminates ──────┐
//!  --keep-instances   controller stopped ─▶ finalizers and NodeClaims ─▶ Tenants ─▶ TenantPools ─────┤
//!     ┌──────────────────────────────────────────────────────────────────────────────────────────────┘
//!     └▶ classes, settings ─▶ policies, webhook configurations ─▶ namespaces, DaemonSets ─▶ processes, rights ─▶ CRDs
//! ```
//!
//! Every step reads what is there, so the command can be interrupted and repeated. Tenants come first, since a pool that
//! a Tenant names isn't deleted. Meanwhile taints and policies isolate the running pods, as after every deletion of a
//! Tenant. The policies come before the namespaces' metadata, which they let only the controller write.

mod command;
mod declared;
mod drain;
mod found;
mod keep;
mod metadata;
mod parts;
mod plan;
mod progress;
mod refused;
mod tenant_objects;

pub(crate) use command::{UninstallArgs, run};
