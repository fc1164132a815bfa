//! Packing: item types into bins, each bin an instance to launch.
//!
//! In go item types, which are pods that the packing can't tell apart with their count, and variants of pools with the room and the
//! cost of each offering. Out come bins, each an offering with the number of pods of each item type, the rest of the limits, and
//! a cost that no packing is below. Topology domains are decided before; only rules between pods of one host are left.
//!
//! A run has these steps. Begin with `problem`, which has the input, and `portfolio`, which has the steps in order:
//!
//! 1. `first_fit_decreasing` finds a packing.
//! 2. `column_generation` finds patterns of one instance that lower the cost, and the bound.
//! 3. `greedy` rounds them to whole instances, and packs by value for the cost as well.
//! 4. `neighbourhood_search` packs the pods of a few instances again, for as long as that pays.
//!
//! The cheapest of all results is kept, and any step may be the last: steps are counted, and so is the effort that is allowed.
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
//! | `bin_types` | which instances a search considers |
//! | `bins` | how many pods of an item type fit into an open bin, and which offering the bin becomes |
//! | `compatibility` | which offerings all pods of a bin may use |
//! | `offering_table` | what room an offering has and what it costs; which offerings no other one dominates |
//! | `limit_rows` | which limits the relaxation knows, and how much of each an instance uses |
//! | `limits` | whether the limits of pools, tenants and offerings allow one more instance |
//! | `rows` | how the amounts of many offerings or item types lie in memory |
//! | `random` | which random numbers a search draws, the same in each run |

pub(crate) mod bin_types;
pub(crate) mod bins;
pub(crate) mod colocation;
pub(crate) mod column_generation;
pub(crate) mod compatibility;
pub(crate) mod first_fit_decreasing;
pub(crate) mod greedy;
pub(crate) mod knapsack;
pub(crate) mod limit_rows;
pub(crate) mod limits;
pub(crate) mod neighbourhood_search;
pub(crate) mod offering_table;
pub(crate) mod portfolio;
pub(crate) mod problem;
pub(crate) mod random;
pub(crate) mod rows;
pub(crate) mod simplex;
