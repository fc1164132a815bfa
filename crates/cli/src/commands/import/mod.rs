//! `croft import`: converts manifests of Gatekeeper and Karpenter to Croft's.
//!
//! ```text
//!  NodePool, Provisioner, EC2NodeClass, AWSNodeTemplate ──karpenter──▶ pools without names, EC2NodeClass ─┐
//!                                                                          │                             ├─▶ objects, and a note
//!  Assign, ModifySet ──gatekeeper──▶ label and tolerations by namespaces ──┴─▶ Tenant, TenantPool ────────┘   for each field left out
//! ```
//!
//! Each field of the input is carried over, or a comment above the object and a warning on standard error name it: `fields` hands out
//! an object's fields one by one, and notes what nothing has taken. Workloads of the input aren't converted: `selected` reads which labels of
//! Karpenter's they need. `templates` makes one pool of those that have one taint. `imported` checks each object by its CRD, and
//! `unsupported` says why a field isn't in it. TenantPool and EC2NodeClass use Karpenter's names where the meaning is the same, so a field
//! is carried over as soon as the CRD has it. Pools get their names and labels last, when all are known, so that no two have the same.

mod command;
mod convert;
mod fields;
mod gatekeeper;
mod imported;
mod karpenter;
mod names;
mod note;
mod pools;
mod selected;
mod templates;
mod unsupported;

pub(crate) use command::{ImportArgs, run};
