//! The Helm charts of the checkout, and those to upgrade from.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::Context as _;
use tempfile::TempDir;

/// The charts of the checkout and of the commit before it.
///
/// A checkout without history, as in a shallow clone, has no previous commit; nor has a commit that changes the charts'
/// version charts of its own version before it. Then the previous charts are a copy of the present ones with another
/// version. So a change with which the processes don't run under the charts of the commit before, from which `helm
/// rollback` wouldn't be safe, needs another version.
pub struct Charts {
    current: PathBuf,
    previous: TempDir,
}

impl Charts {
    /// Finds the charts of the checkout whose folder `manifests` this is, and extracts the previous ones.
    ///
    /// # Errors
    /// If there are none, or the copy can't be written.
    pub fn find(manifests: &Path) -> anyhow::Result<Self> {
        let current = manifests.join("chart");
        let previous = tempfile::tempdir()?;
        let charts = Self { current, previous };
        if !charts.extract(manifests)? {
            for name in ["croft", "croft-crds"] {
                let (from, to) = (charts.current.join(name), charts.previous().join(name));
                if to.is_dir() {
                    fs::remove_dir_all(&to)?;
                }
                copy(&from, &to)?;
                let file = to.join("Chart.yaml");
                let text = fs::read_to_string(&file)?;
                fs::write(&file, text.replace("\nversion: ", "\nversion: 0.0.1-before-"))?;
            }
        }
        Ok(charts)
    }

    /// The path of a chart of the checkout.
    #[must_use]
    pub fn current(&self, name: &str) -> String {
        self.current.join(name).display().to_string()
    }

    /// The folder of the previous charts.
    #[must_use]
    pub fn previous(&self) -> &Path {
        self.previous.path()
    }

    /// Extracts the charts of the commit before; false if there are none of this version.
    fn extract(&self, manifests: &Path) -> anyhow::Result<bool> {
        let mut git = Command::new("git")
            .args(["archive", "--format=tar", "HEAD~1:manifests/chart"])
            .current_dir(manifests.parent().unwrap_or(manifests))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("failed to run git")?;
        let archive = git.stdout.take().context("git has no output")?;
        let unpacked = Command::new("tar")
            .args(["-x", "-C"])
            .arg(self.previous.path())
            .stdin(archive)
            .stderr(Stdio::null())
            .status()
            .context("failed to run tar")?;
        if !(git.wait()?.success() && unpacked.success()) {
            return Ok(false);
        }
        let version = |folder: &Path| -> Option<String> {
            let text = fs::read_to_string(folder.join("croft/Chart.yaml")).ok()?;
            text.lines().find_map(|line| line.strip_prefix("version: ").map(str::to_owned))
        };
        let (before, now) = (version(self.previous.path()), version(&self.current));
        Ok(before.is_some() && before == now)
    }
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("failed to list {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
