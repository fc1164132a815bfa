//! What the cloud, asked by id, says about instances: the evidence on which one counts as gone.
//!
//! ```text
//!   a list lacks it, or shows it going ──┐                       ┌── going: nothing on it can be waited for
//!   news that it stops or terminates  ───┼──▶ described by id ───┼── works: its tag is lost, and is written again
//!   its termination met an unknown id ───┘                       └── unknown: gone once that has lasted, and its node
//!                                                                    isn't Ready
//! ```
//!
//! A list is filtered by a tag that any tool can overwrite, and it shows the one account and region that the process
//! calls. Neither says anything about an instance that it lacks, so the instance is asked for by its id.

use std::{collections::BTreeMap, time::Duration};

use croft_api::{
    NodeClaim,
    condition::{INSTANCE_TAGGED, Statement, set},
};
use croft_cloud::{CloudMachine, MachineState, tags};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Memory, Round, conditions, interrupt, reference, termination::machine_id};
use crate::{
    action::{Action, Key},
    snapshot::NodeView,
};

/// What was answered about instances that were asked for by id.
#[derive(Debug, Default)]
pub struct Answers(BTreeMap<String, Answer>);

#[derive(Debug)]
struct Answer {
    /// When the last question was sent, on the monotonic clock.
    asked: Duration,
    /// The instance; `None` if the account and region don't have the id.
    instance: Option<CloudMachine>,
    /// The first question in a row whose answer was that.
    unknown_since: Option<Duration>,
}

impl Answers {
    /// Takes in what was answered to a question about `ids` that was sent at `asked`.
    pub fn hear(&mut self, asked: Duration, ids: Vec<String>, found: Vec<CloudMachine>) {
        let mut found: BTreeMap<String, CloudMachine> =
            found.into_iter().map(|instance| (instance.id.clone(), instance)).collect();
        for id in ids {
            let instance = found.remove(&id);
            let before = self.0.get(&id).and_then(|known| known.unknown_since);
            let unknown_since = instance.is_none().then(|| before.unwrap_or(asked));
            self.0.insert(id, Answer { asked, instance, unknown_since });
        }
    }

    /// Keeps the answers about instances that `keep` names.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|id, _| keep(id));
    }

    /// True while something speaks against the instance.
    #[must_use]
    pub fn are_about(&self, id: &str) -> bool {
        self.0.contains_key(id)
    }

    /// True if the instance wasn't asked for within `every`.
    #[must_use]
    pub fn is_due(&self, id: &str, now: Duration, every: Duration) -> bool {
        self.0.get(id).is_none_or(|answer| now >= answer.asked.saturating_add(every))
    }

    /// The cloud's last word on the instance.
    fn state(&self, id: &str) -> Option<MachineState> {
        let answer = self.0.get(id)?;
        Some(answer.instance.as_ref().map_or(MachineState::Unknown, |instance| instance.state))
    }

    /// True if every answer of the last `grace` was that the id isn't known.
    fn is_unknown_for(&self, id: &str, grace: Duration) -> bool {
        self.0.get(id).is_some_and(|answer| {
            answer.unknown_since.is_some_and(|since| answer.asked >= since.saturating_add(grace))
        })
    }
}

/// True if the cloud, asked by id, says that the instance is stopping, stopped, shutting down or terminated.
#[must_use]
pub fn is_going(memory: &Memory, id: &str) -> bool {
    let asked_to_go = memory.terminations.get(id).is_some_and(|state| state.is_going());
    asked_to_go || memory.answers.state(id).is_some_and(MachineState::is_going)
}

/// True if the instance is no more: terminated, or certainly unknown while `node` isn't Ready.
#[must_use]
pub fn is_no_more(round: &Round<'_>, memory: &Memory, id: &str, node: Option<&NodeView>) -> bool {
    memory.terminations.get(id) == Some(&MachineState::Terminated)
        || memory.answers.state(id) == Some(MachineState::Terminated)
        || is_lost(round, memory, id, node)
}

/// True if the cloud hasn't known the id for long and the node, if there is one, isn't Ready.
#[must_use]
pub fn is_lost(round: &Round<'_>, memory: &Memory, id: &str, node: Option<&NodeView>) -> bool {
    node.is_none_or(|node| !node.ready) && memory.answers.is_unknown_for(id, round.settings.orphan_grace)
}

