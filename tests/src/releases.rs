//! The manifests and Helm charts of the checkout, and those to upgrade from.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::Context as _;
use croft_testkit::files::copy_folder;
use tempfile::TempDir;

/// Folders that an installation is made from.
const FOLDERS: [&str; 3] = ["chart", "crds", "install"];
/// A label of every object of the previous manifests, so that each differs from the present one.
const REVISION: &str = "    croft.dev/revision: previous\n";

/// The manifests and charts of the checkout and of the commit before it.
///
/// A checkout without history, as in a shallow clone, has no previous commit; nor has a commit that changes the charts'
/// version charts of its own version before it. Then the previous ones are a copy of the present ones, the charts with
/// another version. So a change with which the processes don't run under the charts of the commit before, from which
/// `helm rollback` wouldn't be safe, needs another version.
pub struct Releases {
    current: PathBuf,
    previous: TempDir,
}

impl Releases {
    /// Finds the charts in `manifests`, the folder of a checkout, and extracts the previous ones.
    ///
    /// # Errors
    /// If there are none, or the copy can't be written.
    pub fn find(manifests: &Path) -> anyhow::Result<Self> {
        let releases = Self { current: manifests.to_owned(), previous: tempfile::tempdir()? };
        if !releases.extract()? {
            for folder in FOLDERS {
                let to = releases.previous.path().join(folder);
                if to.is_dir() {
                    fs::remove_dir_all(&to)?;
                }
                copy_folder(&releases.current.join(folder), &to)?;
            }
            for name in ["croft", "croft-crds"] {
                let file = releases.previous_charts().join(name).join("Chart.yaml");
                let text = fs::read_to_string(&file)?;
                fs::write(&file, text.replace("\nversion: \"", "\nversion: \"0.0.1-before-"))?;
            }
        }
        let file = releases.previous.path().join("install/kustomization.yaml");
        let mut text = fs::read_to_string(&file)?;
        anyhow::ensure!(text.ends_with("part-of: croft\n"), "{} ends with other lines", file.display());
        text.push_str(REVISION);
        fs::write(&file, text)?;
        Ok(releases)
    }

    /// The path of a chart of the checkout.
    #[must_use]
    pub fn chart(&self, name: &str) -> String {
        self.current.join("chart").join(name).display().to_string()
    }

    /// The folder of the previous charts.
    #[must_use]
    pub fn previous_charts(&self) -> PathBuf {
        self.previous.path().join("chart")
    }

    /// The folder of the previous manifests, which kubectl applies.
    #[must_use]
    pub fn previous_manifests(&self) -> String {
        self.previous.path().join("install").display().to_string()
    }

    /// Extracts what the commit before had; false if that has no charts of this version.
    fn extract(&self) -> anyhow::Result<bool> {
        let mut git = Command::new("git")
            .args(["archive", "--format=tar", "HEAD~1:manifests"])
            .args(FOLDERS)
            .current_dir(self.current.parent().unwrap_or(&self.current))
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
            let text = fs::read_to_string(folder.join("chart/croft/Chart.yaml")).ok()?;
            text.lines().find_map(|line| Some(line.strip_prefix("version: ")?.trim_matches('"').to_owned()))
        };
        let (before, now) = (version(self.previous.path()), version(&self.current));
        Ok(before.is_some() && before == now)
    }
}
