//! A continuous stream of attacks on isolation while an operation runs on the cluster.
//!
//! ```text
//!  Attack { counter, attempt } ──one task each, again and again──▶ Tally { attempts, breaches by counter }
//! ```
//!
//! Every attempt is a server-side dry run, so that it passes all of admission and leaves nothing behind. An attempt
//! that succeeds is a breach, counted under the attack's name. A request without an answer is neither, since the API
//! server may be restarting. Further attacks with their own counters can be added to [`placement`] and [`kubelets`].

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use croft_policy::definitions::{POOL_NAME_LABEL, UNREGISTERED_LABEL};
use croft_testkit::ControlPlane;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::arena::{Answer, create, pod};

/// Pods admitted onto nodes of other tenants.
pub const ADMITTED: &str = "admitted";
/// Nodes that a kubelet moves into or out of a pool.
pub const RELABELLED: &str = "relabelled";
/// Changed objects outside tenants.
pub const DISTURBED: &str = "disturbed";

/// Pods of tenants that weren't created, pinned and started.
pub const LOST: &str = "lost";

/// Between two attempts of one attack.
pub const PAUSE: Duration = Duration::from_millis(2);
/// Between two attempts of one attack beside a long operation.
pub const SLOW: Duration = Duration::from_millis(500);

/// True if a pod with this spec, once admitted, stays off nodes that aren't its own.
type Harmless = fn(&Value) -> bool;

type Attempt = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was refused, or had no effect.
    Held,
    /// It succeeded, with this object.
    Breach(String),
    /// No answer.
    Unanswered,
}

/// An operation that must never succeed.
pub struct Attack {
    counter: &'static str,
    attempt: Box<dyn Fn() -> Attempt + Send + Sync>,
}

impl Attack {
    /// An attack whose breaches count as `counter`.
    pub fn new<F>(counter: &'static str, attempt: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        Self { counter, attempt: Box::new(move || Box::pin(attempt())) }
    }
}

/// The result of a stream.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Number of answered attempts.
    pub answered: u64,
    /// Breaches by counter, including counters with none.
    pub breaches: BTreeMap<&'static str, Vec<String>>,
}

impl Tally {
    /// Adds the result of another stream.
    pub fn add(&mut self, other: Self) {
        self.answered += other.answered;
        for (counter, breaches) in other.breaches {
            self.breaches.entry(counter).or_default().extend(breaches);
        }
    }

    fn take(&mut self, counter: &'static str, outcome: Outcome) {
        self.answered += u64::from(outcome != Outcome::Unanswered);
        if let Outcome::Breach(what) = outcome {
            self.count(counter, vec![what]);
        }
    }

    /// Counts `breaches` under `counter`.
    pub fn count(&mut self, counter: &'static str, breaches: Vec<String>) {
        self.breaches.entry(counter).or_default().extend(breaches);
    }

    /// True if there are no breaches.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.breaches.values().all(Vec::is_empty)
    }

    /// `counter=number` of each of `counters`, separated by spaces.
    #[must_use]
    pub fn words(&self, counters: &[&'static str]) -> String {
        let number =
            |counter: &&'static str| format!("{counter}={}", self.breaches.get(counter).map_or(0, Vec::len));
        counters.iter().map(number).collect::<Vec<_>>().join(" ")
    }
}

/// A stream of attacks that runs until `stop`.
pub struct Stream {
    stop: Arc<AtomicBool>,
    tally: Arc<Mutex<Tally>>,
    tasks: JoinSet<()>,
}

impl Stream {
    /// Starts the stream.
    #[must_use]
    pub fn start(attacks: Vec<Attack>) -> Self {
        Self::start_paced(attacks, PAUSE)
    }

    /// Starts the stream, with this pause between two attempts of one attack.
    #[must_use]
    pub fn start_paced(attacks: Vec<Attack>, pause: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let tally = Arc::new(Mutex::new(Tally::default()));
        let mut tasks = JoinSet::new();
        for attack in attacks {
            let (stop, tally) = (Arc::clone(&stop), Arc::clone(&tally));
            lock(&tally).breaches.entry(attack.counter).or_default();
            tasks.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let outcome = (attack.attempt)().await;
                    lock(&tally).take(attack.counter, outcome);
                    tokio::time::sleep(pause).await;
                }
            });
        }
        Self { stop, tally, tasks }
    }

    /// Number of attempts answered so far.
    #[must_use]
    pub fn answered(&self) -> u64 {
        lock(&self.tally).answered
    }

    /// Ends after the attempts in flight.
    pub async fn stop(mut self) -> Tally {
        self.stop.store(true, Ordering::Relaxed);
        while self.tasks.join_next().await.is_some() {}
        lock(&self.tally).clone()
    }
}

fn lock(tally: &Mutex<Tally>) -> std::sync::MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates a pod that would run on a node that isn't its own; `harmless` evaluates the admitted spec.
async fn creation(client: Client, pod: Value, harmless: Harmless) -> Outcome {
    match create(&client, &pod, true).await {
        Err(_) => Outcome::Unanswered,
        Ok(Answer::Refused(_)) => Outcome::Held,
        Ok(Answer::Done(object)) => {
            let spec = object.data.get("spec").cloned().unwrap_or_default();
            if harmless(&spec) { Outcome::Held } else { Outcome::Breach(spec.to_string()) }
        }
    }
}

