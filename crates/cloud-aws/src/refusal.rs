//! The SDK's errors as Croft's.

use aws_smithy_runtime_api::client::{orchestrator::HttpResponse, result::SdkError};
use aws_smithy_types::error::{display::DisplayErrorContext, metadata::ProvideErrorMetadata};
use croft_cloud::{CloudError, Fault, FaultClass};
use croft_runtime::process::chain;

use crate::codes;

/// The fault of a refused call of `action`.
pub(crate) fn fault<E>(action: &'static str, error: &SdkError<E, HttpResponse>) -> Fault
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    match error {
        SdkError::ServiceError(service) => {
            let code = service.err().code().unwrap_or("Unknown").to_owned();
            let message = service.err().message().unwrap_or_default().to_owned();
            let status = service.raw().status().as_u16();
            of_code(action, code, message, Some(status))
        }
        other => {
            // The SDK's own text ends with its types and their fields, by which the cause is found and which no reader needs.
            let code = cause(&DisplayErrorContext(other).to_string()).to_owned();
            of_code(action, code, chain(other), None)
        }
    }
}

/// Croft's own code for a call without an answer, derived from the SDK's message: the SDK has no error type for these,
/// since region, credentials and address are resolved inside the call.
fn cause(text: &str) -> &'static str {
    let text = text.to_ascii_lowercase();
    let any = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if any(&["missing region", "region must be set", "a region was not"]) {
        "NoRegion"
    } else if any(&["credentials"]) {
        "NoCredentials"
    } else if any(&["dns error", "failed to lookup address", "name or service not known"]) {
        "NoEndpoint"
    } else {
        "NoAnswer"
    }
}

/// The fault for a code, by the table, else by the HTTP status.
pub(crate) fn of_code(action: &'static str, code: String, message: String, status: Option<u16>) -> Fault {
    if let Some(row) = codes::find(&code) {
        return Fault { action, code, class: row.class, message, meaning: row.meaning, remedy: row.remedy };
    }
    let (class, meaning) = match status {
        Some(400..=499) => (FaultClass::Invalid, "AWS refused the request"),
        _ => (FaultClass::Unavailable, "AWS could not be reached or gave no usable answer"),
    };
    Fault { action, code, class, message, meaning, remedy: "" }
}

/// A fault as the error of an operation, which `what` describes.
pub(crate) fn refused(what: impl Into<String>, fault: Fault) -> CloudError {
    CloudError::Refused { what: what.into(), fault }
}

/// True if the call may have taken effect although it failed.
pub(crate) fn may_have_worked<E>(error: &SdkError<E, HttpResponse>) -> bool {
    match error {
        SdkError::ConstructionFailure(_) => false,
        SdkError::ServiceError(service) => service.raw().status().as_u16() >= 500,
        SdkError::DispatchFailure(failure) => !failure.is_user() && !is_connect(failure),
        _ => true,
    }
}

/// True if no connection was made, so that nothing was sent.
fn is_connect(failure: &aws_smithy_runtime_api::client::result::DispatchFailure) -> bool {
    failure.as_connector_error().is_some_and(|error| {
        let text = DisplayErrorContext(error).to_string();
        text.contains("dns error")
            || text.contains("Connection refused")
            || text.contains("tcp connect error")
    })
}

#[cfg(test)]
mod tests {
    use aws_config::{BehaviorVersion, Region, SdkConfig};
    use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, error, future};

    use super::*;

    /// An instance without credentials.
    #[derive(Debug)]
    struct NoCredentials;

    impl ProvideCredentials for NoCredentials {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            future::ProvideCredentials::ready(Err(error::CredentialsError::not_loaded("nothing is there")))
        }
    }

    async fn ask(region: Option<&'static str>, credentials: SharedCredentialsProvider) -> Fault {
        let mut config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .retry_config(aws_config::retry::RetryConfig::disabled())
            .credentials_provider(credentials)
            .region(region.map(Region::from_static));
        // The port is reserved, and no process listens there.
        config.set_endpoint_url(region.map(|_| "http://127.0.0.1:1".to_owned()));
        let answer = aws_sdk_ec2::Client::new(&config.build()).describe_subnets().send().await;
        fault("DescribeSubnets", &answer.unwrap_err())
    }

    #[tokio::test]
    async fn sdk_failures_map_to_distinct_codes() {
        let key = aws_credential_types::Credentials::new("AKID", "secret", None, None, "test");
        let key = SharedCredentialsProvider::new(key);

        let none = SharedCredentialsProvider::new(NoCredentials);
        let fault = ask(Some("us-east-1"), none).await;
        assert_eq!((fault.code.as_str(), fault.class), ("NoCredentials", FaultClass::Unauthenticated));
        assert!(fault.remedy.contains("IRSA"), "{fault}");
        assert!(fault.message.contains("nothing is there") && !fault.message.contains('{'), "{fault}");

        let fault = ask(Some("us-east-1"), key.clone()).await;
        assert_eq!((fault.code.as_str(), fault.class), ("NoAnswer", FaultClass::Unavailable), "{fault}");
        assert!(fault.message.contains("Connection refused") && !fault.message.contains('{'), "{fault}");

        let fault = ask(None, key).await;
        assert_eq!((fault.code.as_str(), fault.class), ("NoRegion", FaultClass::Unauthenticated), "{fault}");
        assert!(fault.remedy.contains("region"), "{fault}");
    }

    #[test]
    fn unresolvable_endpoint_is_a_wrong_region() {
        let text = "dispatch failure: io error: client error (Connect): dns error: failed to lookup address information: Name or service not known";
        let fault = of_code("DescribeSubnets", cause(text).to_owned(), text.to_owned(), None);
        assert_eq!(fault.class, FaultClass::Unavailable);
        assert!(fault.to_string().contains("the region may not exist"), "{fault}");
    }
}
