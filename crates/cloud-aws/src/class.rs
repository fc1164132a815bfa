//! Resolves a class: what its selector terms match, and conditions for what they don't.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use croft_api::{
    EC2NodeClass,
    amount::Amount,
    condition::{READY, Statement},
    nodeclass::{AmiFamily, AmiStatus, InstanceStorePolicy, SubnetStatus},
};
use croft_cloud::{
    ClassFindings, Fault, FaultClass,
    facts::{DEFAULT_ROOT_GIB, Kept, Setup, Threshold},
    userdata::{Family, KubeletSetup, NodeBoot, render},
};
use croft_scheduler::{Quantity, Resources};
use tokio::time::Instant;

use crate::{
    discovery::{self, Alias, ClusterFacts, Group, Image, Reservation, Subnet},
    profile,
    provider::AwsProvider,
    template,
};

const SUBNETS: &str = "SubnetsReady";
const GROUPS: &str = "SecurityGroupsReady";
const AMIS: &str = "AMIsReady";
const PROFILE: &str = "InstanceProfileReady";
const USER_DATA: &str = "UserDataReady";
const RESERVATIONS: &str = "CapacityReservationsReady";
const LAUNCHES: &str = "LaunchesAccepted";

/// EC2's default limit of security groups of an interface.
const MOST_GROUPS: usize = 5;
/// An image selector that matches more images surely lacks a tag.
const MOST_IMAGES: usize = 100;

/// A class with what it resolves to.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) findings: ClassFindings,
    pub(crate) family: Family,
    pub(crate) subnets: Arc<Vec<Subnet>>,
    pub(crate) images: Arc<Vec<Image>>,
    pub(crate) reservations: Arc<Vec<Reservation>>,
    pub(crate) cluster: Option<Arc<ClusterFacts>>,
}

/// Settings of the class's instances that affect their capacity.
pub(crate) fn setup(class: &EC2NodeClass, prefix_delegation: bool) -> Setup {
    let mappings = &class.spec.block_device_mappings;
    // The disk marked as root volume, else the last one: Bottlerocket's data disk is its second.
    let root = mappings.iter().find(|m| m.root_volume).or_else(|| mappings.last());
    let kubelet = class.spec.kubelet.as_ref();
    let images = Setup::default();
    let threshold = |signal: &str| kubelet.and_then(|k| Threshold::parse(k.eviction_hard.get(signal)?));
    let gib = root.and_then(|m| m.ebs.volume_size.as_ref()).and_then(|size| template::gib(&size.0));
    Setup {
        max_pods: kubelet.and_then(|k| k.max_pods),
        root_volume_gib: gib.and_then(|gib| u64::try_from(gib).ok()).unwrap_or(DEFAULT_ROOT_GIB),
        instance_store: class.spec.instance_store_policy == Some(InstanceStorePolicy::RAID0),
        prefix_delegation,
        kube_reserved: kept(kubelet.map(|k| &k.kube_reserved)),
        system_reserved: kept(kubelet.map(|k| &k.system_reserved)),
        eviction_memory: threshold("memory.available").unwrap_or(images.eviction_memory),
        eviction_disk: threshold("nodefs.available").unwrap_or(images.eviction_disk),
    }
}

fn kept(amounts: Option<&BTreeMap<String, Amount>>) -> Kept {
    let native = |name: &str| {
        let quantity: Quantity = amounts?.get(name)?.0.parse().ok()?;
        let mut one = Resources::new();
        one.set_quantity(name, quantity);
        Some(one.get(name))
    };
    Kept { cpu_milli: native("cpu"), memory: native("memory"), disk: native("ephemeral-storage") }
}

/// The class's kubelet settings, for user data.
pub(crate) fn kubelet(class: &EC2NodeClass) -> KubeletSetup {
    let Some(kubelet) = &class.spec.kubelet else { return KubeletSetup::default() };
    let amounts = |map: &BTreeMap<String, Amount>| {
        map.iter().map(|(name, amount)| (name.clone(), amount.0.clone())).collect()
    };
    KubeletSetup {
        max_pods: kubelet.max_pods,
        cluster_dns: kubelet.cluster_dns.clone(),
        kube_reserved: amounts(&kubelet.kube_reserved),
        system_reserved: amounts(&kubelet.system_reserved),
        eviction_hard: kubelet.eviction_hard.clone(),
    }
}

