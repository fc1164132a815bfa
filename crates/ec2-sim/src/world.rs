//! The state of the simulated cloud. Only its methods change it.
//!
//! Each call carries its time, and random choices come from a seed, so the same calls at the same times give the same
//! answers: a run can be repeated from its seed, on real or virtual time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    answer::{Call, Refusal, Service},
    bill::Bill,
    catalogue::Catalogue,
    faults::Faults,
    market::Market,
    policy::{Demand, Policy},
    random::next,
    resources::{
        Image, Instance, Integration, LaunchFailure, Profile, Queue, Reservation, SecurityGroup, Subnet,
        Template,
    },
};

/// The simulated account at the start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Region of everything.
    pub region: String,
    /// Account that owns everything.
    pub account: String,
    /// Name of the one EKS cluster, and value of the discovery tags.
    pub cluster_name: String,
    /// The API server's address in DescribeCluster.
    pub cluster_endpoint: String,
    /// The API server's CA in DescribeCluster, in PEM.
    pub cluster_ca: String,
    /// Kubernetes version, as `1.36`.
    pub kubernetes_version: String,
    /// Service network of the cluster.
    pub service_cidr: String,
    /// Seed of every random choice.
    pub seed: u64,
    /// Time from launch to `running`.
    pub running_after_ms: u64,
    /// Time from `shutting-down` to `terminated`.
    pub terminated_after_ms: u64,
    /// Time until a new instance, template or tag is visible to the Describe calls.
    pub consistency_ms: u64,
    /// Lifetime of client tokens.
    pub token_ttl_ms: u64,
    /// Free addresses of each subnet.
    pub subnet_addresses: u32,
    /// vCPUs that may run on-demand and on spot; `None` for no quota.
    pub vcpu_quota: Option<u32>,
    /// Quota of launch templates.
    pub template_quota: usize,
    /// False while instances never boot.
    pub boots: bool,
    /// Names of the IAM roles that exist.
    pub roles: Vec<String>,
    /// Names of the instance profiles that exist, each with the first role.
    pub instance_profiles: Vec<String>,
    /// Name of the interruption queue, if any.
    pub queue: Option<String>,
    /// Time until EC2 knows a new instance profile.
    pub profile_settles_ms: u64,
    /// Instance types of the region, as patterns over the catalogue.
    pub types: Vec<String>,
    /// The catalogue; `None` for the built-in one.
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
            instance_profiles: Vec::new(),
            queue: Some("croft".to_owned()),
            profile_settles_ms: 0,
            types: vec!["*".to_owned()],
            catalogue: None,
        }
    }
}

/// The instance profiles at the start.
fn existing_profiles(settings: &Settings) -> BTreeMap<String, Profile> {
    let profile =
        Profile { path: "/".to_owned(), role: settings.roles.first().cloned(), ..Profile::default() };
    settings.instance_profiles.iter().map(|name| (name.clone(), profile.clone())).collect()
}

/// A change of an instance's state, for the simulated kubelets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// It is running.
    Running(String),
    /// It is terminating or terminated.
    Gone(String),
}

/// The simulated cloud.
#[derive(Debug)]
pub struct World {
    /// The account at the start.
    pub settings: Settings,
    /// Milliseconds since 1970.
    pub(crate) now: u64,
    pub(crate) rng: u64,
    pub(crate) subnets: BTreeMap<String, Subnet>,
    pub(crate) groups: BTreeMap<String, SecurityGroup>,
    pub(crate) images: BTreeMap<String, Image>,
    pub(crate) templates: BTreeMap<String, Template>,
    pub(crate) instances: BTreeMap<String, Instance>,
    pub(crate) bill: Bill,
    pub(crate) profiles: BTreeMap<String, Profile>,
    pub(crate) reservations: BTreeMap<String, Reservation>,
    pub(crate) tokens: BTreeMap<String, Token>,
    /// Capacity and prices.
    pub market: Market,
    /// Scripted faults.
    pub faults: Faults,
    pub(crate) queues: BTreeMap<String, Queue>,
    pub(crate) integration: Integration,
    pub(crate) policies: BTreeMap<String, Policy>,
    pub(crate) expired_keys: BTreeSet<String>,
    pub(crate) forbidden_types: BTreeSet<String>,
    pub(crate) launch_failures: Vec<LaunchFailure>,
    pub(crate) happenings: Vec<Happening>,
    pub(crate) calls: BTreeMap<String, u64>,
    pub(crate) demands: BTreeSet<(String, String)>,
    pub(crate) denied: BTreeSet<String>,
    counter: u64,
    pub(crate) revision: u64,
}

