//! Inputs and results of rendering.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;

use crate::kubelet::may_set_label;

/// EC2's limit of user data before encoding.
pub const MAX_BYTES: usize = 16 * 1024;

/// A family of images, which determines the format of user data.
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
    /// Any other image: only the user's data.
    Custom,
}

/// Kubelet settings except labels and taints.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubeletSetup {
    /// Maximum number of pods, if set.
    pub max_pods: Option<u32>,
    /// DNS servers of pods, if not the cluster's default.
    pub cluster_dns: Vec<String>,
    /// Resources reserved for Kubernetes' processes, which replace the image's computation.
    pub kube_reserved: BTreeMap<String, String>,
    /// Resources reserved for the system's processes.
    pub system_reserved: BTreeMap<String, String>,
    /// Signals and thresholds of immediate eviction.
    pub eviction_hard: BTreeMap<String, String>,
}

/// Settings of a booting node.
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
    /// Other kubelet settings.
    pub kubelet: &'a KubeletSetup,
    /// True if the local disks become one RAID 0 under the kubelet and the container runtime.
    pub instance_store: bool,
    /// The class's own user data.
    pub custom: Option<&'a str>,
}

/// Why user data can't be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    /// The class's user data can't be merged.
    #[error("failed to merge spec.userData: {problem}; {remedy}")]
    Custom {
        /// The error.
        problem: String,
        /// The text to write instead.
        remedy: &'static str,
    },
    /// It is too large.
    #[error(
        "failed to fit the user data into {MAX_BYTES} bytes: it has {bytes}{}; shorten spec.userData, or let it fetch its larger part",
        packed.map(|packed| format!(", and {packed} compressed")).unwrap_or_default()
    )]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// Its compressed size, if the image decompresses it.
        packed: Option<usize>,
    },
}

/// User data that fits EC2's limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserData {
    /// The readable form.
    pub text: String,
    /// The compressed form, if the text is too large.
    pub packed: Option<Vec<u8>>,
}

impl UserData {
    /// The bytes to send, before encoding.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.packed.as_deref().unwrap_or(self.text.as_bytes())
    }
}

impl Family {
    /// The family that the name before the `@` of an alias stands for.
    #[must_use]
    pub fn of_alias(name: &str) -> Option<Self> {
        match name {
            "al2023" => Some(Self::Al2023),
            "al2" => Some(Self::Al2),
            "bottlerocket" => Some(Self::Bottlerocket),
            _ => None,
        }
    }

    /// True if the image decompresses gzip. Sources: cloud-init, "User data formats"; awslabs/amazon-eks-ami#1762 for
    /// nodeadm; bottlerocket-os/bottlerocket#1320. The format of custom images is unknown.
    #[must_use]
    pub fn unpacks(self) -> bool {
        self != Self::Custom
    }
}

impl NodeBoot<'_> {
    /// `key=value,...` of the labels that a kubelet may set.
    pub(super) fn node_labels(&self) -> String {
        let pairs: Vec<String> = self
            .labels
            .iter()
            .filter(|(key, _)| may_set_label(key))
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        pairs.join(",")
    }
}
