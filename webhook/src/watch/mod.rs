//! From watches to the index: five watches, one index, one writer.
//!
//! ```text
//!  Tenant ─┐
//!  Pool    │   lists, then changes     ┌───────────┐  snapshot   ┌───────┐
//!  Config  ├─────────────────────────▶ │ Index     │ ──────────▶ │ State │ ◀── reviews
//!  Namespace (metadata)                └───────────┘  when all   └───────┘
//!  Node   ─┘                                          are listed
//! ```
//!
//! Nothing is taken back while the API server is away: what was known stays known. A list that is repeated
//! replaces what it lists only when it is complete.

mod flaws;
mod views;

use std::{
    collections::HashSet,
    mem,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use croft_policy::{
    index::Index,
    model::{self, CONFIG_ABSENCE, Config},
    seen::Seen,
    stored::Read,
};
use croft_runtime::{clock::Clock, health::Gate};
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

use self::{
    flaws::Flaws,
    views::{ConfigView, NodeView, PoolView, TenantView},
};
use crate::{metrics::Metrics, state::State};

/// The name of the only CroftConfig that counts.
const SINGLETON: &str = "default";
/// Objects of a page, where the API server can't stream lists.
const PAGE: u32 = 200;
/// So many changes are taken in at once before a snapshot shows them.
const BATCH: usize = 2_000;

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Tenant = 0,
    Pool = 1,
    Config = 2,
    Namespace = 3,
    Node = 4,
}

const KINDS: usize = 5;

/// An object as the index takes it.
enum Item {
    Tenant {
        tenant: Read<model::Tenant>,
        uid: String,
        generation: i64,
    },
    Pool {
        pool: Read<model::Pool>,
        uid: String,
    },
    Config {
        name: String,
        settings: Box<ConfigView>,
    },
    Namespace(model::Namespace),
    /// A namespace that is being deleted. Nothing is made in it any more, so whoever asks about its name means the
    /// one that comes after it, whose labels and owner may be others.
    Ending(String),
    Node(model::Node),
}

enum Change {
    /// A list begins.
    Begin(Kind),
    /// An object is there.
    Put(Kind, Box<Item>),
    /// An object is gone.
    Gone(Kind, String),
    /// The list is complete.
    Listed(Kind),
}

