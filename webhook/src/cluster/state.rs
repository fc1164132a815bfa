//! The view that reviews are evaluated against, replaced as a whole. Written by the watch, read by every review.

use std::{sync::Arc, time::Duration};

use arc_swap::{ArcSwap, Guard};
use croft_policy::{Index, Tenants, replica_status::ObservedGenerations};
use tokio::{sync::watch, time::timeout};

/// The newest view of tenants, pools, namespaces and nodes.
pub struct State {
    tenants: ArcSwap<Tenants>,
    observed: watch::Sender<ObservedGenerations>,
}

impl Default for State {
    fn default() -> Self {
        Self::new(Index::new().snapshot())
    }
}

impl State {
    /// A state with `tenants` as its view.
    #[must_use]
    pub fn new(tenants: Tenants) -> Self {
        Self {
            tenants: ArcSwap::from_pointee(tenants),
            observed: watch::Sender::new(ObservedGenerations::default()),
        }
    }

    /// Replaces the view; `observed` are the generations of its Tenants.
    pub fn publish(&self, tenants: Tenants, observed: ObservedGenerations) {
        self.tenants.store(Arc::new(tenants));
        self.observed.send_replace(observed);
    }

    /// The newest view. Takes no lock.
    #[must_use]
    pub fn tenants(&self) -> Guard<Arc<Tenants>> {
        self.tenants.load()
    }

    /// The generations that are enforced, and their changes.
    #[must_use]
    pub fn observed(&self) -> watch::Receiver<ObservedGenerations> {
        self.observed.subscribe()
    }

    /// Waits until `namespace` is in the index, at most for `limit`. Returns whether it is.
    pub async fn wait_for(&self, namespace: &str, limit: Duration) -> bool {
        let mut changes = self.observed.subscribe();
        let known = async {
            // The subscription came first, so that no change before this look is missed.
            while !self.tenants().knows(namespace) {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        timeout(limit, known).await.is_ok() && self.tenants().knows(namespace)
    }
}

#[cfg(test)]
mod tests {
    use croft_policy::model::Namespace;

    use super::*;

    #[tokio::test]
    async fn namespace_that_is_added_in_time_is_found() {
        let state = Arc::new(State::default());
        assert!(!state.wait_for("new", Duration::ZERO).await);
        let waiting = tokio::spawn({
            let state = state.clone();
            async move { state.wait_for("new", Duration::from_secs(60)).await }
        });
        let mut index = Index::new();
        state.publish(index.snapshot(), ObservedGenerations::default());
        tokio::task::yield_now().await;
        index.upsert_namespace(&Namespace { name: "new".to_owned(), ..Namespace::default() });
        state.publish(index.snapshot(), ObservedGenerations::default());
        assert!(waiting.await.unwrap());
    }
}
