//! One machine per claim: a launch fixed to the last byte, then sent, and its answer read.

use std::{collections::BTreeMap, time::Duration};

use aws_sdk_ec2::types::{
    CapacityReservationOptionsRequest, DefaultTargetCapacityType, FleetCapacityReservationUsageStrategy,
    FleetLaunchTemplateConfigRequest, FleetLaunchTemplateOverridesRequest,
    FleetLaunchTemplateSpecificationRequest, FleetOnDemandAllocationStrategy, FleetType, InstanceType,
    OnDemandOptionsRequest, ResourceType, SpotAllocationStrategy, SpotOptionsRequest, Tag, TagSpecification,
    TargetCapacitySpecificationRequest,
};
use croft_cloud::{
    CloudMachine, Fault, FaultClass, LaunchError, LaunchRequest, Launched, OfferingKey, Prepared, tags,
    userdata::{NodeBoot, render},
};
use croft_scheduler::CapacityType;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::{
    class::{Found, kubelet},
    machines,
    offers::image_for,
    provider::{AwsProvider, PROFILE_SETTLES},
    refusal,
    template::{self, Configuration},
};

/// Types in one request: more don't make a machine likelier, and the request has a size limit.
const MOST_TYPES: usize = 60;
/// Overrides in one request, over all types and zones.
const MOST_OVERRIDES: usize = 300;
/// How long a machine that was launched may take to show.
const SHOWS_WITHIN: Duration = Duration::from_secs(8);

/// A launch, in the form that is stored in the claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Plan {
    claim: String,
    token: String,
    capacity_type: CapacityType,
    /// Launch templates, each with the places that it is for.
    configs: Vec<(String, Vec<Place>)>,
    tags: BTreeMap<String, String>,
}

/// Where a machine may be launched: type, subnet, zone. Short in the claim, where each launch has up to 300.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place(String, String, String);

/// The launch templates that a stored launch names: it can't be repeated without them.
pub(crate) fn templates(prepared: &Prepared) -> Vec<String> {
    let plan = serde_json::from_str::<Plan>(&prepared.body);
    plan.map(|plan| plan.configs.into_iter().map(|(name, _)| name).collect()).unwrap_or_default()
}

