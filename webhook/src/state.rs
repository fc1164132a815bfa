//! What reviews are judged by, swapped whole.

use std::{sync::Arc, time::Duration};

use arc_swap::{ArcSwap, Guard};
use croft_policy::index::{Index, Tenants};
use croft_policy::seen::Seen;
use tokio::{sync::watch, time::timeout};

/// The newest view of tenants, pools, namespaces and nodes.
pub struct State {
    tenants: ArcSwap<Tenants>,
    seen: watch::Sender<Seen>,
}

impl Default for State {
    fn default() -> Self {
        Self::new(Index::new().snapshot())
    }
}

impl State {
    /// A state that shows `tenants`.
    #[must_use]
    pub fn new(tenants: Tenants) -> Self {
        Self { tenants: ArcSwap::from_pointee(tenants), seen: watch::Sender::new(Seen::default()) }
    }

    /// Shows `tenants` from here on; `seen` says which generations they are.
    pub fn publish(&self, tenants: Tenants, seen: Seen) {
        self.tenants.store(Arc::new(tenants));
        self.seen.send_replace(seen);
    }

    /// The newest view. Takes no lock.
    #[must_use]
    pub fn tenants(&self) -> Guard<Arc<Tenants>> {
        self.tenants.load()
    }

    /// What is enforced, and when it changes.
    #[must_use]
    pub fn seen(&self) -> watch::Receiver<Seen> {
        self.seen.subscribe()
    }

    /// Waits until `namespace` is known, at most for `limit`. True if it is.
    pub async fn wait_for(&self, namespace: &str, limit: Duration) -> bool {
        let mut changes = self.seen.subscribe();
        let known = async {
            // The subscription came first: a change between it and this look is not missed.
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
    async fn a_namespace_that_comes_in_time_is_seen() {
        let state = Arc::new(State::default());
        assert!(!state.wait_for("new", Duration::ZERO).await);
        let waiting = tokio::spawn({
            let state = state.clone();
            async move { state.wait_for("new", Duration::from_secs(60)).await }
        });
        let mut index = Index::new();
        state.publish(index.snapshot(), Seen::default());
        tokio::task::yield_now().await;
        index.upsert_namespace(&Namespace { name: "new".to_owned(), ..Namespace::default() });
        state.publish(index.snapshot(), Seen::default());
        assert!(waiting.await.unwrap());
    }
}
