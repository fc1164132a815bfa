//! One review in, one review out: what the server answers with, and `croft admit`.
//!
//! No I/O, no lock, no await: a review is read in one pass, borrowed from its body, judged by a view of the tenants
//! that doesn't change meanwhile, and answered.

use bytes::Bytes;
use croft_policy::{Phase as Pass, Rule, Tenants, judge, review};
use smallvec::SmallVec;

use crate::{
    metrics::Outcome,
    response::{Extras, Refusal, allow, deny},
};

/// What a review is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Objects may be changed.
    Mutate = 0,
    /// Objects are as they will be stored.
    Validate = 1,
    /// Workloads whose pods will be refused get a warning; nothing is refused.
    Warn = 2,
    /// Mutation followed by validation, for those who have only one answer to give.
    Both = 3,
}

/// What there is to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An AdmissionReview with its response.
    Review {
        /// The review as JSON.
        body: Bytes,
        /// What it says, in a word.
        outcome: Outcome,
    },
    /// The namespace isn't known yet. Whoever can wait asks again; for the others there is `body`.
    UnknownNamespace {
        /// The namespace.
        namespace: String,
        /// A review that refuses for now.
        body: Bytes,
    },
    /// What was sent is no review that could be judged.
    Malformed(String),
}

/// After how many seconds a client should ask again about a namespace that isn't known yet.
const RETRY_AFTER_SECONDS: u32 = 1;

/// Answers the AdmissionReview in `body` by `tenants`.
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
    let outcome = judge(tenants, &request, pass);
    let mut audit: SmallVec<[(&str, &str); 3]> = SmallVec::new();
    audit.push(("rule", outcome.rule.as_str()));
    audit.extend(outcome.tenant.map(|tenant| ("tenant", tenant)));
    audit.extend(outcome.pool.map(|pool| ("pool", pool)));
    let extras = Extras { warnings: &outcome.warnings, audit: &audit };
    match outcome.denial {
        Some(denial) if phase == Phase::Warn => {
            let warnings = [denial.message];
            let body = allow(uid, None, Extras { warnings: &warnings, ..extras });
            Answer::Review { body, outcome: Outcome::Allowed }
        }
        Some(denial) if denial.rule == Rule::UnknownNamespace => {
            let refusal = Refusal::unavailable(&denial.message, RETRY_AFTER_SECONDS);
            let body = deny(uid, refusal, extras);
            Answer::UnknownNamespace { namespace: request.namespace.to_string(), body }
        }
        Some(denial) => {
            let refusal = Refusal { code: denial.code(), ..Refusal::forbidden(&denial.message) };
            Answer::Review { body: deny(uid, refusal, extras), outcome: Outcome::Denied }
        }
        None if outcome.patch.is_empty() => {
            Answer::Review { body: allow(uid, None, extras), outcome: Outcome::Allowed }
        }
        None => {
            let patch = outcome.patch.into_json();
            Answer::Review { body: allow(uid, Some(&patch), extras), outcome: Outcome::Patched }
        }
    }
}
