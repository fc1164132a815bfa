//! Launches: one instance per claim, whatever fails.

use croft_cloud::{
    CloudProvider, FaultClass, InstanceState, LaunchError,
    supply::{Verdict, describe, survey},
    tags,
};
use croft_ec2_sim::world::Settings;
use croft_scheduler::CapacityType::{OnDemand, Reserved, Spot};

use crate::bed::{Bed, UID, class, few_types, request, spec};

#[tokio::test]
async fn claim_becomes_a_tagged_instance_of_the_cheapest_type() {
    let bed = Bed::new().await;
    let launched = bed.launch(&request(&["m5.xlarge", "m5.large", "c5.4xlarge"], OnDemand)).await.unwrap();
    let instance = &launched.instance;
    assert_eq!(instance.instance_type, "m5.large");
    assert_eq!(instance.provider_id, format!("aws:///{}/{}", instance.zone, instance.id));
    assert!(instance.node_name.starts_with("ip-10-") && instance.node_name.ends_with(".ec2.internal"));
    assert_eq!(launched.price.map(|p| p.micros()), Some(96_000));
    assert!(!launched.price_estimated);
    assert_eq!(launched.capacity.get("memory"), 7577 << 20);
    assert_eq!(launched.allocatable.get("cpu"), 1930);
    assert_eq!(launched.labels["karpenter.sh/capacity-type"], "on-demand");
    assert_eq!(launched.labels["topology.kubernetes.io/zone"], instance.zone);
    for (key, value) in [
        (tags::CLUSTER, UID),
        (tags::TENANT, "tenant-a"),
        (tags::POOL, "pool-a"),
        (tags::CLAIM, "pool-a-1"),
        (tags::CLAIM_UID, "claim-uid-1"),
        (tags::CLASS, "default"),
        ("team", "blue"),
        (tags::NAME, "pool-a/pool-a-1"),
    ] {
        assert_eq!(instance.tags.get(key).map(String::as_str), Some(value), "{key}");
    }
    let user_data = bed.world(|w| w.instance(&instance.id).unwrap().data.user_data.clone());
    let settings = croft_ec2_sim::userdata::read(&user_data).unwrap();
    assert_eq!(settings.taints[0].key, "node-pool");
    assert_eq!(settings.labels["team"], "blue");
    let data = bed.world(|w| w.instance(&instance.id).unwrap().data.clone());
    assert_eq!((data.http_tokens.as_str(), data.hop_limit), ("required", 1));
}

#[tokio::test]
async fn volumes_interfaces_and_spot_requests_are_tagged() {
    let bed = Bed::new().await;
    let shared = [
        (tags::CLUSTER, UID),
        (tags::TENANT, "tenant-a"),
        (tags::POOL, "pool-a"),
        (tags::CLASS, "default"),
        ("team", "blue"),
    ];
    let own = [(tags::CLAIM, "pool-a-1"), (tags::CLAIM_UID, "claim-uid-1")];
    for (attempt, capacity_type, kinds) in [
        (1, OnDemand, vec!["network-interface", "volume"]),
        (2, Spot, vec!["network-interface", "spot-instances-request", "volume"]),
    ] {
        let request = croft_cloud::LaunchRequest { attempt, ..request(&["m5.large"], capacity_type) };
        let launched = bed.launch(&request).await.unwrap();
        let parts = bed.world(|w| w.instance(&launched.instance.id).unwrap().parts.clone());
        assert_eq!(parts.keys().collect::<Vec<_>>(), kinds);
        for (kind, tags) in &parts {
            let of_claim = if kind == "volume" { &own[..] } else { &[] };
            for (key, value) in shared.iter().chain(of_claim) {
                assert_eq!(tags.get(*key).map(String::as_str), Some(*value), "{kind} {key}");
            }
        }
    }
}

