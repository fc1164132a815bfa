//! The API server's release: whether Croft supports it, and what doesn't work on it.
//!
//! Webhook and controller check it when they start, `croft check` when it runs. The controller reads it again while it
//! runs, and says in conditions which features the release lacks.

use std::{fmt, time::Duration};

use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Client;

use crate::{health::Gate, shutdown::Shutdown};

/// Between two attempts to read the release at the start.
const RETRY: Duration = Duration::from_secs(1);

/// A minor release of Kubernetes 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(u32);

/// The oldest release that Croft supports: the oldest that `make test-compat` runs.
pub const OLDEST: Release = Release(33);
/// The newest release that Croft was tested with.
pub const NEWEST: Release = Release(37);

/// The lack of a feature that the installation itself needs.
const NOT_INSTALLED: &str = "Croft can't be installed";

/// Whether Croft supports a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It is older than [`OLDEST`]: Croft doesn't start.
    TooOld,
    /// It is tested.
    Tested,
    /// It is newer than [`NEWEST`]: Croft starts, though no test covers it.
    Untested,
}

impl Release {
    /// The release `1.minor`.
    #[must_use]
    pub const fn new(minor: u32) -> Self {
        Self(minor)
    }

    /// The minor version, such as 36.
    #[must_use]
    pub const fn minor(self) -> u32 {
        self.0
    }

    /// The release in a text such as `1.36`, or `36+` as EKS writes the minor version alone.
    ///
    /// ```
    /// use croft_runtime::kubernetes::Release;
    ///
    /// assert_eq!(Release::parse("1", "36+"), Some(Release::new(36)));
    /// assert_eq!(Release::parse("2", "0"), None);
    /// ```
    #[must_use]
    pub fn parse(major: &str, minor: &str) -> Option<Self> {
        let digits = minor.split(|c: char| !c.is_ascii_digit()).next()?;
        (major == "1").then(|| digits.parse().ok().map(Self)).flatten()
    }

    /// The release that an API server behaves as: that of `--emulated-version` if it says so, which decides about its
    /// features, else its own.
    #[must_use]
    pub fn read(info: &Info) -> Option<Self> {
        let emulated = info.emulation_major.as_deref().zip(info.emulation_minor.as_deref());
        let emulated = emulated.filter(|(major, minor)| !major.is_empty() && !minor.is_empty());
        let (major, minor) = emulated.unwrap_or((&info.major, &info.minor));
        Self::parse(major, minor)
    }

    /// Whether Croft supports it.
    #[must_use]
    pub fn support(self) -> Support {
        match self {
            _ if self < OLDEST => Support::TooOld,
            _ if self > NEWEST => Support::Untested,
            _ => Support::Tested,
        }
    }

    /// The features that the release lacks by default, and without which Croft does less.
    pub fn missing(self) -> impl Iterator<Item = &'static Feature> {
        FEATURES.iter().filter(move |feature| self < feature.since && feature.without.is_some())
    }

    /// Each missing feature of these concerns, and what doesn't work without it. `None` if the release has all of them.
    #[must_use]
    pub fn shortcomings(self, concerns: &[Concern]) -> Option<String> {
        let missing = self.missing().filter(|feature| concerns.contains(&feature.concern));
        let each: Vec<String> = missing
            .map(|f| format!("{} (in Kubernetes {}): {}", f.name, f.since, f.without.unwrap_or_default()))
            .collect();
        (!each.is_empty()).then(|| each.join("; "))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.0)
    }
}

/// The subject of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// Isolation: admission's rules.
    Isolation,
    /// Plans, and the nodes of pools.
    Pools,
    /// The memory of the webhook.
    Webhook,
}

impl Concern {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Isolation, Self::Pools, Self::Webhook];
}

/// A feature of Kubernetes that Croft uses or takes into account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its name: that of its feature gate, or of its API.
    pub name: &'static str,
    /// The first release that has it by default.
    pub since: Release,
    /// Its subject.
    pub concern: Concern,
    /// Croft's use of it.
    pub used_for: &'static str,
    /// Its lack: what doesn't work, and what Croft does instead. `None` if Croft has nothing to do then.
    pub without: Option<&'static str>,
}

