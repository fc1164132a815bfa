//! Claims on reserved capacity, until the list of offerings counts them.

use std::sync::Arc;

use croft_api::NodeClaim;
use croft_controller::kube_api::{Change, Kind, ObjectId};
use croft_scheduler::{CapacityType, InstanceType, Offering};
use serde_json::{Value, json};

use crate::bench::{Bench, read, time, types};

/// m5.large, of which a reservation in us-east-1a has `count` instances left.
fn with_reservation(count: u32) -> Arc<[InstanceType]> {
    let mut all = types().to_vec();
    for kind in all.iter_mut().filter(|kind| kind.name == "m5.large") {
        kind.offerings.push(Offering {
            zone: "us-east-1a".to_owned(),
            capacity_type: CapacityType::Reserved,
            price: Some(croft_scheduler::Price::ZERO),
            available: count > 0,
            estimated: false,
            available_count: Some(count),
        });
    }
    all.into()
}

fn claim(number: u64, version: u64, status: &Value) -> Box<NodeClaim> {
    read(json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "NodeClaim",
        "metadata": {"name": format!("pool-a-{number}"), "uid": format!("uid-{number}"),
            "resourceVersion": version.to_string(), "creationTimestamp": time(0), "finalizers": ["croft.dev/termination"]},
        "spec": {"pool": "pool-a", "nodeClassRef": {"name": "class"}, "instanceTypes": ["m5.large"],
            "zones": ["us-east-1a"], "capacityType": "reserved", "labels": {"node-pool": "pool-a"}},
        "status": status,
    }))
}

fn launched(number: u64) -> Value {
    json!({"providerId": format!("aws:///us-east-1a/i-{number}"), "nodeName": format!("node-{number}"),
        "instanceType": "m5.large", "zone": "us-east-1a", "capacityType": "reserved"})
}

/// The rest of the reservation that the pool may launch: the count, and whether it is available.
fn left(bench: &Bench) -> (Option<u32>, bool) {
    let snapshot = bench.engine.snapshot();
    let types = snapshot.launchable_types("pool-a", &snapshot.pools()["pool-a"]);
    let offerings = types.iter().flat_map(|kind| &kind.offerings);
    let reserved: Vec<&Offering> = offerings.filter(|o| o.capacity_type == CapacityType::Reserved).collect();
    assert_eq!(reserved.len(), 1);
    (reserved[0].available_count, reserved[0].available)
}

#[test]
fn claims_on_a_reservation_count_until_the_list_of_offerings_has_them() {
    let mut bench = Bench::new();
    bench.engine.snapshot_mut().set_offerings("class", Ok(with_reservation(2)));
    assert_eq!(left(&bench), (Some(2), true));
    bench.see(1, claim(1, 101, &json!({})));
    assert_eq!(left(&bench), (Some(1), true), "planned");
    bench.see(1, claim(2, 102, &json!({})));
    assert_eq!(left(&bench), (Some(0), false));
    bench.see(2, claim(1, 103, &launched(1)));
    assert_eq!(left(&bench), (Some(0), false), "launched after the list");
    bench.engine.snapshot_mut().set_offerings("class", Ok(with_reservation(1)));
    assert_eq!(left(&bench), (Some(0), false), "the list counts the launched one, not the other");
    bench.see(3, Change::Gone(ObjectId::new(Kind::NodeClaim, "", "pool-a-2")));
    assert_eq!(left(&bench), (Some(1), true), "its launch failed");
    bench.see(4, Change::Gone(ObjectId::new(Kind::NodeClaim, "", "pool-a-1")));
    assert_eq!(left(&bench), (Some(1), true), "counted by the list");
}
