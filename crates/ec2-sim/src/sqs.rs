//! The interruption queue, and the events that EventBridge puts there.

use serde_json::{Value, json};

use crate::{
    answer::{Answer, Call, Outcome, Refusal},
    describe::iso,
    policy::Demand,
    world::World,
};

/// Time from a spot warning to the interruption.
const WARNING_MS: u64 = 120_000;
/// Time from the event to the scheduled change.
const CHANGE_AFTER_MS: u64 = 24 * 3_600_000;
/// Time until a message that was received but not deleted is visible again.
const VISIBILITY_MS: u64 = 30_000;

/// An event about an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum News {
    /// Spot interrupts it in two minutes.
    SpotWarning,
    /// Its risk of interruption has risen.
    Rebalance,
    /// Its host is retired or maintained.
    ScheduledChange,
}

/// `ms` since 1970 as AWS Health writes times.
fn mail_time(ms: u64) -> String {
    jiff::Timestamp::from_millisecond(i64::try_from(ms).unwrap_or_default())
        .map(|at| at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string())
        .unwrap_or_default()
}

impl World {
    /// Announces an interruption and carries it out in time. Returns false if the instance doesn't exist.
    pub fn interrupt(&mut self, id: &str, news: News) -> bool {
        let now = self.now;
        let Some(instance) = self.instances.get_mut(id).filter(|i| i.state.is_alive()) else { return false };
        if news == News::SpotWarning {
            instance.doomed = Some(now + WARNING_MS);
        }
        let message = match news {
            News::SpotWarning => json!({
                "source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning",
                "detail": {"instance-id": id, "instance-action": "terminate"}}),
            News::Rebalance => json!({
                "source": "aws.ec2", "detail-type": "EC2 Instance Rebalance Recommendation",
                "detail": {"instance-id": id}}),
            News::ScheduledChange => json!({
                "source": "aws.health", "detail-type": "AWS Health Event",
                "detail": {"service": "EC2", "eventTypeCategory": "scheduledChange",
                           "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
                           "startTime": mail_time(now + CHANGE_AFTER_MS),
                           "affectedEntities": [{"entityValue": id}]}}),
        };
        self.publish(message);
        true
    }

    pub(crate) fn announce_state(&mut self, id: &str, state: &str) {
        self.publish(json!({
            "source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification",
            "detail": {"instance-id": id, "state": state}}));
    }

    /// Puts an event on every queue, in EventBridge's envelope.
    pub fn publish(&mut self, mut event: Value) {
        let now = self.now;
        if let Some(map) = event.as_object_mut() {
            map.insert("version".to_owned(), json!("0"));
            map.insert("time".to_owned(), json!(iso(now)));
            map.insert("region".to_owned(), json!(self.settings.region));
            map.insert("account".to_owned(), json!(self.settings.account));
        }
        self.publish_text(&event.to_string());
    }

    /// Puts any text on every queue.
    pub fn publish_text(&mut self, body: &str) {
        let now = self.now;
        for queue in self.queues.values_mut() {
            queue.put(body, now);
        }
    }

    /// Messages that were not deleted yet.
    #[must_use]
    pub fn waiting_news(&self) -> usize {
        self.queues.values().map(|queue| queue.messages.len()).sum()
    }

    pub(crate) fn sqs(&mut self, call: &Call) -> Outcome {
        let text = |field: &str| call.json.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = match call.action.as_str() {
            "GetQueueUrl" => text("QueueName"),
            _ => text("QueueUrl").rsplit('/').next().unwrap_or_default().to_owned(),
        };
        let arn = format!("arn:aws:sqs:{}:{}:{name}", self.settings.region, self.settings.account);
        // A batch needs the permission of the single action.
        let right = call.action.strip_suffix("Batch").unwrap_or(&call.action);
        self.require(call, &Demand::new(format!("sqs:{right}"), &arn))?;
        let (now, account) = (self.now, self.settings.account.clone());
        let absent = || {
            Refusal::new(
                "AWS.SimpleQueueService.NonExistentQueue",
                format!("The specified queue does not exist: {name}"),
            )
        };
        let queue = self.queues.get_mut(&name).ok_or_else(absent)?;
        match call.action.as_str() {
            "GetQueueUrl" => {
                Ok(Answer::Json(json!({"QueueUrl": format!("https://sqs.simulated/{account}/{name}")})))
            }
            "GetQueueAttributes" => {
                let hidden = queue.messages.iter().filter(|m| m.visible > now).count();
                Ok(Answer::Json(json!({"Attributes": {
                    "QueueArn": arn,
                    "ApproximateNumberOfMessages": (queue.messages.len() - hidden).to_string(),
                    "ApproximateNumberOfMessagesNotVisible": hidden.to_string(),
                }})))
            }
            "ReceiveMessage" => {
                let most = call.json.get("MaxNumberOfMessages").and_then(Value::as_u64).unwrap_or(1);
                let most = usize::try_from(most.clamp(1, 10)).unwrap_or(1);
                let mut messages = Vec::new();
                for message in queue.messages.iter_mut().filter(|m| m.visible <= now).take(most) {
                    message.visible = now + VISIBILITY_MS;
                    message.receipt += 1;
                    messages.push(json!({
                        "MessageId": message.id.to_string(),
                        "ReceiptHandle": format!("{}-{}", message.id, message.receipt),
                        "Body": message.body,
                        "Attributes": {"SentTimestamp": message.sent.to_string()},
                    }));
                }
                Ok(Answer::Json(if messages.is_empty() { json!({}) } else { json!({"Messages": messages}) }))
            }
            "SendMessage" => {
                queue.put(&text("MessageBody"), now);
                Ok(Answer::Json(json!({"MessageId": queue.sent.to_string()})))
            }
            "DeleteMessageBatch" => {
                let entries = call.json.get("Entries").and_then(Value::as_array).cloned().unwrap_or_default();
                let mut done = Vec::new();
                for entry in entries {
                    let receipt = entry.get("ReceiptHandle").and_then(Value::as_str).unwrap_or_default();
                    let id = receipt.split('-').next().and_then(|id| id.parse::<u64>().ok());
                    queue.messages.retain(|m| Some(m.id) != id);
                    done.push(json!({"Id": entry.get("Id")}));
                }
                Ok(Answer::Json(json!({"Successful": done, "Failed": []})))
            }
            other => Err(Refusal::new("InvalidAction", format!("{other} is not simulated"))),
        }
    }
}
