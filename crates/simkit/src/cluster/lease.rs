//! The API server's part in the election: serves the controllers' Lease to the election that the processes run.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use http::{Request, Response, StatusCode};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::{BoxError, service_fn};

use super::{
    environment::{Environment, Links},
    store::Id,
};

/// The namespace of the Lease.
pub(crate) const NAMESPACE: &str = "croft-system";
/// The name of the Lease.
pub(crate) const NAME: &str = "croft-controller";

/// A client of one process that reaches nothing but the Lease.
pub(crate) fn client(environment: &Arc<Environment>, links: &Arc<Links>) -> Client {
    let (environment, links) = (Arc::clone(environment), Arc::clone(links));
    let serve = move |request: Request<Body>| {
        let (environment, links) = (Arc::clone(&environment), Arc::clone(&links));
        async move { serve(&environment, &links, request).await }
    };
    Client::new(service_fn(serve), NAMESPACE)
}

/// Serves one request: late, lost or refused, as any call to the API server.
async fn serve(
    environment: &Environment,
    links: &Links,
    request: Request<Body>,
) -> Result<Response<Body>, BoxError> {
    let (parts, body) = request.into_parts();
    let body = body.collect_bytes().await?;
    sleep(Duration::from_millis(environment.delay(0, 5))).await;
    links.wait_while_paused().await;
    let (lost, cut, throttled) = {
        let faults = *environment.faults.lock().unwrap();
        let mut random = environment.random.lock().unwrap();
        (
            random.permille(faults.api_lost),
            random.permille(faults.api_cut),
            random.permille(faults.api_throttled),
        )
    };
    if links.unauthorized.load(Ordering::Relaxed) {
        return Ok(status(401, "Unauthorized"));
    }
    if cut || environment.is_api_cut(links) {
        sleep(Duration::from_secs(3)).await;
        return Err("the connection is cut".into());
    }
    if throttled {
        return Ok(status(429, "TooManyRequests"));
    }
    let answer = answer(environment, parts.method.as_str(), &body);
    sleep(Duration::from_millis(environment.delay(0, 5))).await;
    links.wait_while_paused().await;
    if lost || environment.is_api_cut(links) {
        return Err("the answer is lost".into());
    }
    Ok(answer)
}

fn answer(environment: &Environment, method: &str, body: &[u8]) -> Response<Body> {
    let id: Id = ("Lease", NAMESPACE.to_owned(), NAME.to_owned());
    let mut store = environment.store.lock().unwrap();
    if method != "GET" {
        let lease: Value = serde_json::from_slice(body).unwrap();
        let version = store.get(&id).map(|held| held["metadata"]["resourceVersion"].clone());
        match (method, version) {
            ("POST", None) => {
                store.create(id.clone(), lease, environment.clock.true_wall());
            }
            ("POST", Some(_)) => return status(409, "AlreadyExists"),
            (_, Some(version)) if version != lease["metadata"]["resourceVersion"] => {
                return status(409, "Conflict");
            }
            _ => store.change(&id, |held| *held = lease),
        }
    }
    match store.get(&id) {
        Some(lease) => response(StatusCode::OK, lease),
        None => status(404, "NotFound"),
    }
}

fn response(code: StatusCode, body: &Value) -> Response<Body> {
    Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap()
}

fn status(code: u16, reason: &str) -> Response<Body> {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason,
        "code": code});
    response(StatusCode::from_u16(code).unwrap(), &body)
}
