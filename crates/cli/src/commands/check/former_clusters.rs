//! Whether the cluster is the one that Croft ran in, as it isn't after a restoration into another one, and the instances of
//! the clusters before it.

use std::collections::BTreeMap;

use croft_policy::definitions::{FORMER_CLUSTERS_ANNOTATION, IDENTITY_PREFIX};
use kube::Client;

use super::report::{Finding, Problem, fail};
use crate::{
    aws::{AwsArgs, Instances, annotations_of, cluster_uid},
    failure::told,
    table::{counted, shortened},
};

/// At most this many instances are named.
const NAMED: usize = 10;
const PAGE: &str = "docs/tasks/restore-a-backup.md";

/// The recorded cluster is this one.
pub(super) async fn recorded(client: &Client, namespace: &str) -> Finding {
    let (uid, annotations) = read(client, namespace).await?;
    match annotations.get(&format!("{IDENTITY_PREFIX}cluster-uid")) {
        None => Ok("no controller has led yet".to_owned()),
        Some(recorded) if *recorded == uid => Ok(format!("the cluster {uid}")),
        Some(recorded) => fail(
            format!(
                "Croft ran in the cluster {recorded}, and this is the cluster {uid}: its objects were restored from there, and \
                 the controller doesn't lead"
            ),
            format!("follow {PAGE}; the controller's log has the command"),
        ),
    }
}

/// No instance of a cluster that this one was restored from is left.
pub(super) async fn former_instances(client: &Client, namespace: &str, aws: &AwsArgs) -> Finding {
    let (uid, annotations) = read(client, namespace).await?;
    let mut left = Vec::new();
    let former = former(&uid, &annotations);
    for cluster in &former {
        match aws.instances_of(client, namespace, cluster).await {
            Ok(Instances::Found(found)) => {
                left.extend(found.into_iter().filter(|instance| instance.state.is_alive()).map(|i| i.id));
            }
            Ok(Instances::Unknown(why)) => return Ok(format!("of {}: AWS {why}", former.join(", "))),
            Err(error) => return fail(told(&error), "look at the credentials"),
        }
    }
    if left.is_empty() {
        return Ok(if former.is_empty() {
            "none is recorded".to_owned()
        } else {
            "no instance is left".to_owned()
        });
    }
    let ids: Vec<&str> = left.iter().map(String::as_str).collect();
    fail(
        format!(
            "{} of the cluster {}, which are paid for and which this cluster's controller never terminates: {}",
            counted(ids.len(), "instance"),
            former.join(", "),
            shortened(&ids, NAMED)
        ),
        format!(
            "if that cluster is gone, terminate them: aws ec2 terminate-instances --instance-ids {}; if it runs, they are \
             its own: kubectl annotate namespace {namespace} {FORMER_CLUSTERS_ANNOTATION}-",
            ids.join(" ")
        ),
    )
}

async fn read(client: &Client, namespace: &str) -> Result<(String, BTreeMap<String, String>), Problem> {
    let unread = |error| Problem::fail(told(&error), "ask for the right to read namespaces");
    let uid = cluster_uid(client).await.map_err(unread)?;
    Ok((uid, annotations_of(client, namespace).await.map_err(unread)?))
}

/// The UIDs of other clusters that are recorded on Croft's Namespace.
fn former(uid: &str, annotations: &BTreeMap<String, String>) -> Vec<String> {
    let recorded = annotations.get(&format!("{IDENTITY_PREFIX}cluster-uid"));
    let listed = annotations.get(FORMER_CLUSTERS_ANNOTATION).map(String::as_str).unwrap_or_default();
    let mut all: Vec<String> = listed.split(',').map(str::to_owned).chain(recorded.cloned()).collect();
    all.retain(|other| !other.is_empty() && other != uid);
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn former_clusters_are_the_listed_ones_and_the_recorded_one_without_this() {
        let annotations = |recorded: &str, listed: &str| {
            BTreeMap::from([
                (format!("{IDENTITY_PREFIX}cluster-uid"), recorded.to_owned()),
                (FORMER_CLUSTERS_ANNOTATION.to_owned(), listed.to_owned()),
            ])
        };
        assert_eq!(former("b", &annotations("a", "")), ["a"], "before the identity is confirmed");
        assert_eq!(former("b", &annotations("b", "a")), ["a"], "and after that");
        assert_eq!(former("c", &annotations("b", "a,b")), ["a", "b"]);
        assert_eq!(former("b", &annotations("b", "")), Vec::<String>::new());
    }
}
