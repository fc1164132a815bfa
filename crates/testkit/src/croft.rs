//! Croft on a control plane: manifests installed, processes running, each with its own identity.
//!
//! ```text
//!   manifests/install ──kubectl apply──▶ API server ◀── ServiceAccount token ── croft-webhook
//!                                            ▲   └──── reviews, over TLS ─────────▶
//!                                            ├─ ServiceAccount token ── croft-controller ──┐
//!                                            ├─ system:node:<name> ──── ec2-sim ◀── SDK ───┘
//!   manifests/overlays/page ──────────────▶  └─ ServiceAccount token ── croft-page
//! ```

use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use crate::{
    control_plane::ControlPlane,
    error::Error,
    http, ports,
    process::{Process, Recipe, Status},
};

/// The namespace of Croft's own objects, unless [`CroftOptions::by_helm`] names another.
pub const NAMESPACE: &str = "croft-system";
/// The name of the Helm release.
pub const RELEASE: &str = "any-name";
/// The simulated cluster's name, and the value of its discovery tags.
pub const CLUSTER: &str = "croft";
/// The simulated region.
const REGION: &str = "us-east-1";
/// The first list of everything is slow on a busy computer.
const READY_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
const START_ATTEMPTS: u32 = 5;

/// A process of Croft, or its cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// ec2-sim.
    Cloud,
    /// croft-webhook.
    Webhook,
    /// croft-controller.
    Controller,
    /// croft-page, if [`CroftOptions::page`] adds it.
    Page,
}

impl Part {
    /// The parts that every installation has, in start order.
    pub const ALL: [Self; 3] = [Self::Cloud, Self::Webhook, Self::Controller];

    /// The name of its binary, its log and its process.
    #[must_use]
    pub fn binary(self) -> &'static str {
        match self {
            Self::Cloud => "ec2-sim",
            Self::Webhook => "croft-webhook",
            Self::Controller => "croft-controller",
            Self::Page => "croft-page",
        }
    }
}

/// Paths of Croft's files, and extra arguments of its processes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CroftOptions {
    /// The folder of the binaries.
    pub binaries: PathBuf,
    /// The folder manifests/ of the project.
    pub manifests: PathBuf,
    flags: Vec<(Part, String)>,
    charts: Option<Charts>,
    page: bool,
}

/// An installation by Helm.
#[derive(Clone, Debug)]
struct Charts {
    /// The folder with the charts croft and croft-crds.
    folder: PathBuf,
    namespace: String,
    /// Further arguments of `helm install`.
    arguments: Vec<String>,
}

impl CroftOptions {
    /// Binaries beside this one, and manifests of the checkout that it was built in or runs in.
    pub fn find() -> Result<Self, Error> {
        let this = env::current_exe().map_err(Error::io("find out where this program is"))?;
        let beside = this.parent().unwrap_or(Path::new("."));
        // Cargo puts tests and examples one folder deeper.
        let binaries = match beside.file_name().and_then(OsStr::to_str) {
            Some("deps" | "examples") => beside.parent().unwrap_or(beside),
            _ => beside,
        };
        let here = env::current_dir().map_err(Error::io("find out where this is started"))?;
        let manifests = here
            .ancestors()
            .chain(this.ancestors())
            .map(|folder| folder.join("manifests"))
            .find(|folder| folder.join("install/kustomization.yaml").is_file())
            .ok_or_else(|| Error::NoManifests { folder: here.clone() })?;
        Ok(Self { binaries: binaries.to_owned(), manifests, flags: Vec::new(), charts: None, page: false })
    }

    /// Installs the charts in `folder` by Helm into `namespace`, with further `arguments`, instead of manifests/install into
    /// [`NAMESPACE`].
    #[must_use]
    pub fn by_helm(mut self, folder: &Path, namespace: &str, arguments: &[&str]) -> Self {
        self.charts = Some(Charts {
            folder: folder.to_owned(),
            namespace: namespace.to_owned(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        });
        self
    }

    /// Adds the page, with its rights. An installation by Helm needs the value `page.enabled` for them.
    #[must_use]
    pub fn page(mut self) -> Self {
        self.page = true;
        self
    }

    /// The parts that are installed, in start order.
    pub fn parts(&self) -> impl Iterator<Item = Part> + use<> {
        Part::ALL.into_iter().chain(self.page.then_some(Part::Page))
    }

    /// The namespace of Croft's own objects.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.charts.as_ref().map_or(NAMESPACE, |charts| &charts.namespace)
    }

