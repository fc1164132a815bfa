//! CreateFleet of type `instant`: chooses among overrides, launches what has capacity, reports what has none.

use std::collections::{BTreeMap, BTreeSet};

use croft_scheduler::{CapacityType, Price};
use sha2::{Digest as _, Sha256};

use crate::{
    answer::{Answer, Call, Outcome, Refusal},
    params::{Params, wildcard},
    policy::Demand,
    resources::{FailedChecks, Instance, State, Template},
    templates::tag_specifications,
    world::{Token, World, end_dry_run},
    xml::Xml,
};

/// One override: where an instance could be launched.
#[derive(Clone, Debug)]
struct Candidate {
    template_name: String,
    template: Template,
    instance_type: String,
    subnet: String,
    zone: String,
    image: String,
    priority: Option<f64>,
}

/// Tags by kind of resource.
type Tags = BTreeMap<String, BTreeMap<String, String>>;
/// Ids of the instances that a fleet launched from each candidate.
type Launched = Vec<(Candidate, Vec<String>)>;
/// Candidates that were refused.
type Refused = Vec<(Candidate, Refusal)>;

const INTERFACE: &str = "network-interface";
const SPOT_REQUEST: &str = "spot-instances-request";

impl Candidate {
    /// Tags of a launch: the template's own, overridden by those of the call.
    fn tags(&self, call: &Tags) -> Tags {
        let mut tags = self.template.data.tags.clone();
        for (kind, more) in call {
            tags.entry(kind.clone()).or_default().extend(more.clone());
        }
        tags
    }
}

impl World {
    pub(crate) fn create_fleet(&mut self, call: &Call) -> Outcome {
        let p = &call.params;
        if p.get("Type") != Some("instant") {
            return Err(Refusal::new("InvalidParameterValue", "Only fleets of type instant are simulated"));
        }
        // The SDK retries with the same token; the rest of the request identifies it.
        let canonical = p.canonical(&BTreeSet::from(["ClientToken", "Action", "Version"]));
        let request: String = Sha256::digest(canonical).iter().map(|byte| format!("{byte:02x}")).collect();
        let token = p.get("ClientToken").map(str::to_owned);
        if let Some(known) = token.as_ref().and_then(|token| self.tokens.get(token)) {
            if known.request != request {
                return Err(Refusal::new(
                    "IdempotentParameterMismatch",
                    "The client token was used before with other parameters",
                ));
            }
            return Ok(Answer::Xml(known.answer.clone()));
        }
        let target = p.within("TargetCapacitySpecification");
        let count =
            target.number("TotalTargetCapacity").ok_or_else(|| Refusal::missing("TotalTargetCapacity"))?;
        let capacity_type = match target.get("DefaultTargetCapacityType") {
            Some("spot") => CapacityType::Spot,
            _ => CapacityType::OnDemand,
        };
        let tags = tag_specifications(p, "TagSpecification");
        if let Some(kind) = tags.keys().find(|kind| !["fleet", "instance", "volume"].contains(&kind.as_str()))
        {
            return Err(Refusal::new(
                "InvalidParameterValue",
                format!("'{kind}' is not a valid taggable resource type for this operation."),
            ));
        }
        let candidates = self.candidates(p)?;
        self.authorize_fleet(call, capacity_type, &candidates)?;
        end_dry_run(call)?;
        let ordered = self.order(p, capacity_type, candidates);
        let (launched, errors) = self.launch_all(count, &ordered, capacity_type, &tags, token.as_deref());
        let fleet = self.new_id("fleet");
        let answer = describe(&fleet, capacity_type, &launched, &errors);
        if let Some(token) = token {
            self.tokens.insert(token, Token { request, answer: answer.clone(), at: self.now });
        }
        Ok(Answer::Xml(answer))
    }

