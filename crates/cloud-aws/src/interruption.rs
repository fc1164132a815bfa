//! The interruption queue: EventBridge's messages about instances that are about to be interrupted.
//!
//! Sources: the EC2 user guide, "Spot Instance interruption notices", "EC2 instance rebalance
//! recommendations", "Instance state-change events"; the AWS Health user guide, "Amazon EC2 scheduled events".

use aws_sdk_sqs::types::DeleteMessageBatchRequestEntry;
use croft_cloud::{Fault, FaultClass, Interruption, InterruptionKind};
use serde::Deserialize;

use crate::{connect::Clients, pace::Paces};

/// Time that a receive waits for a message.
const WAIT_SECONDS: i32 = 20;
/// Time from a spot warning to the interruption.
const SPOT_NOTICE_SECONDS: i64 = 120;
/// A spot instance that still runs this long after the announced interruption was spared, or the message concerns
/// another instance.
const SPOT_OVER_SECONDS: i64 = 600;
/// A scheduled change without an end is over or cancelled this long after its start.
const CHANGE_OVER_SECONDS: i64 = 24 * 3600;

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    source: String,
    #[serde(default, rename = "detail-type")]
    detail_type: String,
    #[serde(default)]
    time: String,
    #[serde(default)]
    detail: Detail,
}

#[derive(Default, Deserialize)]
struct Detail {
    #[serde(default, rename = "instance-id")]
    instance_id: String,
    #[serde(default)]
    state: String,
    #[serde(default)]
    service: String,
    #[serde(default, rename = "eventTypeCategory")]
    category: String,
    #[serde(default, rename = "startTime")]
    start_time: String,
    #[serde(default, rename = "endTime")]
    end_time: String,
    #[serde(default, rename = "statusCode")]
    status: String,
    #[serde(default, rename = "affectedEntities")]
    affected: Vec<Entity>,
}

#[derive(Deserialize)]
struct Entity {
    #[serde(default, rename = "entityValue")]
    value: String,
}

/// Parses a message. An unknown one concerns no instance, so that it is acknowledged and doesn't return for ever.
pub(crate) fn read(body: &str, receipt: &str) -> Interruption {
    let nothing = Interruption {
        kind: InterruptionKind::Other,
        instances: Vec::new(),
        at: 0,
        deadline: None,
        over_at: None,
        receipt: receipt.to_owned(),
    };
    let Ok(event) = serde_json::from_str::<Event>(body) else { return nothing };
    let at = event.time.parse::<aws_smithy_date::Seconds>().map_or(0, |seconds| seconds.0);
    let detail = event.detail;
    let deadline = match event.detail_type.as_str() {
        // The warning has no time: spot instances are interrupted two minutes after it.
        "EC2 Spot Instance Interruption Warning" if at > 0 => Some(at + SPOT_NOTICE_SECONDS),
        "AWS Health Event" => health_time(&detail.start_time),
        _ => None,
    };
    let over_at = match event.detail_type.as_str() {
        "EC2 Spot Instance Interruption Warning" => deadline.map(|at| at + SPOT_OVER_SECONDS),
        "AWS Health Event" => {
            health_time(&detail.end_time).or_else(|| deadline.map(|at| at + CHANGE_OVER_SECONDS))
        }
        _ => None,
    };
    let of = |kind, instances: Vec<String>| {
        let instances: Vec<String> = instances.into_iter().filter(|id| id.starts_with("i-")).collect();
        let kind = if instances.is_empty() { InterruptionKind::Other } else { kind };
        Interruption { kind, instances, at, deadline, over_at, receipt: receipt.to_owned() }
    };
    match (event.source.as_str(), event.detail_type.as_str()) {
        ("aws.ec2", "EC2 Spot Instance Interruption Warning") => {
            of(InterruptionKind::SpotWarning, vec![detail.instance_id])
        }
        ("aws.ec2", "EC2 Instance Rebalance Recommendation") => {
            of(InterruptionKind::Rebalance, vec![detail.instance_id])
        }
        ("aws.ec2", "EC2 Instance State-change Notification") => match detail.state.as_str() {
            "stopping" | "stopped" | "shutting-down" | "terminated" => {
                of(InterruptionKind::StateChange, vec![detail.instance_id])
            }
            _ => of(InterruptionKind::Other, Vec::new()),
        },
        ("aws.health", "AWS Health Event")
            if detail.service == "EC2"
                && detail.category == "scheduledChange"
                && detail.status != "closed" =>
        {
            of(InterruptionKind::ScheduledChange, detail.affected.into_iter().map(|e| e.value).collect())
        }
        _ => nothing,
    }
}

