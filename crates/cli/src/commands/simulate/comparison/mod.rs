//! `croft simulate --record FILE -f changes.yaml`: what a recorded cluster would cost with other settings.
//!
//! ```text
//!   recorded ─┬──────────────────▶ place pending pods ──▶ consolidate to the end ──┐
//!             └─edit, displace ──▶ place pending pods ──▶ consolidate to the end ──┴─▶ Comparison
//! ```
//!
//! Both sides begin with the same nodes and pods, and the same functions solve them with the same options. The edit is that of
//! `croft plan --live`.

mod changes;
mod compare;
mod model;
mod placements;
mod tables;

pub(super) use changes::check;
pub(super) use compare::{Question, compare, set_prices};