/// Watches for ever, and shows in `state` what is known. `gate` opens after the first full lists.
/// Croft is installed in `namespace`.
pub async fn run(
    client: Client,
    namespace: String,
    state: Arc<State>,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    gate: Gate,
) {
    let mut changes = streams(&client);
    let mut keeper = Keeper::new(namespace, clock.monotonic());
    loop {
        let wait = keeper
            .config_absent
            .map(|since| CONFIG_ABSENCE.saturating_sub(clock.monotonic().saturating_duration_since(since)));
        let mut next = tokio::select! {
            change = changes.next() => match change {
                Some(change) => Some(change),
                None => return,
            },
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => None,
        };
        keeper.now = clock.monotonic();
        keeper.confirm_absence();
        let mut taken = 0;
        while let Some(change) = next.take() {
            match change {
                Ok(change) => keeper.take(change),
                Err(error) => {
                    metrics.watch_errors.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(%error, "a watch failed; what is known stays, and it is tried again");
                }
            }
            taken += 1;
            if taken < BATCH {
                next = changes.next().now_or_never().flatten();
            }
        }
        if !keeper.complete() || !mem::take(&mut keeper.dirty) {
            continue;
        }
        let begun = clock.monotonic();
        let tenants = keeper.index.snapshot();
        let took = clock.monotonic().saturating_duration_since(begun);
        metrics.build_micros.store(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        metrics.builds.fetch_add(1, Ordering::Relaxed);
        let index = &keeper.index;
        let counts = [
            index.tenant_names().len(),
            index.pool_names().len(),
            index.namespace_names().len(),
            index.node_names().len(),
        ];
        for (count, gauge) in counts.into_iter().zip(&metrics.known) {
            gauge.store(count, Ordering::Relaxed);
        }
        metrics.invalid.store(keeper.flaws.count(), Ordering::Relaxed);
        state.publish(tenants, keeper.seen());
        if !gate.is_open() {
            tracing::info!("tenants, pools, namespaces and nodes are known");
            gate.set(true);
        }
    }
}

struct Keeper {
    /// The namespace that Croft is installed in.
    namespace: String,
    index: Index,
    /// The names of a list that isn't complete yet.
    listing: [Option<HashSet<Arc<str>>>; KINDS],
    listed: [bool; KINDS],
    generations: std::collections::BTreeMap<Arc<str>, (String, i64)>,
    flaws: Flaws,
    dirty: bool,
    /// The time at which changes are taken in.
    now: Instant,
    /// Since when there is no CroftConfig, where there was one: the last one holds until that has lasted.
    config_absent: Option<Instant>,
    has_config: bool,
}

impl Keeper {
    fn new(namespace: String, now: Instant) -> Self {
        let mut index = Index::new();
        index.set_config(Config::installed_in(&namespace));
        Self {
            namespace,
            now,
            config_absent: None,
            has_config: false,
            index,
            listing: Default::default(),
            listed: [false; KINDS],
            generations: Default::default(),
            flaws: Flaws::default(),
            dirty: false,
        }
    }

    fn complete(&self) -> bool {
        self.listed.iter().all(|listed| *listed)
    }

    /// What the index holds and `listed` doesn't name.
    fn unlisted(&self, kind: Kind, listed: &HashSet<Arc<str>>) -> Vec<String> {
        fn missing<'n>(names: impl Iterator<Item = &'n str>, listed: &HashSet<Arc<str>>) -> Vec<String> {
            names.filter(|name| !listed.contains(*name)).map(str::to_owned).collect()
        }
        match kind {
            Kind::Tenant => missing(self.index.tenant_names(), listed),
            Kind::Pool => missing(self.index.pool_names().chain(self.flaws.names(kind)), listed),
            Kind::Config => missing([SINGLETON].into_iter(), listed),
            Kind::Namespace => missing(self.index.namespace_names(), listed),
            Kind::Node => missing(self.index.node_names(), listed),
        }
    }

    fn seen(&self) -> Seen {
        let mut seen = Seen::default();
        for (uid, generation) in self.generations.values() {
            seen.insert(uid, *generation);
        }
        seen
    }

    fn take(&mut self, change: Change) {
        match change {
            Change::Begin(kind) => {
                if let Some(listing) = self.listing.get_mut(kind as usize) {
                    *listing = Some(HashSet::new());
                }
            }
            Change::Put(kind, item) => {
                let name = self.put(*item);
                if let Some(Some(listing)) = self.listing.get_mut(kind as usize) {
                    listing.insert(name);
                }
                self.dirty = true;
            }
            Change::Gone(kind, name) => self.remove(kind, &name),
            Change::Listed(kind) => {
                let Some(Some(listing)) = self.listing.get_mut(kind as usize).map(Option::take) else {
                    return;
                };
                for name in self.unlisted(kind, &listing) {
                    self.remove(kind, &name);
                }
                if let Some(listed) = self.listed.get_mut(kind as usize) {
                    // The first list counts as a change, however empty.
                    self.dirty |= !mem::replace(listed, true);
                }
            }
        }
    }

    fn put(&mut self, item: Item) -> Arc<str> {
        match item {
            Item::Tenant { tenant: Read { object, wrong }, uid, generation } => {
                let name: Arc<str> = Arc::from(object.name.as_str());
                // What was in force stays so, and this replica says that it has seen the generation.
                if !self.flaws.keep(Kind::Tenant, &name, &uid, wrong) {
                    self.index.upsert_tenant(object);
                }
                self.generations.insert(Arc::clone(&name), (uid, generation));
                name
            }
            Item::Pool { pool: Read { object, wrong }, uid } => {
                let name: Arc<str> = object.name.as_str().into();
                let is_whole = wrong.is_none();
                let keeps = self.flaws.keep(Kind::Pool, &name, &uid, wrong);
                if is_whole {
                    self.index.upsert_pool(object);
                } else if !keeps {
                    // Its tenants' pods are refused, as with a pool that isn't there.
                    self.index.remove_pool(&name);
                }
                name
            }
            Item::Config { name, settings } => {
                if name == SINGLETON {
                    (self.config_absent, self.has_config) = (None, true);
                    let Read { object, wrong } = settings.read(&self.namespace);
                    self.flaws.keep(Kind::Config, &name, "", wrong);
                    self.index.set_config(object);
                }
                name.into()
            }
            Item::Namespace(namespace) => self.index.upsert_namespace(&namespace),
            Item::Ending(name) => {
                self.index.remove_namespace(&name);
                name.into()
            }
            Item::Node(node) => self.index.upsert_node(&node),
        }
    }

    /// Returns to the defaults once the CroftConfig has been absent for long enough.
    fn confirm_absence(&mut self) {
        let lasted = |since| self.now.saturating_duration_since(since) >= CONFIG_ABSENCE;
        if self.config_absent.is_some_and(lasted) {
            (self.config_absent, self.has_config) = (None, false);
            self.index.set_config(Config::installed_in(&self.namespace));
            self.dirty = true;
        }
    }

    fn remove(&mut self, kind: Kind, name: &str) {
        self.dirty = true;
        self.flaws.forget(kind, name);
        match kind {
            Kind::Tenant => {
                self.generations.remove(name);
                self.index.remove_tenant(name);
            }
            Kind::Pool => self.index.remove_pool(name),
            Kind::Config if name == SINGLETON && self.has_config => {
                self.config_absent.get_or_insert(self.now);
            }
            Kind::Config => {}
            Kind::Namespace => self.index.remove_namespace(name),
            Kind::Node => self.index.remove_node(name),
        }
    }
}

