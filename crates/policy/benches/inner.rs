//! The inner loops of admission: `cargo bench -p croft-policy --bench inner`.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark ends when its input is wrong"
)]

use croft_policy::{
    Config, Index, Phase, Tenants, evaluate,
    model::{Namespace, Pool, Provisioner, Tenant},
    review,
    taint::Effects,
};
use divan::{Bencher, black_box};

const REVIEW: &[u8] = include_bytes!("../../../tests/corpus/reviews/pods-create-tenant-a-1.json");

fn main() {
    divan::main();
}

/// So many tenants with ten namespaces each; the review's namespace is one of the first's.
fn tenants(count: usize) -> Tenants {
    let mut index = Index::new();
    index.set_config(Config::default());
    for number in 0..count {
        let pool = format!("pool-{number}");
        index.upsert_pool(Pool {
            name: pool.clone(),
            created: None,
            key: "node-pool".to_owned(),
            value: pool.clone(),
            effects: Effects::NONE,
            shared_with: Vec::new(),
            provisioner: Provisioner::None,
            template: croft_policy::NodeTemplate::default(),
            tenants: croft_policy::PoolTenants::default(),
        });
        let first = if number == 0 { "tenant-a".to_owned() } else { format!("ns-{number}-0") };
        let namespaces: Vec<_> =
            std::iter::once(first).chain((1..10).map(|n| format!("ns-{number}-{n}"))).collect();
        for name in &namespaces {
            index.upsert_namespace(&Namespace { name: name.clone(), ..Namespace::default() });
        }
        index.upsert_tenant(Tenant {
            name: format!("t{number}"),
            namespaces,
            pools: vec![pool],
            ..Tenant::default()
        });
    }
    index.snapshot()
}

/// Parsing a captured review.
#[divan::bench]
fn parse() -> usize {
    review::parse(black_box(REVIEW)).unwrap().uid.len()
}

/// Parsing and evaluating it.
#[divan::bench(args = [2, 1_000])]
fn parse_and_evaluate(bencher: Bencher<'_, '_>, count: usize) {
    let tenants = tenants(count);
    bencher.bench(|| {
        let request = review::parse(black_box(REVIEW)).unwrap();
        evaluate(&tenants, &request, Phase::Mutate).patch.into_json()
    });
}
