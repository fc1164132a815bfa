//! EC2NodeClasses: what they name, and what the cloud offers to them.

use std::{sync::Arc, time::Duration};

use croft_api::{EC2NodeClass, condition::READY};
use croft_cloud::{ClassFindings, InUse};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{Memory, Round, findings, instances::instance_of, reference};
use crate::{
    act::launch::recorded,
    action::{Action, Key, Resolution},
};

/// A class that isn't ready is looked at this often: somebody is probably mending it.
const UNREADY_EVERY: Duration = Duration::from_secs(15);

/// When a class was last asked about.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// When it was last resolved, and at which generation.
    pub resolved: Option<(Duration, Option<i64>)>,
    /// Whether everything it names was there.
    pub ready: bool,
    /// When the cloud's offers were last asked for.
    pub offers: Option<Duration>,
    /// What was found before and is missing, and since when something is.
    pub lost: Option<(Duration, Vec<String>)>,
}

impl Asked {
    /// Takes in what was found of `class`.
    pub fn found(&mut self, class: &EC2NodeClass, findings: &ClassFindings, mono: Duration) {
        if !self.ready && findings.is_ready() {
            self.offers = None;
        }
        self.ready = findings.is_ready();
        let lost = findings::lost(class, findings);
        let since = self.lost.as_ref().map_or(mono, |(since, _)| *since);
        self.lost = (!lost.is_empty()).then_some((since, lost));
    }
}

/// Says what a class lacks: its conditions do, and whoever looks at events learns it as well.
fn tell(round: &mut Round<'_>, class: &EC2NodeClass) {
    let Some(status) = &class.status else { return };
    let current = |c: &&Condition| c.observed_generation == class.metadata.generation;
    for lacking in
        status.conditions.iter().filter(|c| c.status == "False" && c.type_ != READY).filter(current)
    {
        round.repeat(reference(class), lacking);
    }
}

/// Decides what to ask about classes.
pub fn decide(round: &mut Round<'_>, memory: &mut Memory) {
    let snapshot = round.snapshot;
    let mono = round.now.mono;
    memory.class_asked.retain(|name, _| snapshot.classes.contains_key(name));
    for (name, class) in &snapshot.classes {
        if class.object.metadata.deletion_timestamp.is_some() {
            continue;
        }
        tell(round, &class.object);
        let asked = memory.class_asked.entry(name.clone()).or_default();
        let generation = class.object.metadata.generation;
        let every = if asked.ready { round.settings.resolve_every } else { UNREADY_EVERY };
        let due = match asked.resolved {
            Some((at, seen)) if seen == generation => round.has_lasted(at, every),
            _ => true,
        };
        if due && round.is_idle(&Key::Class(name.clone())) {
            asked.resolved = Some((mono, generation));
            let since = asked.lost.as_ref().map(|(since, _)| *since);
            let confirmed = since.is_some_and(|since| round.has_lasted(since, findings::ABSENT_FOR));
            round.act(Action::Resolve(Resolution { class: Arc::clone(&class.object), confirmed }));
        }
        if let Some((_, lost)) = &asked.lost {
            let note = format!(
                "{} no longer found: the look-up may be incomplete, or a tag was taken off. No node is replaced for it \
                 before it has been so for {} minutes; launches use what is found now",
                lost.join(", "),
                findings::ABSENT_FOR.as_secs() / 60,
            );
            round.tell(reference(&*class.object), true, "FindingsMissing", note);
        }
        let due = asked.offers.is_none_or(|at| round.has_lasted(at, round.settings.offers_every));
        if asked.ready && due && round.is_idle(&Key::Offers(name.clone())) {
            asked.offers = Some(mono);
            round.act(Action::AskOffers(Arc::clone(&class.object)));
        }
    }
    let due = match memory.swept {
        Some(at) => round.has_lasted(at, round.settings.sweep_every),
        // Not at the start, when there is other work.
        None => {
            memory.swept = Some(mono);
            false
        }
    };
    if due && round.is_idle(&Key::Sweep) {
        memory.swept = Some(mono);
        let claims = snapshot.claims.values();
        round.act(Action::Sweep(InUse {
            classes: snapshot.classes.values().map(|class| (*class.object).clone()).collect(),
            unanswered: claims.clone().filter_map(|claim| recorded(claim)).collect(),
            instances: claims.filter_map(|claim| instance_of(claim)).map(str::to_owned).collect(),
        }));
    }
}
