//! An S3 bucket as an object store, with the SDK's credentials and connections.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use async_trait::async_trait;
use aws_credential_types::provider::{ProvideCredentials as _, SharedCredentialsProvider};
use aws_smithy_async::rt::sleep::TokioSleep;
use aws_smithy_http_client::Connector;
use aws_smithy_runtime_api::client::{
    http::{HttpConnector as _, HttpConnectorSettings, SharedHttpConnector},
    result::ConnectorError,
};
use aws_smithy_types::body::SdkBody;
use http_body_util::BodyExt as _;
use object_store::{
    ClientOptions, CredentialProvider, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, AwsCredential},
    client::{HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService},
    prefix::PrefixStore,
};

use crate::connect::{self, Access, TLS};

/// The endpoint of S3 alone. Source: "Service-specific endpoints", the AWS SDKs
/// and Tools Reference Guide.
const ENDPOINT: &str = "AWS_ENDPOINT_URL_S3";
const ATTEMPT: Duration = Duration::from_secs(30);
/// A caller that writes tries again later.
const RETRY_FOR: Duration = Duration::from_secs(20);
const RETRIES: usize = 2;

/// Objects of a bucket, as `s3://bucket/prefix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketUrl {
    bucket: String,
    /// Empty for the whole bucket; no `/` at its ends.
    prefix: String,
}

impl FromStr for BucketUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is no place in S3: write s3://BUCKET/PREFIX");
        let (bucket, prefix) = match text.strip_prefix("s3://").ok_or_else(wrong)?.split_once('/') {
            Some((bucket, prefix)) => (bucket, prefix.trim_matches('/')),
            None => (text.trim_start_matches("s3://"), ""),
        };
        // Source: "General purpose bucket naming rules", the S3 User Guide.
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-');
        if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(is_name) {
            return Err(wrong());
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

impl fmt::Display for BucketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.prefix)
    }
}

/// Why a bucket can't be opened.
#[derive(Debug, thiserror::Error)]
#[error("failed to open {url}")]
pub struct BucketError {
    url: BucketUrl,
    #[source]
    source: object_store::Error,
}

/// The objects below the URL's prefix. Nothing is called yet.
///
/// # Errors
/// If there is no region, or the endpoint is no URL.
pub async fn open(access: &Access, url: &BucketUrl) -> Result<Arc<dyn ObjectStore>, BucketError> {
    let failed = |source| BucketError { url: url.clone(), source };
    let config = connect::configuration(access).await;
    let Some(region) = config.region() else {
        return Err(failed(object_store::Error::Generic {
            store: "S3",
            source: "no region is known: set AWS_REGION".into(),
        }));
    };
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&url.bucket)
        .with_region(region.as_ref())
        .with_http_connector(SdkConnections)
        .with_retry(RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_FOR, ..RetryConfig::default() });
    let given = access.s3_endpoint_url.clone().or_else(|| std::env::var(ENDPOINT).ok());
    let endpoint = given.or_else(|| config.endpoint_url().map(str::to_owned));
    builder = match endpoint {
        Some(endpoint) => builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint),
        None => builder.with_endpoint(regional_endpoint(region.as_ref())),
    };
    if let Some(provider) = config.credentials_provider() {
        builder = builder.with_credentials(Arc::new(SdkCredentials(provider)));
    }
    let store = builder.build().map_err(failed)?;
    Ok(Arc::new(PrefixStore::new(store, url.prefix.as_str())))
}

/// The endpoint of the region's partition. Source: "Amazon Simple Storage Service endpoints and quotas", the AWS general reference.
fn regional_endpoint(region: &str) -> String {
    let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
    format!("https://s3.{region}.amazonaws.com{suffix}")
}

/// The credentials that the other clients use, and how they are renewed.
#[derive(Debug)]
struct SdkCredentials(SharedCredentialsProvider);

#[async_trait]
impl CredentialProvider for SdkCredentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let Self(provider) = self;
        let found = provider
            .provide_credentials()
            .await
            .map_err(|error| object_store::Error::Generic { store: "S3", source: Box::new(error) })?;
        Ok(Arc::new(AwsCredential {
            key_id: found.access_key_id().to_owned(),
            secret_key: found.secret_access_key().to_owned(),
            token: found.session_token().map(str::to_owned),
        }))
    }
}

/// Connections with the SDK's TLS, so that there is one HTTP client in the process.
#[derive(Debug)]
struct SdkConnections;

impl HttpConnector for SdkConnections {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        let settings =
            HttpConnectorSettings::builder().connect_timeout(connect::CONNECT).read_timeout(ATTEMPT).build();
        let connector = Connector::builder()
            .tls_provider(TLS)
            .connector_settings(settings)
            .sleep_impl(TokioSleep::new())
            .build();
        Ok(HttpClient::new(SdkHttp(SharedHttpConnector::new(connector))))
    }
}

#[derive(Debug)]
struct SdkHttp(SharedHttpConnector);

#[async_trait]
impl HttpService for SdkHttp {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let Self(connector) = self;
        let (parts, body) = request.into_parts();
        let body = SdkBody::from(body.collect().await?.to_bytes().to_vec());
        let request = http::Request::from_parts(parts, body)
            .try_into()
            .map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let response = connector.call(request).await.map_err(|error| HttpError::new(kind(&error), error))?;
        let (parts, body) = response
            .try_into_http1x()
            .map_err(|error| HttpError::new(HttpErrorKind::Decode, error))?
            .into_parts();
        let body =
            body.collect().await.map_err(|error| HttpError::new_boxed(HttpErrorKind::Interrupted, error))?;
        Ok(http::Response::from_parts(parts, body.to_bytes().into()))
    }
}

fn kind(error: &ConnectorError) -> HttpErrorKind {
    if error.is_timeout() {
        HttpErrorKind::Timeout
    } else if error.is_io() {
        HttpErrorKind::Connect
    } else {
        HttpErrorKind::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_bucket_and_a_prefix() {
        let read = |text: &str| text.parse::<BucketUrl>();
        for (text, bucket, prefix) in [
            ("s3://croft-record", "croft-record", ""),
            ("s3://croft-record/", "croft-record", ""),
            ("s3://croft.record/prod/eu/", "croft.record", "prod/eu"),
        ] {
            let url = read(text).unwrap();
            assert_eq!((url.bucket.as_str(), url.prefix.as_str()), (bucket, prefix));
        }
        for wrong in
            ["", "croft-record", "https://croft-record.s3.amazonaws.com", "s3://", "s3:///x", "s3://Croft"]
        {
            assert!(read(wrong).unwrap_err().contains("write s3://BUCKET/PREFIX"), "{wrong}");
        }
    }

    #[test]
    fn china_has_its_own_domain() {
        assert_eq!(regional_endpoint("cn-north-1"), "https://s3.cn-north-1.amazonaws.com.cn");
        assert_eq!(regional_endpoint("us-gov-west-1"), "https://s3.us-gov-west-1.amazonaws.com");
    }
}
