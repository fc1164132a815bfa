//! The simulator alone, called by the SDK: it behaves as EC2 does.

use std::time::Duration;

use aws_sdk_ec2::{
    Client,
    error::ProvideErrorMetadata,
    operation::create_fleet::CreateFleetOutput,
    types::{
        FleetLaunchTemplateConfigRequest, FleetLaunchTemplateOverridesRequest,
        FleetLaunchTemplateSpecificationRequest, FleetOnDemandAllocationStrategy, FleetType,
        InstanceStateName, InstanceType, LaunchTemplateInstanceNetworkInterfaceSpecificationRequest,
        OnDemandOptionsRequest, RequestLaunchTemplateData, SpotAllocationStrategy, SpotOptionsRequest,
        TargetCapacitySpecificationRequest, builders::RequestLaunchTemplateDataBuilder,
    },
};
use croft_ec2_sim::{catalogue, world::Settings};
use croft_runtime::clock::{Clock as _, SystemClock};

use crate::bed::{Bed, few_types};

const SUBNET: &str = "subnet-0c0ffee000000001";

/// A fleet of one instance, which tests modify before sending.
struct Fleet {
    token: Option<&'static str>,
    types: Vec<(&'static str, &'static str, Option<f64>)>,
    spot: Option<SpotAllocationStrategy>,
    on_demand: FleetOnDemandAllocationStrategy,
}

