//! One scheduling run, from the demand to the plan.

pub(crate) mod block;
pub(crate) mod item_types;
pub(crate) mod limits;
pub(crate) mod offerings;
pub(crate) mod reasons;
pub(crate) mod result;
pub(crate) mod solver;
pub(crate) mod tables;
pub(crate) mod tier_packing;
pub(crate) mod tiers;
