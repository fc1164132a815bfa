//! The objects that Croft keeps in a tenant's namespaces, as its Tenant declares them. Called by the controller, which
//! writes them, and by `croft plan`, which shows them.

use croft_policy::definitions::{NAME_LABEL, TENANT_OBJECT_PREFIX};
use k8s_openapi::{
    api::networking::v1::{
        IPBlock, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
        NetworkPolicySpec,
    },
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
        util::intstr::IntOrString,
    },
};

use crate::{
    hash::hash,
    tenant::{Egress, NetworkIsolation, NetworkPeer},
};

/// Maximum length of a label's value.
const LABEL_LENGTH: usize = 63;
/// Digits of the hash that ends a label's value where a name is too long for one.
const HASH_DIGITS: usize = 10;
/// The namespace of the cluster's DNS.
const DNS_NAMESPACE: &str = "kube-system";
/// Link-local addresses: of NodeLocal DNSCache on each node, and of the resolver that EC2 gives every instance. The last
/// is the resolver's IPv6 address.
const DNS_BLOCKS: [&str; 3] = ["169.254.0.0/16", "fe80::/10", "fd00:ec2::253/128"];
/// The port of DNS.
const DNS_PORT: i32 = 53;

/// The name of the NetworkPolicy in each namespace of an isolated tenant.
#[must_use]
pub fn network_policy_name() -> String {
    format!("{TENANT_OBJECT_PREFIX}network")
}

/// A tenant's name as the value of a label.
#[must_use]
pub fn tenant_label(tenant: &str) -> String {
    if tenant.len() <= LABEL_LENGTH {
        return tenant.to_owned();
    }
    let kept: String = tenant.chars().take(LABEL_LENGTH - HASH_DIGITS - 1).collect();
    format!("{kept}-{}", hash(&[tenant], HASH_DIGITS))
}

/// The spec of the NetworkPolicy in each namespace of a tenant that owns the namespaces `own`; `None` if the tenant isn't
/// isolated.
///
/// Namespaces are selected by the label that the API server itself keeps, so that no label that a user may write opens
/// one.
#[must_use]
pub fn network_policy(isolation: Option<&NetworkIsolation>, own: &[&str]) -> Option<NetworkPolicySpec> {
    let isolation = isolation.filter(|isolation| isolation.enabled)?;
    let restricted = isolation.egress == Egress::Restricted;
    let ingress = NetworkPolicyIngressRule { from: Some(peers(own, &isolation.allow_from)), ports: None };
    let egress = restricted.then(|| {
        let open = NetworkPolicyEgressRule { to: Some(peers(own, &isolation.allow_to)), ports: None };
        vec![open, dns()]
    });
    let types = if restricted { &["Ingress", "Egress"][..] } else { &["Ingress"] };
    Some(NetworkPolicySpec {
        pod_selector: Some(LabelSelector::default()),
        policy_types: Some(types.iter().map(|kind| (*kind).to_owned()).collect()),
        ingress: Some(vec![ingress]),
        egress,
    })
}

/// The tenant's own namespaces, then those of `others`, then blocks of addresses.
fn peers(own: &[&str], others: &[NetworkPeer]) -> Vec<NetworkPolicyPeer> {
    let mut named: Vec<&str> = others.iter().filter_map(|peer| peer.namespace.as_deref()).collect();
    named.sort_unstable();
    named.dedup();
    let mut own: Vec<&str> = own.to_vec();
    own.sort_unstable();
    let lists = [own, named].into_iter().filter(|names| !names.is_empty());
    let blocks = others.iter().filter_map(|peer| Some(block(peer.cidr.as_deref()?, &peer.except)));
    lists.map(|names| namespaces(&names)).chain(blocks).collect()
}

fn namespaces(names: &[&str]) -> NetworkPolicyPeer {
    let requirement = LabelSelectorRequirement {
        key: NAME_LABEL.to_owned(),
        operator: "In".to_owned(),
        values: Some(names.iter().map(|name| (*name).to_owned()).collect()),
    };
    let selector = LabelSelector { match_expressions: Some(vec![requirement]), match_labels: None };
    NetworkPolicyPeer { namespace_selector: Some(selector), ..NetworkPolicyPeer::default() }
}

fn block(cidr: &str, except: &[String]) -> NetworkPolicyPeer {
    let except = (!except.is_empty()).then(|| except.to_vec());
    NetworkPolicyPeer {
        ip_block: Some(IPBlock { cidr: cidr.to_owned(), except }),
        ..NetworkPolicyPeer::default()
    }
}

fn dns() -> NetworkPolicyEgressRule {
    let port = |protocol: &str| NetworkPolicyPort {
        port: Some(IntOrString::Int(DNS_PORT)),
        protocol: Some(protocol.to_owned()),
        end_port: None,
    };
    let to = std::iter::once(namespaces(&[DNS_NAMESPACE])).chain(DNS_BLOCKS.map(|cidr| block(cidr, &[])));
    NetworkPolicyEgressRule { to: Some(to.collect()), ports: Some(vec![port("UDP"), port("TCP")]) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(isolation: Value, own: &[&str]) -> Value {
        let isolation: NetworkIsolation = serde_json::from_value(isolation).unwrap();
        json!(network_policy(Some(&isolation), own))
    }

    #[test]
    fn tenant_without_isolation_has_no_policy() {
        assert_eq!(network_policy(None, &["a"]), None);
        assert_eq!(spec(json!({"egress": "Restricted"}), &["a"]), Value::Null);
    }

    #[test]
    fn open_egress_is_left_to_others() {
        let own = json!({"namespaceSelector": {"matchExpressions":
            [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}]}});
        let expected = json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": [own]}]});
        assert_eq!(spec(json!({"enabled": true}), &["b", "a"]), expected);
    }

    #[test]
    fn restricted_egress_names_both_families() {
        let isolation = json!({"enabled": true, "egress": "Restricted",
            "allowFrom": [{"namespace": "ingress"}, {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}],
            "allowTo": [{"cidr": "fd00:10::/64"}]});
        let found = spec(isolation, &["a"]);
        assert_eq!(
            found["ingress"][0]["from"][2]["ipBlock"],
            json!({"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]})
        );
        assert_eq!(found["egress"][0]["to"][1]["ipBlock"]["cidr"], "fd00:10::/64");
        assert_eq!(found["egress"][1]["ports"][1], json!({"port": 53, "protocol": "TCP"}));
    }

    #[test]
    fn long_names_are_labels() {
        let long = "a.".repeat(60) + "b";
        assert_eq!((tenant_label("shop").as_str(), tenant_label(&long).len()), ("shop", 63));
        assert_ne!(tenant_label(&long), tenant_label(&format!("{long}c")));
    }
}
