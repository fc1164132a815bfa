//! Arguments of commands that ask AWS, and what they ask.
//!
//! AWS is asked if a region or an endpoint is given, or the environment or the profile has a region. The region is the one
//! that is given, else the one that the controller recorded on Croft's Namespace, else that of the environment or the
//! profile. A build without the feature `aws` never asks.

use std::collections::BTreeMap;

use anyhow::Context as _;
use clap::Args;
use croft_cloud::CloudInstance;
#[cfg(feature = "aws")]
use croft_cloud::{Fault, FaultClass};
use croft_scheduler::Catalog;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

/// Which AWS a command asks.
#[derive(Args, Clone, Debug)]
pub(crate) struct AwsArgs {
    /// Ask AWS nothing
    #[arg(long)]
    skip_aws: bool,
    /// The region. Default: the one that Croft ran with, else that of the environment or the profile
    #[arg(long, value_name = "REGION", value_parser = region)]
    aws_region: Option<String>,
    /// Endpoint of EC2 and the other services, instead of AWS
    #[arg(long, value_name = "URL")]
    aws_endpoint_url: Option<String>,
}

/// The name of a region.
fn region(text: &str) -> Result<String, String> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !text.is_empty() && text.chars().all(is_inner) {
        return Ok(text.to_owned());
    }
    Err("no region is called so: write one such as eu-central-1".to_owned())
}

/// The instances of a cluster, as far as AWS was asked.
#[derive(Clone, Debug)]
pub(crate) enum Instances {
    /// The instances that aren't terminated.
    Found(Vec<CloudInstance>),
    /// AWS wasn't asked, or gave no answer: why.
    Unknown(String),
}

/// Where and with which credentials AWS is asked.
#[cfg(feature = "aws")]
pub(crate) type Access = croft_cloud_aws::Access;
/// Without the feature there is none.
#[cfg(not(feature = "aws"))]
pub(crate) type Access = std::convert::Infallible;

impl AwsArgs {
    /// How to ask AWS, or why it isn't asked. `recorded` is the region that Croft recorded.
    #[cfg(feature = "aws")]
    pub(crate) async fn access(&self, recorded: Option<String>) -> Result<Access, String> {
        let Self { skip_aws, aws_region, aws_endpoint_url } = self;
        if *skip_aws {
            return Err("--skip-aws".to_owned());
        }
        let configured = croft_cloud_aws::configured_region().await;
        if aws_region.is_none() && aws_endpoint_url.is_none() && configured.is_none() {
            // Without a sign of credentials, the search for some would wait for a metadata service.
            return Err("no region is set: give --aws-region, or set AWS_REGION".to_owned());
        }
        let Some(region) = aws_region.clone().or(recorded).or(configured) else {
            return Err("no region is known: give --aws-region".to_owned());
        };
        let endpoint_url = aws_endpoint_url.clone();
        Ok(Access { region: Some(region), endpoint_url, ..Access::default() })
    }

    /// Why AWS isn't asked.
    #[cfg(not(feature = "aws"))]
    #[expect(clippy::unused_async, reason = "the same signature as with AWS")]
    pub(crate) async fn access(&self, _: Option<String>) -> Result<Access, String> {
        let Self { skip_aws: _, aws_region: _, aws_endpoint_url: _ } = self;
        Err("this croft was built without the feature aws".to_owned())
    }

    /// True if AWS isn't to be asked.
    pub(crate) const fn is_skipped(&self) -> bool {
        self.skip_aws
    }

    /// The catalogue of the region, and what of it is an estimate.
    ///
    /// # Errors
    /// If no region is known, or AWS lists no instance type.
    pub(crate) async fn catalog(&self) -> anyhow::Result<(Catalog, Vec<String>)> {
        let otherwise = "croft catalog export --skip-aws writes the built-in catalogue";
        let access = self.access(None).await.map_err(|why| anyhow::anyhow!("{why}; {otherwise}"))?;
        read_catalog(access).await.context("failed to read the catalogue of the region")
    }

    /// The instances with the tag of this cluster. `namespace` is Croft's own.
    ///
    /// # Errors
    /// If the cluster can't be read.
    pub(crate) async fn instances(&self, client: &Client, namespace: &str) -> anyhow::Result<Instances> {
        self.instances_of(client, namespace, &cluster_uid(client).await?).await
    }

    /// The instances with the tag of the cluster whose Namespace kube-system has this UID.
    ///
    /// # Errors
    /// If the cluster can't be read.
    pub(crate) async fn instances_of(
        &self,
        client: &Client,
        namespace: &str,
        uid: &str,
    ) -> anyhow::Result<Instances> {
        let access = match self.access(recorded_region(client, namespace).await?).await {
            Ok(access) => access,
            Err(why) => return Ok(Instances::Unknown(format!("not checked: {why}"))),
        };
        list(access, uid).await
    }
}

