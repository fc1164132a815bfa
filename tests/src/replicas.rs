//! Replicas of the webhook behind a Service, at the level of connections.
//!
//! A connection goes to one of the replicas that were ready at the last check and stays there until one end closes it,
//! as with kube-proxy: a replica that is no longer ready keeps its open connections.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use croft_testkit::{ControlPlane, CroftOptions, Process, Recipe, ports, wait};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// Interval of readiness checks, since endpoints lag behind as well.
const LOOK: Duration = Duration::from_millis(100);
const READY_WITHIN: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
struct Endpoint {
    main: SocketAddr,
    health: SocketAddr,
    ready: bool,
}

type Endpoints = Arc<Mutex<BTreeMap<String, Endpoint>>>;

/// Replicas and their Service. Dropping it ends them.
pub struct Replicas {
    /// The Service's address.
    pub service: SocketAddr,
    endpoints: Endpoints,
    processes: BTreeMap<String, Process>,
    tasks: Vec<JoinHandle<()>>,
    kubeconfig: PathBuf,
    binary: PathBuf,
    flags: Vec<String>,
    made: usize,
}

impl Replicas {
    /// A Service without a replica.
    ///
    /// # Errors
    /// If no port is free, or the control plane issues no token.
    pub async fn new(plane: &ControlPlane, flags: &[&str]) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let service = listener.local_addr()?;
        let endpoints = Endpoints::default();
        let tasks =
            vec![tokio::spawn(forward(listener, endpoints.clone())), tokio::spawn(look(endpoints.clone()))];
        let binary = CroftOptions::find()?.binaries.join("croft-webhook");
        anyhow::ensure!(binary.is_file(), "{} isn't built", binary.display());
        let kubeconfig = plane.kubeconfig_for_service_account("croft-system", "croft-webhook").await?;
        Ok(Self {
            service,
            endpoints,
            processes: BTreeMap::new(),
            tasks,
            kubeconfig,
            binary,
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            made: 0,
        })
    }

    /// Starts another replica and waits until the Service has it. Returns its name.
    ///
    /// # Errors
    /// If it doesn't become ready.
    pub async fn add(&mut self, plane: &ControlPlane) -> anyhow::Result<String> {
        self.made = self.made.saturating_add(1);
        let name = format!("replica-{}", self.made);
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (main, health) = (address(ports::free()?), address(ports::free()?));
        let recipe = Recipe::new(&name, &self.binary, plane.log(&name))
            .arguments([
                format!("--listen={main}"),
                format!("--health-listen={health}"),
                format!("--replica={name}"),
            ])
            .arguments([
                format!("--kubeconfig={}", self.kubeconfig.display()),
                format!("--url=https://{}", self.service),
            ])
            .arguments(["--log-format=text".to_owned()])
            // As in manifests/deploy, whose memory limit is measured with them.
            .environment("MALLOC_ARENA_MAX", "2")
            .environment("MALLOC_MMAP_THRESHOLD_", "65536")
            .environment("MALLOC_TRIM_THRESHOLD_", "65536")
            .arguments(&self.flags);
        self.processes.insert(name.clone(), plane.spawn(&recipe)?);
        self.endpoints().insert(name.clone(), Endpoint { main, health, ready: false });
        let endpoints = self.endpoints.clone();
        let waited = wait::until("replica to be ready", READY_WITHIN, || async {
            let ready = lock(&endpoints).get(&name).is_some_and(|endpoint| endpoint.ready);
            Ok::<_, std::io::Error>(wait::Seen::from_option(ready.then_some(()), "not ready"))
        })
        .await;
        let tail = self.processes.get(&name).map(Process::tail).unwrap_or_default();
        waited.with_context(|| format!("{name} says:\n{tail}"))?;
        Ok(name)
    }

    /// Asks a replica to end, as the kubelet does, and waits for it.
    ///
    /// # Errors
    /// If it doesn't end cleanly within `grace`.
    pub async fn terminate(&mut self, name: &str, grace: Duration) -> anyhow::Result<()> {
        let process = self.processes.remove(name).context("no such replica")?;
        let log = process.log().to_owned();
        let status = process.stop(grace).await?;
        self.endpoints().remove(name);
        let ended = status.is_some_and(|status| status.success());
        anyhow::ensure!(ended, "{name} ended with {status:?}, see {}", log.display());
        Ok(())
    }

    /// Ends a replica with SIGKILL. The Service sends it connections until the next check.
    ///
    /// # Errors
    /// If there is no such replica, or it can't be killed.
    pub fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        self.processes.remove(name).context("no such replica")?.kill()?;
        Ok(())
    }

    /// A replica's own addresses of reviews and probes.
    ///
    /// # Errors
    /// If there is no such replica.
    pub fn addresses(&self, name: &str) -> anyhow::Result<(SocketAddr, SocketAddr)> {
        self.endpoints().get(name).map(|endpoint| (endpoint.main, endpoint.health)).context("no such replica")
    }

    /// A replica's log.
    #[must_use]
    pub fn said(&self, name: &str) -> String {
        self.processes.get(name).and_then(|process| process.output().ok()).unwrap_or_default()
    }

    /// A replica's process id.
    #[must_use]
    pub fn pid(&self, name: &str) -> Option<u32> {
        self.processes.get(name).map(Process::pid)
    }

    fn endpoints(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Endpoint>> {
        lock(&self.endpoints)
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn lock(endpoints: &Endpoints) -> std::sync::MutexGuard<'_, BTreeMap<String, Endpoint>> {
    endpoints.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn forward(listener: TcpListener, endpoints: Endpoints) {
    let turn = AtomicUsize::new(0);
    while let Ok((mut client, _)) = listener.accept().await {
        let ready: Vec<SocketAddr> = lock(&endpoints)
            .values()
            .filter(|endpoint| endpoint.ready)
            .map(|endpoint| endpoint.main)
            .collect();
        let turn = turn.fetch_add(1, Ordering::Relaxed);
        let Some(chosen) = turn.checked_rem(ready.len()).and_then(|at| ready.get(at).copied()) else {
            continue;
        };
        tokio::spawn(async move {
            if let Ok(mut server) = TcpStream::connect(chosen).await {
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let _ = copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}

async fn look(endpoints: Endpoints) {
    loop {
        let known: Vec<(String, SocketAddr)> =
            lock(&endpoints).iter().map(|(name, endpoint)| (name.clone(), endpoint.health)).collect();
        for (name, health) in known {
            let answer = croft_testkit::http::get(health, "/readyz").await;
            if let Some(endpoint) = lock(&endpoints).get_mut(&name) {
                endpoint.ready = answer.is_ok_and(|answer| answer.status == 200);
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}
