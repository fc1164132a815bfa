//! May instances with the classes' roles join? By an access entry of the cluster, or by the ConfigMap aws-auth.

use croft_cloud_aws::Unread;

use super::super::report::{Finding, fail, unknown};
use crate::table::{counted, shortened};

/// At most this many roles are named.
const NAMED: usize = 5;
/// The authentication mode in which access entries count for nothing.
const CONFIG_MAP: &str = "CONFIG_MAP";
/// The one in which aws-auth does.
const API: &str = "API";
/// The types of entries by which instances join.
const OF_NODES: [&str; 3] = ["EC2_LINUX", "EC2_WINDOWS", "EC2"];

/// How a cluster lets principals in.
pub(super) struct Access<'a> {
    pub(super) cluster: &'a str,
    pub(super) authentication_mode: &'a str,
    /// ARNs and types of the access entries of the nodes' roles.
    pub(super) entries: &'a Result<Vec<(String, String)>, Unread>,
    /// `mapRoles` of aws-auth.
    pub(super) mapped_roles: &'a str,
}

/// True if `arn` is that of the role `name`.
pub(super) fn is_role(arn: &str, name: &str) -> bool {
    arn.contains(":role/") && arn.rsplit('/').next() == Some(name)
}

/// Every role of nodes is let in.
pub(super) fn check(access: &Access<'_>, roles: &[String]) -> Finding {
    if roles.is_empty() {
        return Ok("no EC2NodeClass names a role yet".to_owned());
    }
    let by_map = |role: &str| {
        access.authentication_mode != API
            && access.mapped_roles.lines().any(|line| {
                let value = line.trim().trim_start_matches("- ").strip_prefix("rolearn:");
                value.is_some_and(|arn| is_role(arn.trim().trim_matches(['"', '\'']), role))
            })
    };
    let entries = match (access.authentication_mode, access.entries) {
        (CONFIG_MAP, _) => &[][..],
        (_, Ok(entries)) => entries,
        (_, Err(_)) if roles.iter().all(|role| by_map(role)) => &[][..],
        (_, Err(why)) => return unknown(why.to_string()),
    };
    let cluster = access.cluster;
    let mut missing = Vec::new();
    for role in roles {
        match entries.iter().find(|(arn, _)| is_role(arn, role)) {
            Some((_, kind)) if OF_NODES.contains(&kind.as_str()) || kind.is_empty() => {}
            Some((arn, kind)) => {
                return fail(
                    format!("the access entry of {role} has the type {kind}, by which no node joins"),
                    format!(
                        "aws eks delete-access-entry --cluster-name {cluster} --principal-arn {arn}; then create it with --type \
                         EC2_LINUX"
                    ),
                );
            }
            None if by_map(role) => {}
            None => missing.push(role.as_str()),
        }
    }
    if missing.is_empty() {
        return Ok(format!("instances with the {} of the classes may join", counted(roles.len(), "role")));
    }
    let remedy = if access.authentication_mode == CONFIG_MAP {
        "map the role in the ConfigMap kube-system/aws-auth: groups system:bootstrappers and system:nodes, username \
         system:node:{{EC2PrivateDNSName}}"
            .to_owned()
    } else {
        format!(
            "aws eks create-access-entry --cluster-name {cluster} --type EC2_LINUX --principal-arn ROLE_ARN (the stack makes \
             it: docs/aws.md#the-stack)"
        )
    };
    fail(format!("no access entry lets nodes with {} join {cluster}", shortened(&missing, NAMED)), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::check::report::Status;

    const ARN: &str = "arn:aws:iam::1:role/path/croft-node";

    fn seen(mode: &str, entries: &[(&str, &str)], mapped_roles: &str) -> Finding {
        let entries = entries.iter().map(|(arn, kind)| ((*arn).to_owned(), (*kind).to_owned())).collect();
        let access =
            Access { cluster: "prod", authentication_mode: mode, entries: &Ok(entries), mapped_roles };
        check(&access, &["croft-node".to_owned()])
    }

    #[test]
    fn entry_of_nodes_and_mapped_role_are_well() {
        assert!(seen("API", &[("arn:x", "STANDARD"), (ARN, "EC2_LINUX")], "").is_ok());
        let mapped = "- groups: [system:nodes]\n  rolearn: \"arn:aws:iam::1:role/croft-node\"\n";
        assert!(seen("CONFIG_MAP", &[], mapped).is_ok());
        assert!(seen("API_AND_CONFIG_MAP", &[], "- rolearn: arn:aws:iam::1:role/croft-node").is_ok());
    }

    #[test]
    fn role_that_isnt_let_in_fails_with_the_remedy_of_the_mode() {
        let mapped = "- rolearn: arn:aws:iam::1:role/croft-node";
        for (mode, entries, mapped, remedy) in [
            ("API", &[("arn:aws:iam::1:role/my-croft-node", "EC2_LINUX")][..], mapped, "create-access-entry"),
            ("API_AND_CONFIG_MAP", &[], "- rolearn: arn:aws:iam::1:role/other", "create-access-entry"),
            ("CONFIG_MAP", &[(ARN, "EC2_LINUX")], "", "aws-auth"),
            ("API", &[(ARN, "STANDARD")], "", "delete-access-entry"),
        ] {
            let found = seen(mode, entries, mapped);
            assert!(
                matches!(&found, Err(f) if f.status == Status::Fail && f.remedy.contains(remedy)),
                "{mode}: {found:?}"
            );
        }
    }
}
