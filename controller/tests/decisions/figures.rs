//! Figures per tenant and pool: what is counted under which labels, and that series go with their objects.

use std::time::Duration;

use croft_api::{CroftConfig, NodeClaim, Tenant};
use croft_cloud::{CloudInstance, FailedCheck, InstanceHealth, StatusCheck};
use croft_controller::{
    action::{Action, Key},
    kube_api::{Change, Kind, ObjectId},
    pool_figures::PoolLabels,
    result::{ActionReport, ActionResult, Backoff},
    state::InstanceList,
};
use croft_scheduler::PodKey;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use serde_json::json;

use crate::bench::{Bench, at, claim, launched, node, pod, pool, read, registered_labels, time};

/// A bench whose tenant `a` has the namespace of the pods and the bench's pool.
fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.see(
        0,
        read::<Namespace>(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "tenant-a", "uid": "ns-uid", "resourceVersion": "5"}})),
    );
    bench.see(
        0,
        read::<Tenant>(json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant",
            "metadata": {"name": "a", "uid": "tenant-uid", "resourceVersion": "6", "generation": 1},
            "spec": {"namespaces": ["tenant-a"], "pools": ["pool-a"]}})),
    );
    bench
}

/// A pending pod that was created at `created`.
fn pending(name: &str, version: u64, created: u64, more: serde_json::Value) -> Box<Pod> {
    let pod = pod(name, None);
    let mut object = serde_json::to_value(*pod).unwrap();
    object["metadata"]["creationTimestamp"] = json!(time(created));
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    croft_controller::merge_patch::apply(&mut object, &more);
    read(object)
}

#[test]
fn nothing_is_written_for_tenants_before_every_kind_about_them_is_listed() {
    let mut bench = bench();
    let is_about_tenancy =
        |action: &Action| action.keys().iter().any(|key| matches!(key, Key::Tenant(_) | Key::Parameters));
    for kind in Kind::awaited_by_tenancy().filter(|kind| !kind.is_awaited_by_capacity()) {
        let actions = bench.engine.step(at(1)).actions;
        assert!(!actions.iter().any(is_about_tenancy), "before {}: {actions:?}", kind.name());
        bench.see(1, Change::Synced(kind));
    }
    let actions = bench.engine.step(at(2)).actions;
    assert!(actions.iter().any(is_about_tenancy), "{actions:?}");
}

/// Returns true if a pass writes the status of tenant `a`, which ends with `backoff`; nothing shows the write.
fn writes_status(bench: &mut Bench, seconds: u64, backoff: Backoff) -> bool {
    let actions = bench.engine.step(at(seconds)).actions;
    let is_write = |action: &Action| action.keys() == [Key::Tenant("a".to_owned())];
    for action in &actions {
        let backoff = if is_write(action) { backoff } else { Backoff::None };
        bench.engine.complete(ActionReport { backoff, ..ActionReport::done(action.keys()) }, at(seconds));
    }
    actions.iter().any(is_write)
}

#[test]
fn a_status_is_written_again_once_it_failed_or_the_watch_should_have_shown_it() {
    let mut bench = bench();
    Kind::awaited_by_tenancy().for_each(|kind| bench.see(1, Change::Synced(kind)));
    assert!(writes_status(&mut bench, 2, Backoff::Exponential));
    // The pass that is due once the backoff is over.
    assert!(!writes_status(&mut bench, 3, Backoff::None));
    assert!(writes_status(&mut bench, 4, Backoff::None), "it failed");
    // A pod that changes nothing but a count makes a pass due.
    let leaving = json!({"metadata": {"deletionTimestamp": time(5)}});
    bench.see(5, pending("first", 20, 5, leaving.clone()));
    assert!(!writes_status(&mut bench, 6, Backoff::None), "the watch may not show it yet");
    bench.see(9, pending("second", 21, 5, leaving));
    assert!(writes_status(&mut bench, 10, Backoff::None), "it was lost");
}

fn labels() -> PoolLabels {
    PoolLabels { tenant: "a".to_owned(), pool: "pool-a".to_owned() }
}

#[test]
fn a_pending_pod_counts_by_tenant_pool_and_reason_and_goes_with_its_series() {
    let mut bench = bench();
    bench.see(
        1,
        pending(
            "huge",
            100,
            1,
            json!({"spec": {"containers": [
        {"name": "c", "resources": {"requests": {"cpu": "900"}}}]}}),
        ),
    );
    bench.decide(1);
    let not_planned = r#"croft_controller_pool_pending_pods{tenant="a",pool="pool-a",reason="NotPlanned"}"#;
    assert_eq!(bench.metric(not_planned), 1.0);
    bench.decide(3);
    let unschedulable =
        r#"croft_controller_pool_pending_pods{tenant="a",pool="pool-a",reason="InsufficientResources"}"#;
    assert_eq!(bench.metric(unschedulable), 1.0);
    let oldest = r#"croft_controller_pool_oldest_pending_pod_timestamp_seconds{tenant="a",pool="pool-a"}"#;
    assert_eq!(bench.metric(oldest), at(1).wall.as_second() as f64);
    assert!(!bench.has_metric(not_planned));
    bench.see(4, Change::Gone(ObjectId::new(Kind::Pod, "tenant-a", "huge")));
    bench.decide(5);
    assert!(!bench.has_metric(unschedulable) && !bench.has_metric(oldest));
}

