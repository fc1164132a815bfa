//! The state of the simulated cloud, and the only place that changes it.
//!
//! Time comes in with every call, chance from a seed, so that the same calls at the same times give the
//! same answers: a run can be repeated from its seed, on real or on virtual time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    answer::{Answer, Call, Outcome, Refusal, Service},
    catalogue::Catalogue,
    faults::{Cut, Faults},
    fleet::{LaunchFailure, Reservation},
    iam::Profile,
    images::Image,
    instances::Instance,
    market::Market,
    network::{SecurityGroup, Subnet},
    policy::{Demand, Policy},
    sqs::Queue,
    templates::Template,
};

/// How the simulated account looks at the start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Region of everything.
    pub region: String,
    /// Account that owns everything.
    pub account: String,
    /// Name of the one EKS cluster, and value of the discovery tags.
    pub cluster_name: String,
    /// What DescribeCluster says the API server is.
    pub cluster_endpoint: String,
    /// What DescribeCluster says its CA is, in PEM.
    pub cluster_ca: String,
    /// Kubernetes version, as `1.36`.
    pub kubernetes_version: String,
    /// Service network of the cluster.
    pub service_cidr: String,
    /// Seed of every choice that is left to chance.
    pub seed: u64,
    /// From launch to `running`.
    pub running_after_ms: u64,
    /// From `shutting-down` to `terminated`.
    pub terminated_after_ms: u64,
    /// How long a new instance, template or tag isn't seen by the Describe calls.
    pub consistency_ms: u64,
    /// How long client tokens are remembered.
    pub token_ttl_ms: u64,
    /// Free addresses of each subnet.
    pub subnet_addresses: u32,
    /// vCPUs that may run on-demand and on spot; `None` for no quota.
    pub vcpu_quota: Option<u32>,
    /// Launch templates that there may be.
    pub template_quota: usize,
    /// False while the image of every instance is one that never boots.
    pub boots: bool,
    /// Names of the IAM roles that exist.
    pub roles: Vec<String>,
    /// Name of the interruption queue, if there is one.
    pub queue: Option<String>,
    /// How long EC2 doesn't know a new instance profile.
    pub profile_settles_ms: u64,
    /// The instance types that the region has, with wildcards, of those in the catalogue.
    pub types: Vec<String>,
    /// The catalogue; the built-in one if there is none.
    pub catalogue: Option<Arc<Catalogue>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            region: "us-east-1".to_owned(),
            account: "000000000000".to_owned(),
            cluster_name: "croft".to_owned(),
            cluster_endpoint: "https://127.0.0.1:6443".to_owned(),
            cluster_ca: String::new(),
            kubernetes_version: "1.36".to_owned(),
            service_cidr: "10.96.0.0/16".to_owned(),
            seed: 1,
            running_after_ms: 1_000,
            terminated_after_ms: 1_000,
            consistency_ms: 0,
            token_ttl_ms: 24 * 3_600_000,
            subnet_addresses: 8_187,
            vcpu_quota: None,
            template_quota: 5_000,
            boots: true,
            roles: vec!["croft-node".to_owned()],
            queue: Some("croft".to_owned()),
            profile_settles_ms: 0,
            types: vec!["*".to_owned()],
            catalogue: None,
        }
    }
}

/// Something that happened to an instance, for the simulated kubelets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// It runs.
    Running(String),
    /// It is going, or gone.
    Gone(String),
}

/// The simulated cloud.
#[derive(Debug)]
pub struct World {
    /// How the account looked at the start.
    pub settings: Settings,
    /// Milliseconds since 1970.
    pub(crate) now: u64,
    pub(crate) rng: u64,
    pub(crate) subnets: BTreeMap<String, Subnet>,
    pub(crate) groups: BTreeMap<String, SecurityGroup>,
    pub(crate) images: BTreeMap<String, Image>,
    pub(crate) templates: BTreeMap<String, Template>,
    pub(crate) instances: BTreeMap<String, Instance>,
    pub(crate) profiles: BTreeMap<String, Profile>,
    pub(crate) reservations: BTreeMap<String, Reservation>,
    pub(crate) tokens: BTreeMap<String, Token>,
    /// Capacity and prices.
    pub market: Market,
    /// Faults by script.
    pub faults: Faults,
    pub(crate) queues: BTreeMap<String, Queue>,
    pub(crate) policies: BTreeMap<String, Policy>,
    pub(crate) expired_keys: BTreeSet<String>,
    pub(crate) forbidden_types: BTreeSet<String>,
    pub(crate) launch_failures: Vec<LaunchFailure>,
    pub(crate) happenings: Vec<Happening>,
    pub(crate) calls: BTreeMap<String, u64>,
    pub(crate) demands: BTreeSet<(String, String)>,
    pub(crate) denied: BTreeSet<String>,
    counter: u64,
}

