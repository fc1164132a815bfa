//! Server-sent events: names of what differs, and the nodes that do, as the reader may see them.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::response::sse::{Event, KeepAlive, Sse};
use croft_runtime::share::OwnedPermit;
use futures::{Stream, stream};
use serde::Serialize;
use tokio::{
    sync::broadcast::{Receiver, error::RecvError},
    time::{Instant, sleep_until},
};

use super::{error::ApiError, page::Page, reader::Reader};
use crate::{
    access::{Held, Scope},
    model::{change::Change, facts::Model},
    views::pool::NodeView,
};

/// The rights of an open stream's reader are checked again after this time.
const CHECK: Duration = Duration::from_secs(10);
/// A comment on a stream without events, so that no proxy takes it for idle.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// More changed nodes are read again by the browser.
const NODES: usize = 300;

/// An event.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangeView {
    /// The version of the model.
    pub version: u64,
    /// True if everything has to be read again.
    pub reset: bool,
    /// Nodes that are new or differ.
    pub nodes: Vec<NodeView>,
    /// Names of nodes that are gone.
    pub gone: Vec<String>,
    /// Namespaces with a pod that differs.
    pub namespaces: Vec<String>,
    /// Tenants that differ.
    pub tenants: Vec<String>,
    /// Pools that differ.
    pub pools: Vec<String>,
    /// True if the log has new entries.
    pub log: bool,
}

impl ChangeView {
    /// The change as `scope` sees it; none if nothing of it is visible.
    #[must_use]
    pub fn new(model: &Model, scope: &Scope, change: &Change) -> Option<Self> {
        let sees = |pool: &Option<String>| scope.sees_nodes_of(model, pool.as_deref());
        let nodes: Vec<&str> =
            change.nodes.iter().filter(|(_, pool)| sees(pool)).map(|(name, _)| name.as_str()).collect();
        let reset = nodes.len() > NODES;
        let facts = nodes.iter().filter(|_| !reset).filter_map(|name| model.nodes.get(*name));
        let view = Self {
            version: change.version,
            reset,
            nodes: facts.map(|node| NodeView::new(model, scope, node)).collect(),
            gone: change.gone.iter().filter(|(_, pool)| sees(pool)).map(|(name, _)| name.clone()).collect(),
            namespaces: change.namespaces.iter().filter(|one| scope.sees_namespace(one)).cloned().collect(),
            tenants: change.tenants.iter().filter(|one| scope.sees_tenant(model, one)).cloned().collect(),
            pools: change.pools.iter().filter(|one| scope.sees_pool(model, one)).cloned().collect(),
            log: change.log,
        };
        let is_empty = nodes.is_empty()
            && view.gone.is_empty()
            && view.namespaces.is_empty()
            && view.tenants.is_empty()
            && view.pools.is_empty()
            && !view.log;
        (!is_empty).then_some(view)
    }
}

struct Open {
    page: Arc<Page>,
    token: String,
    scope: Scope,
    changes: Receiver<Arc<Change>>,
    check_at: Instant,
    _counted: OwnedPermit<Held>,
}

/// The stream of a reader's events. It ends when the reader's rights end, or the process stops.
///
/// # Errors
/// If the reader has its share of streams already.
pub async fn events(reader: Reader) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let page = reader.page;
    let open = Open {
        _counted: page.open_stream(&reader.held)?,
        changes: page.state.changes(),
        check_at: Instant::now() + CHECK,
        scope: reader.scope,
        token: reader.token,
        page,
    };
    let stream = stream::unfold(open, |mut open| async move {
        let event = open.next().await?;
        Some((Ok(event), open))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

impl Open {
    async fn next(&mut self) -> Option<Event> {
        loop {
            let stop = self.page.stop.wait();
            tokio::select! {
                () = stop => return None,
                () = sleep_until(self.check_at) => {
                    let model = self.page.state.model();
                    let scope = self.page.reviewer.access(&self.token, &model).await.ok()?.scope;
                    self.check_at = Instant::now() + CHECK;
                    if std::mem::replace(&mut self.scope, scope) != self.scope {
                        return event(&reset(model.version));
                    }
                }
                change = self.changes.recv() => {
                    let model = self.page.state.model();
                    let view = match change {
                        Ok(change) => ChangeView::new(&model, &self.scope, &change),
                        Err(RecvError::Lagged(_)) => Some(reset(model.version)),
                        Err(RecvError::Closed) => return None,
                    };
                    if let Some(event) = view.as_ref().and_then(event) {
                        return Some(event);
                    }
                }
            }
        }
    }
}

fn reset(version: u64) -> ChangeView {
    ChangeView { version, reset: true, ..ChangeView::default() }
}

fn event(view: &ChangeView) -> Option<Event> {
    Event::default().event("change").json_data(view).ok()
}
