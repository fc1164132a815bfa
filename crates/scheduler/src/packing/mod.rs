//! Packing: item types into bins, each bin an instance to launch.

pub(crate) mod bins;
pub(crate) mod colocation;
pub(crate) mod column_generation;
pub(crate) mod compatibility;
pub(crate) mod first_fit_decreasing;
pub(crate) mod greedy;
pub(crate) mod knapsack;
pub(crate) mod limits;
pub(crate) mod neighbourhood_search;
pub(crate) mod offering_table;
pub(crate) mod portfolio;
pub(crate) mod problem;
pub(crate) mod random;
pub(crate) mod rows;
pub(crate) mod simplex;
