//! One controller process: the real engine, executor and loop, connected to an [`Environment`].

use std::{
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use croft_cloud::CloudProvider;
use croft_controller::{
    config::settings::Settings,
    drive::Driver,
    executor::Executor,
    kube_api::{Change, Kind, KubeApi, leader_gate::LeaderGate},
    metrics::Metrics,
    record_store::ClusterStore,
};
use croft_runtime::{clock::Clock, lease::LeaseConfig, shutdown::Shutdown};
use prometheus_client::registry::Registry;
use tokio::{sync::mpsc, task::JoinHandle, time::sleep};

use super::{
    api::SimApi,
    cloud::SimCloud,
    connection::Connection,
    environment::{Environment, Links, SimClock},
    lease,
    watch::{is_modelled, is_of_volumes, watch},
    wire::Wire,
};

/// The namespace of the ConfigMaps that hold the record.
pub const NAMESPACE: &str = "croft-system";
const LEASE_DURATION: Duration = Duration::from_secs(10);
const RENEW_DEADLINE: Duration = Duration::from_secs(7);
const RETRY_PERIOD: Duration = Duration::from_millis(1_500);

/// A running controller process; it dies when dropped.
pub struct Process {
    /// Its connections.
    pub links: Arc<Links>,
    /// How far its wall clock is ahead, in milliseconds.
    pub skew_ms: Arc<AtomicI64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.links.dead.store(true, Ordering::Relaxed);
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Process {
    /// Starts a process with a number of its own, whose wall clock is off by `skew_ms`.
    #[must_use]
    pub fn start(environment: &Arc<Environment>, number: usize, settings: Settings, skew_ms: i64) -> Self {
        let links: Arc<Links> = Arc::default();
        let skew_ms = Arc::new(AtomicI64::new(skew_ms));
        let clock: Arc<dyn Clock> =
            Arc::new(SimClock { skew_ms: Arc::clone(&skew_ms), ..environment.clock.clone() });
        let mut random = environment.random.lock().unwrap().fork();
        let connection = Connection::new(Arc::clone(environment), Arc::clone(&links), random.fork());
        let make_provider = environment.make_provider.lock().unwrap().clone();
        let cloud: Arc<dyn CloudProvider> = match make_provider {
            Some(make) => make(Wire::new(connection), Arc::clone(&clock)),
            None => Arc::new(SimCloud::new(connection)),
        };
        let api = SimApi { environment: Arc::clone(environment), leads: None, links: Arc::clone(&links) };
        let office = if environment.elects.load(Ordering::Relaxed) {
            elect_really(environment, number, api, cloud, &clock)
        } else {
            elect_by_model(environment, number, api, cloud)
        };
        let Office { api, cloud, is_leader, election } = office;
        let start = environment.clock.start;
        let mut executor = Executor::new(Arc::clone(&api), cloud, clock, start.into_std(), "sim");
        if environment.records.load(Ordering::Relaxed) {
            executor = executor.recording_in(Arc::new(ClusterStore::new(api, NAMESPACE)));
        }
        let (sender, changes) = mpsc::channel(4_096);
        let mut tasks = vec![election];
        for kind in Kind::awaited_by_capacity() {
            let has_volumes = environment.has_volumes.load(Ordering::Relaxed);
            if !is_modelled(kind.name()) || (is_of_volumes(kind.name()) && !has_volumes) {
                sender.try_send(Change::Synced(kind)).unwrap();
                continue;
            }
            let watch =
                watch(Arc::clone(environment), Arc::clone(&links), kind, sender.clone(), random.fork());
            tasks.push(tokio::spawn(stoppable(Arc::clone(&links), watch)));
        }
        let mut driver = Driver::new(settings, executor, Metrics::new(&mut Registry::default()), is_leader);
        tasks.push(tokio::spawn(stoppable(Arc::clone(&links), async move {
            driver.drive(changes, std::future::pending(), |_| ()).await;
        })));
        Self { links, skew_ms, tasks }
    }
}

/// Runs a task that does nothing while the process is paused: a stopped process neither watches nor decides.
async fn stoppable<F: Future>(links: Arc<Links>, task: F) -> F::Output {
    let mut task = pin!(task);
    let mut nap = None;
    std::future::poll_fn(move |context| {
        while links.paused.load(Ordering::Relaxed) {
            let sleep = nap.get_or_insert_with(|| Box::pin(sleep(Duration::from_millis(100))));
            match sleep.as_mut().poll(context) {
                Poll::Ready(()) => nap = None,
                Poll::Pending => return Poll::Pending,
            }
        }
        task.as_mut().poll(context)
    })
    .await
}

/// The connections of a process, as far as it leads.
struct Office {
    api: Arc<dyn KubeApi>,
    cloud: Arc<dyn CloudProvider>,
    is_leader: Box<dyn Fn() -> bool + Send>,
    election: JoinHandle<()>,
}

/// The election of croft-runtime on the Lease, and the gate that refuses effects once the process no longer leads.
fn elect_really(
    environment: &Arc<Environment>,
    number: usize,
    api: SimApi,
    cloud: Arc<dyn CloudProvider>,
    clock: &Arc<dyn Clock>,
) -> Office {
    let client = lease::client(environment, &api.links);
    let config = LeaseConfig::new(lease::NAMESPACE, lease::NAME, format!("controller-{number}"));
    let (leader, election) = croft_runtime::lease::elect(client, config, Arc::clone(clock), Shutdown::new());
    let gated = (leader.clone(), Arc::clone(clock));
    Office {
        api: Arc::new(LeaderGate::new(Arc::new(api), leader.clone(), Arc::clone(clock))),
        cloud: Arc::new(LeaderGate::new(cloud, leader, Arc::clone(clock))),
        is_leader: Box::new(move || gated.0.is_valid(gated.1.monotonic())),
        election,
    }
}

/// A model of the election: less to do for each run.
fn elect_by_model(
    environment: &Arc<Environment>,
    number: usize,
    api: SimApi,
    cloud: Arc<dyn CloudProvider>,
) -> Office {
    let leads: Arc<Mutex<Option<Duration>>> = Arc::default();
    let links = Arc::clone(&api.links);
    let election = elect(Arc::clone(environment), number, Arc::clone(&leads), Arc::clone(&links));
    let start = environment.clock.start;
    Office {
        api: Arc::new(SimApi { leads: Some(Arc::clone(&leads)), ..api }),
        cloud,
        is_leader: Box::new(move || leads.lock().unwrap().is_some_and(|deadline| start.elapsed() < deadline)),
        election: tokio::spawn(stoppable(links, election)),
    }
}

/// Takes the Lease when it is free and renews it; `leads` is the deadline up to which this process may act.
async fn elect(
    environment: Arc<Environment>,
    number: usize,
    leads: Arc<Mutex<Option<Duration>>>,
    links: Arc<Links>,
) {
    loop {
        if !environment.is_api_cut(&links) {
            let now = environment.clock.start.elapsed();
            let mut lease = environment.lease.lock().unwrap();
            let is_free = lease.is_none_or(|(holder, at)| holder == number || now >= at + LEASE_DURATION);
            if is_free {
                *lease = Some((number, now));
                *leads.lock().unwrap() = Some(now + RENEW_DEADLINE);
            } else {
                *leads.lock().unwrap() = None;
            }
        }
        sleep(RETRY_PERIOD).await;
    }
}