/// Every term of the required node affinity rules out the built-in key, and nodes without it yet if the pod tolerates them.
fn is_kept_out(spec: &Value) -> bool {
    let tolerations = spec.get("tolerations").and_then(Value::as_array).into_iter().flatten();
    let mut without_key = tolerations.filter(|toleration| toleration.get("key").is_none());
    rules_out(spec, POOL_NAME_LABEL) && (without_key.next().is_none() || rules_out(spec, UNREGISTERED_LABEL))
}

fn rules_out(spec: &Value, key: &str) -> bool {
    let terms = spec
        .pointer("/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms");
    let kept_out = |term: &Value| {
        let expressions = term.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
        expressions.into_iter().any(|e| {
            e.get("key").and_then(Value::as_str) == Some(key)
                && e.get("operator").and_then(Value::as_str) == Some("DoesNotExist")
        })
    };
    terms.and_then(Value::as_array).is_some_and(|terms| !terms.is_empty() && terms.iter().all(kept_out))
}

/// The pod is pinned to a pool of tenant a of the arena.
fn is_pinned_to_a(spec: &Value) -> bool {
    let label = |key: &str| spec.get("nodeSelector").and_then(|s| s.get(key)).and_then(Value::as_str);
    label("node-pool") == Some("pool-a") || label("other-key") == Some("two")
}

/// Pods of the arena's non-tenant namespace that tolerate a pool's taint, select its label or name its node, and pods of a
/// tenant that would run outside its pools.
///
/// # Errors
/// If a client can't be created.
pub async fn placement(plane: &ControlPlane) -> anyhow::Result<Vec<Attack>> {
    let client = plane.admin().await?;
    let tolerates = |toleration: Value| json!({"tolerations": [toleration]});
    let cases: Vec<(&str, Value, Harmless)> = vec![
        (
            "no-tenant",
            tolerates(json!({"key": "node-pool", "operator": "Equal", "value": "pool-a"})),
            is_kept_out,
        ),
        ("no-tenant", tolerates(json!({"key": "other-key", "operator": "Exists"})), is_kept_out),
        ("no-tenant", tolerates(json!({"operator": "Exists"})), is_kept_out),
        (
            "no-tenant",
            json!({"nodeSelector": {"node-pool": "pool-a"}, "tolerations": [{"key": "node-pool", "operator": "Exists"}]}),
            is_kept_out,
        ),
        ("tenant-a", json!({}), is_pinned_to_a),
        ("tenant-a", json!({"nodeSelector": {"node-pool": "pool-b"}}), is_pinned_to_a),
    ];
    let attack = |(namespace, spec, harmless): (&str, Value, Harmless)| {
        let (client, pod) = (client.clone(), pod(namespace, "attack", spec));
        Attack::new(ADMITTED, move || creation(client.clone(), pod.clone(), harmless))
    };
    Ok(cases.into_iter().map(attack).collect())
}

/// Kubelets of the arena that relabel their nodes into and out of pools.
///
/// # Errors
/// If a client can't be created.
pub async fn kubelets(plane: &ControlPlane) -> anyhow::Result<Vec<Attack>> {
    let mut attacks = Vec::new();
    for (node, key, value) in [
        ("free-1", "node-pool", json!("pool-a")),
        ("free-2", "other-key", json!("two")),
        ("free-2", POOL_NAME_LABEL, json!("pool-a")),
        ("a-1", "node-pool", json!("pool-b")),
        ("b-1", "node-pool", Value::Null),
    ] {
        let client = plane.client_for(&format!("system:node:{node}"), &["system:nodes"]).await?;
        let patch = json!({"metadata": {"labels": {key: value}}});
        attacks.push(Attack::new(RELABELLED, move || relabel(client.clone(), node, patch.clone())));
    }
    Ok(attacks)
}

async fn relabel(client: Client, node: &'static str, patch: Value) -> Outcome {
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    match Api::<Node>::all(client).patch(node, &dry, &Patch::Merge(&patch)).await {
        Ok(_) => Outcome::Breach(format!("node {node}: {patch}")),
        Err(kube::Error::Api(_)) => Outcome::Held,
        Err(_) => Outcome::Unanswered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn breach_is_counted_and_a_missing_answer_is_not() {
        let attacks = vec![
            Attack::new(ADMITTED, async || Outcome::Breach("x".to_owned())),
            Attack::new(RELABELLED, async || Outcome::Held),
            Attack::new(DISTURBED, async || Outcome::Unanswered),
        ];
        let stream = Stream::start(attacks);
        while stream.answered() < 4 {
            tokio::task::yield_now().await;
        }
        let tally = stream.stop().await;
        assert!(!tally.is_clean());
        assert_ne!(tally.breaches[ADMITTED].len(), 0);
        assert_eq!(tally.words(&[RELABELLED, DISTURBED]), "relabelled=0 disturbed=0");
    }

    #[test]
    fn pod_is_harmless_only_if_every_term_keeps_it_out() {
        let spec = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
        let out = json!({"matchExpressions": [{"key": POOL_NAME_LABEL, "operator": "DoesNotExist"}]});
        let other = json!({"matchExpressions": [{"key": "zone", "operator": "Exists"}]});
        assert!(is_kept_out(&spec(json!([out]))));
        for terms in [json!([out, other]), json!([other]), json!([])] {
            assert!(!is_kept_out(&spec(terms)));
        }
        assert!(!is_kept_out(&json!({})));
        let mut tolerant = spec(json!([out]));
        tolerant["tolerations"] = json!([{"operator": "Exists"}]);
        assert!(!is_kept_out(&tolerant));
    }
}
