//! The provider: what it keeps between calls, and the trait on top.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use croft_api::EC2NodeClass;
use croft_cloud::{
    Account, ClassFindings, CloudError, CloudMachine, CloudProvider, Fault, FaultClass, InUse, Interruption,
    LaunchError, LaunchRequest, Launched, MachineState, ObservedNode, OfferingKey, Prepared, Shortage,
    Terminated, facts::Setup, shortage::SetAside, tags,
};
use croft_runtime::clock::{Clock, SystemClock};
use croft_scheduler::InstanceType;
use futures::future::join_all;
use tokio::time::Instant;

use crate::{
    batch::Batch,
    cache::Cache,
    connect::{self, Access, Clients},
    discovery::{ClusterFacts, Group, Image, Reservation, Subnet},
    interruption, launch,
    machines::{self, Each, Seen},
    observed::Observed,
    offers::Offers,
    pace::Paces,
    prices::{OnDemand, Spot},
    profile, refusal, template,
    types::Types,
};

/// How the provider is set up.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How AWS is reached.
    pub access: Access,
    /// UID of the cluster's kube-system namespace: the owner's mark on everything that is made.
    pub cluster_uid: String,
    /// Name of the cluster.
    pub cluster_name: String,
    /// The API server's address for nodes. With `cluster_ca`, EKS isn't asked.
    pub cluster_endpoint: Option<String>,
    /// The API server's CA for nodes, in PEM.
    pub cluster_ca: Option<String>,
    /// Network of Services; needed by AL2023 nodes of a self-managed cluster.
    pub service_cidr: Option<String>,
    /// Kubernetes version, such as `1.36`, where EKS isn't asked.
    pub kubernetes_version: Option<String>,
    /// Name of the SQS queue with interruption news.
    pub interruption_queue: Option<String>,
    /// True if the network plugin hands out prefixes instead of single addresses.
    pub prefix_delegation: bool,
}

/// Who is calling AWS, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The account.
    pub account: String,
    /// The partition, such as `aws` or `aws-cn`.
    pub partition: String,
    /// The region.
    pub region: String,
    /// The user or role.
    pub arn: String,
}

/// Launch templates that nothing launched from for this long go.
const TEMPLATE_IDLE: Duration = Duration::from_secs(30 * 60);
/// IAM tells EC2 of a new instance profile within about this.
pub(crate) const PROFILE_SETTLES: Duration = Duration::from_secs(60);
const NO_QUEUE_PAUSE: Duration = Duration::from_secs(20);

/// Croft's CloudProvider for Amazon EC2.
#[derive(Debug)]
pub struct AwsProvider {
    pub(crate) options: Options,
    pub(crate) clients: Clients,
    pub(crate) paces: Paces,
    pub(crate) batches: Batches,
    stopwatch: Stopwatch,
    pub(crate) subnets: Cache<String, Vec<Subnet>>,
    pub(crate) groups: Cache<String, Vec<Group>>,
    pub(crate) images: Cache<String, Vec<Image>>,
    pub(crate) reservations: Cache<String, Vec<Reservation>>,
    pub(crate) cluster: Cache<(), ClusterFacts>,
    pub(crate) profiles: Cache<String, String>,
    pub(crate) types: Cache<(), Types>,
    pub(crate) on_demand: Cache<(), OnDemand>,
    pub(crate) spot: Cache<(), Spot>,
    queue: Cache<(), String>,
    pub(crate) memory: Mutex<Memory>,
}

/// Calls that are made for many claims at once.
#[derive(Debug)]
pub(crate) struct Batches {
    of_claims: Batch<String, Result<Arc<Vec<Seen>>, Fault>>,
    pub(crate) by_id: Batch<String, Result<Arc<Vec<Seen>>, Fault>>,
    terminate: Batch<String, Arc<Each<MachineState>>>,
    tag: Batch<machines::Tagged, Arc<Each<()>>>,
}

impl Default for Batches {
    fn default() -> Self {
        Self {
            of_claims: Batch::new(machines::FILTER_VALUES),
            by_id: Batch::new(machines::FILTER_VALUES),
            // EC2 takes a thousand, and asks to be given few.
            terminate: Batch::new(100),
            tag: Batch::new(100),
        }
    }
}

/// The clock that what is set aside runs on.
struct Stopwatch {
    clock: Arc<dyn Clock>,
    started: std::time::Instant,
}

