//! What a booting instance is told, for each family of images, merged with what the class's user wrote.
//!
//! ```text
//!   NodeBoot (cluster, labels, taints, kubelet) ─┐
//!   the class's own user data ───────────────────┴─▶ nodeadm      AL2023: MIME with NodeConfig parts
//!                                                    bootstrap    AL2, Ubuntu: MIME with shell scripts
//!                                                    bottlerocket TOML settings
//!                                                    custom       the user's, as it is
//! ```
//!
//! EC2 takes 16 KiB. What is larger is compressed, where the image unpacks it; a smaller one stays readable.
//!
//! Croft's part comes last, and where two parts say the same thing the last one holds: a class's user data
//! can add to a node, and can't take the pool's taints off it. Labels that a kubelet may not set are left
//! out here, since a kubelet exits on them; the controller writes those at registration.

mod bootstrap;
mod bottlerocket;
mod mime;
mod nodeadm;
mod toml;

use std::{collections::BTreeMap, io::Write as _};

use k8s_openapi::api::core::v1::Taint;

use crate::kubelet::may_set_label;

/// User data may not be larger before it is encoded.
pub const MAX_BYTES: usize = 16 * 1024;

/// A family of images: how an instance is told what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Amazon Linux 2023: nodeadm.
    Al2023,
    /// Amazon Linux 2: bootstrap.sh.
    Al2,
    /// Bottlerocket: settings.
    Bottlerocket,
    /// Ubuntu for EKS: bootstrap.sh.
    Ubuntu,
    /// Anything else: the user's data alone.
    Custom,
}

/// How a kubelet is set up beside labels and taints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeletSetup {
    /// Places for pods, if set.
    pub max_pods: Option<u32>,
    /// DNS servers of pods, if not the cluster's default.
    pub cluster_dns: Vec<String>,
    /// What is kept for Kubernetes' own processes, in place of the image's computation.
    pub kube_reserved: BTreeMap<String, String>,
    /// What is kept for the system's processes.
    pub system_reserved: BTreeMap<String, String>,
    /// Signals and thresholds at which pods are evicted at once.
    pub eviction_hard: BTreeMap<String, String>,
}

/// What an instance is told.
#[derive(Clone, Debug)]
pub struct NodeBoot<'a> {
    /// Name of the cluster.
    pub cluster: &'a str,
    /// Address of its API server.
    pub endpoint: &'a str,
    /// CA of its API server, base64 of PEM.
    pub ca: &'a str,
    /// Network of its Services.
    pub service_cidr: &'a str,
    /// Labels to register with; those that a kubelet may not set are left out.
    pub labels: &'a BTreeMap<String, String>,
    /// Taints to register with.
    pub taints: &'a [Taint],
    /// The rest of the kubelet.
    pub kubelet: &'a KubeletSetup,
    /// True if the local disks become one RAID 0 under the kubelet and the container runtime.
    pub instance_store: bool,
    /// The class's own user data.
    pub custom: Option<&'a str>,
}

/// Why user data can't be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    /// The class's user data can't be merged.
    #[error("failed to merge spec.userData: {problem}; {remedy}")]
    Custom {
        /// What is wrong.
        problem: String,
        /// What to write instead.
        remedy: &'static str,
    },
    /// It is too large.
    #[error(
        "failed to fit the user data into {MAX_BYTES} bytes: it has {bytes}{}; shorten spec.userData, or let it fetch its larger part",
        packed.map(|packed| format!(", and {packed} compressed")).unwrap_or_default()
    )]
    TooLarge {
        /// How large it is.
        bytes: usize,
        /// How large it is compressed, where that would do.
        packed: Option<usize>,
    },
}

/// What an instance is told, fit for EC2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserData {
    /// As it is meant.
    pub text: String,
    /// Compressed, where the text alone is too large.
    pub packed: Option<Vec<u8>>,
}

impl UserData {
    /// What is sent, before it is encoded.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.packed.as_deref().unwrap_or(self.text.as_bytes())
    }
}

impl Family {
    /// True if the image unpacks gzip. Sources: cloud-init, "User data formats"; awslabs/amazon-eks-ami#1762 for
    /// nodeadm; bottlerocket-os/bottlerocket#1320. A custom image's format is unknown.
    #[must_use]
    pub fn unpacks(self) -> bool {
        self != Self::Custom
    }
}

/// The same bytes for the same text: no name and no time are in it.
fn pack(text: &str) -> std::io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text.as_bytes())?;
    encoder.finish()
}

/// The user data of an instance, not yet encoded.
///
/// # Errors
/// The class's part can't be merged, or the whole is too large.
pub fn render(family: Family, boot: &NodeBoot<'_>) -> Result<UserData, UserDataError> {
    let text = match family {
        Family::Al2023 => nodeadm::render(boot)?,
        Family::Al2 | Family::Ubuntu => bootstrap::render(boot)?,
        Family::Bottlerocket => bottlerocket::render(boot)?,
        Family::Custom => boot.custom.unwrap_or_default().to_owned(),
    };
    let bytes = text.len();
    if bytes <= MAX_BYTES {
        return Ok(UserData { text, packed: None });
    }
    // Writing to memory can't fail; if it ever does, there is no compressed form.
    match family.unpacks().then(|| pack(&text).ok()).flatten() {
        Some(packed) if packed.len() <= MAX_BYTES => Ok(UserData { text, packed: Some(packed) }),
        packed => Err(UserDataError::TooLarge { bytes, packed: packed.map(|p| p.len()) }),
    }
}

impl NodeBoot<'_> {
    /// `key=value,...` of what the kubelet may set.
    fn node_labels(&self) -> String {
        let pairs: Vec<String> = self
            .labels
            .iter()
            .filter(|(key, _)| may_set_label(key))
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        pairs.join(",")
    }
}

/// `text` as a JSON string, which is a YAML and a TOML basic string as well.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// `text` in single quotes of a shell.
fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests;