    /// Adds a flag to a process, as `--name=value`.
    #[must_use]
    pub fn flag(mut self, part: Part, flag: impl Into<String>) -> Self {
        self.flags.push((part, flag.into()));
        self
    }

    fn binary(&self, part: Part) -> Result<PathBuf, Error> {
        let path = self.binaries.join(part.binary());
        if path.is_file() {
            Ok(path)
        } else {
            Err(Error::NotBuilt { name: part.binary(), folder: self.binaries.clone() })
        }
    }
}

/// Ports of the processes, which keep them when they restart.
#[derive(Clone, Copy, Debug)]
struct Ports {
    main: u16,
    health: u16,
    /// The page's port without TLS.
    forward: u16,
}

impl Ports {
    fn draw() -> Result<Self, Error> {
        Ok(Self { main: ports::free()?, health: ports::free()?, forward: ports::free()? })
    }
}

/// Other addresses of the API server and EC2, such as proxies that a test can cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detour {
    /// Address in front of the API server.
    pub api_server: Option<SocketAddr>,
    /// Address in front of EC2.
    pub cloud: Option<SocketAddr>,
}

/// Croft on a control plane. Dropping it ends its processes.
#[derive(Debug)]
pub struct Croft {
    processes: BTreeMap<Part, Process>,
    ports: BTreeMap<Part, Ports>,
    detours: BTreeMap<Part, Detour>,
    options: CroftOptions,
}

impl Croft {
    /// Installs the manifests and starts everything.
    pub async fn start(plane: &ControlPlane, options: CroftOptions) -> Result<Self, Error> {
        let mut croft = Self::install(plane, options).await?;
        for part in croft.options.parts() {
            croft.resume(plane, part).await?;
        }
        Ok(croft)
    }

    /// Installs the manifests; nothing runs yet.
    pub async fn install(plane: &ControlPlane, options: CroftOptions) -> Result<Self, Error> {
        const ESTABLISHED: [&str; 5] =
            ["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"];
        if let Some(Charts { folder, namespace, arguments }) = &options.charts {
            let chart = |name: &str| folder.join(name).display().to_string();
            let into = ["--create-namespace".to_owned(), format!("--namespace={namespace}")];
            let crds = [RELEASE.to_owned() + "-crds", chart("croft-crds")];
            plane.helm(["install".to_owned()].iter().chain(&crds).chain(&into)).await?;
            plane.kubectl(ESTABLISHED).await?;
            let all = [RELEASE.to_owned(), chart("croft")];
            plane.helm(["install".to_owned()].iter().chain(&all).chain(&into).chain(arguments)).await?;
        } else {
            let apply = async |flag: &str, path: &str| {
                let path = options.manifests.join(path);
                let arguments: [&OsStr; 5] = [
                    "apply".as_ref(),
                    "--server-side".as_ref(),
                    "--force-conflicts".as_ref(),
                    flag.as_ref(),
                    path.as_ref(),
                ];
                plane.kubectl(arguments).await
            };
            apply("-k", "install").await?;
            // As the chart finds out: releases before 1.36 don't serve them.
            let served = plane.kubectl(["get", "--raw", "/apis/admissionregistration.k8s.io/v1"]).await?;
            if served.contains("\"mutatingadmissionpolicies\"") {
                apply("-f", "overlays/policy-mode/mutation.yaml").await?;
            }
            if options.page {
                apply("-f", "overlays/page/rbac.yaml").await?;
            }
            // Objects applied next may be of a kind that the API server has only just learned of.
            plane.kubectl(ESTABLISHED).await?;
        }
        Ok(Self { processes: BTreeMap::new(), ports: BTreeMap::new(), detours: BTreeMap::new(), options })
    }