    /// Launches `count` instances, each from the first candidate that takes it. Returns the instances of each candidate, and
    /// the refusals if not all of them were launched.
    fn launch_all(
        &mut self,
        count: u64,
        ordered: &[Candidate],
        capacity_type: CapacityType,
        tags: &Tags,
        token: Option<&str>,
    ) -> (Launched, Refused) {
        let same = |one: &Candidate, other: &Candidate| {
            one.instance_type == other.instance_type && one.subnet == other.subnet
        };
        let (mut launched, mut errors) = (Launched::new(), Refused::new());
        'instances: for _ in 0..count {
            for candidate in ordered {
                if errors.iter().any(|(refused, _)| same(refused, candidate)) {
                    continue;
                }
                match self.launch_one(candidate, capacity_type, tags, token) {
                    Ok(id) => {
                        match launched.last_mut() {
                            Some((last, ids)) if same(last, candidate) => ids.push(id),
                            _ => launched.push((candidate.clone(), vec![id])),
                        }
                        continue 'instances;
                    }
                    Err(refusal) => errors.push((candidate.clone(), refusal)),
                }
            }
            // EC2 reports errors only while the target isn't reached.
            return (launched, errors);
        }
        (launched, Vec::new())
    }

    /// RunInstances as a dry run, for its permissions; Croft launches by CreateFleet alone. Source: "Actions, resources,
    /// and condition keys for Amazon EC2", the service authorization reference.
    pub(crate) fn run_instances(&mut self, call: &Call) -> Outcome {
        let p = &call.params;
        let image = p.get("ImageId").ok_or_else(|| Refusal::missing("ImageId"))?;
        let subnet = p.get("SubnetId").ok_or_else(|| Refusal::missing("SubnetId"))?;
        let parts = [
            self.arn("subnet", subnet),
            format!("arn:aws:ec2:{}::image/{image}", self.settings.region),
            self.arn("security-group", "*"),
        ];
        let tags = tag_specifications(p, "TagSpecification");
        for arn in parts {
            self.require(call, &Demand::new("ec2:RunInstances", arn))?;
        }
        for kind in ["instance", "volume", INTERFACE] {
            let none = BTreeMap::new();
            let run = Demand::new("ec2:RunInstances", self.arn(kind, "*"))
                .with_tags("aws:RequestTag", tags.get(kind).unwrap_or(&none));
            self.require(call, &run)?;
        }
        for (kind, kind_tags) in &tags {
            let tag = Demand::new("ec2:CreateTags", self.arn(kind, "*"))
                .with_tags("aws:RequestTag", kind_tags)
                .with("ec2:CreateAction", "RunInstances");
            self.require(call, &tag)?;
        }
        end_dry_run(call)?;
        Err(Refusal::new(
            "UnsupportedOperation",
            "RunInstances is simulated with DryRun only; launch by CreateFleet",
        ))
    }

    /// Every override, validated.
    fn candidates(&self, p: &Params) -> Result<Vec<Candidate>, Refusal> {
        let mut candidates = Vec::new();
        for config in p.items("LaunchTemplateConfigs") {
            let (template_name, template) = self.template(&config.within("LaunchTemplateSpecification"))?;
            let overrides = config.items("Overrides");
            let overrides = if overrides.is_empty() { vec![Params::default()] } else { overrides };
            for o in overrides {
                let instance_type = o
                    .get("InstanceType")
                    .map(str::to_owned)
                    .or_else(|| template.data.instance_type.clone())
                    .ok_or_else(|| Refusal::missing("InstanceType"))?;
                if self.market.entry(&instance_type).is_none() {
                    return Err(Refusal::new(
                        "InvalidParameterValue",
                        format!("Invalid value '{instance_type}' for InstanceType."),
                    ));
                }
                let subnet = o.get("SubnetId").ok_or_else(|| Refusal::missing("SubnetId"))?.to_owned();
                let zone = self
                    .subnets
                    .get(&subnet)
                    .ok_or_else(|| {
                        Refusal::new(
                            "InvalidSubnetID.NotFound",
                            format!("The subnet ID '{subnet}' does not exist"),
                        )
                    })?
                    .zone
                    .clone();
                let image = o
                    .get("ImageId")
                    .map(str::to_owned)
                    .or_else(|| template.data.image.clone())
                    .ok_or_else(|| Refusal::missing("ImageId"))?;
                let priority = o.get("Priority").and_then(|text| text.parse().ok());
                candidates.push(Candidate {
                    template_name: template_name.clone(),
                    template: template.clone(),
                    instance_type,
                    subnet,
                    zone,
                    image,
                    priority,
                });
            }
        }
        if candidates.is_empty() {
            return Err(Refusal::missing("LaunchTemplateConfigs"));
        }
        if candidates.len() > 300 {
            return Err(Refusal::new(
                "InvalidParameterValue",
                "A fleet may have at most 300 launch specifications",
            ));
        }
        Ok(candidates)
    }

    /// Permissions that a caller of CreateFleet needs: the fleet, running instances from each part, tagging them, and
    /// passing the role to them. Source: "EC2 Fleet prerequisites", the EC2 user guide.
    fn authorize_fleet(
        &mut self,
        call: &Call,
        capacity_type: CapacityType,
        candidates: &[Candidate],
    ) -> Result<(), Refusal> {
        let Some(first) = candidates.first() else { return Ok(()) };
        let tags = first.tags(&tag_specifications(&call.params, "TagSpecification"));
        let none = BTreeMap::new();
        let of = |kind: &str| tags.get(kind).unwrap_or(&none);
        let fleet =
            Demand::new("ec2:CreateFleet", self.arn("fleet", "*")).with_tags("aws:RequestTag", of("fleet"));
        self.require(call, &fleet)?;
        let spot = (capacity_type == CapacityType::Spot).then_some(SPOT_REQUEST);
        for kind in ["instance", "volume", INTERFACE].into_iter().chain(spot) {
            let run =
                Demand::new("ec2:RunInstances", self.arn(kind, "*")).with_tags("aws:RequestTag", of(kind));
            self.require(call, &run)?;
        }
        for (kind, kind_tags) in &tags {
            let arn = self.arn(kind, "*");
            let tag = Demand::new("ec2:CreateTags", &arn)
                .with_tags("aws:RequestTag", kind_tags)
                .with("ec2:CreateAction", if kind == "fleet" { "CreateFleet" } else { "RunInstances" });
            self.require(call, &tag)?;
        }
        let mut parts = vec![
            (self.arn("subnet", &first.subnet), BTreeMap::new()),
            (self.arn("launch-template", &first.template.id), first.template.tags.clone()),
            (format!("arn:aws:ec2:{}::image/{}", self.settings.region, first.image), BTreeMap::new()),
        ];
        parts.extend(
            first.template.data.groups.iter().map(|g| (self.arn("security-group", g), BTreeMap::new())),
        );
        for (arn, tags) in parts {
            for action in ["ec2:CreateFleet", "ec2:RunInstances"] {
                self.require(call, &Demand::new(action, &arn).with_tags("aws:ResourceTag", &tags))?;
            }
        }
        if let Some(profile) = &first.template.data.profile {
            let role = self.profiles.get(profile).and_then(|p| p.role.clone());
            if let Some(role) = role {
                let arn = format!("arn:aws:iam::{}:role/{role}", self.settings.account);
                self.require(
                    call,
                    &Demand::new("iam:PassRole", arn).with("iam:PassedToService", "ec2.amazonaws.com"),
                )?;
            }
        }
        Ok(())
    }

    /// The allocation strategies, as the EC2 user guide describes them.
    fn order(
        &self,
        p: &Params,
        capacity_type: CapacityType,
        mut candidates: Vec<Candidate>,
    ) -> Vec<Candidate> {
        let options = if capacity_type == CapacityType::Spot { "SpotOptions" } else { "OnDemandOptions" };
        let options = p.within(options);
        let strategy = options.get("AllocationStrategy").unwrap_or("lowest-price").to_owned();
        let price = |c: &Candidate| match capacity_type {
            CapacityType::Spot => self.market.spot(&c.instance_type, &c.zone).micros(),
            _ => self.market.on_demand(&c.instance_type).micros(),
        };
        let room = |c: &Candidate| self.market.room(&c.instance_type, &c.zone, capacity_type);
        // In thousandths, so that integers are compared; no priority sorts last.
        #[expect(clippy::cast_possible_truncation, reason = "priorities are small")]
        let priority = |c: &Candidate| c.priority.map_or(i64::MAX, |p| (p * 1000.0) as i64);
        match strategy.as_str() {
            "prioritized" => candidates.sort_by_key(priority),
            "capacity-optimized" => candidates.sort_by_key(|c| (u64::MAX - room(c), price(c))),
            "capacity-optimized-prioritized" => {
                candidates.sort_by_key(|c| (u64::MAX - room(c), priority(c), price(c)));
            }
            // Offerings with capacity first, the cheapest of them; nearly empty ones last.
            "price-capacity-optimized" => {
                candidates.sort_by_key(|c| (room(c) < 5, price(c), u64::MAX - room(c)))
            }
            _ => candidates.sort_by_key(price),
        }
        candidates
    }

    fn launch_one(
        &mut self,
        candidate: &Candidate,
        capacity_type: CapacityType,
        tags: &Tags,
        token: Option<&str>,
    ) -> Result<String, Refusal> {
        let Candidate { instance_type, zone, subnet, .. } = candidate;
        self.check_launch(candidate, capacity_type)?;
        let reservation = self.take_capacity(candidate, capacity_type)?;
        let Some(place) = self.subnets.get_mut(subnet) else {
            return Err(Refusal::new("InvalidSubnetID.NotFound", subnet.clone()));
        };
        place.free -= 1;
        place.used += 1;
        // The first addresses of a subnet are reserved by AWS.
        let host = place.used + 9;
        let address = format!("10.{}.{}.{}", place.net, (host >> 8) & 0xff, host & 0xff);
        let id = self.new_id("i");
        let mut parts = candidate.tags(tags);
        parts.remove("fleet");
        let mut all_tags = parts.remove("instance").unwrap_or_default();
        all_tags.insert("aws:ec2launchtemplate:id".to_owned(), candidate.template.id.clone());
        let instance = Instance {
            instance_type: instance_type.clone(),
            zone: zone.clone(),
            subnet: subnet.clone(),
            address,
            image: candidate.image.clone(),
            capacity_type,
            reservation,
            state: State::Pending,
            since: self.now,
            launched: self.now,
            tags: all_tags,
            parts,
            data: candidate.template.data.clone(),
            token: token.map(str::to_owned),
            console: String::new(),
            reason: String::new(),
            ended: None,
            fails: self.failure(instance_type, zone),
            doomed: None,
            failed_checks: FailedChecks::new(),
            scheduled: Vec::new(),
        };
        let price = match capacity_type {
            CapacityType::OnDemand => self.market.on_demand(instance_type),
            CapacityType::Spot => self.market.spot(instance_type, zone),
            CapacityType::Reserved => Price::ZERO,
        };
        self.bill.launch(&id, capacity_type, price, self.now);
        self.instances.insert(id.clone(), instance);
        self.revision += 1;
        Ok(id)
    }

    /// Refuses a launch that EC2 would refuse before it looks for capacity.
    fn check_launch(&self, candidate: &Candidate, capacity_type: CapacityType) -> Result<(), Refusal> {
        let Candidate { instance_type, zone, subnet, .. } = candidate;
        if capacity_type != CapacityType::Spot && candidate.template.data.tags.contains_key(SPOT_REQUEST) {
            return Err(Refusal::new(
                "InvalidParameterValue",
                "You cannot specify tags for Spot instances requests if there are no Spot instances requests being created by the request.",
            ));
        }
        if self.forbidden_types.iter().any(|pattern| wildcard(pattern, instance_type)) {
            return Err(Refusal::new(
                "Unsupported",
                format!(
                    "The requested configuration is currently not supported: your account may not launch {instance_type}"
                ),
            ));
        }
        if !self.market.offers(instance_type, zone) {
            return Err(Refusal::new(
                "Unsupported",
                format!(
                    "Your requested instance type ({instance_type}) is not supported in your requested Availability Zone ({zone})."
                ),
            ));
        }
        let wanted = candidate.template.data.efas;
        let most = self.market.entry(instance_type).map_or(0, |e| e.facts.efas);
        if wanted > most {
            return Err(Refusal::new(
                "AttachmentLimitExceeded",
                format!(
                    "EFA interface count {wanted} exceeds the allowed limit for {instance_type}, which is {most}"
                ),
            ));
        }
        self.check_image(&candidate.image, instance_type)?;
        for group in &candidate.template.data.groups {
            if !self.groups.contains_key(group) {
                return Err(Refusal::new(
                    "InvalidGroup.NotFound",
                    format!("The security group '{group}' does not exist"),
                ));
            }
        }
        if let Some(profile) = &candidate.template.data.profile
            && self.profiles.get(profile).is_none_or(|p| p.made + self.settings.profile_settles_ms > self.now)
        {
            return Err(Refusal::new(
                "InvalidParameterValue",
                format!(
                    "Value ({profile}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
                ),
            ));
        }
        if self.subnets.get(subnet).is_none_or(|s| s.free == 0) {
            return Err(Refusal::new(
                "InsufficientFreeAddressesInSubnet",
                format!(
                    "There are not enough free addresses in subnet '{subnet}' to satisfy the requested number of instances."
                ),
            ));
        }
        self.check_quota(instance_type, capacity_type)
    }

    /// Takes capacity for one instance. Returns the id of the reservation that it came from.
    fn take_capacity(
        &mut self,
        candidate: &Candidate,
        capacity_type: CapacityType,
    ) -> Result<Option<String>, Refusal> {
        let Candidate { instance_type, zone, .. } = candidate;
        // An open reservation takes every matching on-demand launch, whether requested or not.
        let preference = candidate.template.data.reservation.as_deref();
        let reservation = (capacity_type != CapacityType::Spot && preference != Some("none"))
            .then(|| {
                self.reservations.iter_mut().find(|(_, r)| {
                    r.active && r.instance_type == *instance_type && r.zone == *zone && r.free > 0
                })
            })
            .flatten()
            .map(|(id, reservation)| {
                reservation.free -= 1;
                id.clone()
            });
        if reservation.is_none() {
            if preference == Some("capacity-reservations-only") {
                return Err(Refusal::new(
                    "ReservationCapacityExceeded",
                    "The requested reservations do not have enough available capacity",
                ));
            }
            if !self.market.take(instance_type, zone, capacity_type) {
                let code = if capacity_type == CapacityType::Spot {
                    "UnfulfillableCapacity"
                } else {
                    "InsufficientInstanceCapacity"
                };
                return Err(Refusal::new(
                    code,
                    format!(
                        "We currently do not have sufficient {instance_type} capacity in the Availability Zone you requested ({zone})."
                    ),
                ));
            }
        }
        Ok(reservation)
    }

    /// The failure of an instance that is being launched.
    fn failure(&mut self, instance_type: &str, zone: &str) -> Option<String> {
        let rule = self.launch_failures.iter_mut().find(|rule| {
            rule.times != Some(0)
                && wildcard(&rule.instance_type, instance_type)
                && wildcard(&rule.zone, zone)
        })?;
        if let Some(times) = &mut rule.times {
            *times -= 1;
        }
        Some(rule.reason.clone())
    }

    fn check_quota(&self, instance_type: &str, capacity_type: CapacityType) -> Result<(), Refusal> {
        let Some(quota) = self.settings.vcpu_quota else { return Ok(()) };
        let vcpus = |name: &str| self.market.entry(name).map_or(0, |e| e.facts.vcpus);
        let used: u32 = self
            .instances
            .values()
            .filter(|i| i.state.is_alive() && i.capacity_type == capacity_type)
            .map(|i| vcpus(&i.instance_type))
            .sum();
        if used + vcpus(instance_type) <= quota {
            return Ok(());
        }
        if capacity_type == CapacityType::Spot {
            return Err(Refusal::new("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded"));
        }
        Err(Refusal::new(
            "VcpuLimitExceeded",
            format!(
                "You have requested more vCPU capacity than your current vCPU limit of {quota} allows for the instance bucket that the specified instance type belongs to."
            ),
        ))
    }
}