/// A client token that was used.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) request: String,
    pub(crate) answer: String,
    pub(crate) at: u64,
}

impl World {
    /// A fresh account at `now` (milliseconds since 1970).
    #[must_use]
    pub fn new(settings: Settings, now: u64) -> Self {
        let mut world = Self {
            now,
            rng: settings.seed,
            subnets: BTreeMap::new(),
            groups: BTreeMap::new(),
            images: BTreeMap::new(),
            templates: BTreeMap::new(),
            instances: BTreeMap::new(),
            profiles: BTreeMap::new(),
            reservations: BTreeMap::new(),
            tokens: BTreeMap::new(),
            market: Market::new(settings.seed, &settings.types, settings.catalogue.as_deref()),
            faults: Faults::default(),
            queues: settings.queue.iter().map(|name| (name.clone(), Queue::default())).collect(),
            policies: BTreeMap::new(),
            expired_keys: BTreeSet::new(),
            forbidden_types: BTreeSet::new(),
            launch_failures: Vec::new(),
            happenings: Vec::new(),
            calls: BTreeMap::new(),
            demands: BTreeSet::new(),
            denied: BTreeSet::new(),
            counter: 0,
            settings,
        };
        world.make_network();
        world.make_images();
        world
    }

    /// Answers one call at `now`. The number is how many milliseconds the answer takes to come.
    pub fn handle(&mut self, call: &Call, now: u64) -> (Answer, u64) {
        self.advance(now);
        *self.calls.entry(format!("{}:{}", call.service.prefix(), call.action)).or_default() += 1;
        let (faults, rng) = (&mut self.faults, &mut self.rng);
        let effect = faults.strike(&call.action, || u32::try_from(next(rng) % 1000).unwrap_or_default());
        let answer = match (effect.cut, effect.error) {
            (Some(Cut::Before), _) => Answer::Broken,
            (Some(Cut::After), _) => {
                // The work is done; only the answer is lost.
                let _lost = self.act(call);
                Answer::Broken
            }
            (None, Some(code)) => Answer::Refused(Refusal::new(&code, "simulated fault")),
            (None, None) => self.act(call).unwrap_or_else(Answer::Refused),
        };
        (answer, effect.latency_ms)
    }

    /// Answers a call that is repeated on the server's own account: not counted, and free of faults.
    pub(crate) fn handle_quietly(&mut self, call: &Call, now: u64) -> Answer {
        self.advance(now);
        self.act(call).unwrap_or_else(Answer::Refused)
    }

    fn act(&mut self, call: &Call) -> Outcome {
        self.authenticate(call)?;
        match call.service {
            Service::Ec2 => self.ec2(call),
            Service::Ssm => self.ssm(call),
            Service::Sqs => self.sqs(call),
            Service::Pricing => self.pricing(call),
            Service::Iam => self.iam(call),
            Service::Sts => self.sts(call),
            Service::Eks => self.eks(call),
        }
    }

    fn ec2(&mut self, call: &Call) -> Outcome {
        match call.action.as_str() {
            "CreateFleet" => self.create_fleet(call),
            "DescribeInstances" => self.describe_instances(call),
            "TerminateInstances" => self.terminate_instances(call),
            "CreateTags" => self.create_tags(call),
            "DescribeInstanceTypes" => self.describe_instance_types(call),
            "DescribeInstanceTypeOfferings" => self.describe_offerings(call),
            "DescribeSpotPriceHistory" => self.describe_spot_prices(call),
            "DescribeSubnets" => self.describe_subnets(call),
            "DescribeSecurityGroups" => self.describe_groups(call),
            "DescribeImages" => self.describe_images(call),
            "CreateLaunchTemplate" => self.create_template(call),
            "DescribeLaunchTemplates" => self.describe_templates(call),
            "DeleteLaunchTemplate" => self.delete_template(call),
            "DescribeCapacityReservations" => self.describe_reservations(call),
            "GetConsoleOutput" => self.console_output(call),
            other => Err(Refusal::new(
                "InvalidAction",
                format!("The action {other} is not valid for this web service"),
            )),
        }
    }

    /// Lets time pass: instances come up and go.
    pub fn advance(&mut self, now: u64) {
        if now > self.now {
            self.now = now;
        }
        self.advance_instances();
        let ttl = self.settings.token_ttl_ms;
        self.tokens.retain(|_, token| token.at + ttl > now);
    }

    /// What happened since this was asked last.
    pub fn take_happenings(&mut self) -> Vec<Happening> {
        std::mem::take(&mut self.happenings)
    }

    /// True if something has happened since.
    #[must_use]
    pub fn has_happenings(&self) -> bool {
        !self.happenings.is_empty()
    }

