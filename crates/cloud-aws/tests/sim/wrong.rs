//! User errors and missing resources of an account: each shows in the right place with EC2's code, its meaning and
//! remedy, and affects nothing else.

use std::{collections::BTreeMap, sync::Arc};

use croft_api::{EC2NodeClassSpec, nodeclass::SelectorTerm};
use croft_cloud::{ClassFindings, CloudProvider, FaultClass, LaunchError, LaunchRequest};
use croft_cloud_aws::AwsProvider;
use croft_ec2_sim::world::Settings;
use croft_scheduler::CapacityType::{OnDemand, Spot};

use crate::bed::{Bed, class, few_types, request, spec};

fn condition<'a>(findings: &'a ClassFindings, kind: &str) -> (Option<bool>, &'a str, &'a str) {
    let found = findings.conditions.iter().find(|c| c.kind == kind);
    let found = found.unwrap_or_else(|| panic!("no condition {kind} in {:?}", findings.conditions));
    (found.status, found.reason, &found.message)
}

fn says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
}

async fn resolve(provider: &AwsProvider, change: impl FnOnce(&mut EC2NodeClassSpec)) -> ClassFindings {
    let mut spec = spec();
    change(&mut spec);
    provider.resolve(&class(spec)).await
}

#[tokio::test]
async fn wrong_region_is_reported() {
    let bed = Bed::new().await;
    let mut options = crate::bed::options(&bed.url);
    options.access.region = Some("us-nowhere-1".to_owned());
    let provider = AwsProvider::connect(options).await;
    let findings = provider.resolve(&class(spec())).await;
    let (status, reason, message) = condition(&findings, "Ready");
    assert_eq!((status, reason), (Some(false), "Unauthenticated"));
    says(message, &["AuthFailure", "scoped to a valid region, not 'us-nowhere-1'"]);
}