/// Waits for messages.
pub(crate) async fn receive(clients: &Clients, paces: &Paces, url: &str) -> Result<Vec<Interruption>, Fault> {
    let answer = clients
        .sqs
        .receive_message()
        .queue_url(url)
        .max_number_of_messages(10)
        .wait_time_seconds(WAIT_SECONDS)
        .visibility_timeout(30)
        .send()
        .await;
    let answer = paces.read.record("ReceiveMessage", answer)?;
    Ok(answer
        .messages()
        .iter()
        .map(|m| read(m.body().unwrap_or_default(), m.receipt_handle().unwrap_or_default()))
        .collect())
}

/// Deletes handled messages from the queue.
pub(crate) async fn acknowledge(
    clients: &Clients,
    paces: &Paces,
    url: &str,
    news: &[Interruption],
) -> Result<(), Fault> {
    for some in news.chunks(10) {
        let mut request = clients.sqs.delete_message_batch().queue_url(url);
        for (index, one) in some.iter().enumerate() {
            // Both required parts are set, so building can't fail.
            if let Ok(entry) = DeleteMessageBatchRequestEntry::builder()
                .id(index.to_string())
                .receipt_handle(&one.receipt)
                .build()
            {
                request = request.entries(entry);
            }
        }
        paces.write.turn().await;
        match paces.write.record("DeleteMessageBatch", request.send().await) {
            Ok(_) => {}
            Err(fault) if fault.class == FaultClass::Invalid => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}

/// The queue's URL.
pub(crate) async fn queue_url(clients: &Clients, paces: &Paces, name: &str) -> Result<String, Fault> {
    paces.read.turn().await;
    let answer = clients.sqs.get_queue_url().queue_name(name).send().await;
    let answer = paces.read.record("GetQueueUrl", answer)?;
    Ok(answer.queue_url().unwrap_or_default().to_owned())
}

/// AWS Health writes times as in mail: `Sun, 05 Jul 2026 10:00:00 GMT`.
fn health_time(text: &str) -> Option<i64> {
    use aws_smithy_types::{DateTime, date_time::Format};
    let read = |format| DateTime::from_str(text, format).ok();
    read(Format::HttpDate).or_else(|| read(Format::DateTime)).map(|at| at.secs())
}

/// Times of events.
mod aws_smithy_date {
    use aws_smithy_types::{DateTime, date_time::Format};

    /// Seconds since 1970.
    pub(super) struct Seconds(pub(super) i64);

    impl std::str::FromStr for Seconds {
        type Err = ();
        fn from_str(text: &str) -> Result<Self, ()> {
            DateTime::from_str(text, Format::DateTime).map(|at| Self(at.secs())).map_err(|_| ())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_and_instances(body: &str) -> (InterruptionKind, Vec<String>) {
        let news = read(body, "r");
        (news.kind, news.instances)
    }

    #[test]
    fn eventbridge_messages_are_parsed() {
        for (body, kind, instances) in [
            (
                r#"{"version": "0", "source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning", "time": "2026-07-01T00:00:00Z",
                  "detail": {"instance-id": "i-1", "instance-action": "terminate"}}"#,
                InterruptionKind::SpotWarning,
                vec!["i-1"],
            ),
            (
                r#"{"source": "aws.ec2", "detail-type": "EC2 Instance Rebalance Recommendation", "detail": {"instance-id": "i-1"}}"#,
                InterruptionKind::Rebalance,
                vec!["i-1"],
            ),
            (
                r#"{"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification", "detail": {"instance-id": "i-1", "state": "stopping"}}"#,
                InterruptionKind::StateChange,
                vec!["i-1"],
            ),
            (
                r#"{"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification", "detail": {"instance-id": "i-1", "state": "running"}}"#,
                InterruptionKind::Other,
                vec![],
            ),
            (
                r#"{"source": "aws.health", "detail-type": "AWS Health Event", "detail": {"service": "EC2", "eventTypeCategory": "scheduledChange",
                  "affectedEntities": [{"entityValue": "i-1"}, {"entityValue": "i-2"}]}}"#,
                InterruptionKind::ScheduledChange,
                vec!["i-1", "i-2"],
            ),
            (
                r#"{"source": "aws.health", "detail-type": "AWS Health Event", "detail": {"service": "RDS", "eventTypeCategory": "scheduledChange",
                  "affectedEntities": [{"entityValue": "db"}]}}"#,
                InterruptionKind::Other,
                vec![],
            ),
            // Done, or cancelled.
            (
                r#"{"source": "aws.health", "detail-type": "AWS Health Event", "detail": {"service": "EC2", "eventTypeCategory": "scheduledChange",
                  "statusCode": "closed", "affectedEntities": [{"entityValue": "i-1"}]}}"#,
                InterruptionKind::Other,
                vec![],
            ),
            ("not json", InterruptionKind::Other, vec![]),
            ("[]", InterruptionKind::Other, vec![]),
        ] {
            let instances: Vec<String> = instances.into_iter().map(str::to_owned).collect();
            assert_eq!(kind_and_instances(body), (kind, instances), "{body}");
        }
        let at = read(r#"{"source": "aws.ec2", "time": "1970-01-01T00:01:00Z", "detail-type": "EC2 Instance Rebalance Recommendation", "detail": {"instance-id": "i-1"}}"#, "r").at;
        assert_eq!(at, 60);
    }

    #[test]
    fn notice_has_the_time_of_the_interruption() {
        let deadline = |body: &str| read(body, "r").deadline;
        let spot = r#"{"source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning", "time": "1970-01-01T00:01:00Z", "detail": {"instance-id": "i-1"}}"#;
        assert_eq!(deadline(spot), Some(180));
        let health = |start: &str| {
            format!(
                r#"{{"source": "aws.health", "detail-type": "AWS Health Event", "time": "1970-01-01T00:01:00Z",
                "detail": {{"service": "EC2", "eventTypeCategory": "scheduledChange", "startTime": "{start}",
                "affectedEntities": [{{"entityValue": "i-1"}}]}}}}"#
            )
        };
        assert_eq!(deadline(&health("Fri, 02 Jan 1970 00:00:00 GMT")), Some(86_400));
        assert_eq!(deadline(&health("1970-01-02T00:00:00Z")), Some(86_400));
        assert_eq!(deadline(&health("soon")), None);
        let over = |body: &str| read(body, "r").over_at;
        assert_eq!(over(spot), Some(780));
        assert_eq!(over(&health("1970-01-02T00:00:00Z")), Some(2 * 86_400));
        let ends = health("1970-01-02T00:00:00Z\", \"endTime\": \"1970-01-02T01:00:00Z");
        assert_eq!(over(&ends), Some(90_000));
        let rebalance = r#"{"source": "aws.ec2", "detail-type": "EC2 Instance Rebalance Recommendation", "time": "1970-01-01T00:01:00Z", "detail": {"instance-id": "i-1"}}"#;
        assert_eq!(deadline(rebalance), None);
    }
}