    /// Starts a process unless it runs, and waits until it is ready.
    pub async fn resume(&mut self, plane: &ControlPlane, part: Part) -> Result<(), Error> {
        if let Some(process) = self.processes.get_mut(&part)
            && process.poll()?.is_none()
        {
            return Ok(());
        }
        for attempt in 1.. {
            self.launch(plane, part).await?;
            match self.ready(part).await {
                Err(error) if error.is_port_clash() && attempt < START_ATTEMPTS => {
                    tracing::info!(%error, "drawing other ports");
                    self.ports.remove(&part);
                }
                result => return result,
            }
        }
        Ok(())
    }

    /// Starts a process without waiting for it.
    pub async fn launch(&mut self, plane: &ControlPlane, part: Part) -> Result<(), Error> {
        let ports = self.ports(part)?;
        let recipe = self.recipe(plane, part, part.binary(), ports).await?;
        let process = plane.spawn(&recipe)?;
        self.processes.insert(part, process);
        Ok(())
    }

    /// Routes requests of `part` through proxies from its next start on.
    pub fn detour(&mut self, part: Part, detour: Detour) {
        self.detours.insert(part, detour);
    }

    /// Starts another replica of the controller, which waits while another leads. The caller owns it; `name` is unique
    /// and names it on the Lease.
    pub async fn replica(&mut self, plane: &ControlPlane, name: &str) -> Result<Process, Error> {
        let ports = Ports::draw()?;
        let recipe = self.recipe(plane, Part::Controller, name, ports).await?;
        plane.spawn(&recipe.arguments([format!("--identity={name}")]))
    }

    async fn recipe(
        &mut self,
        plane: &ControlPlane,
        part: Part,
        called: &str,
        ports: Ports,
    ) -> Result<Recipe, Error> {
        let Ports { main, health, forward } = ports;
        let name = part.binary();
        let namespace = self.options.namespace().to_owned();
        let Detour { api_server, cloud } = self.detours.get(&part).copied().unwrap_or_default();
        let api_server = api_server.map_or_else(|| plane.url(), |proxy| format!("https://{proxy}"));
        let recipe = Recipe::new(called, self.options.binary(part)?, plane.log(called))
            .arguments(self.options.flags.iter().filter(|(of, _)| *of == part).map(|(_, flag)| flag));
        Ok(match part {
            Part::Cloud => {
                let (certificate, key) = plane.authority_files();
                recipe
                    .arguments([format!("--listen=127.0.0.1:{main}"), format!("--apiserver={}", plane.url())])
                    .arguments([flag("node-ca-cert", &certificate), flag("node-ca-key", &key)])
                    .arguments([format!("--cluster-name={CLUSTER}")])
                    // Instances outlive the simulator's process, as EC2's outlive an outage of its API.
                    .arguments([flag("journal", &plane.folder().join("ec2-sim.journal"))])
            }
            Part::Webhook => {
                let kubeconfig = plane.kubeconfig_to(&api_server, &namespace, name).await?;
                recipe.arguments([
                    flag("kubeconfig", &kubeconfig),
                    format!("--listen=127.0.0.1:{main}"),
                    format!("--url=https://127.0.0.1:{main}"),
                    format!("--health-listen=127.0.0.1:{health}"),
                    format!("--namespace={namespace}"),
                    "--replica=lab".to_owned(),
                ])
            }
            Part::Controller => {
                let kubeconfig = plane.kubeconfig_to(&api_server, &namespace, name).await?;
                let cloud = cloud.map_or_else(|| self.address(Part::Cloud), Ok)?;
                recipe
                    .arguments([
                        flag("kubeconfig", &kubeconfig),
                        format!("--health-listen=127.0.0.1:{health}"),
                        format!("--namespace={namespace}"),
                        format!("--cluster-name={CLUSTER}"),
                        format!("--aws-region={REGION}"),
                        format!("--aws-endpoint-url=http://{cloud}"),
                    ])
                    // The simulator doesn't verify signatures, but the SDK sends no request without one.
                    .environment("AWS_ACCESS_KEY_ID", "lab")
                    .environment("AWS_SECRET_ACCESS_KEY", "lab")
                    .environment("AWS_EC2_METADATA_DISABLED", "true")
            }
            Part::Page => {
                let kubeconfig = plane.kubeconfig_to(&api_server, &namespace, name).await?;
                let (certificate, key) = plane.server_files(name, &["localhost"])?;
                recipe.arguments([
                    flag("kubeconfig", &kubeconfig),
                    format!("--listen=127.0.0.1:{main}"),
                    format!("--forward-listen=127.0.0.1:{forward}"),
                    format!("--health-listen=127.0.0.1:{health}"),
                    format!("--namespace={namespace}"),
                    flag("tls-cert", &certificate),
                    flag("tls-key", &key),
                ])
            }
        })
    }

