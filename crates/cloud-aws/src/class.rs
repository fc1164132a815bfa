//! Resolves a class: what its selector terms match, and conditions for what they don't.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use croft_api::{
    EC2NodeClass,
    condition::{READY, Statement},
    nodeclass::{AmiStatus, SubnetStatus},
};
use croft_cloud::{
    ClassFindings, Fault, FaultClass,
    class::{family, kubelet, setup},
    userdata::{Family, NodeBoot, render},
};
use tokio::time::Instant;

use crate::{
    discovery::{self, ClusterFacts, Group, Images, Reservation, Serves, Subnet},
    memory::ClassSetup,
    profile,
    provider::AwsProvider,
};

const SUBNETS: &str = "SubnetsReady";
const GROUPS: &str = "SecurityGroupsReady";
const AMIS: &str = "AMIsReady";
const PROFILE: &str = "InstanceProfileReady";
const USER_DATA: &str = "UserDataReady";
// Not part of Ready: without what they name, the class launches the rest.
const VARIANTS: &str = "AMIsComplete";
const RESERVATIONS: &str = "CapacityReservationsReady";
const LAUNCHES: &str = "LaunchesAccepted";

/// EC2's limit of security groups of an interface: what an account has unless its quota was raised, and the most that the
/// quota can be. What the account's is, only a launch tells.
const DEFAULT_GROUPS: usize = 5;
const MOST_GROUPS: usize = 16;
/// An image selector that matches more images surely lacks a tag.
const MOST_IMAGES: usize = 100;

/// A class with what it resolves to.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) findings: ClassFindings,
    pub(crate) family: Family,
    pub(crate) subnets: Arc<Vec<Subnet>>,
    pub(crate) images: Arc<Images>,
    pub(crate) reservations: Arc<Vec<Reservation>>,
    pub(crate) cluster: Option<Arc<ClusterFacts>>,
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
                "spec.securityGroupSelectorTerms match {} security groups, and a network interface can have {MOST_GROUPS} at most: select fewer",
                groups.len()
            ),
        )
    } else if !vpcs.is_empty() && groups.iter().any(|g| !vpcs.contains(&g.vpc)) {
        fails(GROUPS, "SecurityGroupsOfAnotherVPC",
            "spec.securityGroupSelectorTerms match groups of another VPC than the subnets': add a tag that only the right ones have".to_owned())
    } else {
        let raised = if groups.len() > DEFAULT_GROUPS {
            format!(
                ", which need a raised quota: a network interface can have {DEFAULT_GROUPS} without (L-2AFB9258)"
            )
        } else {
            String::new()
        };
        holds(GROUPS, noted(format!("{} security groups{raised}", groups.len()), fault))
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
        let family = family(spec);
        if let Some(cluster) = &cluster {
            conditions.push(user_data_condition(class, family, cluster));
        }

        let ready = ready_condition(&conditions);
        conditions.push(ready);
        conditions.extend(variants_condition(&images));
        let reservations = self.look_up_reservations(class, &mut conditions).await;
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
            amis: amis(&images),
            instance_profile: profile,
            conditions,
        };
        if let Some(name) = &class.metadata.name {
            let of = |image| setup(spec, image, self.options.prefix_delegation);
            let by_image =
                images.found.iter().map(|image| (image.id.clone(), of(Some(&image.disks)))).collect();
            self.memory().setups.insert(name.clone(), ClassSetup { by_image, other: of(None) });
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
    ) -> (Option<Arc<ClusterFacts>>, Arc<Images>) {
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
                let found = images.found.len();
                conditions.push(if found == 0 {
                    fails(
                        AMIS,
                        "AMIsNotFound",
                        format!("no image matches spec.amiSelectorTerms: correct the terms ({})", key(terms)),
                    )
                } else if found > MOST_IMAGES {
                    fails(
                        AMIS,
                        "TooManyAMIs",
                        format!(
                            "spec.amiSelectorTerms match {found} images: add a tag that only the right ones have"
                        ),
                    )
                } else {
                    holds(AMIS, noted(format!("{found} images"), fault.as_ref()))
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
                        "no active capacity reservation matches spec.capacityReservationSelectorTerms ({}): instances are launched without one; correct or remove the terms, unless one is yet to come", key(terms)))
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

/// The images for a class's status: one line for each kind of types that an image is for.
fn amis(images: &Images) -> Vec<AmiStatus> {
    let lines = images.found.iter().flat_map(|image| {
        image.serves.makers().iter().map(|maker| AmiStatus {
            id: image.id.clone(),
            arch: image.arch.as_str().to_owned(),
            device: maker.map(str::to_owned),
        })
    });
    lines.collect()
}

/// Whether every selected image was found. `None` while none was: AMIsReady says so.
fn variants_condition(images: &Images) -> Option<Statement> {
    if images.found.is_empty() {
        return None;
    }
    Some(if images.missing.is_empty() {
        let by_alias = images.found.iter().any(|image| image.serves != Serves::Any);
        let others = if by_alias {
            "; instance types with devices that status.amis doesn't name aren't launched"
        } else {
            "; any of them is used for instance types with devices"
        };
        holds(VARIANTS, format!("every term of spec.amiSelectorTerms has an image{others}"))
    } else {
        fails(
            VARIANTS,
            "AMIsMissing",
            format!(
                "no image for {}: instance types that need it aren't launched, the others are; name another version, or images by id",
                images.missing.join(", ")
            ),
        )
    })
}

/// The class's user data is rendered once for a node without labels and taints, so that an error shows before a pod is
/// pending.
fn user_data_condition(class: &EC2NodeClass, family: Family, cluster: &ClusterFacts) -> Statement {
    let kubelet = kubelet(&class.spec);
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