impl Fleet {
    fn of(types: &[&'static str]) -> Self {
        Self {
            token: None,
            types: types.iter().map(|t| (*t, SUBNET, None)).collect(),
            spot: None,
            on_demand: FleetOnDemandAllocationStrategy::LowestPrice,
        }
    }

    async fn send(self, ec2: &Client) -> Result<CreateFleetOutput, String> {
        let spot = self.spot.is_some();
        let overrides = self
            .types
            .iter()
            .map(|(name, subnet, priority)| {
                FleetLaunchTemplateOverridesRequest::builder()
                    .instance_type(InstanceType::from(*name))
                    .subnet_id(*subnet)
                    .set_priority(*priority)
                    .build()
            })
            .collect();
        let config = FleetLaunchTemplateConfigRequest::builder()
            .launch_template_specification(
                FleetLaunchTemplateSpecificationRequest::builder()
                    .launch_template_name("t")
                    .version("$Latest")
                    .build(),
            )
            .set_overrides(Some(overrides))
            .build();
        ec2.create_fleet()
            .set_client_token(self.token.map(str::to_owned))
            .r#type(FleetType::Instant)
            .launch_template_configs(config)
            .target_capacity_specification(
                TargetCapacitySpecificationRequest::builder()
                    .total_target_capacity(1)
                    .default_target_capacity_type(if spot { "spot".into() } else { "on-demand".into() })
                    .build(),
            )
            .set_spot_options(self.spot.map(|s| SpotOptionsRequest::builder().allocation_strategy(s).build()))
            .on_demand_options(OnDemandOptionsRequest::builder().allocation_strategy(self.on_demand).build())
            .send()
            .await
            .map_err(|e| e.code().unwrap_or_default().to_owned())
    }

    /// The instance's id and type.
    async fn launch(self, ec2: &Client) -> (String, String) {
        let answer = self.send(ec2).await.unwrap();
        let launched = &answer.instances()[0];
        let kind = launched.instance_type().unwrap().as_str().to_owned();
        (launched.instance_ids()[0].clone(), kind)
    }
}

async fn image(ec2: &Client, arch: &str) -> String {
    let images = ec2.describe_images().send().await.unwrap();
    let found = images.images().iter().find(|i| i.architecture().is_some_and(|a| a.as_str() == arch));
    found.and_then(|i| i.image_id()).unwrap().to_owned()
}

async fn template(
    ec2: &Client,
    name: &str,
    more: impl FnOnce(RequestLaunchTemplateDataBuilder) -> RequestLaunchTemplateDataBuilder,
) -> Result<(), String> {
    let data = RequestLaunchTemplateData::builder().image_id(image(ec2, "x86_64").await);
    let answer = ec2
        .create_launch_template()
        .launch_template_name(name)
        .launch_template_data(more(data).build())
        .send();
    answer.await.map(|_| ()).map_err(|e| e.code().unwrap_or_default().to_owned())
}

async fn account(settings: Settings) -> (Bed, Client) {
    let bed = Bed::with(settings).await;
    let ec2 = bed.ec2();
    template(&ec2, "t", |data| data).await.unwrap();
    (bed, ec2)
}

async fn state(ec2: &Client, id: &str) -> Option<InstanceStateName> {
    let seen = ec2.describe_instances().instance_ids(id).send().await.ok()?;
    seen.reservations().first()?.instances().first()?.state()?.name().cloned()
}

#[tokio::test]
async fn tokens_are_replayed_compared_and_expire() {
    let (bed, ec2) = account(few_types()).await;
    let with = |types: &[&'static str]| Fleet { token: Some("token"), ..Fleet::of(types) };
    let (first, _) = with(&["m5.large"]).launch(&ec2).await;
    assert_eq!(with(&["m5.large"]).launch(&ec2).await.0, first, "the recorded answer");
    assert_eq!(with(&["c5.large"]).send(&ec2).await.unwrap_err(), "IdempotentParameterMismatch");
    ec2.terminate_instances().instance_ids(&first).send().await.unwrap();
    assert_eq!(with(&["m5.large"]).launch(&ec2).await.0, first, "also of an instance that is gone");
    bed.simulator.advance(Duration::from_secs(25 * 3600));
    assert_ne!(with(&["c5.large"]).launch(&ec2).await.0, first, "after a day it is a new request");
}

#[tokio::test]
async fn allocation_strategies_choose_as_in_ec2() {
    let (bed, ec2) = account(few_types()).await;
    let choice = async |fleet: Fleet| fleet.launch(&ec2).await.1;
    let types = ["m5.4xlarge", "m5.large", "m5a.large", "c5.large"];
    assert_eq!(choice(Fleet::of(&types)).await, "c5.large", "the cheapest");
    let prioritized = Fleet {
        types: vec![("c5.large", SUBNET, Some(2.0)), ("m5.large", SUBNET, Some(1.0))],
        on_demand: FleetOnDemandAllocationStrategy::Prioritized,
        ..Fleet::of(&[])
    };
    assert_eq!(choice(prioritized).await, "m5.large");

    bed.control(
        r#"{"do": "capacity", "rules": [{"instanceType": "c5.large", "count": 3}, {"instanceType": "m5.large", "count": 8}]}"#,
    );
    for (name, price) in [("c5.large", 0.01), ("m5.large", 0.02), ("m5.4xlarge", 0.30)] {
        bed.control(&format!(
            r#"{{"do": "spotPrice", "instanceType": "{name}", "zone": "us-east-1a", "price": {price}}}"#
        ));
    }
    let spot =
        |strategy| Fleet { spot: Some(strategy), ..Fleet::of(&["m5.4xlarge", "m5.large", "c5.large"]) };
    assert_eq!(choice(spot(SpotAllocationStrategy::LowestPrice)).await, "c5.large");
    assert_eq!(choice(spot(SpotAllocationStrategy::CapacityOptimized)).await, "m5.4xlarge", "the most room");
    assert_eq!(
        choice(spot(SpotAllocationStrategy::PriceCapacityOptimized)).await,
        "m5.large",
        "the cheapest of those with room"
    );
}

#[tokio::test]
async fn instances_become_visible_running_and_terminated_with_delay() {
    let settings = Settings { consistency_ms: 2_000, running_after_ms: 5_000, ..few_types() };
    let (bed, ec2) = account(Settings { terminated_after_ms: 4_000, ..settings }).await;
    let (id, _) = Fleet::of(&["m5.large"]).launch(&ec2).await;
    assert_eq!(state(&ec2, &id).await, None, "not visible yet");
    let pass = |ms| bed.simulator.advance(Duration::from_millis(ms));
    pass(2_000);
    assert_eq!(state(&ec2, &id).await, Some(InstanceStateName::Pending));
    pass(3_000);
    assert_eq!(state(&ec2, &id).await, Some(InstanceStateName::Running));
    ec2.terminate_instances().instance_ids(&id).send().await.unwrap();
    assert_eq!(state(&ec2, &id).await, Some(InstanceStateName::ShuttingDown));
    pass(4_000);
    assert_eq!(state(&ec2, &id).await, Some(InstanceStateName::Terminated));
    pass(3_600_000);
    assert_eq!(state(&ec2, &id).await, None, "forgotten after an hour");
}

#[tokio::test]
async fn instance_may_fail_while_starting() {
    let (bed, ec2) = account(few_types()).await;
    bed.control(
        r#"{"do": "launchFailures", "rules": [{"instanceType": "m5.*", "reason": "Client.InternalError: Client error on launch", "times": 1}]}"#,
    );
    let (failed, _) = Fleet::of(&["m5.large"]).launch(&ec2).await;
    let (fine, _) = Fleet::of(&["m5.large"]).launch(&ec2).await;
    bed.simulator.advance(Duration::from_secs(1));
    assert_eq!(state(&ec2, &fine).await, Some(InstanceStateName::Running));
    let seen = ec2.describe_instances().instance_ids(&failed).send().await.unwrap();
    let instance = &seen.reservations()[0].instances()[0];
    assert_eq!(instance.state().unwrap().name(), Some(&InstanceStateName::Terminated));
    assert_eq!(instance.state_reason().unwrap().code(), Some("Client.InternalError"));
}

#[tokio::test]
async fn throttling_has_ec2s_code_and_status_and_latency_applies() {
    let (bed, ec2) = account(few_types()).await;
    bed.control(
        r#"{"do": "faults", "rules": [{"action": "DescribeSubnets", "error": "RequestLimitExceeded", "times": 1}, {"latencyMs": 60}]}"#,
    );
    let error = ec2.describe_subnets().send().await.unwrap_err();
    assert_eq!(error.code(), Some("RequestLimitExceeded"));
    assert_eq!(error.raw_response().map(|r| r.status().as_u16()), Some(503));
    let begun = SystemClock.monotonic();
    assert_eq!(ec2.describe_subnets().send().await.unwrap().subnets().len(), 5);
    assert!(SystemClock.monotonic() - begun >= Duration::from_millis(60));
}

#[tokio::test]
async fn random_choices_depend_only_on_the_seed() {
    let hits = async |seed| {
        let (bed, ec2) = account(Settings { seed, ..few_types() }).await;
        bed.control(
            r#"{"do": "faults", "rules": [{"action": "DescribeSubnets", "error": "InternalError", "permille": 400}]}"#,
        );
        let mut hits = Vec::new();
        for _ in 0..24 {
            hits.push(ec2.describe_subnets().send().await.is_err());
        }
        hits
    };
    let first = hits(7).await;
    assert!(first.contains(&true) && first.contains(&false), "{first:?}");
    assert_eq!(hits(7).await, first);
    assert_ne!(hits(8).await, first);
}

#[tokio::test]
async fn quotas_and_addresses_are_used_up_and_released() {
    let (bed, ec2) = account(Settings { vcpu_quota: Some(4), template_quota: 2, ..few_types() }).await;
    let refusal = async |fleet: Fleet| {
        let answer = fleet.send(&ec2).await.unwrap();
        answer.errors()[0].error_code().unwrap().to_owned()
    };
    let (first, _) = Fleet::of(&["m5.large"]).launch(&ec2).await;
    Fleet::of(&["m5.large"]).launch(&ec2).await;
    assert_eq!(refusal(Fleet::of(&["m5.large"])).await, "VcpuLimitExceeded");
    let spot = |types| Fleet { spot: Some(SpotAllocationStrategy::LowestPrice), ..Fleet::of(types) };
    assert_eq!(refusal(spot(&["m5.2xlarge"])).await, "MaxSpotInstanceCountExceeded", "spot has its own");
    spot(&["m5.large"]).launch(&ec2).await;

    let free = async || {
        let subnets = ec2.describe_subnets().subnet_ids(SUBNET).send().await.unwrap();
        subnets.subnets()[0].available_ip_address_count().unwrap()
    };
    bed.control(&format!(r#"{{"do": "addresses", "subnet": "{SUBNET}", "free": 0}}"#));
    bed.control(r#"{"do": "quota", "vcpus": 100}"#);
    assert_eq!(refusal(Fleet::of(&["m5.large"])).await, "InsufficientFreeAddressesInSubnet");
    ec2.terminate_instances().instance_ids(&first).send().await.unwrap();
    bed.simulator.advance(Duration::from_secs(5));
    assert_eq!(free().await, 1, "an instance that is gone leaves its address");
    Fleet::of(&["m5.large"]).launch(&ec2).await;
    assert_eq!(free().await, 0);

    template(&ec2, "second", |data| data).await.unwrap();
    assert_eq!(template(&ec2, "third", |data| data).await.unwrap_err(), "LaunchTemplateLimitExceeded");
    bed.control(r#"{"do": "quota", "launchTemplates": 3}"#);
    template(&ec2, "third", |data| data).await.unwrap();
    assert_eq!(
        template(&ec2, "third", |data| data).await.unwrap_err(),
        "InvalidLaunchTemplateName.AlreadyExistsException"
    );
}

#[tokio::test]
async fn network_adapters_are_limited_by_the_type() {
    let (_bed, ec2) = account(few_types()).await;
    let adapter = |card: i32, public: Option<bool>| {
        LaunchTemplateInstanceNetworkInterfaceSpecificationRequest::builder()
            .device_index(i32::from(card > 0))
            .network_card_index(card)
            .interface_type("efa")
            .set_associate_public_ip_address(public)
            .build()
    };
    let refused = template(&ec2, "public", |data| {
        data.network_interfaces(adapter(0, Some(true))).network_interfaces(adapter(1, None))
    });
    assert_eq!(refused.await.unwrap_err(), "InvalidParameterCombination");
    ec2.delete_launch_template().launch_template_name("t").send().await.unwrap();
    template(&ec2, "t", |data| {
        data.network_interfaces(adapter(0, None)).network_interfaces(adapter(1, None))
    })
    .await
    .unwrap();
    let answer = Fleet::of(&["m5.large"]).send(&ec2).await.unwrap();
    assert_eq!(answer.errors()[0].error_code(), Some("AttachmentLimitExceeded"));
    let (id, _) = Fleet::of(&["p4d.24xlarge"]).launch(&ec2).await;
    let seen = ec2.describe_instances().instance_ids(id).send().await.unwrap();
    let interfaces = seen.reservations()[0].instances()[0].network_interfaces();
    assert!(interfaces.len() == 2 && interfaces.iter().all(|i| i.interface_type() == Some("efa")));
}

#[tokio::test]
async fn custom_catalogue_replaces_the_regions_types() {
    let file = r#"{"instanceTypes": [
        {"name": "m5.large", "arch": "amd64", "capacity": {"cpu": "2", "memory": "8Gi", "pods": "29"},
         "offerings": [{"zone": "us-east-1a", "capacityType": "on-demand", "price": 0.5},
                       {"zone": "us-east-1b", "capacityType": "on-demand", "price": 0.5, "available": false}]},
        {"name": "x9.tiny", "arch": "amd64", "capacity": {"cpu": "1", "memory": "925Mi", "pods": "11"},
         "offerings": [{"zone": "us-east-1a", "capacityType": "spot", "price": 0.01}]}]}"#;
    let catalogue = catalogue::read(file, "us-east-1").unwrap();
    let (_bed, ec2) =
        account(Settings { catalogue: Some(std::sync::Arc::new(catalogue)), ..Settings::default() }).await;
    let types = ec2.describe_instance_types().send().await.unwrap();
    let mut names: Vec<&str> =
        types.instance_types().iter().map(|t| t.instance_type().unwrap().as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["m5.large", "x9.tiny"]);
    let spot = ec2.describe_spot_price_history().send().await.unwrap();
    assert_eq!(spot.spot_price_history()[0].spot_price(), Some("0.01"));
    let b = Fleet { types: vec![("m5.large", "subnet-0c0ffee000000002", None)], ..Fleet::of(&[]) };
    let answer = b.send(&ec2).await.unwrap();
    assert_eq!(answer.errors()[0].error_code(), Some("InsufficientInstanceCapacity"));
}
