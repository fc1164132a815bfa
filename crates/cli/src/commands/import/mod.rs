//! `croft import`: converts manifests of Gatekeeper and Karpenter to Croft's.
//!
//! ```text
//!  Assign, ModifySet ──gatekeeper──▶ label and tolerations by namespaces ─┐
//!                                                                         ├─▶ Tenant, TenantPool, EC2NodeClass
//!  NodePool, Provisioner, EC2NodeClass, AWSNodeTemplate ──karpenter──▶ ───┘   and a note for each field left out
//! ```
//!
//! A field that Croft doesn't have becomes a comment above the object and a warning on standard error. TenantPool and
//! EC2NodeClass use Karpenter's names where the meaning is the same, so a field is carried over as soon as the CRD has it.

mod command;
mod gatekeeper;
mod imported;
mod karpenter;

pub(crate) use command::{ImportArgs, run};