/// Hex digits of a SHA-256.
fn digest(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
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
        let by_image = self.overrides(request, &found).await?;
        let mut configs = Vec::new();
        for (image, overrides) in by_image {
            let name = self.ensure_template(request, &found, &image).await?;
            configs.push((name, overrides));
        }
        let plan = Plan {
            claim,
            // EC2 takes up to 64 characters; the attempt is part of it, so that a definite refusal isn't replayed.
            token: digest(&format!("{}\n{}", request.claim_uid, request.attempt)),
            capacity_type: request.capacity_type,
            configs,
            tags: tags::of_machine(&self.options.cluster_uid, request),
        };
        // Plain values: writing them can't fail.
        let body = serde_json::to_string(&plan).unwrap_or_default();
        Ok(Prepared { hash: digest(&body), body })
    }

    /// Where the machine may be launched, by image: the request's types in its zones, where there is a subnet
    /// with room and nothing is set aside.
    async fn overrides(
        &self,
        request: &LaunchRequest,
        found: &Found,
    ) -> Result<BTreeMap<String, Vec<Place>>, LaunchError> {
        let types = self.known_types().await;
        let now = self.now();
        let mut memory = self.memory();
        let mut by_image: BTreeMap<String, Vec<Place>> = BTreeMap::new();
        let mut aside = Vec::new();
        let mut count = 0;
        let zones: Vec<&str> = if request.zones.is_empty() {
            let mut zones: Vec<&str> = found.subnets.iter().map(|s| s.zone.as_str()).collect();
            zones.sort_unstable();
            zones.dedup();
            zones
        } else {
            request.zones.iter().map(String::as_str).collect()
        };
        // In each zone the subnet with the most room.
        let places: Vec<(&str, &str)> = zones
            .iter()
            .filter_map(|zone| {
                found
                    .subnets
                    .iter()
                    .filter(|s| s.zone == *zone && s.free > 0 && memory.subnets.is_available(&s.id, now))
                    .max_by_key(|s| (s.free, std::cmp::Reverse(s.id.clone())))
                    .map(|s| (s.zone.as_str(), s.id.as_str()))
            })
            .collect();
        for name in request.instance_types.iter().take(MOST_TYPES) {
            let Some(facts) = types.facts.get(name) else { continue };
            let Some(image) = image_for(facts, &found.images) else { continue };
            for (zone, subnet) in &places {
                if count >= MOST_OVERRIDES || !types.zones.get(name).is_some_and(|z| z.contains(*zone)) {
                    continue;
                }
                let key = OfferingKey {
                    instance_type: name.clone(),
                    zone: (*zone).to_owned(),
                    capacity_type: request.capacity_type,
                };
                if memory.offerings.take(&key, now) {
                    let overrides = by_image.entry(image.id.clone()).or_default();
                    overrides.push(Place(name.clone(), (*subnet).to_owned(), (*zone).to_owned()));
                    count += 1;
                } else {
                    aside.push(key);
                }
            }
        }
        if count > 0 {
            return Ok(by_image);
        }
        let message = if places.is_empty() {
            format!("no subnet of the class has free addresses in {}", zones.join(", "))
        } else {
            format!("{} offerings were refused a moment ago and are set aside", aside.len())
        };
        let code = if places.is_empty() {
            "InsufficientFreeAddressesInSubnet"
        } else {
            "InsufficientInstanceCapacity"
        };
        Err(LaunchError::NoCapacity {
            claim: request.claim_name.clone(),
            offerings: aside,
            fault: refusal::of_code("CreateFleet", code.to_owned(), message, None),
        })
    }

    async fn ensure_template(
        &self,
        request: &LaunchRequest,
        found: &Found,
        image: &str,
    ) -> Result<String, LaunchError> {
        let claim = || request.claim_name.clone();
        let class_name = request.class.metadata.name.clone().unwrap_or_default();
        let not_ready =
            |why: String| LaunchError::ClassNotReady { claim: claim(), class: class_name.clone(), why };
        let cluster =
            found.cluster.as_ref().ok_or_else(|| not_ready("the cluster is not known".to_owned()))?;
        let kubelet = kubelet(&request.class);
        let boot = NodeBoot {
            cluster: &cluster.name,
            endpoint: &cluster.endpoint,
            ca: &cluster.ca,
            service_cidr: &cluster.service_cidr,
            labels: &request.labels,
            taints: &request.taints,
            kubelet: &kubelet,
            instance_store: request.class.spec.instance_store_policy.is_some(),
            custom: request.class.spec.user_data.as_deref(),
        };
        let user_data = render(found.family, &boot).map_err(|error| not_ready(error.to_string()))?;
        let configuration = Configuration::new(
            &request.class.spec,
            found.family,
            image,
            &found.findings.security_groups,
            found.findings.instance_profile.as_deref(),
            user_data,
            request.capacity_type == CapacityType::Reserved,
        );
        let cluster_uid = &self.options.cluster_uid;
        let name = configuration.name(cluster_uid);
        if !self.memory().templates.contains_key(&name) {
            template::ensure(&self.clients, &self.paces, cluster_uid, &class_name, &configuration)
                .await
                .map_err(|fault| self.classify(claim(), fault))?;
        }
        self.memory().templates.insert(name.clone(), Instant::now());
        Ok(name)
    }

    /// A fault of a call before which nothing was launched.
    fn classify(&self, claim: String, fault: Fault) -> LaunchError {
        match fault.class {
            FaultClass::Throttled | FaultClass::Unavailable | FaultClass::Unauthenticated => {
                LaunchError::Later { claim, after: self.paces.launch.pause(), fault }
            }
            _ => LaunchError::Refused { claim, fault },
        }
    }

    pub(crate) async fn send_launch(&self, prepared: &Prepared) -> Result<Launched, LaunchError> {
        let plan: Plan = serde_json::from_str(&prepared.body).map_err(|error| LaunchError::Refused {
            claim: String::new(),
            fault: refusal::of_code(
                "CreateFleet",
                "InvalidParameterValue".to_owned(),
                format!("the stored request can't be read: {error}"),
                None,
            ),
        })?;
        let claim = plan.claim.clone();
        self.paces.launch.turn().await;
        let answer = match fleet(&self.clients.ec2, &plan).send().await {
            Ok(answer) => {
                self.paces.launch.passed();
                answer
            }
            Err(error) => {
                let unknown = refusal::may_have_worked(&error);
                let fault = refusal::fault("CreateFleet", &error);
                if fault.class == FaultClass::Throttled {
                    self.paces.launch.throttled();
                }
                self.give_back(&plan);
                return Err(self.refused_fleet(&plan, fault, unknown));
            }
        };
        let ids: Vec<String> =
            answer.instances().iter().flat_map(|i| i.instance_ids().iter().cloned()).collect();
        let mut faults: Vec<(OfferingKey, String, Fault)> = Vec::new();
        for error in answer.errors() {
            let code = error.error_code().unwrap_or_default().to_owned();
            let fault = refusal::of_code(
                "CreateFleet",
                code,
                error.error_message().unwrap_or_default().to_owned(),
                Some(400),
            );
            let o = error.launch_template_and_overrides().and_then(|l| l.overrides());
            let subnet = o.and_then(|o| o.subnet_id()).unwrap_or_default().to_owned();
            let name = o.and_then(|o| o.instance_type()).map(|t| t.as_str().to_owned()).unwrap_or_default();
            // The zone is in the answer only where it was in the request.
            let zone = plan.zone_of(&subnet).unwrap_or_default();
            faults.push((
                OfferingKey { instance_type: name, zone, capacity_type: plan.capacity_type },
                subnet,
                fault,
            ));
        }
        self.learn(&plan, &answer, &faults);
        match ids.first() {
            Some(id) => self.wait_until_shown(&claim, id).await,
            None => Err(self.nothing_launched(claim, faults)),
        }
    }

    /// What a refusal of the whole call means.
    fn refused_fleet(&self, plan: &Plan, fault: Fault, unknown: bool) -> LaunchError {
        let claim = plan.claim.clone();
        match fault.class {
            FaultClass::TokenReused => LaunchError::Unknown { claim, fault },
            FaultClass::Throttled | FaultClass::Unauthenticated => {
                LaunchError::Later { claim, after: self.paces.launch.pause(), fault }
            }
            FaultClass::Unavailable if unknown => LaunchError::Unknown { claim, fault },
            FaultClass::Unavailable => LaunchError::Later { claim, after: self.paces.launch.pause(), fault },
            FaultClass::NoCapacity | FaultClass::Quota => {
                let offerings = plan.keys();
                let now = self.now();
                let mut memory = self.memory();
                for key in &offerings {
                    memory.offerings.refused(key, now, &fault);
                }
                LaunchError::NoCapacity { claim, offerings, fault }
            }
            FaultClass::NotFound => {
                // What was known is stale: the next attempt looks everything up anew.
                self.forget(plan);
                LaunchError::Refused { claim, fault }
            }
            _ => LaunchError::Refused { claim, fault },
        }
    }

    fn forget(&self, plan: &Plan) {
        self.subnets.clear();
        self.groups.clear();
        self.images.clear();
        self.profiles.clear();
        let mut memory = self.memory();
        for (name, _) in &plan.configs {
            memory.templates.remove(name);
        }
    }

    /// Probes that were not sent are free for others.
    fn give_back(&self, plan: &Plan) {
        let mut memory = self.memory();
        for key in plan.keys() {
            memory.offerings.untried(&key);
        }
    }

    /// Sets aside what had no machine, and takes back what had one.
    fn learn(
        &self,
        plan: &Plan,
        answer: &aws_sdk_ec2::operation::create_fleet::CreateFleetOutput,
        faults: &[(OfferingKey, String, Fault)],
    ) {
        let now = self.now();
        self.give_back(plan);
        let mut memory = self.memory();
        for (key, subnet, fault) in faults {
            match fault.class {
                FaultClass::NoCapacity if fault.code == "InsufficientFreeAddressesInSubnet" => {
                    memory.subnets.refused(subnet, now, fault);
                }
                FaultClass::NoCapacity | FaultClass::Quota => memory.offerings.refused(key, now, fault),
                _ => {}
            }
        }
        for launched in answer.instances() {
            let o = launched.launch_template_and_overrides().and_then(|l| l.overrides());
            let name = launched.instance_type().or_else(|| o.and_then(|o| o.instance_type()));
            let subnet = o.and_then(|o| o.subnet_id()).unwrap_or_default();
            if let (Some(name), Some(zone)) = (name, plan.zone_of(subnet)) {
                let instance_type = name.as_str().to_owned();
                memory.offerings.succeeded(&OfferingKey {
                    instance_type,
                    zone,
                    capacity_type: plan.capacity_type,
                });
                memory.subnets.succeeded(&subnet.to_owned());
            }
        }
    }

    /// Why an answer without a machine had none.
    fn nothing_launched(&self, claim: String, faults: Vec<(OfferingKey, String, Fault)>) -> LaunchError {
        let scarce = |fault: &Fault| matches!(fault.class, FaultClass::NoCapacity | FaultClass::Quota);
        let profile_unknown = faults.iter().any(|(_, _, f)| {
            f.code == "InvalidParameterValue" && f.message.to_ascii_lowercase().contains("instance profile")
        });
        if profile_unknown && self.memory().new_profiles.values().any(|made| made.elapsed() < PROFILE_SETTLES)
        {
            if let Some((_, _, fault)) = faults.into_iter().next() {
                // Each attempt keeps its token's answer, so this is a refusal and the next attempt may work.
                let fault = Fault {
                    class: FaultClass::NotFound,
                    meaning: "EC2 doesn't know the new instance profile yet",
                    remedy: "Croft tries again; nothing to do",
                    ..fault
                };
                return LaunchError::Refused { claim, fault };
            }
            return self.empty_answer(claim);
        }
        // Where some offerings were short and others refused for good, the next attempt has others to try.
        let offerings: Vec<OfferingKey> =
            faults.iter().filter(|(_, _, f)| scarce(f)).map(|(key, _, _)| key.clone()).collect();
        let mut other = None;
        let mut first = None;
        for (_, _, fault) in faults {
            if scarce(&fault) {
                first.get_or_insert(fault);
            } else {
                other.get_or_insert(fault);
            }
        }
        match (other, first) {
            (_, Some(fault)) => LaunchError::NoCapacity { claim, offerings, fault },
            // The token's answer is this one for good, so that even what may pass needs a new attempt.
            (Some(fault), None) => LaunchError::Refused { claim, fault },
            (None, None) => self.empty_answer(claim),
        }
    }

    fn empty_answer(&self, claim: String) -> LaunchError {
        let message = "neither a machine nor an error was in the answer".to_owned();
        let fault = refusal::of_code("CreateFleet", "UnfulfillableCapacity".to_owned(), message, None);
        LaunchError::NoCapacity { claim, offerings: Vec::new(), fault }
    }

    /// The machine as DescribeInstances shows it, once it does: its name isn't in CreateFleet's answer.
    async fn wait_until_shown(&self, claim: &str, id: &str) -> Result<Launched, LaunchError> {
        let deadline = Instant::now() + SHOWS_WITHIN;
        let mut pause = Duration::from_millis(50);
        let ids = [id.to_owned()];
        let unknown = |fault| LaunchError::Unknown { claim: claim.to_owned(), fault };
        loop {
            match machines::by_id(&self.clients, &self.paces, &ids).await {
                Ok(seen) => match seen.into_iter().next().map(|s| s.machine) {
                    Some(machine) if !machine.state.is_alive() => return Err(dead(claim, &machine)),
                    Some(machine) if !machine.node_name.is_empty() => {
                        return Ok(self.describe_launched(machine).await);
                    }
                    _ => {}
                },
                Err(fault) if fault.class.passes_by_itself() => {}
                Err(fault) => return Err(unknown(fault)),
            }
            if Instant::now() + pause > deadline {
                let message = format!("machine {id} was launched and is not visible yet");
                return Err(unknown(refusal::of_code(
                    "DescribeInstances",
                    "InvalidInstanceID.NotFound".to_owned(),
                    message,
                    None,
                )));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }
}

fn dead(claim: &str, machine: &CloudMachine) -> LaunchError {
    let message = format!("machine {} is {:?} already", machine.id, machine.state);
    let fault = refusal::of_code("CreateFleet", "IdempotentInstanceTerminated".to_owned(), message, None);
    LaunchError::Refused { claim: claim.to_owned(), fault }
}

impl Plan {
    fn keys(&self) -> Vec<OfferingKey> {
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

    fn zone_of(&self, subnet: &str) -> Option<String> {
        self.configs
            .iter()
            .flat_map(|(_, overrides)| overrides)
            .find(|Place(_, s, _)| s == subnet)
            .map(|Place(_, _, zone)| zone.clone())
    }
}

/// The request of a plan: the same plan is the same request, to the last byte.
fn fleet(
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
        .tag_specifications(specification(ResourceType::Volume))
        .tag_specifications(specification(ResourceType::NetworkInterface));
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
