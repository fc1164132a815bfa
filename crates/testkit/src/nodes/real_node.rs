//! One node: containerd, kubelet and kube-proxy, each with files of its own below one folder.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use serde_json::json;

use crate::{
    control_plane::ControlPlane,
    nodes::{
        Parts,
        network::{self, PODS, pods_of},
    },
    process::{Process, Recipe, Status},
    wait::{Seen, until},
};

const STARTED_WITHIN: Duration = Duration::from_secs(90);
/// The sandbox of every pod, and the tenants' workload.
const PAUSE: &str = "pause";

/// A node with its processes. Dropping it ends them; what they started ends with the process namespace.
#[derive(Debug)]
pub struct RealNode {
    /// The Node's name.
    pub name: String,
    address: Ipv4Addr,
    folder: PathBuf,
    programs: PathBuf,
    /// A process in the node's network namespace, unless it is this process's own.
    network: Option<u32>,
    containerd: Process,
    kubelet: Option<Process>,
    proxy: Option<Process>,
}

/// Which node: its number, address and network namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// 1 or 2.
    pub number: u8,
    /// Its address.
    pub address: Ipv4Addr,
    /// A process in its network namespace; `None` for this process's own.
    pub network: Option<u32>,
}

impl RealNode {
    /// Starts the node's programs, imports the images, and waits until the Node is Ready.
    ///
    /// # Errors
    /// If a program doesn't start, with the end of its log.
    pub(crate) async fn start(
        plane: &ControlPlane,
        parts: &Parts,
        cgroups: &str,
        tag: &str,
        place: Place,
    ) -> anyhow::Result<Self> {
        let name = format!("node-{}", place.number);
        let folder = plane.folder().join(&name);
        for part in ["cni", "kubelet", "certificates", "pods", "state"] {
            fs::create_dir_all(folder.join(part))?;
        }
        let containerd = containerd(plane, parts, tag, place, &folder)?;
        until("containerd", STARTED_WITHIN, || async {
            let socket = folder.join("containerd.sock");
            Ok::<_, std::io::Error>(Seen::from_option(socket.exists().then_some(()), "no socket"))
        })
        .await?;
        let mut real_node = Self {
            name,
            address: place.address,
            folder,
            programs: parts.programs.clone(),
            network: place.network,
            containerd,
            kubelet: None,
            proxy: None,
        };
        for image in [PAUSE, "croft-webhook", "croft-controller", "croft-page"] {
            let file = parts.images.join(format!("{image}.tar"));
            // --local: without it this version of ctr finds no platform to unpack.
            real_node.ctr(&["images", "import", "--local", &file.to_string_lossy()]).await?;
        }
        real_node.write_kubelet(plane, cgroups, place)?;
        real_node.start_kubelet(plane)?;
        real_node.until_ready(plane).await?;
        // It waits for the Node to have an address, longer each time.
        real_node.proxy = Some(proxy(plane, parts, place, &real_node.folder)?);
        Ok(real_node)
    }

    /// Waits until the Node is Ready.
    async fn until_ready(&mut self, plane: &ControlPlane) -> anyhow::Result<()> {
        let condition = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
        let name = self.name.clone();
        let waiting = until(&format!("{name} to be Ready"), STARTED_WITHIN, || async {
            let ready = plane.kubectl(["get", "node", &name, "-o", condition]).await?;
            Ok::<_, crate::Error>(Seen::from_option((ready == "True").then_some(()), ready))
        })
        .await;
        if let Err(error) = waiting {
            let kubelet = self.kubelet.as_ref().map(Process::tail).unwrap_or_default();
            bail!("{error}\nkubelet: {kubelet}\ncontainerd: {}", self.containerd.tail());
        }
        Ok(())
    }

