//! Clusters without a way to the internet: which services the controller and the nodes call, and whether each has an endpoint.

use std::collections::BTreeSet;

use croft_cloud_aws::Unread;

use super::{
    super::report::{Finding, warn},
    subject::Subject,
};
use crate::table::shortened;

/// At most this many subnets are named.
const NAMED: usize = 5;

/// How subnets reach AWS.
pub(super) struct Routes<'a> {
    /// Subnets of the controller without a route to the internet.
    pub(super) closed_controller: &'a Result<Vec<String>, Unread>,
    /// Subnets of the classes without one.
    pub(super) closed_nodes: &'a Result<Vec<String>, Unread>,
    /// Services with an endpoint in the VPC.
    pub(super) endpoints: &'a Result<BTreeSet<String>, Unread>,
    /// True if EKS gives the controller its role, by Pod Identity.
    pub(super) pod_identity: bool,
}

/// Every service that is called without a way to the internet has an endpoint.
pub(super) fn check(subject: &Subject, routes: &Routes<'_>) -> Finding {
    let (controller, nodes) = (routes.closed_controller.as_ref()?, routes.closed_nodes.as_ref()?);
    if controller.is_empty() && nodes.is_empty() {
        return Ok("the subnets have a route to the internet".to_owned());
    }
    let endpoints = routes.endpoints.as_ref()?;
    let mut needed = BTreeSet::new();
    if !controller.is_empty() {
        needed.extend(of_controller(subject, routes.pod_identity));
    }
    if !nodes.is_empty() {
        needed.extend(["ec2", "ecr.api", "ecr.dkr", "s3", "sts"]);
    }
    let missing: Vec<&str> = needed.into_iter().filter(|service| !endpoints.contains(*service)).collect();
    let closed: BTreeSet<&str> = controller.iter().chain(nodes).map(String::as_str).collect();
    let closed: Vec<&str> = closed.into_iter().collect();
    let prices = if !controller.is_empty() && !endpoints.contains("pricing.api") {
        "; the Price List isn't reached, so that on-demand prices are estimates"
    } else {
        ""
    };
    let subnets = shortened(&closed, NAMED);
    if missing.is_empty() {
        return Ok(format!(
            "{subnets} have no route to the internet, and every service has an endpoint{prices}"
        ));
    }
    warn(
        format!(
            "{subnets} have no route to the internet, and the VPC has no endpoint of {}{prices}",
            missing.join(", ")
        ),
        "make an interface endpoint for each (for s3 a gateway endpoint), unless a central VPC serves them; what works without \
         one: docs/aws.md#private-clusters",
    )
}

/// The services that the controller calls.
fn of_controller(subject: &Subject, pod_identity: bool) -> Vec<&'static str> {
    let mut needed = vec!["ec2", if pod_identity { "eks-auth" } else { "sts" }];
    if subject.uses_parameters {
        needed.push("ssm");
    }
    if !subject.own_endpoint {
        needed.push("eks");
    }
    if subject.queue.is_some() {
        needed.push("sqs");
    }
    if subject.uses_roles {
        needed.push("iam");
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::check::report::{Problem, Status};

    fn seen(controller: &[&str], nodes: &[&str], endpoints: &[&str]) -> Finding {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let subject = Subject {
            queue: Some("q".to_owned()),
            uses_parameters: true,
            uses_roles: true,
            ..Subject::default()
        };
        check(
            &subject,
            &Routes {
                closed_controller: &Ok(owned(controller)),
                closed_nodes: &Ok(owned(nodes)),
                endpoints: &Ok(owned(endpoints).into_iter().collect()),
                pod_identity: true,
            },
        )
    }

    #[test]
    fn open_subnets_need_no_endpoint() {
        assert!(seen(&[], &[], &[]).is_ok());
    }

    #[test]
    fn services_without_an_endpoint_are_named() {
        let found = seen(&["subnet-1"], &[], &["ec2", "ssm"]);
        let Err(failed @ Problem { status: Status::Warn, .. }) = found else { panic!("{found:?}") };
        assert_eq!(
            failed.what,
            "subnet-1 have no route to the internet, and the VPC has no endpoint of eks, eks-auth, iam, sqs; the Price List \
             isn't reached, so that on-demand prices are estimates"
        );
        let found = seen(&[], &["subnet-2"], &["ec2", "ecr.api", "ecr.dkr", "sts"]);
        assert!(
            matches!(&found, Err(f) if f.status == Status::Warn && f.what.ends_with("no endpoint of s3")),
            "{found:?}"
        );
    }

    #[test]
    fn private_cluster_with_every_endpoint_is_told_of_its_prices() {
        let all = ["ec2", "ssm", "eks", "eks-auth", "iam", "sqs"];
        let found = seen(&["subnet-1"], &[], &all);
        assert!(matches!(&found, Ok(text) if text.contains("estimates")), "{found:?}");
    }
}
