//! Calls to services of which Croft needs a few operations: IAM, SSM, EKS and EventBridge.
//!
//! Together the SDK's clients for them take as long to compile as EC2's, for fifteen operations. These are written here, on
//! the SDK's own orchestrator: signing, credentials, retries, timeouts and connections are the SDK's. Each module has one
//! service's operations, its endpoints, and how it writes an error.

pub(crate) mod eks;
pub(crate) mod events;
pub(crate) mod iam;
mod json;
pub(crate) mod ssm;
#[cfg(test)]
mod wire;

use std::time::Duration;

use aws_config::{SdkConfig, retry::RetryConfig};
use aws_runtime::{
    auth::{SigV4OperationSigningConfig, SigningOptions, sigv4},
    retries::classifiers::AwsErrorCodeClassifier,
};
use aws_smithy_runtime::client::{
    identity::IdentityCache,
    orchestrator::operation::Operation,
    retries::classifiers::{HttpStatusCodeClassifier, TransientErrorClassifier},
};
use aws_smithy_runtime_api::{
    box_error::BoxError,
    client::{
        auth::{
            AuthSchemeOptionResolverParams, SharedAuthScheme, SharedAuthSchemeOptionResolver,
            static_resolver::StaticAuthSchemeOptionResolver,
        },
        identity::SharedIdentityResolver,
        orchestrator::{HttpRequest, HttpResponse, OrchestratorError},
        result::SdkError,
        runtime_components::RuntimeComponentsBuilder,
        runtime_plugin::StaticRuntimePlugin,
    },
};
use aws_smithy_types::{body::SdkBody, config_bag::Layer, error::metadata::ErrorMetadata};
use aws_types::{SigningName, region::SigningRegion, service_config::ServiceConfigKey};

/// The failure of a call.
pub(crate) type CallError = SdkError<ErrorMetadata, HttpResponse>;

/// How a service is called.
struct Service {
    /// The SDK's id of it, by which settings name it.
    id: &'static str,
    /// Its name in signatures.
    name: &'static str,
    /// Its endpoint in a region.
    endpoint: fn(&str, Variant) -> Endpoint,
    /// Code and message of a refusal; `None` if the answer isn't the service's.
    read_error: fn(&HttpResponse) -> Option<ErrorMetadata>,
}

/// Which of a service's endpoints in a region.
#[derive(Clone, Copy, Debug, Default)]
struct Variant {
    fips: bool,
    dual_stack: bool,
}

struct Endpoint {
    host: String,
    /// The region that calls are signed for.
    signing_region: String,
}

#[derive(Clone, Debug)]
struct Call {
    method: &'static str,
    /// URL-encoded.
    path: String,
    headers: Vec<(&'static str, &'static str)>,
    body: String,
}

/// Calls to one service.
#[derive(Clone, Debug)]
struct SignedCalls {
    service: &'static str,
    /// `None` without a region: then neither the endpoint nor what to sign for is known.
    operation: Option<Operation<Call, String, ErrorMetadata>>,
}

impl SignedCalls {
    /// Calls with the credentials, endpoint, retries and timeouts of `config`.
    fn new(config: &SdkConfig, service: &'static Service) -> Self {
        Self { service: service.id, operation: operation(config, service) }
    }

    /// Sends `call` and returns the body of its answer.
    async fn send(&self, call: Call) -> Result<String, CallError> {
        match &self.operation {
            Some(operation) => operation.invoke(call).await,
            None => {
                let why = format!("a region must be set to call {}", self.service);
                Err(SdkError::construction_failure(why))
            }
        }
    }
}

