//! The network between the controller and the API server, and between it and EC2, is cut, blocked and delayed.

use croft_simkit::Random;
use croft_tests::{
    chaos::{Arena, Fault, first_seed, millis, runs},
    proxy::Way,
};

#[tokio::test]
async fn network_faults_lose_nothing() {
    let mut arena = Arena::start(true).await.unwrap();
    arena.open().await.unwrap();
    let first = first_seed(200);
    for seed in first..first + runs(7) {
        let mut random = Random::new(seed ^ 0xff);
        let slow = Way::Slow(millis(&mut random, 20, 300));
        let lasting = millis(&mut random, 300, 4_000);
        let fault = match seed % 7 {
            0 => Fault::ApiServer(Way::Cut, lasting),
            1 => Fault::Cloud(Way::Cut, lasting),
            2 => Fault::ApiServer(Way::Held, lasting),
            3 => Fault::Cloud(Way::Held, lasting),
            4 => Fault::ApiServer(slow, lasting),
            5 => Fault::Cloud(slow, lasting),
            // Longer than a leader may act without renewing its Lease.
            _ => Fault::ApiServer(Way::Held, millis(&mut random, 8_000, 9_000)),
        };
        arena.run(seed, &[fault]).await.unwrap();
    }
}
