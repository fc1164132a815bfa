//! Prepares launches: one instance per claim, with the request fixed to the last byte.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::{
    CapacityReservationOptionsRequest, DefaultTargetCapacityType, FleetCapacityReservationUsageStrategy,
    FleetLaunchTemplateConfigRequest, FleetLaunchTemplateOverridesRequest,
    FleetLaunchTemplateSpecificationRequest, FleetOnDemandAllocationStrategy, FleetType, InstanceType,
    OnDemandOptionsRequest, ResourceType, SpotAllocationStrategy, SpotOptionsRequest, Tag, TagSpecification,
    TargetCapacitySpecificationRequest,
};
use croft_cloud::{
    Fault, FaultClass, LaunchError, LaunchRequest, OfferingKey, Prepared,
    class::{kubelet_of, setup},
    facts::EFA,
    tags,
    userdata::{NodeBoot, render},
};
use croft_scheduler::CapacityType;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::{
    class::Found,
    discovery::Subnet,
    offers::image_for,
    provider::AwsProvider,
    refusal,
    template::{self, Configuration, Hardware, Purpose},
};

/// Types in one request: more hardly raise the chance of capacity, and the request's size is limited.
const MOST_TYPES: usize = 60;
/// Overrides in one request, over all types and zones.
const MOST_OVERRIDES: usize = 300;
/// Launch templates in one request.
const MOST_TEMPLATES: usize = 50;

/// A launch in the form that is stored in the claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) claim: String,
    token: String,
    pub(crate) capacity_type: CapacityType,
    /// Launch templates, each with its overrides.
    pub(crate) configs: Vec<(String, Vec<Place>)>,
    tags: BTreeMap<String, String>,
}

/// An override: type, subnet, zone. Short in the claim, since a launch has up to 300.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place(String, String, String);

/// The launch templates of a stored launch, which a repetition needs.
pub(crate) fn templates(prepared: &Prepared) -> Vec<String> {
    Plan::read(prepared)
        .map(|plan| plan.configs.into_iter().map(|(name, _)| name).collect())
        .unwrap_or_default()
}

