//! The connection of a process to EC2, with its faults.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use croft_ec2_sim::{
    answer::{Answer, Call, Refusal},
    world::World,
};
use tokio::time::sleep;

use super::{
    environment::{Environment, Links},
    kubelet::REGION,
    volumes,
};
use crate::random::Random;

/// How long a call takes to EC2, and its answer back: the least and the most.
pub(crate) const LATENCY_MS: (u64, u64) = (5, 400);

/// A connection of one process.
pub(crate) struct Connection {
    pub(crate) environment: Arc<Environment>,
    pub(crate) links: Arc<Links>,
    random: Mutex<Random>,
}

impl Connection {
    pub(crate) fn new(environment: Arc<Environment>, links: Arc<Links>, random: Random) -> Self {
        Self { environment, links, random: Mutex::new(random) }
    }

    /// Sends one call to an account; [`Answer::Aborted`] if the answer is lost, whatever became of the call.
    pub(crate) async fn send(&self, account: &Mutex<World>, call: &Call) -> Answer {
        if call.action == "TerminateInstances" {
            self.check_detached(call);
        }
        let throttled;
        let (before, after, lost, cut) = {
            let mut random = self.random.lock().unwrap();
            let faults = *self.environment.faults.lock().unwrap();
            let (low, high) = LATENCY_MS;
            let (mut before, after) = (random.between(low, high), random.between(low, high));
            if random.permille(faults.slow) {
                before += random.between(500, 5_000);
            }
            throttled = random.permille(faults.cloud_throttled);
            (before, after, random.permille(faults.cloud_lost), random.permille(faults.cloud_cut))
        };
        let sent_in = self.environment.store.lock().unwrap().era;
        self.environment.point(&self.links).await;
        sleep(Duration::from_millis(before)).await;
        self.links.wait_while_paused().await;
        if cut || self.links.cloud_cut.load(Ordering::Relaxed) {
            sleep(Duration::from_secs(3)).await;
            return Answer::Aborted;
        }
        if throttled {
            return Answer::Refused(Refusal::new("RequestLimitExceeded", "Request limit exceeded."));
        }
        let (answer, more) = account.lock().unwrap().handle(call, self.environment.now_ms());
        if call.action == "TerminateInstances" && !matches!(answer, Answer::Refused(_)) {
            let mut store = self.environment.store.lock().unwrap();
            for id in call.params.list("InstanceId") {
                store.terminations.entry(id).or_insert(sent_in);
            }
        }
        if matches!(call.action.as_str(), "CreateFleet" | "TerminateInstances" | "CreateTags") {
            tracing::debug!(at = self.environment.now_ms(), action = call.action, params = ?call.params, "called");
        }
        self.environment.changed.notify_waiters();
        self.environment.point(&self.links).await;
        sleep(Duration::from_millis(after + more)).await;
        self.links.wait_while_paused().await;
        if lost { Answer::Aborted } else { answer }
    }

    /// Notes a violation if a claim's instance is terminated while the controller has to wait for volumes. Instances
    /// without a claim have no Node that volumes were attached to.
    fn check_detached(&self, call: &Call) {
        let ms = self.environment.now_ms();
        let mut store = self.environment.store.lock().unwrap();
        let world = self.environment.world.lock().unwrap();
        let shown = self.links.attachments.lock().unwrap();
        for id in call.params.list("InstanceId") {
            let Some(instance) = world.instance(&id).filter(|i| i.state.is_alive()) else { continue };
            let is_claimed = store.of_kind("NodeClaim").any(|(_, claim)| {
                claim["status"]["providerId"].as_str().is_some_and(|own| own.ends_with(&id))
            });
            let names = volumes::not_waited_for(&store, &instance.dns_name(REGION), &shown, ms);
            if is_claimed && !names.is_empty() {
                store.broken.push(format!("instance {id} was terminated with volumes attached: {names:?}"));
            }
        }
    }
}