#[cfg(feature = "aws")]
async fn list(access: Access, uid: &str) -> anyhow::Result<Instances> {
    Ok(match croft_cloud_aws::owned_instances(&access, uid).await {
        Ok(Some(instances)) => Instances::Found(instances),
        Ok(None) => Instances::Unknown("not checked: no region is set".to_owned()),
        Err(error) => Instances::Unknown(format!("not checked: {error}")),
    })
}

#[cfg(not(feature = "aws"))]
#[expect(clippy::unused_async, reason = "the same signature as with AWS")]
async fn list(access: Access, _: &str) -> anyhow::Result<Instances> {
    match access {}
}

#[cfg(feature = "aws")]
async fn read_catalog(access: Access) -> anyhow::Result<(Catalog, Vec<String>)> {
    let found = croft_cloud_aws::region_catalog(&access).await.map_err(|fault| of_person(&fault))?;
    anyhow::ensure!(
        !found.catalog.instance_types.is_empty(),
        "AWS lists no instance type in {}: give another region by --aws-region",
        found.region
    );
    Ok((found.catalog, found.warnings))
}

/// A refusal with what the person at the command line does: the remedy of a fault is that of the controller.
#[cfg(feature = "aws")]
fn of_person(fault: &Fault) -> anyhow::Error {
    let Fault { action, code, class, message, meaning, remedy: _ } = fault;
    let remedy = match (code.as_str(), class) {
        ("NoEndpoint", _) => "see whether --aws-region is a region, and this computer is online",
        (_, FaultClass::Unauthenticated) => {
            "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or sign in (aws sso login)"
        }
        (_, FaultClass::Forbidden) => "ask for the right to this call",
        _ => "try again later",
    };
    let message = if message.is_empty() { String::new() } else { format!(" ({message})") };
    anyhow::anyhow!(
        "{action} answered {code}: {meaning}{message}; {remedy}, or use croft catalog export --skip-aws"
    )
}

#[cfg(not(feature = "aws"))]
#[expect(clippy::unused_async, reason = "the same signature as with AWS")]
async fn read_catalog(access: Access) -> anyhow::Result<(Catalog, Vec<String>)> {
    match access {}
}

/// The UID of the Namespace kube-system, which tags everything that Croft launches.
///
/// # Errors
/// If it can't be read.
pub(crate) async fn cluster_uid(client: &Client) -> anyhow::Result<String> {
    let namespace = Api::<Namespace>::all(client.clone())
        .get("kube-system")
        .await
        .context("failed to read the Namespace kube-system, whose UID tags the cluster's instances")?;
    Ok(namespace.metadata.uid.unwrap_or_default())
}

/// The region that the controller recorded on Croft's Namespace.
///
/// # Errors
/// If the Namespace can't be read.
async fn recorded_region(client: &Client, namespace: &str) -> anyhow::Result<Option<String>> {
    let annotations = annotations_of(client, namespace).await?;
    Ok(annotations.get(&format!("{}region", croft_policy::definitions::IDENTITY_PREFIX)).cloned())
}

/// The annotations of a Namespace; none if it doesn't exist.
///
/// # Errors
/// If it can't be read.
pub(crate) async fn annotations_of(
    client: &Client,
    namespace: &str,
) -> anyhow::Result<BTreeMap<String, String>> {
    let found = Api::<Namespace>::all(client.clone()).get_opt(namespace).await;
    let found = found.with_context(|| format!("failed to read the Namespace {namespace}"))?;
    Ok(found.and_then(|n| n.metadata.annotations).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_has_lower_case_letters_digits_and_hyphens() {
        assert_eq!(region("eu-central-1"), Ok("eu-central-1".to_owned()));
        for wrong in ["", "eu central", "EU"] {
            assert!(region(wrong).unwrap_err().contains("eu-central-1"), "{wrong}");
        }
    }

    #[cfg(feature = "aws")]
    #[test]
    fn missing_credentials_are_those_of_the_person() {
        let fault = Fault {
            action: "DescribeInstanceTypes",
            code: "NoCredentials".to_owned(),
            class: FaultClass::Unauthenticated,
            message: String::new(),
            meaning: "no credentials were found",
            remedy: "Give the controller valid credentials",
        };
        let text = of_person(&fault).to_string();
        assert!(text.contains("no credentials were found; set AWS_PROFILE"), "{text}");
        assert!(!text.contains("controller"), "{text}");
    }
}