/// Hex digits of a SHA-256.
fn digest(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Why types of a request aren't asked for.
#[derive(Default)]
struct Skipped {
    /// Refused a moment ago.
    aside: Vec<OfferingKey>,
    without_image: usize,
    without_adapters: usize,
}

impl Skipped {
    /// The launch error if no type is left. `full` names the zones if none of them has a free address.
    fn refusal(self, request: &LaunchRequest, full: Option<String>) -> LaunchError {
        let (code, message) = if self.without_adapters > 0 && self.aside.is_empty() {
            let wanted = request.requests.get(EFA);
            let message = format!(
                "{} of the claim's types have fewer than {wanted} network adapters",
                self.without_adapters
            );
            ("Unsupported", message)
        } else if self.without_image > 0 && self.aside.is_empty() {
            let count = self.without_image;
            let message = format!("no image of the class has drivers for {count} of the claim's types");
            ("Unsupported", message)
        } else if let Some(zones) = full {
            let message = format!("no subnet of the class has free addresses in {zones}");
            ("InsufficientFreeAddressesInSubnet", message)
        } else {
            let message =
                format!("{} offerings were refused a moment ago and are set aside", self.aside.len());
            ("InsufficientInstanceCapacity", message)
        };
        LaunchError::NoCapacity {
            claim: request.claim_name.clone(),
            offerings: self.aside,
            fault: refusal::of_code("CreateFleet", code.to_owned(), message, None),
        }
    }
}

impl AwsProvider {
    pub(crate) async fn prepare_launch(&self, request: &LaunchRequest) -> Result<Prepared, LaunchError> {
        let claim = request.claim_name.clone();
        let found = self.look_up(&request.class).await;
        if !found.findings.is_ready() {
            return Err(LaunchError::ClassNotReady {
                claim,
                class: request.class.metadata.name.clone().unwrap_or_default(),
                why: found.findings.why_not().unwrap_or_default().to_owned(),
            });
        }
        let by_hardware = self.overrides(request, &found).await?;
        let (mut configs, mut refused) = (Vec::new(), None);
        for (hardware, overrides) in by_hardware {
            match self.ensure_template(request, &found, &hardware).await {
                Ok(name) => configs.push((name, overrides)),
                // The other types may still be launched.
                Err(error @ LaunchError::Refused { .. }) => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        if let (true, Some(error)) = (configs.is_empty(), refused) {
            return Err(error);
        }
        let plan = Plan {
            claim,
            // EC2 accepts up to 64 characters. The attempt is part of the token, so that a definite refusal isn't
            // replayed.
            token: digest(&format!("{}\n{}", request.claim_uid, request.attempt)),
            capacity_type: request.capacity_type,
            configs,
            tags: tags::of_instance(&self.options.cluster_uid, request),
        };
        // Plain values: serializing them can't fail.
        let body = serde_json::to_string(&plan).unwrap_or_default();
        Ok(Prepared { hash: digest(&body), body })
    }

    /// The overrides by hardware: the request's types in its zones that have a subnet with free addresses and an
    /// available offering.
    async fn overrides(
        &self,
        request: &LaunchRequest,
        found: &Found,
    ) -> Result<BTreeMap<Hardware, Vec<Place>>, LaunchError> {
        let types = self.known_types().await;
        let efas_wanted = request.requests.get(EFA);
        let now = self.now();
        let mut memory = self.memory();
        let mut by_hardware: BTreeMap<Hardware, Vec<Place>> = BTreeMap::new();
        let mut skipped = Skipped::default();
        let mut count = 0;
        let zones: Vec<&str> = if request.zones.is_empty() {
            let mut zones: Vec<&str> = found.subnets.iter().map(|s| s.zone.as_str()).collect();
            zones.sort_unstable();
            zones.dedup();
            zones
        } else {
            request.zones.iter().map(String::as_str).collect()
        };
        // In each zone the subnet with the most free addresses.
        let roomiest = |zone: &&str| {
            let free =
                |s: &&Subnet| s.zone == **zone && s.free > 0 && memory.subnets.is_available(&s.id, now);
            let subnets = found.subnets.iter().filter(free);
            let subnet = subnets.max_by_key(|s| (s.free, std::cmp::Reverse(s.id.clone())))?;
            Some((subnet.zone.as_str(), subnet.id.as_str()))
        };
        let places: Vec<(&str, &str)> = zones.iter().filter_map(roomiest).collect();
        for name in request.instance_types.iter().take(MOST_TYPES) {
            let Some(facts) = types.facts.get(name) else { continue };
            let Some(image) = image_for(facts, &found.images.found) else {
                skipped.without_image += 1;
                continue;
            };
            // All adapters of the type: they are free of charge, and the plan may count on each.
            let efas = if efas_wanted > 0 { facts.efas } else { 0 };
            if i64::from(efas) < efas_wanted {
                skipped.without_adapters += 1;
                continue;
            }
            let setup = setup(&request.class.spec, Some(&image.disks), self.options.prefix_delegation);
            let kubelet = kubelet_of(&request.class.spec, facts, &setup);
            let hardware = Hardware { image: image.clone(), efas, kubelet };
            if by_hardware.len() >= MOST_TEMPLATES && !by_hardware.contains_key(&hardware) {
                continue;
            }
            for (zone, subnet) in &places {
                if count >= MOST_OVERRIDES || !types.zones.get(name).is_some_and(|z| z.contains(*zone)) {
                    continue;
                }
                let key = OfferingKey {
                    instance_type: name.clone(),
                    zone: (*zone).to_owned(),
                    capacity_type: request.capacity_type,
                };
                if memory.offerings.try_take(&key, now) {
                    let overrides = by_hardware.entry(hardware.clone()).or_default();
                    overrides.push(Place(name.clone(), (*subnet).to_owned(), (*zone).to_owned()));
                    count += 1;
                } else {
                    skipped.aside.push(key);
                }
            }
        }
        if count > 0 {
            return Ok(by_hardware);
        }
        let full = places.is_empty().then(|| zones.join(", "));
        Err(skipped.refusal(request, full))
    }

    async fn ensure_template(
        &self,
        request: &LaunchRequest,
        found: &Found,
        hardware: &Hardware,
    ) -> Result<String, LaunchError> {
        let claim = || request.claim_name.clone();
        let class_name = request.class.metadata.name.clone().unwrap_or_default();
        let not_ready =
            |why: String| LaunchError::ClassNotReady { claim: claim(), class: class_name.clone(), why };
        let cluster =
            found.cluster.as_ref().ok_or_else(|| not_ready("the cluster is not known".to_owned()))?;
        let boot = NodeBoot {
            cluster: &cluster.name,
            endpoint: &cluster.endpoint,
            ca: &cluster.ca,
            service_cidr: &cluster.service_cidr,
            labels: &request.labels,
            taints: &request.taints,
            kubelet: &hardware.kubelet,
            instance_store: request.class.spec.instance_store_policy.is_some(),
            custom: request.class.spec.user_data.as_deref(),
        };
        let user_data = render(found.family, &boot).map_err(|error| not_ready(error.to_string()))?;
        let configuration = Configuration::new(
            &request.class.spec,
            found.family,
            hardware,
            &found.findings,
            &user_data,
            Purpose {
                reserved_only: request.capacity_type == CapacityType::Reserved,
                spot: request.capacity_type == CapacityType::Spot,
                tags: tags::of_pool(&self.options.cluster_uid, request),
            },
        );
        if let Some(problem) = configuration.problem() {
            let fault = refusal::of_code(
                "CreateLaunchTemplate",
                "InvalidParameterCombination".to_owned(),
                problem.to_owned(),
                None,
            );
            return Err(self.classify(claim(), &class_name, fault));
        }
        let cluster_uid = &self.options.cluster_uid;
        let name = configuration.name(cluster_uid);
        if !self.memory().templates.contains_key(&name) {
            template::ensure(&self.clients, &self.paces, cluster_uid, &class_name, &configuration)
                .await
                .map_err(|fault| self.classify(claim(), &class_name, fault))?;
        }
        self.memory().templates.insert(name.clone(), Instant::now());
        Ok(name)
    }

    /// The launch error for a fault of a call before the launch.
    fn classify(&self, claim: String, class: &str, fault: Fault) -> LaunchError {
        match fault.class {
            FaultClass::Throttled | FaultClass::Unavailable => {
                LaunchError::Later { claim, after: self.paces.launch.pause(), fault }
            }
            FaultClass::Unauthenticated => {
                self.memory().refusals.insert(class.to_owned(), fault.clone());
                LaunchError::Later { claim, after: self.paces.launch.pause(), fault }
            }
            _ => {
                self.memory().refusals.insert(class.to_owned(), fault.clone());
                LaunchError::Refused { claim, fault }
            }
        }
    }
}

impl Plan {
    /// Parses the stored form.
    pub(crate) fn read(prepared: &Prepared) -> Result<Self, serde_json::Error> {
        serde_json::from_str(&prepared.body)
    }

    /// The instance's EC2NodeClass.
    pub(crate) fn class(&self) -> &str {
        self.tags.get(tags::CLASS).map_or("", String::as_str)
    }

    pub(crate) fn keys(&self) -> Vec<OfferingKey> {
        self.configs
            .iter()
            .flat_map(|(_, overrides)| overrides)
            .map(|Place(name, _, zone)| OfferingKey {
                instance_type: name.clone(),
                zone: zone.clone(),
                capacity_type: self.capacity_type,
            })
            .collect()
    }

    pub(crate) fn zone_of(&self, subnet: &str) -> Option<String> {
        self.configs
            .iter()
            .flat_map(|(_, overrides)| overrides)
            .find(|Place(_, s, _)| s == subnet)
            .map(|Place(_, _, zone)| zone.clone())
    }
}

/// The request of a plan. The same plan gives the same request, to the last byte.
pub(crate) fn fleet(
    client: &aws_sdk_ec2::Client,
    plan: &Plan,
) -> aws_sdk_ec2::operation::create_fleet::builders::CreateFleetFluentBuilder {
    let spot = plan.capacity_type == CapacityType::Spot;
    let tags: Vec<Tag> =
        plan.tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect();
    let specification = |kind: ResourceType| {
        TagSpecification::builder().resource_type(kind).set_tags(Some(tags.clone())).build()
    };
    let target = TargetCapacitySpecificationRequest::builder()
        .total_target_capacity(1)
        .default_target_capacity_type(if spot {
            DefaultTargetCapacityType::Spot
        } else {
            DefaultTargetCapacityType::OnDemand
        })
        .build();
    let mut request = client
        .create_fleet()
        .client_token(&plan.token)
        .r#type(FleetType::Instant)
        .target_capacity_specification(target)
        .tag_specifications(specification(ResourceType::Fleet))
        .tag_specifications(specification(ResourceType::Instance))
        // CreateFleet's TagSpecifications accept no other kinds; the template has those.
        .tag_specifications(specification(ResourceType::Volume));
    request = if spot {
        request.spot_options(
            SpotOptionsRequest::builder()
                .allocation_strategy(SpotAllocationStrategy::PriceCapacityOptimized)
                .build(),
        )
    } else {
        let mut options = OnDemandOptionsRequest::builder()
            .allocation_strategy(FleetOnDemandAllocationStrategy::LowestPrice);
        if plan.capacity_type == CapacityType::Reserved {
            options = options.capacity_reservation_options(
                CapacityReservationOptionsRequest::builder()
                    .usage_strategy(FleetCapacityReservationUsageStrategy::UseCapacityReservationsFirst)
                    .build(),
            );
        }
        request.on_demand_options(options.build())
    };
    for (name, overrides) in &plan.configs {
        let template = FleetLaunchTemplateSpecificationRequest::builder()
            .launch_template_name(name)
            .version("$Latest")
            .build();
        let overrides = overrides
            .iter()
            .map(|Place(name, subnet, zone)| {
                FleetLaunchTemplateOverridesRequest::builder()
                    .instance_type(InstanceType::from(name.as_str()))
                    .subnet_id(subnet)
                    .availability_zone(zone)
                    .build()
            })
            .collect();
        request = request.launch_template_configs(
            FleetLaunchTemplateConfigRequest::builder()
                .launch_template_specification(template)
                .set_overrides(Some(overrides))
                .build(),
        );
    }
    request
}
