//! Applying the manifests again and restarting the API server, under a stream of attacks: the short form of `make
//! day2`.

use croft_tests::day2::{Case, Day2};

#[tokio::test]
async fn reapply_and_restart_admit_no_attack_and_change_nothing() {
    let mut day = Day2::start().await.unwrap();
    for case in Case::SHORT {
        let tally = day.run(case).await.unwrap();
        assert!(tally.is_clean(), "{case:?}: {:?}", tally.breaches);
        assert_eq!(day.differences().await.unwrap(), Vec::<String>::new(), "{case:?}");
    }
}