fn family(class: &EC2NodeClass) -> Family {
    match class.spec.ami_family {
        Some(AmiFamily::AL2023) => Family::Al2023,
        Some(AmiFamily::AL2) => Family::Al2,
        Some(AmiFamily::Bottlerocket) => Family::Bottlerocket,
        Some(AmiFamily::Ubuntu) => Family::Ubuntu,
        Some(AmiFamily::Custom) => Family::Custom,
        None => class
            .spec
            .ami_selector_terms
            .iter()
            .find_map(|term| Alias::parse(term.alias.as_deref()?).ok())
            .map_or(Family::Custom, |alias| alias.family),
    }
}

/// The cache key of selector terms.
fn key<T: serde::Serialize>(terms: &T) -> String {
    serde_json::to_string(terms).unwrap_or_default()
}

fn holds(kind: &'static str, message: String) -> Statement {
    Statement { kind, status: Some(true), reason: "Found", message }
}

fn fails(kind: &'static str, reason: &'static str, message: String) -> Statement {
    Statement { kind, status: Some(false), reason, message }
}

/// A fault as a condition: status Unknown if AWS could not answer.
fn faulty(kind: &'static str, fault: &Fault) -> Statement {
    let status = match fault.class {
        FaultClass::Throttled | FaultClass::Unavailable => None,
        _ => Some(false),
    };
    Statement { kind, status, reason: fault.class.as_str(), message: fault.to_string() }
}

/// The message, with the fault if the answer is a cached one.
fn noted(message: String, fault: Option<&Fault>) -> String {
    match fault {
        Some(fault) => format!("{message}; found earlier, since now {fault}"),
        None => message,
    }
}

/// The condition of the subnets that a class selects.
fn subnet_condition(
    subnets: &[Subnet],
    fault: Option<&Fault>,
    class: &EC2NodeClass,
    region: &str,
) -> Statement {
    let zones: BTreeSet<&String> = subnets.iter().map(|s| &s.zone).collect();
    let vpcs: BTreeSet<&String> = subnets.iter().map(|s| &s.vpc).collect();
    if subnets.is_empty() {
        fails(
            SUBNETS,
            "SubnetsNotFound",
            format!(
                "no subnet matches spec.subnetSelectorTerms in {}: tag the subnets, or correct the terms ({})",
                region,
                key(&class.spec.subnet_selector_terms)
            ),
        )
    } else if vpcs.len() > 1 {
        fails(
            SUBNETS,
            "SubnetsOfSeveralVPCs",
            format!(
                "the subnets that spec.subnetSelectorTerms match are in {} VPCs: add a tag that only one has",
                vpcs.len()
            ),
        )
    } else if subnets.iter().all(|s| s.free <= 0) {
        fails(
            SUBNETS,
            "SubnetsFull",
            format!(
                "none of the {} subnets that spec.subnetSelectorTerms match has a free address: add larger ones, or free addresses",
                subnets.len()
            ),
        )
    } else {
        let full = subnets.iter().filter(|s| s.free <= 0).count();
        let full = if full > 0 { format!(", {full} without a free address") } else { String::new() };
        let message = format!("{} subnets in {} zones{full}", subnets.len(), zones.len());
        holds(SUBNETS, noted(message, fault))
    }
}

/// The condition of the security groups that a class selects; `vpcs` are those of its subnets.
fn group_condition(
    groups: &[Group],
    fault: Option<&Fault>,
    class: &EC2NodeClass,
    vpcs: &BTreeSet<String>,
) -> Statement {
    if groups.is_empty() {
        fails(
            GROUPS,
            "SecurityGroupsNotFound",
            format!(
                "no security group matches spec.securityGroupSelectorTerms: tag the group, or correct the terms ({})",
                key(&class.spec.security_group_selector_terms)
            ),
        )
    } else if groups.len() > MOST_GROUPS {
        fails(
            GROUPS,
            "TooManySecurityGroups",
            format!(
                "spec.securityGroupSelectorTerms match {} security groups, and a network interface can have {MOST_GROUPS}: select fewer",
                groups.len()
            ),
        )
    } else if !vpcs.is_empty() && groups.iter().any(|g| !vpcs.contains(&g.vpc)) {
        fails(GROUPS, "SecurityGroupsOfAnotherVPC",
            "spec.securityGroupSelectorTerms match groups of another VPC than the subnets': add a tag that only the right ones have".to_owned())
    } else {
        holds(GROUPS, noted(format!("{} security groups", groups.len()), fault))
    }
}

/// Ready, as the other conditions make it.
fn ready_condition(conditions: &[Statement]) -> Statement {
    let bad = conditions
        .iter()
        .find(|c| c.status == Some(false))
        .or_else(|| conditions.iter().find(|c| c.status.is_none()));
    match bad {
        None => Statement {
            kind: READY,
            status: Some(true),
            reason: "Ready",
            message: "instances can be launched".to_owned(),
        },
        Some(bad) => {
            Statement { kind: READY, status: bad.status, reason: bad.reason, message: bad.message.clone() }
        }
    }
}

