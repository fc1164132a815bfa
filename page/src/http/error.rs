//! Why a request has no answer, as JSON: `{"error": "..."}`.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use crate::{access::AccessError, views::what_if::WhatIfError};

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The reader isn't known, or may see nothing.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The first lists aren't complete.
    #[error("the page is starting: the cluster is being listed; retry in a few seconds")]
    Starting,
    /// There is no such object that the reader may see.
    #[error("there is no {0} that you may see")]
    Missing(String),
    /// The route is for operators.
    #[error("{0} concern the whole cluster: only operators see them")]
    OperatorOnly(&'static str),
    /// A parameter is wrong.
    #[error("{0}")]
    Invalid(String),
    /// The manifest has no answer.
    #[error(transparent)]
    WhatIf(#[from] WhatIfError),
    /// The body is too long.
    #[error("the body is longer than {0} bytes")]
    TooLong(usize),
    /// The body took too long.
    #[error("the body didn't arrive in time")]
    TooSlow,
    /// Another origin asks with this reader's cookie.
    #[error("requests of other sites are refused")]
    OtherSite,
    /// Too much is computed already.
    #[error("too many requests are in flight: retry in a few seconds")]
    Busy,
    /// The computation ended early; its panic is in the log.
    #[error("the computation failed; see the log of croft-page and report it")]
    Failed,
}

impl ApiError {
    const fn status(&self) -> StatusCode {
        match self {
            Self::Access(AccessError::Unauthenticated) => StatusCode::UNAUTHORIZED,
            Self::Access(AccessError::Forbidden(_)) | Self::OperatorOnly(_) | Self::OtherSite => {
                StatusCode::FORBIDDEN
            }
            Self::Access(AccessError::Unavailable) | Self::Starting => StatusCode::SERVICE_UNAVAILABLE,
            Self::Missing(_) => StatusCode::NOT_FOUND,
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::WhatIf(WhatIfError::Foreign(_) | WhatIfError::OperatorOnly(_)) => StatusCode::FORBIDDEN,
            Self::WhatIf(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
            Self::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = (status, axum::Json(json!({ "error": self.to_string() }))).into_response();
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
        }
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
