//! Croft's custom resources, group `croft.dev`, version `v1alpha1`, all cluster-scoped.
//!
//! ```text
//!  Tenant ──pools──▶ TenantPool ──template.nodeClassRef──▶ EC2NodeClass
//!    │ namespaces          │ launches
//!    ▼                     ▼
//!  Namespace            NodeClaim ──▶ Node            CroftConfig (singleton `default`)
//! ```
//!
//! Users write these types. The comment of each field is what `kubectl explain` shows, and each cross-field rule is a
//! CEL rule in the generated CRD. `Default` gives what the API server would fill in, so that a file means the same
//! offline as applied. `xtask` generates the CRDs from [`crds`].
//!
//! The pure crates have types of their own; [`convert`] makes those. Webhook, controller and CLI decode objects with
//! [`stored`] and check files with [`rules`].

#![allow(clippy::duplicated_attributes, reason = "kube's printcolumn and validation are repeated by design")]

pub mod amount;
mod bounds;
pub mod budget;
pub mod claim;
pub mod condition;
pub mod config;
pub mod convert;
pub mod definitions;
pub mod disruption;
pub mod drift;
pub mod expiry;
pub mod given;
pub mod hash;
mod kind;
pub mod nodeclass;
pub mod pause;
pub mod per_tenant;
pub mod pool;
mod pool_status;
pub mod rules;
pub mod schedule;
pub mod sentence;
pub mod stored;
pub mod tenant;
pub mod window;
pub mod zone;

pub use claim::{NodeClaim, NodeClaimSpec, NodeClaimStatus};
pub use config::{CroftConfig, CroftConfigSpec, CroftConfigStatus};
pub use croft_policy::duration;
pub use definitions::{GROUP, VERSION};
pub use nodeclass::{EC2NodeClass, EC2NodeClassSpec, EC2NodeClassStatus};
pub use pool::{TenantPool, TenantPoolSpec, TenantPoolStatus};
pub use tenant::{Tenant, TenantSpec, TenantStatus};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// Every CRD of Croft, in the order in which they are installed.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![Tenant::crd(), TenantPool::crd(), EC2NodeClass::crd(), NodeClaim::crd(), CroftConfig::crd()]
}
