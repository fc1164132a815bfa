//! Creates claims: reserves the names first, then creates the objects.

use std::time::Duration;

use futures::{StreamExt, stream};
use serde_json::{Value, json};

use super::dispatch::Executor;
use crate::{
    action::{Key, NewClaim, NewClaims},
    kube_api::{ApiError, Call, KubeApi, Response, Target, Verb},
    result::{ActionReport, ActionResult},
};

const CONCURRENT: usize = 16;
const RETRY_AFTER: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(2);

impl Executor {
    pub(super) async fn create_claims(&self, keys: Vec<Key>, new: NewClaims) -> ActionReport {
        let reservation = Call {
            target: Target::Pool(new.pool.clone()),
            verb: Verb::PatchStatus(json!({
                "metadata": {"resourceVersion": new.pool_version},
                "status": {"claimCounter": new.counter},
            })),
        };
        // Unless the reservation certainly succeeded, the names may belong to another process.
        let pool = match self.api.call(reservation).await {
            Ok(pool) => pool,
            Err(error) => {
                let names = new.claims.into_iter().map(|c| c.name).collect();
                let mut report = self.write_failure(keys, &error, None).await;
                report.results.push(ActionResult::ClaimsNotCreated(names));
                return report;
            }
        };
        let mut report = ActionReport { responses: vec![pool], ..ActionReport::done(keys) };
        let create = async |NewClaim { name, object, .. }| {
            create_one(&*self.api, &name, object).await.map_err(|error| (name, error))
        };
        let created: Vec<_> = stream::iter(new.claims).map(create).buffered(CONCURRENT).collect().await;
        let mut failed = Vec::new();
        for result in created {
            match result {
                Ok(answer) => report.responses.push(answer),
                Err((claim, error)) => {
                    tracing::warn!(%error, pool = new.pool, "failed to create a claim; its pods are planned again");
                    failed.push(claim);
                }
            }
        }
        if !failed.is_empty() {
            report.results.push(ActionResult::ClaimsNotCreated(failed));
        }
        report
    }
}

/// Retries until the outcome is known: while it is unknown whether a claim exists, no plan may be made.
async fn create_one(api: &dyn KubeApi, name: &str, object: Value) -> Result<Response, ApiError> {
    let target = Target::Claim(name.to_owned());
    let creation = Call { target: target.clone(), verb: Verb::Create(object) };
    let mut unknown: u32 = 0;
    loop {
        match api.call(creation.clone()).await {
            // The name was reserved for this spec, so the response to an earlier try was lost. An empty patch
            // returns the object.
            Err(ApiError::AlreadyExists { .. }) if unknown > 0 => {
                let nothing = Verb::Patch(json!({}));
                let answer = api.call(Call { target: target.clone(), verb: nothing }).await;
                // It exists, unless it has been deleted since. No other failure says that it doesn't.
                if matches!(answer, Ok(_) | Err(ApiError::NotFound { .. })) {
                    return answer;
                }
                tokio::time::sleep(MAX_RETRY).await;
            }
            Err(ApiError::Unknown { .. } | ApiError::TooMany { .. }) => {
                unknown = unknown.saturating_add(1);
                tokio::time::sleep(RETRY_AFTER.saturating_mul(unknown).min(MAX_RETRY)).await;
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, sync::Mutex};

    use async_trait::async_trait;
    use croft_api::NodeClaim;
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    /// Fails with these errors, one for each call, and succeeds from then on.
    struct Failing(Mutex<VecDeque<ApiError>>);

    #[async_trait]
    impl KubeApi for Failing {
        async fn call(&self, _: Call) -> Result<Response, ApiError> {
            match self.0.lock().unwrap().pop_front() {
                Some(error) => Err(error),
                None => Ok(Response::Done),
            }
        }

        async fn list_claims(&self) -> Result<Vec<NodeClaim>, ApiError> {
            Ok(Vec::new())
        }

        async fn list_pods_on(&self, _: &str) -> Result<Vec<Pod>, ApiError> {
            Ok(Vec::new())
        }
    }

    async fn created_after(errors: impl IntoIterator<Item = ApiError>) -> Result<Response, ApiError> {
        create_one(&Failing(Mutex::new(errors.into_iter().collect())), "a", json!({})).await
    }

    #[tokio::test(start_paused = true)]
    async fn claim_that_already_exists_after_a_lost_answer_is_created_whatever_reading_it_answers() {
        let (target, verb) = (Target::Claim("a".to_owned()), "create");
        let message = String::new();
        let lost = ApiError::Unknown { verb, target: target.clone(), message: message.clone() };
        let exists = ApiError::AlreadyExists { verb, target: target.clone() };
        for reading in [
            lost.clone(),
            ApiError::TooMany { verb, target: target.clone(), message: message.clone() },
            ApiError::Conflict { verb, target: target.clone(), message: message.clone() },
            ApiError::Refused { verb, target: target.clone(), code: 500, message },
        ] {
            let errors = [lost.clone(), exists.clone(), reading.clone(), exists.clone()];
            assert!(created_after(errors).await.is_ok(), "{reading}");
        }
        let gone = ApiError::NotFound { verb, target };
        assert!(matches!(created_after([lost, exists.clone(), gone]).await, Err(ApiError::NotFound { .. })));
        // Without a lost answer it is another's.
        assert!(matches!(created_after([exists]).await, Err(ApiError::AlreadyExists { .. })));
    }
}
