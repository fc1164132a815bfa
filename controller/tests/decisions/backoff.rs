//! Launches whose node never registers are counted, held back, tried one at a time, and forgiven.

use croft_api::TenantPool;
use croft_controller::{
    action::Action,
    kube_api::{Call, Target, Verb},
    nodeclaim::launch_backoff::edit_hash,
};
use serde_json::{Value, json};

use crate::bench::{Bench, at, claim, condition, launched, pod, pool, read, time};

/// After the registration timeout.
const LATE: u64 = 1_000;

/// The pool with launches that failed: `rounds` of them, the next launch at second `until`. They failed before an edit, or
/// since.
fn failing(version: u64, edited: bool, rounds: i32, until: u64, offerings: &Value) -> Box<TenantPool> {
    let pool = pool(version, &json!({}));
    let hash = if edited { 1 } else { edit_hash(&pool) };
    let mut object = serde_json::to_value(*pool).unwrap();
    let template = json!({"template": "", "stage": "Registration", "image": "", "rounds": rounds,
        "until": time(until), "since": time(0), "last": "aws:///us-east-1a/i-1"});
    object["status"]["launchBackoff"] = json!({
        "templates": if rounds > 0 { vec![template] } else { Vec::new() },
        "poolGeneration": hash, "classGeneration": 1, "offerings": offerings,
    });
    read(object)
}

/// The patch of the pool's launch backoff, if there is one.
fn written(actions: &[Action]) -> Option<Value> {
    actions.iter().find_map(|action| match action {
        Action::Write { call: Call { target: Target::Pool(_), verb: Verb::PatchStatus(patch) }, .. } => {
            patch["status"].get("launchBackoff").cloned()
        }
        _ => None,
    })
}

/// The claims that are created for the pods `names`, which come at `seconds`.
fn claims(bench: &mut Bench, seconds: u64, names: &[&str]) -> Vec<Value> {
    for name in names {
        bench.see(seconds, pod(name, None));
    }
    let mut actions = bench.decide(seconds);
    actions.extend(bench.decide(seconds + 2));
    let claims = actions.iter().filter_map(|action| match action {
        Action::CreateClaims(new) => Some(new.claims.iter().map(|claim| claim.object.clone())),
        _ => None,
    });
    claims.flatten().collect()
}

#[test]
fn a_launch_without_a_node_is_counted_before_its_claim_is_deleted() {
    let mut bench = Bench::new();
    let mut status = launched(&[]);
    status["conditions"][0] = condition("Launched", 0);
    bench.see(1, claim(10, status, false));
    let step = bench.engine.step(at(LATE));
    let backoff = written(&step.actions).expect("the launch is counted");
    let template = &backoff["templates"][0];
    assert_eq!((&template["rounds"], &template["stage"]), (&json!(1), &json!("Registration")));
    assert_eq!(backoff["counted"], json!(["pool-a-1"]));
    assert_eq!(template["until"], json!(time(LATE + 30)));
    assert_eq!(backoff["offerings"][0]["instanceType"], json!("m5.large"));
    assert_eq!(backoff["offerings"][0]["until"], json!(time(LATE + 120)));
    let deletes = |actions: &[Action]| {
        let is =
            |a: &Action| matches!(a, Action::Write { call, .. } if matches!(call.verb, Verb::Delete { .. }));
        actions.iter().any(is)
    };
    assert!(!deletes(&step.actions), "not before it is counted");
    assert_eq!(bench.metric("croft_controller_launches_unregistered_total"), 1.0);
    for action in &step.actions {
        bench.done(LATE, action, Vec::new());
    }
    let pool = failing(20, false, 1, LATE + 30, &json!([]));
    let mut pool = *pool;
    let counted = pool.status.as_mut().unwrap().launch_backoff.as_mut().unwrap();
    counted.counted = vec!["pool-a-1".to_owned()];
    bench.see(LATE, pool);
    assert!(deletes(&bench.engine.step(at(LATE)).actions));
}

#[test]
fn a_pool_whose_nodes_do_not_register_launches_nothing_and_then_one_instance() {
    let mut bench = Bench::new();
    bench.see(1, failing(10, false, 3, 100, &json!([])));
    // They need several instances.
    assert_eq!(claims(&mut bench, 1, &["a", "b", "c", "d", "e", "f", "g", "h"]), Vec::<Value>::new());
    let (reason, note) =
        bench.told.iter().find(|(reason, _)| reason == "LaunchBackoff").expect("the pods are told");
    assert!(note.contains("in 3 rounds of launches no node registered"), "{reason}: {note}");
    assert_eq!(bench.metric("croft_controller_pools_in_launch_backoff"), 1.0);
    let probe = claims(&mut bench, 101, &[]);
    assert_eq!(probe.len(), 1, "{probe:?}");
}

