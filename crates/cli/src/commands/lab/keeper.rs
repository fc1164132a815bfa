//! Up and down: the keeper runs the lab, other processes read its state.

use std::{
    fs::OpenOptions,
    io::{self, Read as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use croft_testkit::{Assets, ControlPlane, Croft, CroftOptions, Options, Part};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    signal::unix::{SignalKind, signal},
};

use super::{
    folder::{LabFolder, ProcessState, State},
    load::Load,
    progress::Progress,
    real_nodes,
    start::{start_croft, start_plane},
    status::{POLL, UP, process_states, show_up, status},
};
use crate::output::Output;

/// The answer of `up`: keep running without me.
const STAY: &[u8; 5] = b"stay\n";
/// Time to kill all processes at once and remove files.
const DOWN_WITHIN: Duration = Duration::from_secs(30);

/// Contents of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// The control plane alone.
    Bare,
    /// The control plane with simulated nodes, and Croft as processes.
    Croft,
    /// The same with a load.
    Load(Load),
    /// The control plane with real nodes, and Croft from its images.
    RealNodes,
}

impl Contents {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Bare => &["--bare"],
            Self::Croft => &[],
            Self::Load(Load::City) => &["--load", "city"],
            Self::RealNodes => &["--real-node"],
        }
    }
}

/// Starts a keeper, shows its progress, and leaves it running.
pub(super) async fn up(contents: Contents, out: &mut Output) -> anyhow::Result<ExitCode> {
    let folder = LabFolder::find()?;
    if folder.lock()?.is_none() {
        writeln!(out, "The lab runs already.")?;
        return status(out);
    }
    let log = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .open(folder.keeper_log())
        .with_context(|| format!("failed to open {}", folder.keeper_log().display()))?;
    let this = std::env::current_exe().context("failed to find out where this program is")?;
    let mut command = std::process::Command::new(this);
    command.args(["lab", "up", "--foreground", "--leashed"]);
    command.args(contents.flags());
    // A process group of its own: Ctrl-C ends only this process, and the keeper notices that.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
    let mut keeper =
        tokio::process::Command::from(command).spawn().context("failed to start the lab's keeper")?;
    let (Some(mut leash), Some(lines)) = (keeper.stdin.take(), keeper.stdout.take()) else {
        bail!("failed to talk to the lab's keeper");
    };
    let mut lines = BufReader::new(lines).lines();
    let mut up = false;
    while let Some(line) = lines.next_line().await.context("failed to read the lab's progress")? {
        if line == UP {
            up = true;
            break;
        }
        writeln!(out, "{line}")?;
        out.flush()?;
    }
    if !up {
        let status = keeper.wait().await.context("failed to wait for the lab's keeper")?;
        let log = std::fs::read_to_string(folder.keeper_log()).unwrap_or_default();
        bail!("the lab didn't start ({status}): {}", log.trim());
    }
    leash.write_all(STAY).await.context("failed to leave the lab running")?;
    writeln!(out)?;
    status(out)
}

/// Runs a lab until a signal ends it. `leashed`: also until standard input ends, unless it contained `stay`.
pub(super) async fn keep(contents: Contents, leashed: bool, out: &mut Output) -> anyhow::Result<ExitCode> {
    let folder = LabFolder::find()?;
    let Some(_lock) = folder.lock()? else { bail!("the lab runs already: `croft lab status` shows it") };
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    let kept = tokio::select! {
        kept = start_and_watch(&folder, contents, leashed, out) => kept,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        () = parent_gone(leashed) => Ok(()),
    };
    // Dropping the future above has ended all processes.
    folder.clear()?;
    kept.map(|()| ExitCode::SUCCESS)
}

