//! A leader that is frozen and resumes later without knowing it: a standby takes over within 15 s, and nothing is done
//! twice.

use std::time::Duration;

use croft_testkit::{
    Process,
    wait::{Seen, until},
};
use croft_tests::chaos::{Arena, first_seed, runs};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;

/// The required maximum, from the leader's last renewal to the standby's first.
const TAKE_OVER: Duration = Duration::from_secs(15);
const PATIENCE: Duration = Duration::from_secs(60);

async fn lease(arena: &Arena) -> kube::Result<Lease> {
    Api::<Lease>::namespaced(arena.client.clone(), "croft-system").get("croft-controller").await
}

fn holder(lease: &Lease) -> String {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default()
}

/// Waits until one of `all` leads. Returns its index and the Lease.
async fn leader(arena: &Arena, all: &[Process], but: &str) -> (usize, Lease) {
    until("a leader", PATIENCE, async || {
        let lease = lease(arena).await?;
        let holder = holder(&lease);
        let found = all.iter().position(|process| process.name() == holder && holder != but);
        Ok::<_, kube::Error>(Seen::from_option(found.map(|at| (at, lease)), holder))
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn standby_takes_over_from_a_frozen_leader_without_double_effects() {
    let mut arena = Arena::start(false).await.unwrap();
    let mut replicas = Vec::new();
    for name in ["controller-one", "controller-two"] {
        replicas.push(arena.stack.croft.replica(&arena.stack.plane, name).await.unwrap());
    }
    arena.open().await.unwrap();
    let first = first_seed(400);
    for seed in first..first + runs(3) {
        let (frozen, _) = leader(&arena, &replicas, "").await;
        let name = replicas[frozen].name().to_owned();
        // During the operations of the run.
        arena.begin(seed).await.unwrap();
        replicas[frozen].freeze();
        let silent = lease(&arena).await.unwrap().spec.unwrap().renew_time.unwrap().0;
        let (next, taken) = leader(&arena, &replicas, &name).await;
        assert_ne!(next, frozen);
        let taken = taken.spec.unwrap().acquire_time.unwrap().0;
        let took = taken.duration_since(silent);
        assert!(took <= TAKE_OVER.try_into().unwrap(), "seed {seed}: the standby took over after {took}");
        println!("seed {seed}: taken over {took:#} after the last sign of life");
        // The standby takes over, and then two replicas believe that they lead.
        arena.rest().await.unwrap();
        arena.begin(seed + 1_000).await.unwrap();
        replicas[frozen].thaw();
        arena.rest().await.unwrap();
        for process in &mut replicas {
            process.check().unwrap();
        }
    }
}