impl std::fmt::Debug for Stopwatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stopwatch").field("started", &self.started).finish_non_exhaustive()
    }
}

/// What was learnt from what happened.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Offerings that had no machine.
    pub(crate) offerings: SetAside<OfferingKey>,
    /// Subnets that had no address.
    pub(crate) subnets: SetAside<String>,
    /// What registered nodes reported.
    pub(crate) observed: Observed,
    /// Launch templates that are there, and when each was last used.
    pub(crate) templates: BTreeMap<String, Instant>,
    /// Instance profiles that were just made.
    pub(crate) new_profiles: BTreeMap<String, Instant>,
    /// The setup of each class, for machines whose class is only a tag.
    pub(crate) setups: BTreeMap<String, Setup>,
    /// The types of each class, as built last.
    pub(crate) offers: BTreeMap<String, Offers>,
    /// The refusal of the last launch of each class, if it was one that somebody has to do something about.
    pub(crate) refusals: BTreeMap<String, Fault>,
}

impl AwsProvider {
    /// Reads configuration and credentials, and starts to keep types and prices fresh until it is dropped.
    /// Makes no call that could fail: what can't be reached shows in the conditions of the classes.
    pub async fn connect(options: Options) -> Arc<Self> {
        Self::connect_on(options, Arc::new(SystemClock)).await
    }

    /// [`AwsProvider::connect`], with the pauses of what is set aside on another clock.
    pub async fn connect_on(options: Options, clock: Arc<dyn Clock>) -> Arc<Self> {
        let clients = connect::connect(&options.access).await;
        let minutes = |n: u64| Duration::from_secs(n * 60);
        let provider = Arc::new(Self {
            clients,
            paces: Paces::default(),
            batches: Batches::default(),
            stopwatch: Stopwatch { started: clock.monotonic(), clock },
            subnets: Cache::new(minutes(1)),
            groups: Cache::new(minutes(5)),
            images: Cache::new(minutes(5)),
            reservations: Cache::new(minutes(1)),
            cluster: Cache::new(minutes(15)),
            profiles: Cache::new(minutes(60)),
            types: Cache::new(minutes(12 * 60)),
            on_demand: Cache::new(minutes(12 * 60)),
            spot: Cache::new(minutes(5)),
            queue: Cache::new(minutes(60)),
            memory: Mutex::new(Memory::default()),
            options,
        });
        let weak = Arc::downgrade(&provider);
        tokio::spawn(async move {
            while let Some(provider) = weak.upgrade() {
                provider.refresh().await;
                drop(provider);
                tokio::time::sleep(REFRESH).await;
            }
        });
        provider
    }

    /// Asks for what is about to be old, so that a launch never waits for a thousand prices.
    async fn refresh(&self) {
        let _ = self.types.refresh(&(), REFRESH, crate::types::types(&self.clients, &self.paces)).await;
        let _ =
            self.on_demand.refresh(&(), REFRESH, crate::prices::on_demand(&self.clients, &self.paces)).await;
        let now = SystemClock.wall().as_second();
        let _ = self.spot.refresh(&(), REFRESH, crate::prices::spot(&self.clients, &self.paces, now)).await;
    }

    /// Time since the start, for what is set aside.
    pub(crate) fn now(&self) -> Duration {
        self.stopwatch.clock.monotonic().saturating_duration_since(self.stopwatch.started)
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose credentials these are, for messages.
    ///
    /// # Errors
    /// AWS can't be reached, or refuses.
    pub async fn identity(&self) -> Result<Identity, CloudError> {
        self.paces.read.turn().await;
        let answer = self.clients.sts.get_caller_identity().send().await;
        let answer = self
            .paces
            .read
            .judge("GetCallerIdentity", answer)
            .map_err(|fault| refusal::refused("learn who is calling", fault))?;
        let arn = answer.arn().unwrap_or_default().to_owned();
        Ok(Identity {
            account: answer.account().unwrap_or_default().to_owned(),
            partition: arn.split(':').nth(1).unwrap_or_default().to_owned(),
            region: self.clients.region.clone(),
            arn,
        })
    }

    async fn queue_url(&self) -> Result<Option<String>, Fault> {
        let Some(name) = &self.options.interruption_queue else { return Ok(None) };
        let (url, _) = self.queue.get(&(), interruption::queue_url(&self.clients, &self.paces, name)).await?;
        Ok(Some(url.as_ref().clone()))
    }
}

/// How often what is old is looked for.
const REFRESH: Duration = Duration::from_secs(60);

#[async_trait]
impl CloudProvider for AwsProvider {
    async fn resolve(&self, class: &EC2NodeClass) -> ClassFindings {
        self.look_up(class).await.findings
    }

