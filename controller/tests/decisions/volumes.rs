//! Volumes that are attached to the node of a claim that is being deleted.

use croft_controller::{
    action::Action,
    kube_api::{Change, Kind, ObjectId, Response, Target, Verb},
};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::json;

use crate::bench::{Bench, claim, launched, node, pod, read, registered_labels, time, verb};

/// A bench whose claim is being deleted, with a cordoned node without pods and an attached volume.
fn drained() -> Bench {
    let disrupted = json!([{"key": "croft.dev/disrupted", "effect": "NoSchedule"}]);
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), true));
    bench.see(1, node(20, "aws:///us-east-1a/i-1", registered_labels(), disrupted, true));
    bench.see(
        1,
        read::<VolumeAttachment>(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": "csi-1", "uid": "csi-1-uid", "resourceVersion": "30"},
            "spec": {"attacher": "ebs.csi.aws.com", "nodeName": "node-1",
                "source": {"persistentVolumeName": "volume-1"}},
        })),
    );
    bench
}

fn is_terminated(actions: &[Action]) -> bool {
    matches!(actions, [Action::Terminate { ids }] if ids == &["i-1"])
}

#[test]
fn an_instance_is_terminated_once_its_volumes_are_detached() {
    let mut bench = drained();
    for second in [1, 60, 120] {
        assert!(bench.decide(second).is_empty(), "second {second}");
    }
    let gone = ObjectId::new(Kind::VolumeAttachment, "", "csi-1").with_uid("csi-1-uid");
    bench.see(121, Change::Gone(gone));
    assert!(is_terminated(&bench.decide(121)));
}

#[test]
fn a_volume_that_is_never_detached_is_waited_for_six_minutes() {
    let mut bench = drained();
    for second in [1, 200, 360] {
        assert!(bench.decide(second).is_empty(), "second {second}");
    }
    assert!(is_terminated(&bench.decide(361)));
}

#[test]
fn volumes_of_pods_that_came_to_a_drained_node_are_waited_for_anew() {
    let mut bench = drained();
    assert!(bench.decide(1).is_empty());
    // kube-scheduler hadn't seen the cordon, or a restored backup has the pod again.
    bench.see(300, pod("a", Some("node-1")));
    let actions = bench.decide(300);
    assert!(matches!(verb(&actions), (Target::Pod(..), Verb::Evict { .. })), "{actions:?}");
    bench.done(300, &actions[0], vec![]);
    bench.see(340, Change::Gone(ObjectId::new(Kind::Pod, "tenant-a", "a")));
    for second in [340, 400, 699] {
        assert!(bench.decide(second).is_empty(), "second {second}");
    }
    assert!(is_terminated(&bench.decide(700)));
}

#[test]
fn volumes_are_waited_for_from_when_the_api_server_has_no_pod_left() {
    let mut bench = drained();
    // The watch of pods lags: only the API server itself has the pod.
    let there = pod("a", Some("node-1"));
    bench.found = vec![Response::Pod(there)];
    let actions = bench.decide(1);
    assert!(matches!(verb(&actions), (Target::Pod(..), Verb::Evict { .. })), "{actions:?}");
    bench.found = Vec::new();
    bench.done(1, &actions[0], vec![]);
    bench.see(100, Change::Gone(ObjectId::new(Kind::Pod, "tenant-a", "a")));
    for second in [100, 361, 459] {
        assert!(bench.decide(second).is_empty(), "second {second}");
    }
    assert!(is_terminated(&bench.decide(460)));
}

#[test]
fn volumes_of_a_pod_that_ends_after_all_are_waited_for_from_then_on() {
    let mut bench = drained();
    let mut ending = pod("a", Some("node-1"));
    ending.metadata.deletion_timestamp = Some(*read(json!(time(1))));
    ending.metadata.deletion_grace_period_seconds = Some(30);
    bench.see(1, ending);
    assert!(bench.decide(1).is_empty());
    // Its kubelet is silent: it counts no longer from a minute after its due time on.
    for second in [120, 300] {
        assert!(bench.decide(second).is_empty(), "second {second}");
    }
    bench.see(300, Change::Gone(ObjectId::new(Kind::Pod, "tenant-a", "a")));
    for second in [300, 500, 659] {
        assert!(bench.decide(second).is_empty(), "second {second}");
    }
    assert!(is_terminated(&bench.decide(660)));
}
