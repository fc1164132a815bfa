//! Karpenter's pools and classes, of every version still in use, to TenantPools and EC2NodeClasses.

mod class;
mod from_karpenter;
mod kubelet;
mod pool;
mod provisioner;
mod requirements;

pub(super) use from_karpenter::{import, is_of_karpenter};
