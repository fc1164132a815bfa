//! Resolved terms of classes, and their conditions if something doesn't exist.

use std::collections::BTreeMap;

use croft_api::nodeclass::{AmiFamily, AmiSelectorTerm, SelectorTerm};
use croft_cloud::{ClassFindings, CloudProvider, ObservedNode, builtin_catalog};
use croft_ec2_sim::world::Settings;
use croft_scheduler::CapacityType;

use crate::bed::{Bed, class, request, spec};

pub(crate) fn condition<'a>(findings: &'a ClassFindings, kind: &str) -> (Option<bool>, &'a str, &'a str) {
    let found = findings.conditions.iter().find(|c| c.kind == kind);
    let found = found.unwrap_or_else(|| panic!("no condition {kind} in {:?}", findings.conditions));
    (found.status, found.reason, &found.message)
}

#[tokio::test]
async fn class_resolves() {
    let bed = Bed::new().await;
    let findings = bed.provider.resolve(&class(spec())).await;
    assert!(findings.is_ready(), "{:?}", findings.conditions);
    assert_eq!(findings.subnets.len(), 5);
    assert_eq!(findings.security_groups, ["sg-0c0ffee000000001"]);
    let devices: Vec<_> = findings.amis.iter().map(|a| (a.arch.as_str(), a.device.as_deref())).collect();
    assert_eq!(devices.len(), 5, "standard and nvidia for both, neuron for amd64: {devices:?}");
    assert!(findings.instance_profile.as_deref().is_some_and(|name| name.starts_with("croft-")));
}

#[tokio::test]
async fn missing_resources_give_conditions_with_remedies() {
    let bed = Bed::new().await;
    let tagged = |value: &str| {
        vec![SelectorTerm {
            tags: BTreeMap::from([("croft.dev/discovery".to_owned(), value.to_owned())]),
            ..SelectorTerm::default()
        }]
    };
    let mut none = spec();
    none.subnet_selector_terms = tagged("elsewhere");
    none.security_group_selector_terms = tagged("elsewhere");
    none.role = Some("missing".to_owned());
    none.ami_selector_terms[0].alias = Some("al2023@v20200101".to_owned());
    none.user_data = Some("hello".to_owned());
    let findings = bed.provider.resolve(&class(none)).await;
    assert!(!findings.is_ready());
    let (status, reason, message) = condition(&findings, "SubnetsReady");
    assert_eq!((status, reason), (Some(false), "SubnetsNotFound"));
    assert!(message.contains("elsewhere") && message.contains("tag the subnets"), "{message}");
    assert_eq!(condition(&findings, "SecurityGroupsReady").1, "SecurityGroupsNotFound");
    let (_, reason, message) = condition(&findings, "AMIsReady");
    assert_eq!(reason, "NotFound");
    assert!(message.contains("ParameterNotFound") && message.contains("v20200101"), "{message}");
    let (_, reason, message) = condition(&findings, "InstanceProfileReady");
    assert_eq!(reason, "NotFound");
    assert!(message.contains("NoSuchEntity") && message.contains("Check spec.role"), "{message}");
    let (_, reason, message) = condition(&findings, "UserDataReady");
    assert_eq!(reason, "UserDataInvalid");
    assert!(message.contains("begin it with"), "{message}");
    assert_eq!(condition(&findings, "Ready").1, "SubnetsNotFound");
}

/// Five are what an account has by default, sixteen what its quota can be raised to.
#[tokio::test]
async fn security_groups_within_a_raised_quota_are_launched_with_and_more_fail_the_condition() {
    let bed = Bed::new().await;
    let mut any = spec();
    any.security_group_selector_terms = vec![SelectorTerm {
        tags: BTreeMap::from([("Name".to_owned(), "*".to_owned())]),
        ..SelectorTerm::default()
    }];
    assert!(bed.provider.resolve(&class(any.clone())).await.is_ready(), "two are fine");
    bed.world(|world| world.add_security_groups(4));
    any.tags.insert("again".to_owned(), "1".to_owned());
    let findings = bed.restarted().await.resolve(&class(any.clone())).await;
    let (status, _, message) = condition(&findings, "SecurityGroupsReady");
    assert!(findings.is_ready() && status == Some(true), "the account's quota may be raised: {message}");
    assert!(message.starts_with("6 security groups, which need a raised quota"), "{message}");
    bed.world(|world| world.add_security_groups(11));
    any.tags.insert("again".to_owned(), "2".to_owned());
    let findings = bed.restarted().await.resolve(&class(any)).await;
    let (status, reason, message) = condition(&findings, "SecurityGroupsReady");
    assert_eq!((status, reason), (Some(false), "TooManySecurityGroups"), "{message}");
}

