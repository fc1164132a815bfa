//! Machines as EC2 shows them.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::{Filter, Instance, InstanceStateName, Tag};
use croft_cloud::{CloudMachine, Fault, FaultClass, MachineState, Terminated, tags};
use croft_scheduler::CapacityType;

use crate::{connect::Clients, pace::Paces};

/// A machine, and its instance profile's name.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) machine: CloudMachine,
    pub(crate) profile: Option<String>,
}

fn filter(name: &str, values: impl IntoIterator<Item = impl Into<String>>) -> Filter {
    let values = values.into_iter().map(Into::into).collect();
    Filter::builder().name(name).set_values(Some(values)).build()
}

/// States in which a machine is there at all.
const PRESENT: [&str; 5] = ["pending", "running", "stopping", "stopped", "shutting-down"];

/// Every machine of the cluster that is not yet terminated.
pub(crate) async fn of_cluster(clients: &Clients, paces: &Paces, cluster: &str) -> Result<Vec<Seen>, Fault> {
    let filters =
        vec![filter(&format!("tag:{}", tags::CLUSTER), [cluster]), filter("instance-state-name", PRESENT)];
    describe(clients, paces, filters).await
}

/// The machines of one claim, whatever their state.
pub(crate) async fn of_claim(
    clients: &Clients,
    paces: &Paces,
    cluster: &str,
    claim_uid: &str,
) -> Result<Vec<Seen>, Fault> {
    let filters = vec![
        filter(&format!("tag:{}", tags::CLAIM_UID), [claim_uid]),
        filter(&format!("tag:{}", tags::CLUSTER), [cluster]),
        filter("instance-state-name", PRESENT),
    ];
    describe(clients, paces, filters).await
}

/// Machines by id; what isn't visible (yet) is left out. By filter and not by id, since a single unknown id
/// makes EC2 refuse the whole call.
pub(crate) async fn by_id(clients: &Clients, paces: &Paces, ids: &[String]) -> Result<Vec<Seen>, Fault> {
    let mut found = Vec::new();
    for some in ids.chunks(200) {
        found.extend(describe(clients, paces, vec![filter("instance-id", some)]).await?);
    }
    Ok(found)
}

async fn describe(clients: &Clients, paces: &Paces, filters: Vec<Filter>) -> Result<Vec<Seen>, Fault> {
    let mut pages =
        clients.ec2.describe_instances().set_filters(Some(filters)).max_results(1000).into_paginator().send();
    let mut found = Vec::new();
    loop {
        paces.read.turn().await;
        let Some(page) = pages.next().await else { break };
        let page = paces.read.judge("DescribeInstances", page)?;
        for instance in page.reservations().iter().flat_map(|r| r.instances()) {
            found.extend(read(instance));
        }
    }
    Ok(found)
}

fn read(instance: &Instance) -> Option<Seen> {
    let id = instance.instance_id()?.to_owned();
    let zone = instance.placement().and_then(|p| p.availability_zone()).unwrap_or_default().to_owned();
    let tag_map: BTreeMap<String, String> = instance
        .tags()
        .iter()
        .filter_map(|tag| Some((tag.key()?.to_owned(), tag.value().unwrap_or_default().to_owned())))
        .collect();
    let capacity_type = if instance.instance_lifecycle().is_some_and(|l| l.as_str() == "spot") {
        CapacityType::Spot
    } else if instance.capacity_reservation_id().is_some() {
        CapacityType::Reserved
    } else {
        CapacityType::OnDemand
    };
    let state = match instance.state().and_then(|s| s.name()) {
        Some(InstanceStateName::Running) => MachineState::Running,
        Some(InstanceStateName::Stopping) => MachineState::Stopping,
        Some(InstanceStateName::Stopped) => MachineState::Stopped,
        Some(InstanceStateName::ShuttingDown) => MachineState::ShuttingDown,
        Some(InstanceStateName::Terminated) => MachineState::Terminated,
        _ => MachineState::Pending,
    };
    let profile = instance
        .iam_instance_profile()
        .and_then(|p| p.arn())
        .and_then(|arn| arn.rsplit('/').next())
        .map(str::to_owned);
    let machine = CloudMachine {
        provider_id: format!("aws:///{zone}/{id}"),
        id,
        node_name: instance.private_dns_name().unwrap_or_default().to_owned(),
        instance_type: instance.instance_type().map(|t| t.as_str().to_owned()).unwrap_or_default(),
        zone,
        capacity_type,
        image_id: instance.image_id().unwrap_or_default().to_owned(),
        state,
        launched_at: instance.launch_time().map_or(0, |at| at.secs()),
        claim: tag_map.get(tags::CLAIM).cloned(),
        claim_uid: tag_map.get(tags::CLAIM_UID).cloned(),
        pool: tag_map.get(tags::POOL).cloned(),
        tags: tag_map,
    };
    Some(Seen { machine, profile })
}

/// Terminates machines. One that is unknown makes EC2 refuse all of a call, so those are then asked for one
/// by one.
pub(crate) async fn terminate(
    clients: &Clients,
    paces: &Paces,
    ids: &[String],
) -> Result<Vec<Terminated>, Fault> {
    let mut done = Vec::new();
    for some in ids.chunks(100) {
        match terminate_some(clients, paces, some).await {
            Ok(states) => done.extend(states),
            Err(fault) if fault.class == FaultClass::NotFound && some.len() > 1 => {
                for id in some {
                    done.extend(terminate_or_gone(clients, paces, id).await?);
                }
            }
            Err(fault) if fault.class == FaultClass::NotFound => done.extend(gone(some)),
            Err(fault) => return Err(fault),
        }
    }
    Ok(done)
}

async fn terminate_or_gone(clients: &Clients, paces: &Paces, id: &String) -> Result<Vec<Terminated>, Fault> {
    let one = std::slice::from_ref(id);
    match terminate_some(clients, paces, one).await {
        Err(fault) if fault.class == FaultClass::NotFound => Ok(gone(one)),
        other => other,
    }
}

fn gone(ids: &[String]) -> Vec<Terminated> {
    ids.iter().map(|id| Terminated { id: id.clone(), state: MachineState::Terminated }).collect()
}

async fn terminate_some(clients: &Clients, paces: &Paces, ids: &[String]) -> Result<Vec<Terminated>, Fault> {
    paces.write.turn().await;
    let answer = clients.ec2.terminate_instances().set_instance_ids(Some(ids.to_vec())).send().await;
    let answer = paces.write.judge("TerminateInstances", answer)?;
    Ok(answer
        .terminating_instances()
        .iter()
        .filter_map(|change| {
            let state = match change.current_state().and_then(|s| s.name()) {
                Some(InstanceStateName::Terminated) => MachineState::Terminated,
                _ => MachineState::ShuttingDown,
            };
            Some(Terminated { id: change.instance_id()?.to_owned(), state })
        })
        .collect())
}

/// Adds tags to a machine.
pub(crate) async fn tag(
    clients: &Clients,
    paces: &Paces,
    id: &str,
    tags: &BTreeMap<String, String>,
) -> Result<(), Fault> {
    if tags.is_empty() {
        return Ok(());
    }
    paces.write.turn().await;
    let tags = tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect();
    let answer = clients.ec2.create_tags().resources(id).set_tags(Some(tags)).send().await;
    paces.write.judge("CreateTags", answer)?;
    Ok(())
}
