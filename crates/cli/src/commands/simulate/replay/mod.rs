//! `croft simulate --from TIME --to TIME -f changes.yaml`: what a recorded time would have cost with other settings.
//!
//! ```text
//!   each snapshot ─┬─────────────────────────────▶ cost as recorded
//!                  ├─────────▶ Replay: before ──▶ cost, evictions
//!                  └─edit────▶ Replay: after ───▶ cost, evictions
//! ```
//!
//! Both sides are simulated, so that their difference is that of the settings and not of the model. The edit is that of
//! `croft plan --live`, made in each snapshot.

mod play;
mod report;

pub(super) use play::{Player, Question};
