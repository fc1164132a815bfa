//! The catalogue of a region, for plans without a cluster.

use std::collections::BTreeSet;

use croft_cloud_aws::region_catalog;
use croft_ec2_sim::policy::Policy;
use croft_scheduler::CapacityType;

use crate::bed::{Bed, class, options, spec};
use croft_cloud::CloudProvider as _;

#[tokio::test]
async fn has_the_types_zones_and_prices_that_the_provider_finds_for_a_class() {
    let bed = Bed::new().await;
    let found = region_catalog(&options(&bed.url).access).await.unwrap();
    assert_eq!((found.region.as_str(), found.warnings.as_slice()), ("us-east-1", [].as_slice()));
    let of_class = bed.provider.instance_types(&class(spec())).await.unwrap();
    for kind in of_class.iter() {
        let same = found.catalog.instance_types.iter().find(|one| one.name == kind.name).expect(&kind.name);
        assert_eq!(
            (&same.capacity, &same.overhead, &same.labels),
            (&kind.capacity, &kind.overhead, &kind.labels)
        );
        for offering in &kind.offerings {
            assert!(same.offerings.contains(offering), "{} lacks {offering:?}", kind.name);
        }
    }
    let zones: BTreeSet<&str> =
        found.catalog.instance_types.iter().flat_map(|t| &t.offerings).map(|o| o.zone.as_str()).collect();
    assert!(zones.len() >= 3, "a region has more zones than a class has subnets: {zones:?}");
}

#[tokio::test]
async fn says_what_is_an_estimate_and_fails_without_types() {
    let bed = Bed::new().await;
    let access = options(&bed.url).access;
    let only = |actions: &str| {
        let policy = format!(
            r#"{{"Version": "2012-10-17", "Statement": [{{"Effect": "Allow", "Action": [{actions}], "Resource": "*"}}]}}"#
        );
        Policy::parse(&policy).unwrap()
    };
    let types = r#""ec2:DescribeInstanceTypes", "ec2:DescribeInstanceTypeOfferings""#;
    bed.world(|world| world.restrict("*", only(types)));
    let found = region_catalog(&access).await.unwrap();
    assert_eq!(found.warnings.len(), 2, "{:?}", found.warnings);
    assert!(found.warnings.iter().all(|said| said.contains("estimates")), "{:?}", found.warnings);
    let spot = found.catalog.instance_types.iter().flat_map(|t| &t.offerings);
    assert!(spot.filter(|o| o.capacity_type == CapacityType::Spot).all(|o| o.estimated || o.price.is_none()));
    bed.world(|world| world.restrict("*", only(r#""sts:GetCallerIdentity""#)));
    let refused = region_catalog(&access).await.unwrap_err().to_string();
    assert!(refused.contains("DescribeInstanceTypes"), "{refused}");
}
