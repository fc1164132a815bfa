//! The process `ec2-sim`: arguments, socket, signals.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use clap::Parser;
use croft_runtime::{
    clock::{Clock as _, SystemClock},
    process::install_crypto,
    shutdown::Shutdown,
    telemetry,
};

use crate::{
    catalogue,
    control::Control,
    faults::Rule,
    kubelet::{self, Cluster},
    server::{Remembering, Simulator, router},
    world::Settings,
};

/// An EC2 that runs locally: EC2, SSM, SQS, Pricing, IAM, STS and EKS as far as a provisioner uses them.
#[derive(Debug, Parser)]
#[command(name = "ec2-sim", version)]
struct Args {
    /// Address to listen on; port 0 takes a free one. The address is printed on the first line of standard output
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Name of the cluster, and value of the discovery tags on subnets and groups
    #[arg(long, value_name = "NAME", default_value = "croft")]
    cluster_name: String,
    /// Kubernetes version of the images, such as 1.36
    #[arg(long, value_name = "VERSION", default_value = "1.36")]
    kubernetes_version: String,
    /// API server that instances join. Without it instances run and no Node appears
    #[arg(long, value_name = "URL", requires = "node_ca_cert")]
    apiserver: Option<String>,
    /// CA of the API server's certificate. Default: the CA that signs kubelets
    #[arg(long, value_name = "FILE")]
    cluster_ca: Option<PathBuf>,
    /// CA that signs the kubelets' certificates
    #[arg(long, value_name = "FILE", requires = "node_ca_key")]
    node_ca_cert: Option<PathBuf>,
    /// Key of that CA
    #[arg(long, value_name = "FILE")]
    node_ca_key: Option<PathBuf>,
    /// Label of the nodes whose kubelet KWOK plays
    #[arg(long, value_name = "KEY=VALUE", default_value = "lab.croft.dev/kubelet=kwok")]
    played_label: String,
    /// From CreateFleet to running, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500)]
    running_after_ms: u64,
    /// From running to the Node, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500)]
    boot_ms: u64,
    /// From TerminateInstances to terminated, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500)]
    terminated_after_ms: u64,
    /// Time until new resources are visible to the Describe calls, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    consistency_ms: u64,
    /// IAM roles that exist
    #[arg(long, value_name = "NAME", default_value = "croft-node", value_delimiter = ',')]
    roles: Vec<String>,
    /// Instance profiles that exist, each with the first role. Default: the one that Karpenter's getting-started template makes for a
    /// cluster with the default name
    #[arg(
        long,
        value_name = "NAME",
        default_value = "KarpenterNodeInstanceProfile-croft",
        value_delimiter = ','
    )]
    instance_profiles: Vec<String>,
    /// Name of the interruption queue
    #[arg(long, value_name = "NAME", default_value = "croft")]
    queue: String,
    /// The account's id
    #[arg(long, value_name = "ID", default_value = "000000000000")]
    account: String,
    /// Instance types of the region, with wildcards
    #[arg(long, value_name = "PATTERN", default_value = "*", value_delimiter = ',')]
    types: Vec<String>,
    /// Seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// vCPUs that may run on-demand, and as many on spot. Default: no quota
    #[arg(long, value_name = "N")]
    vcpu_quota: Option<u32>,
    /// Quota of launch templates
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    template_quota: usize,
    /// Free addresses of each subnet
    #[arg(long, value_name = "N", default_value_t = 8_187)]
    subnet_addresses: u32,
    /// How long client tokens are remembered, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 24 * 3_600_000)]
    token_ttl_ms: u64,
    /// Time until EC2 knows a new instance profile, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    profile_settles_ms: u64,
    /// Types, zones and prices, as JSON in the format of `croft simulate --catalog` or one type a line. Default: the
    /// built-in catalogue
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// Time advances only by the control request `advance`
    #[arg(long, conflicts_with = "journal")]
    virtual_time: bool,
    /// Fault rules, as a JSON or YAML list
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// IAM policy that every caller is held to, as JSON
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Control requests to carry out at the start, as a JSON list (faults, capacity, ...)
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Record calls in this file and replay it at the start: a simulator that was killed restarts with its instances.
    /// Faults, policy and script are applied by the first process only
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Log filter: a level, or target=level pairs
    #[arg(long, value_name = "FILTER", env = "CROFT_LOG", default_value = "info")]
    log: String,
    /// Format of log lines
    #[arg(long, value_enum, default_value = "json")]
    log_format: telemetry::LogFormat,
}

