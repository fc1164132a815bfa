//! etcd, the API server, the scheduler and the controller manager are killed and restarted.

use croft_simkit::Random;
use croft_testkit::{Component, Part};
use croft_tests::chaos::{Arena, Fault, first_seed, millis, runs};

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