    async fn instance_types(&self, class: &EC2NodeClass) -> Result<Arc<[InstanceType]>, CloudError> {
        self.offers(class).await
    }

    async fn prepare(&self, request: &LaunchRequest) -> Result<Prepared, LaunchError> {
        self.prepare_launch(request).await
    }

    async fn launch(&self, prepared: &Prepared) -> Result<Launched, LaunchError> {
        self.send_launch(prepared).await
    }

    async fn find_by_claim(&self, claim_uid: &str) -> Result<Option<Launched>, CloudError> {
        let ask = async |uids: Vec<String>| {
            machines::of_claims(&self.clients, &self.paces, &self.options.cluster_uid, &uids)
                .await
                .map(Arc::new)
        };
        let seen = self
            .batches
            .of_claims
            .join(claim_uid.to_owned(), ask)
            .await
            .map_err(|fault| refusal::refused(format!("find the machine of claim {claim_uid}"), fault))?;
        // A claim has one machine; should it ever have two, the older is the one that may have registered.
        let machine = seen
            .iter()
            .filter(|s| s.machine.claim_uid.as_deref() == Some(claim_uid))
            .min_by_key(|s| (!s.machine.state.is_alive(), s.machine.launched_at));
        match machine {
            Some(seen) => Ok(Some(self.describe_launched(seen.clone()).await)),
            None => Ok(None),
        }
    }

    async fn list(&self) -> Result<Vec<CloudMachine>, CloudError> {
        let seen = machines::of_cluster(&self.clients, &self.paces, &self.options.cluster_uid)
            .await
            .map_err(|fault| {
                refusal::refused(format!("list the machines of {}", self.options.cluster_name), fault)
            })?;
        Ok(seen.into_iter().map(|s| s.machine).collect())
    }

    async fn describe(&self, ids: &[String]) -> Result<Vec<CloudMachine>, CloudError> {
        let ask =
            async |ids: Vec<String>| machines::by_id(&self.clients, &self.paces, &ids).await.map(Arc::new);
        let mut found = Vec::new();
        let one = async |id: &String| self.batches.by_id.join(id.clone(), ask).await;
        for (id, answer) in ids.iter().zip(join_all(ids.iter().map(one)).await) {
            let seen = answer.map_err(|fault| refusal::refused(format!("describe {id}"), fault))?;
            found.extend(seen.iter().find(|s| s.machine.id == *id).map(|s| s.machine.clone()));
        }
        Ok(found)
    }

    async fn account(&self) -> Result<Account, CloudError> {
        let Identity { account, region, .. } = self.identity().await?;
        Ok(Account { id: account, region })
    }

