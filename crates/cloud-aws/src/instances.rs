//! Instances as EC2 describes them, their termination and their tags.

use std::{collections::BTreeMap, future::Future};

use aws_sdk_ec2::types::{CapacityReservationPreference, Filter, Instance, InstanceStateName, Tag};
use croft_cloud::{CloudError, CloudInstance, Fault, FaultClass, InstanceState, tags};
use croft_scheduler::CapacityType;

use crate::{
    connect::{self, Access, Clients},
    pace::Paces,
    refusal,
};

/// An instance, with fields that the controller doesn't get.
#[derive(Clone, Debug)]
pub(crate) struct DescribedInstance {
    pub(crate) instance: CloudInstance,
    /// Name of its instance profile.
    pub(crate) profile: Option<String>,
    /// Network adapters for `vpc.amazonaws.com/efa` that it was launched with.
    pub(crate) efas: u32,
    /// Why it is terminating or terminated: EC2's code and message.
    pub(crate) reason: (String, String),
}

fn filter(name: &str, values: impl IntoIterator<Item = impl Into<String>>) -> Filter {
    let values = values.into_iter().map(Into::into).collect();
    Filter::builder().name(name).set_values(Some(values)).build()
}

/// EC2's limit of values in one filter.
pub(crate) const FILTER_VALUES: usize = 200;
/// Instances in one answer. EC2 allows 1,000, but each answer is held in memory, several times over while it is parsed.
const PAGE: i32 = 250;

/// States of an instance that isn't terminated.
const PRESENT: [&str; 5] = ["pending", "running", "stopping", "stopped", "shutting-down"];

/// Every instance of the cluster that isn't terminated.
pub(crate) async fn of_cluster(
    clients: &Clients,
    paces: &Paces,
    cluster: &str,
) -> Result<Vec<DescribedInstance>, Fault> {
    let filters =
        vec![filter(&format!("tag:{}", tags::CLUSTER), [cluster]), filter("instance-state-name", PRESENT)];
    describe(clients, paces, filters).await
}

/// For commands that need no controller: every instance with the tag of the cluster that isn't terminated; `None` if `access` finds no region. `cluster_uid` is the UID
/// of the Namespace kube-system.
///
/// # Errors
/// If AWS can't be reached, or refuses.
pub async fn owned_instances(
    access: &Access,
    cluster_uid: &str,
) -> Result<Option<Vec<CloudInstance>>, CloudError> {
    let clients = connect::connect(access).await;
    if clients.region.is_empty() {
        return Ok(None);
    }
    let found = of_cluster(&clients, &Paces::default(), cluster_uid)
        .await
        .map_err(|fault| refusal::refused("list the instances of this cluster", fault))?;
    Ok(Some(found.into_iter().map(|described| described.instance).collect()))
}

/// The instances of claims, in any state.
pub(crate) async fn of_claims(
    clients: &Clients,
    paces: &Paces,
    cluster: &str,
    claim_uids: &[String],
) -> Result<Vec<DescribedInstance>, Fault> {
    let mut found = Vec::new();
    for some in claim_uids.chunks(FILTER_VALUES) {
        let filters = vec![
            filter(&format!("tag:{}", tags::CLAIM_UID), some),
            filter(&format!("tag:{}", tags::CLUSTER), [cluster]),
            filter("instance-state-name", PRESENT),
        ];
        found.extend(describe(clients, paces, filters).await?);
    }
    Ok(found)
}

/// Instances by id; ids that aren't visible (yet) are left out. By filter, since a single unknown id in the list of ids
/// makes EC2 refuse the whole call.
pub(crate) async fn by_id(
    clients: &Clients,
    paces: &Paces,
    ids: &[String],
) -> Result<Vec<DescribedInstance>, Fault> {
    let mut found = Vec::new();
    for some in ids.chunks(FILTER_VALUES) {
        found.extend(describe(clients, paces, vec![filter("instance-id", some)]).await?);
    }
    Ok(found)
}

