//! The network of two nodes: a pair of devices, a namespace for the second, routes to each other's pods.

use std::{net::Ipv4Addr, process::Stdio};

use anyhow::{Context as _, ensure};

use crate::{
    control_plane::ControlPlane,
    process::{Process, Recipe},
    wait::{Seen, until},
};

/// The address of node-1, which has the control plane too.
pub const FIRST: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 1);
/// The address of node-2.
pub const SECOND: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 2);
/// All pods.
pub const PODS: &str = "10.244.0.0/16";

/// Settings of the kernel that a kubelet expects, and would otherwise write for the whole computer. Source:
/// k8s.io/component-helpers/node/util/sysctl.
const KERNEL: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// The network of pods of a node.
#[must_use]
pub fn pods_of(node: u8) -> String {
    format!("10.244.{node}.0/24")
}

/// Runs a program of the system to its end.
///
/// # Errors
/// If it fails, with what it said.
pub async fn run(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let shown = || format!("{program} {}", arguments.join(" "));
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .await
        .with_context(|| format!("failed to start {}", shown()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} failed: {}", shown(), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Prepares this namespace for the control plane. Folders that node programs write to, wherever they are told
/// to keep their files, are hidden by empty ones: nothing of the computer changes.
///
/// # Errors
/// If a device or mount can't be made.
pub async fn prepare() -> anyhow::Result<()> {
    for folder in ["/run", "/var/log", "/var/lib"] {
        run("mount", &["-t", "tmpfs", "tmpfs", folder]).await?;
    }
    for (setting, value) in KERNEL {
        let file = format!("/run/{}", setting.replace('/', "."));
        std::fs::write(&file, format!("{value}\n")).with_context(|| format!("failed to write {file}"))?;
        run("mount", &["--bind", &file, &format!("/proc/sys/{setting}")]).await?;
    }
    run("ip", &["link", "set", "lo", "up"]).await?;
    // A device with the first address, until the second node is connected.
    run("ip", &["link", "add", "to-node-2", "type", "veth", "peer", "name", "to-node-1"]).await?;
    run("ip", &["address", "add", &format!("{FIRST}/24"), "dev", "to-node-2"]).await?;
    run("ip", &["link", "set", "to-node-2", "up"]).await.map(drop)
}

/// Makes the second node's namespace and connects it. The namespace ends with the returned process.
///
/// # Errors
/// If a device or route can't be made.
pub async fn connect(plane: &ControlPlane, pause: &std::path::Path) -> anyhow::Result<Process> {
    let holder = Recipe::new("node-2-network", "unshare", plane.log("node-2-network"))
        .arguments(["--net"])
        .arguments([pause.as_os_str()]);
    let holder = plane.spawn(&holder)?;
    let id = holder.pid().to_string();
    until_unshared(&id).await?;
    run("ip", &["link", "set", "to-node-1", "netns", &id]).await?;
    let (first, second) = (FIRST.to_string(), SECOND.to_string());
    let inside = async |arguments: &[&str]| {
        let all = [&["--net", "--target", &id, "ip"], arguments].concat();
        run("nsenter", &all).await
    };
    inside(&["link", "set", "lo", "up"]).await?;
    inside(&["address", "add", &format!("{SECOND}/24"), "dev", "to-node-1"]).await?;
    inside(&["link", "set", "to-node-1", "up"]).await?;
    inside(&["route", "add", &pods_of(1), "via", &first]).await?;
    // A kubelet finds its address by the default route. It leads to the other node, and ends there.
    inside(&["route", "add", "default", "via", &first]).await?;
    run("ip", &["route", "add", &pods_of(2), "via", &second]).await?;
    run("ip", &["route", "add", "default", "via", &second]).await?;
    for command in [vec!["sysctl"], vec!["nsenter", "--net", "--target", &id, "sysctl"]] {
        let (program, arguments) = command.split_first().context("an empty command")?;
        let settings = ["-q", "-w", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0"];
        run(program, &[arguments, &settings].concat()).await?;
    }
    Ok(holder)
}

/// Waits until the process `id` has left this process's network namespace.
async fn until_unshared(id: &str) -> anyhow::Result<()> {
    let namespace = |id: &str| std::fs::read_link(format!("/proc/{id}/ns/net"));
    let own = namespace("self")?;
    until("a network namespace for node-2", std::time::Duration::from_secs(30), || async {
        let found = namespace(id)?;
        Ok::<_, std::io::Error>(Seen::from_option((found != own).then_some(()), "the old one"))
    })
    .await
    .context("failed to make the network namespace of node-2")
}
