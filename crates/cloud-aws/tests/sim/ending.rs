//! Terminations, interruptions and garbage collection.

use std::{collections::BTreeMap, time::Duration};

use croft_cloud::{CloudProvider, InUse, InstanceState, InterruptionKind};
use croft_ec2_sim::sqs::News;
use croft_scheduler::CapacityType::{OnDemand, Spot};

use crate::bed::{Bed, class, request, spec};

#[tokio::test]
async fn terminate_is_idempotent_and_unknown_ids_are_not_terminated() {
    let bed = Bed::new().await;
    let id = bed.launch(&request(&["m5.large"], OnDemand)).await.unwrap().instance.id;
    let ids = [id.clone(), "i-00000000000000000".to_owned()];
    let done = bed.provider.terminate(&ids).await.unwrap();
    let states: BTreeMap<&str, InstanceState> = done.iter().map(|t| (t.id.as_str(), t.state)).collect();
    assert_eq!(states[id.as_str()], InstanceState::ShuttingDown);
    assert_eq!(states["i-00000000000000000"], InstanceState::Unknown);
    bed.simulator.advance(Duration::from_secs(5));
    let again = bed.provider.terminate(&[id]).await.unwrap();
    assert_eq!(again[0].state, InstanceState::Terminated);
    assert!(bed.provider.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn instances_can_be_tagged_after_launch() {
    let bed = Bed::new().await;
    let id = bed.launch(&request(&["m5.large"], OnDemand)).await.unwrap().instance.id;
    let tags = BTreeMap::from([("Name".to_owned(), "node-1".to_owned())]);
    bed.provider.tag(&id, &tags).await.unwrap();
    assert_eq!(bed.provider.list().await.unwrap()[0].tags["Name"], "node-1");
}

#[tokio::test]
async fn instance_with_overwritten_cluster_tag_is_described_by_id_and_tagged_again() {
    let bed = Bed::new().await;
    let id = bed.launch(&request(&["m5.large"], OnDemand)).await.unwrap().instance.id;
    let foreign = BTreeMap::from([("croft.dev/cluster".to_owned(), "another".to_owned())]);
    assert!(bed.world(|world| world.tag_instance(&id, foreign)));
    assert!(bed.provider.list().await.unwrap().is_empty(), "the list is filtered by the tag");
    let ids = [id.clone(), "i-00000000000000000".to_owned()];
    let found = bed.provider.describe(&ids).await.unwrap();
    assert_eq!(found.len(), 1, "the unknown id doesn't spoil the call");
    assert_eq!(found[0].tags["croft.dev/cluster"], "another");
    bed.provider.tag(&id, &BTreeMap::new()).await.unwrap();
    assert_eq!(bed.provider.list().await.unwrap()[0].id, id);
    bed.provider.terminate(std::slice::from_ref(&id)).await.unwrap();
    bed.simulator.advance(Duration::from_secs(5));
    assert_eq!(bed.provider.describe(&[id]).await.unwrap()[0].state, InstanceState::Terminated);
}

#[tokio::test]
async fn instances_of_other_clusters_are_not_listed() {
    let bed = Bed::new().await;
    bed.launch(&request(&["m5.large"], OnDemand)).await.unwrap();
    let mut options = crate::bed::options(&bed.url);
    options.cluster_uid = "another".to_owned();
    let other = croft_cloud_aws::AwsProvider::connect(options).await;
    assert!(other.list().await.unwrap().is_empty());
    assert!(other.find_by_claim("claim-uid-1").await.unwrap().is_none());
}

#[tokio::test]
async fn interruptions_repeat_until_acknowledged() {
    let bed = Bed::new().await;
    let id = bed.launch(&request(&["m5.large"], Spot)).await.unwrap().instance.id;
    bed.world(|world| {
        world.interrupt(&id, News::Rebalance);
        world.interrupt(&id, News::SpotWarning);
        world.interrupt(&id, News::ScheduledChange);
        world.publish_text("not for us");
    });
    let news = bed.provider.interruptions().await.unwrap();
    let kinds: Vec<_> = news.iter().map(|n| (n.kind, n.instances.clone())).collect();
    let of = |kind| (kind, vec![id.clone()]);
    assert_eq!(
        kinds,
        [
            of(InterruptionKind::Rebalance),
            of(InterruptionKind::SpotWarning),
            of(InterruptionKind::ScheduledChange),
            (InterruptionKind::Other, vec![]),
        ]
    );
    bed.simulator.advance(Duration::from_secs(31));
    let again = bed.provider.interruptions().await.unwrap();
    assert_eq!(again.len(), 4, "not acknowledged, so they come again");
    bed.provider.acknowledge(&again).await.unwrap();
    assert_eq!(bed.world(|world| world.waiting_news()), 0);
    bed.simulator.advance(Duration::from_secs(120));
    assert!(!bed.provider.list().await.unwrap()[0].state.is_alive(), "two minutes after the warning it goes");
}

#[tokio::test]
async fn unused_templates_and_profiles_are_deleted() {
    let bed = Bed::new().await;
    let class = class(spec());
    let id = bed.launch(&request(&["m5.large"], OnDemand)).await.unwrap().instance.id;
    let left = |bed: &Bed| {
        let report = bed.world(|world| world.report());
        let count = |key: &str| report[key].as_array().unwrap().len();
        (count("launchTemplates"), count("instanceProfiles"))
    };
    assert_eq!(left(&bed), (1, 1));
    let fresh = bed.restarted().await;
    assert_eq!(
        fresh.sweep(&InUse::default()).await.unwrap(),
        0,
        "the instance holds its profile, and the template is young"
    );
    // Another tool overwrites the tag by which the instance is listed: it is asked for by its id.
    let overwritten = [("croft.dev/cluster".to_owned(), "another".to_owned())];
    assert!(bed.world(|world| world.tag_instance(&id, overwritten.into())));
    let instances = vec![id.clone()];
    assert_eq!(fresh.sweep(&InUse { instances, ..InUse::default() }).await.unwrap(), 0);
    bed.provider.terminate(&[id]).await.unwrap();
    bed.simulator.advance(Duration::from_secs(5));
    assert_eq!(
        fresh.sweep(&InUse { classes: vec![class], ..InUse::default() }).await.unwrap(),
        0,
        "the class names the role"
    );
    assert_eq!(fresh.sweep(&InUse::default()).await.unwrap(), 1);
    assert_eq!(left(&bed).1, 0);
}

#[tokio::test]
async fn identity_names_account_and_role() {
    let bed = Bed::new().await;
    let identity = bed.provider.identity().await.unwrap();
    assert_eq!((identity.account.as_str(), identity.region.as_str()), ("000000000000", "us-east-1"));
    assert_eq!(identity.partition, "aws");
}
