//! The API server, as one controller process reaches it.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use croft_api::NodeClaim;
use croft_controller::kube_api::{ApiError, Call, KubeApi, Response, Target};
use k8s_openapi::api::core::v1::Pod;
use tokio::time::sleep;

use super::{
    environment::{Environment, Links},
    store::read,
};

/// One controller's connection to the API server.
pub(crate) struct SimApi {
    pub(crate) environment: Arc<Environment>,
    /// Up to when this process leads; `None` behind a gate of its own.
    pub(crate) leads: Option<Arc<Mutex<Option<Duration>>>>,
    pub(crate) links: Arc<Links>,
}

impl SimApi {
    async fn wait(&self, low: u64, high: u64) {
        self.environment.point(&self.links).await;
        let ms = self.environment.delay(low, high);
        sleep(Duration::from_millis(ms)).await;
        self.links.wait_while_paused().await;
    }
}

/// A token that has expired or was replaced.
fn unauthorized(verb: &'static str, target: Target) -> ApiError {
    ApiError::Refused { verb, target, code: 401, message: "Unauthorized".to_owned() }
}

#[async_trait]
impl KubeApi for SimApi {
    async fn call(&self, call: Call) -> Result<Response, ApiError> {
        self.wait(0, 2).await;
        let (verb, target) = (call.verb.name(), call.target.clone());
        let mono = self.environment.clock.start.elapsed();
        let is_over = |leads: &Arc<Mutex<Option<Duration>>>| {
            leads.lock().unwrap().is_none_or(|deadline| mono >= deadline)
        };
        if self.leads.as_ref().is_some_and(is_over) {
            return Err(ApiError::Refused { verb, target, code: 0, message: "not leading".to_owned() });
        }
        let era = self.environment.store.lock().unwrap().era;
        let (lost, cut, conflict, throttled) = {
            let mut random = self.environment.random.lock().unwrap();
            let faults = *self.environment.faults.lock().unwrap();
            (
                random.permille(faults.api_lost),
                random.permille(faults.api_cut),
                random.permille(faults.api_conflict),
                random.permille(faults.api_throttled),
            )
        };
        let unknown =
            |target: Target| ApiError::Unknown { verb, target, message: "the answer was lost".to_owned() };
        if self.links.unauthorized.load(Ordering::Relaxed) {
            return Err(unauthorized(verb, target));
        }
        if cut || self.environment.is_api_cut(&self.links) {
            sleep(Duration::from_secs(3)).await;
            return Err(unknown(target));
        }
        // On its way: this process may be stopped here, and the call still arrives.
        self.wait(0, 5).await;
        if throttled {
            return Err(ApiError::TooMany { verb, target, message: "try again later".to_owned() });
        }
        if conflict {
            return Err(ApiError::Conflict { verb, target, message: "simulated".to_owned() });
        }
        let kind = target.kind();
        *self.environment.calls.lock().unwrap().entry(format!("{verb} {kind}")).or_default() += 1;
        let answer = self.environment.store.lock().unwrap().call(call, self.environment.clock.true_wall());
        self.environment.changed.notify_waiters();
        self.wait(0, 5).await;
        // A restore ends the API servers and their connections.
        let restored = self.environment.store.lock().unwrap().era != era;
        if lost || restored || self.environment.is_api_cut(&self.links) {
            return Err(unknown(target));
        }
        answer
    }

    async fn list_claims(&self) -> Result<Vec<NodeClaim>, ApiError> {
        self.wait(1, 10).await;
        if self.links.unauthorized.load(Ordering::Relaxed) {
            return Err(unauthorized("list", Target::Claim("*".to_owned())));
        }
        if self.environment.is_api_cut(&self.links) {
            let (verb, target) = ("list", Target::Claim("*".to_owned()));
            return Err(ApiError::Unknown { verb, target, message: "the answer was lost".to_owned() });
        }
        let store = self.environment.store.lock().unwrap();
        Ok(store.of_kind("NodeClaim").map(|(_, o)| *read(o)).collect())
    }

    async fn list_pods_on(&self, node: &str) -> Result<Vec<Pod>, ApiError> {
        self.wait(1, 10).await;
        let lost = self.environment.faults.lock().unwrap().api_lost;
        if self.environment.is_api_cut(&self.links) || self.environment.random.lock().unwrap().permille(lost)
        {
            let (verb, target) = ("list", Target::Pod("*".to_owned(), node.to_owned()));
            return Err(ApiError::Unknown { verb, target, message: "the answer was lost".to_owned() });
        }
        let pods: Vec<Pod> = {
            let store = self.environment.store.lock().unwrap();
            let bound =
                store.of_kind("Pod").filter(|(_, pod)| pod["spec"]["nodeName"].as_str() == Some(node));
            bound.map(|(_, o)| *read(o)).collect()
        };
        self.wait(0, 5).await;
        Ok(pods)
    }
}
