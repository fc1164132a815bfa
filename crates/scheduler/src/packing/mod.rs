//! Packing: item types into bins, each bin an instance to launch.
//!
//! Begin with `problem`, which has the input, and `portfolio`, which runs the searches and keeps the cheapest result.
//!
//! | file | question that it answers |
//! |---|---|
//! | `problem` | what is to be packed, and under which rules |
//! | `portfolio` | which searches run, for how many steps, and which result is kept |
//! | `first_fit_decreasing` | what plan is always found, however few steps there are |
//! | `colocation` | which instance takes a pod together with the pod that its host affinity requires |
//! | `greedy` | which instance and pattern have the best value for their cost next |
//! | `column_generation` | which patterns lower the cost, and a cost that no packing is below |
//! | `knapsack` | which pattern of one instance has the highest value |
//! | `simplex` | how the patterns known so far cover the demand at the least cost, and at which dual prices |
//! | `neighbourhood_search` | whether the pods of a few instances can be packed again for less |
//! | `bins` | how many pods of an item type fit into an open bin, and which offering the bin becomes |
//! | `compatibility` | which offerings all pods of a bin may use |
//! | `offering_table` | what room an offering has and what it costs; which offerings no other one dominates |
//! | `limits` | whether the limits of pools, tenants and offerings allow one more instance |
//! | `rows` | how the amounts of many offerings or item types lie in memory |
//! | `random` | which random numbers a search draws, the same in each run |

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