#[tokio::test]
async fn same_prepared_launch_is_one_instance_also_after_a_restart() {
    let bed = Bed::new().await;
    let prepared = bed.provider.prepare(&request(&["m5.large"], OnDemand)).await.unwrap();
    let first = bed.provider.launch(&prepared).await.unwrap();
    let again = bed.restarted().await.launch(&prepared).await.unwrap();
    assert_eq!(first.instance, again.instance);
    assert_eq!(bed.provider.list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn prepare_twice_gives_the_same_request() {
    let bed = Bed::new().await;
    let request = request(&["m5.large", "m6g.large"], Spot);
    let first = bed.provider.prepare(&request).await.unwrap();
    assert_eq!(first, bed.restarted().await.prepare(&request).await.unwrap());
    assert_eq!(bed.calls("ec2:CreateFleet"), 0, "preparing launches nothing");
    let next = croft_cloud::LaunchRequest { attempt: 2, ..request };
    assert_ne!(first.hash, bed.provider.prepare(&next).await.unwrap().hash);
}

#[tokio::test]
async fn lost_answer_is_unknown_and_the_retry_finds_the_instance() {
    let bed = Bed::new().await;
    let prepared = bed.provider.prepare(&request(&["m5.large"], OnDemand)).await.unwrap();
    bed.control(r#"{"do": "faults", "rules": [{"action": "CreateFleet", "cut": "after", "times": 1}]}"#);
    let error = bed.provider.launch(&prepared).await.unwrap_err();
    assert!(matches!(error, LaunchError::Unknown { .. }), "{error}");
    assert!(!error.is_definite());
    let found = bed.provider.find_by_claim("claim-uid-1").await.unwrap().unwrap();
    let repeated = bed.provider.launch(&prepared).await.unwrap();
    assert_eq!(found.instance.id, repeated.instance.id);
    assert_eq!(bed.provider.list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn token_of_another_request_is_unknown() {
    let bed = Bed::new().await;
    let first = bed.provider.prepare(&request(&["m5.large"], OnDemand)).await.unwrap();
    let other = bed.provider.prepare(&request(&["c5.large"], OnDemand)).await.unwrap();
    bed.provider.launch(&first).await.unwrap();
    let error = bed.provider.launch(&other).await.unwrap_err();
    assert!(
        matches!(&error, LaunchError::Unknown { fault, .. } if fault.class == FaultClass::TokenReused),
        "{error}"
    );
}

#[tokio::test]
async fn offering_without_capacity_becomes_unavailable_and_the_next_is_used_at_once() {
    let bed = Bed::new().await;
    bed.control(r#"{"do": "capacity", "rules": [{"instanceType": "m5.large", "count": 0}]}"#);
    let error = bed.launch(&request(&["m5.large"], OnDemand)).await.unwrap_err();
    let LaunchError::NoCapacity { offerings, fault, .. } = &error else { panic!("{error}") };
    assert_eq!(offerings.len(), 5, "every zone: {offerings:?}");
    assert_eq!(fault.code, "InsufficientInstanceCapacity");
    assert!(error.to_string().contains("no instance of the type is free in the zone"), "{error}");

    let types = bed.provider.instance_types(&class(spec())).await.unwrap();
    let m5 = types.iter().find(|t| t.name == "m5.large").unwrap();
    assert!(m5.offerings.iter().filter(|o| o.capacity_type == OnDemand).all(|o| !o.available));
    assert!(
        m5.offerings.iter().filter(|o| o.capacity_type == Spot).all(|o| o.available),
        "spot is another matter"
    );

    let shortages = bed.provider.shortages();
    assert_eq!(shortages.iter().map(|s| s.offering.clone()).collect::<Vec<_>>(), *offerings);
    assert!(shortages.iter().all(|s| s.fault.code == "InsufficientInstanceCapacity" && s.strikes == 1));
    let supplies = survey(types.iter().filter(|t| t.name == "m5.large"), &shortages);
    assert_eq!(Verdict::of(&supplies), Verdict::FallsBack, "on-demand has none, spot has");
    assert!(describe(&supplies).starts_with("on-demand: 5 of 5 offerings set aside, next try in 4"));

    let mut next = request(&["m5.large", "m5a.large"], OnDemand);
    next.attempt = 2;
    let launched = bed.launch(&next).await.unwrap();
    assert_eq!(launched.instance.instance_type, "m5a.large");
    assert_eq!(bed.calls("ec2:CreateFleet"), 2);
}

#[tokio::test]
async fn one_call_falls_back_to_available_offerings() {
    let bed = Bed::new().await;
    bed.control(
        r#"{"do": "capacity", "rules": [{"instanceType": "m5.large", "count": 0}, {"instanceType": "m5a.large", "zone": "us-east-1a", "count": 0}]}"#,
    );
    let launched = bed.launch(&request(&["m5.large", "m5a.large"], OnDemand)).await.unwrap();
    assert_eq!(launched.instance.instance_type, "m5a.large");
    assert_ne!(launched.instance.zone, "us-east-1a");
    assert_eq!(bed.calls("ec2:CreateFleet"), 1);
}

#[tokio::test]
async fn spot_prefers_capacity_to_the_lowest_price() {
    let bed = Bed::new().await;
    bed.control(
        r#"{"do": "capacity", "rules": [{"instanceType": "m5.large", "capacityType": "spot", "count": 1}]}"#,
    );
    for zone in ["a", "b", "c", "d", "f"] {
        bed.control(&format!(
            r#"{{"do": "spotPrice", "instanceType": "m5.large", "zone": "us-east-1{zone}", "price": 0.01}}"#
        ));
    }
    let launched = bed.launch(&request(&["m5.large", "m5a.large"], Spot)).await.unwrap();
    assert_eq!(
        (launched.instance.instance_type.as_str(), launched.instance.capacity_type),
        ("m5a.large", Spot)
    );
    assert!(!launched.price_estimated, "the price is the market's");
}

#[tokio::test]
async fn full_subnet_is_unavailable_and_another_zone_is_used() {
    let bed = Bed::with(Settings { subnet_addresses: 1, ..few_types() }).await;
    let mut zones = std::collections::BTreeSet::new();
    for number in 1..=5 {
        let mut request = request(&["m5.large"], OnDemand);
        request.claim_uid = format!("claim-uid-{number}");
        zones.insert(bed.launch(&request).await.unwrap().instance.zone);
    }
    assert_eq!(zones.len(), 5, "one address in each zone: {zones:?}");
    let mut last = request(&["m5.large"], OnDemand);
    last.claim_uid = "claim-uid-6".to_owned();
    let error = bed.launch(&last).await.unwrap_err();
    assert!(
        matches!(&error, LaunchError::NoCapacity { fault, .. } if fault.code == "InsufficientFreeAddressesInSubnet"),
        "{error}"
    );
}

#[tokio::test]
async fn reservations_are_used_at_no_extra_cost() {
    let bed = Bed::new().await;
    bed.control(r#"{"do": "reserve", "instanceType": "m5.large", "zone": "us-east-1b", "count": 1}"#);
    bed.control(r#"{"do": "capacity", "rules": [{"count": 0}]}"#);
    let mut spec = spec();
    spec.capacity_reservation_selector_terms = vec![croft_api::nodeclass::SelectorTerm::default()];
    let class = class(spec);
    let types = bed.provider.instance_types(&class).await.unwrap();
    let reserved: Vec<_> = types
        .iter()
        .flat_map(|t| {
            t.offerings
                .iter()
                .filter(|o| o.capacity_type == Reserved)
                .map(|o| (&t.name, &o.zone, o.price, o.available))
        })
        .collect();
    assert_eq!(reserved.len(), 1, "{reserved:?}");
    assert_eq!(
        (reserved[0].0.as_str(), reserved[0].1.as_str(), reserved[0].3),
        ("m5.large", "us-east-1b", true)
    );
    let mut request = request(&["m5.large"], Reserved);
    request.class = std::sync::Arc::new(class);
    let launched = bed.launch(&request).await.unwrap();
    assert_eq!((launched.instance.capacity_type, launched.instance.zone.as_str()), (Reserved, "us-east-1b"));
    request.claim_uid = "other".to_owned();
    let error = bed.launch(&request).await.unwrap_err();
    assert!(
        matches!(&error, LaunchError::NoCapacity { fault, .. } if fault.code == "ReservationCapacityExceeded"),
        "never on-demand instead: {error}"
    );
}

#[tokio::test]
async fn on_demand_launch_in_an_open_reservation_stays_on_demand() {
    let bed = Bed::new().await;
    bed.control(r#"{"do": "reserve", "instanceType": "m5.large", "zone": "us-east-1b", "count": 1}"#);
    let mut request = request(&["m5.large"], OnDemand);
    request.zones = vec!["us-east-1b".to_owned()];
    let launched = bed.launch(&request).await.unwrap();
    let used = bed.world(|world| world.instances().all(|(_, i)| i.reservation.is_some()));
    assert!(used, "the reservation is used");
    let label = launched.labels["karpenter.sh/capacity-type"].as_str();
    assert_eq!((launched.instance.capacity_type, label), (OnDemand, "on-demand"));
    let found = bed.provider.find_by_claim(&request.claim_uid).await.unwrap().unwrap();
    assert_eq!(found.instance.capacity_type, OnDemand);
}

#[tokio::test]
async fn launch_waits_until_the_instance_is_visible() {
    let bed = Bed::with(Settings { consistency_ms: 60_000, ..few_types() }).await;
    let prepared = bed.provider.prepare(&request(&["m5.large"], OnDemand)).await.unwrap();
    let simulator = std::sync::Arc::clone(&bed.simulator);
    let mover = tokio::spawn(async move {
        while simulator.with(|w| w.calls().get("ec2:DescribeInstances").copied().unwrap_or(0)) < 3 {
            tokio::task::yield_now().await;
        }
        simulator.advance(std::time::Duration::from_secs(60));
    });
    let launched = bed.provider.launch(&prepared).await.unwrap();
    mover.await.unwrap();
    assert_eq!(launched.instance.state, InstanceState::Running);
    assert!(bed.calls("ec2:DescribeInstances") > 3);
}

#[tokio::test]
async fn throttling_is_retried_and_quota_is_reported() {
    let bed = Bed::with(Settings { vcpu_quota: Some(2), ..few_types() }).await;
    let prepared = bed.provider.prepare(&request(&["m5.large"], OnDemand)).await.unwrap();
    bed.control(r#"{"do": "faults", "rules": [{"action": "CreateFleet", "error": "RequestLimitExceeded", "times": 1}]}"#);
    let error = bed.provider.launch(&prepared).await.unwrap_err();
    assert!(matches!(error, LaunchError::Later { .. }), "{error}");
    bed.provider.launch(&prepared).await.unwrap();
    let mut second = request(&["m5.large"], OnDemand);
    second.claim_uid = "claim-uid-2".to_owned();
    let error = bed.launch(&second).await.unwrap_err();
    assert_eq!(error.reason(), "QuotaReached", "{error}");
    assert!(error.to_string().contains("Ask for an increase in Service Quotas"), "{error}");
}

#[tokio::test]
async fn forbidden_type_is_skipped() {
    let bed = Bed::new().await;
    bed.control(r#"{"do": "forbid", "instanceType": "m5.*"}"#);
    let launched = bed.launch(&request(&["m5.large", "m5a.large"], OnDemand)).await.unwrap();
    assert_eq!(launched.instance.instance_type, "m5a.large");
}

#[tokio::test]
async fn each_architecture_gets_its_image() {
    let bed = Bed::new().await;
    let launched = bed.launch(&request(&["m6g.large", "m5.4xlarge"], OnDemand)).await.unwrap();
    assert_eq!(launched.labels["kubernetes.io/arch"], "arm64");
    bed.control(r#"{"do": "capacity", "rules": [{"instanceType": "m6g.large", "count": 0}]}"#);
    let mut second = request(&["m6g.large", "m5.4xlarge"], OnDemand);
    second.claim_uid = "claim-uid-2".to_owned();
    let other = bed.launch(&second).await.unwrap();
    assert_eq!(other.labels["kubernetes.io/arch"], "amd64");
    assert_ne!(launched.instance.image_id, other.instance.image_id);
}

#[tokio::test]
async fn deleted_template_is_created_again() {
    let bed = Bed::new().await;
    let prepared = bed.provider.prepare(&request(&["m5.large"], OnDemand)).await.unwrap();
    bed.control(r#"{"do": "faults", "rules": [{"action": "CreateFleet", "error": "InvalidLaunchTemplateName.NotFoundException", "times": 1}]}"#);
    let error = bed.provider.launch(&prepared).await.unwrap_err();
    assert!(error.is_definite(), "{error}");
    let before = bed.calls("ec2:CreateLaunchTemplate");
    let mut next = request(&["m5.large"], OnDemand);
    next.attempt = 2;
    bed.launch(&next).await.unwrap();
    assert_eq!(bed.calls("ec2:CreateLaunchTemplate"), before + 1);
}
