//! The folder of this user's lab: lock, state, logs.

use std::{
    env,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use serde::{Deserialize, Serialize};

/// The folder of the lab that `croft lab up` leaves running.
#[derive(Clone, Debug)]
pub(super) struct LabFolder {
    path: PathBuf,
}

/// The keeper's record of the lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct State {
    /// The keeper's process id.
    pub(super) keeper: u32,
    /// True once everything is up.
    pub(super) up: bool,
    pub(super) kubeconfig: PathBuf,
    pub(super) kubectl: PathBuf,
    pub(super) api_server: String,
    /// ec2-sim's address, unless the lab is bare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cloud: Option<String>,
    /// The page's address, which signs in as an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) page: Option<String>,
    pub(super) processes: Vec<ProcessState>,
}

/// One process of the lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessState {
    pub(super) name: String,
    pub(super) pid: u32,
    pub(super) running: bool,
    pub(super) log: PathBuf,
}

impl LabFolder {
    /// The folder under `$XDG_STATE_HOME` or ~/.local/state, created if missing.
    pub(super) fn find() -> anyhow::Result<Self> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let state = set("XDG_STATE_HOME")
            .or_else(|| set("HOME").map(|home| home.join(".local/state")))
            .ok_or_else(|| anyhow!("failed to find a folder for the lab: set HOME or XDG_STATE_HOME"))?;
        let folder = Self { path: state.join("croft/lab") };
        fs::create_dir_all(&folder.path)
            .with_context(|| format!("failed to create the folder {}", folder.path.display()))?;
        Ok(folder)
    }

    /// The control plane's folder, empty.
    pub(super) fn fresh_plane(&self) -> anyhow::Result<PathBuf> {
        let plane = self.plane();
        remove(&plane)?;
        Ok(plane)
    }

    pub(super) fn plane(&self) -> PathBuf {
        self.path.join("plane")
    }

    pub(super) fn keeper_log(&self) -> PathBuf {
        self.path.join("keeper.log")
    }

    fn state_file(&self) -> PathBuf {
        self.path.join("state.json")
    }

    /// Takes the lock that the keeper holds while it runs; `None` if another process holds it.
    pub(super) fn lock(&self) -> anyhow::Result<Option<File>> {
        let path = self.path.join("lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.with_context(|| format!("failed to open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => {
                Err(error).context(format!("failed to lock {}", path.display()))
            }
        }
    }

    /// The keeper's last state; `None` before the first.
    pub(super) fn state(&self) -> anyhow::Result<Option<State>> {
        let path = self.state_file();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context(format!("failed to read {}", path.display())),
        };
        serde_json::from_str(&text).map(Some).with_context(|| format!("failed to read {}", path.display()))
    }

    /// Writes the state atomically, so that a reader never sees half a file. It has a token: no other user may read it.
    pub(super) fn write_state(&self, state: &State) -> anyhow::Result<()> {
        let path = self.state_file();
        let draft = path.with_extension("draft");
        let text = serde_json::to_string_pretty(state).context("failed to write the lab's state")?;
        // An older draft may be readable by others.
        let _ = fs::remove_file(&draft);
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&draft, &path))
            .with_context(|| format!("failed to write {}", path.display()))
    }

    /// Removes the lab's state and its control plane's files.
    pub(super) fn clear(&self) -> anyhow::Result<()> {
        let path = self.state_file();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).context(format!("failed to remove {}", path.display()));
            }
            _ => {}
        }
        remove(&self.plane())
    }
}

fn remove(folder: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).context(format!("failed to remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}
