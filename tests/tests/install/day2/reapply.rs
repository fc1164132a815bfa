//! Installations that are applied again or upgraded, under a stream of attacks.

use croft_tests::day2::{Case, Day2};

/// Applying the manifests again and restarting the API server, under a stream of attacks: the short form of `make
/// day2`.
#[tokio::test]
async fn reapply_and_restart_admit_no_attack_and_change_nothing() {
    let mut day = Day2::start().await.unwrap();
    for case in Case::SHORT {
        let tally = day.run(case).await.unwrap();
        assert!(tally.is_clean(), "{case:?}: {:?}", tally.breaches);
        assert_eq!(day.differences().await.unwrap(), Vec::<String>::new(), "{case:?}");
    }
}

/// `helm upgrade` from the previous commit's charts and `helm rollback`, in another namespace than the manifests', under a
/// stream of attacks. Server-side dry run of what the charts render then changes nothing, which is what Argo CD and Flux
/// look at.
#[tokio::test]
async fn helm_upgrade_and_rollback_admit_no_attack_and_change_nothing() {
    let mut day = Day2::start_by_helm().await.unwrap();
    for case in Case::HELM {
        let tally = day.run(case).await.unwrap();
        assert!(tally.is_clean(), "{case:?}: {:?}", tally.breaches);
    }
    assert_eq!(day.differences().await.unwrap(), Vec::<String>::new());
}
