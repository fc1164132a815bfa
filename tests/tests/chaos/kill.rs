//! Processes of Croft, of its cloud and of the control plane are killed and restarted at random times: nothing is lost or
//! launched twice.

use croft_simkit::Random;
use croft_testkit::{Component, Part};
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

#[tokio::test]
async fn control_plane_restarts_lose_nothing() {
    let mut arena = Arena::start(true).await.unwrap();
    arena.open().await.unwrap();
    let first = first_seed(300);
    for seed in first..first + runs(5) {
        let mut random = Random::new(seed ^ 0xff);
        let faults = match seed % 5 {
            0 => vec![Fault::Restart(Component::ApiServer)],
            1 => vec![Fault::Restart(Component::Etcd)],
            2 => vec![Fault::Restart(Component::Scheduler)],
            3 => vec![Fault::Restart(Component::ControllerManager), Fault::Restart(Component::ApiServer)],
            _ => vec![
                Fault::Restart(Component::Etcd),
                Fault::Kill(Part::Controller, millis(&mut random, 0, 500)),
            ],
        };
        arena.run(seed, &faults).await.unwrap();
    }
}