fn streams(client: &Client) -> SelectAll<BoxStream<'static, Result<Change, WatchError>>> {
    let mut all = SelectAll::new();
    all.push(whole(client, Kind::Tenant, |view: TenantView| Item::Tenant {
        uid: view.metadata.uid.clone().unwrap_or_default(),
        generation: view.metadata.generation.unwrap_or_default(),
        tenant: view.read(),
    }));
    all.push(whole(client, Kind::Pool, |view: PoolView| Item::Pool {
        uid: view.metadata.uid.clone().unwrap_or_default(),
        pool: view.read(),
    }));
    all.push(whole(client, Kind::Config, |view: ConfigView| Item::Config {
        name: view.metadata.name.clone().unwrap_or_default(),
        settings: Box::new(view),
    }));
    all.push(whole(client, Kind::Node, |view: NodeView| Item::Node(view.into())));
    let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
    all.push(followed(
        move |config| watcher(namespaces.clone(), config).default_backoff(),
        Kind::Namespace,
        |partial| &partial.metadata,
        |partial| match (&partial.metadata.deletion_timestamp, &partial.metadata.name) {
            (Some(_), Some(name)) => Item::Ending(name.clone()),
            _ => Item::Namespace(views::namespace(partial.metadata)),
        },
    ));
    all
}

fn whole<K>(
    client: &Client,
    kind: Kind,
    item: fn(K) -> Item,
) -> BoxStream<'static, Result<Change, WatchError>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let api: Api<K> = Api::all(client.clone());
    followed(move |config| watcher(api.clone(), config).default_backoff(), kind, Resource::meta, item)
}

/// The changes of one kind. Lists are streamed, so that no page of whole objects is ever held; an API server
/// that refuses that is asked for pages instead.
fn followed<K, S>(
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
            Ok(Event::Init) => Ok(Change::Begin(kind)),
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                Ok(Change::Put(kind, Box::new(item(object))))
            }
            Ok(Event::Delete(object)) => {
                Ok(Change::Gone(kind, metadata(&object).name.clone().unwrap_or_default()))
            }
            Ok(Event::InitDone) => Ok(Change::Listed(kind)),
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

#[cfg(test)]
mod tests {
    use croft_policy::index::Ground;
    use croft_runtime::clock::SystemClock;

    use super::*;

    fn tenant(name: &str, uid: &str, generation: i64) -> Change {
        let tenant = model::Tenant {
            name: name.to_owned(),
            namespaces: vec![format!("{name}-ns")],
            ..model::Tenant::default()
        };
        let tenant = Read { object: tenant, wrong: None };
        Change::Put(Kind::Tenant, Box::new(Item::Tenant { tenant, uid: uid.to_owned(), generation }))
    }

    fn namespace(name: &str) -> Change {
        let namespace = model::Namespace { name: name.to_owned(), ..model::Namespace::default() };
        Change::Put(Kind::Namespace, Box::new(Item::Namespace(namespace)))
    }

