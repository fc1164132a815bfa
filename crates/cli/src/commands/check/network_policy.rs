//! The NetworkPolicy of the webhook: it admits the API servers, and no pod.

use std::net::IpAddr;

use k8s_openapi::{
    api::{
        core::v1::Container,
        discovery::v1::EndpointSlice,
        networking::v1::{IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort},
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    core::{Selector, SelectorExt as _},
};

use super::{
    installed::{Installed, container},
    report::{Finding, Problem, unknown, warn},
};
use crate::table::shortened;

/// The port of reviews: its name in the container, and its number unless the Deployment says another.
const PORT: &str = "reviews";
const NUMBER: i32 = 8443;
/// At most this many addresses are named.
const NAMED: usize = 5;

/// The policies of the webhook's pods admit the addresses of the API servers.
pub(super) async fn check(client: &Client, namespace: &str, installed: &Installed) -> Finding {
    let Some(deployment) = &installed.webhook else {
        return Ok("the webhook runs outside the cluster".to_owned());
    };
    let template = deployment.spec.as_ref().map(|spec| &spec.template);
    let on_host = template.and_then(|template| template.spec.as_ref()?.host_network) == Some(true);
    if on_host {
        return Ok(
            "the webhook is on the nodes' network, where no policy has an effect: use security groups, or settings.clientCa"
                .to_owned(),
        );
    }
    let labels = template.and_then(|template| template.metadata.as_ref()?.labels.clone()).unwrap_or_default();
    let api: Api<NetworkPolicy> = Api::namespaced(client.clone(), namespace);
    let policies = api.list(&ListParams::default()).await;
    let policies = policies.map_err(|error| Problem::unsaid("failed to list NetworkPolicies", &error))?;
    let selects = |policy: &NetworkPolicy| {
        let selector = policy.spec.as_ref().and_then(|spec| spec.pod_selector.clone()).unwrap_or_default();
        // The API server refuses selectors that can't be read.
        Selector::try_from(selector).is_ok_and(|selector| selector.matches(&labels))
    };
    let policies: Vec<NetworkPolicy> =
        policies.items.into_iter().filter(|policy| restricts(policy) && selects(policy)).collect();
    let addresses = api_servers(client).await;
    let unsaid = |error| Problem::unsaid("failed to list the addresses of the API servers", &error);
    verdict(&policies, port(container(deployment)), &addresses.map_err(unsaid)?)
}

/// The addresses of the API servers, as the Service `kubernetes` has them.
async fn api_servers(client: &Client) -> kube::Result<Vec<IpAddr>> {
    let of_api = ListParams::default().labels("kubernetes.io/service-name=kubernetes");
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), "default").list(&of_api).await?;
    let endpoints = slices.items.into_iter().flat_map(|slice| slice.endpoints.into_iter().flatten());
    let addresses = endpoints.flat_map(|endpoint| endpoint.addresses);
    let mut addresses: Vec<IpAddr> = addresses.filter_map(|address| address.parse().ok()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// The number of the port of reviews.
fn port(container: Option<&Container>) -> i32 {
    let ports = container.into_iter().flat_map(|container| container.ports.iter().flatten());
    let named = ports.into_iter().find(|port| port.name.as_deref() == Some(PORT));
    named.map_or(NUMBER, |port| port.container_port)
}

fn restricts(policy: &NetworkPolicy) -> bool {
    let types = policy.spec.as_ref().and_then(|spec| spec.policy_types.as_ref());
    types.is_none_or(|types| types.iter().any(|kind| kind == "Ingress"))
}

fn verdict(policies: &[NetworkPolicy], port: i32, addresses: &[IpAddr]) -> Finding {
    let setting = "set webhook.networkPolicy.apiServers to the blocks of the control plane's subnets \
                   (docs/aws.md#from-the-control-plane-to-the-webhook)";
    if policies.is_empty() {
        return warn(
            "no NetworkPolicy restricts the port of reviews: any pod may send reviews",
            "set webhook.networkPolicy.enabled, or settings.clientCa",
        );
    }
    let peers: Vec<Peer> = policies.iter().flat_map(|policy| peers(policy, port)).collect();
    let names: Vec<String> = policies.iter().map(ResourceExt::name_any).collect();
    let names = names.join(", ");
    let outside: Vec<String> = addresses
        .iter()
        .filter(|address| !peers.iter().any(|peer| peer.admits(**address)))
        .map(ToString::to_string)
        .collect();
    if !outside.is_empty() && peers.contains(&Peer::Pods) {
        return unknown(format!(
            "{names} admits pods, and whether API servers at {} are among them isn't known",
            shortened(&outside, NAMED)
        ));
    }
    if !outside.is_empty() {
        return warn(
            format!(
                "{names} doesn't admit the API servers at {}: where a network plugin enforces it, no review arrives",
                shortened(&outside, NAMED)
            ),
            setting,
        );
    }
    if peers.iter().any(Peer::is_everyone) {
        return warn(format!("{names} admits any address to the port of reviews"), setting);
    }
    Ok(format!("{names} admits the API servers' {}", shortened(&texts(addresses), NAMED)))
}

fn texts(addresses: &[IpAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

/// A source that a policy admits to the port.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Peer {
    Everyone,
    Block(Block, Vec<Block>),
    /// Pods, whose addresses aren't known here.
    Pods,
}

/// A block of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    address: IpAddr,
    prefix: u32,
}

impl Block {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        Some(Self { address: address.parse().ok()?, prefix: prefix.parse().ok()? })
    }

    fn contains(self, other: IpAddr) -> bool {
        let differing = match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (u32::from(own) ^ u32::from(other))
                    .checked_shr(32_u32.saturating_sub(self.prefix))
                    .unwrap_or(0)
                    != 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (u128::from(own) ^ u128::from(other))
                    .checked_shr(128_u32.saturating_sub(self.prefix))
                    .unwrap_or(0)
                    != 0
            }
            _ => true,
        };
        !differing
    }
}

