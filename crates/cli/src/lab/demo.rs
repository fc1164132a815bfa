//! `croft lab demo`: two tenants, unchanged manifests, their own machines.

use std::{collections::BTreeSet, fs, io::Write as _, path::Path, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use croft_testkit::{ControlPlane, Croft, Options};
use kube::Client;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::Instant,
};

use super::{progress::Progress, start_croft, start_plane, view::View};
use crate::{
    output::Output,
    table::{GOOD, NOTE},
};

/// Between two looks at the cluster.
const POLL: Duration = Duration::from_millis(250);
/// From apply to every pod Running; seconds, when nothing is wrong.
const RUNNING_WITHIN: Duration = Duration::from_secs(180);
/// consolidateAfter of the example, and time to drain and terminate.
const GONE_WITHIN: Duration = Duration::from_secs(180);
/// What a shell answers for a command that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// The example, and what must come of it.
const EXAMPLE: &str = "examples/two-tenants";
const TENANTS: [Ground; 2] = [
    Ground { namespace: "tenant-a", pool: "pool-a", pods: 6 },
    Ground { namespace: "tenant-b", pool: "pool-b", pods: 3 },
];

struct Ground {
    namespace: &'static str,
    pool: &'static str,
    pods: usize,
}

/// Runs it, until it ends or somebody has seen enough.
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
    // The control plane went with the future: dropping it ends every process.
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
    progress.heading("A real control plane, an EC2 simulator, and Croft")?;
    let mut plane = start_plane(Options::default(), &mut progress).await?;
    let mut croft = start_croft(&plane, &mut progress).await?;
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
    .context("not every pod got a machine")?;
    check_grounds(&view)?;
    writeln!(progress.out())?;
    view.table().write(progress.out())?;
    writeln!(
        progress.out(),
        "\n{GOOD}Every pod runs on its own pool's nodes.{GOOD:#} Together ${} per hour.",
        view.cost()
    )?;

    let [a, b] = &TENANTS;
    progress.heading(&format!("{} goes to 0; its nodes go, {}'s stay", a.namespace, b.namespace))?;
    let kept = view.nodes(b.pool);
    plane.kubectl(["scale", "deployment", "--all", "--replicas=0", "-n", a.namespace]).await?;
    progress.line("scaled to 0; a node counts as given up after consolidateAfter, 30s in this example")?;
    let deadline = Instant::now() + GONE_WITHIN;
    let after = follow(&client, &mut plane, &mut croft, &mut progress, deadline, |view| {
        !view.claims.values().any(|claim| claim.pool == a.pool)
    })
    .await
    .with_context(|| format!("{}'s nodes are still there", a.namespace))?;
    let left = after.nodes(b.pool);
    if left != kept {
        bail!("{}'s nodes changed from {kept:?} to {left:?}", b.namespace);
    }
    writeln!(progress.out())?;
    after.table().write(progress.out())?;
    writeln!(
        progress.out(),
        "\n{GOOD}{}'s nodes are gone, {}'s {} stayed.{GOOD:#} Now ${} per hour.",
        a.namespace,
        b.namespace,
        left.len(),
        after.cost()
    )?;
    farewell(progress.out())
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

/// Shows what happens until `done`.
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
        for line in now.since(&before) {
            progress.line(&line)?;
        }
        if done(&now) {
            return Ok(now);
        }
        if Instant::now() > deadline {
            now.table().write(progress.out())?;
            let logs = plane.folder().join("logs");
            bail!(
                "gave up waiting; the table shows what is there (the logs in {} go with this process)",
                logs.display()
            );
        }
        before = now;
        tokio::time::sleep(POLL).await;
    }
}

/// No pod outside its tenant's pool: what all of this is for.
fn check_grounds(view: &View) -> anyhow::Result<()> {
    for ground in &TENANTS {
        let own: BTreeSet<_> = view.nodes(ground.pool);
        for ((namespace, name), pod) in &view.pods {
            let at_home = pod.node.as_ref().is_some_and(|node| own.contains(node));
            if (namespace == ground.namespace) != at_home {
                bail!("{namespace}/{name} runs on {:?}, and {}'s nodes are {own:?}", pod.node, ground.pool);
            }
        }
    }
    Ok(())
}

fn farewell(out: &mut Output) -> anyhow::Result<()> {
    writeln!(out, "\nThis lab ends now, and nothing of it stays. To keep one and look around:\n")?;
    writeln!(
        out,
        "  {NOTE}target/debug/croft lab up{NOTE:#}        starts one and prints the KUBECONFIG to use"
    )?;
    writeln!(out, "  kubectl apply -f manifests/examples/two-tenants")?;
    writeln!(out, "  kubectl get tenants,tenantpools,nodeclaims,nodes")?;
    writeln!(out, "  {NOTE}target/debug/croft lab status{NOTE:#}    what runs, and where its logs are")?;
    writeln!(out, "  {NOTE}target/debug/croft lab down{NOTE:#}      stops it")?;
    out.flush()?;
    Ok(())
}
