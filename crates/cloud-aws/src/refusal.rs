//! From the SDK's errors to Croft's.

use aws_smithy_runtime_api::client::{orchestrator::HttpResponse, result::SdkError};
use aws_smithy_types::error::{display::DisplayErrorContext, metadata::ProvideErrorMetadata};
use croft_cloud::{CloudError, Fault, FaultClass};

use crate::codes;

/// What `action` was refused with.
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
            let text = DisplayErrorContext(other).to_string();
            // The SDK has no type for this: credentials are looked up inside the call.
            let credentials = text.contains("credentials") || text.contains("CredentialsError");
            let code = if credentials { "NoCredentials" } else { "NoAnswer" };
            of_code(action, code.to_owned(), text, None)
        }
    }
}

/// The fault of a code, by the table or else by the HTTP status.
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

/// A fault as the error of a call that wanted `what`.
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