    const ALL: [Kind; KINDS] = [Kind::Tenant, Kind::Pool, Kind::Config, Kind::Namespace, Kind::Node];

    #[test]
    fn nothing_is_shown_before_every_list_is_complete() {
        let mut keeper = Keeper::new("ours".to_owned(), SystemClock.monotonic());
        for kind in ALL {
            assert!(!keeper.complete());
            keeper.take(Change::Begin(kind));
            keeper.take(Change::Listed(kind));
        }
        assert!(keeper.complete() && keeper.dirty);
    }

    #[test]
    fn a_repeated_list_forgets_what_it_lacks_only_when_it_is_complete() {
        let mut keeper = Keeper::new("ours".to_owned(), SystemClock.monotonic());
        for change in [
            Change::Begin(Kind::Namespace),
            namespace("a-ns"),
            namespace("b-ns"),
            Change::Listed(Kind::Namespace),
        ] {
            keeper.take(change);
        }
        for change in [
            Change::Begin(Kind::Tenant),
            tenant("a", "u1", 1),
            tenant("b", "u2", 1),
            Change::Listed(Kind::Tenant),
        ] {
            keeper.take(change);
        }
        keeper.take(Change::Begin(Kind::Tenant));
        keeper.take(tenant("a", "u1", 2));
        let before = keeper.index.snapshot();
        assert!(matches!(before.ground("b-ns"), Ground::Tenant { .. }), "not while the list is incomplete");
        keeper.take(Change::Listed(Kind::Tenant));
        let after = keeper.index.snapshot();
        assert!(matches!(after.ground("b-ns"), Ground::Nobody));
        assert!(matches!(after.ground("a-ns"), Ground::Tenant { .. }));
        assert!(keeper.seen().covers("u1", 2) && !keeper.seen().covers("u2", 1));
        keeper.take(Change::Gone(Kind::Namespace, "a-ns".to_owned()));
        assert!(matches!(keeper.index.snapshot().ground("a-ns"), Ground::Unknown));
    }

    /// A Tenant as it is stored.
    fn stored(uid: &str, spec: &serde_json::Value) -> Change {
        let tenant = croft_policy::stored::tenant("a".to_owned(), Some(1), spec);
        Change::Put(Kind::Tenant, Box::new(Item::Tenant { tenant, uid: uid.to_owned(), generation: 7 }))
    }

    #[test]
    fn a_tenant_that_cannot_be_read_keeps_what_was_in_force() {
        use serde_json::json;
        let by = |operator: &str| {
            json!({"pools": ["p"], "namespaceSelector": {"matchExpressions": [
            {"key": "team", "operator": operator, "values": ["a"]}]}})
        };
        let team = |name: &str, annotations: &[(&str, &str)]| {
            let owned = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
            let namespace = model::Namespace {
                name: name.to_owned(),
                labels: [("team", "a")].iter().map(owned).collect(),
                annotations: annotations.iter().map(owned).collect(),
            };
            Change::Put(Kind::Namespace, Box::new(Item::Namespace(namespace)))
        };
        let mut keeper = Keeper::new("ours".to_owned(), SystemClock.monotonic());
        keeper.take(team("a-ns", &[]));
        keeper.take(stored("u1", &by("In")));
        assert!(matches!(keeper.index.snapshot().ground("a-ns"), Ground::Tenant { .. }));
        keeper.take(stored("u1", &by("in")));
        assert!(
            matches!(keeper.index.snapshot().ground("a-ns"), Ground::Tenant { .. }),
            "the last good version"
        );
        assert!(keeper.seen().covers("u1", 7));
        assert_eq!(keeper.flaws.count(), 1);
        // Another object of that name has no earlier version; nor has any after a restart.
        keeper.take(stored("u2", &by("in")));
        assert!(matches!(keeper.index.snapshot().ground("a-ns"), Ground::Nobody));
        keeper.take(team("a-ns", &[(model::POOLS_ANNOTATION, "k=v:NoSchedule:p")]));
        assert!(matches!(keeper.index.snapshot().ground("a-ns"), Ground::Unread), "held, never opened");
        keeper.take(stored("u2", &by("In")));
        assert!(matches!(keeper.index.snapshot().ground("a-ns"), Ground::Tenant { .. }));
        assert_eq!(keeper.flaws.count(), 0);
    }