impl AwsProvider {
    /// Resolves everything that the class names.
    pub(crate) async fn look_up(&self, class: &EC2NodeClass) -> Found {
        let spec = &class.spec;
        let (clients, paces) = (&self.clients, &self.paces);
        let mut conditions = Vec::new();

        let subnet_terms = &spec.subnet_selector_terms;
        let (subnet_key, group_key) = (key(subnet_terms), key(&spec.security_group_selector_terms));
        let subnets = self.subnets.get(&subnet_key, discovery::subnets(clients, paces, subnet_terms));
        let group_terms = &spec.security_group_selector_terms;
        let groups = self.groups.get(&group_key, discovery::groups(clients, paces, group_terms));
        let (subnets, groups, cluster) = tokio::join!(subnets, groups, self.cluster_facts());

        let mut vpcs = BTreeSet::new();
        let subnets = match subnets {
            Ok((subnets, fault)) => {
                vpcs.extend(subnets.iter().map(|s| s.vpc.clone()));
                conditions.push(subnet_condition(&subnets, fault.as_ref(), class, &clients.region));
                subnets
            }
            Err(fault) => {
                conditions.push(faulty(SUBNETS, &fault));
                Arc::default()
            }
        };
        let groups = match groups {
            Ok((groups, fault)) => {
                conditions.push(group_condition(&groups, fault.as_ref(), class, &vpcs));
                groups
            }
            Err(fault) => {
                conditions.push(faulty(GROUPS, &fault));
                Arc::default()
            }
        };

        let (cluster, images) = self.look_up_images(class, cluster, &mut conditions).await;
        let profile = self.look_up_profile(class, &mut conditions).await;
        let reservations = self.look_up_reservations(class, &mut conditions).await;
        let family = family(class);
        if let Some(cluster) = &cluster {
            conditions.push(user_data_condition(class, family, cluster));
        }

        let ready = ready_condition(&conditions);
        conditions.push(ready);
        // Not part of Ready, so that the next launch is attempted, which is what clears this condition.
        conditions.push(self.last_launch(class));

        let mut by_room: Vec<&Subnet> = subnets.iter().collect();
        by_room.sort_by(|a, b| a.zone.cmp(&b.zone).then(b.free.cmp(&a.free)).then_with(|| a.id.cmp(&b.id)));
        let findings = ClassFindings {
            subnets: by_room
                .into_iter()
                .map(|s| SubnetStatus { id: s.id.clone(), zone: s.zone.clone() })
                .collect(),
            security_groups: groups.iter().map(|g| g.id.clone()).collect(),
            amis: images
                .iter()
                .map(|i| AmiStatus {
                    id: i.id.clone(),
                    arch: i.arch.as_str().to_owned(),
                    device: i.device.clone(),
                })
                .collect(),
            instance_profile: profile,
            conditions,
        };
        if let Some(name) = &class.metadata.name {
            let setup = setup(class, self.options.prefix_delegation);
            self.memory().setups.insert(name.clone(), setup);
        }
        Found { findings, family, subnets, images, reservations, cluster }
    }

    fn last_launch(&self, class: &EC2NodeClass) -> Statement {
        let memory = self.memory();
        match class.metadata.name.as_ref().and_then(|name| memory.refusals.get(name)) {
            Some(fault) => fails(LAUNCHES, fault.class.as_str(), fault.to_string()),
            None => Statement {
                kind: LAUNCHES,
                status: Some(true),
                reason: "NotRefused",
                message: "no launch was refused for good lately".to_owned(),
            },
        }
    }

    async fn look_up_images(
        &self,
        class: &EC2NodeClass,
        cluster: Result<(Arc<ClusterFacts>, Option<Fault>), Fault>,
        conditions: &mut Vec<Statement>,
    ) -> (Option<Arc<ClusterFacts>>, Arc<Vec<Image>>) {
        let cluster = match cluster {
            Ok((cluster, _)) => cluster,
            Err(fault) => {
                // Without the cluster's version no alias resolves, and without its address no node joins.
                conditions.push(faulty(AMIS, &fault));
                return (None, Arc::default());
            }
        };
        let terms = &class.spec.ami_selector_terms;
        let question = format!("{}\n{}", cluster.version, key(terms));
        let asked = discovery::images(&self.clients, &self.paces, terms, &cluster.version);
        match self.images.get(&question, asked).await {
            Ok((images, fault)) => {
                conditions.push(if images.is_empty() {
                    fails(
                        AMIS,
                        "AMIsNotFound",
                        format!("no image matches spec.amiSelectorTerms: correct the terms ({})", key(terms)),
                    )
                } else if images.len() > MOST_IMAGES {
                    fails(
                        AMIS,
                        "TooManyAMIs",
                        format!(
                            "spec.amiSelectorTerms match {} images: add a tag that only the right ones have",
                            images.len()
                        ),
                    )
                } else {
                    holds(AMIS, noted(format!("{} images", images.len()), fault.as_ref()))
                });
                (Some(cluster), images)
            }
            Err(fault) => {
                conditions.push(faulty(AMIS, &fault));
                (Some(cluster), Arc::default())
            }
        }
    }

