//! Errors of a control plane, each with where to look.

use std::path::PathBuf;

/// Why an operation of the lab failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A binary of the control plane isn't in the cache.
    #[error("failed to find {name} in {}: run `make lab`, which builds the control plane once; or set KUBEBUILDER_ASSETS to a folder that has it", folder.display())]
    Missing {
        /// The binary.
        name: &'static str,
        /// Where it should be.
        folder: PathBuf,
    },
    /// Helm isn't in the cache.
    #[error("failed to find Helm at {}: run `make helm`, which builds it once; or set CROFT_HELM to a binary", path.display())]
    NoHelm {
        /// Where it should be.
        path: PathBuf,
    },
    /// A binary of Croft isn't built.
    #[error("failed to find {name} in {}: build it with `cargo build --bins`, or put it beside the others", folder.display())]
    NotBuilt {
        /// The binary.
        name: &'static str,
        /// Where it should be.
        folder: PathBuf,
    },
    /// The manifests weren't found.
    #[error("failed to find manifests/install above {}: start this in a checkout of Croft", folder.display())]
    NoManifests {
        /// The folder it was started in.
        folder: PathBuf,
    },
    /// There is neither a cache folder nor a home folder.
    #[error("failed to find a folder for the control plane: set CROFT_LAB_CACHE, XDG_CACHE_HOME or HOME")]
    NoCache,
    /// A file or a process could not be created.
    #[error("failed to {what}: {source}")]
    Io {
        /// The operation, beginning with a verb.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A key or certificate could not be created.
    #[error("failed to make the certificate of {name}: {source}")]
    Certificate {
        /// The certificate's name.
        name: String,
        /// The error.
        source: rcgen::Error,
    },
    /// At most two groups are supported in a certificate.
    #[error(
        "failed to make the certificate of {name}: it has {groups} groups, and a certificate made here carries at most 2; impersonate instead"
    )]
    TooManyGroups {
        /// The certificate's name.
        name: String,
        /// Number of groups.
        groups: usize,
    },
    /// A process has ended unexpectedly.
    #[error("failed to keep {name} running: it ended with {status}; the end of {}:\n{tail}", log.display())]
    Exited {
        /// The process.
        name: String,
        /// How it ended.
        status: String,
        /// Its log.
        log: PathBuf,
        /// The end of its log.
        tail: String,
    },
    /// A process isn't ready in time.
    #[error("failed to see {name} ready within {seconds} s; the end of {}:\n{tail}", log.display())]
    NotReady {
        /// The process.
        name: String,
        /// Time waited.
        seconds: u64,
        /// Its log.
        log: PathBuf,
        /// The end of its log.
        tail: String,
    },
    /// An expected state wasn't reached.
    #[error("failed to see {what} within {seconds} s{}", if last.is_empty() { String::new() } else { format!("; last seen: {last}") })]
    Timeout {
        /// The expected state.
        what: String,
        /// Time waited.
        seconds: u64,
        /// The last state.
        last: String,
    },
    /// kubectl failed.
    #[error("failed to run kubectl {arguments}: {stderr}")]
    Kubectl {
        /// Its arguments.
        arguments: String,
        /// Its output.
        stderr: String,
    },
    /// Helm failed.
    #[error("failed to run helm {arguments}: {stderr}")]
    Helm {
        /// Its arguments.
        arguments: String,
        /// Its output.
        stderr: String,
    },
    /// The API server refused a request.
    #[error("failed to {what}: {source}")]
    Kube {
        /// The operation, beginning with a verb.
        what: String,
        /// Its answer.
        source: Box<kube::Error>,
    },
    /// A client could not be created.
    #[error("failed to set up a client for {name}: {reason}")]
    Client {
        /// The client's user.
        name: String,
        /// The error.
        reason: String,
    },
}

impl Error {
    /// For `map_err` on file and process operations; `what` begins with a verb.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// For `map_err` on API calls; `what` begins with a verb.
    pub(crate) fn kube(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Kube { what, source: Box::new(source) }
    }

    /// True if the cause is that another process took the port.
    pub(crate) fn is_port_clash(&self) -> bool {
        match self {
            Self::Exited { tail, .. } => tail.contains("address already in use"),
            _ => false,
        }
    }
}