    fn ports(&mut self, part: Part) -> Result<Ports, Error> {
        if let Some(ports) = self.ports.get(&part) {
            return Ok(*ports);
        }
        let drawn = Ports::draw()?;
        self.ports.insert(part, drawn);
        Ok(drawn)
    }

    /// Address of a process's readiness endpoint.
    pub fn health(&mut self, part: Part) -> Result<SocketAddr, Error> {
        let ports = self.ports(part)?;
        let port = match part {
            Part::Cloud => ports.main,
            Part::Webhook | Part::Controller | Part::Page => ports.health,
        };
        Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// Address of a process's service: EC2's API, admission reviews, or the page over TLS.
    pub fn address(&mut self, part: Part) -> Result<SocketAddr, Error> {
        Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports(part)?.main)))
    }

    /// Address of the page without TLS, as `kubectl port-forward` would end there.
    pub fn forward(&mut self) -> Result<SocketAddr, Error> {
        Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports(Part::Page)?.forward)))
    }

    /// Waits until a process is ready.
    pub async fn ready(&mut self, part: Part) -> Result<(), Error> {
        let health = self.health(part)?;
        let path = match part {
            Part::Cloud => "/_control/state",
            Part::Webhook | Part::Controller | Part::Page => "/readyz",
        };
        let waiting = async {
            loop {
                if let Some(process) = self.processes.get_mut(&part) {
                    process.check()?;
                }
                if http::get(health, path).await.is_ok_and(|answer| answer.status == 200) {
                    return Ok(());
                }
                tokio::time::sleep(POLL).await;
            }
        };
        let result = tokio::time::timeout(READY_WITHIN, waiting).await;
        result.unwrap_or_else(|_| {
            let process = self.processes.get(&part);
            Err(Error::NotReady {
                name: part.binary().to_owned(),
                seconds: READY_WITHIN.as_secs(),
                log: process.map(|process| process.log().to_owned()).unwrap_or_default(),
                tail: process.map(Process::tail).unwrap_or_default(),
            })
        })
    }

    /// Ends a process with SIGKILL.
    pub fn kill(&mut self, part: Part) -> Result<(), Error> {
        self.processes.remove(&part).map_or(Ok(()), Process::kill)
    }

    /// Asks a process to end (SIGTERM), and kills it after `grace`. Returns how it ended; `None` if it was killed.
    pub async fn stop(&mut self, part: Part, grace: Duration) -> Result<Option<ExitStatus>, Error> {
        match self.processes.remove(&part) {
            Some(process) => process.stop(grace).await,
            None => Ok(None),
        }
    }

    /// The process, to freeze it or to read its log.
    #[must_use]
    pub fn process(&self, part: Part) -> Option<&Process> {
        self.processes.get(&part)
    }

    /// The folder manifests/ of the project.
    #[must_use]
    pub fn manifests(&self) -> &Path {
        &self.options.manifests
    }

    /// The namespace of Croft's own objects.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.options.namespace()
    }

    /// The parts that are installed, in start order.
    pub fn parts(&self) -> impl Iterator<Item = Part> + use<> {
        self.options.parts()
    }

    /// State of each process.
    pub fn status(&mut self) -> Result<Vec<Status>, Error> {
        self.processes.values_mut().map(Process::status).collect()
    }

    /// An error with the end of its log if a process has ended by itself.
    pub fn check(&mut self) -> Result<(), Error> {
        self.processes.values_mut().try_for_each(Process::check)
    }
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}
