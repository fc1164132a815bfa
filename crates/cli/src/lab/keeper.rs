//! Up, down and status: one process keeps the lab, the others talk to it.

use std::{
    fs::OpenOptions,
    io::{self, Read as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use croft_testkit::{Assets, ControlPlane, Croft, Options, Part, Status};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    signal::unix::{SignalKind, signal},
};

use super::{
    place::{Place, ProcessState, State},
    progress::Progress,
    start_croft, start_plane,
};
use crate::{
    output::Output,
    table::{Align, BAD, GOOD, Table},
};

/// The keeper's last line of progress: what follows is nobody's to read.
const UP: &str = "croft-lab-is-up";
/// What `up` answers to it.
const STAY: &[u8; 5] = b"stay\n";
/// Everything is killed at once, and files are removed: seconds.
const DOWN_WITHIN: Duration = Duration::from_secs(30);
/// Between two looks at the lab's processes, or at the lock.
const POLL: Duration = Duration::from_millis(500);

/// Starts a keeper, shows its progress, and leaves it running.
pub(super) async fn up(bare: bool, out: &mut Output) -> anyhow::Result<ExitCode> {
    let place = Place::find()?;
    if place.lock()?.is_none() {
        writeln!(out, "The lab runs already.")?;
        return status(out);
    }
    let log = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .open(place.keeper_log())
        .with_context(|| format!("failed to open {}", place.keeper_log().display()))?;
    let this = std::env::current_exe().context("failed to find out where this program is")?;
    let mut command = std::process::Command::new(this);
    command.args(["lab", "up", "--foreground", "--leashed"]);
    if bare {
        command.arg("--bare");
    }
    // A group of its own: Ctrl-C here ends this process, whose end the keeper notices.
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
        let said = std::fs::read_to_string(place.keeper_log()).unwrap_or_default();
        bail!("the lab didn't start ({status}): {}", said.trim());
    }
    leash.write_all(STAY).await.context("failed to leave the lab running")?;
    writeln!(out)?;
    status(out)
}

/// Keeps a lab until it is told to end. `leashed`: also until standard input ends, unless it said to stay.
pub(super) async fn keep(bare: bool, leashed: bool, out: &mut Output) -> anyhow::Result<ExitCode> {
    let place = Place::find()?;
    let Some(_lock) = place.lock()? else { bail!("the lab runs already: `croft lab status` shows it") };
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    let kept = tokio::select! {
        kept = start_and_watch(&place, bare, leashed, out) => kept,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        () = let_go(leashed) => Ok(()),
    };
    // Everything that ran is gone with the future above.
    place.clear()?;
    kept.map(|()| ExitCode::SUCCESS)
}

/// Returns when the one that started this is gone without having said to stay.
async fn let_go(leashed: bool) {
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

async fn start_and_watch(place: &Place, bare: bool, leashed: bool, out: &mut Output) -> anyhow::Result<()> {
    let mut progress = Progress::new(out);
    let folder = place.fresh_plane()?;
    let mut plane = start_plane(Options::default().folder(folder), &mut progress).await?;
    let mut croft = if bare { None } else { Some(start_croft(&plane, &mut progress).await?) };
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
        processes: processes(&mut plane, croft.as_mut())?,
    };
    place.say(&state)?;
    if leashed {
        writeln!(progress.out(), "{UP}")?;
        progress.out().flush()?;
    } else {
        show(&state, progress.out())?;
    }
    loop {
        tokio::time::sleep(POLL).await;
        let now = processes(&mut plane, croft.as_mut())?;
        if now != state.processes {
            state.processes = now;
            place.say(&state)?;
        }
    }
}

fn processes(plane: &mut ControlPlane, croft: Option<&mut Croft>) -> anyhow::Result<Vec<ProcessState>> {
    let mut all = plane.status()?;
    if let Some(croft) = croft {
        all.extend(croft.status()?);
    }
    let said = |Status { name, pid, running, log }| ProcessState { name, pid, running, log };
    Ok(all.into_iter().map(said).collect())
}

/// Ends the lab.
pub(super) async fn down(out: &mut Output) -> anyhow::Result<ExitCode> {
    let place = Place::find()?;
    if place.lock()?.is_some() {
        place.clear()?;
        writeln!(out, "No lab is running.")?;
        return Ok(ExitCode::SUCCESS);
    }
    let state =
        place.state()?.ok_or_else(|| anyhow!("the lab is starting or ending: try again in a moment"))?;
    let keeper = i32::try_from(state.keeper).ok().and_then(Pid::from_raw);
    let keeper = keeper.ok_or_else(|| anyhow!("failed to read the keeper's process id {}", state.keeper))?;
    // The lock is held, so the process that wrote its id is alive, and the id is its own.
    kill_process(keeper, Signal::TERM).map_err(io::Error::from).context("failed to end the lab's keeper")?;
    let released = tokio::time::timeout(DOWN_WITHIN, async {
        loop {
            if place.lock()?.is_some() {
                return Ok::<_, anyhow::Error>(());
            }
            tokio::time::sleep(POLL / 10).await;
        }
    })
    .await;
    match released {
        Ok(released) => released?,
        Err(_) => bail!(
            "the lab's keeper (process {}) didn't end within {} s: end it with `kill -KILL {}`, and all of the lab goes with it",
            state.keeper,
            DOWN_WITHIN.as_secs(),
            state.keeper,
        ),
    }
    place.clear()?;
    writeln!(out, "The lab is down.")?;
    Ok(ExitCode::SUCCESS)
}

/// Says what runs. Exit code 1 if the lab doesn't, or not all of it.
pub(super) fn status(out: &mut Output) -> anyhow::Result<ExitCode> {
    let place = Place::find()?;
    if place.lock()?.is_some() {
        writeln!(out, "No lab is running. `croft lab up` starts one.")?;
        return Ok(ExitCode::FAILURE);
    }
    let Some(state) = place.state()? else {
        writeln!(out, "The lab is starting or ending.")?;
        return Ok(ExitCode::FAILURE);
    };
    show(&state, out)?;
    let all = state.processes.iter().all(|process| process.running);
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(state: &State, out: &mut Output) -> io::Result<()> {
    let mut table = Table::new(&[
        ("PROCESS", Align::Left),
        ("PID", Align::Right),
        ("STATE", Align::Left),
        ("LOG", Align::Left),
    ]);
    for process in &state.processes {
        let (word, style) = if process.running { ("running", GOOD) } else { ("ended", BAD) };
        table.styled(vec![
            (process.name.clone(), Default::default()),
            (process.pid.to_string(), Default::default()),
            (word.to_owned(), style),
            (process.log.display().to_string(), Default::default()),
        ]);
    }
    table.write(out)?;
    writeln!(out, "\nUse it:       export KUBECONFIG={}", state.kubeconfig.display())?;
    writeln!(out, "kubectl:      {}", state.kubectl.display())?;
    if let Some(cloud) = &state.cloud {
        writeln!(out, "EC2 API:      {cloud}   (AWS_ENDPOINT_URL; state at {cloud}/_control/state)")?;
        writeln!(out, "Two tenants:  kubectl apply -f manifests/examples/two-tenants")?;
        writeln!(out, "Look around:  kubectl get tenants,tenantpools,nodeclaims,nodes")?;
    }
    writeln!(out, "Stop it:      croft lab down")?;
    out.flush()
}