/// Every such feature, the oldest first. `docs/reference/kubernetes.md` is generated from it.
pub const FEATURES: &[Feature] = &[
    Feature {
        name: "status.nominatedNodeName",
        since: Release(22),
        concern: Concern::Pools,
        used_for: "kube-scheduler tries the planned node of a pod first",
        without: Some(
            "pods may be bound to other nodes than planned, and those that are left are planned again",
        ),
    },
    Feature {
        name: "MatchLabelKeysInPodTopologySpread",
        since: Release(27),
        concern: Concern::Pools,
        used_for: "topology spreads with `matchLabelKeys` are planned per version of a workload; the charts spread Croft's \
                   own replicas so",
        without: None,
    },
    Feature {
        name: "ValidatingAdmissionPolicy",
        since: Release(30),
        concern: Concern::Isolation,
        used_for: "isolation holds while no replica of the webhook runs",
        without: Some(NOT_INSTALLED),
    },
    Feature {
        name: "matchConditions of webhooks",
        since: Release(30),
        concern: Concern::Isolation,
        used_for: "only requests that a rule concerns are sent to the webhook",
        without: Some(NOT_INSTALLED),
    },
    Feature {
        name: "MatchLabelKeysInPodAffinity",
        since: Release(31),
        concern: Concern::Pools,
        used_for: "pod affinity with `matchLabelKeys` is planned per version of a workload",
        without: None,
    },
    Feature {
        name: "InPlacePodVerticalScaling",
        since: Release(33),
        concern: Concern::Pools,
        used_for: "a container that is being resized counts with the larger of what it has and what it asks for",
        without: None,
    },
    Feature {
        name: "PodLevelResources",
        since: Release(34),
        concern: Concern::Pools,
        used_for: "`spec.resources` of a pod is planned",
        without: Some(
            "the API server drops spec.resources of pods, so they are planned by the requests of their containers, while \
             croft plan and simulate still count it in files",
        ),
    },
    Feature {
        name: "WatchList",
        since: Release(34),
        concern: Concern::Webhook,
        used_for: "the webhook streams its first lists",
        without: Some("the webhook reads its first lists in pages, and needs more memory while it starts"),
    },
    Feature {
        name: "InPlacePodLevelResourcesVerticalScaling",
        since: Release(36),
        concern: Concern::Pools,
        used_for: "a resize of `spec.resources` counts like that of a container",
        without: None,
    },
];

/// Why the release isn't known.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// The API server didn't answer, or refused.
    #[error("failed to read the version of Kubernetes: {0}")]
    Request(#[from] kube::Error),
    /// The answer has no release of Kubernetes 1.
    #[error("the version {0} of the API server can't be read")]
    Unreadable(String),
}

impl ReleaseError {
    /// True if another attempt can't help.
    fn is_final(&self) -> bool {
        match self {
            Self::Request(kube::Error::Api(status)) => {
                (400..500).contains(&status.code) && status.code != 429
            }
            Self::Request(_) => false,
            Self::Unreadable(_) => true,
        }
    }
}

/// The release is older than [`OLDEST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Kubernetes {0} is older than {OLDEST}, the oldest release that this version of Croft supports: upgrade the cluster, \
     or run an earlier version of Croft"
)]
pub struct TooOld(pub Release);

/// The API server's release.
///
/// # Errors
/// If the API server doesn't answer, refuses, or has an unreadable version.
pub async fn release(client: &Client) -> Result<Release, ReleaseError> {
    let info = client.apiserver_version().await?;
    Release::read(&info).ok_or_else(|| {
        ReleaseError::Unreadable(format!("{}.{} ({})", info.major, info.minor, info.git_version))
    })
}

/// Waits until the API server has named its release, and opens `gate` if Croft supports it. A release that can't be read
/// or is newer than [`NEWEST`] is logged, and is no reason to stay away. Returns at once when `stop` begins.
///
/// # Errors
/// If the release is too old.
pub async fn require_supported(client: &Client, stop: &Shutdown, gate: &Gate) -> Result<(), TooOld> {
    wait_until_read(client, stop, gate, RETRY).await
}

async fn wait_until_read(
    client: &Client,
    stop: &Shutdown,
    gate: &Gate,
    retry: Duration,
) -> Result<(), TooOld> {
    loop {
        match release(client).await {
            Ok(found) => {
                match found.support() {
                    Support::TooOld => return Err(TooOld(found)),
                    Support::Tested => tracing::info!(release = %found, "Kubernetes is supported"),
                    Support::Untested => {
                        tracing::warn!(release = %found, newest = %NEWEST, "Kubernetes is newer than every tested release");
                    }
                }
                if let Some(shortcomings) = found.shortcomings(&Concern::ALL) {
                    tracing::warn!(release = %found, shortcomings, "Kubernetes lacks features");
                }
                break;
            }
            Err(error) if error.is_final() => {
                tracing::warn!(%error, "the release isn't checked");
                break;
            }
            Err(error) => tracing::warn!(%error, "failed to read the release, retrying"),
        }
        tokio::select! {
            () = stop.wait() => return Ok(()),
            () = tokio::time::sleep(retry) => {}
        }
    }
    gate.set(true);
    Ok(())
}

#[cfg(test)]
#[path = "kubernetes_test.rs"]
mod tests;
