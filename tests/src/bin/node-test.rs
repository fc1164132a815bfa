//! `make node-test`: Croft's own Deployments on two real nodes, in namespaces of their own, as root.

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use croft_tests::node::{
    Parts,
    inside::{self, Given},
    outside,
};

/// Runs Croft's webhook and controller from their images on two real nodes.
#[derive(Parser)]
struct Args {
    /// Folder of kubelet, kube-proxy, containerd and the network plugins, as node/build.sh prints it
    #[arg(long, value_name = "FOLDER")]
    programs: PathBuf,
    /// Folder of the images
    #[arg(long, value_name = "FOLDER", default_value = "target/images")]
    images: PathBuf,
    /// Folder of ec2-sim
    #[arg(long, value_name = "FOLDER", default_value = "target/release")]
    binaries: PathBuf,
    /// Run in the present namespaces, with this cgroup
    #[arg(long, hide = true, requires = "folder")]
    inside: Option<String>,
    /// Folder of the inner half's files
    #[arg(long, hide = true)]
    folder: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    croft_runtime::process::install_crypto();
    let Args { programs, images, binaries, inside, folder } = Args::parse();
    let parts = Parts { programs, images, binaries };
    match (inside, folder) {
        (Some(cgroups), Some(folder)) => inside::run(&Given { parts, cgroups, folder }).await,
        _ => outside::run(&parts, &std::env::args().skip(1).collect::<Vec<_>>()).await,
    }
}
