//! One child process: log, state, end.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::{error::Error, reaper::Reaper};

/// Between two checks of a process that should end.
const POLL: Duration = Duration::from_millis(5);
/// Bytes of a log's end that are read after a failure.
const TAIL_BYTES: u64 = 64 * 1024;
/// Lines of it that are shown.
const TAIL_LINES: usize = 25;

/// Waits for a line before it becomes the program: until the reaper knows it, and never if the parent dies first.
const WAIT_FOR_GO: &str = r#"read -r go && exec "$@" </dev/null"#;

/// The command of a process.
#[derive(Clone, Debug)]
pub struct Recipe {
    name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    log: PathBuf,
}

impl Recipe {
    /// `name` is for messages; output is appended to `log`.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>, log: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            log: log.into(),
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn arguments<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn environment(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Path of the log.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Name of the process.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts it, in its own process group, which `reaper` kills at the end.
    pub fn start(&self, reaper: &Reaper) -> Result<Process, Error> {
        let start = || format!("start {} ({})", self.name, self.program.display());
        if let Some(folder) = self.log.parent() {
            fs::create_dir_all(folder).map_err(Error::io(format!("make the folder {}", folder.display())))?;
        }
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(Error::io(format!("open the log {}", self.log.display())))?;
        let copy = log.try_clone().map_err(Error::io(start()))?;
        let started_at = log.metadata().map_err(Error::io(start()))?.len();
        let mut child = Command::new("sh")
            .args(["-c", WAIT_FOR_GO, "croft-lab"])
            .arg(&self.program)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(copy)
            .process_group(0)
            .spawn()
            .map_err(Error::io(start()))?;
        let mut gate = child.stdin.take();
        let process = Process {
            recipe: self.clone(),
            child,
            reaper: reaper.clone(),
            log_start: started_at,
            ended: None,
        };
        reaper.watch(process.pid())?;
        if let Some(gate) = gate.as_mut() {
            gate.write_all(b"go\n").map_err(Error::io(start()))?;
        }
        Ok(process)
    }
}

/// State of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// False once it has ended.
    pub running: bool,
    /// Path of its log.
    pub log: PathBuf,
}

/// A running process. Dropping it kills its group.
#[derive(Debug)]
pub struct Process {
    recipe: Recipe,
    child: Child,
    reaper: Reaper,
    log_start: u64,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Name of the process.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.recipe.name
    }

    /// Its process id, which is also its group's.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its command.
    #[must_use]
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Path of its log.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.recipe.log
    }

    /// An error with the end of the log if it has ended.
    pub fn check(&mut self) -> Result<(), Error> {
        match self.poll()? {
            None => Ok(()),
            Some(status) => Err(Error::Exited {
                name: self.recipe.name.clone(),
                status: status.to_string(),
                log: self.recipe.log.clone(),
                tail: self.tail(),
            }),
        }
    }

    /// Its present state.
    pub fn status(&mut self) -> Result<Status, Error> {
        let running = self.poll()?.is_none();
        let Recipe { name, log, .. } = &self.recipe;
        Ok(Status { name: name.clone(), pid: self.child.id(), running, log: log.clone() })
    }

    /// How it ended, if it has.
    pub fn poll(&mut self) -> Result<Option<ExitStatus>, Error> {
        if self.ended.is_none() {
            let what = || format!("look at {}", self.recipe.name);
            self.ended = self.child.try_wait().map_err(Error::io(what()))?;
            if self.ended.is_some() {
                // Its child processes end with it.
                signal(self.pid(), Signal::KILL);
                self.reaper.forget(self.pid())?;
            }
        }
        Ok(self.ended)
    }

    /// Asks it to end, and kills it after `grace`. Returns how it ended; `None` if it was killed.
    pub async fn stop(mut self, grace: Duration) -> Result<Option<ExitStatus>, Error> {
        if self.poll()?.is_some() {
            return Ok(self.ended);
        }
        signal(self.pid(), Signal::TERM);
        let ended = tokio::time::timeout(grace, async {
            loop {
                if let Some(status) = self.poll()? {
                    return Ok(status);
                }
                tokio::time::sleep(POLL).await;
            }
        })
        .await;
        match ended {
            Ok(status) => status.map(Some),
            Err(_) => {
                self.end()?;
                Ok(None)
            }
        }
    }

    /// Kills its whole group at once, as a power failure would.
    pub fn kill(mut self) -> Result<(), Error> {
        self.end()
    }

    /// Freezes it (SIGSTOP) until [`Process::thaw`].
    pub fn freeze(&self) {
        signal(self.pid(), Signal::STOP);
    }

    /// Resumes it (SIGCONT).
    pub fn thaw(&self) {
        signal(self.pid(), Signal::CONT);
    }

    fn end(&mut self) -> Result<(), Error> {
        if self.ended.is_some() {
            return Ok(());
        }
        signal(self.pid(), Signal::KILL);
        let status = self.child.wait().map_err(Error::io(format!("wait for {}", self.recipe.name)))?;
        self.ended = Some(status);
        self.reaper.forget(self.pid())
    }

    /// The end of the log of this run.
    #[must_use]
    pub fn tail(&self) -> String {
        tail(&self.recipe.log, self.log_start)
            .unwrap_or_else(|error| format!("(the log can't be read: {error})"))
    }

    /// The log of this run.
    pub fn output(&self) -> Result<String, Error> {
        read_from(&self.recipe.log, self.log_start)
            .map_err(Error::io(format!("read the log {}", self.recipe.log.display())))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(process = self.recipe.name, %error, "failed to end a process of the lab");
        }
    }
}

/// Sends `signal` to a process group. A group that has ended is no error.
pub(crate) fn signal(group: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(pid, signal);
    }
}

fn read_from(log: &Path, start: u64) -> std::io::Result<String> {
    let mut file = File::open(log)?;
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn tail(log: &Path, start: u64) -> std::io::Result<String> {
    let length = fs::metadata(log)?.len();
    let text = read_from(log, start.max(length.saturating_sub(TAIL_BYTES)))?;
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines.get(lines.len().saturating_sub(TAIL_LINES)..).unwrap_or_default().join("\n"))
}
