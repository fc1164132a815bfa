//! Many claims at once: merged calls, hardware that only some claims request, unavailable offerings.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_cloud::{CloudProvider, LaunchError, LaunchRequest, facts::EFA, unavailable::FIRST_PAUSE};
use croft_scheduler::CapacityType::OnDemand;
use futures::future::join_all;

use crate::bed::{Ahead, Bed, class, request, spec};

fn claim(number: usize) -> LaunchRequest {
    LaunchRequest { claim_uid: format!("claim-uid-{number}"), ..request(&["m5.large"], OnDemand) }
}

#[tokio::test]
async fn many_instances_are_found_tagged_and_terminated_by_one_call() {
    let bed = Bed::new().await;
    let requests: Vec<LaunchRequest> = (0..30).map(claim).collect();
    let ids: Vec<String> = join_all(requests.iter().map(|r| bed.launch(r)))
        .await
        .into_iter()
        .map(|l| l.unwrap().instance.id)
        .collect();
    assert_eq!(bed.calls("ec2:CreateFleet"), 30, "a token and tags belong to one claim");

    let before = bed.calls("ec2:DescribeInstances");
    let found = join_all(requests.iter().map(|r| bed.provider.find_by_claim(&r.claim_uid))).await;
    let found: Vec<String> = found.into_iter().map(|f| f.unwrap().unwrap().instance.id).collect();
    assert_eq!(found, ids, "each its own");
    assert_eq!(bed.calls("ec2:DescribeInstances"), before + 1);

    let tags = BTreeMap::from([("shared".to_owned(), "1".to_owned())]);
    join_all(ids.iter().map(|id| bed.provider.tag(id, &tags))).await.into_iter().for_each(|t| t.unwrap());
    assert_eq!(bed.calls("ec2:CreateTags"), 1);
    assert!(bed.provider.list().await.unwrap().iter().all(|m| m.tags["shared"] == "1"));

    let ended = join_all(ids.iter().map(|id| bed.provider.terminate(std::slice::from_ref(id)))).await;
    assert!(ended.into_iter().zip(&ids).all(|(ended, id)| ended.unwrap()[0].id == *id));
    assert_eq!(bed.calls("ec2:TerminateInstances"), 1);
}

#[tokio::test]
async fn foreign_instance_does_not_fail_the_others_of_its_call() {
    let bed = Bed::new().await;
    let mut options = crate::bed::options(&bed.url);
    options.cluster_uid = "another".to_owned();
    let other = croft_cloud_aws::AwsProvider::connect(options).await;
    let prepared = other.prepare(&claim(99)).await.unwrap();
    let foreign = other.launch(&prepared).await.unwrap().instance.id;
    let requests: Vec<LaunchRequest> = (0..7).map(claim).collect();
    let launched = join_all(requests.iter().map(|r| bed.launch(r))).await;
    let mut ids: Vec<String> = launched.into_iter().map(|l| l.unwrap().instance.id).collect();
    bed.control(
        r#"{"do": "restrict", "key": "*", "policy": {"Statement": [
            {"Effect": "Allow", "Action": "*", "Resource": "*"},
            {"Effect": "Deny", "Action": "ec2:TerminateInstances", "Resource": "*",
             "Condition": {"StringEquals": {"aws:ResourceTag/croft.dev/cluster": "another"}}}]}}"#,
    );
    ids.insert(3, foreign.clone());
    ids.push("i-00000000000000000".to_owned());
    let outcomes = join_all(ids.iter().map(|id| bed.provider.terminate(std::slice::from_ref(id)))).await;
    for (id, outcome) in ids.iter().zip(outcomes) {
        assert_eq!(outcome.is_err(), *id == foreign, "{id}: {outcome:?}");
    }
    assert!(bed.world(|world| world.instance(&foreign).unwrap().state.is_alive()));
    let calls = bed.calls("ec2:TerminateInstances");
    assert!((2..=15).contains(&calls), "halves, not ones: {calls}");
}