    async fn look_up_profile(&self, class: &EC2NodeClass, conditions: &mut Vec<Statement>) -> Option<String> {
        let Some(role) = &class.spec.role else {
            let profile = class.spec.instance_profile.clone();
            conditions.push(match &profile {
                Some(name) => holds(PROFILE, format!("instance profile {name}, which exists already")),
                None => {
                    fails(PROFILE, "NoInstanceProfile", "write spec.role or spec.instanceProfile".to_owned())
                }
            });
            return profile;
        };
        let make = async {
            let cluster = &self.options.cluster_uid;
            let (name, new) = profile::ensure(&self.clients, &self.paces, cluster, role).await?;
            if new {
                self.memory().new_profiles.insert(name.clone(), Instant::now());
            }
            Ok(name)
        };
        match self.profiles.get(role, make).await {
            Ok((name, fault)) => {
                conditions.push(holds(
                    PROFILE,
                    noted(format!("instance profile {name} for role {role}"), fault.as_ref()),
                ));
                Some(name.as_ref().clone())
            }
            Err(fault) => {
                conditions.push(faulty(PROFILE, &fault));
                None
            }
        }
    }

    async fn look_up_reservations(
        &self,
        class: &EC2NodeClass,
        conditions: &mut Vec<Statement>,
    ) -> Arc<Vec<Reservation>> {
        let terms = &class.spec.capacity_reservation_selector_terms;
        if terms.is_empty() {
            return Arc::default();
        }
        let asked = discovery::reservations(&self.clients, &self.paces, terms);
        match self.reservations.get(&key(terms), asked).await {
            Ok((found, fault)) => {
                conditions.push(if found.is_empty() {
                    fails(RESERVATIONS, "CapacityReservationsNotFound", format!(
                        "no active capacity reservation matches spec.capacityReservationSelectorTerms ({}): correct or remove the terms", key(terms)))
                } else {
                    holds(RESERVATIONS, noted(format!("{} capacity reservations", found.len()), fault.as_ref()))
                });
                found
            }
            Err(fault) => {
                conditions.push(faulty(RESERVATIONS, &fault));
                Arc::default()
            }
        }
    }

    /// The cluster from the options, or as EKS describes it.
    async fn cluster_facts(&self) -> Result<(Arc<ClusterFacts>, Option<Fault>), Fault> {
        let o = &self.options;
        if let (Some(endpoint), Some(ca), Some(version)) =
            (&o.cluster_endpoint, &o.cluster_ca, &o.kubernetes_version)
        {
            let facts = ClusterFacts {
                name: o.cluster_name.clone(),
                endpoint: endpoint.clone(),
                ca: STANDARD.encode(ca),
                service_cidr: o.service_cidr.clone().unwrap_or_else(|| "10.96.0.0/12".to_owned()),
                version: version.clone(),
            };
            return Ok((Arc::new(facts), None));
        }
        self.cluster.get(&(), discovery::cluster(&self.clients, &self.paces, &o.cluster_name)).await
    }
}

/// The class's user data is rendered once for a node without labels and taints, so that an error shows before a pod is
/// pending.
fn user_data_condition(class: &EC2NodeClass, family: Family, cluster: &ClusterFacts) -> Statement {
    let kubelet = kubelet(class);
    let boot = NodeBoot {
        cluster: &cluster.name,
        endpoint: &cluster.endpoint,
        ca: &cluster.ca,
        service_cidr: &cluster.service_cidr,
        labels: &BTreeMap::new(),
        taints: &[],
        kubelet: &kubelet,
        instance_store: class.spec.instance_store_policy.is_some(),
        custom: class.spec.user_data.as_deref(),
    };
    match render(family, &boot) {
        Ok(made) => {
            let packed = made.packed.map(|p| format!(", {} compressed", p.len())).unwrap_or_default();
            holds(USER_DATA, format!("{} bytes{packed} before labels and taints", made.text.len()))
        }
        Err(error) => fails(USER_DATA, "UserDataInvalid", error.to_string()),
    }
}
