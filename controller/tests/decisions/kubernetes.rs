//! Features that the API server's release lacks, in the statuses of pools and of the CroftConfig.

use croft_api::{CroftConfig, TenantPool};
use croft_controller::{
    action::Action,
    kube_api::{Call, Change, Target, Verb},
};
use croft_runtime::kubernetes::Release;
use serde_json::{Value, json};

use crate::bench::{Bench, at, read};

/// The message of the condition about features, in the statuses that a pass writes: of the pool, of the CroftConfig.
fn missing(actions: &[Action]) -> [Option<String>; 2] {
    let mut found = [None, None];
    for action in actions {
        let Action::Write { call: Call { target, verb: Verb::PatchStatus(patch) }, .. } = action else {
            continue;
        };
        let at = match target {
            Target::Pool(_) => 0,
            Target::Config(_) => 1,
            _ => continue,
        };
        let conditions = patch["status"]["conditions"].as_array().into_iter().flatten();
        let condition = conditions.clone().find(|c| c["type"] == "KubernetesFeatures");
        found[at] = condition.map(|c: &Value| {
            assert_eq!((&c["status"], &c["reason"]), (&json!("False"), &json!("ReleaseTooOld")), "{c}");
            c["message"].as_str().unwrap().to_owned()
        });
    }
    found
}

fn bench_on(release: Option<u32>) -> Bench {
    let mut bench = Bench::new();
    if let Some(minor) = release {
        bench.see(1, Change::Release(Release::new(minor)));
    }
    bench.see(
        1,
        read::<CroftConfig>(json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig",
            "metadata": {"name": "default", "uid": "config-uid", "resourceVersion": "10", "generation": 1},
            "spec": {},
        })),
    );
    bench
}

#[test]
fn an_old_release_is_said_on_pools_and_the_config_with_what_does_not_work() {
    let mut bench = bench_on(Some(33));
    let actions = bench.engine.step(at(60)).actions;
    let [Some(pool), Some(config)] = missing(&actions) else { panic!("{actions:?}") };
    assert!(pool.starts_with("Kubernetes 1.33 lacks PodLevelResources (in Kubernetes 1.34): "), "{pool}");
    assert!(!pool.contains("WatchList"), "the webhook's memory is no concern of a pool: {pool}");
    assert!(config.contains("PodLevelResources") && config.contains("; WatchList"), "{config}");
    let events = actions.iter().filter(|action| matches!(action, Action::RecordEvent(_))).count();
    assert_eq!(events, 0, "{actions:?}");
}

#[test]
fn a_release_with_every_feature_and_one_that_is_not_known_say_nothing() {
    for release in [Some(34), Some(37), Some(38), None] {
        let actions = bench_on(release).engine.step(at(60)).actions;
        assert_eq!(missing(&actions), [None, None], "{release:?}");
        assert!(actions.iter().any(|action| matches!(action, Action::Write { .. })), "{release:?}");
    }
}

#[test]
fn an_upgraded_cluster_loses_the_condition() {
    let mut bench = bench_on(Some(33));
    let first = bench.engine.step(at(60)).actions;
    assert!(missing(&first)[0].is_some(), "{first:?}");
    // The pool's status as it was written.
    let written = first.iter().find_map(|action| match action {
        Action::Write { call: Call { target: Target::Pool(_), verb: Verb::PatchStatus(patch) }, .. } => {
            Some(patch)
        }
        _ => None,
    });
    let more = json!({"status": written.unwrap()["status"], "metadata": {"resourceVersion": "20"}});
    let pool = bench.engine.snapshot().pools()["pool-a"].clone();
    let mut pool = serde_json::to_value(&*pool).unwrap();
    croft_controller::merge_patch::apply(&mut pool, &more);
    for action in first {
        bench.answer(60, action);
    }
    bench.see(70, read::<TenantPool>(pool));
    bench.see(70, Change::Release(Release::new(34)));
    let actions = bench.engine.step(at(120)).actions;
    let written = actions.iter().find_map(|action| match action {
        Action::Write { call: Call { target: Target::Pool(_), verb: Verb::PatchStatus(patch) }, .. } => {
            Some(patch)
        }
        _ => None,
    });
    let conditions = written.expect("a write of the pool's status")["status"]["conditions"].to_string();
    assert!(!conditions.contains("KubernetesFeatures") && conditions.contains("Ready"), "{conditions}");
}
