//! Processes of Croft and its cloud are killed at random times: nothing is lost or launched twice.

use croft_simkit::Random;
use croft_testkit::Part;
use croft_tests::chaos::{Arena, Fault, first_seed, millis, runs};

#[tokio::test]
async fn killed_processes_lose_nothing() {
    let mut arena = Arena::start(true).await.unwrap();
    arena.open().await.unwrap();
    let first = first_seed(100);
    for seed in first..first + runs(9) {
        let mut random = Random::new(seed ^ 0xff);
        let part = Part::ALL[(seed % 3) as usize];
        let mut faults = vec![Fault::Kill(part, millis(&mut random, 0, 1_500))];
        // Every other run has a second fault shortly after the first.
        if seed % 2 == 0 {
            let other = Part::ALL[((seed + 1) % 3) as usize];
            faults.push(Fault::Kill(other, millis(&mut random, 0, 1_500)));
        }
        arena.run(seed, &faults).await.unwrap();
    }
    assert!(arena.monitor.looks() > 10, "the monitor has seen nothing");
}
