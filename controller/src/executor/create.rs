//! Creates claims: reserves the names first, then creates the objects.

use std::time::Duration;

use futures::{StreamExt, stream};
use serde_json::json;

use super::dispatch::Executor;
use crate::{
    action::{Key, NewClaim, NewClaims},
    kube_api::{ApiError, Call, Response, Target, Verb},
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
        let created: Vec<_> =
            stream::iter(new.claims).map(|claim| self.create_one(claim)).buffered(CONCURRENT).collect().await;
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

    /// Retries until the outcome is known: while it is unknown whether a claim exists, no plan may be made.
    async fn create_one(&self, claim: NewClaim) -> Result<Response, (String, ApiError)> {
        let NewClaim { name, object, .. } = claim;
        let call = Call { target: Target::Claim(name.clone()), verb: Verb::Create(object) };
        let mut unknown: u32 = 0;
        loop {
            match self.api.call(call.clone()).await {
                // The name was reserved for this spec, so the response to an earlier try was lost. An empty patch
                // returns the object.
                Err(ApiError::AlreadyExists { .. }) if unknown > 0 => {
                    let nothing = Verb::Patch(json!({}));
                    let answer = self.api.call(Call { target: call.target.clone(), verb: nothing }).await;
                    // It exists, unless it has been deleted since. No other failure says that it doesn't.
                    if matches!(answer, Ok(_) | Err(ApiError::NotFound { .. })) {
                        return answer.map_err(|error| (name, error));
                    }
                    tokio::time::sleep(MAX_RETRY).await;
                }
                Err(ApiError::Unknown { .. } | ApiError::TooMany { .. }) => {
                    unknown = unknown.saturating_add(1);
                    tokio::time::sleep(RETRY_AFTER.saturating_mul(unknown).min(MAX_RETRY)).await;
                }
                other => return other.map_err(|error| (name, error)),
            }
        }
    }
}
