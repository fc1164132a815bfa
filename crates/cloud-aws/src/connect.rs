//! The SDK's clients: region, credentials, endpoint, TLS with ring, timeouts and retries.

use std::{sync::Arc, time::Duration};

use aws_config::{
    BehaviorVersion, Region, SdkConfig, meta::region::ProvideRegion as _, retry::RetryConfig,
    timeout::TimeoutConfig,
};
use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

use crate::{
    calls::{eks, events, iam, ssm},
    transport::{self, Transport},
};

/// Region, endpoint and credentials.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Region; without it, that of the environment, the profile or the instance metadata.
    pub region: Option<String>,
    /// One endpoint for every service, such as a simulator.
    pub endpoint_url: Option<String>,
    /// The endpoint of S3 alone, such as another vendor's store; without it, that of the environment.
    pub s3_endpoint_url: Option<String>,
    /// Static keys; without them the SDK's default chain.
    pub keys: Option<Keys>,
    /// Attempts per call, including the first; 0 for the default of three.
    pub attempts: u32,
    /// Carries every request in place of the network.
    pub transport: Option<Arc<dyn Transport>>,
}

/// An access key with its secret.
#[derive(Clone)]
pub struct Keys {
    /// The key's id.
    pub id: String,
    /// Its secret.
    pub secret: String,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("id", &self.id).finish_non_exhaustive()
    }
}

/// One client per service.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    pub(crate) ec2: aws_sdk_ec2::Client,
    pub(crate) ssm: ssm::Client,
    pub(crate) sqs: aws_sdk_sqs::Client,
    /// `None` if no endpoint has the region's prices.
    pub(crate) pricing: Option<aws_sdk_pricing::Client>,
    /// The currency of the partition.
    pub(crate) currency: &'static str,
    pub(crate) iam: iam::Client,
    pub(crate) sts: aws_sdk_sts::Client,
    pub(crate) eks: eks::Client,
    pub(crate) events: events::Client,
    pub(crate) region: String,
}

/// Time for one attempt. SQS waits up to 20 s by design.
const ATTEMPT: Duration = Duration::from_secs(30);
pub(crate) const CONNECT: Duration = Duration::from_secs(3);
pub(crate) const TLS: Provider = Provider::Rustls(CryptoMode::Ring);
/// The region whose endpoint has the price list of `region`: few have it, each for all regions of its partition.
/// GovCloud and the isolated partitions have none, and credentials are valid in one partition only. Source: "AWS Price
/// List endpoints and quotas", the AWS general reference.
fn pricing_region(region: &str) -> Option<&'static str> {
    let within = |prefixes: &[&str]| prefixes.iter().any(|prefix| region.starts_with(prefix));
    if within(&["us-gov-", "us-iso", "eu-iso", "eusc-"]) {
        None
    } else if within(&["cn-"]) {
        Some("cn-northwest-1")
    } else if within(&["eu-", "il-", "me-", "af-"]) {
        Some("eu-central-1")
    } else if within(&["ap-"]) {
        Some("ap-south-1")
    } else {
        Some("us-east-1")
    }
}

/// The currency of the partition of `region`: prices are compared, never converted.
fn currency(region: &str) -> &'static str {
    if region.starts_with("cn-") { "CNY" } else { "USD" }
}

/// The configuration that every client is made from.
pub(crate) async fn configuration(access: &Access) -> SdkConfig {
    let http = match &access.transport {
        Some(transport) => transport::client(Arc::clone(transport)),
        None => aws_smithy_http_client::Builder::new().tls_provider(TLS).build_https(),
    };
    let attempts = if access.attempts == 0 { 3 } else { access.attempts };
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http)
        .retry_config(
            RetryConfig::standard()
                .with_max_attempts(attempts)
                .with_initial_backoff(Duration::from_millis(200)),
        )
        .timeout_config(
            TimeoutConfig::builder().connect_timeout(CONNECT).operation_attempt_timeout(ATTEMPT).build(),
        );
    if let Some(region) = &access.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(url) = &access.endpoint_url {
        loader = loader.endpoint_url(url);
    }
    if let Some(keys) = &access.keys {
        let credentials = Credentials::new(&keys.id, &keys.secret, None, None, "given by hand");
        loader = loader.credentials_provider(SharedCredentialsProvider::new(credentials));
    }
    loader.load().await
}

pub(crate) async fn connect(access: &Access) -> Clients {
    let config = configuration(access).await;
    // Without a region every call fails, which the class's condition shows.
    let region = config.region().map(ToString::to_string).unwrap_or_default();
    Clients {
        ec2: aws_sdk_ec2::Client::new(&config),
        ssm: ssm::Client::new(&config),
        sqs: aws_sdk_sqs::Client::new(&config),
        pricing: pricing_region(&region)
            .map(|serving| aws_sdk_pricing::Client::new(&in_region(&config, serving))),
        currency: currency(&region),
        iam: iam::Client::new(&config),
        sts: aws_sdk_sts::Client::new(&config),
        eks: eks::Client::new(&config),
        events: events::Client::new(&config),
        region,
    }
}

/// The region of the environment or of the profile. The instance metadata isn't asked: it answers on EC2 alone, and elsewhere
/// waits for seconds.
pub async fn configured_region() -> Option<String> {
    let environment = aws_config::environment::EnvironmentVariableRegionProvider::new().region().await;
    let region = match environment {
        Some(region) => Some(region),
        None => aws_config::profile::ProfileFileRegionProvider::builder().build().region().await,
    };
    region.map(|region| region.to_string())
}

fn in_region(config: &SdkConfig, region: &'static str) -> SdkConfig {
    config.to_builder().region(Region::from_static(region)).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_map_to_their_price_list_or_none() {
        for (region, serving, paid_in) in [
            ("us-west-2", Some("us-east-1"), "USD"),
            ("ca-central-1", Some("us-east-1"), "USD"),
            ("eu-west-1", Some("eu-central-1"), "USD"),
            ("ap-southeast-2", Some("ap-south-1"), "USD"),
            ("cn-north-1", Some("cn-northwest-1"), "CNY"),
            ("us-gov-west-1", None, "USD"),
            ("us-isob-east-1", None, "USD"),
            ("eu-isoe-west-1", None, "USD"),
        ] {
            assert_eq!((pricing_region(region), currency(region)), (serving, paid_in), "{region}");
        }
    }
}