/// Parses the arguments and serves until a signal arrives.
#[must_use]
pub fn main() -> ExitCode {
    install_crypto();
    let args = Args::parse();
    if let Err(error) = telemetry::init(&args.log, args.log_format) {
        eprintln!("{error}");
        return ExitCode::from(2);
    }
    let result = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(serve(args)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Args {
    /// The cluster that instances join, if there is one.
    fn cluster(&self) -> anyhow::Result<Option<Cluster>> {
        let (Some(url), Some(cert), Some(key)) = (&self.apiserver, &self.node_ca_cert, &self.node_ca_key)
        else {
            return Ok(None);
        };
        let client_ca = read(cert)?;
        let server_ca = self.cluster_ca.as_ref().map(read).transpose()?.unwrap_or_else(|| client_ca.clone());
        let played = self.played_label.split_once('=');
        let (label, value) = played.with_context(|| {
            format!("failed to read --played-label {}: write KEY=VALUE", self.played_label)
        })?;
        Ok(Some(Cluster {
            url: url.clone(),
            server_ca,
            client_ca,
            client_ca_key: read(key)?,
            played: (label.to_owned(), value.to_owned()),
            boot: Duration::from_millis(self.boot_ms),
            kubelet_version: format!("v{}.0", self.kubernetes_version),
        }))
    }

    fn settings(&self, cluster: Option<&Cluster>) -> anyhow::Result<Settings> {
        let defaults = Settings::default();
        let catalogue = match &self.catalog {
            Some(path) => {
                let read = catalogue::read(&read(path)?, &defaults.region);
                Some(Arc::new(read.with_context(|| path.display().to_string())?))
            }
            None => None,
        };
        Ok(Settings {
            cluster_name: self.cluster_name.clone(),
            kubernetes_version: self.kubernetes_version.clone(),
            cluster_endpoint: self.apiserver.clone().unwrap_or(defaults.cluster_endpoint),
            cluster_ca: cluster.map(|c| c.server_ca.clone()).unwrap_or_default(),
            seed: self.seed,
            running_after_ms: self.running_after_ms,
            terminated_after_ms: self.terminated_after_ms,
            consistency_ms: self.consistency_ms,
            roles: self.roles.clone(),
            instance_profiles: self.instance_profiles.clone(),
            queue: Some(self.queue.clone()),
            account: self.account.clone(),
            types: self.types.clone(),
            vcpu_quota: self.vcpu_quota,
            template_quota: self.template_quota,
            subnet_addresses: self.subnet_addresses,
            token_ttl_ms: self.token_ttl_ms,
            profile_settles_ms: self.profile_settles_ms,
            catalogue,
            ..Settings::default()
        })
    }

    /// Carries out the control requests of the files.
    fn control(&self, simulator: &Simulator) -> anyhow::Result<()> {
        let failed = |what: &str, path: &Path, error: &dyn std::fmt::Display| {
            anyhow::anyhow!("failed to read the {what} {}: {error}", path.display())
        };
        if let Some(path) = &self.faults {
            let rules: Vec<Rule> =
                serde_saphyr::from_str(&read(path)?).map_err(|error| failed("faults", path, &error))?;
            simulator.control(Control::Faults { rules })?;
        }
        if let Some(path) = &self.policy {
            let policy =
                serde_json::from_str(&read(path)?).map_err(|error| failed("policy", path, &error))?;
            simulator.control(Control::Restrict { key: "*".to_owned(), policy })?;
        }
        if let Some(path) = &self.script {
            let script: Vec<Control> =
                serde_json::from_str(&read(path)?).map_err(|error| failed("script", path, &error))?;
            for control in script {
                simulator.control(control)?;
            }
        }
        Ok(())
    }
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let shutdown = Shutdown::on_signals()?;
    let cluster = args.cluster()?;
    let settings = args.settings(cluster.as_ref())?;
    let (simulator, happenings, fresh) = match &args.journal {
        Some(path) => {
            let Remembering { simulator, happenings, fresh } = Simulator::remembering(settings, path)?;
            (simulator, happenings, fresh)
        }
        None if args.virtual_time => {
            let start = u64::try_from(SystemClock.wall().as_millisecond()).unwrap_or_default();
            let (simulator, happenings) = Simulator::on_virtual_time(settings, start);
            (simulator, happenings, true)
        }
        None => {
            let (simulator, happenings) = Simulator::real(settings);
            (simulator, happenings, true)
        }
    };
    if fresh {
        args.control(&simulator)?;
    }
    let listen = args.listen;
    let listener = tokio::net::TcpListener::bind(listen)
        .await
        .map_err(|error| anyhow::anyhow!("failed to listen on {listen}: {error}"))?;
    // The process that started this one on port 0 reads the port here.
    println!("http://{}", listener.local_addr()?);
    let ticker = tokio::spawn(simulator.clone().tick());
    let kubelets = cluster.map(|cluster| tokio::spawn(kubelet::run(simulator.clone(), cluster, happenings)));
    // Clients hold connections open and poll for up to 20 s; shutdown doesn't wait for them.
    tokio::select! {
        result = axum::serve(listener, router(simulator)) => result?,
        () = shutdown.wait() => {}
    }
    ticker.abort();
    if let Some(kubelets) = kubelets {
        kubelets.abort();
    }
    Ok(())
}

fn read(path: &PathBuf) -> anyhow::Result<String> {
    fs::read_to_string(path).map_err(|error| anyhow::anyhow!("failed to read {}: {error}", path.display()))
}
