//! The launch request that a claim records.

use croft_api::NodeClaim;
use croft_cloud::Prepared;

/// The request that a claim records as sent, with an unknown outcome.
#[must_use]
pub fn open_request(claim: &NodeClaim) -> Option<Prepared> {
    let attempt = claim.status.as_ref()?.attempt.as_ref()?;
    Some(Prepared { hash: attempt.request_hash.clone(), body: attempt.request.clone()? })
}