fn describe(
    fleet: &str,
    capacity_type: CapacityType,
    launched: &[(Candidate, Vec<String>)],
    errors: &[(Candidate, Refusal)],
) -> String {
    let lifecycle = if capacity_type == CapacityType::Spot { "spot" } else { "on-demand" };
    let origin = |xml: &mut Xml, c: &Candidate| {
        xml.node("launchTemplateAndOverrides", |xml| {
            xml.node("launchTemplateSpecification", |xml| {
                xml.leaf("launchTemplateId", &c.template.id)
                    .leaf("launchTemplateName", &c.template_name)
                    .leaf("version", 1);
            });
            xml.node("overrides", |xml| {
                xml.leaf("instanceType", &c.instance_type)
                    .leaf("subnetId", &c.subnet)
                    .leaf("availabilityZone", &c.zone)
                    .leaf("imageId", &c.image)
                    .maybe("priority", c.priority);
            });
        });
    };
    let mut xml = Xml::new();
    xml.leaf("fleetId", fleet);
    xml.items("errorSet", errors, |xml, (candidate, refusal)| {
        origin(xml, candidate);
        xml.leaf("lifecycle", lifecycle)
            .leaf("errorCode", &refusal.code)
            .leaf("errorMessage", &refusal.message);
    });
    xml.items("fleetInstanceSet", launched, |xml, (candidate, ids)| {
        origin(xml, candidate);
        xml.leaf("lifecycle", lifecycle)
            .items("instanceIds", ids, |xml, id| {
                // The members of the list are bare values.
                xml.text(id);
            })
            .leaf("instanceType", &candidate.instance_type);
    });
    xml.into_string()
}
