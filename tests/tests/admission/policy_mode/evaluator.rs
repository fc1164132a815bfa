//! The evaluator of `croft-prove` gives the API server's answers to pods, so that what its search finds, or doesn't find, holds
//! there.

use std::collections::BTreeMap;

use croft_prove::{
    policies::{Policies, Request, Surroundings},
    world::OWN_NAMESPACE,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::{
    SEED,
    answers::{Asked, Reference, Wanted, compare_all, compare_random},
    captured, random, updates,
};

/// The policies that are installed, with the namespaces that they read.
struct Evaluator {
    policies: Policies,
    surroundings: BTreeMap<String, Surroundings>,
}

impl Evaluator {
    async fn of(admin: &Client) -> Self {
        let listed = Api::<Namespace>::all(admin.clone()).list(&Default::default()).await.unwrap();
        let namespaces: BTreeMap<String, Value> =
            listed.items.iter().map(|namespace| (namespace.name_any(), json!(namespace))).collect();
        let own = &namespaces[OWN_NAMESPACE];
        let surroundings = namespaces.iter().map(|(name, namespace)| {
            let of = Surroundings::new(namespace.clone(), own);
            (name.clone(), of)
        });
        Self { policies: Policies::installed(), surroundings: surroundings.collect() }
    }

    fn answer(&self, asked: Asked<'_>) -> Result<Wanted, String> {
        let Asked { namespace, old, object, .. } = asked;
        let request = Request { object, old, surroundings: &self.surroundings[namespace] };
        let mutated = self.policies.mutate(&request).ok_or("a mutating policy fails")?;
        let mutated_request = Request { object: &mutated, ..request };
        match self.policies.refusal(&mutated_request) {
            Some(policy) => Err(policy.to_owned()),
            None => Ok(Wanted { patched: mutated != *object, object: mutated, warnings: Vec::new() }),
        }
    }
}

/// Compares `count` random pods, the fixtures that are pods, and updates of pods.
pub(crate) async fn answers_as_the_api_server(admin: &Client, count: usize) {
    let evaluator = Evaluator::of(admin).await;
    let reference: Reference<'_> = &|asked| evaluator.answer(asked);
    let is_pod = |(_, object): &(String, Value)| object["kind"] == "Pod";
    let fixtures = captured::fixtures().into_iter().filter(is_pod).collect();
    let fixtures = compare_all(admin, reference, fixtures).await.check("fixtures by the evaluator");
    let random = compare_random(admin, reference, random::pod_creation, count, SEED + 4).await;
    let random = random.check("random pods by the evaluator");
    let updates = updates::pods(admin, reference, "evaluated").await.check("updates by the evaluator");
    println!(
        "evaluator of croft-prove: compared {} fixtures, {} random pods, {} updates",
        fixtures.compared, random.compared, updates.compared
    );
}
