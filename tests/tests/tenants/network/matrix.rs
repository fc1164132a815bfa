//! A matrix of tenants, namespaces, addresses and ports, with policies of people among those of Croft.

use std::collections::{BTreeMap, BTreeSet};

use croft_api::Tenant;
use croft_simkit::Random;
use croft_testkit::{
    Component, ControlPlane, Croft, Options,
    wait::{Seen, until},
};
use croft_tests::{
    arena::{SOON, kept_arena},
    cyclonus,
    manifests::joined,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::{
    life,
    world::{Isolation, OTHERS, World, Written},
};

/// Draws of isolations for the same tenants. The second edits every Tenant.
const ROUNDS: usize = 2;

/// A control plane with the arena's pools, where no pod runs.
async fn start() -> (ControlPlane, Croft, Client) {
    let options = Options::default().without(Component::Scheduler).without(Component::Kubelets);
    let (plane, croft) = kept_arena(options).await.unwrap();
    let admin = plane.admin().await.unwrap();
    (plane, croft, admin)
}

fn tenants(world: &World) -> Vec<Value> {
    let tenant = |(name, own, isolation): &(String, Vec<String>, Isolation)| {
        json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
            "spec": {"namespaces": own, "pools": ["pool-a"], "networkIsolation": isolation.as_json()},
        })
    };
    world.tenants.iter().map(tenant).collect()
}

/// Namespaces, and policies of people, which are written once.
fn surroundings(world: &World) -> Vec<Value> {
    let names = world.namespaces();
    let created = names.iter().filter(|name| *name != "kube-system");
    let namespaces =
        created.map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    namespaces.chain(world.written.iter().map(Written::as_json)).collect()
}

/// Waits until the controller has written what the Tenants declare now.
async fn settled(admin: &Client, world: &World) {
    let (tenants, policies): (Api<Tenant>, Api<NetworkPolicy>) =
        (Api::all(admin.clone()), Api::all(admin.clone()));
    let isolated = world.isolated();
    until("policies of every isolated namespace, and of no other", SOON, async || {
        let mut open = Vec::new();
        for (name, _, isolation) in &world.tenants {
            let tenant = tenants.get(name).await?;
            let conditions = tenant.status.map(|status| status.conditions).unwrap_or_default();
            let kept = conditions.iter().find(|c| c.type_ == "ObjectsKept");
            let is_current = kept
                .is_some_and(|c| c.status == "True" && c.observed_generation == tenant.metadata.generation);
            if is_current != isolation.enabled || (kept.is_some() && !isolation.enabled) {
                open.push(format!("{name}: {kept:?}"));
            }
        }
        let labelled = kube::api::ListParams::default().labels("croft.dev/tenant");
        let there: BTreeSet<String> =
            policies.list(&labelled).await?.items.iter().filter_map(ResourceExt::namespace).collect();
        let done = open.is_empty() && there == isolated;
        Ok::<_, kube::Error>(Seen::from_option(
            done.then_some(()),
            format!("{open:?} {there:?} {isolated:?}"),
        ))
    })
    .await
    .unwrap();
}

/// The policies of people, as the API server has them.
async fn by_hand(admin: &Client) -> BTreeMap<(String, String), Option<String>> {
    let all = Api::<NetworkPolicy>::all(admin.clone()).list(&Default::default()).await.unwrap().items;
    let of_people = all.iter().filter(|policy| !policy.labels().contains_key("croft.dev/tenant"));
    of_people
        .map(|policy| ((policy.namespace().unwrap(), policy.name_any()), policy.resource_version()))
        .collect()
}

/// The rules of the CRD, which the controller evaluates too: a Tenant that the API server accepts is valid there.
#[test]
fn drawn_isolations_are_valid_by_the_rules_of_the_crd() {
    let mut random = Random::new(23);
    let mut world = World::draw(&mut random);
    for _ in 0..50 {
        for tenant in tenants(&world) {
            let found = croft_api::rules::of("Tenant").unwrap().check_value(&tenant);
            assert!(found.is_empty(), "{tenant}: {found:?}");
        }
        world.redraw(&mut random);
    }
}

#[tokio::test]
async fn written_policies_allow_what_tenants_declare_by_an_independent_evaluator() {
    let (plane, mut croft, admin) = start().await;
    let mut random = Random::new(23);
    let mut world = World::draw(&mut random);
    let folder = tempfile::tempdir().unwrap();
    plane.apply(&joined(&surroundings(&world))).await.unwrap();
    let written = by_hand(&admin).await;
    assert!(written.len() >= world.written.len());
    for round in 0..ROUNDS {
        plane.apply(&joined(&tenants(&world))).await.unwrap();
        settled(&admin, &world).await;
        let policies = plane.kubectl(["get", "networkpolicies", "-A", "-o", "json"]).await.unwrap();
        let traffic = world.traffic();
        let answers = cyclonus::allowed(folder.path(), &policies, &traffic).unwrap();
        let wrong: Vec<String> = traffic
            .iter()
            .zip(&answers)
            .filter(|(traffic, answer)| world.allows(traffic) != **answer)
            .map(|(traffic, answer)| format!("allowed: {answer}, {traffic:?}"))
            .collect();
        assert!(
            wrong.is_empty(),
            "{} of {}: {}",
            wrong.len(),
            traffic.len(),
            wrong[..wrong.len().min(5)].join("\n")
        );
        let allowed = answers.iter().filter(|answer| **answer).count();
        println!(
            "round {round}: {} connections, {allowed} allowed, {} policies of people",
            traffic.len(),
            world.written.len()
        );
        assert!(traffic.len() > 5_000 && allowed > 500 && traffic.len() - allowed > 500);
        assert!(
            world.isolated().len() >= 4 && world.isolated().len() + OTHERS.len() < world.namespaces().len()
        );
        // Policies of people are as they were, and Croft's are the only others.
        assert_eq!(by_hand(&admin).await, written);
        world.redraw(&mut random);
    }
    life::lives(&plane, &admin).await;
    croft.check().unwrap();
}
