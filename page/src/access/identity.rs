//! Tokens and the identities that the API server gives them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use croft_runtime::share::{OwnedPermit, Peers, Share};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::SubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use sha2::{Digest as _, Sha256};

use super::{held, held::Held, scope::AccessError};
use crate::metrics::{Metrics, Review};

/// The longest token that is sent to the API server.
const TOKEN_BYTES: usize = 16 << 10;
/// The time for which an answer about a token counts.
const KEPT: Duration = Duration::from_secs(10);
/// Answers that are kept at most, shared among users.
const ANSWERS: usize = 2_048;

/// A user as the API server knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// Its name.
    pub user: String,
    uid: Option<String>,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl From<UserInfo> for Identity {
    fn from(user: UserInfo) -> Self {
        Self {
            user: user.username.unwrap_or_default(),
            uid: user.uid,
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }
    }
}

impl Identity {
    /// A review's spec about this user, without what is asked for.
    #[must_use]
    pub fn subject(&self) -> SubjectAccessReviewSpec {
        SubjectAccessReviewSpec {
            user: Some(self.user.clone()),
            uid: self.uid.clone(),
            groups: Some(self.groups.clone()),
            extra: Some(self.extra.clone()),
            ..SubjectAccessReviewSpec::default()
        }
    }
}

type Digest = [u8; 32];

/// The API server's answer about a token.
struct Reviewed {
    read: Instant,
    answer: Option<Arc<Identity>>,
    _kept: OwnedPermit<Held>,
}

/// Tokens to identities. A token itself is never kept, only its digest.
pub struct Tokens {
    client: Client,
    audiences: Vec<String>,
    answers: Mutex<BTreeMap<Digest, Reviewed>>,
    kept: Arc<Share>,
    metrics: Arc<Metrics>,
}

impl Tokens {
    /// Reviews tokens for one of `audiences`, and counts the reviews in `metrics`.
    #[must_use]
    pub fn new(client: Client, audiences: Vec<String>, metrics: Arc<Metrics>) -> Self {
        Self { client, audiences, answers: Mutex::default(), kept: Arc::default(), metrics }
    }

    /// The identity of a token at `now`. An answer is kept while its user, among `peers`, has a share of what is kept.
    ///
    /// # Errors
    /// [`AccessError::Unauthenticated`] if the API server doesn't accept it, [`AccessError::Unavailable`] if it can't be
    /// asked.
    pub async fn identify(
        &self,
        token: &str,
        now: Instant,
        peers: &Peers<Held>,
        owners: &BTreeMap<String, String>,
    ) -> Result<Arc<Identity>, AccessError> {
        if token.is_empty() || token.len() > TOKEN_BYTES {
            return Err(AccessError::Unauthenticated);
        }
        let digest: Digest = Sha256::digest(token.as_bytes()).into();
        if let Some(known) = self.known(&digest, now) {
            return known.ok_or(AccessError::Unauthenticated);
        }
        let found = self.review(token).await?;
        let source = found.as_ref().map_or_else(held::unknown, |identity| held::source(identity, owners));
        self.keep(digest, found.clone(), now, &peers.of(source));
        found.ok_or(AccessError::Unauthenticated)
    }

    fn keep(&self, digest: Digest, answer: Option<Arc<Identity>>, now: Instant, user: &Arc<Held>) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let take = || self.kept.take_owned(user, |held| &held.tokens, ANSWERS);
        let kept = take().or_else(|| {
            answers.retain(|_, kept| now.saturating_duration_since(kept.read) < KEPT);
            take()
        });
        if let Some(kept) = kept {
            answers.insert(digest, Reviewed { read: now, answer, _kept: kept });
        }
    }

    fn known(&self, digest: &Digest, now: Instant) -> Option<Option<Arc<Identity>>> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let Reviewed { read, answer, .. } = answers.get(digest)?;
        (now.saturating_duration_since(*read) < KEPT).then(|| answer.clone())
    }

    async fn review(&self, token: &str) -> Result<Option<Arc<Identity>>, AccessError> {
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let asked = TokenReview {
            spec: TokenReviewSpec { audiences: Some(self.audiences.clone()), token: token.to_owned() },
            ..TokenReview::default()
        };
        self.metrics.count_review(Review::Token);
        let answer = api.create(&PostParams::default(), &asked).await.map_err(AccessError::unavailable)?;
        let status = answer.status.unwrap_or_default();
        // An authenticator that knows no audiences names none: its tokens are for the API server.
        let named = status.audiences.unwrap_or_default();
        let is_for_us = named.iter().any(|audience| self.audiences.contains(audience));
        if status.authenticated != Some(true) || !is_for_us {
            return Ok(None);
        }
        Ok(status.user.map(|user| Arc::new(Identity::from(user))))
    }
}
