//! The decision log: what the controller decided, as entries of `croft_record`, and their way into a store.
//!
//! ```text
//!   plans, actions, results, claims ──decisions──▶ Recorder ──Action::WriteRecord──▶ RecordStore
//!                                                     ▲                                │
//!                                                     └──── ActionResult::Record... ◀──┘
//! ```
//!
//! `decisions` makes entries from what the engine handles, `nodes` from changes of NodeClaims. `buffer` leaves out repetitions and
//! asks for a write at most every five seconds; once an hour is over and its entries are written, `ledger` closes it; `snapshots` holds
//! the objects that there are, and makes a snapshot of them every ten minutes. None of them has I/O. [`crate::record_store`] is the trait of stores, and the store in Croft's own namespace; [`crate::record_store::archive`] copies that into an object store.

mod buffer;
mod decisions;
mod ledger;
mod nodes;
mod recorder;
mod snapshots;

pub use buffer::RecordCounts;
pub(crate) use decisions::Facts;
pub use ledger::ClosedCosts;
pub use recorder::Recorder;
