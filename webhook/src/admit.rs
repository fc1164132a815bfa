//! One review in, one review out. Called by the server and by `croft admit`.
//!
//! No I/O, no lock, no await: a review is parsed in one pass, borrowed from its body, evaluated against an immutable view
//! of the tenants, and answered.

use bytes::Bytes;
use croft_policy::{Phase as Pass, Rule, Tenants, evaluate, review};
use smallvec::SmallVec;

use crate::{
    outcome::{Outcome, Phase},
    response::{Extras, Refusal, allow, deny},
};

/// The answer to a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An AdmissionReview with its response.
    Review {
        /// The review as JSON.
        body: Bytes,
        /// How it ended.
        outcome: Outcome,
        /// The rule that decided it.
        rule: Rule,
    },
    /// The namespace is not in the index yet. The server waits for it and asks again, or sends `body`.
    UnknownNamespace {
        /// The namespace.
        namespace: String,
        /// A review that refuses the request for now.
        body: Bytes,
    },
    /// The body is no review that can be evaluated; the reason.
    Malformed(String),
}

/// Seconds after which a client should ask again about a namespace that is not in the index, or not complete, yet.
const RETRY_AFTER_SECONDS: u32 = 1;

/// Answers the AdmissionReview in `body`, of `phase`, by `tenants`.
#[must_use]
pub fn respond(body: &[u8], tenants: &Tenants, phase: Phase) -> Answer {
    let request = match review::parse(body) {
        Ok(request) => request,
        Err(error) => return Answer::Malformed(error.to_string()),
    };
    let uid = request.uid.as_str();
    let pass = match phase {
        Phase::Mutate => Pass::Mutate,
        Phase::Validate | Phase::Warn => Pass::Validate,
        Phase::Both => Pass::Both,
    };
    let outcome = evaluate(tenants, &request, pass);
    let rule = outcome.rule;
    let mut audit: SmallVec<[(&str, &str); 3]> = SmallVec::new();
    audit.push(("rule", rule.as_str()));
    audit.extend(outcome.tenant.map(|tenant| ("tenant", tenant)));
    audit.extend(outcome.pool.map(|pool| ("pool", pool)));
    let extras = Extras { warnings: &outcome.warnings, audit: &audit };
    match outcome.denial {
        Some(denial) if phase == Phase::Warn => {
            let warnings = [denial.message];
            let body = allow(uid, None, Extras { warnings: &warnings, ..extras });
            Answer::Review { body, outcome: Outcome::Allowed, rule }
        }
        Some(denial) if denial.rule == Rule::UnknownNamespace => {
            let refusal = Refusal::unavailable(&denial.message, RETRY_AFTER_SECONDS);
            let body = deny(uid, refusal, extras);
            Answer::UnknownNamespace { namespace: request.namespace.to_string(), body }
        }
        Some(denial) => {
            let refusal = if denial.is_retryable() {
                Refusal::unavailable(&denial.message, RETRY_AFTER_SECONDS)
            } else {
                Refusal::forbidden(&denial.message)
            };
            Answer::Review { body: deny(uid, refusal, extras), outcome: Outcome::Denied, rule }
        }
        None if outcome.patch.is_empty() => {
            Answer::Review { body: allow(uid, None, extras), outcome: Outcome::Allowed, rule }
        }
        None => {
            let patch = outcome.patch.into_json();
            Answer::Review { body: allow(uid, Some(&patch), extras), outcome: Outcome::Patched, rule }
        }
    }
}