#[test]
fn a_schedule_that_begins_is_no_edit() {
    let mut object = serde_json::to_value(*failing(10, false, 3, 100, &json!([]))).unwrap();
    object["spec"]["schedules"] =
        json!([{"schedule": "* * * * *", "duration": "1h", "limits": {"nodes": 5}}]);
    let declared: Box<TenantPool> = read(object.clone());
    object["status"]["launchBackoff"]["poolGeneration"] = json!(edit_hash(&declared));
    let mut bench = Bench::new();
    bench.see(1, read::<TenantPool>(object));
    assert_eq!(bench.engine.snapshot().schedules_of("pool-a").unwrap().in_force, Some(0));
    assert_eq!(claims(&mut bench, 1, &["a"]), Vec::<Value>::new());
}

#[test]
fn no_second_launch_is_tried_while_one_is_under_way() {
    let mut bench = Bench::new();
    bench.see(1, failing(10, false, 3, 100, &json!([])));
    bench.see(1, claim(10, launched(&[]), false));
    assert_eq!(claims(&mut bench, 101, &["a", "b", "c", "d", "e"]), Vec::<Value>::new());
}

#[test]
fn an_edit_of_the_pool_or_its_class_launches_at_once() {
    for class in [false, true] {
        let mut bench = Bench::new();
        bench.see(1, failing(10, !class, 9, 10_000, &json!([])));
        if class {
            let mut object = (*bench.engine.snapshot().classes()["class"].object).clone();
            object.metadata.generation = Some(2);
            object.metadata.resource_version = Some("99".to_owned());
            bench.see(1, object);
        }
        let claims = claims(&mut bench, 2, &["a"]);
        assert_eq!(claims.len(), 1);
    }
}

#[test]
fn a_pause_of_the_pool_is_no_edit() {
    let paused = pool(10, &json!({"disruption": {"paused": {"reason": "a release"}}}));
    let edited = pool(10, &json!({"disruption": {"consolidateAfter": "31s"}}));
    let before = edit_hash(&pool(10, &json!({})));
    assert_eq!((before == edit_hash(&paused), before == edit_hash(&edited)), (true, false));
}

#[test]
fn a_node_that_registers_ends_the_backoff() {
    for registered in [true, false] {
        let mut bench = Bench::new();
        let offerings = json!([{"instanceType": "m5.large", "zone": "us-east-1a", "capacityType": "on-demand",
            "failures": 2, "until": time(5_000), "since": time(0)}]);
        bench.see(1, failing(10, false, 3, 5_000, &offerings));
        let more: &[&str] = if registered { &["Registered"] } else { &[] };
        bench.see(1, claim(10, launched(more), false));
        let backoff = written(&bench.engine.step(at(2)).actions);
        assert_eq!(backoff == Some(Value::Null), registered, "{backoff:?}");
    }
}

#[test]
fn a_probe_that_fails_begins_the_next_round_and_the_hour_has_so_many() {
    let mut bench = Bench::new();
    let mut pool = failing(10, false, 3, 100, &json!([]));
    let backoff = pool.status.as_mut().unwrap().launch_backoff.as_mut().unwrap();
    let second = |n: u64| read::<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>(json!(time(n)));
    backoff.templates[0].ended = (1..=9).map(|n| *second(n)).collect();
    let launched_for = format!("{}/1", edit_hash(&pool));
    bench.see(1, pool);
    let mut probe = claim(10, launched(&[]), false);
    probe.metadata.creation_timestamp = Some(*second(100));
    probe.metadata.annotations = Some([("croft.dev/launched-for".to_owned(), launched_for)].into());
    bench.see(1, probe);
    let backoff = written(&bench.engine.step(at(LATE)).actions).expect("the probe is counted");
    let backoff = &backoff["templates"][0];
    assert_eq!(backoff["rounds"], json!(4));
    // The tenth round of the hour: the next launch is an hour after the first of them, not four minutes after the last.
    assert_eq!(backoff["until"], json!(time(1 + 3_600)));
}

#[test]
fn an_instance_type_whose_node_did_not_register_is_left_out_for_a_while() {
    let zones = ["us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d", "us-east-1f"];
    let failed = |until: u64| -> Value {
        zones
            .iter()
            .map(|zone| {
                json!({"instanceType": "m5.large", "zone": zone, "capacityType": "on-demand", "failures": 1,
                    "until": time(until), "since": time(0)})
            })
            .collect()
    };
    for (now, kind) in [(1, "m5.xlarge"), (200, "m5.large")] {
        let mut bench = Bench::new();
        bench.see(1, failing(10, false, 0, 0, &failed(100)));
        let claims = claims(&mut bench, now, &["a"]);
        assert_eq!(claims.len(), 1, "{claims:?}");
        assert_eq!(claims[0]["spec"]["instanceTypes"][0], json!(kind), "at {now}");
    }
}

