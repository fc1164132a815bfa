//! Claims: names reserved first, then the objects.

use std::time::Duration;

use futures::{StreamExt, stream};
use serde_json::json;

use super::Executor;
use crate::{
    action::{Key, NewClaim, NewClaims, News, Report},
    seam::{Answer, ApiError, Call, Target, Verb},
};

const AT_ONCE: usize = 16;
const REPEAT_AFTER: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

impl Executor {
    pub(super) async fn create(&self, keys: Vec<Key>, new: NewClaims) -> Report {
        let reservation = Call {
            target: Target::Pool(new.pool.clone()),
            verb: Verb::PatchStatus(json!({
                "metadata": {"resourceVersion": new.pool_version},
                "status": {"claimCounter": new.counter},
            })),
        };
        // Whatever became of the reservation: without a yes the names may be somebody else's.
        let pool = match self.api.call(reservation).await {
            Ok(pool) => pool,
            Err(error) => {
                let names = new.claims.into_iter().map(|c| c.name).collect();
                let mut report = self.write_trouble(keys, &error, None).await;
                report.news.push(News::NotCreated(names));
                return report;
            }
        };
        let mut report = Report { answers: vec![pool], ..Report::done(keys) };
        let made: Vec<_> =
            stream::iter(new.claims).map(|claim| self.create_one(claim)).buffered(AT_ONCE).collect().await;
        let mut failed = Vec::new();
        for made in made {
            match made {
                Ok(answer) => report.answers.push(answer),
                Err((claim, error)) => {
                    tracing::warn!(%error, pool = new.pool, "claim not created; its pods are planned anew");
                    failed.push(claim);
                }
            }
        }
        if !failed.is_empty() {
            report.news.push(News::NotCreated(failed));
        }
        report
    }

    /// Ends with a definite answer only: while it isn't known whether a claim is there, nobody may plan.
    async fn create_one(&self, claim: NewClaim) -> Result<Answer, (String, ApiError)> {
        let NewClaim { name, object, .. } = claim;
        let call = Call { target: Target::Claim(name.clone()), verb: Verb::Create(object) };
        let mut lost: u32 = 0;
        loop {
            match self.api.call(call.clone()).await {
                // The name was reserved for this spec: the answer to an earlier try was lost. Writing nothing
                // shows the object.
                Err(ApiError::AlreadyExists { .. }) if lost > 0 => {
                    let look = Verb::Patch(json!({}));
                    let answer = self.api.call(Call { target: call.target.clone(), verb: look }).await;
                    if !matches!(answer, Err(ApiError::Unknown { .. } | ApiError::TooMany { .. })) {
                        return answer.map_err(|error| (name, error));
                    }
                    tokio::time::sleep(LONGEST_PAUSE).await;
                }
                Err(ApiError::Unknown { .. } | ApiError::TooMany { .. }) => {
                    lost = lost.saturating_add(1);
                    tokio::time::sleep(REPEAT_AFTER.saturating_mul(lost).min(LONGEST_PAUSE)).await;
                }
                other => return other.map_err(|error| (name, error)),
            }
        }
    }
}
