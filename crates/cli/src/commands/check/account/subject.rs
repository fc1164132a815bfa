//! The cluster whose account is checked, as the cluster itself and the arguments describe it.

use croft_api::EC2NodeClass;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::ListParams};

use super::super::installed::Installed;
use crate::aws::cluster_uid;

/// A node role, as a class names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::commands::check) enum NodeRole {
    /// `spec.role`.
    Role(String),
    /// `spec.instanceProfile`, whose role nodes have.
    Profile(String),
}

/// The cluster whose account is checked.
#[derive(Clone, Debug, Default)]
pub(in crate::commands::check) struct Subject {
    pub(super) namespace: String,
    /// UID of the Namespace kube-system.
    pub(super) uid: String,
    /// The API server's certificate authority in PEM, as pods get it; empty if it can't be read.
    pub(super) authority: String,
    /// The cluster's name at EKS.
    pub(super) name: Option<String>,
    /// True if the controller is told the API server's address, as in a cluster that isn't EKS's.
    pub(super) own_endpoint: bool,
    /// The interruption queue.
    pub(super) queue: Option<String>,
    /// The account that the controller recorded.
    pub(super) account: Option<String>,
    pub(super) roles: Vec<NodeRole>,
    /// `mapRoles` of the ConfigMap aws-auth.
    pub(super) mapped_roles: String,
    /// True if a class names an image by an alias or a parameter.
    pub(super) uses_parameters: bool,
    /// True if a class names a role, for which the controller makes an instance profile.
    pub(super) uses_roles: bool,
    /// Subnets of the classes.
    pub(super) subnets: Vec<String>,
    pub(super) installed: Installed,
}

impl Subject {
    /// Reads what the cluster says; `name` and `queue` take precedence. A kind that isn't there counts as having no objects.
    ///
    /// # Errors
    /// If the Namespace kube-system can't be read.
    pub(in crate::commands::check) async fn read(
        client: &Client,
        namespace: &str,
        installed: Installed,
        name: Option<&str>,
        queue: Option<&str>,
    ) -> anyhow::Result<Self> {
        let setting = |variable: &str| installed.setting(variable).map(str::to_owned);
        let recorded = |part: &str| installed.recorded(part).map(str::to_owned);
        let classes = Api::<EC2NodeClass>::all(client.clone()).list(&ListParams::default()).await;
        let classes = classes.map(|list| list.items).unwrap_or_default();
        let text =
            |map: Option<ConfigMap>, key: &str| map.and_then(|map| map.data?.remove(key)).unwrap_or_default();
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
        let mut subject = Self {
            namespace: namespace.to_owned(),
            uid: cluster_uid(client).await?,
            authority: text(maps.get_opt("kube-root-ca.crt").await.unwrap_or_default(), "ca.crt"),
            mapped_roles: text(maps.get_opt("aws-auth").await.unwrap_or_default(), "mapRoles"),
            name: name
                .map(str::to_owned)
                .or_else(|| setting("CLUSTER_NAME"))
                .or_else(|| recorded("cluster-name")),
            own_endpoint: recorded("cluster-endpoint").is_some(),
            queue: queue.map(str::to_owned).or_else(|| setting("CROFT_INTERRUPTION_QUEUE")),
            account: recorded("account"),
            installed,
            ..Self::default()
        };
        for class in &classes {
            subject.add(class);
        }
        subject.roles.sort();
        subject.roles.dedup();
        Ok(subject)
    }

    fn add(&mut self, class: &EC2NodeClass) {
        let spec = &class.spec;
        self.roles.extend(spec.role.clone().map(NodeRole::Role));
        self.roles.extend(spec.instance_profile.clone().map(NodeRole::Profile));
        self.uses_roles |= spec.role.is_some();
        self.uses_parameters |=
            spec.ami_selector_terms.iter().any(|term| term.alias.is_some() || term.ssm_parameter.is_some());
        self.subnets
            .extend(class.status.iter().flat_map(|status| &status.subnets).map(|subnet| subnet.id.clone()));
    }
}
