//! Models of earlier times, from the snapshots of the record.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use croft_inspect::recorded_input;
use croft_manifest::InputError;
use croft_record::snapshot::read::Moment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::store::State;
use crate::{
    cluster::{
        objects::{Cluster, put},
        recorded::{RecordedState, claim_conditions},
    },
    model::facts::Model,
};

/// Models that are kept: the slider goes back and forth.
const KEPT: usize = 4;
/// The model of a younger snapshot isn't kept: the log may still lack entries from before it.
const COMPLETE_AFTER_MILLIS: i64 = 60_000;

/// The models that were asked for last, the newest request first.
#[derive(Default)]
pub struct PastModels(Mutex<VecDeque<Arc<Model>>>);

impl PastModels {
    fn get(&self, at: i64) -> Option<Arc<Model>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().position(|model| model.at == at)?;
        let model = kept.remove(found)?;
        kept.push_front(model.clone());
        Some(model)
    }

    fn put(&self, model: Arc<Model>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_front(model);
        kept.truncate(KEPT);
    }
}

/// The model of the last snapshot up to `at`, whose time is the model's; none if there is none so old, or it can't be read. Decodes a
/// segment, which takes up to seconds.
#[must_use]
pub fn model(state: &State, at: i64, now: i64) -> Option<Arc<Model>> {
    let segments = state.log().snapshots_until(at);
    let (segment, taken) = segments.iter().find_map(|segment| Some((segment, segment.last_until(at)?)))?;
    if let Some(known) = state.past_models().get(taken) {
        return Some(known);
    }
    let (recorded, conditions) = {
        let log = state.log();
        (RecordedState::after(log.until(taken)), claim_conditions(log.until(taken)))
    };
    let model = match build(&segment.moment(taken)?, &recorded, conditions) {
        Ok(model) => Arc::new(model),
        Err(error) => {
            tracing::warn!(%error, snapshot = taken, "a snapshot of the record can't be read");
            return None;
        }
    };
    if now.saturating_sub(taken) >= COMPLETE_AFTER_MILLIS {
        state.past_models().put(model.clone());
    }
    Some(model)
}

/// The model of a snapshot. Conditions of NodeClaims and reasons of pods are those of the log up to then.
fn build(
    moment: &Moment,
    recorded: &RecordedState,
    conditions: BTreeMap<String, Vec<Condition>>,
) -> Result<Model, InputError> {
    let mut cluster = Cluster::new(recorded_input(moment)?);
    for (name, conditions) in conditions {
        let Some(claim) = cluster.input.claims.get("", &name) else { continue };
        let mut claim = claim.object.clone();
        claim.status.get_or_insert_default().conditions = conditions;
        put(&mut cluster.input.claims, claim);
    }
    Ok(Model::build(&cluster, recorded, 0, moment.at))
}
