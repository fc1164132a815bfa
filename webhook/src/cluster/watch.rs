//! Five watches, from the API server to [`State`].
//!
//! Handles Tenants, TenantPools, CroftConfigs, Namespaces (metadata) and Nodes. While the API server is unreachable the
//! index stays as it is. A repeated list removes what it lacks only once it is complete.

use std::{
    mem,
    sync::{Arc, atomic::Ordering},
};

use croft_policy::model::CONFIG_ABSENCE;
use croft_runtime::{clock::Clock, health::Gate, restore::Restores};
use futures::{FutureExt as _, Stream, StreamExt as _, stream::BoxStream, stream::SelectAll};
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, Resource,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _, watcher,
        watcher::{Config as WatchConfig, Error as WatchError, Event},
    },
};
use serde::de::DeserializeOwned;

use crate::{
    cluster::{
        change::{Change, Item, Kind},
        index_writer::IndexWriter,
        state::State,
        views::{self, ConfigView, NodeView, PoolView, TenantView},
    },
    metrics::Metrics,
};

/// Objects of a page, where the API server can't stream lists.
const PAGE: u32 = 200;
/// The most changes that are applied before a snapshot shows them.
const BATCH: usize = 2_000;

/// The API server, and what is known of it.
pub struct Source {
    /// A client of it.
    pub client: Client,
    /// Croft's own namespace.
    pub namespace: String,
    /// Restorations of older data, after which everything is listed again. Until then the index stays as it is.
    pub restores: Restores,
}

/// Watches for ever and publishes snapshots to `state`. `gate` opens after the first complete lists.
pub async fn run(
    source: Source,
    state: Arc<State>,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    gate: Gate,
) {
    let Source { client, namespace, mut restores } = source;
    let mut changes = streams(&client);
    let mut writer = IndexWriter::new(namespace, clock.monotonic());
    loop {
        let wait = writer
            .config_absent_since
            .map(|since| CONFIG_ABSENCE.saturating_sub(clock.monotonic().saturating_duration_since(since)));
        let mut next = tokio::select! {
            change = changes.next() => match change {
                Some(change) => Some(change),
                None => return,
            },
            () = restores.next() => {
                changes = streams(&client);
                continue;
            }
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => None,
        };
        writer.now = clock.monotonic();
        writer.confirm_absence();
        let mut applied = 0;
        while let Some(change) = next.take() {
            match change {
                Ok(change) => writer.apply(change),
                Err(error) => {
                    metrics.watch_errors.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(%error, "a watch failed; the index stays as it is, and the watch is retried");
                }
            }
            applied += 1;
            if applied < BATCH {
                next = changes.next().now_or_never().flatten();
            }
        }
        if !writer.is_synced() || !mem::take(&mut writer.dirty) {
            continue;
        }
        publish(&mut writer, &state, &metrics, &*clock);
        if !gate.is_open() {
            tracing::info!("tenants, pools, namespaces and nodes are listed");
            gate.set(true);
        }
    }
}

/// Publishes a snapshot, and counts it.
fn publish(writer: &mut IndexWriter, state: &State, metrics: &Metrics, clock: &dyn Clock) {
    let begun = clock.monotonic();
    let tenants = writer.index.snapshot();
    let took = clock.monotonic().saturating_duration_since(begun);
    metrics.build_micros.store(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    metrics.builds.fetch_add(1, Ordering::Relaxed);
    let index = &writer.index;
    let counts = [
        index.tenant_names().len(),
        index.pool_names().len(),
        index.namespace_names().len(),
        index.node_names().len(),
    ];
    for (count, gauge) in counts.into_iter().zip(&metrics.index_objects) {
        gauge.store(count, Ordering::Relaxed);
    }
    metrics.invalid.store(writer.invalid.count(), Ordering::Relaxed);
    state.publish(tenants, writer.observed_generations());
}

/// The changes of all kinds.
fn streams(client: &Client) -> SelectAll<BoxStream<'static, Result<Change, WatchError>>> {
    let mut all = SelectAll::new();
    all.push(typed_stream(client, Kind::Tenant, |view: TenantView| Item::Tenant {
        uid: view.metadata.uid.clone().unwrap_or_default(),
        generation: view.metadata.generation.unwrap_or_default(),
        tenant: view.decode(),
    }));
    all.push(typed_stream(client, Kind::Pool, |view: PoolView| Item::Pool {
        uid: view.metadata.uid.clone().unwrap_or_default(),
        pool: view.decode(),
    }));
    all.push(typed_stream(client, Kind::Config, |view: ConfigView| Item::Config {
        name: view.metadata.name.clone().unwrap_or_default(),
        settings: Box::new(view),
    }));
    all.push(typed_stream(client, Kind::Node, |view: NodeView| Item::Node(view.into())));
    let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
    all.push(changes_of(
        move |config| watcher(namespaces.clone(), config).default_backoff(),
        Kind::Namespace,
        |partial| &partial.metadata,
        |partial| match (&partial.metadata.deletion_timestamp, &partial.metadata.name) {
            (Some(_), Some(name)) => Item::TerminatingNamespace(name.clone()),
            _ => Item::Namespace(views::namespace(partial.metadata)),
        },
    ));
    all
}

/// The changes of a kind of which whole objects are watched.
fn typed_stream<K>(
    client: &Client,
    kind: Kind,
    item: fn(K) -> Item,
) -> BoxStream<'static, Result<Change, WatchError>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let api: Api<K> = Api::all(client.clone());
    changes_of(move |config| watcher(api.clone(), config).default_backoff(), kind, Resource::meta, item)
}

/// The changes of one kind. Lists are streamed, so that no page of whole objects is held. An API server that doesn't
/// stream lists is asked for pages instead.
fn changes_of<K, S>(
    watch: impl Fn(WatchConfig) -> S + Send + 'static,
    kind: Kind,
    metadata: fn(&K) -> &ObjectMeta,
    item: fn(K) -> Item,
) -> BoxStream<'static, Result<Change, WatchError>>
where
    K: Send + 'static,
    S: Stream<Item = Result<Event<K>, WatchError>> + Send + 'static,
{
    let streaming = watch(WatchConfig::default().streaming_lists()).boxed();
    futures::stream::unfold((streaming, watch), move |(mut events, watch)| async move {
        let change = match events.next().await? {
            Ok(Event::Init) => Ok(Change::ListStarted(kind)),
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                Ok(Change::Upserted(kind, Box::new(item(object))))
            }
            Ok(Event::Delete(object)) => {
                Ok(Change::Deleted(kind, metadata(&object).name.clone().unwrap_or_default()))
            }
            Ok(Event::InitDone) => Ok(Change::ListCompleted(kind)),
            Err(
                WatchError::WatchStartFailed(kube::Error::Api(status))
                | WatchError::InitialListFailed(kube::Error::Api(status)),
            ) if status.is_invalid() => {
                events = watch(WatchConfig::default().page_size(PAGE)).boxed();
                Err(WatchError::InitialListFailed(kube::Error::Api(status)))
            }
            Err(error) => Err(error),
        };
        Some((change, (events, watch)))
    })
    .boxed()
}
