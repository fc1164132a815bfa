//! The search finds no way in: the small scopes with every `make test`, the large ones with `make prove`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::time::Instant;

use croft_prove::{
    declared::NamespaceKind,
    model::{Scope, Search},
    pods::Alphabet,
    report::Report,
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

/// Creates pods of `alphabet` during every write that follows an edit.
fn between(alphabet: &Alphabet, namespaces: &[NamespaceKind]) {
    let mut scopes = scopes::edited(alphabet, 1, 0);
    scopes.extend(scopes::first_tenant(alphabet));
    scopes.retain(|scope| namespaces.contains(&scope.namespace));
    let (mut requests, mut ways) = (0, 0);
    for scope in scopes {
        let name = scope.name.clone();
        let begun = Instant::now();
        let between = Search::new(scope).between();
        println!(
            "{name}: {} writes, {} requests, {} ways in, {:?}",
            between.writes,
            between.requests,
            between.ways.len(),
            begun.elapsed()
        );
        for way in between.ways.iter().take(3) {
            println!(
                "{}\n  sent {}\n  stored {}\n  may run on {}",
                way.write, way.sent, way.stored, way.node
            );
        }
        requests += between.requests;
        ways += between.ways.len();
    }
    println!("{requests} requests, {ways} ways in");
    assert!(requests > 0 && ways == 0, "{ways} ways in");
}

#[test]
fn no_pod_passes_between_two_looks_of_its_checks() {
    between(&Alphabet::tiny(), &[NamespaceKind::Owner]);
}

#[test]
#[ignore = "minutes: `make prove`"]
fn no_pod_of_any_namespace_passes_between_two_looks_of_its_checks() {
    between(&Alphabet::tiny(), &scopes::ATTACKERS);
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
