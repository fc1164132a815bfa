//! Prices of small clusters, and laws of all.

mod edits;
mod laws;
mod parts;
mod prices;
mod world;
