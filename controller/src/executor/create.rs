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
/// The code of a refusal by the leader gate.
const NOT_LEADING: u16 = 0;

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
    let (mut tries, mut is_lost): (u32, bool) = (0, false);
    loop {
        let error = match api.call(creation.clone()).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        match error {
            ApiError::Unknown { .. } | ApiError::TooMany { .. } => {
                is_lost |= matches!(error, ApiError::Unknown { .. });
                tries = tries.saturating_add(1);
                tokio::time::sleep(RETRY_AFTER.saturating_mul(tries).min(MAX_RETRY)).await;
                continue;
            }
            // The name was reserved for this spec, so the response to an earlier try was lost.
            ApiError::AlreadyExists { .. } if tries > 0 => {}
            // This try is refused, and an earlier one may have created the claim.
            ApiError::Conflict { .. } if is_lost => {}
            // Of an expired token, say; not of a process that no longer leads, which makes no plan.
            ApiError::Refused { code, .. } if is_lost && code != NOT_LEADING => {}
            _ => return Err(error),
        }
        // An empty patch returns the object. It exists unless this says that it doesn't: no other failure does.
        let nothing = Verb::Patch(json!({}));
        match api.call(Call { target: target.clone(), verb: nothing }).await {
            Err(ApiError::NotFound { .. }) => return Err(error),
            Ok(answer) => return Ok(answer),
            Err(_) => tokio::time::sleep(MAX_RETRY).await,
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
        let answer = created_after([lost, exists.clone(), gone]).await;
        assert!(matches!(answer, Err(ApiError::AlreadyExists { .. })));
        // Without a lost answer it is another's.
        assert!(matches!(created_after([exists]).await, Err(ApiError::AlreadyExists { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn refusal_after_a_lost_answer_is_no_evidence_that_the_claim_was_not_created() {
        let (target, verb) = (Target::Claim("a".to_owned()), "create");
        let message = String::new();
        let lost = ApiError::Unknown { verb, target: target.clone(), message: message.clone() };
        let gone = ApiError::NotFound { verb, target: target.clone() };
        let refused =
            |code| ApiError::Refused { verb, target: target.clone(), code, message: message.clone() };
        let conflict = ApiError::Conflict { verb, target: target.clone(), message: message.clone() };
        for refusal in [conflict, refused(401), refused(403)] {
            // It is read, also after a failure to read it.
            assert!(created_after([lost.clone(), refusal.clone()]).await.is_ok(), "{refusal}");
            let unread = [lost.clone(), refusal.clone(), lost.clone(), refusal.clone()];
            assert!(created_after(unread).await.is_ok(), "{refusal}");
            let absent = created_after([lost.clone(), refusal.clone(), gone.clone()]).await;
            assert_eq!(absent.unwrap_err().to_string(), refusal.to_string());
            // Nothing was lost: it doesn't exist.
            assert!(created_after([refusal.clone()]).await.is_err(), "{refusal}");
        }
        assert!(created_after([lost, refused(NOT_LEADING)]).await.is_err());
    }
}
