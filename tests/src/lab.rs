//! `croft lab` as a user runs it, with a state folder of its own, so that the user's lab is not affected.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use croft_testkit::{
    CroftOptions,
    wait::{Seen, until},
};

const SOON: Duration = Duration::from_secs(60);

/// The program `croft`, with its state and temporary files below `state`.
///
/// # Errors
/// If the binaries can't be found.
pub fn croft(state: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(CroftOptions::find()?.binaries.join("croft"));
    command.env("XDG_STATE_HOME", state).env("TMPDIR", state).stdin(Stdio::null());
    Ok(command)
}

/// Both streams of a command.
#[must_use]
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The ways into a lab, as `croft lab up` prints them.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The file for `KUBECONFIG`.
    pub kubeconfig: String,
    /// The program kubectl.
    pub kubectl: String,
}

impl Shown {
    /// Reads the output of `croft lab up`.
    ///
    /// # Errors
    /// If it names no kubeconfig or kubectl.
    pub fn read(printed: &str) -> anyhow::Result<Self> {
        let after = |mark: &str| {
            let found = printed.lines().find_map(|line| Some(line.split_once(mark)?.1.trim().to_owned()));
            found.with_context(|| format!("`croft lab up` printed no {mark:?}: {printed}"))
        };
        Ok(Self { kubeconfig: after("export KUBECONFIG=")?, kubectl: after("kubectl:")? })
    }

    /// kubectl with these arguments on the lab.
    #[must_use]
    pub fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig);
        command
    }
}

/// Processes whose command line names a path under `folder`.
fn processes_of(folder: &Path) -> anyhow::Result<Vec<String>> {
    let list = Command::new("ps").args(["-axww", "-o", "pid=,stat=,args="]).output()?;
    let folder = folder.display().to_string();
    Ok(text(&list).lines().filter(|line| line.contains(&folder)).map(str::to_owned).collect())
}

/// Waits until no process names a path under `state`.
///
/// # Errors
/// If one is left, with its command line.
pub async fn nothing_is_left(state: &Path) -> anyhow::Result<()> {
    until("the end of every process", SOON, async || {
        let left = processes_of(state)?;
        Ok::<_, anyhow::Error>(Seen::from_option(left.is_empty().then_some(()), left.join("; ")))
    })
    .await?;
    Ok(())
}
