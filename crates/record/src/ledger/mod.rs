//! The ledger: who paid what for which node, exactly.
//!
//! ```text
//!   NodeCost { price, stage, requests } from one moment to the next ──charge──▶ amounts by account ──▶ hours of a Book
//! ```
//!
//! [`record::book`] makes a Book from the decision log: the log says when each instance was launched and ended, and from time to time what
//! its pods request. So the ledger survives what the log survives.
//!
//! [`closed::Ledger`] keeps hours and days that are over, and [`record::statement`] has them and what the log says of the hours since.
//!
//! Amounts are integers of a unit that no division of a price per hour leaves a remainder of, and a node's price is divided so that the
//! parts add up. So the sum over all accounts is the sum of price times time, to the last unit.

pub mod amount;
pub mod book;
pub mod closed;
pub mod node;
pub mod record;
mod sheet;
