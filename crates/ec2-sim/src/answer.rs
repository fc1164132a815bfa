//! Calls and answers, independent of the protocols that carry them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{params::Params, xml::Xml};

/// A service of the simulated cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Service {
    /// Instances.
    Ec2,
    /// Parameters, where the images' ids are published.
    Ssm,
    /// The interruption queue.
    Sqs,
    /// The price list.
    Pricing,
    /// Instance profiles.
    Iam,
    /// The caller's identity.
    Sts,
    /// The cluster's endpoint and CA.
    Eks,
    /// EventBridge.
    Events,
}

impl Service {
    /// The prefix of its IAM actions.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Ec2 => "ec2",
            Self::Ssm => "ssm",
            Self::Sqs => "sqs",
            Self::Pricing => "pricing",
            Self::Iam => "iam",
            Self::Sts => "sts",
            Self::Eks => "eks",
            Self::Events => "events",
        }
    }
}

/// One call, without its signature.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// Which service is called.
    pub service: Service,
    /// The action, such as `CreateFleet`.
    pub action: String,
    /// Query parameters, for the services that have those.
    pub params: Params,
    /// The JSON body, for the others.
    pub json: Value,
    /// The access key that signed it; empty if unsigned.
    pub access_key: String,
}

/// The answer to a call.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Inner XML of a Query answer.
    Xml(String),
    /// A JSON document.
    Json(Value),
    /// A refusal.
    Refused(Refusal),
    /// The connection breaks, before or after the call took effect.
    Aborted,
}

impl From<Xml> for Answer {
    fn from(xml: Xml) -> Self {
        Self::Xml(xml.into_string())
    }
}

/// A refusal, with the real service's error code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// The service's code.
    pub code: String,
    /// The service's message.
    pub message: String,
}

impl Refusal {
    /// A refusal with the status that the real service sends with `code`.
    #[must_use]
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        let status = match code {
            "RequestLimitExceeded" | "Unavailable" | "ServiceUnavailable" | "Throttling" => 503,
            "InternalError" | "InternalFailure" => 500,
            "UnauthorizedOperation" | "AccessDenied" | "InvalidClientTokenId" | "AccessDeniedException" => {
                403
            }
            "AuthFailure" => 401,
            "NoSuchEntity" | "ResourceNotFoundException" => 404,
            "EntityAlreadyExists" | "LimitExceeded" => 409,
            _ => 400,
        };
        Self { status, code: code.to_owned(), message: message.into() }
    }

    /// A required parameter.
    #[must_use]
    pub fn missing(parameter: &str) -> Self {
        Self::new("MissingParameter", format!("The request must contain the parameter {parameter}"))
    }
}

/// Result of an action.
pub type Outcome = Result<Answer, Refusal>;
