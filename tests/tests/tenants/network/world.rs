//! Drawn tenants, namespaces and policies of people, and what they mean: which connections are allowed, derived from the
//! declarations and not from NetworkPolicies.

use std::{collections::BTreeSet, net::IpAddr};

use croft_simkit::Random;
use croft_tests::cyclonus::{End, Traffic};
use serde_json::{Value, json};

/// Namespaces of no tenant.
pub(crate) const OTHERS: [&str; 4] = ["kube-system", "monitoring", "ingress", "plain"];
/// Blocks of addresses in both families, of which some contain others, and no pod's address is in one.
const BLOCKS: [&str; 6] =
    ["10.0.0.0/8", "10.1.0.0/16", "203.0.113.7/32", "0.0.0.0/0", "fd00:10::/32", "2001:db8:1::/48"];
/// Addresses outside the cluster: inside and outside of the blocks, and of DNS.
const ADDRESSES: [&str; 10] = [
    "10.0.0.9",
    "10.1.2.3",
    "10.2.0.1",
    "203.0.113.7",
    "203.0.113.8",
    "169.254.20.10",
    "fd00:10::5",
    "fd00:10:0:7::1",
    "2001:db8:1::1",
    "fd00:ec2::253",
];
const PORTS: [(&str, u16); 5] = [("TCP", 80), ("TCP", 8080), ("UDP", 80), ("UDP", 53), ("TCP", 53)];
const APPS: [&str; 2] = ["web", "db"];

/// A namespace, or a block without a smaller one.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    Namespace(String),
    Block(&'static str, Option<String>),
}

impl Peer {
    fn draw(random: &mut Random, namespaces: &[String]) -> Self {
        if random.percent(50) {
            return Self::Namespace(random.pick(namespaces).unwrap().clone());
        }
        let block = random.one_of(&BLOCKS);
        // A smaller block, at the beginning of the larger one.
        let except = random.percent(50).then(|| {
            let (address, bits) = block.split_once('/').unwrap();
            let bits: u8 = bits.parse().unwrap();
            let (more, longest) = if address.contains(':') { (32, 128) } else { (16, 32) };
            format!("{address}/{}", (bits + more).min(longest))
        });
        Self::Block(block, except.filter(|except| except != block))
    }

    fn as_json(&self) -> Value {
        match self {
            Self::Namespace(name) => json!({"namespace": name}),
            Self::Block(cidr, None) => json!({"cidr": cidr}),
            Self::Block(cidr, Some(except)) => json!({"cidr": cidr, "except": [except]}),
        }
    }

    fn is(&self, end: &End) -> bool {
        match self {
            Self::Namespace(name) => end.pod.as_ref().is_some_and(|(namespace, _)| namespace == name),
            Self::Block(cidr, except) => {
                contains(cidr, &end.address) && !except.as_ref().is_some_and(|e| contains(e, &end.address))
            }
        }
    }
}

fn bits(address: &str) -> (u128, u32) {
    match address.parse().unwrap() {
        IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    }
}

/// True if a block contains an address of the same family.
pub(crate) fn contains(block: &str, address: &str) -> bool {
    let (base, prefix) = block.split_once('/').unwrap();
    let ((base, length), (address, other)) = (bits(base), bits(address));
    let kept = length - prefix.parse::<u32>().unwrap();
    length == other && (kept == 128 || base >> kept == address >> kept)
}

/// A tenant's isolation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Isolation {
    pub(crate) enabled: bool,
    restricted: bool,
    from: Vec<Peer>,
    to: Vec<Peer>,
}

impl Isolation {
    /// The first numbers are the plain cases, the others are drawn.
    fn draw(random: &mut Random, number: usize, namespaces: &[String]) -> Self {
        let mut peers = |most| (0..random.between(0, most)).map(|_| Peer::draw(random, namespaces)).collect();
        let (from, to): (Vec<_>, Vec<_>) = (peers(3), peers(3));
        match number {
            0 => Self { from, to, ..Self::default() },
            1 => Self { enabled: true, ..Self::default() },
            2 => Self { enabled: true, restricted: true, ..Self::default() },
            _ => Self { enabled: random.percent(80), restricted: random.percent(60), from, to },
        }
    }

