//! Inputs and results: plain values without ids.

pub(crate) mod bit_set;
pub(crate) mod catalog;
pub(crate) mod error;
pub(crate) mod options;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod price;
pub(crate) mod quantity;
pub(crate) mod requirement;
pub mod resources;
pub(crate) mod share;
pub(crate) mod well_known;
