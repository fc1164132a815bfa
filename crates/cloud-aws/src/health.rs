//! Status checks and scheduled changes of instances, as DescribeInstanceStatus shows them.
//!
//! The call takes no filter by tag and at most a hundred ids, and refuses all of them for a single id that is gone. So it is
//! made without ids: one call for a thousand running instances of the account and region.
//!
//! Sources: the EC2 user guide, "Status checks for Amazon EC2 instances", "Scheduled events for Amazon EC2 instances".

use std::{collections::BTreeMap, time::Duration};

use aws_sdk_ec2::{
    primitives::DateTime,
    types::{InstanceStatus, InstanceStatusEvent, SummaryStatus},
};
use croft_cloud::{FailedCheck, Fault, InstanceHealth, ScheduledChange, StatusCheck};

use crate::{connect::Clients, pace::Paces};

/// EC2 runs the checks once a minute, and the instances are listed as often: a little less than that, so that each list has a new answer.
pub(crate) const ASK_EVERY: Duration = Duration::from_secs(50);
/// EC2's limit. An instance that has no events is a few hundred bytes.
const PAGE: i32 = 1_000;
/// How the description of an event begins that no longer lies ahead. EC2 shows it for a week.
const OVER: [&str; 2] = ["[Completed]", "[Canceled]"];

/// The health of instances, by id. An instance that isn't running is left out.
pub(crate) type Health = BTreeMap<String, InstanceHealth>;

/// The health of every running instance of the account and region.
pub(crate) async fn of_account(clients: &Clients, paces: &Paces) -> Result<Health, Fault> {
    let mut pages = clients.ec2.describe_instance_status().max_results(PAGE).into_paginator().send();
    let mut found = Health::new();
    loop {
        paces.read.turn().await;
        let Some(page) = pages.next().await else { break };
        let page = paces.read.record("DescribeInstanceStatus", page)?;
        let entry = |one: &InstanceStatus| Some((one.instance_id()?.to_owned(), read(one)));
        found.extend(page.instance_statuses().iter().filter_map(entry));
    }
    Ok(found)
}

fn read(status: &InstanceStatus) -> InstanceHealth {
    let system = status.system_status().and_then(|s| {
        failed(StatusCheck::System, s.status(), s.details().iter().filter_map(|one| one.impaired_since()))
    });
    let instance = status.instance_status().and_then(|s| {
        failed(StatusCheck::Instance, s.status(), s.details().iter().filter_map(|one| one.impaired_since()))
    });
    let ebs = status.attached_ebs_status().and_then(|s| {
        failed(StatusCheck::Ebs, s.status(), s.details().iter().filter_map(|one| one.impaired_since()))
    });
    InstanceHealth {
        failed: [system, instance, ebs].into_iter().flatten().collect(),
        scheduled: status.events().iter().filter_map(scheduled).collect(),
    }
}

/// The check, if it fails. One of which EC2 doesn't say since when can't be known to have lasted, and one without data isn't
/// known to fail.
fn failed<'a>(
    check: StatusCheck,
    status: Option<&SummaryStatus>,
    since: impl Iterator<Item = &'a DateTime>,
) -> Option<FailedCheck> {
    let since = since.map(DateTime::secs).min()?;
    (status == Some(&SummaryStatus::Impaired)).then_some(FailedCheck { check, since })
}

fn scheduled(event: &InstanceStatusEvent) -> Option<ScheduledChange> {
    let description = event.description().unwrap_or_default();
    if OVER.iter().any(|over| description.starts_with(over)) {
        return None;
    }
    let code = event.code()?.as_str().to_owned();
    Some(ScheduledChange { code, not_before: event.not_before().map(DateTime::secs) })
}