    pub(crate) fn as_json(&self) -> Value {
        let list = |peers: &[Peer]| peers.iter().map(Peer::as_json).collect::<Vec<_>>();
        let mut isolation = json!({"enabled": self.enabled, "egress": "Open", "allowFrom": list(&self.from)});
        if self.restricted {
            isolation["egress"] = json!("Restricted");
            isolation["allowTo"] = json!(list(&self.to));
        }
        isolation
    }
}

/// The meaning of a policy that a user wrote.
#[derive(Clone, Debug)]
enum Says {
    Admit(Vec<Source>),
    Send(Vec<Source>),
}

/// Where traffic comes from or goes to, by a policy of people's.
#[derive(Clone, Debug)]
enum Source {
    Anywhere,
    Port(u16),
    Peer(Peer),
    /// Pods of the same namespace with this label.
    App(&'static str),
}

/// A policy that a user wrote: for all pods of a namespace, or those of one app.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    namespace: String,
    name: String,
    app: Option<&'static str>,
    says: Says,
}

impl Written {
    fn draw(random: &mut Random, namespace: &str, name: String, namespaces: &[String]) -> Self {
        let app = random.percent(30).then(|| random.one_of(&APPS));
        let one = match random.below(5) {
            0 => vec![],
            1 => vec![Source::Anywhere],
            2 => vec![Source::Port(8080)],
            3 => vec![Source::App(random.one_of(&APPS))],
            _ => vec![Source::Peer(Peer::draw(random, namespaces))],
        };
        let says = if random.percent(60) { Says::Admit(one) } else { Says::Send(one) };
        Self { namespace: namespace.to_owned(), name, app, says }
    }

    pub(crate) fn as_json(&self) -> Value {
        let (kind, field, side, sources) = match &self.says {
            Says::Admit(sources) => ("Ingress", "ingress", "from", sources),
            Says::Send(sources) => ("Egress", "egress", "to", sources),
        };
        let rule = |source: &Source| match source {
            Source::Anywhere => json!({}),
            Source::Port(port) => json!({"ports": [{"protocol": "TCP", "port": port}]}),
            Source::App(app) => json!({side: [{"podSelector": {"matchLabels": {"app": app}}}]}),
            Source::Peer(Peer::Namespace(name)) => {
                json!({side: [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}]})
            }
            Source::Peer(block @ Peer::Block(..)) => json!({side: [{"ipBlock": block.as_json()}]}),
        };
        let pods = self.app.map_or_else(|| json!({}), |app| json!({"matchLabels": {"app": app}}));
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {"podSelector": pods, "policyTypes": [kind], field: sources.iter().map(rule).collect::<Vec<_>>()},
        })
    }

    fn applies_to(&self, namespace: &str, app: &str) -> bool {
        self.namespace == namespace && self.app.is_none_or(|only| only == app)
    }
}

impl Source {
    fn is(&self, namespace: &str, peer: &End, traffic: &Traffic) -> bool {
        match self {
            Self::Anywhere => true,
            Self::Port(port) => traffic.protocol == "TCP" && traffic.port == *port,
            Self::App(app) => peer.pod.as_ref().is_some_and(|(of, label)| of == namespace && label == app),
            Self::Peer(other) => other.is(peer),
        }
    }
}

/// Tenants, their namespaces, and policies of people.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) tenants: Vec<(String, Vec<String>, Isolation)>,
    pub(crate) written: Vec<Written>,
}