/// A used client token.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) request: String,
    pub(crate) answer: String,
    pub(crate) at: u64,
}

impl World {
    /// A new account at `now` (milliseconds since 1970).
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
            bill: Bill::default(),
            profiles: existing_profiles(&settings),
            reservations: BTreeMap::new(),
            tokens: BTreeMap::new(),
            market: Market::new(settings.seed, &settings.types, settings.catalogue.as_deref()),
            faults: Faults::default(),
            queues: settings.queue.iter().map(|name| (name.clone(), Queue::default())).collect(),
            integration: Integration::complete(&settings.account, &settings.roles),
            policies: BTreeMap::new(),
            expired_keys: BTreeSet::new(),
            forbidden_types: BTreeSet::new(),
            launch_failures: Vec::new(),
            happenings: Vec::new(),
            calls: BTreeMap::new(),
            demands: BTreeSet::new(),
            denied: BTreeSet::new(),
            counter: 0,
            revision: 0,
            settings,
        };
        world.make_network();
        world.make_images();
        world
    }

    /// Advances time: instances start and terminate.
    pub fn advance(&mut self, now: u64) {
        if now > self.now {
            self.now = now;
        }
        self.advance_instances();
        let ttl = self.settings.token_ttl_ms;
        self.tokens.retain(|_, token| token.at + ttl > now);
    }

    /// Removes and returns the changes since the last call.
    pub fn take_happenings(&mut self) -> Vec<Happening> {
        std::mem::take(&mut self.happenings)
    }

    /// True if there are changes.
    #[must_use]
    pub fn has_happenings(&self) -> bool {
        !self.happenings.is_empty()
    }

    /// A number that grows when an instance is launched, ends or gets tags.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Number of calls of each action, such as `ec2:CreateFleet`.
    #[must_use]
    pub fn calls(&self) -> &BTreeMap<String, u64> {
        &self.calls
    }

    /// IAM actions needed so far, each with the call that needed it.
    #[must_use]
    pub fn demands(&self) -> &BTreeSet<(String, String)> {
        &self.demands
    }

    /// IAM actions that a policy has denied so far.
    #[must_use]
    pub fn denied(&self) -> &BTreeSet<String> {
        &self.denied
    }

    /// Restricts `key` to what `policy` grants. The key `*` stands for every key.
    pub fn restrict(&mut self, key: &str, policy: Policy) {
        self.policies.insert(key.to_owned(), policy);
    }

    /// Expires `key`.
    pub fn expire_key(&mut self, key: &str) {
        self.expired_keys.insert(key.to_owned());
    }

    /// Forbids launches of instance types that match `pattern`.
    pub fn forbid_type(&mut self, pattern: &str) {
        self.forbidden_types.insert(pattern.to_owned());
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

    /// [`World::require`] for an action without resources.
    pub(crate) fn require_plain(&mut self, call: &Call) -> Result<(), Refusal> {
        self.require(call, &Demand::new(format!("{}:{}", call.service.prefix(), call.action), "*"))?;
        end_dry_run(call)
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

/// Ends a permitted call that has `DryRun`, before it takes effect. Source: "DryRun", the EC2 API Reference.
pub(crate) fn end_dry_run(call: &Call) -> Result<(), Refusal> {
    if call.params.get("DryRun") != Some("true") {
        return Ok(());
    }
    let message = "Request would have succeeded, but DryRun flag is set.";
    Err(Refusal { status: 412, ..Refusal::new("DryRunOperation", message) })
}
