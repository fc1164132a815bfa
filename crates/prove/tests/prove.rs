//! The search finds no way in: the small scopes with every `make test`, the large ones with `make prove`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use croft_prove::{
    declared::{NamespaceKind, PoolKind},
    model::{Scope, Search},
    pods::Alphabet,
    policies::Policies,
    report::{self, Report},
    scopes,
};

/// Searches `scopes`, prints what was found, and fails if that is a way in.
fn search(scopes: Vec<Scope>) {
    let reports = Report::search_all(scopes, |report| println!("{}", report.line()));
    let found: Vec<&String> = reports.iter().flat_map(|report| &report.counterexamples).collect();
    for counterexample in &found {
        println!("{counterexample}");
    }
    let states: usize = reports.iter().map(|report| report.states).sum();
    println!("{states} states, {} counterexamples", found.len());
    assert!(reports.iter().any(|report| report.binds), "no pod is ever bound, so the search says nothing");
    assert!(found.is_empty(), "{} counterexamples", found.len());
}

#[test]
fn small_alphabet_finds_no_way_into_a_settled_cluster() {
    search(scopes::settled(&Alphabet::small(), 1));
}

/// Pods of no tenant alone, with no pool shared and with another one: `make prove` has the other namespaces.
#[test]
fn tiny_alphabet_finds_no_way_in_while_one_object_is_edited() {
    let mut scopes = scopes::edited(&Alphabet::tiny(), 1, 0);
    scopes.retain(|scope| matches!(scope.namespace, NamespaceKind::None | NamespaceKind::SharedOther));
    search(scopes);
}

/// Creates pods during every write of each scope. Returns the number of ways in.
fn ways_between(scopes: Vec<Scope>, policies: fn() -> Policies) -> usize {
    let ways = report::each(scopes, |scope| {
        let name = scope.name.clone();
        let between = Search::with(scope, policies()).between();
        let ways = between.ways.len();
        println!("{name}: {} writes, {} requests, {ways} ways in", between.writes, between.requests);
        for way in between.ways.iter().take(3) {
            println!(
                "{}\n  sent {}\n  stored {}\n  may run on {}",
                way.write, way.sent, way.stored, way.node
            );
        }
        assert!(between.requests > 0, "{name} says nothing");
        ways
    });
    ways.into_iter().sum()
}

/// A first tenant and its pool come, in these modes; true is Policy mode.
fn first_tenant_in(modes: &[bool]) -> Vec<Scope> {
    let mut scopes = scopes::first_tenant(&Alphabet::tiny());
    scopes.retain(|scope| scope.pool == PoolKind::CroftOwnKey && scope.namespace == NamespaceKind::Owner);
    for scope in &mut scopes {
        scope.initial.retain(|declared| modes.contains(&declared.policy_mode));
    }
    scopes
}

#[test]
fn no_pod_passes_between_two_looks_of_its_checks() {
    assert_eq!(ways_between(first_tenant_in(&[false, true]), Policies::installed), 0);
}

#[test]
fn pods_would_pass_between_two_looks_of_a_policy_for_each_rule() {
    let ways = ways_between(first_tenant_in(&[true]), || Policies::installed().apart());
    assert!(ways > 0, "the search can't find what it looks for");
}

#[test]
#[ignore = "minutes: `make prove`"]
fn no_pod_of_any_namespace_passes_between_two_looks_of_its_checks() {
    let mut scopes = scopes::first_tenant(&Alphabet::tiny());
    scopes.extend(scopes::edited(&Alphabet::tiny(), 1, 0));
    scopes.retain(|scope| scope.pool == PoolKind::CroftOwnKey);
    assert_eq!(ways_between(scopes, Policies::installed), 0);
}

#[test]
#[ignore = "minutes: `make prove`"]
fn full_alphabet_finds_no_way_into_a_settled_cluster() {
    search(scopes::settled(&Alphabet::full(), 1));
}

#[test]
#[ignore = "minutes: `make prove`"]
fn two_updates_of_a_pod_find_no_way_into_a_settled_cluster() {
    search(scopes::settled(&Alphabet::small(), 2));
}

#[test]
#[ignore = "minutes: `make prove`"]
fn small_alphabet_finds_no_way_in_while_one_object_is_edited_and_the_pod_updated() {
    search(scopes::edited(&Alphabet::small(), 1, 1));
}

#[test]
#[ignore = "minutes: `make prove`"]
fn tiny_alphabet_finds_no_way_in_while_two_objects_are_edited() {
    search(scopes::edited(&Alphabet::tiny(), 2, 0));
}
