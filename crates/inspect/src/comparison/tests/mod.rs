//! Comparisons of small clusters, and the labels of launchers.

mod launchers;
mod sides;
mod world;