#[tokio::test]
async fn images_resolve_by_id_parameter_and_tag() {
    let bed = Bed::new().await;
    let by_alias = bed.provider.resolve(&class(spec())).await;
    let id = by_alias.amis.iter().find(|a| a.device.is_none() && a.arch == "arm64").unwrap().id.clone();
    let parameter =
        "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/standard/recommended/image_id";
    let name = bed.world(|world| world.image_name(&id).unwrap());
    for term in [
        AmiSelectorTerm { id: Some(id.clone()), ..AmiSelectorTerm::default() },
        AmiSelectorTerm { ssm_parameter: Some(parameter.to_owned()), ..AmiSelectorTerm::default() },
        AmiSelectorTerm { tags: BTreeMap::from([("Name".to_owned(), name)]), ..AmiSelectorTerm::default() },
    ] {
        let mut spec = spec();
        spec.ami_family = Some(AmiFamily::AL2023);
        spec.ami_selector_terms = vec![term];
        let findings = bed.provider.resolve(&class(spec)).await;
        assert_eq!(findings.amis.iter().map(|a| a.id.as_str()).collect::<Vec<_>>(), [id.as_str()]);
    }
}

#[tokio::test]
async fn term_without_an_image_leaves_the_others() {
    let bed = Bed::new().await;
    let by_alias = bed.provider.resolve(&class(spec())).await;
    let good = by_alias.amis.iter().find(|a| a.device.is_none() && a.arch == "amd64").unwrap().id.clone();
    let by_id = |id: &str| AmiSelectorTerm { id: Some(id.to_owned()), ..AmiSelectorTerm::default() };
    let parameter = "/acme/images/gone";
    let terms = vec![
        by_id("ami-0deregistered000"),
        by_id(&good),
        AmiSelectorTerm { ssm_parameter: Some(parameter.to_owned()), ..AmiSelectorTerm::default() },
        AmiSelectorTerm {
            tags: BTreeMap::from([("team".to_owned(), "none-such".to_owned())]),
            ..AmiSelectorTerm::default()
        },
    ];
    let mut some = spec();
    some.ami_family = Some(AmiFamily::AL2023);
    some.ami_selector_terms = terms.clone();
    let findings = bed.provider.resolve(&class(some)).await;
    assert!(findings.is_ready(), "{:?}", findings.conditions);
    assert_eq!(findings.amis.iter().map(|a| a.id.as_str()).collect::<Vec<_>>(), [good.as_str()]);
    let (status, reason, message) = condition(&findings, "AMIsComplete");
    assert_eq!((status, reason), (Some(false), "AMIsMissing"));
    for words in ["id ami-0deregistered000", "ssmParameter /acme/images/gone", "tags team=none-such"] {
        assert!(message.contains(words), "{words} is not in: {message}");
    }

    let mut none = spec();
    none.ami_family = Some(AmiFamily::AL2023);
    none.ami_selector_terms = terms.into_iter().filter(|term| term.id.as_deref() != Some(&good)).collect();
    let findings = bed.provider.resolve(&class(none)).await;
    assert!(!findings.is_ready());
    assert!(condition(&findings, "AMIsReady").2.contains("ParameterNotFound"));
}