#[test]
fn what_was_launched_before_an_edit_counts_no_round_after_it() {
    let mut bench = Bench::new();
    bench.see(1, failing(10, true, 9, 100, &json!([])));
    let mut old = claim(10, launched(&[]), false);
    old.metadata.annotations = Some([("croft.dev/launched-for".to_owned(), "1/1".to_owned())].into());
    bench.see(1, old);
    let backoff =
        written(&bench.engine.step(at(LATE)).actions).expect("the claim is counted, so that it can go");
    assert_eq!((&backoff["templates"], &backoff["counted"]), (&Value::Null, &json!(["pool-a-1"])));
}

/// The pool with templates `first` and `second`, of which those in `failed` have launched nodes that didn't register.
fn with_templates(failed: &[&str]) -> Box<TenantPool> {
    let template = |name: &str, weight: u32| json!({"name": name, "weight": weight, "spec": {"nodeClassRef": {"name": "class"}}});
    let pool =
        pool(10, &json!({"template": null, "templates": [template("first", 10), template("second", 0)]}));
    let hash = edit_hash(&pool);
    let zones = ["us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d", "us-east-1f"];
    let mut object = serde_json::to_value(*pool).unwrap();
    let templates: Vec<Value> = failed
        .iter()
        .map(|name| {
            json!({"template": name, "stage": "Registration", "image": "", "rounds": 3, "until": time(100),
                "since": time(0), "last": "aws:///us-east-1a/i-1"})
        })
        .collect();
    let offerings = |name: &&str| {
        zones.map(|zone| {
            json!({"template": name, "instanceType": "m5.large", "zone": zone, "capacityType": "on-demand",
                "failures": 1, "until": time(500), "since": time(0)})
        })
    };
    // Each template's class counts.
    object["status"]["launchBackoff"] = json!({"templates": templates, "poolGeneration": hash, "classGeneration": 2,
        "offerings": failed.iter().flat_map(offerings).collect::<Vec<_>>()});
    read(object)
}

#[test]
fn a_template_whose_nodes_do_not_register_does_not_hold_the_others_back() {
    type Launched = Option<(&'static str, &'static str)>;
    let cases: [(&[&str], Launched); 4] = [
        (&[], Some(("first", "m5.large"))),
        (&["first"], Some(("second", "m5.large"))),
        (&["second"], Some(("first", "m5.large"))),
        (&["first", "second"], None),
    ];
    for (failed, expected) in cases {
        let mut bench = Bench::new();
        bench.see(1, with_templates(failed));
        let claims = claims(&mut bench, 1, &["a"]);
        let launched = claims.first().map(|claim| {
            let spec = &claim["spec"];
            (
                spec["labels"]["croft.dev/template"].as_str().unwrap(),
                spec["instanceTypes"][0].as_str().unwrap(),
            )
        });
        assert_eq!(launched, expected, "{failed:?}");
    }
}

#[test]
fn a_failed_template_is_tried_with_one_node_while_the_others_launch_freely() {
    let mut bench = Bench::new();
    bench.see(1, with_templates(&["first"]));
    let pods = ["a", "b", "c", "d", "e", "f", "g", "h"];
    assert!(claims(&mut bench, 1, &pods).len() > 1, "by the second template");
    let mut bench = Bench::new();
    bench.see(1, with_templates(&["first"]));
    let probes = claims(&mut bench, 101, &pods);
    assert_eq!(probes.len(), 1, "{probes:?}");
    assert_eq!(probes[0]["spec"]["labels"]["croft.dev/template"], json!("first"));
}

#[test]
fn a_launch_without_a_node_is_counted_for_its_template() {
    let mut bench = Bench::new();
    bench.see(1, with_templates(&[]));
    let mut lost = claim(10, launched(&[]), false);
    lost.spec.labels.insert("croft.dev/template".to_owned(), "second".to_owned());
    bench.see(1, lost);
    let backoff = written(&bench.engine.step(at(LATE)).actions).expect("the launch is counted");
    assert_eq!(backoff["templates"][0]["template"], json!("second"));
    assert_eq!(backoff["offerings"][0]["template"], json!("second"));
}

#[test]
fn a_backoff_that_was_stored_for_the_whole_pool_is_readable() {
    let mut object = serde_json::to_value(*pool(10, &json!({}))).unwrap();
    object["status"]["launchBackoff"] = json!({
        "rounds": 3, "until": time(100), "since": time(0), "instance": "aws:///us-east-1a/i-1",
        "poolGeneration": 1, "classGeneration": 1,
        "offerings": [{"instanceType": "m5.large", "zone": "us-east-1a", "capacityType": "on-demand", "failures": 1,
            "until": time(0), "since": time(0)}],
        "templates": [{"template": "", "image": "ami-1", "rounds": 2, "until": time(0), "since": time(0),
            "missing": "the node is not Ready yet"}],
    });
    let pool: Box<TenantPool> = read(object);
    let backoff = pool.status.unwrap().launch_backoff.unwrap();
    assert_eq!((backoff.templates[0].rounds, backoff.offerings[0].failures), (2, 1));
}
