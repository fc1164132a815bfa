//! Capacity reservations: optional, and counted.

use std::{collections::BTreeMap, sync::Arc};

use croft_api::{EC2NodeClass, nodeclass::SelectorTerm};
use croft_cloud::{CloudProvider, LaunchRequest};
use croft_scheduler::{CapacityType::OnDemand, CapacityType::Reserved, Offering};

use crate::{
    bed::{Bed, class, request, spec},
    discovery::condition,
};

fn selecting(terms: Vec<SelectorTerm>) -> EC2NodeClass {
    let mut spec = spec();
    spec.capacity_reservation_selector_terms = terms;
    class(spec)
}

fn by_id(id: &str) -> SelectorTerm {
    SelectorTerm { id: Some(id.to_owned()), ..SelectorTerm::default() }
}

fn by_tag(value: &str) -> SelectorTerm {
    let tags = BTreeMap::from([("acme.test/season".to_owned(), value.to_owned())]);
    SelectorTerm { tags, ..SelectorTerm::default() }
}

async fn reserved(bed: &Bed, class: &EC2NodeClass) -> Vec<(String, Offering)> {
    let types = bed.provider.instance_types(class).await.unwrap();
    let offerings =
        types.iter().flat_map(|kind| kind.offerings.iter().map(|o| (kind.name.clone(), o.clone())));
    offerings.filter(|(_, offering)| offering.capacity_type == Reserved).collect()
}

#[tokio::test]
async fn reservation_that_ended_or_is_not_there_yet_leaves_on_demand() {
    let bed = Bed::new().await;
    let ended = bed.world(|world| {
        let tags = BTreeMap::from([("acme.test/season".to_owned(), "past".to_owned())]);
        let id = world.reserve("m5.large", "us-east-1b", 2, tags);
        world.end_reservation(&id);
        id
    });
    for (number, terms) in
        [vec![by_tag("peak")], vec![by_tag("past")], vec![by_id(&ended)], vec![by_id("cr-0123456789abcdef0")]]
            .into_iter()
            .enumerate()
    {
        let class = selecting(terms.clone());
        let findings = bed.provider.resolve(&class).await;
        assert!(findings.is_ready(), "{terms:?}: {:?}", findings.conditions);
        let (status, reason, message) = condition(&findings, "CapacityReservationsReady");
        assert_eq!((status, reason), (Some(false), "CapacityReservationsNotFound"), "{terms:?}");
        assert!(message.contains("instances are launched without one"), "{message}");
        assert_eq!(reserved(&bed, &class).await, [], "{terms:?}");
        let mut request = request(&["m5.large"], OnDemand);
        request.claim_uid = format!("uid-{number}");
        request.class = Arc::new(class);
        bed.launch(&request).await.unwrap();
    }
}

#[tokio::test]
async fn reservations_that_can_not_be_asked_for_leave_on_demand() {
    let bed = Bed::new().await;
    bed.control(
        r#"{"do": "faults", "rules": [{"action": "DescribeCapacityReservations", "error": "UnauthorizedOperation"}]}"#,
    );
    let class = selecting(vec![by_tag("peak")]);
    let findings = bed.provider.resolve(&class).await;
    assert!(findings.is_ready(), "{:?}", findings.conditions);
    assert_eq!(condition(&findings, "CapacityReservationsReady").1, "Forbidden");
    assert!(!bed.provider.instance_types(&class).await.unwrap().is_empty());
}

#[tokio::test]
async fn missing_reservation_leaves_those_of_other_terms() {
    let bed = Bed::new().await;
    let id = bed.world(|world| world.reserve("m5.large", "us-east-1b", 2, BTreeMap::new()));
    let class = selecting(vec![by_id("cr-0123456789abcdef0"), by_id(&id)]);
    assert_eq!(reserved(&bed, &class).await.len(), 1);
    let findings = bed.provider.resolve(&class).await;
    assert_eq!(condition(&findings, "CapacityReservationsReady").0, Some(true));
}

#[tokio::test]
async fn offering_counts_what_is_left_of_its_reservations() {
    let bed = Bed::new().await;
    for (zone, count) in [("us-east-1b", 2), ("us-east-1b", 1), ("us-east-1c", 4)] {
        bed.world(|world| world.reserve("m5.large", zone, count, BTreeMap::new()));
    }
    let class = selecting(vec![SelectorTerm::default()]);
    let left = async || -> Vec<(String, Option<u32>, bool)> {
        let offerings = reserved(&bed, &class).await;
        offerings.into_iter().map(|(_, o)| (o.zone, o.available_count, o.available)).collect()
    };
    let b = |count| ("us-east-1b".to_owned(), Some(count), count > 0);
    let c = || ("us-east-1c".to_owned(), Some(4), true);
    assert_eq!(left().await, [b(3), c()]);
    for number in 1..=3 {
        let request = LaunchRequest {
            claim_uid: format!("uid-{number}"),
            zones: vec!["us-east-1b".to_owned()],
            class: Arc::new(class.clone()),
            ..request(&["m5.large"], Reserved)
        };
        let launched = bed.launch(&request).await.unwrap();
        assert_eq!(launched.instance.capacity_type, Reserved);
        assert_eq!(left().await, [b(3 - number), c()], "asked for again after a launch");
    }
    let types = bed.provider.instance_types(&class).await.unwrap();
    let others = types.iter().flat_map(|kind| &kind.offerings).filter(|o| o.capacity_type != Reserved);
    assert!(others.into_iter().all(|offering| offering.available_count.is_none()), "no bound is known");
}
