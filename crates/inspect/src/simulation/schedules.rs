//! Schedules of pools: each pool as it is at the input's time.

use std::borrow::Cow;

use croft_api::{TenantPool, schedule::PoolInForce};
use croft_manifest::{Input, Sourced};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::eligibility::time_of;

/// The pools of an input that have schedules.
#[derive(Default)]
pub(super) struct Scheduled {
    /// As they are declared.
    pub(super) declared: Vec<Sourced<TenantPool>>,
    /// When the next schedule begins or ends.
    pub(super) until: Option<Timestamp>,
    /// The schedules that hold, as sentences.
    pub(super) notes: Vec<String>,
}

/// Puts each pool of `input` as its schedules make it at the input's time. Twice is as once.
pub(super) fn put_in_force(input: &mut Input) -> Scheduled {
    let mut found = Scheduled::default();
    let declared = input.pools.iter().filter(|pool| !pool.spec.schedules.is_empty());
    found.declared = declared.cloned().collect();
    let now = time_of(input);
    for Sourced { object: pool, origin } in &found.declared {
        // Rules refuse what can't be read.
        let Ok(PoolInForce { pool: in_force, schedule, until }) = pool.in_force(now) else { continue };
        found.until = [found.until, until].into_iter().flatten().min();
        if let Some(number) = schedule {
            let name = pool.name_any();
            found
                .notes
                .push(format!("TenantPool {name} is planned as its spec.schedules[{number}] makes it now"));
            input.pools.put(in_force.into_owned(), origin.clone());
        }
    }
    found
}

/// The input with its pools as their schedules make them at its time, and the schedules that hold, as sentences.
#[must_use]
pub fn in_force(input: &Input) -> (Cow<'_, Input>, Vec<String>) {
    if input.pools.iter().all(|pool| pool.spec.schedules.is_empty()) {
        return (Cow::Borrowed(input), Vec::new());
    }
    let mut input = input.clone();
    let Scheduled { notes, .. } = put_in_force(&mut input);
    (Cow::Owned(input), notes)
}
