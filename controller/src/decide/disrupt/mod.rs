//! Disruption: nodes are given back when they aren't worth their price, or aren't what they should be.
//!
//! ```text
//!   repair    not Ready for long              -> deleted, within the breaker's cap
//!   empty     no pods                         -> cordoned, watched, deleted
//!   replace   expired, drifted                -> a move
//!   seek      underutilised                   -> a search
//!   make      what the search found           -> moves
//!   moves     replacement ready -> validated -> replaced claims deleted -> termination drains
//!   say       why each node stays or goes     -> condition Consolidatable on its claim
//! ```
//!
//! One ledger of budgets stands over all of them but repair, which the breaker caps. A reason that comes
//! first in the list takes from the budget first.

pub mod budgets;
pub mod guard;
pub mod make;
pub mod moves;
pub mod repair;
pub mod replace;
pub mod say;
pub mod seek;
pub mod standing;
pub mod tally;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_scheduler::{Price, consolidation::Consolidation};

use super::{Round, empty};
pub use croft_api::{drift, expiry};

/// What disruption remembers; losing it makes waits start anew.
#[derive(Debug, Default)]
pub struct Memory {
    /// By node: a hash of its pods, and since when they are these.
    pub steady_since: BTreeMap<String, (u64, Duration)>,
    /// Claims that were part of a move which was undone, and until when they are left alone.
    pub held_until: BTreeMap<String, Duration>,
    /// Moves whose machines are ready and whose pods find no place there, and since when.
    pub unfit_since: BTreeMap<String, Duration>,
    /// When expiry and drift were last judged, by pool.
    pub replaced: BTreeMap<String, replace::Looked>,
    /// What was found out then.
    pub seen: replace::Seen,
    /// What the search was last asked, by pool.
    pub asked: BTreeMap<String, seek::Asked>,
    /// What it answered.
    pub found: Option<Box<Consolidation>>,
    /// Why each node stays or goes.
    pub saying: say::Saying,
    /// Decisions to give nodes back, and what came of them.
    pub tally: tally::Tally,
    /// Moves whose end is in the tally, for as long as something of them is there.
    pub ended: BTreeSet<String>,
    /// What all moves that were begun to save money save together, per hour.
    pub saved: Price,
}

impl Memory {
    /// True if `claim` is left alone for now.
    #[must_use]
    pub fn holds(&self, claim: &str, round: &mut Round<'_>) -> bool {
        let Some(until) = self.held_until.get(claim).copied() else { return false };
        let holds = until > round.now.mono;
        if holds {
            round.wake_in(until.saturating_sub(round.now.mono));
        }
        holds
    }
}

/// Decides what to give back.
pub fn decide(round: &mut Round<'_>, memory: &mut super::Memory) {
    let snapshot = round.snapshot;
    memory.disruption.held_until.retain(|claim, _| snapshot.claims.contains_key(claim));
    let moves = moves::Moves::read(snapshot);
    let ledger = budgets::Ledger::new(snapshot, &moves);
    seek::watch(round, memory);
    moves.advance(round, memory, &ledger);
    repair::decide(round, memory);
    empty::decide(round, memory, &ledger, &moves);
    replace::decide(round, memory, &ledger, &moves);
    make::decide(round, memory, &ledger, &moves);
    seek::decide(round, memory, &ledger, &moves);
    say::decide(round, memory);
}
