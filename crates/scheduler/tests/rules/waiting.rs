//! Which pools the pods that wait concern.

use croft_scheduler::Cluster;
use serde_json::json;

use crate::build::{cluster, kinds, pod, pool};

fn waiting(cluster: &Cluster) -> [Option<u64>; 2] {
    ["a", "b"].map(|pool| cluster.waiting().for_pool(cluster, pool))
}

#[test]
fn a_pod_that_waits_concerns_the_pools_that_let_it_in() {
    let mut cluster = cluster(vec![pool("a", kinds()), pool("b", kinds())], &[]);
    let wants =
        |name: &str, to: &str| pod(name, "1", "1Gi", json!({"spec": {"nodeSelector": {"node-pool": to}}}));
    assert_eq!(waiting(&cluster), [None, None]);
    cluster.upsert_pod(&wants("p", "a")).unwrap();
    let one = waiting(&cluster);
    assert!(one[0].is_some() && one[1].is_none(), "{one:?}");
    cluster.upsert_pod(&wants("q", "a")).unwrap();
    cluster.upsert_pod(&wants("r", "b")).unwrap();
    let more = waiting(&cluster);
    assert!(more[0].is_some() && more[0] != one[0] && more[1].is_some(), "{more:?}");
    cluster.remove_pod("default", "q");
    cluster.remove_pod("default", "r");
    assert_eq!(waiting(&cluster), one);
}