/// Asks for the instances that something speaks against, and says of those that work and whose tag is lost.
pub fn decide(round: &mut Round<'_>, memory: &mut Memory) {
    let snapshot = round.snapshot;
    let mut ask = Vec::new();
    for (name, claim) in snapshot.restless() {
        let Some(id) = instance_of(claim) else { continue };
        if !is_doubtful(round, memory, name, claim, id) {
            memory.answers.0.remove(id);
            restored(round, name, claim);
            continue;
        }
        match memory.answers.0.get(id) {
            Some(answer) if !round.has_lasted(answer.asked, round.settings.machines_every) => {}
            _ => ask.push(id.to_owned()),
        }
        untagged(round, memory, name, claim, id);
    }
    if !ask.is_empty() {
        round.act(Action::DescribeInstances(ask));
    }
}

/// The id of the claim's instance.
#[must_use]
pub fn instance_of(claim: &NodeClaim) -> Option<&str> {
    claim.status.as_ref()?.provider_id.as_deref().map(machine_id)
}

/// True if something speaks against the instance, so that it is asked for by id.
fn is_doubtful(round: &Round<'_>, memory: &Memory, name: &str, claim: &NodeClaim, id: &str) -> bool {
    if memory.terminations.get(id) == Some(&MachineState::Unknown) || interrupt::is_gone(claim) {
        return true;
    }
    let Some(list) = &round.snapshot.machines.0 else { return false };
    match list.machines.get(id) {
        Some(listed) => !listed.state.is_alive(),
        None => {
            let known = round.snapshot.milestones(name).launched;
            known.is_some_and(|at| list.asked.mono >= at.saturating_add(round.settings.orphan_grace))
        }
    }
}

/// An instance that works and that no list shows has lost the tag by which lists find it.
fn untagged(round: &mut Round<'_>, memory: &Memory, name: &str, claim: &NodeClaim, id: &str) {
    let Some(instance) = memory.answers.0.get(id).and_then(|answer| answer.instance.as_ref()) else { return };
    let listed = round.snapshot.machines.0.as_ref().is_some_and(|list| list.machines.contains_key(id));
    if listed || !instance.state.is_alive() {
        return;
    }
    let (reason, what) = match instance.tags.get(tags::CLUSTER) {
        None => ("TagMissing", format!("instance {id} has no tag {}", tags::CLUSTER)),
        Some(value) => ("TagOverwritten", format!("instance {id} has the tag {}={value}", tags::CLUSTER)),
    };
    let message = format!(
        "{what}, so that the list of this cluster's instances lacks it. Croft writes the tag again; if the cloud refuses \
         that, write it by hand: aws ec2 create-tags --resources {id} --tags \"Key={},Value=$(kubectl get namespace \
         kube-system -o jsonpath={{.metadata.uid}})\"",
        tags::CLUSTER,
    );
    round.tell(reference(claim), true, reason, message.clone());
    say(round, name, claim, Statement { kind: INSTANCE_TAGGED, status: Some(false), reason, message });
    let uid = claim.metadata.uid.clone().unwrap_or_default();
    let mine = [
        (tags::CLAIM_UID.to_owned(), uid),
        (tags::CLAIM.to_owned(), name.to_owned()),
        (tags::POOL.to_owned(), claim.spec.pool.clone()),
    ];
    round.act(Action::Tag { id: id.to_owned(), tags: mine.into() });
}

/// The tag is there again.
fn restored(round: &mut Round<'_>, name: &str, claim: &NodeClaim) {
    let was_lost = claim
        .status
        .as_ref()
        .and_then(|s| conditions::find(s, INSTANCE_TAGGED))
        .is_some_and(|c| c.status == "False");
    let listed = |id| round.snapshot.machines.0.as_ref().is_some_and(|list| list.machines.contains_key(id));
    if was_lost && instance_of(claim).is_some_and(listed) {
        let message = format!("the instance has the tag {} of this cluster", tags::CLUSTER);
        let tagged = Statement { kind: INSTANCE_TAGGED, status: Some(true), reason: "Tagged", message };
        say(round, name, claim, tagged);
    }
}

fn say(round: &mut Round<'_>, name: &str, claim: &NodeClaim, statement: Statement) {
    let mut status = claim.status.clone().unwrap_or_default();
    set(&mut status.conditions, statement, claim.metadata.generation, Time(round.now.wall));
    if let Some(call) = conditions::write_status(claim, &status) {
        round.act(Action::Write { key: Key::Claim(name.to_owned()), call, rest: Duration::ZERO });
    }
}