#[tokio::test]
async fn expired_credentials_keep_earlier_findings() {
    let bed = Bed::new().await;
    let clock = Arc::new(crate::bed::Ahead::default());
    let provider = bed.on(clock).await;
    let prepared = provider.prepare(&request(&["m5.large"], OnDemand)).await.unwrap();
    bed.control(r#"{"do": "expire", "key": "AKIDTEST"}"#);
    let error = provider.launch(&prepared).await.unwrap_err();
    assert!(matches!(&error, LaunchError::Later { fault, .. } if fault.code == "RequestExpired"), "{error}");
    let findings = provider.resolve(&class(spec())).await;
    assert!(findings.is_ready(), "what was found is still good");
    let (status, reason, message) = condition(&findings, "LaunchesAccepted");
    assert_eq!((status, reason), (Some(false), "Unauthenticated"));
    says(message, &["CreateFleet answered RequestExpired", "Renew the credentials"]);
}

#[tokio::test]
async fn selectors_with_too_many_matches_are_reported() {
    let bed = Bed::new().await;
    bed.world(|world| world.add_foreign_subnet("us-east-1a"));
    let findings = resolve(&bed.provider, |_| {}).await;
    let (status, reason, message) = condition(&findings, "SubnetsReady");
    assert_eq!((status, reason), (Some(false), "SubnetsOfSeveralVPCs"));
    says(message, &["2 VPCs", "add a tag that only one has"]);

    bed.world(|world| world.add_images(101, ("team", "blue")));
    let findings = resolve(&bed.provider, |spec| {
        spec.ami_family = Some(croft_api::nodeclass::AmiFamily::Custom);
        spec.ami_selector_terms[0].alias = None;
        spec.ami_selector_terms[0].tags = BTreeMap::from([("team".to_owned(), "blue".to_owned())]);
    })
    .await;
    let (status, reason, message) = condition(&findings, "AMIsReady");
    assert_eq!((status, reason), (Some(false), "TooManyAMIs"));
    says(message, &["match 101 images", "add a tag that only the right ones have"]);
}

#[tokio::test]
async fn unknown_ids_are_reported() {
    let bed = Bed::new().await;
    let term = |id: &str| vec![SelectorTerm { id: Some(id.to_owned()), ..SelectorTerm::default() }];
    let findings = resolve(&bed.provider, |spec| {
        spec.subnet_selector_terms = term("subnet-00000000000000000");
        spec.security_group_selector_terms = term("sg-00000000000000000");
        spec.ami_family = Some(croft_api::nodeclass::AmiFamily::AL2023);
        spec.ami_selector_terms[0].alias = None;
        spec.ami_selector_terms[0].id = Some("ami-00000000000000000".to_owned());
    })
    .await;
    for (kind, reason, words) in [
        ("SubnetsReady", "SubnetsNotFound", "correct the terms"),
        ("SecurityGroupsReady", "SecurityGroupsNotFound", "correct the terms"),
        ("AMIsReady", "AMIsNotFound", "correct the terms"),
    ] {
        let (status, actual, message) = condition(&findings, kind);
        assert_eq!((status, actual), (Some(false), reason), "{message}");
        says(message, &[words]);
    }
    assert_eq!(condition(&findings, "InstanceProfileReady").0, Some(true), "the rest is looked up");
}

#[tokio::test]
async fn invalid_aliases_are_reported() {
    let bed = Bed::new().await;
    for (alias, words) in [
        ("al2023", "has no version: write family@latest"),
        ("al2027@latest", "names no known family"),
        ("al2023@newest", "has no readable version"),
    ] {
        let findings =
            resolve(&bed.provider, |spec| spec.ami_selector_terms[0].alias = Some(alias.to_owned())).await;
        let (status, reason, message) = condition(&findings, "AMIsReady");
        assert_eq!((status, reason), (Some(false), "InvalidRequest"));
        says(message, &[alias, words]);
    }
}

#[tokio::test]
async fn oversized_user_data_is_reported() {
    let bed = Bed::new().await;
    let findings = resolve(&bed.provider, |spec| {
        spec.ami_family = Some(croft_api::nodeclass::AmiFamily::Custom);
        spec.user_data = Some("x".repeat(16 * 1024 + 1));
    })
    .await;
    let (status, reason, message) = condition(&findings, "UserDataReady");
    assert_eq!((status, reason), (Some(false), "UserDataInvalid"));
    says(message, &["16384 bytes: it has 16385", "shorten spec.userData"]);

    let mut packed = request(&["m5.large"], OnDemand);
    let long = format!("#!/bin/bash\n# {}\n", "x".repeat(20_000));
    packed.class = Arc::new(class(EC2NodeClassSpec { user_data: Some(long.clone()), ..spec() }));
    let launched = bed.launch(&packed).await.unwrap();
    let sent = bed.world(|w| w.instance(&launched.instance.id).unwrap().data.user_data.clone());
    assert!(sent.len() < 4_000, "{} bytes", sent.len());
    let read = croft_ec2_sim::userdata::read(&sent).unwrap();
    assert_eq!(read.taints[0].key, "node-pool", "the image unpacks it");
}

#[tokio::test]
async fn subnets_without_addresses_are_reported() {
    let bed = Bed::with(Settings { subnet_addresses: 0, ..few_types() }).await;
    let findings = resolve(&bed.provider, |_| {}).await;
    let (status, reason, message) = condition(&findings, "SubnetsReady");
    assert_eq!((status, reason), (Some(false), "SubnetsFull"));
    says(message, &["none of the 5 subnets", "add larger ones"]);
}

#[tokio::test]
async fn launch_template_quota_is_reported() {
    let bed = Bed::with(Settings { template_quota: 0, ..few_types() }).await;
    let error = bed.launch(&request(&["m5.large"], OnDemand)).await.unwrap_err();
    assert!(matches!(&error, LaunchError::Refused { .. }), "{error}");
    assert_eq!(error.reason(), "QuotaReached");
    says(&error.to_string(), &["pool-a-1", "LaunchTemplateLimitExceeded", "Delete launch templates"]);
    let findings = bed.provider.resolve(&class(spec())).await;
    assert!(findings.is_ready(), "the class itself is right, and is tried again");
    let (status, reason, message) = condition(&findings, "LaunchesAccepted");
    assert_eq!((status, reason), (Some(false), "QuotaReached"));
    says(message, &["LaunchTemplateLimitExceeded", "quota of launch templates", "ask for an increase"]);

    bed.control(r#"{"do": "quota", "launchTemplates": 10}"#);
    let next = LaunchRequest { attempt: 2, ..request(&["m5.large"], OnDemand) };
    bed.launch(&next).await.unwrap();
    let findings = bed.provider.resolve(&class(spec())).await;
    assert_eq!(condition(&findings, "LaunchesAccepted").0, Some(true));
}

#[tokio::test]
async fn permission_needed_only_by_launches_is_reported() {
    let bed = Bed::new().await;
    bed.provider.resolve(&class(spec())).await;
    bed.control(
        r#"{"do": "restrict", "key": "*", "policy": {"Statement": [
            {"Effect": "Allow", "Action": "*", "Resource": "*"},
            {"Effect": "Deny", "Action": "ec2:RunInstances", "Resource": "*"}]}}"#,
    );
    let error = bed.launch(&request(&["m5.large"], OnDemand)).await.unwrap_err();
    assert_eq!(error.reason(), FaultClass::Forbidden.as_str());
    says(&error.to_string(), &["ec2:RunInstances", "UnauthorizedOperation", "iam-policy.json"]);
    let findings = bed.provider.resolve(&class(spec())).await;
    let (status, reason, message) = condition(&findings, "LaunchesAccepted");
    assert_eq!((status, reason), (Some(false), "Forbidden"));
    says(message, &["ec2:RunInstances"]);
    assert!(bed.provider.shortages().is_empty(), "nothing is short for want of a right");
}

