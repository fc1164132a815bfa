//! Instances that are paid for and that no NodeClaim stands for, as after the CRDs or the finalizers were removed by hand.

use std::collections::{BTreeMap, BTreeSet};

use croft_api::{NodeClaim, TenantPool};
use croft_cloud::instance_id;
use croft_policy::definitions::CLAIM_ANNOTATION;
use k8s_openapi::api::core::v1::Node;
use kube::{Client, ResourceExt as _};

use super::report::{Finding, Problem, fail};
use crate::{
    aws::{AwsArgs, Instances},
    cluster_reader::list_all,
    failure::told,
    own_objects::{claims, names},
    table::{counted, shortened},
};

/// At most this many instances are named.
const NAMED: usize = 10;

/// An instance without a claim, as far as it is known.
struct Orphan {
    pool: Option<String>,
}

/// Every instance of the cluster has a NodeClaim, by the cluster's nodes, and by AWS if it is asked.
pub(super) async fn check(client: &Client, namespace: &str, aws: &AwsArgs) -> Finding {
    let remedy = "ask for the ClusterRole croft-view, and for the right to list nodes";
    let (claims, pools, nodes) = read(client).await.map_err(|error| {
        Problem::fail(format!("failed to list nodes and NodeClaims: {}", told(&error)), remedy)
    })?;
    let instances = aws.instances(client, namespace).await;
    let instances = instances.map_err(|error| Problem::fail(told(&error), remedy))?;
    let known: BTreeSet<&str> = claims.iter().filter_map(instance_of).collect();
    let names: BTreeSet<String> = claims.iter().map(|claim| claim.name_any()).collect();
    let mut orphans: BTreeMap<String, Orphan> = BTreeMap::new();
    for node in &nodes {
        let claim = node.annotations().get(CLAIM_ANNOTATION);
        let id = node.spec.as_ref().and_then(|s| s.provider_id.as_deref()).map(instance_id);
        if let (Some(claim), Some(id)) = (claim, id)
            && !names.contains(claim)
            && !known.contains(id)
        {
            let pool = node.labels().get(croft_policy::definitions::POOL_NAME_LABEL).cloned();
            orphans.insert(id.to_owned(), Orphan { pool });
        }
    }
    let asked = match instances {
        Instances::Found(found) => {
            let launching: BTreeSet<&str> = claims.iter().filter_map(|c| c.metadata.uid.as_deref()).collect();
            let owned = |uid: &Option<String>| uid.as_deref().is_some_and(|uid| launching.contains(uid));
            let count = found.len();
            for instance in found {
                if !known.contains(instance.id.as_str())
                    && !owned(&instance.claim_uid)
                    && instance.state.is_alive()
                {
                    orphans.insert(instance.id, Orphan { pool: instance.pool });
                }
            }
            format!("{} in AWS", counted(count, "instance"))
        }
        Instances::Unknown(why) => format!("AWS {why}"),
    };
    if orphans.is_empty() {
        return Ok(format!("each has a NodeClaim ({}; {asked})", counted(claims.len(), "NodeClaim")));
    }
    let ids: Vec<&str> = orphans.keys().map(String::as_str).collect();
    let absent: BTreeSet<&str> = orphans
        .values()
        .filter_map(|orphan| orphan.pool.as_deref())
        .filter(|pool| !pools.iter().any(|found| found == pool))
        .collect();
    let absent: Vec<&str> = absent.into_iter().collect();
    let adopt = if absent.is_empty() {
        "the controller adopts those that have a node, and terminates the others, within minutes".to_owned()
    } else {
        format!(
            "create the TenantPools {} again, so that the controller adopts them; or delete their nodes and terminate \
             them: aws ec2 terminate-instances --instance-ids {}",
            shortened(&absent, NAMED),
            ids.join(" ")
        )
    };
    fail(
        format!(
            "{} without a NodeClaim, which are paid for: {}",
            counted(ids.len(), "instance"),
            shortened(&ids, NAMED)
        ),
        adopt,
    )
}

async fn read(client: &Client) -> anyhow::Result<(Vec<NodeClaim>, Vec<String>, Vec<Node>)> {
    Ok((claims(client).await?, names::<TenantPool>(client).await?, list_all(client).await?))
}

fn instance_of(claim: &NodeClaim) -> Option<&str> {
    claim.status.as_ref()?.provider_id.as_deref().map(instance_id)
}
