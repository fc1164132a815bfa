//! Version and commit of a program. `--version` of every program prints it, and `croft version`.

use crate::kubernetes::{NEWEST, OLDEST};

/// The version of a program and the commit that it was built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// The version in Cargo.toml.
    pub version: &'static str,
    /// The commit; `None` for a build that wasn't told, such as one for development.
    pub commit: Option<&'static str>,
    /// The commit's date, as `2026-11-23`.
    pub date: Option<&'static str>,
}

/// The [`Build`] of the calling crate. The build sets `CROFT_COMMIT` and `CROFT_COMMIT_DATE`.
///
/// Only the small crates of programs call this, so that a new commit compiles and links them and nothing else.
#[macro_export]
macro_rules! build {
    () => {
        $crate::build::Build {
            version: ::core::env!("CARGO_PKG_VERSION"),
            commit: ::core::option_env!("CROFT_COMMIT"),
            date: ::core::option_env!("CROFT_COMMIT_DATE"),
        }
    };
}

impl Build {
    /// A build of `version` whose commit isn't known.
    #[must_use]
    pub const fn unknown(version: &'static str) -> Self {
        Self { version, commit: None, date: None }
    }

    /// Version, commit and Kubernetes releases in one line, without the program's name.
    ///
    /// ```
    /// use croft_runtime::build::Build;
    ///
    /// let build = Build { version: "0.1.0", commit: Some("1f2e3d4c5b6a"), date: Some("2026-11-23") };
    /// assert_eq!(build.line(), "0.1.0 (commit 1f2e3d4c5b6a of 2026-11-23, Kubernetes 1.33 to 1.37)");
    /// ```
    #[must_use]
    pub fn line(&self) -> String {
        let commit = match (self.commit, self.date) {
            (Some(commit), Some(date)) => format!("commit {commit} of {date}"),
            (Some(commit), None) => format!("commit {commit}"),
            (None, _) => "commit unknown".to_owned(),
        };
        format!("{} ({commit}, Kubernetes {OLDEST} to {NEWEST})", self.version)
    }

    /// [`Build::line`] for clap, which keeps it for the life of the process.
    #[must_use]
    pub fn clap_version(&self) -> &'static str {
        Box::leak(self.line().into_boxed_str())
    }
}
