//! Limits, while machines are there that no claim has.

use croft_cloud::{CloudMachine, MachineState};
use croft_controller::{
    action::{Action, Key, News, Report},
    engine::{Engine, KINDS},
    seam::Answer,
    settings::Settings,
    snapshot::Change,
};
use croft_scheduler::CapacityType;
use serde_json::{Value, json};

use crate::bench::{Bench, at, claim, launched, node, pod, registered_labels};

/// A pool that one m5.large fills.
fn full_pool() -> Bench {
    Bench::with_pool(&json!({"limits": {"cpu": "2"}}))
}

/// The machine of the first claim.
fn machine() -> CloudMachine {
    CloudMachine {
        id: "i-1".to_owned(),
        provider_id: "aws:///us-east-1a/i-1".to_owned(),
        node_name: "node-1".to_owned(),
        instance_type: "m5.large".to_owned(),
        zone: "us-east-1a".to_owned(),
        capacity_type: CapacityType::OnDemand,
        image_id: String::new(),
        state: MachineState::Running,
        launched_at: at(0).wall.as_second(),
        claim: Some("pool-a-1".to_owned()),
        claim_uid: Some("claim-uid".to_owned()),
        pool: Some("pool-a".to_owned()),
        tags: std::collections::BTreeMap::new(),
    }
}

fn running() -> Value {
    let mut status = launched(&[]);
    status["capacity"] = json!({"cpu": "2", "memory": "8Gi", "pods": "29"});
    status
}

fn list(bench: &mut Bench, seconds: u64, machines: Vec<CloudMachine>) {
    let news = vec![News::Machines(at(seconds), machines)];
    bench.engine.complete(Report { news, ..Report::done(vec![Key::Machines]) }, at(seconds));
}

fn lose_the_claim(bench: &mut Bench, seconds: u64) {
    let gone = Change::ClaimGone("pool-a-1".to_owned());
    bench.see(seconds, Change::Gone("claim-uid".into(), Box::new(gone)));
}

fn makes_claims(bench: &mut Bench, seconds: u64) -> bool {
    // The first look opens the batch, the second one plans it.
    let mut actions = bench.decide(seconds);
    actions.extend(bench.decide(seconds + 2));
    let made = actions.iter().any(|action| matches!(action, Action::CreateClaims(_)));
    let ended: Vec<Key> = actions.iter().flat_map(Action::keys).collect();
    bench.engine.complete(Report::done(ended), at(seconds + 2));
    made
}

#[test]
fn a_machine_whose_claim_was_taken_away_counts_until_it_is_gone() {
    for status in
        [running(), json!({"attempt": {"number": 1, "requestHash": "h", "request": "r"}}), json!({})]
    {
        let mut bench = full_pool();
        bench.see(1, claim(10, status.clone(), false));
        bench.decide(1);
        lose_the_claim(&mut bench, 2);
        bench.see(2, pod("a", None));
        assert!(!makes_claims(&mut bench, 2), "{status}");
        // A list of so soon after doesn't show every machine yet.
        list(&mut bench, 10, Vec::new());
        assert!(!makes_claims(&mut bench, 10), "{status}");
        list(&mut bench, 60, vec![machine()]);
        assert!(!makes_claims(&mut bench, 60), "{status}");
        list(&mut bench, 130, Vec::new());
        assert!(makes_claims(&mut bench, 130), "{status}");
    }
}

#[test]
fn a_machine_that_the_cloud_shows_as_ended_counts_no_longer() {
    let mut bench = full_pool();
    bench.see(1, claim(10, running(), false));
    lose_the_claim(&mut bench, 2);
    list(&mut bench, 3, vec![CloudMachine { state: MachineState::ShuttingDown, ..machine() }]);
    bench.see(3, pod("a", None));
    assert!(makes_claims(&mut bench, 3));
}

#[test]
fn a_claim_that_was_released_leaves_its_place_at_once() {
    let mut bench = full_pool();
    bench.see(1, claim(10, running(), true));
    bench.see(1, pod("a", None));
    assert!(!makes_claims(&mut bench, 1));
    let Change::Claim(mut released) = claim(11, running(), true) else { panic!() };
    released.metadata.finalizers = None;
    bench.engine.snapshot.answered(Answer::Claim(released), at(5));
    assert!(makes_claims(&mut bench, 5));
}

#[test]
fn a_machine_that_is_found_without_a_claim_counts_once() {
    let mut bench = full_pool();
    list(&mut bench, 1, vec![machine()]);
    bench.see(1, pod("a", None));
    assert!(!makes_claims(&mut bench, 1));
    // Twice the machine would fit now: its node counts, and not the machine as well.
    bench.see(5, crate::bench::pool(5, &json!({"limits": {"cpu": "4"}})));
    let mut labels = registered_labels();
    labels["node-restriction.kubernetes.io/pool"] = json!("pool-a");
    let closed = json!([{"key": "other", "effect": "NoSchedule"}]);
    bench.see(5, node(20, "aws:///us-east-1a/i-1", labels, closed, true));
    assert!(makes_claims(&mut bench, 5));
}

#[test]
fn nothing_is_planned_before_the_machines_were_listed_once() {
    let mut engine = Engine::new(Settings::default());
    for kind in KINDS {
        engine.observe(Change::Synced(kind), at(0));
    }
    let actions = engine.step(at(0)).actions;
    assert!(actions.iter().any(|action| matches!(action, Action::ListMachines)), "{actions:?}");
    let mut bench = full_pool();
    bench.engine.snapshot.machines = (None, None);
    bench.see(1, pod("a", None));
    assert!(!makes_claims(&mut bench, 1));
    list(&mut bench, 5, Vec::new());
    assert!(makes_claims(&mut bench, 5));
}
