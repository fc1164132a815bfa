//! Which servers are asked without the proxy of the environment, as kubectl has it. Called by [`crate::connect`].
//!
//! The client takes the proxy of `HTTPS_PROXY`, and compares `NO_PROXY` with the proxy's own address alone.

use std::net::IpAddr;

use http::Uri;
use ipnet::IpNet;
use kube::Config;

/// Where the client looks for a proxy.
const PROXY: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];

/// Leaves out a proxy of the environment for a server on this computer or one that `NO_PROXY` names. `variable` is a variable of the
/// environment. A proxy of the kubeconfig stays.
pub(crate) fn leave_out_exempt(config: &mut Config, variable: impl Fn(&str) -> Option<String>) {
    let host = config.cluster_url.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let exempt = variable("NO_PROXY").or_else(|| variable("no_proxy")).unwrap_or_default();
    let mut proxies = PROXY.into_iter().filter_map(&variable).filter_map(|text| text.parse::<Uri>().ok());
    let is_of_environment = config.proxy_url.as_ref().is_some_and(|proxy| proxies.any(|one| one == *proxy));
    if is_of_environment && (is_this_computer(&host) || is_named(&exempt, &host)) {
        config.proxy_url = None;
    }
}

fn is_this_computer(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// True if a list as in `NO_PROXY` names the host: by itself, by a domain above it, by a network that it is in, or by `*`.
fn is_named(list: &str, host: &str) -> bool {
    list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).any(|entry| {
        let domain = entry.trim_start_matches("*.").trim_start_matches('.').to_ascii_lowercase();
        entry == "*"
            || host == domain
            || host.strip_suffix(&domain).is_some_and(|before| before.ends_with('.'))
            || host.parse().is_ok_and(|address| is_in(address, entry))
    })
}

/// True if the address is in a network such as `10.0.0.0/8`.
fn is_in(address: IpAddr, network: &str) -> bool {
    network.parse::<IpNet>().is_ok_and(|network| network.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_of_the_environment_is_left_out_for_this_computer_and_for_no_proxy() {
        let left = |server: &str, proxy: &str, exempt: &str| {
            let mut config = Config::new(server.parse().unwrap());
            config.proxy_url = Some(proxy.parse().unwrap());
            leave_out_exempt(&mut config, |name| match name {
                "HTTPS_PROXY" => Some("http://proxy:3128".to_owned()),
                "NO_PROXY" => Some(exempt.to_owned()),
                _ => None,
            });
            config.proxy_url.is_some()
        };
        let of_environment = "http://proxy:3128";
        assert!(left("https://abc.eks.amazonaws.com", of_environment, ""));
        for local in ["https://127.0.0.1:6443", "https://localhost:6443", "https://[::1]:6443"] {
            assert!(!left(local, of_environment, ""), "{local}");
            assert!(left(local, "http://of-the-kubeconfig:1", "*"), "{local}");
        }
        for exempt in
            ["*", "amazonaws.com", ".amazonaws.com", "*.eks.amazonaws.com, x", "ABC.eks.amazonaws.com"]
        {
            assert!(!left("https://abc.eks.amazonaws.com", of_environment, exempt), "{exempt}");
        }
        for other in ["naws.com", "b.eks.amazonaws.com", "10.0.0.0/8", "/"] {
            assert!(left("https://abc.eks.amazonaws.com", of_environment, other), "{other}");
        }
    }

    #[test]
    fn network_holds_the_addresses_that_begin_as_it_does() {
        for (address, network, expected) in [
            ("10.1.2.3", "10.0.0.0/8", true),
            ("11.1.2.3", "10.0.0.0/8", false),
            ("10.1.2.3", "10.1.2.3/32", true),
            ("10.1.2.3", "0.0.0.0/0", true),
            ("fd00::1", "fd00::/8", true),
            ("fd00::1", "10.0.0.0/8", false),
            ("10.1.2.3", "10.0.0.0/x", false),
        ] {
            assert_eq!(is_in(address.parse().unwrap(), network), expected, "{address} {network}");
        }
    }
}