    /// How often each action was called, as `ec2:CreateFleet`.
    #[must_use]
    pub fn calls(&self) -> &BTreeMap<String, u64> {
        &self.calls
    }

    /// The IAM actions that the calls so far needed, each with the call that needed it.
    #[must_use]
    pub fn demands(&self) -> &BTreeSet<(String, String)> {
        &self.demands
    }

    /// The IAM actions that a policy denied so far.
    #[must_use]
    pub fn denied(&self) -> &BTreeSet<String> {
        &self.denied
    }

    /// Lets `key` do only what `policy` grants. The key `*` stands for every key.
    pub fn restrict(&mut self, key: &str, policy: Policy) {
        self.policies.insert(key.to_owned(), policy);
    }

    /// Makes `key` an expired one.
    pub fn expire_key(&mut self, key: &str) {
        self.expired_keys.insert(key.to_owned());
    }

    /// Instance types, with wildcards, that the account may not launch.
    pub fn forbid_type(&mut self, pattern: &str) {
        self.forbidden_types.insert(pattern.to_owned());
    }

    fn authenticate(&self, call: &Call) -> Result<(), Refusal> {
        let query = call.service == Service::Ec2;
        if call.access_key.is_empty() {
            let code = if query { "AuthFailure" } else { "MissingAuthenticationToken" };
            return Err(Refusal::new(code, "The request is not signed"));
        }
        if self.expired_keys.contains(&call.access_key) {
            let code = if query { "RequestExpired" } else { "ExpiredToken" };
            return Err(Refusal::new(code, "The security token included in the request is expired"));
        }
        Ok(())
    }

    /// Refuses the call unless the caller's policy grants `demand`.
    pub(crate) fn require(&mut self, call: &Call, demand: &Demand) -> Result<(), Refusal> {
        self.demands.insert((demand.action.clone(), format!("{}:{}", call.service.prefix(), call.action)));
        let policy = self.policies.get(&call.access_key).or_else(|| self.policies.get("*"));
        if policy.is_none_or(|policy| policy.allows(demand)) {
            return Ok(());
        }
        self.denied.insert(demand.action.clone());
        let code = match call.service {
            Service::Ec2 => "UnauthorizedOperation",
            Service::Iam | Service::Sts => "AccessDenied",
            _ => "AccessDeniedException",
        };
        Err(Refusal::new(
            code,
            format!("You are not authorized to perform: {} on resource: {}", demand.action, demand.resource),
        ))
    }

    /// [`World::require`] for an action that knows no resources.
    pub(crate) fn require_plain(&mut self, call: &Call) -> Result<(), Refusal> {
        self.require(call, &Demand::new(format!("{}:{}", call.service.prefix(), call.action), "*"))
    }

    /// An ARN of this account's EC2.
    pub(crate) fn arn(&self, kind: &str, id: &str) -> String {
        format!("arn:aws:ec2:{}:{}:{kind}/{id}", self.settings.region, self.settings.account)
    }

    /// A new id with `prefix`, such as `i-0f3a…`.
    pub(crate) fn new_id(&mut self, prefix: &str) -> String {
        self.counter += 1;
        let mut mixed = self.settings.seed ^ self.counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("{prefix}-0{:016x}", next(&mut mixed))
    }
}

/// SplitMix64: small, seeded, and good enough to choose with.
pub(crate) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `ms` since 1970 as EC2 writes times.
pub(crate) fn iso(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or_default();
    jiff::Timestamp::from_millisecond(ms)
        .map_or_else(|_| "1970-01-01T00:00:00Z".to_owned(), |t| t.to_string())
}

/// The page of `all` that a Describe call asks for with MaxResults and NextToken, and the token of the next.
pub(crate) fn page<T>(call: &Call, all: Vec<T>) -> Result<(Vec<T>, Option<String>), Refusal> {
    let from = match call.params.get("NextToken") {
        None => 0,
        Some(token) => token
            .strip_prefix("page-")
            .and_then(|n| n.parse::<usize>().ok())
            .ok_or_else(|| Refusal::new("InvalidNextToken", "The token is not valid"))?,
    };
    let size = match call.params.get("MaxResults") {
        None => usize::MAX,
        Some(text) => match text.parse() {
            Ok(n) if (5..=1000).contains(&n) => n,
            _ => {
                return Err(Refusal::new(
                    "InvalidParameterValue",
                    format!("Value ( {text} ) for parameter maxResults is invalid"),
                ));
            }
        },
    };
    let total = all.len();
    let until = from.saturating_add(size).min(total);
    let next = (until < total).then(|| format!("page-{until}"));
    Ok((all.into_iter().skip(from).take(size).collect(), next))
}
