//! Objects of Croft's whose stored spec can't be read.

use croft_api::{
    CroftConfig, TenantPool,
    stored::{Checked, Stored, Unread},
};
use croft_controller::{
    action::{Action, Key},
    kube_api::{Change, Verb, Version},
    result::ActionReport,
};
use serde_json::{Value, json};

use crate::bench::{Bench, at, claim, launched, node, pod, read, registered_labels};

/// The bench's pool as an older CRD let it in, under `uid`.
fn unread(version: u64, uid: &str) -> Change {
    let stored: Box<Stored<TenantPool>> = read(json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool",
        "metadata": {"name": "pool-a", "uid": uid, "resourceVersion": version.to_string(), "generation": 2,
            "finalizers": ["croft.dev/pool"]},
        "spec": {"key": "node-pool", "disruption": {"consolidateAfter": 5}, "limits": {"cpu": "-1"},
            "template": {"spec": {"nodeClassRef": {"name": "class"}, "expireAfter": "0s"}}},
        "status": {"claimCounter": 7, "conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    }));
    let Unread { stand_in, flaw } = *stored.read(&mut Checked::default()).unwrap_err();
    Change::Version(Version { flaw: Some(Box::new(flaw)), ..Version::new(Box::new(stand_in.unwrap())) })
}

fn running() -> Bench {
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&["Registered", "Initialized", "Ready"]), false));
    bench.see(1, node(11, "aws:///us-east-1a/i-1", registered_labels(), json!([]), true));
    bench.see(1, pod("runs", Some("node-1")));
    bench
}

/// All actions while pods wait, over an hour.
fn actions(bench: &mut Bench) -> Vec<Action> {
    let mut all = Vec::new();
    for seconds in (30..3_600).step_by(2) {
        let actions = bench.decide(seconds);
        let ended: Vec<Key> = actions.iter().flat_map(Action::keys).collect();
        bench.engine.complete(ActionReport::done(ended), at(seconds));
        all.extend(actions);
    }
    all
}

fn launches(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::CreateClaims(_)))
}

fn ends(actions: &[Action]) -> bool {
    actions.iter().any(|action| match action {
        Action::Write { call, .. } => matches!(call.verb, Verb::Delete { .. } | Verb::Evict { .. }),
        Action::Terminate { .. } => true,
        _ => false,
    })
}

#[test]
fn the_last_good_version_of_a_pool_stays_in_force() {
    let mut bench = running();
    bench.see(20, unread(9, "pool-uid"));
    // Once more, as after a write of its status.
    bench.see(21, unread(10, "pool-uid"));
    let held = &bench.engine.snapshot().pools()["pool-a"];
    assert_eq!(held.metadata.resource_version.as_deref(), Some("10"), "writes hold for the newest version");
    assert_eq!(held.spec.disruption.consolidate_after(), "30s");
    for name in ["a", "b"] {
        bench.see(29, pod(name, None));
    }
    let actions = actions(&mut bench);
    assert!(launches(&actions) && !ends(&actions), "{actions:?}");
}

#[test]
fn without_an_earlier_version_nothing_is_launched_and_nothing_ends() {
    let mut bench = running();
    bench.see(20, unread(9, "another"));
    for name in ["a", "b"] {
        bench.see(29, pod(name, None));
    }
    let actions = actions(&mut bench);
    assert!(!launches(&actions) && !ends(&actions), "{actions:?}");
}

/// The CroftConfig with this pause.
fn config(version: &str, paused: &Value) -> Value {
    json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig",
        "metadata": {"name": "default", "uid": "config-uid", "resourceVersion": version, "generation": 1},
        "spec": {"disruption": {"paused": paused}},
    })
}

#[test]
fn a_pause_that_cannot_be_read_is_the_last_good_one_or_one_without_end() {
    for (is_held, reason) in [(true, "an incident"), (false, "can't be read")] {
        let mut bench = Bench::new();
        if is_held {
            bench.see(1, read::<CroftConfig>(config("10", &json!({"reason": "an incident"}))));
        }
        let stored: Box<Stored<CroftConfig>> = read(config("11", &json!({"until": 5})));
        let Unread { stand_in, flaw } = *stored.read(&mut Checked::default()).unwrap_err();
        let version = Version { flaw: Some(Box::new(flaw)), ..Version::new(Box::new(stand_in.unwrap())) };
        bench.see(2, Change::Version(version));
        let snapshot = bench.engine.snapshot();
        let pause = snapshot.pause_of(&snapshot.pools()["pool-a"], at(3).wall).expect("a pause");
        assert!(pause.pause.reason.contains(reason), "{pause:?}");
    }
}

#[test]
fn zones_that_cannot_be_read_are_those_of_the_last_good_version() {
    let config = |version: &str, zones: &Value| {
        let mut object = config(version, &json!({"reason": "an incident"}));
        object["spec"] = json!({"zones": zones});
        object
    };
    for is_held in [true, false] {
        let mut bench = Bench::new();
        if is_held {
            let zone = json!({"name": "us-east-1a", "state": "NoLaunches", "reason": "an incident"});
            bench.see(1, read::<CroftConfig>(config("10", &json!([zone]))));
        }
        let unread = json!([{"name": "us-east-1a", "state": "Closed", "reason": "an incident"}]);
        let stored: Box<Stored<CroftConfig>> = read(config("11", &unread));
        let Unread { stand_in, flaw } = *stored.read(&mut Checked::default()).unwrap_err();
        let version = Version { flaw: Some(Box::new(flaw)), ..Version::new(Box::new(stand_in.unwrap())) };
        bench.see(2, Change::Version(version));
        bench.decide(3);
        let closed: Vec<&String> = bench.engine.snapshot().closed_zones().keys().collect();
        assert_eq!(!closed.is_empty(), is_held, "{closed:?}");
    }
}
