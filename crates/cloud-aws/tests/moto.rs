//! The provider against moto, an independent emulator: it shows where provider and ec2-sim share a misunderstanding.
//!
//! moto launches the first override of a fleet, has spot prices of 0.00001, no price list, no capacity reservations and
//! no eventual consistency, and ignores client tokens; those are tested on ec2-sim. `make test` creates the virtual
//! environment of moto.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
use aws_sdk_ec2::{
    config::{BehaviorVersion, Region},
    types::{ResourceType, Tag},
};
use croft_api::{
    EC2NodeClass, EC2NodeClassSpec,
    nodeclass::{AmiFamily, AmiSelectorTerm, SelectorTerm},
};
use croft_cloud::{
    CloudProvider, FaultClass, InUse, InstanceState, InterruptionKind, LaunchRequest, builtin_catalog, tags,
};
use croft_cloud_aws::{Access, AccountReader, AwsProvider, Keys, Options, Subject, Verdict, check_rights};
use croft_runtime::clock::{Clock, SystemClock};
use croft_scheduler::{CapacityType, Price, Resources};
use croft_testkit::moto::Moto;
use k8s_openapi::api::core::v1::Taint;
use serde_json::{Value, json};

const UID: &str = "11111111-2222-3333-4444-555555555555";
const ROLE: &str = "croft-node";

struct Bed {
    provider: Arc<AwsProvider>,
    options: Options,
    ec2: aws_sdk_ec2::Client,
    sqs: aws_sdk_sqs::Client,
    raw: Raw,
    _moto: Moto,
    _folder: tempfile::TempDir,
}

/// moto, spoken to without the provider's own clients.
struct Raw {
    address: String,
}

impl Raw {
    /// Calls IAM with `parameters`.
    async fn iam(&self, parameters: &str) -> String {
        let body = format!("{parameters}&Version=2010-05-08");
        self.call("iam", "Content-Type: application/x-www-form-urlencoded", &body).await
    }

    /// Calls `action` of SSM.
    async fn ssm(&self, action: &str, parameters: &Value) -> String {
        let headers = format!("Content-Type: application/x-amz-json-1.1\r\nX-Amz-Target: AmazonSSM.{action}");
        self.call("ssm", &headers, &parameters.to_string()).await
    }

    /// Calls `action` of EventBridge.
    async fn events(&self, action: &str, parameters: &Value) -> String {
        let headers = format!("Content-Type: application/x-amz-json-1.1\r\nX-Amz-Target: AWSEvents.{action}");
        self.call("events", &headers, &parameters.to_string()).await
    }

    /// Sends `body` and returns the answer. moto checks no signature, and finds the service in its scope.
    async fn call(&self, service: &str, headers: &str, body: &str) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let request = format!(
            "POST / HTTP/1.0\r\nHost: {}\r\nAuthorization: AWS4-HMAC-SHA256 \
             Credential=AKIDTEST/20260101/us-east-1/{service}/aws4_request, SignedHeaders=host, Signature=0\r\n\
             {headers}\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let mut connection = tokio::net::TcpStream::connect(&self.address).await.unwrap();
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        assert!(answer.lines().next().is_some_and(|line| line.contains(" 200 ")), "{body}: {answer}");
        answer
    }
}

