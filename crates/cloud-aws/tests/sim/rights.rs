//! The IAM policy of manifests/aws: sufficient, and without unneeded actions.

use std::collections::{BTreeMap, BTreeSet};

use croft_cloud::{CloudError, CloudProvider, FaultClass, InUse};
use croft_cloud_aws::{Verdict, check_rights, owned_instances};
use croft_ec2_sim::policy::{Demand, Policy};
use croft_scheduler::CapacityType::OnDemand;
use serde_json::Value;

use crate::bed::{Bed, UID, class, few_types, request, spec};

const POLICY: &str = include_str!("../../../../manifests/aws/iam-policy.json");
const PAGE: &str = include_str!("../../../../docs/aws-permissions.md");

fn policy() -> String {
    [
        ("CLUSTER_UID", UID),
        ("CLUSTER_NAME", "croft"),
        ("REGION", "us-east-1"),
        ("ACCOUNT", "000000000000"),
        ("NODE_ROLE", "croft-node"),
        ("QUEUE", "croft"),
    ]
    .into_iter()
    .fold(POLICY.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// A type whose price the built-in catalogue lacks.
const WITHOUT_PRICE: &str = "t8i.small";

/// A cloud that reserves an instance, and has a type whose price is in the price list only.
async fn bed() -> Bed {
    let mut settings = few_types();
    settings.types.push(WITHOUT_PRICE.to_owned());
    let bed = Bed::with(settings).await;
    bed.control(r#"{"do": "reserve", "instanceType": "m5.large", "zone": "us-east-1b", "count": 1}"#);
    bed
}

/// Every operation of the provider.
async fn everything(bed: &Bed) -> Result<(), String> {
    let provider = bed.restarted().await;
    let mut spec = spec();
    spec.capacity_reservation_selector_terms = vec![croft_api::nodeclass::SelectorTerm::default()];
    let class = class(spec);
    let findings = provider.resolve(&class).await;
    if let Some(why) = findings.why_not() {
        return Err(why.to_owned());
    }
    let types = provider.instance_types(&class).await.map_err(|e| e.to_string())?;
    // Without permission to read prices the built-in ones are used, and likewise for types.
    let m5 = types.iter().find(|t| t.name == "m5.large").ok_or("no m5.large")?;
    if m5.offerings.iter().any(|o| o.estimated) {
        return Err("a price is an estimate".to_owned());
    }
    let unlisted = types.iter().find(|t| t.name == WITHOUT_PRICE).ok_or("the type is missing")?;
    if unlisted.offerings.iter().any(|o| o.price.is_none()) {
        return Err("a type has no price".to_owned());
    }
    let mut request = request(&["m5.large"], OnDemand);
    request.class = std::sync::Arc::new(class.clone());
    let prepared = provider.prepare(&request).await.map_err(|e| e.to_string())?;
    let launched = provider.launch(&prepared).await.map_err(|e| e.to_string())?;
    let failed = |e: CloudError| e.to_string();
    provider.find_by_claim(&request.claim_uid).await.map_err(failed)?;
    provider.list().await.map_err(failed)?;
    let id = launched.instance.id;
    provider.tag(&id, &BTreeMap::from([("Name".to_owned(), "n".to_owned())])).await.map_err(failed)?;
    bed.world(|world| world.interrupt(&id, croft_ec2_sim::sqs::News::Rebalance));
    let news = provider.interruptions().await.map_err(failed)?;
    provider.acknowledge(&news).await.map_err(failed)?;
    provider.terminate(&[id]).await.map_err(failed)?;
    bed.simulator.advance(std::time::Duration::from_secs(60 * 60));
    bed.world(|world| world.age_templates());
    // Another provider, since this one remembers having used the template.
    bed.restarted().await.sweep(&InUse::default()).await.map_err(failed)?;
    let left = bed.world(|world| world.report());
    if left.get("launchTemplates").and_then(Value::as_array).is_some_and(|t| !t.is_empty()) {
        return Err("a template is left".to_owned());
    }
    Ok(())
}

#[tokio::test]
async fn policy_is_sufficient() {
    let bed = bed().await;
    bed.world(|world| world.restrict("*", Policy::parse(&policy()).unwrap()));
    everything(&bed).await.unwrap();
    assert!(bed.world(|world| world.denied().is_empty()));
}

/// The actions of the policy, one by one.
fn actions() -> BTreeSet<String> {
    let policy = Policy::parse(&policy()).unwrap();
    policy.statement.into_iter().flat_map(|s| s.action).collect()
}

#[tokio::test]
async fn every_action_of_the_policy_is_needed() {
    let whole: Value = serde_json::from_str(&policy()).unwrap();
    for action in actions() {
        let mut less = whole.clone();
        for statement in less["Statement"].as_array_mut().unwrap() {
            let kept: Vec<Value> = match &statement["Action"] {
                Value::String(one) => vec![Value::String(one.clone())],
                Value::Array(many) => many.clone(),
                other => panic!("{other}"),
            };
            statement["Action"] = kept.into_iter().filter(|a| a.as_str() != Some(action.as_str())).collect();
        }
        let bed = bed().await;
        bed.world(|world| world.restrict("*", Policy::parse(&less.to_string()).unwrap()));
        let result = everything(&bed).await;
        let denied = bed.world(|world| world.denied().clone());
        assert!(denied.contains(&action), "{action} is granted and not needed ({result:?})");
        // The permission to describe types can be missing, since the built-in catalogue replaces them, that to describe
        // reservations, since other capacity is launched: a condition of the class says so; and that to read status checks, on
        // which nothing is done then.
        let spare = [
            "ec2:DescribeInstanceTypes",
            "ec2:DescribeInstanceTypeOfferings",
            "ec2:DescribeCapacityReservations",
            "ec2:DescribeInstanceStatus",
        ];
        assert!(result.is_err() || spare.contains(&action.as_str()), "no call fails without {action}");
    }
}

#[tokio::test]
async fn permissions_page_maps_every_action_to_its_call() {
    let bed = bed().await;
    everything(&bed).await.unwrap();
    let needed = bed.world(|world| world.demands().clone());
    let mut calls: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (action, call) in needed {
        calls.entry(action).or_default().insert(call.split(':').nth(1).unwrap().to_owned());
    }
    let granted = actions();
    assert_eq!(
        granted,
        calls.keys().cloned().collect(),
        "the policy grants what is asked for, no more, no less"
    );
    let rows: BTreeMap<String, BTreeSet<String>> = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|row| {
            let (action, rest) = row.split_once("` | ")?;
            let calls = rest.split(" | ").next()?;
            Some((action.to_owned(), calls.split(", ").map(|c| c.trim_matches('`').to_owned()).collect()))
        })
        .collect();
    assert_eq!(rows, calls, "docs/aws-permissions.md");
}

#[tokio::test]
async fn missing_permission_is_named_with_its_remedy() {
    let bed = Bed::new().await;
    let less = policy().replace("\"ec2:DescribeSubnets\"", "\"ec2:DescribeNothing\"");
    bed.world(|world| world.restrict("*", Policy::parse(&less).unwrap()));
    let findings = bed.provider.resolve(&class(spec())).await;
    let subnets = findings.conditions.iter().find(|c| c.kind == "SubnetsReady").unwrap();
    assert_eq!((subnets.status, subnets.reason), (Some(false), "Forbidden"));
    for part in ["DescribeSubnets", "UnauthorizedOperation", "the policy does not grant", "iam-policy.json"] {
        assert!(subnets.message.contains(part), "{part}: {}", subnets.message);
    }
}

#[tokio::test]
async fn instances_of_other_clusters_cannot_be_terminated() {
    let bed = Bed::new().await;
    let mut options = crate::bed::options(&bed.url);
    options.cluster_uid = "another".to_owned();
    let other = croft_cloud_aws::AwsProvider::connect(options).await;
    let prepared = other.prepare(&request(&["m5.large"], OnDemand)).await.unwrap();
    let id = other.launch(&prepared).await.unwrap().instance.id;
    bed.world(|world| world.restrict("*", Policy::parse(&policy()).unwrap()));
    let error = bed.provider.terminate(std::slice::from_ref(&id)).await.unwrap_err();
    assert_eq!(error.class(), FaultClass::Forbidden, "{error}");
    let error = bed.provider.tag(&id, &BTreeMap::from([("a".to_owned(), "b".to_owned())])).await.unwrap_err();
    assert_eq!(error.class(), FaultClass::Forbidden, "{error}");
    assert!(bed.world(|world| world.instance(&id).unwrap().state.is_alive()));
}

#[tokio::test]
async fn instances_that_run_get_no_tag_keys_but_those_of_croft() {
    let bed = Bed::new().await;
    let prepared = bed.provider.prepare(&request(&["m5.large"], OnDemand)).await.unwrap();
    let id = bed.provider.launch(&prepared).await.unwrap().instance.id;
    bed.world(|world| world.restrict("*", Policy::parse(&policy()).unwrap()));
    let tags = |key: &str| BTreeMap::from([(key.to_owned(), "x".to_owned())]);
    bed.provider.tag(&id, &tags("croft.dev/claim")).await.unwrap();
    let error = bed.provider.tag(&id, &tags("team")).await.unwrap_err();
    assert_eq!(error.class(), FaultClass::Forbidden, "{error}");
}

/// A resource that exists already and is another team's: the controller's role can't make it the cluster's, nor launch
/// from it. A tag of the request is no evidence about a resource that was there before.
#[test]
fn nothing_that_others_have_is_claimed_by_a_tag_of_the_request() {
    let policy = Policy::parse(&policy()).unwrap();
    let own = BTreeMap::from([("croft.dev/cluster".to_owned(), UID.to_owned())]);
    let profile = |rest: &str| format!("arn:aws:iam::000000000000:instance-profile/{rest}");
    let ec2 = |rest: &str| format!("arn:aws:ec2:us-east-1:000000000000:{rest}");
    let claims = |action: &str, arn: String| Demand::new(action, arn).with_tags("aws:RequestTag", &own);
    let made = |action: &str, arn: String, by: &str| claims(action, arn).with("ec2:CreateAction", by);
    let claimed = |action: &str, arn: String| Demand::new(action, arn).with_tags("aws:ResourceTag", &own);
    let within = profile(&format!("croft/{UID}/croft-1"));
    for (allowed, demand) in [
        (true, claims("iam:CreateInstanceProfile", within.clone())),
        (true, claims("iam:TagInstanceProfile", within.clone())),
        (true, claimed("iam:DeleteInstanceProfile", within)),
        (false, claims("iam:TagInstanceProfile", profile("payroll"))),
        (false, claims("iam:TagInstanceProfile", profile("croft/another/croft-1"))),
        (false, claims("iam:CreateInstanceProfile", profile("payroll"))),
        (false, claimed("iam:AddRoleToInstanceProfile", profile("payroll"))),
        (false, claimed("iam:RemoveRoleFromInstanceProfile", profile("payroll"))),
        (false, claimed("iam:DeleteInstanceProfile", profile("payroll"))),
        (true, claims("ec2:CreateLaunchTemplate", ec2("launch-template/*"))),
        (false, claims("ec2:RunInstances", ec2("launch-template/lt-1"))),
        (false, claims("ec2:CreateFleet", ec2("launch-template/lt-1"))),
        (true, made("ec2:CreateTags", ec2("instance/*"), "RunInstances")),
        (false, claims("ec2:CreateTags", ec2("instance/i-1"))),
        (false, claims("ec2:CreateTags", ec2("volume/vol-1"))),
        (false, claims("ec2:CreateTags", ec2("network-interface/eni-1"))),
        (false, claims("ec2:CreateTags", ec2("launch-template/lt-1"))),
        (false, claims("ec2:TerminateInstances", ec2("instance/i-1"))),
        (false, claims("ec2:DeleteLaunchTemplate", ec2("launch-template/lt-1"))),
    ] {
        assert_eq!(policy.allows(&demand), allowed, "{demand:?}");
    }
}

#[tokio::test]
async fn expired_credentials_are_reported() {
    let bed = Bed::new().await;
    bed.world(|world| world.expire_key("AKIDTEST"));
    let findings = bed.restarted().await.resolve(&class(spec())).await;
    let ready = findings.conditions.iter().find(|c| c.kind == "Ready").unwrap();
    assert_eq!((ready.status, ready.reason), (Some(false), "Unauthenticated"));
    assert!(ready.message.contains("RequestExpired"), "{}", ready.message);
}

fn access(bed: &Bed) -> croft_cloud_aws::Access {
    crate::bed::options(&bed.url).access
}

fn subject() -> croft_cloud_aws::Subject {
    croft_cloud_aws::Subject {
        cluster_uid: UID.to_owned(),
        cluster_name: Some("croft".to_owned()),
        kubernetes_version: "1.36".to_owned(),
        interruption_queue: Some("croft".to_owned()),
    }
}

/// The verdicts of a check by action.
async fn verdicts(bed: &Bed) -> BTreeMap<String, Verdict> {
    let found = check_rights(&access(bed), &subject()).await.unwrap().expect("a region is set");
    assert!(found.identity.arn.starts_with("arn:aws:"), "{:?}", found.identity);
    found.rights.into_iter().map(|right| (right.action, right.verdict)).collect()
}

#[tokio::test]
async fn preflight_with_the_policy_denies_nothing_and_changes_nothing() {
    let bed = Bed::new().await;
    bed.world(|world| world.restrict("*", Policy::parse(&policy()).unwrap()));
    let before = bed.world(|world| world.report());
    let verdicts = verdicts(&bed).await;
    let parts = ["launchTemplates", "instances", "instanceProfiles"];
    let after = bed.world(|world| world.report());
    for part in parts {
        assert_eq!(before.get(part), after.get(part), "{part}");
    }
    assert_eq!(verdicts.keys().cloned().collect::<BTreeSet<_>>(), actions());
    let unknown: Vec<&str> = verdicts
        .iter()
        .filter(|(action, verdict)| **verdict != Verdict::Granted && !action.starts_with("iam:"))
        .map(|(action, verdict)| {
            assert!(matches!(verdict, Verdict::Unknown(_)), "{action}: {verdict:?}");
            action.as_str()
        })
        .collect();
    // The cluster lacks three resources, and only messages show the rights on a queue.
    assert_eq!(
        unknown,
        [
            "ec2:CreateFleet",
            "ec2:DeleteLaunchTemplate",
            "ec2:TerminateInstances",
            "sqs:DeleteMessage",
            "sqs:ReceiveMessage"
        ]
    );
}

#[tokio::test]
async fn preflight_checks_rights_on_what_the_cluster_has() {
    let bed = Bed::new().await;
    let prepared = bed.provider.prepare(&request(&["m5.large"], OnDemand)).await.unwrap();
    let id = bed.provider.launch(&prepared).await.unwrap().instance.id;
    bed.world(|world| world.restrict("*", Policy::parse(&policy()).unwrap()));
    let own = verdicts(&bed).await;
    for action in ["ec2:CreateFleet", "ec2:DeleteLaunchTemplate", "ec2:TerminateInstances"] {
        assert_eq!(own[action], Verdict::Granted, "{action}");
    }
    assert!(bed.world(|world| world.instance(&id).unwrap().state.is_alive()));
    let owned = owned_instances(&access(&bed), UID).await.unwrap().unwrap();
    assert_eq!(owned.iter().map(|i| i.id.as_str()).collect::<Vec<_>>(), [id.as_str()]);
    assert_eq!(owned_instances(&access(&bed), "another").await.unwrap().unwrap().len(), 0);
}

#[tokio::test]
async fn preflight_names_each_missing_right() {
    for (action, also_unknown) in [
        ("ec2:DescribeSubnets", &["ec2:RunInstances"][..]),
        ("ec2:RunInstances", &[]),
        ("ec2:CreateLaunchTemplate", &[]),
        ("ec2:CreateTags", &["ec2:CreateLaunchTemplate", "ec2:RunInstances"]),
        ("iam:GetInstanceProfile", &[]),
        ("iam:ListInstanceProfiles", &[]),
        ("pricing:GetProducts", &[]),
        ("eks:DescribeCluster", &[]),
        ("sqs:GetQueueUrl", &[]),
        ("ssm:GetParameter", &["ec2:RunInstances"]),
    ] {
        let bed = Bed::new().await;
        let less = policy().replace(&format!("\"{action}\""), "\"ec2:Nothing\"");
        bed.world(|world| world.restrict("*", Policy::parse(&less).unwrap()));
        let verdicts = verdicts(&bed).await;
        let denied: Vec<&String> =
            verdicts.iter().filter(|(_, v)| matches!(v, Verdict::Denied(_))).map(|(a, _)| a).collect();
        assert_eq!(denied, [action], "{verdicts:?}");
        for other in also_unknown {
            assert!(matches!(verdicts[*other], Verdict::Unknown(_)), "{other} without {action}");
        }
    }
}

#[tokio::test]
async fn preflight_without_valid_credentials_is_an_error() {
    let bed = Bed::new().await;
    bed.world(|world| world.expire_key("AKIDTEST"));
    let error = check_rights(&access(&bed), &subject()).await.unwrap_err();
    assert_eq!(error.class(), FaultClass::Unauthenticated, "{error}");
}