    async fn terminate(&self, ids: &[String]) -> Result<Vec<Terminated>, CloudError> {
        let call =
            async |ids: Vec<String>| Arc::new(machines::terminate(&self.clients, &self.paces, ids).await);
        let one = async |id: &String| {
            let each = self.batches.terminate.join(id.clone(), call).await;
            match each.get(id) {
                Some(Ok(state)) => Ok(Terminated { id: id.clone(), state: *state }),
                Some(Err(fault)) => Err(refusal::refused(format!("terminate {id}"), fault.clone())),
                // An id that the answer leaves out is on its way: the next question shows how far.
                None => Ok(Terminated { id: id.clone(), state: MachineState::ShuttingDown }),
            }
        };
        let (mut done, mut failed) = (Vec::new(), None);
        for outcome in join_all(ids.iter().map(one)).await {
            match outcome {
                Ok(terminated) => done.push(terminated),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            // Those that went are told of when they are asked for again.
            Some(error) if done.is_empty() => Err(error),
            Some(error) => {
                tracing::warn!(%error, "some machines could not be terminated, and are tried again");
                Ok(done)
            }
            None => Ok(done),
        }
    }

    async fn tag(&self, id: &str, more: &BTreeMap<String, String>) -> Result<(), CloudError> {
        let mut all = more.clone();
        all.insert(tags::CLUSTER.to_owned(), self.options.cluster_uid.clone());
        let call = async |wanted: Vec<machines::Tagged>| {
            Arc::new(machines::tag(&self.clients, &self.paces, wanted).await)
        };
        let each = self.batches.tag.join((id.to_owned(), all), call).await;
        match each.get(id) {
            Some(Err(fault)) => Err(refusal::refused(format!("tag {id}"), fault.clone())),
            _ => Ok(()),
        }
    }

    async fn interruptions(&self) -> Result<Vec<Interruption>, CloudError> {
        let failed = |fault| refusal::refused("read the interruption queue", fault);
        let Some(url) = self.queue_url().await.map_err(failed)? else {
            tokio::time::sleep(NO_QUEUE_PAUSE).await;
            return Ok(Vec::new());
        };
        interruption::receive(&self.clients, &self.paces, &url).await.map_err(|fault| {
            if fault.class == FaultClass::NotFound {
                self.queue.clear();
            }
            failed(fault)
        })
    }

    async fn acknowledge(&self, news: &[Interruption]) -> Result<(), CloudError> {
        let failed = |fault| refusal::refused("take messages off the interruption queue", fault);
        let Some(url) = self.queue_url().await.map_err(failed)? else { return Ok(()) };
        interruption::acknowledge(&self.clients, &self.paces, &url, news).await.map_err(failed)
    }

    fn observe_capacity(&self, node: &ObservedNode) -> bool {
        let mut memory = self.memory();
        // A class that was never looked up has planned nothing that this could correct.
        let Some(setup) = memory.setups.get(&node.class).copied() else { return false };
        memory.observed.note(node, setup)
    }

    fn shortages(&self) -> Vec<Shortage> {
        let now = self.now();
        let memory = self.memory();
        let of = |aside: croft_cloud::shortage::Aside<'_, OfferingKey>| Shortage {
            offering: aside.key.clone(),
            fault: aside.why.clone(),
            strikes: aside.strikes,
            next_try: aside.next_try,
        };
        memory.offerings.current(now).map(of).collect()
    }

    async fn sweep(&self, used: &InUse) -> Result<usize, CloudError> {
        let failed = |fault| refusal::refused("sweep", fault);
        let cluster = &self.options.cluster_uid;
        let mut keep: BTreeSet<String> = used.unanswered.iter().flat_map(launch::templates).collect();
        {
            let memory = self.memory();
            let recent = memory.templates.iter().filter(|(_, used)| used.elapsed() < TEMPLATE_IDLE);
            keep.extend(recent.map(|(name, _)| name.clone()));
        }
        let idle = i64::try_from(TEMPLATE_IDLE.as_secs()).unwrap_or(i64::MAX);
        let older_than = self.stopwatch.clock.wall().as_second() - idle;
        let gone =
            template::sweep(&self.clients, &self.paces, cluster, older_than, &keep).await.map_err(failed)?;
        {
            let mut memory = self.memory();
            for name in &gone {
                memory.templates.remove(name);
            }
            let now = self.now();
            memory.offerings.prune(now);
            memory.subnets.prune(now);
            memory.new_profiles.retain(|_, made| made.elapsed() < PROFILE_SETTLES);
        }
        // A machine loses its credentials with its profile, so the machines are looked at, not the classes alone.
        let mut seen = machines::of_cluster(&self.clients, &self.paces, cluster).await.map_err(failed)?;
        let listed: BTreeSet<&str> = seen.iter().map(|seen| seen.machine.id.as_str()).collect();
        let lost: Vec<String> =
            used.instances.iter().filter(|id| !listed.contains(id.as_str())).cloned().collect();
        seen.extend(machines::by_id(&self.clients, &self.paces, &lost).await.map_err(failed)?);
        let mut held: BTreeSet<String> = seen.into_iter().filter_map(|seen| seen.profile).collect();
        held.extend(
            used.classes
                .iter()
                .filter_map(|c| c.spec.role.as_deref())
                .map(|role| profile::name(cluster, role)),
        );
        let profiles = profile::sweep(&self.clients, &self.paces, cluster, |name| held.contains(name))
            .await
            .map_err(failed)?;
        if profiles > 0 {
            self.profiles.clear();
        }
        Ok(gone.len() + profiles)
    }
}
