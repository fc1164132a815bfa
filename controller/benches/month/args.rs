//! The program's arguments, in a file of their own: a test of `croft-xtask` reads the commands of the Makefile by them.

use clap::Parser;
use croft_api::disruption::Preference;

/// A month of a cluster's life
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Days of another month
    #[arg(long, default_value_t = 30)]
    pub(crate) days: u64,
    /// How many times as many pods each tenant has
    #[arg(long, default_value_t = 1)]
    pub(crate) size: u64,
    /// How many tenants there are
    #[arg(long, default_value_t = 50)]
    pub(crate) tenants: u64,
    /// Seed of the load
    #[arg(long, default_value_t = 31)]
    pub(crate) seed: u64,
    /// preference of every pool: Cheapest, Balanced or Calm
    #[arg(long, value_parser = preference)]
    pub(crate) preference: Option<Preference>,
    /// minSavings of every pool
    #[arg(long)]
    pub(crate) min_savings: Option<String>,
    /// consolidateAfter of every pool
    #[arg(long)]
    pub(crate) consolidate_after: Option<String>,
    /// evictionCost of every pool
    #[arg(long)]
    pub(crate) eviction_cost: Option<String>,
    /// The age of pods in the disruption cost, in percent of their age: 0 is the cost of a new pod for all
    #[arg(long)]
    pub(crate) age: Option<u64>,
    /// Time for which a pod that has started costs more to move, in seconds, whatever the preference says
    #[arg(long)]
    pub(crate) rest: Option<u64>,
    /// Plays the month with each preference, and prints a table of cost against evictions
    #[arg(long, conflicts_with = "curve")]
    pub(crate) preferences: bool,
    /// Plays the month at several points of these, and prints a table of cost against evictions
    #[arg(long)]
    pub(crate) curve: bool,
    /// Given by `cargo bench`
    #[arg(long, hide = true)]
    #[allow(dead_code, reason = "it says nothing")]
    bench: bool,
}

fn preference(text: &str) -> Result<Preference, String> {
    let named = Preference::ALL.into_iter().find(|preference| preference.as_str() == text);
    named.ok_or_else(|| "write Cheapest, Balanced or Calm".to_owned())
}
