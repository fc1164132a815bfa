//! The SDK's clients: region, credentials, endpoint, TLS with ring, timeouts and retries.

use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};
use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

/// How AWS is reached.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Region; without it the environment, the profile or the machine's metadata say.
    pub region: Option<String>,
    /// One endpoint for every service: a simulator.
    pub endpoint_url: Option<String>,
    /// Keys given by hand; without them the SDK's usual chain finds some.
    pub keys: Option<Keys>,
    /// Attempts per call, the first included; 0 for the default of three.
    pub attempts: u32,
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
    pub(crate) ssm: aws_sdk_ssm::Client,
    pub(crate) sqs: aws_sdk_sqs::Client,
    pub(crate) pricing: aws_sdk_pricing::Client,
    pub(crate) iam: aws_sdk_iam::Client,
    pub(crate) sts: aws_sdk_sts::Client,
    pub(crate) eks: aws_sdk_eks::Client,
    pub(crate) region: String,
}

/// Time for one attempt. SQS waits up to 20 s by design.
const ATTEMPT: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(3);
/// The price list is served from few regions and describes all.
const PRICING_REGION: &str = "us-east-1";

pub(crate) async fn connect(access: &Access) -> Clients {
    let http =
        aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
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
    let config = loader.load().await;
    let region = config.region().map_or_else(|| "us-east-1".to_owned(), ToString::to_string);
    Clients {
        ec2: aws_sdk_ec2::Client::new(&config),
        ssm: aws_sdk_ssm::Client::new(&config),
        sqs: aws_sdk_sqs::Client::new(&config),
        pricing: aws_sdk_pricing::Client::new(&in_region(&config, PRICING_REGION)),
        iam: aws_sdk_iam::Client::new(&config),
        sts: aws_sdk_sts::Client::new(&config),
        eks: aws_sdk_eks::Client::new(&config),
        region,
    }
}

fn in_region(config: &SdkConfig, region: &'static str) -> SdkConfig {
    config.to_builder().region(Region::from_static(region)).build()
}
