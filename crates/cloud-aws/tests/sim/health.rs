//! Status checks and scheduled changes of instances.

use std::time::Duration;

use croft_cloud::{CloudProvider, FailedCheck, InstanceHealth, ScheduledChange, StatusCheck};
use croft_ec2_sim::resources::{Check, ScheduledEvent};
use croft_scheduler::CapacityType::OnDemand;

use crate::bed::{Bed, request};

/// The health of the only instance.
async fn health(bed: &Bed) -> Option<InstanceHealth> {
    // Another provider, since this one keeps the answer for a minute.
    bed.restarted().await.list().await.unwrap().remove(0).health
}

fn event(code: &str, description: &str, not_before: u64) -> ScheduledEvent {
    ScheduledEvent { code: code.to_owned(), description: description.to_owned(), not_before }
}

#[tokio::test]
async fn a_list_shows_failed_status_checks_and_the_changes_that_lie_ahead() {
    let bed = Bed::new().await;
    let id = bed.launch(&request(&["m5.large"], OnDemand)).await.unwrap().instance.id;
    assert_eq!(health(&bed).await, None, "an instance that starts has no checks yet");
    bed.simulator.advance(Duration::from_secs(60));
    assert_eq!(health(&bed).await, Some(InstanceHealth::default()));
    let now = bed.simulator.now();
    let day = now + 86_400_000;
    bed.world(|world| {
        for (check, passes) in [(Check::System, false), (Check::Ebs, false), (Check::Instance, true)] {
            assert!(world.set_check(&id, check, passes));
        }
        let events = vec![
            event("system-reboot", "[Completed] scheduled reboot", now),
            event("instance-stop", "[Canceled] The instance is running on degraded hardware", day),
            event("instance-retirement", "The instance is running on degraded hardware", day),
        ];
        assert!(world.schedule(&id, events));
    });
    let seen = health(&bed).await.unwrap();
    let seconds = |ms: u64| i64::try_from(ms / 1000).unwrap();
    let failed = [StatusCheck::System, StatusCheck::Ebs];
    assert_eq!(seen.failed, failed.map(|check| FailedCheck { check, since: seconds(now) }));
    let retirement =
        ScheduledChange { code: "instance-retirement".to_owned(), not_before: Some(seconds(day)) };
    assert_eq!(seen.scheduled, [retirement]);
    bed.control(&format!(r#"{{"do": "check", "instance": "{id}", "check": "system", "passes": true}}"#));
    let left = health(&bed).await.unwrap().failed;
    assert!(matches!(left[..], [FailedCheck { check: StatusCheck::Ebs, .. }]), "{left:?}");
}

#[tokio::test]
async fn one_call_a_minute_asks_for_the_health_of_all_instances() {
    let bed = Bed::new().await;
    for n in 0..3 {
        let mut request = request(&["m5.large"], OnDemand);
        request.claim_uid = format!("claim-uid-{n}");
        bed.launch(&request).await.unwrap();
    }
    bed.simulator.advance(Duration::from_secs(60));
    for _ in 0..3 {
        let listed = bed.provider.list().await.unwrap();
        assert!(listed.len() == 3 && listed.iter().all(|one| one.health.is_some()), "{listed:?}");
    }
    assert_eq!(bed.calls("ec2:DescribeInstanceStatus"), 1);
}

#[tokio::test]
async fn instances_are_listed_with_unknown_health_where_it_cannot_be_read() {
    let bed = Bed::new().await;
    bed.launch(&request(&["m5.large"], OnDemand)).await.unwrap();
    bed.simulator.advance(Duration::from_secs(60));
    bed.control(
        r#"{"do": "faults", "rules": [{"action": "DescribeInstanceStatus", "error": "UnauthorizedOperation"}]}"#,
    );
    assert_eq!(health(&bed).await, None);
}
