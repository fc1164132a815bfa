//! Requests of every route of data, from the router's own list.

use croft_page::http::router::ENDPOINTS;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use crate::world::{SHARED, World};

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) body: String,
}

/// The names that a call asks for.
pub(crate) struct Names {
    pub(crate) tenant: String,
    pub(crate) pool: String,
    /// A node and its NodeClaim.
    pub(crate) node: (String, String),
    pub(crate) namespace: String,
    /// A running pod, and a pending one.
    pub(crate) pods: [String; 2],
}

impl Names {
    /// The names of a tenant of the world.
    pub(crate) async fn of(world: &World, tenant: &str) -> Self {
        Self {
            tenant: tenant.to_owned(),
            pool: format!("pool-{tenant}"),
            node: world.node(&format!("pool-{tenant}")).await,
            namespace: tenant.to_owned(),
            pods: [
                world.pod(tenant, &format!("{tenant}-web")).await,
                world.pod(tenant, &format!("{tenant}-huge")).await,
            ],
        }
    }

    /// Every name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        let Self { tenant, pool, node: (node, claim), namespace, pods } = self;
        // Longer names first: the tenant's is a part of others.
        [node, claim, &pods[0], &pods[1], pool, tenant, namespace].into_iter().map(String::as_str)
    }

    /// Names of which there is nothing.
    pub(crate) fn nothing() -> Self {
        let none = || "no-such-name".to_owned();
        Self {
            tenant: none(),
            pool: none(),
            node: (none(), none()),
            namespace: none(),
            pods: [none(), none()],
        }
    }
}

/// A Deployment of two pods.
fn manifest(namespace: &str) -> String {
    let pod = json!({"metadata": {"labels": {"app": "new"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "new", "namespace": namespace},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "new"}}, "template": pod},
    })
    .to_string()
}

/// The calls of every route but the stream of events, for these names.
pub(crate) fn calls(names: &Names) -> Vec<Call> {
    let Names { tenant, pool, node: (node, claim), namespace, pods: [running, pending] } = names;
    let mut calls = Vec::new();
    for (method, route) in ENDPOINTS {
        let mut call = |path: String, body: String| calls.push(Call { method, path, body });
        let none = String::new;
        match (*method, *route) {
            ("get", "/api/v1/session" | "/api/v1/overview" | "/api/v1/map" | "/api/v1/plans") => {
                call((*route).to_owned(), none())
            }
            ("get", "/api/v1/at") => call(format!("{route}?at={}", i64::MAX / 2), none()),
            ("get", "/api/v1/at/pools/{name}") => {
                call(format!("/api/v1/at/pools/{pool}?at={}", i64::MAX / 2), none());
            }
            ("get", "/api/v1/at/tenants/{name}") => {
                call(format!("/api/v1/at/tenants/{tenant}?at={}", i64::MAX / 2), none());
            }
            ("get", "/api/v1/tenants/{name}") => call(format!("/api/v1/tenants/{tenant}"), none()),
            ("get", "/api/v1/tenants/{name}/pods") => call(format!("/api/v1/tenants/{tenant}/pods"), none()),
            ("get", "/api/v1/tenants/{name}/advice") => {
                call(format!("/api/v1/tenants/{tenant}/advice"), none())
            }
            ("get", "/api/v1/pools/{name}") => call(format!("/api/v1/pools/{pool}"), none()),
            ("get", "/api/v1/nodes/{name}") => {
                call(format!("/api/v1/nodes/{node}"), none());
                call(format!("/api/v1/nodes/{claim}"), none());
            }
            ("get", "/api/v1/nodes/{name}/removal") => {
                call(format!("/api/v1/nodes/{node}/removal"), none());
            }
            ("get", "/api/v1/nodes/{name}/advice") => {
                call(format!("/api/v1/nodes/{node}/advice"), none());
            }
            ("get", "/api/v1/pods/{namespace}/{name}/advice") => {
                call(format!("/api/v1/pods/{namespace}/{running}/advice"), none());
            }
            ("get", "/api/v1/pods/{namespace}/{name}") => {
                call(format!("/api/v1/pods/{namespace}/{running}"), none());
                call(format!("/api/v1/pods/{namespace}/{pending}"), none());
            }
            ("get", "/api/v1/history") => {
                call((*route).to_owned(), none());
                call(format!("{route}?tenant={tenant}"), none());
            }
            ("get", "/api/v1/curves") => call(format!("{route}?from={}", hours_ago(3)), none()),
            ("get", "/api/v1/cost") => call(format!("{route}?from={}", hours_ago(3)), none()),
            ("post", "/api/v1/what-if") => call((*route).to_owned(), manifest(namespace)),
            // Readers' own tokens, and the stream: `readers` has them.
            ("post" | "delete", "/api/v1/session") | ("get", "/api/v1/events") => {}
            _ => panic!("{method} {route} is new: ask for it here"),
        }
    }
    calls
}

/// Calls about the pool that both tenants use.
pub(crate) fn shared((node, claim): &(String, String)) -> Vec<Call> {
    let get = |path: String| Call { method: "get", path, body: String::new() };
    vec![
        get(format!("/api/v1/pools/{SHARED}")),
        get(format!("/api/v1/nodes/{node}")),
        get(format!("/api/v1/nodes/{claim}")),
    ]
}

pub(crate) fn hours_ago(hours: i64) -> i64 {
    Timestamp::now().as_millisecond() - hours * 3_600_000
}
