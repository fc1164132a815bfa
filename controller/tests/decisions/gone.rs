//! Deletions, seen and unseen, and what is told of objects after them.

use croft_api::Tenant;
use croft_controller::{
    action::{Action, Key},
    kube_api::{Change, Kind, ObjectId, Response, Target, Version},
    result::{ActionReport, ActionResult},
};
use croft_scheduler::PodKey;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::bench::{Bench, at, claim, launched, node, pod, read, registered_labels};

fn pod_of(uid: &str, version: &str) -> Box<Pod> {
    let mut pod = pod("a", None);
    pod.metadata.uid = Some(uid.to_owned());
    pod.metadata.resource_version = Some(version.to_owned());
    pod
}

#[test]
fn a_late_deletion_of_a_pod_leaves_the_next_of_its_name() {
    let mut bench = Bench::new();
    let key = PodKey::new("tenant-a", "a");
    bench.see(1, pod_of("first", "100"));
    // A StatefulSet's pod comes again under its name; the answer to a call shows it before the watch does.
    let second = pod_of("second", "120");
    bench.engine.snapshot_mut().observe_response(Response::Pod(second), at(2));
    bench.see(2, Change::Gone(ObjectId::new(Kind::Pod, "tenant-a", "a").with_uid("first")));
    bench.see(2, pod_of("second", "120"));
    assert_eq!(bench.engine.snapshot().pods()[&key].uid.as_ref(), "second");
    // A deleted object stays deleted, whatever still reports it.
    bench.see(3, Change::Gone(ObjectId::new(Kind::Pod, "tenant-a", "a").with_uid("second")));
    let late = pod_of("second", "125");
    bench.engine.snapshot_mut().observe_response(Response::Pod(late), at(3));
    assert!(!bench.engine.snapshot().pods().contains_key(&key));
}

#[test]
fn what_the_api_server_does_not_have_is_gone_though_no_watch_has_said_so() {
    let mut bench = Bench::new();
    bench.see(1, claim(10, json!({}), false));
    let actions = bench.decide(1);
    assert!(matches!(&actions[..], [Action::Launch(_)]));
    let gone = |uid: &str| ActionResult::NotFound(Target::Claim("pool-a-1".to_owned()), uid.to_owned());
    bench.done(1, &actions[0], vec![gone("another-uid")]);
    assert!(bench.engine.snapshot().claims().contains_key("pool-a-1"), "it is about another one");
    bench
        .engine
        .complete(ActionReport { results: vec![gone("claim-uid")], ..ActionReport::done(vec![]) }, at(1));
    assert!(bench.engine.snapshot().claims().is_empty());
    assert!(bench.decide(2).is_empty());
}

#[test]
fn a_new_leaders_list_ends_what_it_lacks_and_not_what_is_newer() {
    let mut bench = Bench::new();
    let named = |name: &str, uid: &str, version: u64| {
        let mut one = claim(version, json!({}), false);
        one.metadata.name = Some(name.to_owned());
        one.metadata.uid = Some(uid.to_owned());
        one
    };
    for (name, uid, version) in [("old", "u-old", 10), ("kept", "u-kept", 11), ("new", "u-new", 30)] {
        bench.see(1, named(name, uid, version));
    }
    bench.engine.observe_claims(vec![*named("kept", "u-kept", 20)], at(2));
    let names: Vec<&String> = bench.engine.snapshot().claims().keys().collect();
    assert_eq!(names, ["kept", "new"]);
}

#[test]
fn a_claim_without_its_last_finalizer_is_gone() {
    let mut bench = Bench::new();
    bench.see(1, claim(10, json!({}), true));
    let mut released = claim(11, json!({}), true);
    released.metadata.finalizers = None;
    bench.engine.snapshot_mut().observe_response(Response::Claim(released), at(1));
    assert!(bench.engine.snapshot().claims().is_empty());
}

#[test]
fn nothing_touches_a_claim_while_its_create_may_be_repeated() {
    let mut bench = Bench::new();
    bench.see(1, pod("a", None));
    bench.decide(1);
    let actions = bench.decide(2);
    let [Action::CreateClaims(new)] = &actions[..] else { panic!("{actions:?}") };
    let name = new.claims[0].name.clone();
    let mut seen = claim(10, json!({}), false);
    seen.metadata.name = Some(name.clone());
    bench.see(3, seen);
    assert!(bench.decide(3).is_empty(), "its create hasn't been answered: released, it would be made again");
    bench.engine.complete(ActionReport::done(actions[0].keys()), at(3));
    assert!(matches!(&bench.decide(3)[..], [Action::Launch(launch)] if launch.request.claim_name == name));
}