impl Peer {
    fn of(peer: &NetworkPolicyPeer) -> Self {
        let parse = |block: &IPBlock| {
            let except = block.except.iter().flatten().filter_map(|text| Block::parse(text)).collect();
            Some(Self::Block(Block::parse(&block.cidr)?, except))
        };
        peer.ip_block.as_ref().and_then(parse).unwrap_or(Self::Pods)
    }

    fn admits(&self, address: IpAddr) -> bool {
        match self {
            Self::Everyone => true,
            Self::Pods => false,
            Self::Block(block, except) => {
                block.contains(address) && !except.iter().any(|except| except.contains(address))
            }
        }
    }

    fn is_everyone(&self) -> bool {
        match self {
            Self::Everyone => true,
            Self::Pods => false,
            Self::Block(block, except) => block.prefix == 0 && except.is_empty(),
        }
    }
}

/// The sources that a policy admits to `port`.
fn peers(policy: &NetworkPolicy, port: i32) -> Vec<Peer> {
    let rules = policy.spec.iter().flat_map(|spec| spec.ingress.iter().flatten());
    let open = rules.filter(|rule| {
        rule.ports.as_ref().is_none_or(|ports| ports.is_empty() || ports.iter().any(|own| covers(own, port)))
    });
    open.flat_map(|rule| match rule.from.as_deref() {
        None | Some([]) => vec![Peer::Everyone],
        Some(from) => from.iter().map(Peer::of).collect(),
    })
    .collect()
}

fn covers(own: &NetworkPolicyPort, port: i32) -> bool {
    own.protocol.as_deref().is_none_or(|protocol| protocol == "TCP")
        && match (&own.port, own.end_port) {
            (None, _) => true,
            (Some(IntOrString::String(name)), _) => name == PORT,
            (Some(IntOrString::Int(first)), last) => (*first..=last.unwrap_or(*first)).contains(&port),
        }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::commands::check::report::Status;

    fn policy(ingress: Value) -> NetworkPolicy {
        serde_json::from_value(json!({
            "metadata": {"name": "croft-webhook"},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": ingress},
        }))
        .unwrap()
    }

    /// A policy as the chart writes it, with `block` for the API servers.
    fn installed(block: Value) -> NetworkPolicy {
        policy(json!([
            {"from": [{"ipBlock": block}], "ports": [{"port": "reviews", "protocol": "TCP"}]},
            {"ports": [{"port": "health", "protocol": "TCP"}]},
        ]))
    }

    fn seen(policy: NetworkPolicy) -> Finding {
        let addresses = ["10.0.1.5", "10.0.2.5"].map(|text| text.parse().unwrap());
        verdict(&[policy], NUMBER, &addresses)
    }

    #[test]
    fn blocks_that_hold_the_api_servers_are_well() {
        let found = seen(installed(json!({"cidr": "10.0.0.0/22"})));
        assert_eq!(found, Ok("croft-webhook admits the API servers' 10.0.1.5, 10.0.2.5".to_owned()));
    }

    #[test]
    fn api_servers_outside_of_the_blocks_are_named() {
        for block in
            [json!({"cidr": "10.0.1.0/24"}), json!({"cidr": "10.0.0.0/16", "except": ["10.0.2.0/24"]})]
        {
            let found = seen(installed(block));
            assert!(
                matches!(&found, Err(f) if f.status == Status::Warn && f.what.contains("at 10.0.2.5:") && f.remedy.contains("apiServers")),
                "{found:?}"
            );
        }
        let found = seen(policy(json!([{"ports": [{"port": 80}]}])));
        assert!(
            matches!(&found, Err(f) if f.status == Status::Warn && f.what.contains("10.0.1.5, 10.0.2.5")),
            "{found:?}"
        );
    }

    #[test]
    fn open_blocks_and_no_policy_are_a_warning() {
        for found in [
            seen(installed(json!({"cidr": "0.0.0.0/0"}))),
            seen(policy(json!([{"ports": [{"port": 8000, "endPort": 9000}]}]))),
            verdict(&[], NUMBER, &[]),
        ] {
            assert!(matches!(found, Err(Problem { status: Status::Warn, .. })), "{found:?}");
        }
    }

    #[test]
    fn pods_as_a_source_may_be_the_api_servers() {
        let found = seen(policy(json!([{"from": [{"namespaceSelector": {}}]}])));
        assert!(matches!(found, Err(Problem { status: Status::Unknown, .. })), "{found:?}");
    }

    #[test]
    fn blocks_of_both_families_contain_their_addresses() {
        for (block, address, inside) in [
            ("0.0.0.0/0", "1.2.3.4", true),
            ("10.1.2.3/32", "10.1.2.3", true),
            ("10.1.2.3/32", "10.1.2.2", false),
            ("::/0", "fd00::1", true),
            ("::/0", "1.2.3.4", false),
            ("fd00::/64", "fd00::1:0:0:0", true),
            ("fd00::/64", "fd00:0:0:1::1", false),
        ] {
            let found = Block::parse(block).unwrap().contains(address.parse().unwrap());
            assert_eq!(found, inside, "{address} in {block}");
        }
    }
}