async fn describe(
    clients: &Clients,
    paces: &Paces,
    filters: Vec<Filter>,
) -> Result<Vec<DescribedInstance>, Fault> {
    let mut pages =
        clients.ec2.describe_instances().set_filters(Some(filters)).max_results(PAGE).into_paginator().send();
    let mut found = Vec::new();
    loop {
        paces.read.turn().await;
        let Some(page) = pages.next().await else { break };
        let page = paces.read.record("DescribeInstances", page)?;
        for instance in page.reservations().iter().flat_map(|r| r.instances()) {
            found.extend(read(instance));
        }
    }
    Ok(found)
}

fn read(instance: &Instance) -> Option<DescribedInstance> {
    let id = instance.instance_id()?.to_owned();
    let zone = instance.placement().and_then(|p| p.availability_zone()).unwrap_or_default().to_owned();
    let tag_map: BTreeMap<String, String> = instance
        .tags()
        .iter()
        .filter_map(|tag| Some((tag.key()?.to_owned(), tag.value().unwrap_or_default().to_owned())))
        .collect();
    let capacity_type = if instance.instance_lifecycle().is_some_and(|l| l.as_str() == "spot") {
        CapacityType::Spot
    } else if instance.capacity_reservation_id().is_some() && is_for_reservations(instance) {
        CapacityType::Reserved
    } else {
        CapacityType::OnDemand
    };
    let state = match instance.state().and_then(|s| s.name()) {
        Some(InstanceStateName::Running) => InstanceState::Running,
        Some(InstanceStateName::Stopping) => InstanceState::Stopping,
        Some(InstanceStateName::Stopped) => InstanceState::Stopped,
        Some(InstanceStateName::ShuttingDown) => InstanceState::ShuttingDown,
        Some(InstanceStateName::Terminated) => InstanceState::Terminated,
        _ => InstanceState::Pending,
    };
    let profile = instance
        .iam_instance_profile()
        .and_then(|p| p.arn())
        .and_then(|arn| arn.rsplit('/').next())
        .map(str::to_owned);
    let efas = instance.network_interfaces().iter().filter(|i| i.interface_type() == Some("efa")).count();
    let reason = instance.state_reason().map_or_else(
        || (String::new(), instance.state_transition_reason().unwrap_or_default().to_owned()),
        |r| (r.code().unwrap_or_default().to_owned(), r.message().unwrap_or_default().to_owned()),
    );
    let instance = CloudInstance {
        provider_id: format!("aws:///{zone}/{id}"),
        id,
        node_name: instance.private_dns_name().unwrap_or_default().to_owned(),
        instance_type: instance.instance_type().map(|t| t.as_str().to_owned()).unwrap_or_default(),
        zone,
        capacity_type,
        image_id: instance.image_id().unwrap_or_default().to_owned(),
        state,
        launched_at: instance.launch_time().map_or(0, |at| at.secs()),
        health: None,
        ended_at: instance.state_transition_reason().and_then(ended_at),
        claim: tag_map.get(tags::CLAIM).cloned(),
        claim_uid: tag_map.get(tags::CLAIM_UID).cloned(),
        pool: tag_map.get(tags::POOL).cloned(),
        tags: tag_map,
    };
    Some(DescribedInstance { instance, profile, efas: u32::try_from(efas).unwrap_or(u32::MAX), reason })
}

/// The time of `User initiated (2026-11-26 18:54:07 GMT)`, in seconds since 1970. Other reasons have none.
fn ended_at(reason: &str) -> Option<i64> {
    let (_, rest) = reason.split_once('(')?;
    let time = rest.strip_suffix(" GMT)")?;
    let time = jiff::civil::DateTime::strptime("%Y-%m-%d %H:%M:%S", time).ok()?;
    Some(time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second())
}

/// True if the instance was launched into a capacity reservation. An on-demand launch that an open reservation matches
/// stays on-demand: the pool requested that, and the reservation only affects the bill.
fn is_for_reservations(instance: &Instance) -> bool {
    instance.capacity_reservation_specification().is_some_and(|asked| {
        asked.capacity_reservation_target().is_some()
            || asked.capacity_reservation_preference()
                == Some(&CapacityReservationPreference::CapacityReservationsOnly)
    })
}