/// Returns when the parent has ended without writing `stay`.
async fn parent_gone(leashed: bool) {
    if !leashed {
        return std::future::pending().await;
    }
    let listening = tokio::task::spawn_blocking(|| {
        let mut said = [0; STAY.len()];
        io::stdin().read_exact(&mut said).is_ok() && said == *STAY
    });
    if matches!(listening.await, Ok(true)) {
        std::future::pending().await
    }
}

async fn start_and_watch(
    folder: &LabFolder,
    contents: Contents,
    leashed: bool,
    out: &mut Output,
) -> anyhow::Result<()> {
    if contents == Contents::RealNodes {
        return real_nodes::outside(folder, leashed, out).await;
    }
    let mut progress = Progress::new(out);
    let plane_folder = folder.fresh_plane()?;
    let mut plane = start_plane(Options::default().folder(plane_folder), &mut progress).await?;
    let options = match contents {
        Contents::Croft => Some(CroftOptions::find()?),
        Contents::Load(load) => Some(load.options(CroftOptions::find()?)),
        Contents::Bare | Contents::RealNodes => None,
    };
    let (mut croft, page) = match options {
        Some(options) => {
            let (croft, page) = start_croft(&plane, options, &mut progress).await?;
            (Some(croft), Some(page))
        }
        None => (None, None),
    };
    let mut state = State {
        keeper: std::process::id(),
        up: true,
        kubeconfig: plane.admin_kubeconfig(),
        kubectl: Assets::from_env()?.binary("kubectl")?,
        api_server: plane.url(),
        cloud: match croft.as_mut() {
            Some(croft) => Some(format!("http://{}", croft.address(Part::Cloud)?)),
            None => None,
        },
        page,
        processes: processes(&mut plane, croft.as_mut())?,
    };
    folder.write_state(&state)?;
    let _load = match (contents, croft.as_mut()) {
        (Contents::Load(load), Some(croft)) => Some(load.start(&plane, croft.address(Part::Cloud)?).await?),
        _ => None,
    };
    show_up(&state, leashed, progress.out())?;
    loop {
        tokio::time::sleep(POLL).await;
        let now = processes(&mut plane, croft.as_mut())?;
        if now != state.processes {
            state.processes = now;
            folder.write_state(&state)?;
        }
    }
}

fn processes(plane: &mut ControlPlane, croft: Option<&mut Croft>) -> anyhow::Result<Vec<ProcessState>> {
    let mut all = plane.status()?;
    if let Some(croft) = croft {
        all.extend(croft.status()?);
    }
    Ok(process_states(all))
}

/// Ends the lab.
pub(super) async fn down(out: &mut Output) -> anyhow::Result<ExitCode> {
    let folder = LabFolder::find()?;
    if folder.lock()?.is_some() {
        folder.clear()?;
        writeln!(out, "No lab is running.")?;
        return Ok(ExitCode::SUCCESS);
    }
    let state =
        folder.state()?.ok_or_else(|| anyhow!("the lab is starting or ending: try again in a moment"))?;
    let keeper = i32::try_from(state.keeper).ok().and_then(Pid::from_raw);
    let keeper = keeper.ok_or_else(|| anyhow!("failed to read the keeper's process id {}", state.keeper))?;
    // The lock is held, so the keeper runs, and the id is its own.
    kill_process(keeper, Signal::TERM).map_err(io::Error::from).context("failed to end the lab's keeper")?;
    let released = tokio::time::timeout(DOWN_WITHIN, async {
        loop {
            if folder.lock()?.is_some() {
                return Ok::<_, anyhow::Error>(());
            }
            tokio::time::sleep(POLL / 10).await;
        }
    })
    .await;
    match released {
        Ok(released) => released?,
        Err(_) => bail!(
            "the lab's keeper (process {}) didn't end within {} s: end it with `kill -KILL {}`, which ends all of the lab",
            state.keeper,
            DOWN_WITHIN.as_secs(),
            state.keeper,
        ),
    }
    folder.clear()?;
    writeln!(out, "The lab is down.")?;
    Ok(ExitCode::SUCCESS)
}