#[tokio::test]
async fn types_and_prices_equal_the_catalogue() {
    let bed = Bed::with(Settings::default()).await;
    let live = bed.provider.instance_types(&class(spec())).await.unwrap();
    let built_in = builtin_catalog();
    // EC2's description equals the catalogue, except for types in zones without a subnet.
    let mut compared = 0;
    for from_wire in live.iter() {
        let wanted = built_in.iter().find(|t| t.name == from_wire.name).unwrap();
        assert_eq!(from_wire.labels, wanted.labels, "{}", from_wire.name);
        assert_eq!(from_wire.capacity, wanted.capacity, "{}", from_wire.name);
        assert_eq!(from_wire.overhead, wanted.overhead, "{}", from_wire.name);
        for offering in &from_wire.offerings {
            assert!(!offering.estimated, "{}: live prices are no estimates", from_wire.name);
            let known = wanted
                .offerings
                .iter()
                .find(|o| o.zone == offering.zone && o.capacity_type == offering.capacity_type);
            if let (CapacityType::OnDemand, Some(price)) =
                (offering.capacity_type, known.and_then(|o| o.price))
            {
                assert_eq!(offering.price, Some(price), "{}", from_wire.name);
            }
        }
        compared += 1;
    }
    assert!(compared > 1300, "{compared}");
    assert!(bed.calls("ec2:DescribeInstanceTypes") >= 14, "100 a page");
    assert!(bed.calls("pricing:GetProducts") >= 14, "100 a page");
}

#[tokio::test]
async fn prices_without_the_price_list_are_marked_as_estimates() {
    let bed = Bed::new().await;
    bed.control(
        r#"{"do": "faults", "rules": [{"action": "GetProducts", "error": "InternalFailure"}, {"action": "DescribeSpotPriceHistory", "error": "InternalError"}]}"#,
    );
    let provider = bed.restarted().await;
    let types = provider.instance_types(&class(spec())).await.unwrap();
    let m5 = types.iter().find(|t| t.name == "m5.large").unwrap();
    for offering in &m5.offerings {
        assert!(offering.price.is_some());
        assert_eq!(offering.estimated, offering.capacity_type == CapacityType::Spot, "{offering:?}");
    }
    let p4d = types.iter().find(|t| t.name == "p4d.24xlarge").unwrap();
    assert!(p4d.offerings.iter().all(|o| o.price.is_some()), "as has every type with devices");
}

#[tokio::test]
async fn findings_stay_valid_while_aws_is_unreachable() {
    let bed = Bed::new().await;
    assert!(bed.provider.resolve(&class(spec())).await.is_ready());
    bed.provider.instance_types(&class(spec())).await.unwrap();
    bed.control(r#"{"do": "faults", "rules": [{"error": "InternalError"}]}"#);
    assert!(bed.provider.resolve(&class(spec())).await.is_ready());
    assert!(bed.provider.instance_types(&class(spec())).await.unwrap().len() > 20);
    let cold = bed.restarted().await.resolve(&class(spec())).await;
    let (status, reason, _) = condition(&cold, "SubnetsReady");
    assert_eq!((status, reason), (None, "Unavailable"), "unknown, not wrong");
}

#[tokio::test]
async fn registered_nodes_correct_the_computed_capacity() {
    let bed = Bed::new().await;
    let class = class(spec());
    let types = bed.provider.instance_types(&class).await.unwrap();
    let m5 = types.iter().find(|t| t.name == "m5.large").unwrap();
    let findings = bed.provider.resolve(&class).await;
    let image = findings.amis.iter().find(|a| a.arch == "amd64" && a.device.is_none()).unwrap();
    let mut node = ObservedNode {
        class: "default".to_owned(),
        instance_type: "m5.large".to_owned(),
        image_id: image.id.clone(),
        capacity: m5.capacity.clone(),
        allocatable: m5.allocatable(),
    };
    node.capacity.set("memory", 7_700 << 20);
    node.allocatable.set("memory", 6_000 << 20);
    assert!(bed.provider.observe_capacity(&node));
    assert!(!bed.provider.observe_capacity(&node), "nothing new");
    let types = bed.provider.instance_types(&class).await.unwrap();
    let m5 = types.iter().find(|t| t.name == "m5.large").unwrap();
    assert_eq!(m5.capacity.get("memory"), 7_700 << 20);
    assert_eq!(m5.allocatable().get("memory"), 6_000 << 20);
    let launched = bed.launch(&request(&["m5.large"], CapacityType::OnDemand)).await.unwrap();
    assert_eq!(launched.allocatable.get("memory"), 6_000 << 20, "the claim says the same");
}
