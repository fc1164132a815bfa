//! Webhook mode and Policy mode, compared over the states of the search: they answer alike, but for the list of differences.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;

use croft_policy::definitions::POOL_NAME_LABEL;
use croft_prove::{
    declared::{Declared, NamespaceKind, PoolKind, PoolSpec},
    model::{Scope, Search, settled},
    nodes::Node,
    pods::{Alphabet, names_node},
};
use serde_json::{Value, json};

type Answer = Option<Arc<Value>>;

/// A difference between the modes, and its reason. Each must occur.
struct Difference {
    name: &'static str,
    reason: &'static str,
    is_it: fn(NamespaceKind, &Value, webhook: &Answer, policy: &Answer) -> bool,
}

const DIFFERENCES: [Difference; 1] = [Difference {
    name: "a pod that keeps itself off the pools isn't sent to the webhook",
    reason: "agents that were planned once start while Croft is down; the policies see every pod, and refuse one that selects a \
             pool all the same",
    is_it: |namespace, spec, webhook, _| {
        let unchanged = webhook.as_deref() == Some(spec);
        matches!(namespace, NamespaceKind::None | NamespaceKind::Shared | NamespaceKind::SharedOther)
            && unchanged
            && keeps_itself_off(spec)
    },
}];

/// True if every required term excludes the built-in key, or matches nothing.
fn keeps_itself_off(spec: &Value) -> bool {
    let terms = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let excludes = |term: &Value| {
        let mut expressions = term["matchExpressions"].as_array().into_iter().flatten();
        expressions.any(|e| e["key"] == POOL_NAME_LABEL && e["operator"] == "DoesNotExist")
    };
    terms.as_array().is_some_and(|terms| terms.iter().all(|term| *term == json!({}) || excludes(term)))
}

fn search(pool: PoolKind, namespace: NamespaceKind) -> Search {
    Search::new(Scope {
        name: String::new(),
        pool,
        namespace,
        initial: Vec::new(),
        edits: Vec::new(),
        max_edits: 0,
        max_updates: 0,
        alphabet: Alphabet::small(),
    })
}

/// Calls `compare` with what each mode makes of every pod and update, in every kind of namespace and pool.
fn each(mut compare: impl FnMut(NamespaceKind, &str, &Value, Answer, Answer)) {
    let alphabet = Alphabet::small();
    for pool in PoolKind::ALL {
        for namespace in NamespaceKind::ALL {
            let search = search(pool, namespace);
            let spec = Some(PoolSpec { no_execute: true, shared: true });
            let worlds = [false, true].map(|policy_mode| {
                settled(Declared { pool: spec, ..Declared::all(policy_mode) }, &search.scope)
            });
            let node = Node::of_other_launcher(spec);
            for spec in alphabet.created() {
                let named = names_node(&spec).then_some(&node);
                let [webhook, policy] =
                    worlds.each_ref().map(|world| search.admits(world, None, &spec, named));
                compare(
                    namespace,
                    &format!("{pool:?} {namespace:?} creates"),
                    &spec,
                    webhook.clone(),
                    policy,
                );
                for stored in webhook.iter().filter(|stored| !names_node(stored)) {
                    for next in alphabet.updated(stored) {
                        let [webhook, policy] =
                            worlds.each_ref().map(|world| search.admits(world, Some(stored), &next, None));
                        compare(
                            namespace,
                            &format!("{pool:?} {namespace:?} updates {stored} to"),
                            &next,
                            webhook,
                            policy,
                        );
                    }
                }
            }
        }
    }
}

/// The order of tolerations and expressions decides nothing.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(sorted).collect();
            items.sort_by_key(Value::to_string);
            Value::Array(items)
        }
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), sorted(value))).collect(),
        other => other.clone(),
    }
}

#[test]
fn both_modes_answer_alike_but_for_the_listed_differences() {
    let (mut compared, mut unlisted) = (0, Vec::new());
    let mut seen = DIFFERENCES.map(|_| 0);
    each(|namespace, what, spec, webhook, policy| {
        compared += 1;
        if webhook.as_deref().map(sorted) == policy.as_deref().map(sorted) {
            return;
        }
        match DIFFERENCES.iter().position(|d| (d.is_it)(namespace, spec, &webhook, &policy)) {
            Some(at) => seen[at] += 1,
            None => unlisted.push(format!("{what} {spec}\n  webhook: {webhook:?}\n  policy: {policy:?}")),
        }
    });
    for (difference, count) in DIFFERENCES.iter().zip(seen) {
        println!("{count} times: {}: {}", difference.name, difference.reason);
        assert!(count > 0, "{} doesn't occur any more: remove it", difference.name);
    }
    println!("{compared} answers compared");
    assert!(
        unlisted.is_empty(),
        "{} differences:\n{}",
        unlisted.len(),
        unlisted[..unlisted.len().min(40)].join("\n")
    );
}