#[test]
fn a_pod_with_a_node_in_flight_is_measured_once_when_it_is_bound() {
    let mut bench = bench();
    bench.see(1, pending("p", 100, 1, json!({})));
    bench.decide(1);
    let actions = bench.decide(3);
    let [Action::CreateClaims(new)] = &actions[..] else { panic!("{actions:?}") };
    let mut created = new.claims[0].object.clone();
    croft_controller::merge_patch::apply(
        &mut created,
        &json!({"metadata": {"uid": "claim-uid", "resourceVersion": "50", "creationTimestamp": time(3)}}),
    );
    let reason = r#"croft_controller_pool_pending_pods{tenant="a",pool="pool-a",reason="NodeInFlight"}"#;
    assert_eq!(bench.metric(reason), 1.0, "while the claim is created");
    bench.see(3, read::<NodeClaim>(created));
    bench.done(3, &actions[0], vec![]);
    bench.decide(4);
    assert_eq!(bench.metric(reason), 1.0);
    bench.see(61, pending("p", 700, 1, json!({"spec": {"nodeName": "node-9"}})));
    let step = bench.engine.step(at(61));
    assert_eq!(step.bound, [(labels(), Duration::from_secs(60))]);
    assert!(!bench.has_metric(reason));
    bench.measure(&step);
    for (bound, count) in [("45.0", 0.0), ("60.0", 1.0), ("120.0", 1.0)] {
        let bucket = format!(r#"{{le="{bound}",tenant="a",pool="pool-a"}}"#);
        let name = format!("croft_controller_pod_to_node_duration_seconds_bucket{bucket}");
        assert_eq!(bench.metric(&name), count, "{bound}");
    }
    bench.see(62, pending("p", 701, 1, json!({"spec": {"nodeName": "node-9"}})));
    assert_eq!(bench.engine.step(at(62)).bound, []);
}

#[test]
fn a_pod_waits_from_the_removal_of_its_gate() {
    let mut bench = bench();
    bench.see(1, pending("p", 100, 1, json!({"spec": {"schedulingGates": [{"name": "later"}]}})));
    bench.decide(1);
    let oldest = r#"croft_controller_pool_oldest_pending_pod_timestamp_seconds{tenant="a",pool="pool-a"}"#;
    assert!(!bench.has_metric(oldest));
    bench.see(50, pending("p", 101, 1, json!({})));
    bench.decide(50);
    assert_eq!(bench.metric(oldest), at(50).wall.as_second() as f64);
}

#[test]
fn nodes_price_and_headroom_of_a_pool_go_with_the_pool() {
    let mut bench = bench();
    bench.see(1, pool(7, &json!({"headroom": {"pods": 2, "requests": {"cpu": "1"}}})));
    let mut status = launched(&["Registered", "Initialized"]);
    status["pricePerHour"] = json!("0.096");
    bench.see(1, claim(10, status, false));
    bench.see(1, node(11, "aws:///us-east-1a/i-1", registered_labels(), json!([]), true));
    bench.decide(2);
    let of_pool = |name: &str| format!(r#"croft_controller_pool_{name}{{tenant="a",pool="pool-a"}}"#);
    assert_eq!(bench.metric(&of_pool("nodes")), 1.0);
    assert_eq!(bench.metric(&of_pool("cost_dollars_per_hour")), 0.096);
    let headroom = r#"croft_controller_pool_headroom_pods{tenant="a",pool="pool-a",state="wanted"}"#;
    assert_eq!(bench.metric(headroom), 2.0);
    bench.see(3, Change::Gone(ObjectId::new(Kind::Tenant, "", "a")));
    bench.decide(4);
    assert!(!bench.has_metric(&of_pool("nodes")));
    assert_eq!(bench.metric(r#"croft_controller_pool_nodes{tenant="",pool="pool-a"}"#), 1.0);
    bench.see(5, Change::Gone(ObjectId::new(Kind::TenantPool, "", "pool-a")));
    bench.decide(6);
    assert!(!bench.has_metric("croft_controller_pool_nodes{"));
}

#[test]
fn nodes_and_price_of_a_template_are_those_of_its_claims_while_the_pool_has_it() {
    let mut bench = bench();
    let templates = |names: &[&str]| {
        let template = |name: &&str| json!({"name": name, "spec": {"nodeClassRef": {"name": "class"}}});
        json!({"template": null, "templates": names.iter().map(template).collect::<Vec<_>>()})
    };
    bench.see(1, pool(7, &templates(&["cheap", "steady"])));
    let mut status = launched(&["Registered", "Initialized"]);
    status["pricePerHour"] = json!("0.096");
    let mut one = claim(10, status, false);
    one.spec.labels.insert("croft.dev/template".to_owned(), "cheap".to_owned());
    bench.see(1, one);
    bench.decide(2);
    let of = |metric: &str, template: &str| {
        format!(r#"croft_controller_template_{metric}{{tenant="a",pool="pool-a",template="{template}"}}"#)
    };
    assert_eq!(bench.metric(&of("nodes", "cheap")), 1.0);
    assert_eq!(bench.metric(&of("cost_dollars_per_hour", "cheap")), 0.096);
    assert_eq!(bench.metric(&of("nodes", "steady")), 0.0);
    bench.see(3, pool(8, &templates(&["steady"])));
    bench.decide(4);
    assert!(!bench.has_metric(&of("nodes", "cheap")));
    bench.see(5, pool(9, &json!({})));
    bench.decide(6);
    assert!(!bench.has_metric("croft_controller_template_nodes{"), "its nodes are of one kind");
}

#[test]
fn a_process_shows_the_figures_of_pools_only_while_it_leads() {
    let mut bench = bench();
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), false));
    bench.decide(2);
    let nodes = r#"croft_controller_pool_nodes{tenant="a",pool="pool-a"}"#;
    assert_eq!(bench.metric(nodes), 1.0);
    assert!(!bench.metrics_of_standby().contains(nodes));
    assert_eq!(bench.metric(nodes), 1.0, "once it leads again, though nothing has changed");
}

#[test]
fn launches_and_evictions_count_under_the_claims_pool() {
    let mut bench = bench();
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), false));
    bench.see(1, node(11, "aws:///us-east-1a/i-1", registered_labels(), json!([]), true));
    bench.see(1, pod("p", Some("node-1")));
    let name = "pool-a-1".to_owned();
    let results = vec![
        ActionResult::Launched(name.clone()),
        ActionResult::LaunchFailed { claim: name, reason: "NoCapacity", message: String::new() },
        ActionResult::Evicted(PodKey::new("tenant-a", "p")),
    ];
    bench.done(2, &Action::ListInstances, results);
    bench.decide(2);
    for (metric, count) in [
        (r#"launches_total{tenant="a",pool="pool-a",outcome="Launched"}"#, 1.0),
        (r#"launches_total{tenant="a",pool="pool-a",outcome="NoCapacity"}"#, 1.0),
        (r#"pool_evictions_total{tenant="a",pool="pool-a"}"#, 1.0),
    ] {
        assert_eq!(bench.metric(&format!("croft_controller_{metric}")), count, "{metric}");
    }
    bench.see(3, Change::Gone(ObjectId::new(Kind::TenantPool, "", "pool-a")));
    bench.decide(4);
    assert!(!bench.has_metric("croft_controller_launches_total{"));
    assert!(!bench.has_metric("croft_controller_pool_evictions_total{"));
}

#[test]
fn a_zone_that_is_closed_has_a_series_until_it_opens() {
    let mut bench = bench();
    let series = "croft_controller_zones_closed{zone=\"us-east-1a\",state=\"Evacuate\"}";
    for (version, zones, closed) in [
        ("7", json!([{"name": "us-east-1a", "state": "Evacuate", "reason": "an incident"}]), true),
        ("8", json!([]), false),
    ] {
        let config = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig", "spec": {"zones": zones},
            "metadata": {"name": "default", "uid": "config-uid", "resourceVersion": version, "generation": 1}});
        bench.see(1, read::<CroftConfig>(config));
        bench.decide(1);
        assert_eq!(bench.has_metric(series), closed, "{zones}");
    }
}