/// An instance's id, and the tags to add.
pub(crate) type Tagged = (String, BTreeMap<String, String>);

/// The result for each instance of a call.
pub(crate) type Each<T> = BTreeMap<String, Result<T, Fault>>;

/// EC2 refuses a whole call for one unknown, protected or foreign instance, so a refused call is split in halves until
/// that instance is alone.
async fn halved<T, F, A>(ids: Vec<String>, call: F) -> Each<T>
where
    F: Fn(Vec<String>) -> A,
    A: Future<Output = Result<BTreeMap<String, T>, Fault>>,
{
    let mut each = Each::new();
    let mut open = vec![ids];
    while let Some(mut ids) = open.pop() {
        match call(ids.clone()).await {
            Ok(done) => each.extend(done.into_iter().map(|(id, one)| (id, Ok(one)))),
            Err(fault) if ids.len() > 1 && is_about_one(&fault) => {
                let rest = ids.split_off(ids.len() / 2);
                open.push(rest);
                open.push(ids);
            }
            Err(fault) => each.extend(ids.into_iter().map(|id| (id, Err(fault.clone())))),
        }
    }
    each
}

fn is_about_one(fault: &Fault) -> bool {
    matches!(fault.class, FaultClass::NotFound | FaultClass::Forbidden | FaultClass::Invalid)
}

/// Terminates instances. An id that the account and region don't have is unknown, since a wrong account or region has
/// none of them and a new instance isn't visible yet.
pub(crate) async fn terminate(clients: &Clients, paces: &Paces, ids: Vec<String>) -> Each<InstanceState> {
    let mut each = halved(ids, |ids| terminate_some(clients, paces, ids)).await;
    for one in each.values_mut() {
        if one.as_ref().is_err_and(|fault| fault.class == FaultClass::NotFound) {
            *one = Ok(InstanceState::Unknown);
        }
    }
    each
}

async fn terminate_some(
    clients: &Clients,
    paces: &Paces,
    ids: Vec<String>,
) -> Result<BTreeMap<String, InstanceState>, Fault> {
    paces.write.turn().await;
    let answer = clients.ec2.terminate_instances().set_instance_ids(Some(ids)).send().await;
    let answer = paces.write.record("TerminateInstances", answer)?;
    Ok(answer
        .terminating_instances()
        .iter()
        .filter_map(|change| {
            let state = match change.current_state().and_then(|s| s.name()) {
                Some(InstanceStateName::Terminated) => InstanceState::Terminated,
                _ => InstanceState::ShuttingDown,
            };
            Some((change.instance_id()?.to_owned(), state))
        })
        .collect())
}

/// Adds tags to instances; equal tags are one call.
pub(crate) async fn tag(clients: &Clients, paces: &Paces, wanted: Vec<Tagged>) -> Each<()> {
    let mut by_tags: BTreeMap<BTreeMap<String, String>, Vec<String>> = BTreeMap::new();
    for (id, tags) in wanted {
        by_tags.entry(tags).or_default().push(id);
    }
    let mut each = Each::new();
    for (tags, ids) in by_tags {
        let tags: Vec<Tag> =
            tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect();
        let call = async |ids: Vec<String>| {
            paces.write.turn().await;
            let request = clients.ec2.create_tags().set_resources(Some(ids.clone()));
            let answer = request.set_tags(Some(tags.clone())).send().await;
            paces.write.record("CreateTags", answer)?;
            Ok(ids.into_iter().map(|id| (id, ())).collect())
        };
        each.extend(halved(ids, call).await);
    }
    each
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_instance_is_read_from_the_reason_of_its_state() {
        assert_eq!(ended_at("User initiated (2026-11-26 18:54:07 GMT)"), Some(1_795_719_247));
        for without in
            ["", "Server.SpotInstanceTermination: Instance terminated by Spot", "User initiated (soon)", "("]
        {
            assert_eq!(ended_at(without), None, "{without}");
        }
    }
}