    fn write_kubelet(&self, plane: &ControlPlane, cgroups: &str, place: Place) -> anyhow::Result<()> {
        let folder = &self.folder;
        // No resolver is needed by what runs here, and none of the computer's may be reached.
        fs::write(folder.join("resolv.conf"), "nameserver 10.96.0.10\n")?;
        let (authority, _) = plane.authority_files();
        let config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "address": place.address.to_string(),
            "authentication": {
                "anonymous": {"enabled": false}, "webhook": {"enabled": true},
                "x509": {"clientCAFile": authority},
            },
            "authorization": {"mode": "Webhook"},
            "readOnlyPort": 0,
            "cgroupDriver": "cgroupfs", "cgroupRoot": format!("/{cgroups}/{}", self.name), "failCgroupV1": false,
            "enforceNodeAllocatable": [], "failSwapOn": false, "oomScoreAdj": 0,
            "containerRuntimeEndpoint": format!("unix://{}", folder.join("containerd.sock").display()),
            "podLogsDir": folder.join("pods"), "clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.local", "resolvConf": folder.join("resolv.conf"),
            // The disk is the computer's: how full it is says nothing about the test.
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%", "nodefs.inodesFree": "0%"},
            "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
            // Renewed tokens reach their pods when pods are synchronised.
            "syncFrequency": "5s", "nodeStatusUpdateFrequency": "5s",
            // Every pod of the test starts at once.
            "registryPullQPS": 0,
        });
        Ok(fs::write(folder.join("kubelet.json"), config.to_string())?)
    }

    fn start_kubelet(&mut self, plane: &ControlPlane) -> anyhow::Result<()> {
        let user = format!("system:node:{}", self.name);
        let kubeconfig = plane.kubeconfig_for_at(&api_server(plane), &user, &["system:nodes"])?;
        let recipe = self.program(plane, "kubelet").arguments([
            format!("--config={}", self.folder.join("kubelet.json").display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--root-dir={}", self.folder.join("kubelet").display()),
            format!("--cert-dir={}", self.folder.join("certificates").display()),
            format!("--hostname-override={}", self.name),
            format!("--node-ip={}", self.address),
        ]);
        self.kubelet = Some(plane.spawn(&recipe)?);
        Ok(())
    }

    /// Restarts the kubelet, which forgets the tokens that it asked for and so renews those of its pods. Pods go on.
    ///
    /// # Errors
    /// If it doesn't start again.
    pub async fn restart_kubelet(&mut self, plane: &ControlPlane) -> anyhow::Result<()> {
        if let Some(kubelet) = self.kubelet.take() {
            kubelet.stop(Duration::from_secs(20)).await?;
        }
        self.start_kubelet(plane)?;
        self.until_ready(plane).await
    }

    /// State of its processes.
    pub(crate) fn status(&mut self) -> Result<Vec<Status>, crate::Error> {
        let running = [Some(&mut self.containerd), self.kubelet.as_mut(), self.proxy.as_mut()];
        running.into_iter().flatten().map(Process::status).collect()
    }

    fn program(&self, plane: &ControlPlane, program: &str) -> Recipe {
        recipe(plane, &self.programs, self.network, &self.name, program)
    }

    /// Runs `ctr` in the namespace of the kubelet's containers.
    ///
    /// # Errors
    /// If it fails, with what it said.
    pub async fn ctr(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let socket = self.folder.join("containerd.sock").display().to_string();
        let all = [&["--address", socket.as_str(), "--namespace", "k8s.io"], arguments].concat();
        network::run(&self.programs.join("ctr").display().to_string(), &all).await
    }

    /// The process of a container, by its id.
    ///
    /// # Errors
    /// If it has none.
    pub async fn process_of(&self, container: &str) -> anyhow::Result<u32> {
        let tasks = self.ctr(&["tasks", "list"]).await?;
        let line = tasks.lines().find(|line| line.starts_with(container));
        let line =
            line.with_context(|| format!("{}: container {container} has no task: {tasks}", self.name))?;
        let id = line.split_whitespace().nth(1).context("ctr gave no process id")?;
        id.parse().with_context(|| format!("ctr gave the process id {id:?}"))
    }

    /// The end of every container's log, for a failure's message.
    #[must_use]
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for pod in children(&self.folder.join("pods")) {
            for file in children(&pod).iter().flat_map(|container| children(container)) {
                let log = fs::read_to_string(&file).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let tail = lines.get(lines.len().saturating_sub(15)..).unwrap_or_default().join("\n");
                text.push_str(&format!("--- {}\n{tail}\n", file.display()));
            }
        }
        text
    }
}

