//! What the images are made from: version, commit and its time.

use std::{env, path::Path, process::Command};

use anyhow::{Context as _, bail};

/// Version and commit of the checkout.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The version in Cargo.toml.
    pub(crate) version: String,
    /// The commit, if known.
    pub(crate) commit: Option<String>,
    /// Seconds since 1970: the time of every file in the images.
    pub(crate) epoch: u64,
}

impl Source {
    /// From `SOURCE_DATE_EPOCH` and `CROFT_COMMIT`, or else from git.
    pub(crate) fn of_checkout(root: &Path) -> anyhow::Result<Self> {
        let epoch = match env::var("SOURCE_DATE_EPOCH") {
            Ok(text) => text.trim().parse().with_context(|| {
                format!("SOURCE_DATE_EPOCH is {text:?}; write seconds since 1970, such as 1767225600")
            })?,
            Err(_) => match git(root, &["log", "-1", "--format=%ct"]) {
                Some(text) => text.parse().context("git gave a commit time that is no number")?,
                None => bail!(
                    "no git history here: set SOURCE_DATE_EPOCH to the seconds since 1970 of the sources"
                ),
            },
        };
        let commit = match env::var("CROFT_COMMIT") {
            Ok(commit) if !commit.is_empty() => Some(commit),
            _ => git(root, &["rev-parse", "--short=12", "HEAD"]),
        };
        Ok(Self { version: env!("CARGO_PKG_VERSION").to_owned(), commit, epoch })
    }

    /// The time as RFC 3339, in UTC.
    pub(crate) fn created(&self) -> anyhow::Result<String> {
        let seconds = i64::try_from(self.epoch).context("the time of the sources is out of range")?;
        Ok(jiff::Timestamp::from_second(seconds)
            .context("the time of the sources is out of range")?
            .to_string())
    }
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}