    #[test]
    fn a_config_that_is_gone_for_a_moment_still_exempts() {
        let mut keeper = Keeper::new("ours".to_owned(), SystemClock.monotonic());
        let exempts =
            |keeper: &mut Keeper| matches!(keeper.index.snapshot().ground("agents"), Ground::Exempt);
        let config = || {
            let view = serde_json::json!({"metadata": {"name": SINGLETON}, "spec": {"exemptNamespaces": ["agents"]}});
            let settings = serde_json::from_value(view).unwrap();
            Change::Put(Kind::Config, Box::new(Item::Config { name: SINGLETON.to_owned(), settings }))
        };
        keeper.take(config());
        keeper.take(Change::Gone(Kind::Config, SINGLETON.to_owned()));
        let begun = keeper.now;
        keeper.now = begun + CONFIG_ABSENCE - std::time::Duration::from_secs(1);
        // A list that lacks it is the same absence, not a new one.
        keeper.take(Change::Begin(Kind::Config));
        keeper.take(Change::Listed(Kind::Config));
        keeper.confirm_absence();
        assert!(exempts(&mut keeper));
        keeper.take(config());
        keeper.now = begun + CONFIG_ABSENCE * 2;
        keeper.confirm_absence();
        assert!(exempts(&mut keeper), "it is there again");
        keeper.take(Change::Gone(Kind::Config, SINGLETON.to_owned()));
        keeper.now = begun + CONFIG_ABSENCE * 3;
        keeper.confirm_absence();
        assert!(!exempts(&mut keeper));
    }

    #[test]
    fn a_namespace_that_ends_is_not_taken_for_the_one_that_comes_after_it() {
        let mut keeper = Keeper::new("ours".to_owned(), SystemClock.monotonic());
        keeper.take(tenant("a", "u1", 1));
        keeper.take(namespace("a-ns"));
        assert!(keeper.index.snapshot().knows("a-ns"));
        let ending = || Change::Put(Kind::Namespace, Box::new(Item::Ending("a-ns".to_owned())));
        keeper.take(ending());
        assert!(matches!(keeper.index.snapshot().ground("a-ns"), Ground::Unknown));
        // Also where it is seen in a list.
        for change in [Change::Begin(Kind::Namespace), ending(), Change::Listed(Kind::Namespace)] {
            keeper.take(change);
        }
        assert!(matches!(keeper.index.snapshot().ground("a-ns"), Ground::Unknown));
        keeper.take(Change::Gone(Kind::Namespace, "a-ns".to_owned()));
        keeper.take(namespace("a-ns"));
        assert!(matches!(keeper.index.snapshot().ground("a-ns"), Ground::Tenant { .. }));
    }

    #[test]
    fn only_the_default_settings_count() {
        let mut keeper = Keeper::new("ours".to_owned(), SystemClock.monotonic());
        let put = |name: &str| {
            let view = serde_json::json!({"metadata": {"name": name}, "spec": {"exemptNamespaces": ["x"]}});
            let settings = serde_json::from_value(view).unwrap();
            Change::Put(Kind::Config, Box::new(Item::Config { name: name.to_owned(), settings }))
        };
        keeper.take(put("other"));
        assert!(matches!(keeper.index.snapshot().ground("x"), Ground::Unknown));
        keeper.take(put(SINGLETON));
        let exempt =
            |keeper: &mut Keeper, name| matches!(keeper.index.snapshot().ground(name), Ground::Exempt);
        for name in ["x", "ours", "kube-system", "kube-public", "kube-node-lease"] {
            assert!(exempt(&mut keeper, name), "{name}: the settings add to what is built in");
        }
        assert!(!exempt(&mut keeper, "croft-system"), "Croft is installed elsewhere");
        keeper.take(Change::Gone(Kind::Config, SINGLETON.to_owned()));
        keeper.now += CONFIG_ABSENCE;
        keeper.confirm_absence();
        assert!(matches!(keeper.index.snapshot().ground("x"), Ground::Unknown));
        assert!(exempt(&mut keeper, "ours") && exempt(&mut keeper, "kube-system"));
    }
}
