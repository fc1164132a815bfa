//! The outer half: the namespaces and cgroups that a cluster of real nodes runs in.

use std::{ffi::OsStr, path::PathBuf, process::ExitStatus, process::Stdio};

use anyhow::Context as _;
use tokio::process::{Child, ChildStdout, Command};

use crate::{nodes::cgroups::Cgroups, reaper::Reaper};

/// Namespaces of network, mounts and processes, in which this program runs again. Dropping it ends everything in them.
#[derive(Debug)]
pub struct Namespaces {
    // In this order: processes end before their cgroups are removed.
    child: Child,
    id: u32,
    reaper: Reaper,
    _cgroups: Cgroups,
}

/// Arguments of the inner half, which is this program.
#[derive(Clone, Debug)]
pub struct Inside {
    /// The cgroup of both nodes.
    pub cgroups: String,
    /// The folder of all files.
    pub folder: PathBuf,
}

impl Namespaces {
    /// Runs this program in new namespaces, with `arguments`, `--inside=CGROUP` and `--folder=FOLDER`. `remove`: the folder is
    /// removed with this process.
    ///
    /// # Errors
    /// If the namespaces or cgroups can't be made.
    pub fn start<A: AsRef<OsStr>>(
        arguments: impl IntoIterator<Item = A>,
        folder: PathBuf,
        remove: bool,
        output: Stdio,
    ) -> anyhow::Result<Self> {
        let cgroups = Cgroups::create()?;
        let this = std::env::current_exe().context("failed to find out where this program is")?;
        let reaper = Reaper::start()?;
        if remove {
            reaper.remove(&folder)?;
        }
        // The new process is the first of its process namespace: everything in there ends with it. --kill-child ends it with
        // unshare, and the reaper ends unshare with this process.
        let mut command = Command::new("unshare");
        command
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["--propagation", "private"])
            .arg(this)
            .args(arguments)
            .arg(format!("--inside={}", cgroups.name()))
            .arg(format!("--folder={}", folder.display()))
            .stdin(Stdio::null())
            .stdout(output)
            .process_group(0)
            .kill_on_drop(true);
        let child = command.spawn().context("failed to start unshare")?;
        let id = child.id().context("unshare has no process id")?;
        reaper.watch(id)?;
        Ok(Self { child, id, reaper, _cgroups: cgroups })
    }

    /// The inner half's standard output, once, if it was asked for.
    pub fn take_output(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Waits until the inner half ends by itself.
    ///
    /// # Errors
    /// If it can't be waited for.
    pub async fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        self.child.wait().await.context("failed to wait for unshare")
    }

    /// Ends everything in the namespaces.
    ///
    /// # Errors
    /// If it can't be ended.
    pub async fn end(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("failed to end unshare")?;
        self.reaper.forget(self.id)?;
        Ok(())
    }
}
