//! A control plane: start, clients, faults, stop.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api, Client, Config, Resource,
    api::{Patch, PatchParams, PostParams},
    config::KubeConfigOptions,
};
use serde_json::Value;
use tokio::io::AsyncWriteExt;

use crate::{
    assets::Assets,
    error::Error,
    files::copy_folder,
    helm::Helm,
    kubelets,
    layout::{Layout, Ports},
    options::{Component, Options},
    pki::{Authority, Identity, Proof, kubeconfig, write_secret},
    process::{Process, Recipe, Status},
    reaper::Reaper,
    stored::{self, StoredObject},
    wait::{Seen, until},
};

/// Time within which a component must be ready. On an idle computer all of them need two seconds; on a busy one much
/// longer.
const READY_WITHIN: Duration = Duration::from_secs(90);
/// Time for a component to end.
const STOP_WITHIN: Duration = Duration::from_secs(20);
/// Between two checks of a starting component.
const POLL: Duration = Duration::from_millis(15);
/// Number of times that new ports are drawn if another process took one.
const START_ATTEMPTS: u32 = 5;
/// Time within which the API server reads a new policy's parameters; until then it refuses requests that the policy
/// concerns.
const POLICIES_READ_WITHIN: Duration = Duration::from_secs(60);
const NOT_READ: &str = "not yet synced to use for admission";
/// Lifetime of a ServiceAccount's token: longer than any lab.
const TOKEN_SECONDS: i64 = 7 * 24 * 3600;
/// Field manager of what the lab applies for itself.
const FIELD_MANAGER: &str = "croft-lab";

/// A copy of etcd's data; removed when dropped.
#[derive(Debug)]
pub struct Backup {
    folder: tempfile::TempDir,
}

/// A running control plane on loopback. Dropping it ends all its processes, and so does the end of this process, also
/// by SIGKILL.
#[derive(Debug)]
pub struct ControlPlane {
    // The order matters: processes end before the reaper kills the rest and removes the folder.
    processes: BTreeMap<Component, Process>,
    layout: Layout,
    options: Options,
    reaper: Reaper,
}