#[test]
fn failed_status_checks_are_counted_while_the_cloud_says_them_and_have_no_series_else() {
    let mut bench = bench();
    let listed = |bench: &mut Bench, health: [Option<InstanceHealth>; 2]| {
        let instances = health.into_iter().enumerate().map(|(n, health)| {
            let id = format!("i-{n}");
            (id.clone(), CloudInstance { id, health, ..CloudInstance::default() })
        });
        let instances = instances.collect();
        bench.engine.snapshot_mut().set_instances(InstanceList { asked: at(1), instances });
    };
    let of = |check: &str| format!("croft_controller_failed_status_checks{{check=\"{check}\"}}");
    listed(&mut bench, [None, None]);
    assert!(!bench.has_metric("croft_controller_failed_status_checks{"));
    let fails = InstanceHealth {
        failed: vec![FailedCheck { check: StatusCheck::System, since: 0 }],
        scheduled: Vec::new(),
    };
    listed(&mut bench, [None, Some(fails)]);
    assert_eq!(bench.metric(&of("SystemStatusCheck")), 1.0);
    assert_eq!(bench.metric(&of("EBSStatusCheck")), 0.0);
    listed(&mut bench, [None, None]);
    assert!(!bench.has_metric("croft_controller_failed_status_checks{"));
}
