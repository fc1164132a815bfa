//! Reads of the account, for `croft check`.

use std::collections::BTreeSet;

use croft_cloud::CloudProvider as _;
use croft_cloud_aws::{AccountReader, QueueFacts};
use croft_ec2_sim::policy::Policy;
use croft_scheduler::CapacityType::OnDemand;
use serde_json::json;

use crate::bed::{Bed, UID, options, request};

const PAGE: &str = include_str!("../../../../docs/aws-permissions.md");
const ROLE: &str = "arn:aws:iam::000000000000:role/croft-node";
const QUEUE: &str = "arn:aws:sqs:us-east-1:000000000000:croft";

async fn reader(bed: &Bed) -> AccountReader {
    AccountReader::connect(&options(&bed.url).access).await.expect("a region is set")
}

/// Every read; the reasons of those that can't be made.
async fn unread(reader: &AccountReader) -> Vec<String> {
    let mut whys = Vec::new();
    macro_rules! read {
        ($($call:expr),+ $(,)?) => { $(whys.extend($call.await.err().map(|why| why.to_string()));)+ };
    }
    read!(
        reader.identity(),
        reader.cluster("croft"),
        reader.clusters(),
        reader.access_entries("croft"),
        reader.access_entry_type("croft", ROLE),
        reader.pod_identity_role("croft", "croft-system", "croft-controller"),
        reader.fargate_profiles("croft"),
        reader.role_of_profile("croft-node"),
        reader.rules_to(QUEUE),
        reader.clusters_with_instances(),
        reader.subnets_of(&["i-1".to_owned()]),
        reader.without_internet("vpc-1", &BTreeSet::new()),
        reader.endpoints("vpc-1"),
    );
    match reader.queue("croft").await {
        Ok(Some(queue)) if queue.arn.is_empty() => {
            whys.push("it takes the right sqs:GetQueueAttributes".to_owned())
        }
        Ok(_) => {}
        Err(why) => whys.push(why.to_string()),
    }
    whys
}

/// The actions in the table of what `croft check` asks.
fn listed() -> BTreeSet<String> {
    let (_, section) = PAGE.split_once("## What `croft check` asks").expect("the page has the section");
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let words = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    words.filter(|word| word.contains(':')).map(str::to_owned).collect()
}

#[tokio::test]
async fn actions_of_the_page_suffice_and_each_is_needed() {
    let bed = Bed::new().await;
    let grant = |actions: &BTreeSet<String>| {
        let policy = json!({"Statement": {"Effect": "Allow", "Action": actions, "Resource": "*"}});
        bed.world(|world| world.restrict("*", Policy::parse(&policy.to_string()).unwrap()));
    };
    bed.world(|world| {
        world.integrate(|account| drop(account.fargate_profiles.insert("p".to_owned(), Vec::new())))
    });
    let reader = reader(&bed).await;
    let all = listed();
    grant(&all);
    assert_eq!(unread(&reader).await, [""; 0], "docs/aws-permissions.md");
    assert!(all.len() > 10, "{all:?}");
    for action in &all {
        let mut less = all.clone();
        less.remove(action);
        grant(&less);
        let whys: BTreeSet<String> = unread(&reader).await.into_iter().collect();
        assert_eq!(whys, BTreeSet::from([format!("it takes the right {action}")]));
    }
}