impl ControlPlane {
    /// Starts a control plane and waits until it accepts requests, creates ServiceAccounts and schedules.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let assets = Assets::from_env()?;
        let reaper = Reaper::start()?;
        let folder = match &options.folder {
            Some(folder) => folder.clone(),
            None => {
                let folder = tempfile::Builder::new()
                    .prefix("croft-lab-")
                    .tempdir()
                    .map_err(Error::io("make a temporary folder"))?
                    .keep();
                reaper.remove(&folder)?;
                folder
            }
        };
        let layout = Layout::new(folder, assets, &options)?;
        let mut plane = Self { processes: BTreeMap::new(), layout, options, reaper };
        let mut attempt = 1;
        loop {
            plane.layout.write_kubeconfigs()?;
            match plane.start_all().await {
                Ok(()) => {
                    plane.options.stored.clear();
                    return Ok(plane);
                }
                Err(error) if error.is_port_clash() && attempt < START_ATTEMPTS => {
                    tracing::info!(%error, "drawing other ports");
                    plane.processes.clear();
                    plane.layout.ports = Ports::draw()?;
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn start_all(&mut self) -> Result<(), Error> {
        self.resume(Component::Etcd).await?;
        if !self.options.stored.is_empty() {
            stored::write(&self.etcd().await?, &self.options.stored).await?;
        }
        self.resume(Component::ApiServer).await?;
        let admin = self.admin().await?;
        apply(&admin, &kubelets::rights()).await?;
        // Each needs about half a second of one core to start, so they start together.
        let rest: Vec<_> =
            self.options.components.iter().copied().filter(|c| !self.processes.contains_key(c)).collect();
        for component in &rest {
            self.launch(*component)?;
        }
        for component in rest {
            self.ready(component).await?;
        }
        Ok(())
    }

    fn launch(&mut self, component: Component) -> Result<(), Error> {
        let process = self.layout.recipe(component, &self.options)?.start(&self.reaper)?;
        self.processes.insert(component, process);
        Ok(())
    }

    /// Starts a component that was killed, stopped or left out, and waits until it is ready. Does nothing if it runs.
    pub async fn resume(&mut self, component: Component) -> Result<(), Error> {
        if let Some(process) = self.processes.get_mut(&component)
            && process.poll()?.is_none()
        {
            return Ok(());
        }
        self.launch(component)?;
        self.ready(component).await
    }

    /// Ends a component with SIGKILL, as the loss of its host would.
    pub fn kill(&mut self, component: Component) -> Result<(), Error> {
        self.processes.remove(&component).map_or(Ok(()), Process::kill)
    }

    /// Asks a component to end, and kills it after `grace`.
    pub async fn stop_component(&mut self, component: Component, grace: Duration) -> Result<(), Error> {
        match self.processes.remove(&component) {
            Some(process) => process.stop(grace).await.map(drop),
            None => Ok(()),
        }
    }

    /// Copies etcd's data, for which etcd and the API server are stopped.
    pub async fn back_up(&mut self) -> Result<Backup, Error> {
        let folder =
            tempfile::tempdir_in(self.folder()).map_err(Error::io("make a folder for the backup"))?;
        self.pause(&[Component::ApiServer, Component::Etcd]).await?;
        copy_folder(&self.layout.etcd_data(), folder.path())?;
        self.resume(Component::Etcd).await?;
        self.resume(Component::ApiServer).await?;
        Ok(Backup { folder })
    }

    /// Stops the control plane, puts a backup in the place of etcd's data, and starts the control plane again.
    pub async fn restore(&mut self, backup: &Backup) -> Result<(), Error> {
        let running: Vec<Component> = self.processes.keys().copied().collect();
        self.pause(&running).await?;
        let data = self.layout.etcd_data();
        std::fs::remove_dir_all(&data).map_err(Error::io("remove etcd's data"))?;
        copy_folder(backup.folder.path(), &data)?;
        self.start_all().await
    }

    /// Every object, as it is stored. Only objects in JSON are found: the API server needs the flag
    /// `--storage-media-type=application/json`.
    ///
    /// # Errors
    /// If etcd doesn't answer.
    pub async fn stored_objects(&self) -> Result<Vec<StoredObject>, Error> {
        stored::read(&self.etcd().await?).await
    }

    async fn etcd(&self) -> Result<Client, Error> {
        self.client_at(&format!("https://127.0.0.1:{}", self.layout.etcd_port())).await
    }

    async fn pause(&mut self, components: &[Component]) -> Result<(), Error> {
        for component in components {
            self.stop_component(*component, STOP_WITHIN).await?;
        }
        Ok(())
    }

    /// The process of a component, to freeze it or to read its log.
    #[must_use]
    pub fn process(&self, component: Component) -> Option<&Process> {
        self.processes.get(&component)
    }

    /// State of each process.
    pub fn status(&mut self) -> Result<Vec<Status>, Error> {
        self.processes.values_mut().map(Process::status).collect()
    }

    /// An error with the end of its log if a component has ended by itself.
    pub fn check(&mut self) -> Result<(), Error> {
        self.processes.values_mut().try_for_each(Process::check)
    }

    /// Ends everything. Dropping does the same; this reports errors.
    pub fn stop(mut self) -> Result<(), Error> {
        std::mem::take(&mut self.processes).into_values().rev().try_for_each(Process::kill)
    }

    async fn ready(&mut self, component: Component) -> Result<(), Error> {
        let admin = match component {
            Component::Etcd => None,
            _ => Some(self.admin().await?),
        };
        let scheduler = match component {
            Component::Scheduler => {
                Some(self.client_at(&format!("https://127.0.0.1:{}", self.layout.ports.scheduler)).await?)
            }
            _ => None,
        };
        let etcd = self.layout.etcd_port();
        let waiting = async {
            loop {
                if let Some(process) = self.processes.get_mut(&component) {
                    process.check()?;
                }
                let ready = match (component, &admin, &scheduler) {
                    (Component::Etcd, ..) => TcpStream::connect((Ipv4Addr::LOCALHOST, etcd)).is_ok(),
                    (Component::ApiServer, Some(admin), _) => healthy(admin, "/readyz").await,
                    // The controllers that every pod needs.
                    (Component::ControllerManager, Some(admin), _) => {
                        let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "default");
                        accounts.get_opt("default").await.is_ok_and(|account| account.is_some())
                    }
                    (Component::Scheduler, _, Some(scheduler)) => healthy(scheduler, "/readyz").await,
                    _ => true,
                };
                if ready {
                    return Ok(());
                }
                tokio::time::sleep(POLL).await;
            }
        };
        let result = tokio::time::timeout(READY_WITHIN, waiting).await;
        result.unwrap_or_else(|_| {
            Err(Error::NotReady {
                name: component.binary().to_owned(),
                seconds: READY_WITHIN.as_secs(),
                log: self.layout.log(component.binary()),
                tail: self.processes.get(&component).map(Process::tail).unwrap_or_default(),
            })
        })
    }

    /// The API server's address.
    #[must_use]
    pub fn url(&self) -> String {
        self.layout.url()
    }

    /// The folder of all files: `pki/`, `logs/`, `kubeconfig/`, `etcd/`.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.layout.folder
    }

    /// The log file of a process, by name.
    #[must_use]
    pub fn log(&self, name: &str) -> PathBuf {
        self.layout.log(name)
    }

    /// Kills this control plane's other processes, too, once it ends.
    #[must_use]
    pub fn reaper(&self) -> &Reaper {
        &self.reaper
    }

    /// The cluster's certificate authority.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.layout.authority
    }

