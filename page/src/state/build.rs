//! Rebuilds the model after changes.

use std::{sync::Arc, time::Duration};

use croft_runtime::{clock::Clock, health::Gate, shutdown::Shutdown};
use tokio::time::sleep;

use super::store::State;
use crate::model::{change::Change, facts::Model};

/// The least time between two builds.
const PAUSE: Duration = Duration::from_millis(250);
/// A build is followed by a pause of this many times its duration, so that building takes at most a tenth of a processor.
const PAUSE_FACTOR: u32 = 9;
/// Unless an event would wait for longer than this: it is to be on the page within a second.
const MOST_PAUSE: Duration = Duration::from_millis(500);

/// Builds for ever, or until `stop` begins. `listed` is open once every kind has been listed: before that nothing is built.
pub async fn run(state: Arc<State>, clock: Arc<dyn Clock>, listed: Gate, built: Gate, stop: Shutdown) {
    loop {
        tokio::select! {
            () = state.changed() => {}
            () = stop.wait() => return,
        }
        if !listed.is_open() {
            continue;
        }
        let begun = clock.monotonic();
        let (shared, now) = (state.clone(), clock.wall());
        let timed = clock.clone();
        let building = tokio::task::spawn_blocking(move || {
            build(&shared, now.as_millisecond());
            let took = timed.monotonic().saturating_duration_since(begun);
            shared.metrics().observe_build(&shared.model(), took);
        });
        if let Err(error) = building.await {
            tracing::error!(%error, "failed to build the model; the last one stays");
        }
        built.set(true);
        let took = clock.monotonic().saturating_duration_since(begun);
        sleep(took.saturating_mul(PAUSE_FACTOR).clamp(PAUSE, MOST_PAUSE)).await;
    }
}

/// Builds and publishes one model.
pub fn build(state: &State, now: i64) {
    let last = state.model();
    let model = {
        let (cluster, log) = (state.cluster(), state.log());
        Model::build(&cluster, log.state(), last.version + 1, now)
    };
    let change = Change::between(&last, &model);
    if !change.is_empty() {
        state.publish(model, change);
    }
}