impl World {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let names: Vec<(String, Vec<String>)> = (0..6)
            .map(|number| {
                let own = (0..random.between(1, 3)).map(|n| format!("net-{number}-{n}")).collect();
                (format!("net-{number}"), own)
            })
            .collect();
        let all: Vec<String> = names
            .iter()
            .flat_map(|(_, own)| own.clone())
            .chain(OTHERS.iter().map(|name| (*name).to_owned()))
            .collect();
        let mut world = Self { tenants: Vec::new(), written: Vec::new() };
        for (number, (name, own)) in names.into_iter().enumerate() {
            world.tenants.push((name, own, Isolation::draw(random, number, &all)));
        }
        for namespace in &all {
            for number in 0..random.below(3) {
                let written = Written::draw(random, namespace, format!("by-hand-{number}"), &all);
                // DNS of the whole cluster stays open.
                if namespace != "kube-system" {
                    world.written.push(written);
                }
            }
        }
        world
    }

    /// The same tenants and policies of people, with newly drawn isolations.
    pub(crate) fn redraw(&mut self, random: &mut Random) {
        let all = self.namespaces();
        for (_, _, isolation) in &mut self.tenants {
            *isolation = Isolation::draw(random, 3, &all);
        }
    }

    pub(crate) fn namespaces(&self) -> Vec<String> {
        let own = self.tenants.iter().flat_map(|(_, own, _)| own.clone());
        own.chain(OTHERS.iter().map(|name| (*name).to_owned())).collect()
    }

    fn tenant_of(&self, namespace: &str) -> Option<&(String, Vec<String>, Isolation)> {
        self.tenants.iter().find(|(_, own, _)| own.iter().any(|name| name == namespace))
    }

    /// Every pod to every pod, and to and from every address, on every port.
    pub(crate) fn traffic(&self) -> Vec<Traffic> {
        let pods: Vec<[End; 2]> = self
            .namespaces()
            .iter()
            .flat_map(|namespace| APPS.map(|app| (namespace.clone(), app.to_owned())))
            .enumerate()
            .map(|(n, pod)| {
                [format!("192.168.0.{}", n + 1), format!("fd99::{:x}", n + 1)]
                    .map(|address| End { address, pod: Some(pod.clone()) })
            })
            .collect();
        let outside = ADDRESSES.map(|address| End { address: address.to_owned(), pod: None });
        let mut found = Vec::new();
        let mut add = |from: &End, to: &End| {
            found.extend(PORTS.map(|(protocol, port)| Traffic {
                from: from.clone(),
                to: to.clone(),
                protocol,
                port,
            }));
        };
        for (n, pod) in pods.iter().enumerate() {
            for (m, other) in pods.iter().enumerate() {
                // Each pair in one family.
                add(&pod[(n + m) % 2], &other[(n + m) % 2]);
            }
            for address in &outside {
                let family = usize::from(address.address.contains(':'));
                add(&pod[family], address);
                add(address, &pod[family]);
            }
        }
        found
    }

    /// True if both ends allow a connection.
    pub(crate) fn allows(&self, traffic: &Traffic) -> bool {
        self.admits(traffic) && self.sends(traffic)
    }

    fn admits(&self, traffic: &Traffic) -> bool {
        let Some((namespace, app)) = &traffic.to.pod else { return true };
        let mut verdicts = Vec::new();
        if let Some((_, own, isolation)) = self.tenant_of(namespace).filter(|(_, _, i)| i.enabled) {
            verdicts
                .push(is_of(own, &traffic.from) || isolation.from.iter().any(|peer| peer.is(&traffic.from)));
        }
        for written in self.written.iter().filter(|written| written.applies_to(namespace, app)) {
            if let Says::Admit(sources) = &written.says {
                verdicts.push(sources.iter().any(|source| source.is(namespace, &traffic.from, traffic)));
            }
        }
        verdicts.is_empty() || verdicts.contains(&true)
    }

    fn sends(&self, traffic: &Traffic) -> bool {
        let Some((namespace, app)) = &traffic.from.pod else { return true };
        let mut verdicts = Vec::new();
        if let Some((_, own, isolation)) =
            self.tenant_of(namespace).filter(|(_, _, i)| i.enabled && i.restricted)
        {
            verdicts.push(
                is_of(own, &traffic.to)
                    || isolation.to.iter().any(|peer| peer.is(&traffic.to))
                    || is_dns(traffic),
            );
        }
        for written in self.written.iter().filter(|written| written.applies_to(namespace, app)) {
            if let Says::Send(sources) = &written.says {
                verdicts.push(sources.iter().any(|source| source.is(namespace, &traffic.to, traffic)));
            }
        }
        verdicts.is_empty() || verdicts.contains(&true)
    }

    /// Namespaces that should have a policy of Croft's.
    pub(crate) fn isolated(&self) -> BTreeSet<String> {
        let isolated = self.tenants.iter().filter(|(_, _, isolation)| isolation.enabled);
        isolated.flat_map(|(_, own, _)| own.clone()).collect()
    }
}

fn is_of(own: &[String], end: &End) -> bool {
    end.pod.as_ref().is_some_and(|(namespace, _)| own.contains(namespace))
}

/// DNS of the cluster: CoreDNS, a cache on the node, and the resolvers of EC2.
fn is_dns(traffic: &Traffic) -> bool {
    let there = match &traffic.to.pod {
        Some((namespace, _)) => namespace == "kube-system",
        None => ["169.254.20.10", "fd00:ec2::253"].contains(&traffic.to.address.as_str()),
    };
    there && traffic.port == 53
}
