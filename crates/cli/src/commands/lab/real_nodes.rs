//! `croft lab up --real-node`: Croft's Deployments on two real nodes, in namespaces of their own.

use std::{io::Write as _, net::Ipv4Addr, path::PathBuf, process::Stdio};

use anyhow::{Context as _, bail};
use clap::Args;
use croft_testkit::{
    Assets, Options,
    nodes::{CLOUD, Inside, Namespaces, NodeCluster, Parts, relay},
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    net::TcpListener,
    process::ChildStdout,
};

use super::{
    folder::{LabFolder, State},
    progress::Progress,
    status::{POLL, UP, process_states, show_up},
};
use crate::output::Output;

/// Sockets by which the outer half reaches what runs inside, below the lab's folder.
const API_SOCKET: &str = "api.sock";
const CLOUD_SOCKET: &str = "ec2.sock";

/// Arguments that the outer half gives the inner one.
#[derive(Args, Clone, Debug)]
pub(super) struct InsideArgs {
    /// Used by `up --real-node` itself: run in the present namespaces, with this cgroup
    #[arg(long, hide = true, requires_all = ["folder", "keeper", "api_port", "cloud_port"])]
    inside: Option<String>,
    /// Folder of the inner half's files
    #[arg(long, hide = true)]
    folder: Option<PathBuf>,
    /// Process id of the outer half
    #[arg(long, hide = true)]
    keeper: Option<u32>,
    /// Port of the API server outside
    #[arg(long, hide = true)]
    api_port: Option<u16>,
    /// Port of the EC2 API outside
    #[arg(long, hide = true)]
    cloud_port: Option<u16>,
}

/// The inner half's arguments, all of them.
#[derive(Clone, Debug)]
pub(super) struct Given {
    inside: Inside,
    keeper: u32,
    api_port: u16,
    cloud_port: u16,
}

impl InsideArgs {
    /// `None` for the outer half.
    pub(super) fn given(&self) -> Option<Given> {
        Some(Given {
            inside: Inside { cgroups: self.inside.clone()?, folder: self.folder.clone()? },
            keeper: self.keeper?,
            api_port: self.api_port?,
            cloud_port: self.cloud_port?,
        })
    }
}

/// Starts the inner half, passes on what it writes, and connects two ports of loopback with it, until it ends.
pub(super) async fn outside(folder: &LabFolder, leashed: bool, out: &mut Output) -> anyhow::Result<()> {
    let missing = Parts::find()?.missing();
    if !missing.is_empty() {
        bail!("`croft lab up --real-node` can't start: {}", missing.join("; "));
    }
    let plane = folder.fresh_plane()?;
    std::fs::create_dir_all(&plane).with_context(|| format!("failed to create {}", plane.display()))?;
    let (api, api_port) = listen().await?;
    let (cloud, cloud_port) = listen().await?;
    let arguments = ["lab", "up", "--foreground", "--real-node"].map(str::to_owned).into_iter().chain([
        format!("--keeper={}", std::process::id()),
        format!("--api-port={api_port}"),
        format!("--cloud-port={cloud_port}"),
    ]);
    let mut namespaces = Namespaces::start(arguments, plane.clone(), false, Stdio::piped())?;
    let lines = namespaces.take_output().context("the inner half has no output")?;
    let (api_socket, cloud_socket) = (plane.join(API_SOCKET), plane.join(CLOUD_SOCKET));
    tokio::select! {
        passed = pass_on(BufReader::new(lines).lines(), folder, leashed, out) => passed?,
        relayed = relay::outside(api, &api_socket) => relayed.context("failed to pass on requests to the API server")?,
        relayed = relay::outside(cloud, &cloud_socket) => relayed.context("failed to pass on requests to EC2")?,
    }
    let status = namespaces.wait().await?;
    bail!("the nodes have ended ({status}); their logs are in {}", plane.join("logs").display())
}

async fn listen() -> anyhow::Result<(TcpListener, u16)> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("failed to listen on loopback")?;
    let port = listener.local_addr().context("failed to read the port")?.port();
    Ok((listener, port))
}

/// Writes the inner half's lines until it ends.
async fn pass_on(
    mut lines: Lines<BufReader<ChildStdout>>,
    folder: &LabFolder,
    leashed: bool,
    out: &mut Output,
) -> anyhow::Result<()> {
    while let Some(line) = lines.next_line().await.context("failed to read the progress of the nodes")? {
        if line == UP {
            let state = folder.state()?.context("the inner half wrote no state")?;
            show_up(&state, leashed, out)?;
        } else {
            writeln!(out, "{line}")?;
            out.flush()?;
        }
    }
    Ok(())
}

/// Starts everything in the present namespaces, and writes the state of its processes until it is killed.
pub(super) async fn inside(folder: &LabFolder, given: &Given, out: &mut Output) -> anyhow::Result<()> {
    let mut progress = Progress::new(out);
    progress.line("starting etcd, API server, controller manager, scheduler, and two nodes (containerd, kubelet, kube-proxy)")?;
    let tag = env!("CARGO_PKG_VERSION");
    let mut cluster = NodeCluster::start(Options::default(), &Parts::find()?, &given.inside, tag).await?;
    progress.line("node-1 and node-2 are Ready")?;
    cluster.install().await?;
    progress.line("installed the charts croft-crds and croft")?;
    for deployment in ["croft-webhook", "croft-controller"] {
        cluster.until_rolled_out(deployment).await?;
        progress.line(&format!("{deployment} runs from its image"))?;
    }
    let server = format!("https://127.0.0.1:{}", given.api_port);
    let mut state = State {
        keeper: given.keeper,
        up: true,
        kubeconfig: cluster.plane.kubeconfig_for_at(&server, "lab:outside", &["system:masters"])?,
        kubectl: Assets::from_env()?.binary("kubectl")?,
        api_server: server,
        cloud: Some(format!("http://127.0.0.1:{}", given.cloud_port)),
        page: None,
        processes: process_states(cluster.status()?),
    };
    let address = cluster.plane.url();
    let address = address.trim_start_matches("https://");
    let address = address.parse().with_context(|| format!("failed to read the address {address}"))?;
    let files = &given.inside.folder;
    let (api_socket, cloud_socket) = (files.join(API_SOCKET), files.join(CLOUD_SOCKET));
    let watch = async {
        folder.write_state(&state)?;

        writeln!(progress.out(), "{UP}")?;
        progress.out().flush()?;
        loop {
            tokio::time::sleep(POLL).await;
            let now = process_states(cluster.status()?);
            if now != state.processes {
                state.processes = now;
                folder.write_state(&state)?;
            }
        }
    };
    tokio::select! {
        watched = watch => watched,
        relayed = relay::inside(&api_socket, address) => relayed.context("failed to pass on requests to the API server"),
        relayed = relay::inside(&cloud_socket, CLOUD) => relayed.context("failed to pass on requests to EC2"),
    }
}