    /// Paths of the authority's certificate and key, for a cloud that registers kubelets.
    #[must_use]
    pub fn authority_files(&self) -> (PathBuf, PathBuf) {
        (self.layout.pki("ca.crt"), self.layout.pki("ca.key"))
    }

    /// Files of a server's certificate and key by the cluster's authority, for 127.0.0.1 and the names in `also`.
    pub fn server_files(&self, name: &str, also: &[&str]) -> Result<(PathBuf, PathBuf), Error> {
        let identity = self.authority().server(name, also)?;
        let (certificate, key) =
            (self.layout.pki(&format!("{name}.crt")), self.layout.pki(&format!("{name}.key")));
        write_secret(&certificate, &identity.certificate)?;
        write_secret(&key, &identity.key)?;
        Ok((certificate, key))
    }

    /// A kubeconfig file for the administrator (group system:masters).
    #[must_use]
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.layout.admin_kubeconfig()
    }

    /// A client for the administrator. A client belongs to the async runtime that it was created in.
    pub async fn admin(&self) -> Result<Client, Error> {
        self.connect(&self.url(), "lab:admin", &Proof::Certificate(&self.layout.admin)).await
    }

    /// A client with a certificate for this user name and at most two groups.
    pub async fn client_for(&self, user: &str, groups: &[&str]) -> Result<Client, Error> {
        let identity = self.authority().client(user, groups)?;
        self.connect(&self.url(), user, &Proof::Certificate(&identity)).await
    }

    /// A kubeconfig file with a certificate for this user name and at most two groups.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<PathBuf, Error> {
        let identity: Identity = self.authority().client(user, groups)?;
        let path = self.layout.kubeconfig_of(user);
        self.layout.write_kubeconfig(user, &Proof::Certificate(&identity), &path)?;
        Ok(path)
    }

    /// [`ControlPlane::kubeconfig_for`] with the API server at `url`, such as another address of it.
    pub fn kubeconfig_for_at(&self, url: &str, user: &str, groups: &[&str]) -> Result<PathBuf, Error> {
        let identity: Identity = self.authority().client(user, groups)?;
        let path = self.layout.kubeconfig_of(user);
        self.layout.write_kubeconfig_to(url, user, &Proof::Certificate(&identity), &path)?;
        Ok(path)
    }

    /// A kubeconfig file for a ServiceAccount, with a token issued by the API server, as in a pod.
    pub async fn kubeconfig_for_service_account(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<PathBuf, Error> {
        self.kubeconfig_to(&self.url(), namespace, name).await
    }

    /// [`ControlPlane::kubeconfig_for_service_account`] with the API server at `url`, such as a proxy on loopback.
    pub async fn kubeconfig_to(&self, url: &str, namespace: &str, name: &str) -> Result<PathBuf, Error> {
        let token = self.token(namespace, name).await?;
        let user = format!("system:serviceaccount:{namespace}:{name}");
        let path = self.layout.kubeconfig_of(&user);
        self.layout.write_kubeconfig_to(url, &user, &Proof::Token(&token), &path)?;
        Ok(path)
    }

    /// A client for a ServiceAccount, with a token issued by the API server, as in a pod.
    pub async fn client_for_service_account(&self, namespace: &str, name: &str) -> Result<Client, Error> {
        let token = self.token(namespace, name).await?;
        let user = format!("system:serviceaccount:{namespace}:{name}");
        self.connect(&self.url(), &user, &Proof::Token(&token)).await
    }

    async fn token(&self, namespace: &str, name: &str) -> Result<String, Error> {
        self.token_for(namespace, name, None).await
    }

    /// A token of a ServiceAccount for `audience`; without one, for the API server.
    pub async fn token_for(
        &self,
        namespace: &str,
        name: &str,
        audience: Option<&str>,
    ) -> Result<String, Error> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin().await?, namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: audience.map(|audience| vec![audience.to_owned()]),
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let what = || format!("get a token for the ServiceAccount {namespace}/{name}");
        let issued = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .map_err(Error::kube(what()))?;
        issued.status.and_then(|status| status.token).ok_or_else(|| Error::Client {
            name: format!("{namespace}/{name}"),
            reason: "the API server answered a token request without a token".to_owned(),
        })
    }

    async fn client_at(&self, url: &str) -> Result<Client, Error> {
        self.connect(url, "lab:admin", &Proof::Certificate(&self.layout.admin)).await
    }

    async fn connect(&self, url: &str, user: &str, proof: &Proof<'_>) -> Result<Client, Error> {
        let failed = |reason: String| Error::Client { name: user.to_owned(), reason };
        let kubeconfig = kubeconfig(url, self.authority().certificate(), user, proof);
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .map_err(|error| failed(error.to_string()))?;
        Client::try_from(config).map_err(|error| failed(error.to_string()))
    }

    /// Runs kubectl as the administrator. Returns its standard output.
    pub async fn kubectl<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<String, Error> {
        self.kubectl_with(arguments, "").await
    }

    /// Applies manifests server-side, in their order; once more if a new policy refuses them only because the API
    /// server hasn't read the policy's parameters yet.
    pub async fn apply(&self, manifests: &str) -> Result<String, Error> {
        let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        until("what policies are parametrised by is read", POLICIES_READ_WITHIN, async || {
            match self.kubectl_with(apply, manifests).await {
                Err(Error::Kubectl { stderr, .. }) if stderr.contains(NOT_READ) => {
                    Ok::<_, Error>(Seen::NotYet(stderr))
                }
                other => Ok(Seen::Yes(other)),
            }
        })
        .await?
    }

    /// kubectl with this kubeconfig, and pipes to its standard streams. Its process ends when it is dropped.
    pub fn kubectl_process<A: AsRef<OsStr>>(
        &self,
        kubeconfig: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<tokio::process::Command, Error> {
        let mut command = tokio::process::Command::new(self.layout.kubectl()?);
        command
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            // Otherwise control planes with the same port would share a discovery cache.
            .arg(format!("--cache-dir={}", self.layout.folder.join("kubectl").display()))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        Ok(command)
    }

    /// Runs kubectl as the administrator with `input` as standard input.
    pub async fn kubectl_with<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
        input: &str,
    ) -> Result<String, Error> {
        let arguments: Vec<_> = arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect();
        let shown = || arguments.iter().map(|a| a.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let failed = || format!("run kubectl {}", shown());
        let mut child = self
            .kubectl_process(&self.admin_kubeconfig(), &arguments)?
            .spawn()
            .map_err(Error::io(failed()))?;
        if let Some(mut stdin) = child.stdin.take() {
            match stdin.write_all(input.as_bytes()).await {
                // It may have refused its arguments already; its standard error says why.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                result => result.map_err(Error::io(failed()))?,
            }
        }
        let output = child.wait_with_output().await.map_err(Error::io(failed()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::Kubectl { arguments: shown(), stderr })
    }

    /// Runs Helm as the administrator. Returns its standard output.
    ///
    /// # Errors
    /// If Helm isn't built, or fails.
    pub async fn helm<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<String, Error> {
        let arguments: Vec<_> = arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect();
        let shown = || arguments.iter().map(|a| a.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let command = Helm::find()?.command(&self.layout.folder.join("helm"));
        let output = tokio::process::Command::from(command)
            .args(&arguments)
            .arg(format!("--kubeconfig={}", self.admin_kubeconfig().display()))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(Error::io(format!("run helm {}", shown())))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::Helm { arguments: shown(), stderr })
    }

    /// Starts another process, which ends with the control plane at the latest.
    pub fn spawn(&self, recipe: &Recipe) -> Result<Process, Error> {
        recipe.start(&self.reaper)
    }

    /// Writes a file that only its owner may read into the control plane's folder.
    pub fn write(&self, file: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.layout.folder.join(file);
        write_secret(&path, text)?;
        Ok(path)
    }
}

async fn healthy(client: &Client, path: &str) -> bool {
    let Ok(request) = http::Request::get(path).body(Vec::new()) else { return false };
    client.request_text(request).await.is_ok_and(|text| text == "ok")
}

async fn apply(client: &Client, rights: &[Value; 2]) -> Result<(), Error> {
    async fn one<K>(client: &Client, value: &Value) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned
            + serde::Serialize,
    {
        let api: Api<K> = Api::all(client.clone());
        let params = PatchParams::apply(FIELD_MANAGER).force();
        api.patch(kubelets::USER, &params, &Patch::Apply(value))
            .await
            .map_err(Error::kube(format!("apply the {} {}", K::kind(&()), kubelets::USER)))
            .map(drop)
    }
    let [role, binding] = rights;
    one::<ClusterRole>(client, role).await?;
    one::<ClusterRoleBinding>(client, binding).await
}