#[tokio::test]
async fn launch_that_requests_efa_gets_all_adapters_of_the_type() {
    let bed = Bed::new().await;
    let types = bed.provider.instance_types(&class(spec())).await.unwrap();
    let p4d = types.iter().find(|t| t.name == "p4d.24xlarge").unwrap();
    assert_eq!(p4d.capacity.get(EFA), 4);
    let plain = bed.launch(&request(&["p4d.24xlarge"], OnDemand)).await.unwrap();
    assert_eq!(plain.capacity.get(EFA), 0, "not requested");
    assert!(plain.capacity.iter().all(|(name, _)| name != EFA), "so registration doesn't wait for them");

    let mut with = claim(2);
    with.instance_types = vec!["m5.large".to_owned(), "p4d.24xlarge".to_owned()];
    with.requests.set(EFA, 2);
    let launched = bed.launch(&with).await.unwrap();
    assert_eq!(launched.instance.instance_type, "p4d.24xlarge", "the cheaper one has none");
    assert_eq!((launched.capacity.get(EFA), launched.allocatable.get(EFA)), (4, 4));
    assert_eq!(bed.world(|world| world.instance(&launched.instance.id).unwrap().data.efas), 4);
    let found = bed.provider.find_by_claim("claim-uid-2").await.unwrap().unwrap();
    assert_eq!(found.capacity.get(EFA), 4, "also after a lost answer");

    let mut none = claim(3);
    none.requests.set(EFA, 1);
    let error = bed.launch(&none).await.unwrap_err();
    assert!(error.to_string().contains("fewer than 1 network adapters"), "{error}");

    with.attempt = 2;
    let mut public = spec();
    public.associate_public_ip_address = Some(true);
    with.class = Arc::new(class(public));
    let before = bed.calls("ec2:CreateLaunchTemplate");
    let error = bed.launch(&with).await.unwrap_err();
    assert!(matches!(&error, LaunchError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("remove spec.associatePublicIPAddress"), "{error}");
    assert_eq!(bed.calls("ec2:CreateLaunchTemplate"), before, "known without asking");
}

#[tokio::test]
async fn unavailable_offering_is_probed_by_one_launch_at_a_time() {
    let bed = Bed::new().await;
    let clock = Arc::new(Ahead::default());
    let provider = bed.on(Arc::clone(&clock)).await;
    let launch = async |number: usize| {
        let mut request = claim(number);
        request.zones = vec!["us-east-1a".to_owned()];
        let prepared = provider.prepare(&request).await?;
        provider.launch(&prepared).await
    };
    let next_tries = || provider.shortages().iter().map(|s| (s.strikes, s.next_try)).collect::<Vec<_>>();
    bed.control(r#"{"do": "capacity", "rules": [{"instanceType": "m5.large", "count": 0}]}"#);
    launch(1).await.unwrap_err();
    assert_eq!(bed.calls("ec2:CreateFleet"), 1);
    let error = launch(2).await.unwrap_err();
    assert!(error.to_string().contains("set aside"), "{error}");
    assert_eq!(bed.calls("ec2:CreateFleet"), 1, "it isn't asked while the pause lasts");

    clock.move_on(FIRST_PAUSE);
    assert!(provider.shortages().is_empty(), "may be asked again");
    let mut request = claim(3);
    request.zones = vec!["us-east-1a".to_owned()];
    let probe = provider.prepare(&request).await.unwrap();
    assert_eq!(next_tries(), [(1, Duration::ZERO)], "one launch probes");
    launch(4).await.unwrap_err();
    assert_eq!(bed.calls("ec2:CreateFleet"), 1, "the others stay away");
    provider.launch(&probe).await.unwrap_err();
    let (strikes, pause) = next_tries()[0];
    assert!(strikes == 2 && pause > FIRST_PAUSE, "twice as long: {pause:?}");

    clock.move_on(FIRST_PAUSE * 2);
    bed.control(r#"{"do": "capacity", "rules": []}"#);
    launch(5).await.unwrap();
    assert!(provider.shortages().is_empty());
    let both = join_all([launch(6), launch(7)]).await;
    assert!(both.iter().all(Result::is_ok), "in use again, for all");
}