#[tokio::test]
async fn integrated_account_is_read() {
    let bed = Bed::new().await;
    bed.world(|world| {
        world.integrate(|account| {
            account
                .access_entries
                .insert("arn:aws:iam::000000000000:role/admin".to_owned(), "STANDARD".to_owned());
            account.other_clusters = vec!["test".to_owned()];
            let selector = json!({"namespace": "croft-*", "labels": {"a": "b"}});
            let selectors = vec![serde_json::from_value(selector).unwrap()];
            account.fargate_profiles.insert("croft".to_owned(), selectors);
        });
    });
    let reader = reader(&bed).await;
    let cluster = reader.cluster("croft").await.unwrap().unwrap();
    assert_eq!(
        (cluster.status.as_str(), cluster.authentication_mode.as_str()),
        ("ACTIVE", "API_AND_CONFIG_MAP")
    );
    assert_eq!(reader.cluster("other").await.unwrap(), None);
    assert_eq!(reader.clusters().await.unwrap(), ["test", "croft"]);
    // The second page has the second entry.
    assert_eq!(reader.access_entries("croft").await.unwrap(), ["arn:aws:iam::000000000000:role/admin", ROLE]);
    assert_eq!(reader.access_entry_type("croft", ROLE).await.unwrap().as_deref(), Some("EC2_LINUX"));
    assert_eq!(reader.access_entry_type("croft", "arn:aws:iam::1:role/x").await.unwrap(), None);
    let profiles = reader.fargate_profiles("croft").await.unwrap();
    let [profile] = profiles.as_slice() else { panic!("{profiles:?}") };
    assert_eq!((profile.name.as_str(), profile.selectors[0].namespace.as_str()), ("croft", "croft-*"));
    assert_eq!(profile.selectors[0].labels.get("a").map(String::as_str), Some("b"));
    let role =
        async |account: &str| reader.pod_identity_role("croft", "croft-system", account).await.unwrap();
    assert_eq!(
        role("croft-controller").await.as_deref(),
        Some("arn:aws:iam::000000000000:role/croft-controller")
    );
    assert_eq!(role("other").await, None);
}

#[tokio::test]
async fn queue_and_its_rules_are_read() {
    let bed = Bed::new().await;
    bed.world(|world| {
        world.integrate(|account| account.rules = vec!["!AWS Health Event".to_owned()]);
        world.publish_text("{}");
    });
    let reader = reader(&bed).await;
    assert_eq!(
        reader.queue("croft").await.unwrap(),
        Some(QueueFacts { arn: QUEUE.to_owned(), waiting: Some(1) })
    );
    assert_eq!(reader.queue("absent").await.unwrap(), None);
    let rules = reader.rules_to(QUEUE).await.unwrap();
    let [rule] = rules.as_slice() else { panic!("{rules:?}") };
    assert!(!rule.enabled && rule.pattern.contains("AWS Health Event"), "{rule:?}");
    assert!(reader.rules_to("arn:aws:sqs:us-east-1:000000000000:other").await.unwrap().is_empty());
}

#[tokio::test]
async fn instances_routes_and_endpoints_are_read() {
    let bed = Bed::new().await;
    let prepared = bed.provider.prepare(&request(&["m5.large"], OnDemand)).await.unwrap();
    let id = bed.provider.launch(&prepared).await.unwrap().instance.id;
    let reader = reader(&bed).await;
    assert_eq!(reader.clusters_with_instances().await.unwrap(), BTreeSet::from([UID.to_owned()]));
    let subnets = reader.subnets_of(&[id]).await.unwrap();
    assert_eq!(subnets.len(), 1);
    let vpc = reader.cluster("croft").await.unwrap().unwrap().vpc.unwrap();
    assert!(reader.without_internet(&vpc, &subnets).await.unwrap().is_empty());
    assert!(reader.endpoints(&vpc).await.unwrap().is_empty());
    bed.world(|world| {
        world.integrate(|account| {
            account.internet = false;
            account.endpoints = ["ec2", "ecr.api", "s3"].map(str::to_owned).into();
        });
    });
    assert_eq!(reader.without_internet(&vpc, &subnets).await.unwrap(), Vec::from_iter(subnets));
    assert_eq!(reader.endpoints(&vpc).await.unwrap(), ["ec2", "ecr.api", "s3"].map(str::to_owned).into());
}

#[tokio::test]
async fn denied_read_names_its_right() {
    let bed = Bed::new().await;
    let nothing = r#"{"Statement": {"Effect": "Allow", "Action": "ec2:Nothing", "Resource": "*"}}"#;
    bed.world(|world| world.restrict("*", Policy::parse(nothing).unwrap()));
    let reader = reader(&bed).await;
    let why = reader.access_entries("croft").await.unwrap_err().to_string();
    assert_eq!(why, "it takes the right eks:ListAccessEntries");
    let why = reader.rules_to(QUEUE).await.unwrap_err().to_string();
    assert_eq!(why, "it takes the right events:ListRuleNamesByTarget");
    let why = reader.endpoints("vpc-1").await.unwrap_err().to_string();
    assert_eq!(why, "it takes the right ec2:DescribeVpcEndpoints");
}
