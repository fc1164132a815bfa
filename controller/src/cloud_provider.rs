//! Connects to the cloud: the one module that names a provider.

use std::sync::Arc;

use croft_cloud::CloudProvider;
use object_store::ObjectStore;

use crate::config::args::Args;

/// Connects to the provider that the arguments describe.
#[cfg(feature = "aws")]
pub(crate) async fn connect(args: &Args, cluster_uid: &str) -> anyhow::Result<Arc<dyn CloudProvider>> {
    use anyhow::Context;
    use croft_cloud_aws::{AwsProvider, Options};

    let cluster_ca = match &args.cluster_ca {
        Some(path) => Some(
            tokio::fs::read_to_string(path)
                .await
                .with_context(|| format!("failed to read the cluster's CA from {}", path.display()))?,
        ),
        None => None,
    };
    let options = Options {
        access: access(args),
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

#[cfg(feature = "aws")]
fn access(args: &Args) -> croft_cloud_aws::Access {
    croft_cloud_aws::Access {
        region: args.aws_region.clone(),
        endpoint_url: args.aws_endpoint_url.clone(),
        s3_endpoint_url: args.aws_endpoint_url_s3.clone(),
        ..croft_cloud_aws::Access::default()
    }
}

/// The object store that keeps the decision log, if the arguments name one.
#[cfg(feature = "aws")]
pub(crate) async fn record_archive(args: &Args) -> anyhow::Result<Option<Arc<dyn ObjectStore>>> {
    use anyhow::Context;

    let Some(url) = &args.record_archive else { return Ok(None) };
    let url = url.parse().map_err(anyhow::Error::msg).context("--record-archive is invalid")?;
    Ok(Some(croft_cloud_aws::open_bucket(&access(args), &url).await?))
}

/// The object store that keeps the decision log, if the arguments name one.
#[cfg(not(feature = "aws"))]
#[expect(clippy::unused_async, reason = "the same signature as with a cloud")]
pub(crate) async fn record_archive(_: &Args) -> anyhow::Result<Option<Arc<dyn ObjectStore>>> {
    Ok(None)
}

/// Connects to the provider that the arguments describe.
#[cfg(not(feature = "aws"))]
#[expect(clippy::unused_async, reason = "the same signature as with a cloud")]
pub(crate) async fn connect(_: &Args, _: &str) -> anyhow::Result<Arc<dyn CloudProvider>> {
    anyhow::bail!("this croft-controller was built without a cloud; build it with the feature aws")
}
