//! Sessions: a token in a cookie that no script reads, and that a browser sends to this site alone.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Request, State as Shared},
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};

use super::{
    cookie,
    error::ApiError,
    page::Page,
    reader::{Reader, check_site, read_body},
};

/// Bytes of a sign-in's body.
const BODY_BYTES: usize = 20 << 10;

/// A sign-in.
#[derive(Deserialize)]
struct SignIn {
    token: String,
}

/// The reader of a session.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    /// The name of the cluster; empty if it isn't known.
    cluster: String,
    user: String,
    operator: bool,
    tenants: Vec<String>,
    namespaces: Vec<String>,
}

/// Signs in: the body is `{"token": "..."}`, the answer is the reader, and sets the cookie.
///
/// # Errors
/// If the body or the token is wrong.
pub async fn sign_in(Shared(page): Shared<Arc<Page>>, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    check_site(&parts.headers)?;
    let is_json = parts
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let wrong = || {
        ApiError::Invalid(
            "write the token as {\"token\": \"...\"}, with the content type application/json".to_owned(),
        )
    };
    if !is_json {
        return Err(wrong());
    }
    let body = read_body(body, BODY_BYTES).await?;
    let SignIn { token } = serde_json::from_slice(&body).map_err(|_| wrong())?;
    let cookie = cookie::set(&token, "").ok_or_else(wrong)?;
    let reader = Reader::new(&page, token).await?;
    let mut response = Json(view(&reader)).into_response();
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

/// The reader of the session or token.
pub async fn show(reader: Reader) -> Json<SessionView> {
    Json(view(&reader))
}

/// Signs out: the cookie is removed.
pub async fn sign_out() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Some(cookie) = cookie::set("", "; Max-Age=0") {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

fn view(reader: &Reader) -> SessionView {
    let Reader { page, identity, scope, model, .. } = reader;
    let tenants = model.tenants.keys().filter(|tenant| scope.sees_tenant(model, tenant));
    SessionView {
        cluster: page.state.name().to_owned(),
        user: identity.user.clone(),
        operator: scope.is_operator(),
        tenants: tenants.cloned().collect(),
        namespaces: model.owners.keys().filter(|one| scope.sees_namespace(one)).cloned().collect(),
    }
}
