//! The reader of a request: its token, who that is, and what that reader may see. Every route of data takes one.

use std::{sync::Arc, time::Duration};

use axum::{body::Body, extract::FromRequestParts};
use bytes::Bytes;
use croft_runtime::share::OwnedPermit;
use http::{HeaderMap, header, request::Parts};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::timeout;

use super::{cookie, error::ApiError, page::Page};
use crate::{
    access::{Access, AccessError, Held, Identity, Scope},
    model::facts::Model,
    state::store::State,
};

/// Time limit of a body.
const BODY_TIME: Duration = Duration::from_secs(10);

/// A reader, and the model that its scope was found for.
pub struct Reader {
    /// What answers it.
    pub page: Arc<Page>,
    /// The user.
    pub identity: Arc<Identity>,
    /// The part of the cluster that the user may see.
    pub scope: Scope,
    /// The model.
    pub model: Arc<Model>,
    /// The token, for later checks of an open stream.
    pub token: String,
    /// The amounts that the user holds.
    pub held: Arc<Held>,
    _counted: OwnedPermit<Held>,
}

impl Reader {
    /// The reader with `token`, counted until it is dropped.
    ///
    /// # Errors
    /// If the token has no reader, or the reader has its share of requests already.
    pub async fn new(page: &Arc<Page>, token: String) -> Result<Self, ApiError> {
        let model = page.model()?;
        let Access { identity, scope, held } = page.reviewer.access(&token, &model).await?;
        let counted = page.open_request(&held)?;
        Ok(Self { page: page.clone(), identity, scope, model, token, held, _counted: counted })
    }

    /// What `work` makes of objects and log for the reader, in the reader's turn.
    ///
    /// # Errors
    /// As [`Page::compute`].
    pub async fn compute<T: Send + 'static>(
        self,
        work: impl FnOnce(&State, &Model, &Scope) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let Self { page, scope, model, held, .. } = self;
        let state = page.state.clone();
        page.compute(&held, move || work(&state, &model, &scope)).await
    }
}

impl FromRequestParts<Arc<Page>> for Reader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, page: &Arc<Page>) -> Result<Self, ApiError> {
        Self::new(page, token(&parts.headers)?.to_owned()).await
    }
}

/// The token of a request: of the header, else of the cookie.
fn token(headers: &HeaderMap) -> Result<&str, ApiError> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let text = value.to_str().unwrap_or_default();
        let bearer = text.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        return bearer.map(|(_, token)| token.trim()).ok_or(ApiError::Access(AccessError::Unauthenticated));
    }
    check_site(headers)?;
    cookie::token(headers).ok_or(ApiError::Access(AccessError::Unauthenticated))
}

/// Refuses what a browser sends for another site. Programs send no such header.
///
/// # Errors
/// [`ApiError::OtherSite`].
pub fn check_site(headers: &HeaderMap) -> Result<(), ApiError> {
    match headers.get("sec-fetch-site").map(http::HeaderValue::as_bytes) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => Err(ApiError::OtherSite),
    }
}

/// A body of at most `limit` bytes.
///
/// # Errors
/// If it is longer, slower, or ends early.
pub async fn read_body(body: Body, limit: usize) -> Result<Bytes, ApiError> {
    match timeout(BODY_TIME, Limited::new(body, limit).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(ApiError::TooLong(limit)),
        Ok(Err(_)) => Err(ApiError::Invalid("the body ended early".to_owned())),
        Err(_) => Err(ApiError::TooSlow),
    }
}
