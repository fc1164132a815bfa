//! Pod creations through the API server, the kinds in turns.

use std::{fmt, time::Duration};

use anyhow::Context as _;
use croft_runtime::clock::{Clock as _, SystemClock};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};

use crate::cluster::{BY_CROFT, BY_POLICY, Cluster, FREE, UNMATCHED, pod};

/// Creations that are not measured.
const WARM_UP: usize = 40;

/// Medians, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Medians {
    free: f64,
    policy: Option<f64>,
    croft: f64,
    pub(crate) errors: usize,
}

impl Medians {
    pub(crate) fn added_by_croft(&self) -> f64 {
        self.croft - self.free
    }

    pub(crate) fn added_by_policy(&self) -> f64 {
        self.policy.map_or(0.0, |policy| policy - self.free)
    }
}

impl fmt::Display for Medians {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no policy {:.3} ms", self.free)?;
        if let Some(policy) = self.policy {
            write!(f, ", MutatingAdmissionPolicy {policy:.3} ms (+{:.3})", policy - self.free)?;
        }
        write!(f, ", Croft {:.3} ms (+{:.3})", self.croft, self.added_by_croft())
    }
}

/// The review of a pod's creation, as captured from the API server.
pub(crate) fn captured_review() -> anyhow::Result<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/corpus/reviews");
    let path = format!("{folder}/pods-create-tenant-a-1.json");
    std::fs::read(&path).with_context(|| format!("failed to read the captured review {path}"))
}

/// No policy, the in-process policy, Croft's mutation.
pub(crate) async fn mutation(cluster: &Cluster, pods: usize) -> anyhow::Result<Medians> {
    let measured = measure(cluster, &[FREE, BY_POLICY, BY_CROFT], pods).await?;
    let [free, policy, croft] = measured.medians[..] else { anyhow::bail!("a kind wasn't measured") };
    Ok(Medians { free, policy: Some(policy), croft, errors: measured.errors })
}

/// No policy, in a namespace that none of the generated ones matches; Croft's mutation and the generated policies. A
/// namespace that is exempt by the settings wouldn't do: the policies apply there, too, and find little to evaluate.
pub(crate) async fn both(cluster: &Cluster, pods: usize) -> anyhow::Result<Medians> {
    let measured = measure(cluster, &[UNMATCHED, BY_CROFT], pods).await?;
    let [free, croft] = measured.medians[..] else { anyhow::bail!("a kind wasn't measured") };
    Ok(Medians { free, policy: None, croft, errors: measured.errors })
}

/// Medians in Policy mode, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicyMode {
    unmatched: f64,
    exempt: f64,
    croft: f64,
    pub(crate) errors: usize,
}

impl PolicyMode {
    /// The time that all of Croft's policies add to a namespace that none of them matches.
    pub(crate) fn added(&self) -> f64 {
        self.croft - self.unmatched
    }
}

impl fmt::Display for PolicyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unmatched, exempt, croft, .. } = self;
        write!(
            f,
            "no policy {unmatched:.3} ms, exempt by the settings {exempt:.3} ms (+{:.3}), ",
            exempt - unmatched
        )?;
        write!(f, "tenant {croft:.3} ms (+{:.3})", self.added())
    }
}

/// In Policy mode: a namespace that no policy matches, one that is exempt by the settings, and a tenant's.
pub(crate) async fn policy_mode(cluster: &Cluster, pods: usize) -> anyhow::Result<PolicyMode> {
    let measured = measure(cluster, &[UNMATCHED, FREE, BY_CROFT], pods).await?;
    let [unmatched, exempt, croft] = measured.medians[..] else { anyhow::bail!("a kind wasn't measured") };
    Ok(PolicyMode { unmatched, exempt, croft, errors: measured.errors })
}

/// The order of the kinds in turn `number`: each kind comes first as often as the others, and after each of them as
/// often, since the costs that one leaves behind (watches to be told, stores to be written) fall on the next.
fn order(number: usize, kinds: usize) -> impl Iterator<Item = usize> {
    let backwards = (number / kinds) % 2 == 1;
    (0..kinds).map(move |at| {
        let place = (at + number) % kinds;
        if backwards { kinds - 1 - place } else { place }
    })
}

/// Medians of each kind, in milliseconds.
pub(crate) struct Measured {
    pub(crate) medians: Vec<f64>,
    pub(crate) errors: usize,
}

/// Creates this many pods in each namespace, the namespaces in turns.
pub(crate) async fn measure(cluster: &Cluster, namespaces: &[&str], pods: usize) -> anyhow::Result<Measured> {
    let apis: Vec<Api<Pod>> =
        namespaces.iter().map(|namespace| Api::namespaced(cluster.client.clone(), namespace)).collect();
    let mut times: Vec<Vec<Duration>> = vec![Vec::with_capacity(pods); namespaces.len()];
    let mut errors = 0;
    for number in 0..WARM_UP + pods {
        let body: Pod = serde_json::from_value(pod(&format!("p-{number}")))?;
        for at in order(number, apis.len()) {
            let (Some(api), Some(namespace), Some(times)) =
                (apis.get(at), namespaces.get(at), times.get_mut(at))
            else {
                continue;
            };
            let begun = SystemClock.monotonic();
            let made = api.create(&PostParams::default(), &body).await;
            let took = SystemClock.monotonic() - begun;
            // A pod that isn't pinned where it should be, or is where it shouldn't, is no measurement.
            let wrong = match made {
                Ok(made) => {
                    let pinned = made.spec.is_some_and(|spec| spec.node_selector.is_some());
                    let is_free = [FREE, UNMATCHED].contains(namespace);
                    (pinned == is_free).then(|| format!("pinned: {pinned}"))
                }
                Err(error) => Some(error.to_string()),
            };
            if let Some(why) = wrong {
                if errors == 0 {
                    eprintln!("a pod of {namespace} came out wrong: {why}");
                }
                errors += 1;
            }
            if number >= WARM_UP {
                times.push(took);
            }
        }
    }
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    for api in &apis {
        api.delete_collection(&now, &Default::default()).await?;
    }
    let medians = times.into_iter().map(|mut times| {
        times.sort_unstable();
        times.get(times.len() / 2).map_or(0.0, |median| median.as_secs_f64() * 1e3)
    });
    Ok(Measured { medians: medians.collect(), errors })
}
