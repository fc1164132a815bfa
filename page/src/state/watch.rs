//! The watches: a task for each kind, from the API server to [`State`].
//!
//! While the API server is unreachable the state stays as it is. A repeated list removes what it lacks once it is complete.
//! Each watch begins again after half an hour, so that a page outlives the restoration of a backup.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use croft_api::{
    CroftConfig, EC2NodeClass, NodeClaim, Tenant, TenantPool,
    stored::{Kind, Stored},
};
use croft_manifest::{Input, Objects};
use croft_record::{COMPONENT, COMPONENT_LABEL};
use croft_runtime::health::Gate;
use futures::StreamExt as _;
use k8s_openapi::api::{
    core::v1::{ConfigMap, LimitRange, Namespace, PersistentVolume, PersistentVolumeClaim},
    node::v1::RuntimeClass,
    policy::v1::PodDisruptionBudget,
    scheduling::v1::PriorityClass,
    storage::v1::{CSINode, StorageClass},
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Config, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::store::State;
use crate::cluster::{objects::put, trim};

/// Objects of a page of a list.
const PAGE: u32 = 500;
/// A watch begins again after this time.
const WATCH_TIME: Duration = Duration::from_secs(30 * 60);

/// A namespace and a name.
type Key = (String, String);

/// Starts every watch. `listed` opens once each kind was listed.
pub fn start(client: &Client, namespace: &str, state: &Arc<State>, listed: Gate) {
    let lists = Arc::new(Lists { missing: AtomicUsize::new(0), listed, state: state.clone() });
    own::<Tenant>(client, &lists, |input| &mut input.tenants);
    own::<TenantPool>(client, &lists, |input| &mut input.pools);
    own::<EC2NodeClass>(client, &lists, |input| &mut input.classes);
    own::<NodeClaim>(client, &lists, |input| &mut input.claims);
    own::<CroftConfig>(client, &lists, |input| &mut input.configs);
    plain::<Namespace>(client, &lists, trim::metadata, |input| &mut input.namespaces);
    plain(client, &lists, trim::node, |input| &mut input.nodes);
    plain(client, &lists, trim::daemon_set, |input| &mut input.daemon_sets);
    plain::<PersistentVolumeClaim>(client, &lists, trim::metadata, |input| &mut input.volume_claims);
    plain::<PersistentVolume>(client, &lists, trim::metadata, |input| &mut input.volumes);
    plain::<StorageClass>(client, &lists, trim::metadata, |input| &mut input.storage_classes);
    plain::<CSINode>(client, &lists, trim::metadata, |input| &mut input.csi_nodes);
    plain::<PriorityClass>(client, &lists, trim::without_labels, |input| &mut input.priority_classes);
    plain::<RuntimeClass>(client, &lists, trim::without_labels, |input| &mut input.runtime_classes);
    plain::<LimitRange>(client, &lists, trim::without_labels, |input| &mut input.limit_ranges);
    plain::<PodDisruptionBudget>(client, &lists, trim::metadata, |input| &mut input.budgets);

    let put_pod = |state: &State, mut pod| {
        trim::pod(&mut pod);
        state.change(|cluster| cluster.put_pod(pod));
    };
    let remove_pod = |state: &State, (namespace, name): &Key| {
        state.change(|cluster| cluster.remove_pod(namespace, name));
    };
    follow(Api::all(client.clone()), Config::default(), &lists, put_pod, remove_pod);

    let slots: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let of_record = Config::default().labels(&format!("{COMPONENT_LABEL}={COMPONENT}"));
    // A slot that is gone is a record that was taken away: what was read stays until the process ends.
    let put_slot = |state: &State, slot: ConfigMap| state.change_log(|log| log.observe(&slot));
    follow(slots, of_record, &lists, put_slot, |_, _| {});
}

/// The kinds whose first list isn't complete.
struct Lists {
    missing: AtomicUsize,
    listed: Gate,
    state: Arc<State>,
}

impl Lists {
    fn complete(&self) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            tracing::info!("every kind is listed");
            self.listed.set(true);
            self.state.change(|_| {});
        }
    }
}

/// Watches one of Croft's own kinds. An object that can't be decoded is left out, so that it doesn't hide the others.
fn own<K>(client: &Client, lists: &Arc<Lists>, objects: fn(&mut Input) -> &mut Objects<K>)
where
    K: Kind + Send + Sync + 'static,
    Stored<K>: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let put_one = move |state: &State, stored: Stored<K>| {
        if let Some(mut object) = stored.legible() {
            trim::metadata(&mut object);
            state.change(|cluster| put(objects(&mut cluster.input), object));
        }
    };
    let remove = move |state: &State, (namespace, name): &Key| {
        state.change(|cluster| objects(&mut cluster.input).remove(namespace, name));
    };
    follow(Api::<Stored<K>>::all(client.clone()), Config::default(), lists, put_one, remove);
}