fn operation(
    config: &SdkConfig,
    service: &'static Service,
) -> Option<Operation<Call, String, ErrorMetadata>> {
    let variant = Variant {
        fips: config.use_fips().unwrap_or_default(),
        dual_stack: config.use_dual_stack().unwrap_or_default(),
    };
    let endpoint = (service.endpoint)(config.region()?.as_ref(), variant);
    // As the SDK's clients: the service's own setting, then the one of all services.
    let own = config.service_config().and_then(|settings| {
        let key = ServiceConfigKey::builder().service_id(service.id);
        let key = key.env("AWS_ENDPOINT_URL").profile("endpoint_url").build();
        key.ok().and_then(|key| settings.load_config(key))
    });
    let url = own
        .or_else(|| config.endpoint_url().map(str::to_owned))
        .unwrap_or_else(|| format!("https://{}", endpoint.host));

    let mut layer = Layer::new("call");
    layer.store_put(AuthSchemeOptionResolverParams::new(()));
    layer.store_put(SigningName::from_static(service.name));
    layer.store_put(SigningRegion::from(aws_config::Region::new(endpoint.signing_region)));
    layer.store_put(SigV4OperationSigningConfig {
        signing_options: SigningOptions::default(),
        ..SigV4OperationSigningConfig::default()
    });
    let mut components = RuntimeComponentsBuilder::new("call")
        .with_auth_scheme(SharedAuthScheme::new(sigv4::SigV4AuthScheme::new()))
        .with_auth_scheme_option_resolver(Some(SharedAuthSchemeOptionResolver::new(
            StaticAuthSchemeOptionResolver::new(vec![sigv4::SCHEME_ID]),
        )))
        .with_identity_cache(Some(config.identity_cache().unwrap_or_else(|| IdentityCache::lazy().build())));
    if let Some(credentials) = config.credentials_provider() {
        components.set_identity_resolver(sigv4::SCHEME_ID, SharedIdentityResolver::new(credentials));
    }
    let retries = config.retry_config().cloned().unwrap_or_else(RetryConfig::standard);
    let mut builder = Operation::builder()
        .service_name(service.name)
        .operation_name("call")
        .endpoint_url(url.trim_end_matches('/'))
        .standard_retry(&retries)
        .timeout_config(config.timeout_config().cloned().unwrap_or_else(default_timeouts))
        .retry_classifier(TransientErrorClassifier::<ErrorMetadata>::new())
        .retry_classifier(HttpStatusCodeClassifier::default())
        .retry_classifier(AwsErrorCodeClassifier::<ErrorMetadata>::new())
        .with_connection_poisoning()
        .runtime_plugin(
            StaticRuntimePlugin::new().with_config(layer.freeze()).with_runtime_components(components),
        );
    if let Some(http) = config.http_client() {
        builder = builder.http_client(http);
    }
    if let Some(version) = config.behavior_version() {
        builder = builder.behavior_version(version);
    }
    let read = |response: &HttpResponse| read_answer(response, service.read_error);
    Some(builder.serializer(write_request).deserializer(read).build())
}

fn default_timeouts() -> aws_config::timeout::TimeoutConfig {
    aws_config::timeout::TimeoutConfig::builder().operation_attempt_timeout(Duration::from_secs(30)).build()
}

fn write_request(call: Call) -> Result<HttpRequest, BoxError> {
    let mut request = HttpRequest::new(SdkBody::from(call.body));
    request.set_method(call.method)?;
    request.set_uri(call.path)?;
    let headers = request.headers_mut();
    for (name, value) in call.headers {
        headers.insert(name, value);
    }
    headers.insert("user-agent", concat!("croft/", env!("CARGO_PKG_VERSION")));
    Ok(request)
}

fn read_answer(
    response: &HttpResponse,
    read_error: fn(&HttpResponse) -> Option<ErrorMetadata>,
) -> Result<String, OrchestratorError<ErrorMetadata>> {
    let body = response.body().bytes().unwrap_or_default();
    if response.status().is_success() {
        return String::from_utf8(body.to_vec()).map_err(OrchestratorError::other);
    }
    let error = read_error(response).filter(|error| error.code().is_some()).unwrap_or_else(|| {
        // Another's, such as a proxy's page: an error without a code.
        let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
        ErrorMetadata::builder().message(text).build()
    });
    Err(OrchestratorError::operation(error))
}
