//! The quota of a whole tenant: its amounts, and how it is divided among the tenant's namespaces.

pub(super) mod amounts;
pub(super) mod shares;
