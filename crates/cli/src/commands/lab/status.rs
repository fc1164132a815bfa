//! The state of a lab: its keeper writes it down, and its user sees it.

use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use croft_testkit::Status;

use super::folder::{LabFolder, ProcessState, State};
use crate::{
    output::Output,
    table::{BAD, GOOD, Table},
};

/// The keeper's last line of progress, after which `up` stops reading.
pub(super) const UP: &str = "croft-lab-is-up";
/// Between two checks of the lab's processes, or of the lock.
pub(super) const POLL: Duration = Duration::from_millis(500);

/// The processes as the state has them.
pub(super) fn process_states(processes: Vec<Status>) -> Vec<ProcessState> {
    let state_of = |Status { name, pid, running, log }| ProcessState { name, pid, running, log };
    processes.into_iter().map(state_of).collect()
}

/// Shows that everything is up: to `up` if it waits for that, else to the user.
pub(super) fn show_up(state: &State, leashed: bool, out: &mut Output) -> io::Result<()> {
    if leashed {
        writeln!(out, "{UP}")?;
        out.flush()
    } else {
        show(state, out)
    }
}

/// Shows the processes. The exit code is 1 unless all of them run.
pub(super) fn status(out: &mut Output) -> anyhow::Result<ExitCode> {
    let folder = LabFolder::find()?;
    if folder.lock()?.is_some() {
        writeln!(out, "No lab is running. `croft lab up` starts one.")?;
        return Ok(ExitCode::FAILURE);
    }
    let Some(state) = folder.state()? else {
        writeln!(out, "The lab is starting or ending.")?;
        return Ok(ExitCode::FAILURE);
    };
    show(&state, out)?;
    let all = state.processes.iter().all(|process| process.running);
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(state: &State, out: &mut Output) -> io::Result<()> {
    let mut table = Table::new("PROCESS|PID>|STATE|LOG");
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
    if let Some(page) = &state.page {
        writeln!(out, "The page:     {page}")?;
    }
    writeln!(out, "Stop it:      croft lab down")?;
    out.flush()
}