#[test]
fn two_claims_whose_instances_had_one_address_keep_to_their_own_instance() {
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), true));
    let mut second = claim(11, launched(&["Registered", "Initialized"]), false);
    second.metadata.name = Some("pool-a-2".to_owned());
    second.metadata.uid = Some("second-uid".to_owned());
    second.status.as_mut().unwrap().provider_id = Some("aws:///us-east-1a/i-2".to_owned());
    bench.see(1, second);
    bench.see(1, node(20, "aws:///us-east-1a/i-2", registered_labels(), json!([]), true));
    let snapshot = bench.engine.snapshot();
    assert_eq!(snapshot.claim_of_node("node-1").unwrap().metadata.name.as_deref(), Some("pool-a-2"));
    bench.see(2, Change::Gone(ObjectId::new(Kind::NodeClaim, "", "pool-a-1").with_uid("claim-uid")));
    let snapshot = bench.engine.snapshot();
    assert_eq!(snapshot.claim_of_node("node-1").unwrap().metadata.name.as_deref(), Some("pool-a-2"));
}

#[test]
fn a_node_without_instance_and_claim_is_deleted_if_it_is_crofts_and_not_ready() {
    let lists = |bench: &mut Bench| {
        for seconds in [300, 400] {
            let news = vec![ActionResult::Instances(at(seconds), Vec::new())];
            bench.engine.complete(
                ActionReport { results: news, ..ActionReport::done(vec![Key::ListInstances]) },
                at(seconds),
            );
        }
    };
    let describe = |bench: &mut Bench, seconds: u64| {
        let actions = bench.decide(seconds);
        let [Action::DescribeInstances(ids)] = &actions[..] else { return actions };
        assert_eq!(ids, &["i-9"]);
        bench.done(
            seconds,
            &actions[0],
            vec![ActionResult::InstancesDescribed(at(seconds).mono, ids.clone(), Vec::new())],
        );
        bench.decide(seconds)
    };
    for (ours, ready, expected) in [(true, false, 1), (false, false, 0), (true, true, 0)] {
        let mut bench = Bench::new();
        let mut alone = node(20, "aws:///us-east-1a/i-9", registered_labels(), json!([]), ready);
        alone.metadata.finalizers = None;
        alone.metadata.annotations =
            ours.then(|| [("croft.dev/claim".to_owned(), "pool-a-9".to_owned())].into());
        bench.see(1, alone);
        bench.decide(1);
        lists(&mut bench);
        assert_eq!(describe(&mut bench, 401).len(), 0, "one answer is no proof: ours {ours}, ready {ready}");
        assert_eq!(describe(&mut bench, 530).len(), expected, "ours {ours}, ready {ready}");
    }
}

#[test]
fn after_a_restore_the_next_object_of_a_name_has_a_lower_version() {
    let mut bench = Bench::new();
    bench.see(1, claim(50, json!({}), false));
    let mut again = claim(20, json!({}), false);
    again.metadata.uid = Some("second-uid".to_owned());
    // An answer may be older than what is held; a watch shows what is there now.
    bench.engine.snapshot_mut().observe_response(Response::Claim(again.clone()), at(2));
    assert_eq!(bench.engine.snapshot().claims()["pool-a-1"].metadata.uid.as_deref(), Some("claim-uid"));
    bench.see(2, again);
    bench.see(2, Change::Gone(ObjectId::new(Kind::NodeClaim, "", "pool-a-1").with_uid("claim-uid")));
    assert_eq!(bench.engine.snapshot().claims()["pool-a-1"].metadata.uid.as_deref(), Some("second-uid"));
}

#[test]
fn what_a_restore_brings_back_is_followed_again() {
    let mut bench = Bench::new();
    bench.see(1, claim(50, json!({}), false));
    bench.see(2, Change::Gone(ObjectId::new(Kind::NodeClaim, "", "pool-a-1").with_uid("claim-uid")));
    let listed = claim(20, json!({}), false);
    bench.see(3, Change::Version(Version::new(listed).listed()));
    bench.see(4, claim(21, json!({}), true));
    let held = &bench.engine.snapshot().claims()["pool-a-1"];
    assert!(
        held.metadata.deletion_timestamp.is_some(),
        "its deletion is news, though it was seen deleted before"
    );
}

#[test]
fn a_tenant_that_was_created_again_unseen_is_gone_once_it_is_deleted() {
    let tenant = |uid: &str| {
        read::<Tenant>(json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": "tenant-a", "uid": uid},
            "spec": {"namespaces": ["tenant-a"], "pools": ["pool-a"]},
        }))
    };
    let mut bench = Bench::new();
    bench.see(1, tenant("first"));
    // The list after an interruption of the watch has it as before, but for its uid.
    bench.see(2, Change::Version(Version::new(tenant("second")).listed()));
    let gone = |uid: &str| Change::Gone(ObjectId::new(Kind::Tenant, "", "tenant-a").with_uid(uid));
    bench.see(3, gone("first"));
    assert!(bench.engine.snapshot().tenants().contains_key("tenant-a"), "it is about another one");
    bench.see(4, gone("second"));
    assert!(bench.engine.snapshot().tenants().is_empty());
}