/// Watches a kind of Kubernetes.
fn plain<K>(client: &Client, lists: &Arc<Lists>, trim: fn(&mut K), objects: fn(&mut Input) -> &mut Objects<K>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let put_one = move |state: &State, mut object: K| {
        trim(&mut object);
        state.change(|cluster| put(objects(&mut cluster.input), object));
    };
    let remove = move |state: &State, (namespace, name): &Key| {
        state.change(|cluster| objects(&mut cluster.input).remove(namespace, name));
    };
    follow(Api::all(client.clone()), Config::default(), lists, put_one, remove);
}

/// Follows one kind for ever.
fn follow<K>(
    api: Api<K>,
    config: Config,
    lists: &Arc<Lists>,
    put_one: impl Fn(&State, K) + Send + Sync + 'static,
    remove: impl Fn(&State, &Key) + Send + Sync + 'static,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    lists.missing.fetch_add(1, Ordering::AcqRel);
    let lists = lists.clone();
    tokio::spawn(async move {
        let mut known = Known::default();
        let mut is_listed = false;
        loop {
            let mut events =
                watcher::watcher(api.clone(), config.clone().page_size(PAGE)).default_backoff().boxed();
            let reading = async {
                while let Some(event) = events.next().await {
                    match event {
                        Ok(event) => {
                            let is_complete = matches!(event, Event::InitDone);
                            for key in known.observe(&event) {
                                remove(&lists.state, &key);
                            }
                            if let Event::InitApply(object) | Event::Apply(object) = event {
                                put_one(&lists.state, object);
                            }
                            if is_complete && !std::mem::replace(&mut is_listed, true) {
                                lists.complete();
                            }
                        }
                        Err(error) => {
                            lists.state.metrics().watch_errors.fetch_add(1, Ordering::Relaxed);
                            tracing::warn!(kind = %K::kind(&()), %error, "a watch failed; the state stays as it is, and the watch is retried");
                        }
                    }
                }
            };
            // Over after the time, and begun again.
            let _ = timeout(WATCH_TIME, reading).await;
        }
    });
}

/// The keys of a kind, and those of a list that isn't complete yet.
#[derive(Default)]
struct Known {
    keys: BTreeSet<Key>,
    listing: Option<BTreeSet<Key>>,
}

impl Known {
    /// Takes in an event. Returns the keys that are gone.
    fn observe<K: Resource>(&mut self, event: &Event<K>) -> Vec<Key> {
        let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        match event {
            Event::Init => self.listing = Some(BTreeSet::new()),
            Event::InitApply(object) | Event::Apply(object) => {
                let key = key(object);
                if let Some(listing) = &mut self.listing {
                    listing.insert(key.clone());
                }
                self.keys.insert(key);
            }
            Event::InitDone => {
                let Some(listing) = self.listing.take() else { return Vec::new() };
                let gone = self.keys.difference(&listing).cloned().collect();
                self.keys = listing;
                return gone;
            }
            Event::Delete(object) => {
                let key = key(object);
                self.keys.remove(&key);
                return vec![key];
            }
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;

    use super::*;

    fn namespace(name: &str) -> Namespace {
        Namespace {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            ..Namespace::default()
        }
    }

    #[test]
    fn a_repeated_list_removes_what_it_lacks_once_it_is_complete() {
        let mut known = Known::default();
        let gone = |known: &mut Known, event: Event<Namespace>| -> Vec<String> {
            known.observe(&event).into_iter().map(|(_, name)| name).collect()
        };
        for event in
            [Event::Init, Event::InitApply(namespace("a")), Event::InitApply(namespace("b")), Event::InitDone]
        {
            assert!(gone(&mut known, event).is_empty());
        }
        assert!(gone(&mut known, Event::Apply(namespace("c"))).is_empty());
        assert_eq!(gone(&mut known, Event::Delete(namespace("a"))), ["a"]);
        assert!(gone(&mut known, Event::Init).is_empty());
        assert!(gone(&mut known, Event::InitApply(namespace("c"))).is_empty());
        assert_eq!(gone(&mut known, Event::InitDone), ["b"]);
    }
}
