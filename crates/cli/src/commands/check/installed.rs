//! The installation: Croft's pods and their nodes, its Deployments and their settings, and the identity that the controller
//! recorded.

use std::collections::BTreeMap;
#[cfg(feature = "aws")]
use std::collections::BTreeSet;

#[cfg(feature = "aws")]
use croft_cloud::instance_id;
use croft_inspect::inventory::node_of;
use croft_policy::definitions::IDENTITY_PREFIX;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Container, Namespace, Node, Pod, ServiceAccount},
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use crate::aws::AwsArgs;

/// Name of the webhook's Deployment, and of its pods' label.
pub(super) const WEBHOOK: &str = "croft-webhook";
/// Name of the controller's Deployment, ServiceAccount and pods' label.
pub(super) const CONTROLLER: &str = "croft-controller";
const NAME: &str = "app.kubernetes.io/name";
/// The annotation by which IRSA gives a ServiceAccount its role.
const ROLE: &str = "eks.amazonaws.com/role-arn";

/// The installation that is checked, or that is to be.
pub(super) struct Subject<'a> {
    /// The namespace of Croft.
    pub(super) namespace: &'a str,
    pub(super) aws: &'a AwsArgs,
    /// The name of the cluster at EKS.
    pub(super) cluster_name: Option<&'a str>,
    pub(super) interruption_queue: Option<&'a str>,
}

/// An installation, as the cluster shows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Installed {
    pub(super) webhook: Option<Deployment>,
    pub(super) controller: Option<Deployment>,
    /// Croft's pods that aren't being deleted.
    pub(super) pods: Vec<Pod>,
    /// Every node of the cluster.
    pub(super) nodes: Vec<Node>,
    /// The role that IRSA gives the controller.
    pub(super) role: Option<String>,
    /// Environment of the controller, as far as it is written down.
    pub(super) settings: BTreeMap<String, String>,
    /// The identity that the controller recorded, without the prefix.
    pub(super) recorded: BTreeMap<String, String>,
}

impl Installed {
    /// Reads it.
    ///
    /// # Errors
    /// If an object can't be read, such as for want of a right.
    pub(super) async fn read(client: &Client, namespace: &str) -> kube::Result<Self> {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let controller = deployments.get_opt(CONTROLLER).await?;
        let pods = Api::<Pod>::namespaced(client.clone(), namespace).list(&ListParams::default()).await?;
        let is_own = |pod: &Pod| {
            let name = pod.labels().get(NAME);
            name.is_some_and(|name| name == WEBHOOK || name == CONTROLLER)
                && pod.metadata.deletion_timestamp.is_none()
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
        let account = accounts.get_opt(CONTROLLER).await?;
        let annotations = Api::<Namespace>::all(client.clone()).get_opt(namespace).await?;
        let annotations = annotations.and_then(|found| found.metadata.annotations).unwrap_or_default();
        let recorded = annotations.into_iter();
        let recorded = recorded
            .filter_map(|(key, value)| Some((key.strip_prefix(IDENTITY_PREFIX)?.to_owned(), value)))
            .collect();
        let settings = match controller.as_ref().and_then(container) {
            Some(container) => settings(client, namespace, container).await?,
            None => BTreeMap::new(),
        };
        Ok(Self {
            webhook: deployments.get_opt(WEBHOOK).await?,
            controller,
            pods: pods.items.into_iter().filter(is_own).collect(),
            nodes: Api::<Node>::all(client.clone()).list(&ListParams::default()).await?.items,
            role: account.and_then(|account| account.annotations().get(ROLE).cloned()),
            settings,
            recorded,
        })
    }

    /// The pods of one of the two Deployments.
    pub(super) fn pods_of(&self, name: &str) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(move |pod| pod.labels().get(NAME).is_some_and(|own| own == name))
    }

    /// The node that a pod runs on.
    pub(super) fn node(&self, pod: &Pod) -> Option<&Node> {
        let name = node_of(pod)?;
        self.nodes.iter().find(|node| node.name_any() == name)
    }

    /// A variable of the controller's environment.
    pub(super) fn setting(&self, variable: &str) -> Option<&str> {
        self.settings.get(variable).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A part of the identity that the controller recorded, such as `region`.
    pub(super) fn recorded(&self, part: &str) -> Option<&str> {
        self.recorded.get(part).map(String::as_str)
    }

    /// True if a container of the controller's pods has the variable `name`, which an admission webhook of AWS may have
    /// written; `None` if there is no pod.
    pub(super) fn pods_have(&self, name: &str) -> Option<bool> {
        let mut pods = self.pods_of(CONTROLLER).peekable();
        pods.peek()?;
        let has = |pod: &Pod| {
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            containers.flat_map(|container| container.env.iter().flatten()).any(|env| env.name == name)
        };
        Some(pods.all(has))
    }

    /// The instances that the controller's pods run on.
    #[cfg(feature = "aws")]
    pub(super) fn instances(&self) -> Vec<String> {
        let nodes = self.pods_of(CONTROLLER).filter_map(|pod| self.node(pod));
        let ids = nodes.filter_map(|node| Some(instance_id(node.spec.as_ref()?.provider_id.as_deref()?)));
        let ids: BTreeSet<&str> = ids.filter(|id| id.starts_with("i-")).collect();
        ids.into_iter().map(str::to_owned).collect()
    }
}

/// The one container of a process.
pub(super) fn container(deployment: &Deployment) -> Option<&Container> {
    deployment.spec.as_ref()?.template.spec.as_ref()?.containers.first()
}

/// The values of a container's environment, of ConfigMaps and of its own; the latter take precedence.
async fn settings(
    client: &Client,
    namespace: &str,
    container: &Container,
) -> kube::Result<BTreeMap<String, String>> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let mut all = BTreeMap::new();
    for source in container.env_from.iter().flatten() {
        let Some(source) = &source.config_map_ref else { continue };
        if let Some(map) = maps.get_opt(&source.name).await? {
            all.extend(map.data.unwrap_or_default());
        }
    }
    for variable in container.env.iter().flatten() {
        all.extend(variable.value.clone().map(|value| (variable.name.clone(), value)));
    }
    Ok(all)
}