async fn bed() -> Bed {
    let folder = tempfile::tempdir().unwrap();
    let moto = Moto::start(folder.path(), &[]).await.unwrap();
    let url = moto.url.clone();

    let keys = Keys { id: "AKIDTEST".to_owned(), secret: "secret".to_owned() };
    let credentials =
        SharedCredentialsProvider::new(Credentials::new(&keys.id, &keys.secret, None, None, "test"));
    let http = aws_smithy_http_client::Builder::new().build_http();
    let ec2 = aws_sdk_ec2::Client::from_conf(
        aws_sdk_ec2::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(credentials.clone())
            .endpoint_url(&url)
            .http_client(http.clone())
            .build(),
    );
    let sqs = aws_sdk_sqs::Client::from_conf(
        aws_sdk_sqs::Config::builder()
            .behavior_version(aws_sdk_sqs::config::BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(credentials)
            .endpoint_url(&url)
            .http_client(http)
            .build(),
    );
    let raw = Raw { address: url.trim_start_matches("http://").trim_end_matches('/').to_owned() };
    raw.iam(&format!("Action=CreateRole&RoleName={ROLE}&AssumeRolePolicyDocument=%7B%7D")).await;
    sqs.create_queue().queue_name("croft").send().await.unwrap();
    // The default network of a new account, tagged for discovery.
    let subnets = ec2.describe_subnets().send().await.unwrap();
    let groups = ec2.describe_security_groups().send().await.unwrap();
    let mut marked: Vec<String> =
        subnets.subnets().iter().filter_map(|s| s.subnet_id().map(str::to_owned)).collect();
    marked.extend(groups.security_groups().iter().filter_map(|g| g.group_id().map(str::to_owned)));
    let tag = Tag::builder().key("croft.dev/discovery").value("croft").build();
    ec2.create_tags().set_resources(Some(marked)).tags(tag).send().await.unwrap();

    let options = Options {
        access: Access {
            region: Some("us-east-1".to_owned()),
            endpoint_url: Some(url),
            keys: Some(keys),
            attempts: 1,
            ..Access::default()
        },
        cluster_uid: UID.to_owned(),
        cluster_name: "croft".to_owned(),
        cluster_endpoint: Some("https://127.0.0.1:6443".to_owned()),
        cluster_ca: Some("ca".to_owned()),
        kubernetes_version: Some("1.36".to_owned()),
        interruption_queue: Some("croft".to_owned()),
        ..Options::default()
    };
    let provider = AwsProvider::connect(options.clone()).await;
    Bed { provider, options, ec2, sqs, raw, _moto: moto, _folder: folder }
}

/// A class with an image of moto.
async fn class(bed: &Bed) -> EC2NodeClass {
    let images = bed.ec2.describe_images().send().await.unwrap();
    let image = images
        .images()
        .iter()
        .find(|i| i.architecture().is_some_and(|a| a.as_str() == "x86_64") && i.platform().is_none())
        .and_then(|i| i.image_id())
        .unwrap();
    let term = SelectorTerm {
        tags: BTreeMap::from([("croft.dev/discovery".to_owned(), "*".to_owned())]),
        ..SelectorTerm::default()
    };
    EC2NodeClass::new(
        "default",
        EC2NodeClassSpec {
            ami_family: Some(AmiFamily::AL2023),
            ami_selector_terms: vec![AmiSelectorTerm {
                id: Some(image.to_owned()),
                ..AmiSelectorTerm::default()
            }],
            role: Some(ROLE.to_owned()),
            subnet_selector_terms: vec![term.clone()],
            security_group_selector_terms: vec![term],
            tags: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
            ..EC2NodeClassSpec::default()
        },
    )
}

fn request(class: EC2NodeClass) -> LaunchRequest {
    LaunchRequest {
        claim_name: "pool-a-1".to_owned(),
        claim_uid: "claim-uid-1".to_owned(),
        pool: "pool-a".to_owned(),
        tenant: Some("tenant-a".to_owned()),
        attempt: 1,
        class: Arc::new(class),
        instance_types: vec!["m5.large".to_owned(), "m5a.large".to_owned()],
        zones: vec!["us-east-1b".to_owned()],
        capacity_type: CapacityType::OnDemand,
        requests: Resources::new(),
        labels: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
        taints: vec![Taint {
            key: "node-pool".to_owned(),
            value: Some("pool-a".to_owned()),
            effect: "NoSchedule".to_owned(),
            time_added: None,
        }],
        tags: BTreeMap::new(),
    }
}

// The server is slow to start and to describe a thousand types, so several checks share one.

#[tokio::test]
async fn class_resolves_on_moto() {
    let bed = bed().await;
    types_are_those_of_the_catalogue(&bed).await;
    images_by_parameter_and_by_tag(&bed).await;
    subnets_and_groups_by_id(&bed).await;
    what_is_not_there_is_said(&bed).await;
    a_profile_that_holds_another_role_is_corrected(&bed).await;
    no_right_is_denied_by_an_account_without_policies(&bed).await;
    the_account_around_a_cluster_is_read(&bed).await;
}

async fn the_account_around_a_cluster_is_read(bed: &Bed) {
    let reader = AccountReader::connect(&bed.options.access).await.expect("a region is set");
    let queue = reader.queue("croft").await.unwrap().unwrap();
    assert_eq!(queue.arn, "arn:aws:sqs:us-east-1:123456789012:croft");
    assert_eq!(queue.waiting, Some(0));
    assert_eq!(reader.queue("absent").await.unwrap(), None);
    assert!(reader.rules_to(&queue.arn).await.unwrap().is_empty());
    let pattern = r#"{"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"]}"#;
    bed.raw.events("PutRule", &json!({"Name": "spot", "EventPattern": pattern})).await;
    let target = json!({"Rule": "spot", "Targets": [{"Id": "1", "Arn": queue.arn}]});
    bed.raw.events("PutTargets", &target).await;
    let rules = reader.rules_to(&queue.arn).await.unwrap();
    let [rule] = rules.as_slice() else { panic!("{rules:?}") };
    assert!(rule.name == "spot" && rule.enabled, "{rule:?}");
    assert_eq!(
        serde_json::from_str::<Value>(&rule.pattern).unwrap(),
        serde_json::from_str::<Value>(pattern).unwrap()
    );

    let found = bed.ec2.describe_subnets().send().await.unwrap();
    let subnet = found.subnets().first().unwrap();
    let (vpc, subnet) = (subnet.vpc_id().unwrap(), BTreeSet::from([subnet.subnet_id().unwrap().to_owned()]));
    let closed = reader.without_internet(vpc, &subnet).await.unwrap();
    assert_eq!(closed, Vec::from_iter(subnet.clone()), "moto's main route table has the local route alone");
    let gateway = bed.ec2.create_internet_gateway().send().await.unwrap();
    let gateway = gateway.internet_gateway().unwrap().internet_gateway_id().unwrap().to_owned();
    bed.ec2.attach_internet_gateway().internet_gateway_id(&gateway).vpc_id(vpc).send().await.unwrap();
    let tables = bed.ec2.describe_route_tables().send().await.unwrap();
    let table = tables.route_tables().iter().find(|table| table.vpc_id() == Some(vpc)).unwrap();
    let route = bed.ec2.create_route().route_table_id(table.route_table_id().unwrap());
    route.destination_cidr_block("0.0.0.0/0").gateway_id(gateway).send().await.unwrap();
    assert!(reader.without_internet(vpc, &subnet).await.unwrap().is_empty());

    assert!(reader.endpoints(vpc).await.unwrap().is_empty());
    let endpoint = bed.ec2.create_vpc_endpoint().vpc_id(vpc).service_name("com.amazonaws.us-east-1.ecr.api");
    endpoint.vpc_endpoint_type("Interface".into()).send().await.unwrap();
    assert_eq!(reader.endpoints(vpc).await.unwrap(), BTreeSet::from(["ecr.api".to_owned()]));
}

async fn no_right_is_denied_by_an_account_without_policies(bed: &Bed) {
    let subject = Subject {
        cluster_uid: UID.to_owned(),
        cluster_name: None,
        kubernetes_version: "1.36".to_owned(),
        interruption_queue: Some("croft".to_owned()),
    };
    let found = check_rights(&bed.options.access, &subject).await.unwrap().expect("a region is set");
    assert_eq!(found.identity.region, "us-east-1");
    for right in &found.rights {
        assert!(!matches!(right.verdict, Verdict::Denied(_)), "{right:?}");
    }
    for action in
        ["ec2:DescribeSubnets", "ec2:DescribeInstances", "iam:GetInstanceProfile", "sqs:GetQueueUrl"]
    {
        let right = found.rights.iter().find(|right| right.action == action);
        assert_eq!(right.map(|right| &right.verdict), Some(&Verdict::Granted), "{right:?}");
    }
}

#[tokio::test]
async fn claims_become_instances() {
    let bed = bed().await;
    a_template_says_what_the_class_says(&bed).await;
    interfaces_are_written_as_ec2_reads_them(&bed).await;
    a_claim_becomes_an_instance_and_is_ended(&bed).await;
    many_claims_are_found_tagged_and_ended_together(&bed).await;
    templates_that_nothing_launches_from_are_deleted(&bed).await;
}

#[tokio::test]
async fn notices_are_received_and_unused_templates_deleted() {
    let bed = bed().await;
    interruptions_are_heard_and_acknowledged(&bed).await;
    a_queue_of_many_messages_is_emptied(&bed).await;
    unused_templates_and_profiles_are_deleted(&bed).await;
}

async fn a_claim_becomes_an_instance_and_is_ended(bed: &Bed) {
    let class = class(bed).await;
    let findings = bed.provider.resolve(&class).await;
    assert!(findings.is_ready(), "{:?}", findings.conditions);
    assert_eq!(findings.amis.len(), 1);
    let zones: BTreeSet<&str> = findings.subnets.iter().map(|s| s.zone.as_str()).collect();
    assert!(zones.contains("us-east-1b"), "{zones:?}");

    let prepared = bed.provider.prepare(&request(class.clone())).await.unwrap();
    let launched = bed.provider.launch(&prepared).await.unwrap();
    let instance = &launched.instance;
    assert_eq!((instance.instance_type.as_str(), instance.zone.as_str()), ("m5.large", "us-east-1b"));
    assert_eq!(instance.provider_id, format!("aws:///us-east-1b/{}", instance.id));
    assert!(instance.node_name.ends_with(".ec2.internal"), "{}", instance.node_name);
    for (key, value) in
        [(tags::CLUSTER, UID), (tags::CLAIM_UID, "claim-uid-1"), (tags::TENANT, "tenant-a"), ("team", "blue")]
    {
        assert_eq!(instance.tags.get(key).map(String::as_str), Some(value), "{key}");
    }
    let found = bed.provider.find_by_claim("claim-uid-1").await.unwrap().unwrap();
    assert_eq!(found.instance.id, instance.id);
    assert!(bed.provider.find_by_claim("another").await.unwrap().is_none());
    let ids =
        |instances: Vec<croft_cloud::CloudInstance>| instances.into_iter().map(|m| m.id).collect::<Vec<_>>();
    assert_eq!(ids(bed.provider.list().await.unwrap()), std::slice::from_ref(&instance.id));

    let name = BTreeMap::from([("Name".to_owned(), "node-1".to_owned())]);
    bed.provider.tag(&instance.id, &name).await.unwrap();
    assert_eq!(bed.provider.list().await.unwrap()[0].tags["Name"], "node-1");

    let done =
        bed.provider.terminate(&[instance.id.clone(), "i-00000000000000000".to_owned()]).await.unwrap();
    let gone: BTreeMap<String, InstanceState> = done.into_iter().map(|t| (t.id, t.state)).collect();
    assert!(!gone[&instance.id].is_alive());
    assert_eq!(gone["i-00000000000000000"], InstanceState::Unknown, "an unknown id is no proof of an end");
    assert!(bed.provider.list().await.unwrap().iter().all(|m| !m.state.is_alive()));
}

async fn a_template_says_what_the_class_says(bed: &Bed) {
    let class = class(bed).await;
    bed.provider.prepare(&request(class)).await.unwrap();
    let versions = {
        let templates = bed.ec2.describe_launch_templates().send().await.unwrap();
        let name = templates.launch_templates()[0].launch_template_name().unwrap().to_owned();
        bed.ec2.describe_launch_template_versions().launch_template_name(name).send().await.unwrap()
    };
    let data = versions.launch_template_versions()[0].launch_template_data().unwrap();
    assert_eq!(data.metadata_options().unwrap().http_put_response_hop_limit(), Some(1));
    assert_eq!(data.metadata_options().unwrap().http_tokens().unwrap().as_str(), "required");
    assert_eq!(data.block_device_mappings()[0].ebs().unwrap().volume_size(), Some(20));
    assert_eq!(data.security_group_ids().len(), 1);
    assert!(data.iam_instance_profile().unwrap().name().unwrap().starts_with("croft-"));
    assert!(data.user_data().is_some_and(|text| !text.is_empty()));
    let of_interfaces = |kind: Option<&ResourceType>| kind == Some(&ResourceType::NetworkInterface);
    let interfaces = data.tag_specifications().iter().find(|s| of_interfaces(s.resource_type())).unwrap();
    let of = |key: &str| interfaces.tags().iter().find(|t| t.key() == Some(key)).and_then(|t| t.value());
    for (key, value) in [(tags::CLUSTER, UID), (tags::TENANT, "tenant-a"), (tags::POOL, "pool-a")] {
        assert_eq!(of(key), Some(value), "{key}");
    }
}

async fn types_are_those_of_the_catalogue(bed: &Bed) {
    let class = class(bed).await;
    let live = bed.provider.instance_types(&class).await.unwrap();
    let built_in = builtin_catalog();
    let mut compared = 0;
    for from_wire in live.iter() {
        let wanted = built_in.iter().find(|t| t.name == from_wire.name).unwrap();
        assert_eq!(from_wire.labels, wanted.labels, "{}", from_wire.name);
        assert_eq!(from_wire.capacity, wanted.capacity, "{}", from_wire.name);
        assert_eq!(from_wire.overhead, wanted.overhead, "{}", from_wire.name);
        compared += 1;
    }
    assert!(compared > 900, "{compared}: those that boot the one image of the class");
    let m5 = live.iter().find(|t| t.name == "m5.large").unwrap();
    let od = m5.offerings.iter().find(|o| o.capacity_type == CapacityType::OnDemand).unwrap();
    assert_eq!(od.price, Some(Price::from_micros(96_000)), "moto has no price list: the built-in price");
}

async fn what_is_not_there_is_said(bed: &Bed) {
    let mut class = class(bed).await;
    class.spec.subnet_selector_terms[0].tags.insert("croft.dev/discovery".to_owned(), "elsewhere".to_owned());
    class.spec.role = Some("missing".to_owned());
    class.spec.ami_selector_terms[0] =
        AmiSelectorTerm { alias: Some("al2023@latest".to_owned()), ..AmiSelectorTerm::default() };
    let findings = bed.provider.resolve(&class).await;
    let reason = |kind: &str| {
        findings.conditions.iter().find(|c| c.kind == kind).map(|c| c.reason).unwrap_or_default()
    };
    assert_eq!(reason("SubnetsReady"), "SubnetsNotFound");
    assert_eq!(reason("InstanceProfileReady"), "NotFound");
    assert_eq!(reason("AMIsReady"), "NotFound");
    let error = bed.provider.prepare(&request(class)).await.unwrap_err();
    assert_eq!(error.reason(), "ClassNotReady", "{error}");
}

async fn interruptions_are_heard_and_acknowledged(bed: &Bed) {
    let url = bed.sqs.get_queue_url().queue_name("croft").send().await.unwrap();
    let body = r#"{"source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning", "detail": {"instance-id": "i-1"}}"#;
    bed.sqs.send_message().queue_url(url.queue_url().unwrap()).message_body(body).send().await.unwrap();
    let news = bed.provider.interruptions().await.unwrap();
    assert_eq!(
        (news.len(), news[0].kind, news[0].instances.clone()),
        (1, InterruptionKind::SpotWarning, vec!["i-1".to_owned()])
    );
    bed.provider.acknowledge(&news).await.unwrap();
    let mut options = bed.options.clone();
    options.interruption_queue = Some("elsewhere".to_owned());
    let error = AwsProvider::connect(options).await.interruptions().await.unwrap_err();
    assert_eq!(error.class(), FaultClass::NotFound, "{error}");
}

async fn unused_templates_and_profiles_are_deleted(bed: &Bed) {
    let class = class(bed).await;
    bed.provider.prepare(&request(class.clone())).await.unwrap();
    let provider = AwsProvider::connect(bed.options.clone()).await;
    assert_eq!(
        provider.sweep(&InUse { classes: vec![class.clone()], ..InUse::default() }).await.unwrap(),
        0,
        "the template is young, the role is named"
    );
    assert_eq!(provider.sweep(&InUse::default()).await.unwrap(), 1, "the instance profile");
}

/// A clock that runs an hour ahead.
struct Later;

const HOUR: Duration = Duration::from_secs(3600);

impl Clock for Later {
    fn monotonic(&self) -> std::time::Instant {
        SystemClock.monotonic() + HOUR
    }

    fn wall(&self) -> jiff::Timestamp {
        SystemClock.wall() + HOUR
    }
}

async fn templates_that_nothing_launches_from_are_deleted(bed: &Bed) {
    let class = class(bed).await;
    let unanswered = bed.provider.prepare(&request(class.clone())).await.unwrap();
    let mut other = request(class.clone());
    other.labels.insert("team".to_owned(), "green".to_owned());
    bed.provider.prepare(&other).await.unwrap();
    let names = async || {
        let found = bed.ec2.describe_launch_templates().send().await.unwrap();
        let names: BTreeSet<String> = found
            .launch_templates()
            .iter()
            .filter_map(|t| t.launch_template_name().map(str::to_owned))
            .collect();
        names
    };
    let all = names().await;
    assert!(all.len() >= 2, "one for each node configuration: {all:?}");
    let later = AwsProvider::connect_on(bed.options.clone(), Arc::new(Later)).await;
    let gone = later
        .sweep(&InUse {
            classes: vec![class.clone()],
            unanswered: vec![unanswered.clone()],
            ..InUse::default()
        })
        .await
        .unwrap();
    let left = names().await;
    assert!(left.len() == 1 && left.is_subset(&all) && gone == all.len() - 1, "{left:?} of {all:?}");
    bed.provider.launch(&unanswered).await.unwrap();
    assert_eq!(later.sweep(&InUse { classes: vec![class], ..InUse::default() }).await.unwrap(), 1);
    assert!(names().await.is_empty());
}

async fn images_by_parameter_and_by_tag(bed: &Bed) {
    let mut class = class(bed).await;
    let id = class.spec.ami_selector_terms[0].id.clone().unwrap();
    let parameter = json!({"Name": "/mine/image", "Value": &id, "Type": "String"});
    bed.raw.ssm("PutParameter", &parameter).await;
    let tag = Tag::builder().key("stage").value("tested").build();
    bed.ec2.create_tags().resources(&id).tags(tag).send().await.unwrap();
    for term in [
        AmiSelectorTerm { ssm_parameter: Some("/mine/image".to_owned()), ..AmiSelectorTerm::default() },
        AmiSelectorTerm {
            tags: BTreeMap::from([("stage".to_owned(), "tested".to_owned())]),
            ..AmiSelectorTerm::default()
        },
        AmiSelectorTerm {
            tags: BTreeMap::from([("stage".to_owned(), "*".to_owned())]),
            ..AmiSelectorTerm::default()
        },
    ] {
        class.spec.ami_selector_terms = vec![term];
        let findings = bed.provider.resolve(&class).await;
        let found: Vec<(&str, &str)> =
            findings.amis.iter().map(|a| (a.id.as_str(), a.arch.as_str())).collect();
        assert_eq!(found, [(id.as_str(), "amd64")], "{:?}", class.spec.ami_selector_terms);
    }
}

async fn subnets_and_groups_by_id(bed: &Bed) {
    let mut class = class(bed).await;
    let all = bed.provider.resolve(&class).await;
    let term = |id: &str| vec![SelectorTerm { id: Some(id.to_owned()), ..SelectorTerm::default() }];
    class.spec.subnet_selector_terms = term(&all.subnets[1].id);
    class.spec.security_group_selector_terms = term(&all.security_groups[0]);
    let some = bed.provider.resolve(&class).await;
    assert!(some.is_ready(), "{:?}", some.conditions);
    assert_eq!(some.subnets, all.subnets[1..2]);
    assert_eq!(some.security_groups, all.security_groups[..1]);
    class.spec.subnet_selector_terms.extend(term(&all.subnets[0].id));
    assert_eq!(bed.provider.resolve(&class).await.subnets.len(), 2, "terms add up");
}

async fn a_profile_that_holds_another_role_is_corrected(bed: &Bed) {
    let class = class(bed).await;
    let name = bed.provider.resolve(&class).await.instance_profile.unwrap();
    let held = async || {
        let answer = bed.raw.iam(&format!("Action=GetInstanceProfile&InstanceProfileName={name}")).await;
        let names = answer.split("<RoleName>").skip(1).filter_map(|rest| rest.split("</RoleName>").next());
        names.map(|role| role.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(held().await, [ROLE]);
    bed.raw.iam("Action=CreateRole&RoleName=other&AssumeRolePolicyDocument=%7B%7D").await;
    let change = format!("InstanceProfileName={name}&RoleName");
    bed.raw.iam(&format!("Action=RemoveRoleFromInstanceProfile&{change}={ROLE}")).await;
    bed.raw.iam(&format!("Action=AddRoleToInstanceProfile&{change}=other")).await;
    let restarted = AwsProvider::connect(bed.options.clone()).await;
    assert_eq!(restarted.resolve(&class).await.instance_profile.as_deref(), Some(name.as_str()));
    assert_eq!(held().await, [ROLE]);
}

async fn many_claims_are_found_tagged_and_ended_together(bed: &Bed) {
    let class = class(bed).await;
    let mut ids = Vec::new();
    for number in 0..3 {
        let request = LaunchRequest { claim_uid: format!("claim-uid-{number}"), ..request(class.clone()) };
        let prepared = bed.provider.prepare(&request).await.unwrap();
        ids.push(bed.provider.launch(&prepared).await.unwrap().instance.id);
    }
    let uids = [0, 1, 2].map(|n| format!("claim-uid-{n}"));
    let found = futures::future::join_all(uids.iter().map(|uid| bed.provider.find_by_claim(uid))).await;
    let found: Vec<String> = found.into_iter().map(|f| f.unwrap().unwrap().instance.id).collect();
    assert_eq!(found, ids, "each its own");
    let tags = BTreeMap::from([("shared".to_owned(), "1".to_owned())]);
    let tagged = futures::future::join_all(ids.iter().map(|id| bed.provider.tag(id, &tags))).await;
    assert!(tagged.iter().all(Result::is_ok));
    let alive = bed.provider.list().await.unwrap().into_iter().filter(|m| m.state.is_alive());
    assert_eq!(alive.filter(|m| m.tags["shared"] == "1").count(), 3);
    ids.push("i-00000000000000000".to_owned());
    let ended = bed.provider.terminate(&ids).await.unwrap();
    assert_eq!(ended.len(), 4, "{ended:?}");
    assert!(ended.iter().all(|t| !t.state.is_alive()));
}

async fn interfaces_are_written_as_ec2_reads_them(bed: &Bed) {
    let mut class = class(bed).await;
    let interfaces = async |request: &LaunchRequest| {
        let prepared = bed.provider.prepare(request).await.unwrap();
        let plan: Value = serde_json::from_str(&prepared.body).unwrap();
        let name = plan["configs"][0][0].as_str().unwrap();
        let versions = bed.ec2.describe_launch_template_versions().launch_template_name(name).send().await;
        let data = versions.unwrap().launch_template_versions()[0].launch_template_data().cloned().unwrap();
        assert!(data.security_group_ids().is_empty(), "the groups are the interfaces'");
        data.network_interfaces().to_vec()
    };
    let mut efa = request(class.clone());
    efa.instance_types = vec!["p4d.24xlarge".to_owned()];
    efa.zones = Vec::new();
    efa.requests.set(croft_cloud::facts::EFA, 1);
    let cards: Vec<_> = interfaces(&efa)
        .await
        .iter()
        .map(|i| {
            (
                i.network_card_index(),
                i.device_index(),
                i.interface_type().map(str::to_owned),
                i.groups().len(),
            )
        })
        .collect();
    let card = |index, device| (Some(index), Some(device), Some("efa".to_owned()), 1);
    assert_eq!(cards, [card(0, 0), card(1, 1), card(2, 1), card(3, 1)]);
    class.spec.associate_public_ip_address = Some(false);
    let private = interfaces(&request(class)).await;
    assert_eq!((private.len(), private[0].associate_public_ip_address()), (1, Some(false)));
}

async fn a_queue_of_many_messages_is_emptied(bed: &Bed) {
    let url = bed.sqs.get_queue_url().queue_name("croft").send().await.unwrap();
    let url = url.queue_url().unwrap();
    for number in 0..13 {
        let body = match number {
            0 => "nonsense".to_owned(),
            1 => r#"{"source": "aws.health", "detail-type": "AWS Health Event", "detail": {"service": "EC2", "eventTypeCategory": "scheduledChange", "startTime": "Fri, 02 Jan 2032 00:00:00 GMT", "affectedEntities": [{"entityValue": "i-1"}]}}"#.to_owned(),
            n => format!(
                r#"{{"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification", "detail": {{"instance-id": "i-{n}", "state": "stopping"}}}}"#
            ),
        };
        bed.sqs.send_message().queue_url(url).message_body(body).send().await.unwrap();
    }
    let mut heard = Vec::new();
    while heard.len() < 13 {
        let news = bed.provider.interruptions().await.unwrap();
        assert!(!news.is_empty(), "after {}", heard.len());
        bed.provider.acknowledge(&news).await.unwrap();
        heard.extend(news);
    }
    let instances: BTreeSet<&String> = heard.iter().flat_map(|n| &n.instances).collect();
    assert_eq!(instances.len(), 12);
    let change = heard.iter().find(|n| n.kind == InterruptionKind::ScheduledChange).unwrap();
    assert_eq!(change.deadline, Some(1_956_614_400));
    let attributes = bed.sqs.get_queue_attributes().queue_url(url);
    let attributes = attributes.attribute_names("All".into()).send().await.unwrap();
    let left = |name: &str| {
        attributes.attributes().unwrap().iter().find(|(k, _)| k.as_str() == name).map(|(_, v)| v.clone())
    };
    assert_eq!(left("ApproximateNumberOfMessages").as_deref(), Some("0"));
    assert_eq!(left("ApproximateNumberOfMessagesNotVisible").as_deref(), Some("0"));
}