fn children(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// The API server as nodes reach it.
fn api_server(plane: &ControlPlane) -> String {
    plane.url().replace("127.0.0.1", &network::FIRST.to_string())
}

/// A program of the node, in the node's network namespace.
fn recipe(plane: &ControlPlane, programs: &Path, network: Option<u32>, node: &str, program: &str) -> Recipe {
    let name = format!("{node}-{program}");
    let (file, log) = (programs.join(program), plane.log(&name));
    let path = std::env::var("PATH").unwrap_or_default();
    let recipe = match network {
        None => Recipe::new(name, file, log),
        Some(id) => Recipe::new(name, "nsenter", log)
            .arguments([format!("--net=/proc/{id}/ns/net")])
            .arguments([file.as_os_str()]),
    };
    // containerd finds its shim by the path.
    recipe.environment("PATH", format!("{}:{path}", programs.display()))
}

fn containerd(
    plane: &ControlPlane,
    parts: &Parts,
    tag: &str,
    place: Place,
    folder: &Path,
) -> anyhow::Result<Process> {
    let (number, place_of) = (place.number, |part: &str| folder.join(part).display().to_string());
    let programs = parts.programs.display();
    // restrict_oom_score_adj: where root lacks CAP_SYS_RESOURCE, runc may not lower the score of a sandbox.
    let config = format!(
        r#"version = 3
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp"]

[grpc]
address = "{socket}"

[ttrpc]
address = "{socket}.ttrpc"

[plugins."io.containerd.internal.v1.opt"]
path = "{opt}"

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "docker.io/library/{PAUSE}:{tag}"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{programs}"]
conf_dir = "{network}"

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = false
"#,
        root = place_of("containerd"),
        state = place_of("state"),
        socket = place_of("containerd.sock"),
        opt = place_of("opt"),
        network = place_of("network"),
    );
    let file = folder.join("containerd.toml");
    fs::write(&file, config)?;
    fs::create_dir_all(folder.join("network"))?;
    let plugins = json!({
        "cniVersion": "1.0.0", "name": "pods",
        "plugins": [
            {
                "type": "bridge", "bridge": "pods", "isGateway": true, "hairpinMode": true,
                "ipam": {
                    "type": "host-local", "dataDir": folder.join("cni"),
                    "ranges": [[{"subnet": pods_of(number)}]], "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    });
    fs::write(folder.join("network/10-pods.conflist"), plugins.to_string())?;
    let node = format!("node-{number}");
    let recipe = recipe(plane, &parts.programs, place.network, &node, "containerd")
        .arguments([format!("--config={}", file.display())]);
    Ok(plane.spawn(&recipe)?)
}

fn proxy(plane: &ControlPlane, parts: &Parts, place: Place, folder: &Path) -> anyhow::Result<Process> {
    let node = format!("node-{}", place.number);
    let kubeconfig = plane.kubeconfig_for_at(&api_server(plane), "system:kube-proxy", &[])?;
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "mode": "iptables", "clientConnection": {"kubeconfig": kubeconfig}, "hostnameOverride": node,
        "bindAddress": place.address.to_string(), "clusterCIDR": PODS, "oomScoreAdj": 0,
        "healthzBindAddress": "127.0.0.1:10256", "metricsBindAddress": "127.0.0.1:10249",
        // Nothing of the computer's settings may change.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    });
    let file = folder.join("kube-proxy.json");
    fs::write(&file, config.to_string())?;
    let recipe = recipe(plane, &parts.programs, place.network, &node, "kube-proxy")
        .arguments([format!("--config={}", file.display())]);
    Ok(plane.spawn(&recipe)?)
}
