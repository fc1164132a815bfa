//! A target under libFuzzer: `CROFT_FUZZ_TARGET` names it.
//!
//! Half of the inputs come from libFuzzer's own mutations, which know what the target compares; the other half are JSON
//! documents that stay documents.
#![no_main]
#![allow(clippy::panic, clippy::expect_used, reason = "libFuzzer's findings are panics")]

use std::{env, sync::OnceLock};

use croft_fuzz::{Target, inputs, mutate, targets};
use croft_simkit::Random;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

/// The target, and documents to graft from.
fn chosen() -> &'static (Target, Vec<Vec<u8>>) {
    static CHOSEN: OnceLock<(Target, Vec<Vec<u8>>)> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let name = env::var("CROFT_FUZZ_TARGET").unwrap_or_default();
        let target = targets::ALL.iter().find(|(found, _)| *found == name);
        let Some((_, target)) = target else {
            panic!("set CROFT_FUZZ_TARGET to one of {:?}", targets::ALL.map(|(name, _)| name));
        };
        (*target, inputs(&name).expect("a corpus"))
    })
}

fuzz_target!(|input: &[u8]| {
    let (target, _) = chosen();
    if let Err(what) = target(input) {
        panic!("{what}");
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut random = Random::new(u64::from(seed));
    if random.index(2) == 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    let (_, pool) = chosen();
    let mutated = mutate::mutated(data.get(..size).unwrap_or_default(), pool, &mut random);
    let length = mutated.len().min(max_size);
    match (data.get_mut(..length), mutated.get(..length)) {
        (Some(place), Some(mutated)) => {
            place.copy_from_slice(mutated);
            length
        }
        _ => size,
    }
});
