//! The checkouts whose benchmarks run: this one, and that of the base.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use crate::bench::suite::Bench;

/// The base's worktree and build, relative to the root.
const BASE: &str = "target/bench/base";

/// A checkout.
pub(crate) struct Tree {
    pub(crate) name: &'static str,
    folder: PathBuf,
    /// cargo's folder, if it isn't the caller's.
    target: Option<PathBuf>,
    /// The root of the repository that the folder is a worktree of.
    worktree_of: Option<PathBuf>,
}

impl Tree {
    /// The checkout with this root.
    pub(crate) fn head(root: &Path) -> Self {
        Self { name: "head", folder: root.to_owned(), target: None, worktree_of: None }
    }

    /// A worktree of a commit, removed when dropped. Its build is kept, so that a second one compiles what differs.
    ///
    /// # Errors
    /// No such commit, or no room for a worktree.
    pub(crate) fn base(root: &Path, commit: &str) -> anyhow::Result<Self> {
        let (folder, target) = (root.join(BASE).join("tree"), root.join(BASE).join("build"));
        let folder_text = folder.display().to_string();
        // That of a run that was killed.
        let _ = git(root, &["worktree", "remove", "--force", &folder_text]);
        git(root, &["worktree", "add", "--force", "--detach", &folder_text, commit])
            .with_context(|| format!("failed to check out {commit}"))?;
        Ok(Self { name: "base", folder, target: Some(target), worktree_of: Some(root.to_owned()) })
    }

    /// cargo with these arguments, in this checkout.
    pub(crate) fn cargo(&self, arguments: &[String]) -> Command {
        let mut command = Command::new("cargo");
        command.args(arguments).current_dir(&self.folder);
        if let Some(target) = &self.target {
            command.env("CARGO_TARGET_DIR", target);
        }
        command
    }

    /// Builds a benchmark with its control plane, which is there already unless its versions differ from this checkout's.
    ///
    /// # Errors
    /// A build that fails.
    pub(crate) fn build(&self, bench: &Bench) -> anyhow::Result<()> {
        if bench.has_plane && self.worktree_of.is_some() {
            let built = Command::new("make").args(["--silent", "lab"]).current_dir(&self.folder).output()?;
            if !built.status.success() {
                bail!("make lab of the {} failed: {}", self.name, String::from_utf8_lossy(&built.stderr));
            }
        }
        for arguments in bench.builds() {
            let status = self.cargo(&arguments).arg("--quiet").status().context("failed to start cargo")?;
            if !status.success() {
                bail!("cargo {} failed for the {}", arguments.join(" "), self.name);
            }
        }
        Ok(())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Some(root) = &self.worktree_of {
            let folder = self.folder.display().to_string();
            if let Err(error) = git(root, &["worktree", "remove", "--force", &folder]) {
                eprintln!("bench: the worktree {folder} stays: {error:#}");
            }
        }
    }
}

/// The output of git in a repository, without the white space around it.
///
/// # Errors
/// git is missing or fails.
pub(crate) fn git(root: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output =
        Command::new("git").args(arguments).current_dir(root).output().context("failed to start git")?;
    if !output.status.success() {
        bail!("git {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_is_the_commit_that_was_asked_for_and_leaves_no_worktree() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let commit = |text: &str| {
            std::fs::write(root.join("file"), text).unwrap();
            git(root, &["add", "file"]).unwrap();
            git(
                root,
                &["-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "--quiet", "-m", text],
            )
            .unwrap();
        };
        git(root, &["init", "--quiet"]).unwrap();
        commit("first");
        commit("second");
        for _ in 0..2 {
            let base = Tree::base(root, "HEAD~1").unwrap();
            assert_eq!(std::fs::read_to_string(base.folder.join("file")).unwrap(), "first");
        }
        assert_eq!(git(root, &["worktree", "list"]).unwrap().lines().count(), 1);
        let error = Tree::base(root, "nothing").err().unwrap();
        assert_eq!(error.to_string(), "failed to check out nothing");
    }
}
