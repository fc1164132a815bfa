//! Identities to scopes, by SubjectAccessReviews on rights that exist already.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use croft_runtime::{
    clock::Clock,
    share::{OwnedPermit, Peers, Share},
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview};
use kube::{Api, Client, api::PostParams};
use tokio::sync::Semaphore;

use super::{
    held::{self, Held},
    identity::{Identity, Tokens},
    scope::{AccessError, Scope},
};
use crate::{
    metrics::{Metrics, Review},
    model::facts::Model,
};

/// The time for which a granted right counts.
const GRANTED: Duration = Duration::from_secs(10);
/// The time for which a refused right counts.
const REFUSED: Duration = Duration::from_secs(60);
/// Readers whose rights are kept at most, shared among users.
const READERS: usize = 512;
/// Reviews in flight at once: those of one reader, and all.
const REVIEWS_OF_READER: usize = 8;
const REVIEWS: usize = 16;

/// A right on a resource, in all namespaces or in one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    group: &'static str,
    resource: &'static str,
    namespace: String,
}

/// An operator's rights: together they show what the page shows.
const OPERATOR: [(&str, &str); 3] = [("", "pods"), ("", "nodes"), ("croft.dev", "tenants")];

struct Reader {
    rights: BTreeMap<Right, (Instant, bool)>,
    _kept: OwnedPermit<Held>,
}

/// The user of a token, and the part that the user may see.
pub struct Access {
    /// The user.
    pub identity: Arc<Identity>,
    /// The part of the cluster that the user may see.
    pub scope: Scope,
    /// The amounts that the user holds.
    pub held: Arc<Held>,
}

/// Tokens to scopes.
pub struct Reviewer {
    client: Client,
    tokens: Tokens,
    clock: Arc<dyn Clock>,
    readers: Mutex<BTreeMap<Arc<Identity>, Reader>>,
    kept: Arc<Share>,
    peers: Peers<Held>,
    reviews: Semaphore,
    metrics: Arc<Metrics>,
}

impl Reviewer {
    /// Asks the API server of `client`. Tokens are for one of `audiences`. Reviews are counted in `metrics`.
    #[must_use]
    pub fn new(client: Client, audiences: Vec<String>, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Self {
        let tokens = Tokens::new(client.clone(), audiences, metrics.clone());
        Self {
            client,
            tokens,
            clock,
            readers: Mutex::default(),
            kept: Arc::default(),
            peers: Peers::default(),
            reviews: Semaphore::new(REVIEWS),
            metrics,
        }
    }

    /// The identity and the scope of a token.
    ///
    /// # Errors
    /// If the token isn't accepted, its user may see nothing, or the API server can't be asked.
    pub async fn access(&self, token: &str, model: &Model) -> Result<Access, AccessError> {
        let now = self.clock.monotonic();
        let identity = self.tokens.identify(token, now, &self.peers, &model.owners).await?;
        let held = self.peers.of(held::source(&identity, &model.owners));
        let scope = {
            let _turn = held.reviewing.lock().await;
            self.scope_of(&identity, &held, model).await?
        };
        if scope.is_any() {
            Ok(Access { identity, scope, held })
        } else {
            Err(AccessError::Forbidden(identity.user.clone()))
        }
    }

    async fn scope_of(
        &self,
        identity: &Arc<Identity>,
        held: &Arc<Held>,
        model: &Model,
    ) -> Result<Scope, AccessError> {
        let in_all = |(group, resource)| Right { group, resource, namespace: String::new() };
        let mut everything = true;
        for right in OPERATOR.map(in_all) {
            everything = everything && self.may(identity, held, right).await?;
        }
        if everything {
            return Ok(Scope::All);
        }
        let every_namespace = self.may(identity, held, in_all(("", "pods"))).await?;
        let asked = stream::iter(model.owners.keys().cloned()).map(|namespace| async move {
            let right = Right { group: "", resource: "pods", namespace: namespace.clone() };
            let may = every_namespace || self.may(identity, held, right).await?;
            Ok::<_, AccessError>(may.then_some(namespace))
        });
        let namespaces = asked.buffer_unordered(REVIEWS_OF_READER).try_filter_map(async |found| Ok(found));
        Ok(Scope::Namespaces(namespaces.try_collect::<BTreeSet<String>>().await?))
    }

    /// True if a reader may list a resource.
    async fn may(
        &self,
        identity: &Arc<Identity>,
        held: &Arc<Held>,
        right: Right,
    ) -> Result<bool, AccessError> {
        let now = self.clock.monotonic();
        if let Some(known) = self.known(identity, &right, now) {
            return Ok(known);
        }
        let Ok(_permit) = self.reviews.acquire().await else { return Err(AccessError::Unavailable) };
        let mut spec = identity.subject();
        spec.resource_attributes = Some(ResourceAttributes {
            verb: Some("list".to_owned()),
            group: Some(right.group.to_owned()),
            resource: Some(right.resource.to_owned()),
            namespace: Some(right.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            ..ResourceAttributes::default()
        });
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        self.metrics.count_review(Review::SubjectAccess);
        let asked = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = api.create(&PostParams::default(), &asked).await.map_err(AccessError::unavailable)?;
        let may = answer.status.is_some_and(|status| status.allowed && status.denied != Some(true));
        self.remember(identity, held, right, (now, may));
        Ok(may)
    }

    fn known(&self, identity: &Arc<Identity>, right: &Right, now: Instant) -> Option<bool> {
        let readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let (read, may) = readers.get(identity)?.rights.get(right)?;
        is_fresh(*read, *may, now).then_some(*may)
    }

    fn remember(&self, identity: &Arc<Identity>, held: &Arc<Held>, right: Right, answer: (Instant, bool)) {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = readers.get_mut(identity) {
            reader.rights.insert(right, answer);
            return;
        }
        let (now, _) = answer;
        let take = || self.kept.take_owned(held, |held| &held.identities, READERS);
        let kept = take().or_else(|| {
            for reader in readers.values_mut() {
                reader.rights.retain(|_, (read, may)| is_fresh(*read, *may, now));
            }
            readers.retain(|_, reader| !reader.rights.is_empty());
            take()
        });
        if let Some(kept) = kept {
            let rights = BTreeMap::from([(right, answer)]);
            readers.insert(identity.clone(), Reader { rights, _kept: kept });
        }
    }
}

fn is_fresh(read: Instant, may: bool, now: Instant) -> bool {
    now.saturating_duration_since(read) < if may { GRANTED } else { REFUSED }
}
