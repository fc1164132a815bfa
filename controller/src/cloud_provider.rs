//! Connects to the cloud: the one module that names a provider.

use std::sync::Arc;

use croft_cloud::CloudProvider;

use crate::config::args::Args;

/// Connects to the provider that the arguments describe.
#[cfg(feature = "aws")]
pub(crate) async fn connect(args: &Args, cluster_uid: &str) -> anyhow::Result<Arc<dyn CloudProvider>> {
    use anyhow::Context;
    use croft_cloud_aws::{Access, AwsProvider, Options};

    let cluster_ca = match &args.cluster_ca {
        Some(path) => Some(
            tokio::fs::read_to_string(path)
                .await
                .with_context(|| format!("failed to read the cluster's CA from {}", path.display()))?,
        ),
        None => None,
    };
    let options = Options {
        access: Access {
            region: args.aws_region.clone(),
            endpoint_url: args.aws_endpoint_url.clone(),
            ..Access::default()
        },
        cluster_uid: cluster_uid.to_owned(),
        cluster_name: args.cluster_name.clone(),
        cluster_endpoint: args.cluster_endpoint.clone(),
        cluster_ca,
        service_cidr: args.service_cidr.clone(),
        kubernetes_version: args.kubernetes_version.clone(),
        interruption_queue: args.interruption_queue.clone(),
        prefix_delegation: args.prefix_delegation,
    };
    Ok(AwsProvider::connect(options).await)
}

/// Connects to the provider that the arguments describe.
#[cfg(not(feature = "aws"))]
#[expect(clippy::unused_async, reason = "the same signature as with a cloud")]
pub(crate) async fn connect(_: &Args, _: &str) -> anyhow::Result<Arc<dyn CloudProvider>> {
    anyhow::bail!("this croft-controller was built without a cloud; build it with the feature aws")
}
