//! The leader gate: no effect starts once this process's lease is no longer valid.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use croft_api::{EC2NodeClass, NodeClaim};
use croft_cloud::{
    Account, CallCount, ClassFindings, CloudError, CloudInstance, CloudProvider, Fault, FaultClass, InUse,
    Interruption, LaunchError, LaunchRequest, Launched, ObservedNode, Prepared, Shortage, Terminated,
};
use croft_runtime::{clock::Clock, lease::Leader};
use croft_scheduler::InstanceType;
use k8s_openapi::api::core::v1::Pod;

use crate::kube_api::{ApiError, Call, KubeApi, Response};

/// Passes calls on while this process leads.
#[derive(Clone)]
pub struct LeaderGate<T: ?Sized> {
    inner: Arc<T>,
    leader: Leader,
    clock: Arc<dyn Clock>,
}

impl<T: ?Sized> LeaderGate<T> {
    /// Passes calls on to `inner` while `leader` is valid on `clock`.
    #[must_use]
    pub fn new(inner: Arc<T>, leader: Leader, clock: Arc<dyn Clock>) -> Self {
        Self { inner, leader, clock }
    }

    fn is_open(&self) -> bool {
        self.leader.is_valid(self.clock.monotonic())
    }
}

fn not_leader(action: &'static str) -> Fault {
    Fault {
        action,
        code: "NotLeader".to_owned(),
        class: FaultClass::Unavailable,
        message: String::new(),
        meaning: "this process no longer leads",
        remedy: "",
    }
}

fn refused(action: &'static str) -> CloudError {
    CloudError::Refused { what: action.to_owned(), fault: not_leader(action) }
}

#[async_trait]
impl<T: KubeApi + ?Sized> KubeApi for LeaderGate<T> {
    async fn call(&self, call: Call) -> Result<Response, ApiError> {
        if self.is_open() {
            return self.inner.call(call).await;
        }
        Err(ApiError::Refused {
            verb: call.verb.name(),
            target: call.target,
            code: 0,
            message: "this process no longer leads".to_owned(),
        })
    }

    async fn list_claims(&self) -> Result<Vec<NodeClaim>, ApiError> {
        self.inner.list_claims().await
    }

    async fn list_pods_on(&self, node: &str) -> Result<Vec<Pod>, ApiError> {
        self.inner.list_pods_on(node).await
    }
}

#[async_trait]
impl<T: CloudProvider + ?Sized> CloudProvider for LeaderGate<T> {
    async fn resolve(&self, class: &EC2NodeClass) -> ClassFindings {
        self.inner.resolve(class).await
    }

    async fn instance_types(&self, class: &EC2NodeClass) -> Result<Arc<[InstanceType]>, CloudError> {
        self.inner.instance_types(class).await
    }

    async fn prepare(&self, request: &LaunchRequest) -> Result<Prepared, LaunchError> {
        if self.is_open() {
            return self.inner.prepare(request).await;
        }
        let fault = not_leader("prepare a launch");
        let after = std::time::Duration::from_secs(1);
        Err(LaunchError::Later { claim: request.claim_name.clone(), after, fault })
    }

    async fn launch(&self, prepared: &Prepared) -> Result<Launched, LaunchError> {
        if self.is_open() {
            return self.inner.launch(prepared).await;
        }
        let after = std::time::Duration::from_secs(1);
        Err(LaunchError::Later { claim: String::new(), after, fault: not_leader("launch") })
    }

    async fn find_by_claim(&self, claim_uid: &str) -> Result<Option<Launched>, CloudError> {
        self.inner.find_by_claim(claim_uid).await
    }

    async fn list(&self) -> Result<Vec<CloudInstance>, CloudError> {
        self.inner.list().await
    }

    async fn describe(&self, ids: &[String]) -> Result<Vec<CloudInstance>, CloudError> {
        self.inner.describe(ids).await
    }

    async fn account(&self) -> Result<Account, CloudError> {
        self.inner.account().await
    }

    async fn terminate(&self, ids: &[String]) -> Result<Vec<Terminated>, CloudError> {
        if self.is_open() { self.inner.terminate(ids).await } else { Err(refused("terminate instances")) }
    }

    async fn tag(&self, id: &str, tags: &BTreeMap<String, String>) -> Result<(), CloudError> {
        if self.is_open() { self.inner.tag(id, tags).await } else { Err(refused("tag an instance")) }
    }

    async fn interruptions(&self) -> Result<Vec<Interruption>, CloudError> {
        self.inner.interruptions().await
    }

    async fn acknowledge(&self, messages: &[Interruption]) -> Result<(), CloudError> {
        if self.is_open() {
            self.inner.acknowledge(messages).await
        } else {
            Err(refused("acknowledge interruptions"))
        }
    }

    fn observe_capacity(&self, node: &ObservedNode) -> bool {
        self.inner.observe_capacity(node)
    }

    fn shortages(&self) -> Vec<Shortage> {
        self.inner.shortages()
    }

    fn calls(&self) -> Vec<CallCount> {
        self.inner.calls()
    }

    async fn sweep(&self, used: &InUse) -> Result<usize, CloudError> {
        if self.is_open() { self.inner.sweep(used).await } else { Err(refused("sweep")) }
    }
}
