//! How the account serves the cluster besides its instances, and the queue of its events.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

/// The account around the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Integration {
    /// Types of access entries by the ARN of their role.
    pub access_entries: BTreeMap<String, String>,
    /// Roles by `namespace/serviceaccount`.
    pub pod_identities: BTreeMap<String, String>,
    /// The detail-types of the rules whose target is the queue, each rule with one. A rule whose type begins with `!` is
    /// disabled.
    pub rules: Vec<String>,
    /// True if the subnets have a route to the internet.
    pub internet: bool,
    /// Services with an interface endpoint, such as `ec2` or `ecr.api`.
    pub endpoints: Vec<String>,
    /// Names of the account's other clusters.
    pub other_clusters: Vec<String>,
    /// The selectors of each Fargate profile.
    #[serde(default)]
    pub fargate_profiles: BTreeMap<String, Vec<FargateSelector>>,
}

/// Which pods a Fargate profile takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FargateSelector {
    /// The pattern of a namespace.
    pub namespace: String,
    /// The patterns of labels, all of which a pod has.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

impl Integration {
    /// The state that manifests/aws/croft.yaml makes.
    pub(crate) fn complete(account: &str, roles: &[String]) -> Self {
        let arn = |role: &str| format!("arn:aws:iam::{account}:role/{role}");
        Self {
            access_entries: roles.iter().map(|role| (arn(role), "EC2_LINUX".to_owned())).collect(),
            pod_identities: BTreeMap::from([(
                "croft-system/croft-controller".to_owned(),
                arn("croft-controller"),
            )]),
            rules: [
                "EC2 Spot Instance Interruption Warning",
                "EC2 Instance Rebalance Recommendation",
                "EC2 Instance State-change Notification",
                "AWS Health Event",
            ]
            .map(str::to_owned)
            .into(),
            internet: true,
            endpoints: Vec::new(),
            other_clusters: Vec::new(),
            fargate_profiles: BTreeMap::new(),
        }
    }
}

/// A queue.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    pub(crate) messages: VecDeque<Message>,
    pub(crate) sent: u64,
}

impl Queue {
    /// Puts a message on it, visible from `now` on.
    pub(crate) fn put(&mut self, body: &str, now: u64) {
        self.sent += 1;
        let message = Message { id: self.sent, body: body.to_owned(), sent: now, visible: now, receipt: 0 };
        self.messages.push_back(message);
    }
}

/// A message in a queue.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) id: u64,
    pub(crate) body: String,
    pub(crate) sent: u64,
    pub(crate) visible: u64,
    pub(crate) receipt: u64,
}