#[tokio::test]
async fn forbidden_type_is_reported() {
    let bed = Bed::new().await;
    bed.control(r#"{"do": "forbid", "instanceType": "m5.*"}"#);
    let error = bed.launch(&request(&["m5.large"], OnDemand)).await.unwrap_err();
    assert!(matches!(&error, LaunchError::NoCapacity { .. }), "{error}");
    says(&error.to_string(), &["Unsupported", "the account may not launch it", "tries other types"]);
    assert!(bed.provider.shortages().iter().all(|s| s.fault.code == "Unsupported"));
}

#[tokio::test]
async fn actionable_refusal_is_reported_before_transient_ones() {
    let bed = Bed::with(Settings { vcpu_quota: Some(1), ..few_types() }).await;
    bed.control(r#"{"do": "capacity", "rules": [{"instanceType": "c5.large", "count": 0}]}"#);
    let mut mixed = request(&["c5.large", "m5.large"], OnDemand);
    mixed.zones = vec!["us-east-1a".to_owned()];
    // The quota is checked before capacity, so only requests within it find no capacity.
    bed.control(r#"{"do": "quota", "vcpus": 3}"#);
    bed.launch(&LaunchRequest { claim_uid: "first".to_owned(), ..request(&["m5.large"], OnDemand) })
        .await
        .unwrap();
    let error = bed.launch(&mixed).await.unwrap_err();
    assert_eq!(error.reason(), "QuotaReached", "{error}");
    says(&error.to_string(), &["VcpuLimitExceeded", "Ask for an increase"]);
}

#[tokio::test]
async fn unusable_kms_key_fails_the_starting_instance() {
    let bed = Bed::with(Settings { running_after_ms: 0, ..few_types() }).await;
    bed.control(
        r#"{"do": "launchFailures", "rules": [{"reason": "Client.InternalError: Client error on launch", "times": 1},
            {"reason": "Server.InsufficientInstanceCapacity: Insufficient capacity", "times": 1}]}"#,
    );
    let error = bed.launch(&request(&["m5.large"], OnDemand)).await.unwrap_err();
    assert!(matches!(&error, LaunchError::Refused { .. }), "{error}");
    says(&error.to_string(), &["Client.InternalError", "a volume's key", "spec.blockDeviceMappings"]);

    let second = LaunchRequest { attempt: 2, ..request(&["m5.large"], OnDemand) };
    let error = bed.launch(&second).await.unwrap_err();
    let LaunchError::NoCapacity { offerings, .. } = &error else { panic!("{error}") };
    assert_eq!((offerings.len(), offerings[0].instance_type.as_str()), (1, "m5.large"));
    let third = LaunchRequest { attempt: 3, ..request(&["m5.large"], OnDemand) };
    let launched = bed.launch(&third).await.unwrap();
    assert_ne!(launched.instance.zone, offerings[0].zone, "that zone is set aside");
}

#[tokio::test]
async fn new_instance_profile_unknown_to_ec2_is_retried() {
    let bed = Bed::with(Settings { profile_settles_ms: 10_000, ..few_types() }).await;
    let error = bed.launch(&request(&["m5.large"], Spot)).await.unwrap_err();
    assert_eq!(error.reason(), "NotFound", "{error}");
    says(&error.to_string(), &["doesn't know the new instance profile yet", "nothing to do"]);
    let findings = bed.provider.resolve(&class(spec())).await;
    assert_eq!(condition(&findings, "LaunchesAccepted").0, Some(true), "it passes by itself");
    bed.simulator.advance(std::time::Duration::from_secs(10));
    bed.launch(&LaunchRequest { attempt: 2, ..request(&["m5.large"], Spot) }).await.unwrap();
}
