//! `croft lab demo`: two tenants with unchanged manifests get their own instances.

use std::{collections::BTreeSet, fs, io::Write as _, path::Path, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use croft_testkit::{ControlPlane, Croft, CroftOptions, Options};
use kube::Client;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::Instant,
};

use super::{
    progress::Progress,
    start::{start_croft, start_plane},
    view::View,
};
use crate::{
    output::Output,
    table::{GOOD, NOTE},
};

/// Between two reads of the cluster.
const POLL: Duration = Duration::from_millis(250);
/// From apply to every pod Running; normally seconds.
const RUNNING_WITHIN: Duration = Duration::from_secs(180);
/// consolidateAfter of the example, and time to drain and terminate.
const GONE_WITHIN: Duration = Duration::from_secs(180);
/// A shell's exit code for a command that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// The example, and its expected outcome.
const EXAMPLE: &str = "examples/two-tenants";
const TENANTS: [ExampleTenant; 2] = [
    ExampleTenant { namespace: "tenant-a", pool: "pool-a", pods: 6 },
    ExampleTenant { namespace: "tenant-b", pool: "pool-b", pods: 3 },
];

struct ExampleTenant {
    namespace: &'static str,
    pool: &'static str,
    pods: usize,
}

/// Runs the demonstration until it ends or is interrupted.
pub(super) async fn run(out: &mut Output) -> anyhow::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    let stopped = tokio::select! {
        shown = show(out) => {
            shown?;
            None
        }
        _ = interrupt.recv() => Some("Ctrl-C"),
        _ = terminate.recv() => Some("SIGTERM"),
    };
    // Dropping the future has ended every process.
    match stopped {
        None => Ok(ExitCode::SUCCESS),
        Some(by) => {
            writeln!(out, "\nStopped by {by}. Nothing is left running.")?;
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

async fn show(out: &mut Output) -> anyhow::Result<()> {
    let mut progress = Progress::new(out);
    progress.heading("A real control plane, an EC2 simulator, and Croft with its page")?;
    let mut plane = start_plane(Options::default(), &mut progress).await?;
    let (mut croft, _) = start_croft(&plane, CroftOptions::find()?, &mut progress).await?;
    let client = plane.admin().await?;

    progress.heading(
        "Two tenants, their pools, and three ordinary Deployments (manifests/examples/two-tenants)",
    )?;
    apply(&plane, croft.manifests(), &mut progress).await?;
    let deadline = Instant::now() + RUNNING_WITHIN;
    let view = follow(&client, &mut plane, &mut croft, &mut progress, deadline, |view| {
        TENANTS.iter().all(|t| view.count(t.namespace) == (t.pods, t.pods))
    })
    .await
    .context("not every pod got a node")?;
    check_isolation(&view)?;
    writeln!(progress.out())?;
    view.table().write(progress.out())?;
    writeln!(
        progress.out(),
        "\n{GOOD}Every pod runs on its own pool's nodes.{GOOD:#} Together ${} per hour.",
        view.cost()
    )?;

    let [a, b] = &TENANTS;
    progress.heading(&format!(
        "{} scales to 0; its nodes are removed, {}'s are kept",
        a.namespace, b.namespace
    ))?;
    let kept = view.nodes(b.pool);
    plane.kubectl(["scale", "deployment", "--all", "--replicas=0", "-n", a.namespace]).await?;
    progress.line("scaled to 0; an empty node is removed after consolidateAfter, 30s in this example")?;
    let deadline = Instant::now() + GONE_WITHIN;
    let after = follow(&client, &mut plane, &mut croft, &mut progress, deadline, |view| {
        !view.claims.values().any(|claim| claim.pool == a.pool)
    })
    .await
    .with_context(|| format!("{}'s nodes still exist", a.namespace))?;
    let left = after.nodes(b.pool);
    if left != kept {
        bail!("{}'s nodes changed from {kept:?} to {left:?}", b.namespace);
    }
    writeln!(progress.out())?;
    after.table().write(progress.out())?;
    writeln!(
        progress.out(),
        "\n{GOOD}{}'s nodes are removed, {}'s {} are kept.{GOOD:#} Now ${} per hour.",
        a.namespace,
        b.namespace,
        left.len(),
        after.cost()
    )?;
    write_next_steps(progress.out())
}

/// Applies the example as a user would, file by file.
async fn apply(plane: &ControlPlane, manifests: &Path, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    for file in ["platform.yaml", "workloads.yaml"] {
        let path = manifests.join(EXAMPLE).join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        plane.apply(&text).await?;
        progress.line(&format!("applied {file}"))?;
    }
    Ok(())
}

/// Writes every change of the cluster until `done`.
async fn follow(
    client: &Client,
    plane: &mut ControlPlane,
    croft: &mut Croft,
    progress: &mut Progress<'_>,
    deadline: Instant,
    done: impl Fn(&View) -> bool,
) -> anyhow::Result<View> {
    let mut before = View::read(client).await?;
    loop {
        plane.check()?;
        croft.check()?;
        let now = View::read(client).await?;
        for line in now.changes_since(&before) {
            progress.line(&line)?;
        }
        if done(&now) {
            return Ok(now);
        }
        if Instant::now() > deadline {
            now.table().write(progress.out())?;
            let logs = plane.folder().join("logs");
            bail!(
                "timed out; the table shows the present state (the logs in {} are removed with this process)",
                logs.display()
            );
        }
        before = now;
        tokio::time::sleep(POLL).await;
    }
}

/// The invariant: pods of a tenant run on its pool's nodes, and no other pods do.
fn check_isolation(view: &View) -> anyhow::Result<()> {
    for tenant in &TENANTS {
        let own: BTreeSet<_> = view.nodes(tenant.pool);
        for ((namespace, name), pod) in &view.pods {
            let on_own_nodes = pod.node.as_ref().is_some_and(|node| own.contains(node));
            if (namespace == tenant.namespace) != on_own_nodes {
                bail!("{namespace}/{name} runs on {:?}, and {}'s nodes are {own:?}", pod.node, tenant.pool);
            }
        }
    }
    Ok(())
}

fn write_next_steps(out: &mut Output) -> anyhow::Result<()> {
    writeln!(out, "\nThis lab ends now, and nothing of it is left. To keep one running:\n")?;
    writeln!(
        out,
        "  {NOTE}target/debug/croft lab up{NOTE:#}        starts one and prints the KUBECONFIG to use"
    )?;
    writeln!(out, "  kubectl apply -f manifests/examples/two-tenants")?;
    writeln!(out, "  kubectl get tenants,tenantpools,nodeclaims,nodes")?;
    writeln!(out, "  {NOTE}target/debug/croft lab status{NOTE:#}    processes and their logs")?;
    writeln!(out, "  {NOTE}target/debug/croft lab down{NOTE:#}      stops it")?;
    out.flush()?;
    Ok(())
}
