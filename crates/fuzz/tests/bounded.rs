//! Every target over its kept corpus and a fixed number of inputs bred from it: the same ones in every run.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::HashSet;

use croft_fuzz::{Target, inputs, mutate::mutated, targets};
use croft_simkit::Random;

const INPUTS: u64 = 3_000;

fn try_target(name: &str) {
    let (_, target) = targets::ALL.iter().find(|(found, _)| *found == name).expect("a target");
    let seeds = inputs(name).expect("a kept corpus");
    assert!(!seeds.is_empty(), "the kept corpus is empty");
    match try_inputs(*target, &seeds, 7) {
        Ok(new) => assert!(new > 0, "mutation found nothing new: it doesn't reach the target"),
        Err((input, what)) => panic!("{what}\n{}", String::from_utf8_lossy(&input)),
    }
}

/// Tries the seeds, and then mutations of every input whose signature was new. Returns how many mutations had a new one, or the
/// first input that contradicts itself.
fn try_inputs(target: Target, seeds: &[Vec<u8>], seed: u64) -> Result<usize, (Vec<u8>, String)> {
    let mut random = Random::new(seed);
    let (mut signatures, mut pool, mut new) = (HashSet::new(), Vec::<Vec<u8>>::new(), 0);
    for tried in 0..INPUTS {
        let given = seeds.get(usize::try_from(tried).unwrap());
        let input = given.cloned().unwrap_or_else(|| {
            let base = random.pick(&pool).cloned().unwrap_or_default();
            mutated(&base, &pool, &mut random)
        });
        let signature = match target(&input) {
            Ok(signature) => signature,
            Err(what) => return Err((input, what)),
        };
        if signatures.insert(signature) {
            new += usize::from(given.is_none());
            pool.push(input);
        }
    }
    Ok(new)
}

#[test]
fn reviews() {
    try_target("review");
}

#[test]
fn patches() {
    try_target("patch");
}

#[test]
fn selectors() {
    try_target("selector");
}

#[test]
fn clusters() {
    try_target("solve");
}

#[test]
fn quantities() {
    try_target("quantity");
}

#[test]
fn a_target_that_contradicts_itself_is_found() {
    let brace = |input: &[u8]| match input.contains(&b'{') {
        true => Err("a brace".to_owned()),
        false => Ok(String::new()),
    };
    assert_eq!(try_inputs(brace, &[b"x".to_vec()], 1).unwrap_err().1, "a brace");
}
