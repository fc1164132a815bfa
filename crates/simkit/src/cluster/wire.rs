//! A process's HTTP to EC2, for the provider that croft-cloud-aws has.

use std::{
    sync::{Mutex, atomic::Ordering},
    time::Duration,
};

use croft_ec2_sim::{
    answer::{Answer, Call, Refusal, Service},
    wire,
    world::{Settings, World},
};
use serde_json::Value;
use tokio::time::sleep;

use super::connection::Connection;

/// The account of [`Links::elsewhere`](super::environment::Links::elsewhere).
const ANOTHER_ACCOUNT: &str = "999999999999";
/// How often a queue without messages is looked at.
const POLL: Duration = Duration::from_secs(2);
/// Calls that would change another account, which refuses them.
const REFUSED_ELSEWHERE: [&str; 3] = ["CreateLaunchTemplate", "CreateFleet", "CreateTags"];

/// The requests of one process to AWS, answered by ec2-sim's world.
pub struct Wire {
    connection: Connection,
    /// An account without instances.
    another: Mutex<World>,
}

impl Wire {
    pub(crate) fn new(connection: Connection) -> Self {
        let account = ANOTHER_ACCOUNT.to_owned();
        let settings = Settings {
            account,
            queue: None,
            ..connection.environment.world.lock().unwrap().settings.clone()
        };
        let another = World::new(settings, connection.environment.now_ms());
        Self { connection, another: Mutex::new(another) }
    }

    /// The response to a request; `None` if it is lost, whatever became of the request.
    pub async fn send(&self, request: &http::Request<Vec<u8>>) -> Option<http::Response<String>> {
        let call = match wire::read(request.headers(), request.body()) {
            Ok(call) => call,
            Err(refusal) => return Some(wire::refuse(Service::Ec2, &refusal)),
        };
        let is_elsewhere = self.connection.links.elsewhere.load(Ordering::Relaxed);
        let environment = &self.connection.environment;
        if is_elsewhere && REFUSED_ELSEWHERE.contains(&call.action.as_str()) {
            let refusal = Refusal::new("OptInRequired", "You are not subscribed to this service.");
            return Some(wire::refuse(call.service, &refusal));
        }
        if call.action == "ReceiveMessage" {
            self.wait_for_news(&call).await;
        }
        let account = if is_elsewhere { &self.another } else { &*environment.world };
        let mut answer = self.connection.send(account, &call).await;
        let finds_nothing = environment.finds_nothing.load(Ordering::Relaxed);
        if finds_nothing && call.action == "DescribeSecurityGroups" && matches!(answer, Answer::Xml(_)) {
            answer = Answer::Xml("<securityGroupInfo/>".to_owned());
        }
        wire::write(&call, &answer)
    }

    /// Waits as long as the call says for a message.
    async fn wait_for_news(&self, call: &Call) {
        let seconds = call.json.get("WaitTimeSeconds").and_then(Value::as_u64).unwrap_or(0);
        let mut left = Duration::from_secs(seconds);
        while left > Duration::ZERO && self.connection.environment.world.lock().unwrap().waiting_news() == 0 {
            sleep(POLL).await;
            left = left.saturating_sub(POLL);
        }
    }
}
