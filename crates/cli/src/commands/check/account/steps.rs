//! Reads the account and reports.

use std::collections::BTreeSet;

use croft_cloud_aws::{AccountReader, EksCluster, QueueFacts, Read, Unread};

use super::{
    super::{
        identity,
        installed::CONTROLLER,
        report::{Finding, Problem, Report, fail, unknown},
    },
    access_entries, cluster_name, network, queue,
    subject::{NodeRole, Subject},
};
use crate::aws::Access;

/// Checks the account around the cluster. `names_identity` is true if whose the credentials are isn't reported yet.
///
/// # Errors
/// If the report can't be written.
pub(in crate::commands::check) async fn check(
    access: &Access,
    subject: &Subject,
    names_identity: bool,
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    let Some(reader) = AccountReader::connect(access).await else {
        return report.note("aws", "not checked: no region is set");
    };
    let identity = match reader.identity().await {
        Ok(identity) => identity,
        Err(why) => return report.note("aws", format!("not checked: {why}")),
    };
    if let Some(account) = subject.account.as_ref().filter(|account| **account != identity.account) {
        let text = format!(
            "not checked: the credentials are those of {}, and Croft runs in the account {account}",
            identity.arn
        );
        return report.note("aws", text);
    }
    if names_identity {
        report
            .step("aws", &[], async { Ok(format!("asked as {} in {}", identity.arn, reader.region())) })
            .await?;
    }
    let cluster = match &subject.name {
        Some(name) => reader.cluster(name).await,
        None => Ok(None),
    };
    let others = reader.clusters_with_instances().await;
    report
        .step("cluster name", &[], async { cluster_name::check(subject, reader.region(), &cluster, &others) })
        .await?;
    let association = association(&reader, subject, &cluster).await;
    report
        .step("identity", &[], async {
            identity::check(&subject.installed, &subject.namespace, &association)
        })
        .await?;
    report.step("access entries", &[], entries(&reader, subject, &cluster)).await?;
    report.step("interruption queue", &[], queue(&reader, subject)).await?;
    let pod_identity = matches!(association, Ok(Some(_)));
    report.step("private network", &[], network(&reader, subject, &cluster, pod_identity)).await?;
    if !reader.has_price_list() {
        let text = "the partition has no price list: on-demand prices are built in, and marked as estimates";
        report.note("price list", text)?;
    }
    Ok(())
}

/// The role that Pod Identity gives the controller.
async fn association(
    reader: &AccountReader,
    subject: &Subject,
    cluster: &Read<EksCluster>,
) -> Result<Option<String>, String> {
    let (Some(name), Ok(Some(_))) = (&subject.name, cluster) else {
        return Err("the cluster isn't known at EKS".to_owned());
    };
    let role = reader.pod_identity_role(name, &subject.namespace, CONTROLLER).await;
    role.map_err(|why| why.to_string())
}

async fn entries(reader: &AccountReader, subject: &Subject, cluster: &Read<EksCluster>) -> Finding {
    let (Some(name), Ok(Some(cluster))) = (&subject.name, cluster) else {
        return unknown("the cluster isn't known at EKS");
    };
    let mut roles = BTreeSet::new();
    for role in &subject.roles {
        match role {
            NodeRole::Role(role) => {
                roles.insert(role.clone());
            }
            NodeRole::Profile(profile) => match reader.role_of_profile(profile).await {
                Ok(Some(role)) => {
                    roles.insert(role);
                }
                Ok(None) => {
                    return fail(
                        format!("there is no instance profile {profile} with a role"),
                        "correct spec.instanceProfile of the EC2NodeClass, or deploy the stack (docs/aws.md#the-stack)",
                    );
                }
                Err(why) => return Err((&why).into()),
            },
        }
    }
    let roles: Vec<String> = roles.into_iter().collect();
    let entries = typed_entries(reader, name, &roles).await;
    let access = access_entries::Access {
        cluster: name,
        authentication_mode: &cluster.authentication_mode,
        entries: &entries,
        mapped_roles: &subject.mapped_roles,
    };
    access_entries::check(&access, &roles)
}

/// The access entries of `roles`, with their types; an unread type is empty.
async fn typed_entries(
    reader: &AccountReader,
    cluster: &str,
    roles: &[String],
) -> Result<Vec<(String, String)>, Unread> {
    let mut entries = Vec::new();
    for arn in reader.access_entries(cluster).await? {
        if roles.iter().any(|role| access_entries::is_role(&arn, role)) {
            let kind = reader.access_entry_type(cluster, &arn).await.ok().flatten().unwrap_or_default();
            entries.push((arn, kind));
        }
    }
    Ok(entries)
}

async fn queue(reader: &AccountReader, subject: &Subject) -> Finding {
    let Some(queue) = &subject.queue else {
        return if subject.installed.controller.is_some() {
            queue::unset()
        } else {
            unknown("give the queue's name with --interruption-queue")
        };
    };
    let name = queue.rsplit('/').next().unwrap_or_default();
    let found = reader.queue(name).await;
    let rules = match &found {
        Ok(Some(QueueFacts { arn, .. })) if !arn.is_empty() => {
            reader.rules_to(arn).await.map_err(|why| why.to_string())
        }
        _ => Err("it takes the right sqs:GetQueueAttributes".to_owned()),
    };
    // Without the right to list them, no other cluster's queue is recognised.
    let clusters = reader.clusters().await.unwrap_or_default();
    queue::check(&queue::Found {
        name,
        region: reader.region(),
        queue: &found,
        rules: &rules,
        clusters: &clusters,
        cluster: subject.name.as_deref(),
    })
}

async fn network(
    reader: &AccountReader,
    subject: &Subject,
    cluster: &Read<EksCluster>,
    pod_identity: bool,
) -> Finding {
    let Ok(Some(EksCluster { vpc: Some(vpc), .. })) = cluster else {
        return unknown("the cluster's VPC isn't known");
    };
    let controller = reader.subnets_of(&subject.installed.instances()).await;
    let controller = controller.map_err(|why| Problem::from(&why))?;
    let nodes: BTreeSet<String> = subject.subnets.iter().cloned().collect();
    if controller.is_empty() && nodes.is_empty() {
        return unknown("neither the controller's nor a class's subnets are known yet");
    }
    let closed_controller = reader.without_internet(vpc, &controller).await;
    let closed_nodes = reader.without_internet(vpc, &nodes).await;
    let endpoints = reader.endpoints(vpc).await;
    let routes = network::Routes {
        closed_controller: &closed_controller,
        closed_nodes: &closed_nodes,
        endpoints: &endpoints,
        pod_identity,
    };
    network::check(subject, &routes)
}
