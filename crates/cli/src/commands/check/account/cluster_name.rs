//! Does the name belong to this cluster? By it nodes join, so two clusters with one name would get each other's nodes.

use std::collections::BTreeSet;

use croft_cloud_aws::{EksCluster, Read, Unread};

use super::{
    super::report::{Finding, fail, unknown, warn},
    subject::Subject,
};
use crate::table::counted;

/// The cluster of this name at EKS is this one, and is active.
pub(super) fn check(
    subject: &Subject,
    region: &str,
    found: &Read<EksCluster>,
    others: &Result<BTreeSet<String>, Unread>,
) -> Finding {
    let Some(name) = &subject.name else {
        return unknown("give the cluster's name at EKS with --cluster-name");
    };
    let set = format!("set controller.settings.clusterName to the name of this cluster (now {name})");
    match found {
        Err(why) => unknown(why.to_string()),
        Ok(None) if subject.own_endpoint => {
            Ok(format!("{name} isn't EKS's: the controller is told where nodes join"))
        }
        Ok(None) => fail(format!("there is no cluster {name} at EKS in {region}"), set),
        Ok(Some(cluster)) if !is_same(&cluster.authority, &subject.authority) => fail(
            format!(
                "the cluster {name} at EKS is another one: its certificate authority isn't that of this cluster"
            ),
            set,
        ),
        Ok(Some(cluster)) if !["ACTIVE", "UPDATING"].contains(&cluster.status.as_str()) => warn(
            format!("the cluster {name} is {}", cluster.status),
            format!("aws eks describe-cluster --name {name}"),
        ),
        Ok(Some(_)) => Ok(format!("{name} is this cluster{}", beside(subject, others))),
    }
}

/// Whether two authorities are one, as far as both are known.
fn is_same(one: &str, other: &str) -> bool {
    one.trim().is_empty() || other.trim().is_empty() || one.trim() == other.trim()
}

/// The other clusters with instances of Croft in the account.
fn beside(subject: &Subject, others: &Result<BTreeSet<String>, Unread>) -> String {
    let Ok(uids) = others else { return String::new() };
    match uids.iter().filter(|uid| **uid != subject.uid).count() {
        0 => String::new(),
        count => format!(
            "; the account and region have instances of {}, which tags keep apart",
            counted(count, "other cluster")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::check::report::{Problem, Status};

    fn subject() -> Subject {
        Subject {
            name: Some("prod".to_owned()),
            uid: "own".to_owned(),
            authority: "PEM\n".to_owned(),
            ..Subject::default()
        }
    }

    fn cluster(authority: &str, status: &str) -> EksCluster {
        EksCluster { authority: authority.to_owned(), status: status.to_owned(), ..EksCluster::default() }
    }

    fn seen(found: &Read<EksCluster>) -> Finding {
        let uids = ["own", "x", "y"].map(str::to_owned).into();
        check(&subject(), "eu-west-1", found, &Ok(uids))
    }

    #[test]
    fn cluster_with_this_authority_is_this_one_and_others_are_counted() {
        let found = seen(&Ok(Some(cluster("PEM", "ACTIVE"))));
        let text = "prod is this cluster; the account and region have instances of 2 other clusters, which tags keep apart";
        assert_eq!(found, Ok(text.to_owned()));
    }

    #[test]
    fn absent_and_foreign_clusters_fail() {
        for (found, what) in
            [(None, "no cluster prod at EKS in eu-west-1"), (Some(cluster("X", "ACTIVE")), "another one")]
        {
            let found = seen(&Ok(found));
            assert!(
                matches!(&found, Err(f) if f.status == Status::Fail && f.what.contains(what) && f.remedy.contains("clusterName")),
                "{found:?}"
            );
        }
        assert!(matches!(
            seen(&Ok(Some(cluster("PEM", "DELETING")))),
            Err(Problem { status: Status::Warn, .. })
        ));
    }

    #[test]
    fn cluster_that_isnt_of_eks_is_told_where_nodes_join() {
        let own = Subject { own_endpoint: true, ..subject() };
        assert!(check(&own, "r", &Ok(None), &Ok(BTreeSet::new())).is_ok());
        let unnamed = Subject { name: None, ..subject() };
        assert!(matches!(
            check(&unnamed, "r", &Ok(None), &Ok(BTreeSet::new())),
            Err(Problem { status: Status::Unknown, .. })
        ));
    }
}
