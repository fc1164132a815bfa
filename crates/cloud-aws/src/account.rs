//! Reads of the account around a cluster, for `croft check`: access entries at EKS, what reaches the queue, how subnets reach AWS.
//!
//! They are made with the operator's credentials, whose rights are the operator's own. Whatever isn't granted or doesn't answer
//! is an [`Unread`] with the reason, never a finding. docs/aws-permissions.md lists the actions.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use aws_sdk_ec2::types::{Filter, RouteTable};
use aws_sdk_sqs::types::QueueAttributeName;
use aws_smithy_runtime_api::client::{orchestrator::HttpResponse, result::SdkError};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use croft_cloud::{FaultClass, tags};

use crate::{
    connect::{self, Access, Clients},
    provider::Identity,
    refusal,
};

/// Routes of the whole internet.
const DEFAULT_ROUTES: [&str; 2] = ["0.0.0.0/0", "::/0"];
/// At most this many ids are in a filter of EC2. Source: "Filtering", the EC2 API Reference.
const MOST_FILTERED: usize = 200;

/// Why something couldn't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread(String);

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The answer of a read; `None` for what doesn't exist.
pub type Read<T> = Result<Option<T>, Unread>;

/// A cluster at EKS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EksCluster {
    /// Such as `ACTIVE`.
    pub status: String,
    /// The API server's certificate authority in PEM; empty if it can't be read.
    pub authority: String,
    /// Its VPC.
    pub vpc: Option<String>,
    /// The subnets with the control plane's network interfaces.
    pub subnets: Vec<String>,
    /// The cluster security group, which the control plane's network interfaces have.
    pub security_group: Option<String>,
    /// `API`, `API_AND_CONFIG_MAP` or `CONFIG_MAP`; empty if EKS doesn't say.
    pub authentication_mode: String,
}

/// A queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueFacts {
    /// Its ARN; empty if its attributes can't be read.
    pub arn: String,
    /// Messages that wait, about.
    pub waiting: Option<u64>,
}

/// A rule of EventBridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventRule {
    /// Its name.
    pub name: String,
    /// True if it sends events.
    pub enabled: bool,
    /// The pattern of its events, as JSON; empty for none.
    pub pattern: String,
}

/// An active Fargate profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FargateProfile {
    /// Its name.
    pub name: String,
    /// It takes the pods of each of these.
    pub selectors: Vec<FargateSelector>,
}

/// Which pods a Fargate profile takes. In patterns `*` stands for any text and `?` for one character.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FargateSelector {
    /// The pattern of the namespace.
    pub namespace: String,
    /// The patterns of labels, all of which a pod must have.
    pub labels: BTreeMap<String, String>,
}

/// Reads the account of the credentials, in one region.
#[derive(Clone, Debug)]
pub struct AccountReader {
    clients: Clients,
}

fn unread<E>(action: &'static str, error: &SdkError<E, HttpResponse>) -> Unread
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let fault = refusal::fault(action, error);
    Unread(match fault.class {
        FaultClass::Forbidden => format!("it takes the right {action}"),
        _ => format!("{action}: {}: {}", fault.code, fault.message),
    })
}

/// The answer, or `None` if what was asked for doesn't exist.
fn read<T, E>(action: &'static str, answer: Result<T, SdkError<E, HttpResponse>>) -> Read<T>
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if refusal::fault(action, &error).class == FaultClass::NotFound => Ok(None),
        Err(error) => Err(unread(action, &error)),
    }
}

impl AccountReader {
    /// A reader with these credentials; `None` if `access` finds no region.
    pub async fn connect(access: &Access) -> Option<Self> {
        let clients = connect::connect(access).await;
        (!clients.region.is_empty()).then_some(Self { clients })
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.clients.region
    }

    /// True if an endpoint has the region's price list.
    #[must_use]
    pub const fn has_price_list(&self) -> bool {
        self.clients.pricing.is_some()
    }

    /// Whose credentials these are. It takes no right.
    ///
    /// # Errors
    /// If AWS doesn't say.
    pub async fn identity(&self) -> Result<Identity, Unread> {
        let answer = self.clients.sts.get_caller_identity().send().await;
        let answer = answer.map_err(|error| unread("sts:GetCallerIdentity", &error))?;
        Ok(Identity::read(&answer, &self.clients.region))
    }

    /// A cluster at EKS.
    ///
    /// # Errors
    /// If EKS doesn't say.
    pub async fn cluster(&self, name: &str) -> Read<EksCluster> {
        let found = read("eks:DescribeCluster", self.clients.eks.describe_cluster(name).await)?;
        Ok(found.flatten().map(|found| {
            let authority = found.certificate_authority.data.unwrap_or_default();
            let network = found.resources_vpc_config;
            EksCluster {
                status: found.status.unwrap_or_default(),
                authority: STANDARD
                    .decode(authority)
                    .ok()
                    .and_then(|pem| String::from_utf8(pem).ok())
                    .unwrap_or_default(),
                vpc: network.vpc_id,
                subnets: network.subnet_ids,
                security_group: network.cluster_security_group_id,
                authentication_mode: found.access_config.authentication_mode.unwrap_or_default(),
            }
        }))
    }

    /// The names of the account's clusters at EKS in the region.
    ///
    /// # Errors
    /// If EKS doesn't say.
    pub async fn clusters(&self) -> Result<Vec<String>, Unread> {
        let answer = self.clients.eks.list_clusters().await;
        answer.map_err(|error| unread("eks:ListClusters", &error))
    }

    /// The ARNs of the principals that a cluster's access entries let in.
    ///
    /// # Errors
    /// If EKS doesn't say.
    pub async fn access_entries(&self, cluster: &str) -> Result<Vec<String>, Unread> {
        let answer = self.clients.eks.list_access_entries(cluster).await;
        answer.map_err(|error| unread("eks:ListAccessEntries", &error))
    }

    /// The type of an access entry, such as `EC2_LINUX`.
    ///
    /// # Errors
    /// If EKS doesn't say.
    pub async fn access_entry_type(&self, cluster: &str, principal: &str) -> Read<String> {
        let answer = self.clients.eks.access_entry_type(cluster, principal).await;
        Ok(read("eks:DescribeAccessEntry", answer)?.flatten())
    }

    /// The ARN of the role that EKS Pod Identity gives a ServiceAccount.
    ///
    /// # Errors
    /// If EKS doesn't say.
    pub async fn pod_identity_role(&self, cluster: &str, namespace: &str, account: &str) -> Read<String> {
        let answer = self.clients.eks.list_pod_identities(cluster, namespace, account).await;
        let found = answer.map_err(|error| unread("eks:ListPodIdentityAssociations", &error))?;
        let Some(id) = found.first() else { return Ok(None) };
        let answer = self.clients.eks.pod_identity_role(cluster, id).await;
        Ok(read("eks:DescribePodIdentityAssociation", answer)?.flatten())
    }

    /// The active Fargate profiles of a cluster.
    ///
    /// # Errors
    /// If EKS doesn't say.
    pub async fn fargate_profiles(&self, cluster: &str) -> Result<Vec<FargateProfile>, Unread> {
        let names = self.clients.eks.list_fargate_profiles(cluster).await;
        let mut profiles = Vec::new();
        for name in names.map_err(|error| unread("eks:ListFargateProfiles", &error))? {
            let answer = self.clients.eks.describe_fargate_profile(cluster, &name).await;
            let Some(found) = read("eks:DescribeFargateProfile", answer)?.flatten() else { continue };
            if found.status == "ACTIVE" {
                let selectors = found.selectors.into_iter().map(|selector| FargateSelector {
                    namespace: selector.namespace,
                    labels: selector.labels.unwrap_or_default(),
                });
                profiles.push(FargateProfile { name, selectors: selectors.collect() });
            }
        }
        Ok(profiles)
    }

    /// The name of the role of an instance profile.
    ///
    /// # Errors
    /// If IAM doesn't say.
    pub async fn role_of_profile(&self, profile: &str) -> Read<String> {
        let found = read("iam:GetInstanceProfile", self.clients.iam.get(profile).await)?;
        Ok(found.and_then(|found| found.roles.into_iter().next()))
    }

    /// The queue of this name, in the account and region.
    ///
    /// # Errors
    /// If SQS doesn't say.
    pub async fn queue(&self, name: &str) -> Read<QueueFacts> {
        let answer = self.clients.sqs.get_queue_url().queue_name(name).send().await;
        let Some(url) = read("sqs:GetQueueUrl", answer)?.and_then(|found| found.queue_url) else {
            return Ok(None);
        };
        let answer = self
            .clients
            .sqs
            .get_queue_attributes()
            .queue_url(url)
            .attribute_names(QueueAttributeName::QueueArn)
            .attribute_names(QueueAttributeName::ApproximateNumberOfMessages)
            .send()
            .await;
        // The queue is there also for credentials that may not read more.
        let found = read("sqs:GetQueueAttributes", answer).ok().flatten();
        let attribute = |name: &QueueAttributeName| Some(found.as_ref()?.attributes()?.get(name)?.clone());
        Ok(Some(QueueFacts {
            arn: attribute(&QueueAttributeName::QueueArn).unwrap_or_default(),
            waiting: attribute(&QueueAttributeName::ApproximateNumberOfMessages)
                .and_then(|count| count.parse().ok()),
        }))
    }

    /// The rules of EventBridge whose target is `arn`.
    ///
    /// # Errors
    /// If EventBridge doesn't say.
    pub async fn rules_to(&self, arn: &str) -> Result<Vec<EventRule>, Unread> {
        let names = self.clients.events.list_rule_names(arn).await;
        let names = names.map_err(|error| unread("events:ListRuleNamesByTarget", &error))?;
        let mut rules = Vec::new();
        for name in names {
            let answer = self.clients.events.describe_rule(&name).await;
            if let Some(found) = read("events:DescribeRule", answer)? {
                rules.push(EventRule {
                    name,
                    enabled: found.state.starts_with("ENABLED"),
                    pattern: found.event_pattern.unwrap_or_default(),
                });
            }
        }
        Ok(rules)
    }

    /// The UIDs of the clusters whose instances are in the account and region.
    ///
    /// # Errors
    /// If EC2 doesn't say.
    pub async fn clusters_with_instances(&self) -> Result<BTreeSet<String>, Unread> {
        let filter = Filter::builder().name("tag-key").values(tags::CLUSTER).build();
        let mut pages = self.clients.ec2.describe_instances().filters(filter).into_paginator().send();
        let mut found = BTreeSet::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| unread("ec2:DescribeInstances", &error))?;
            let instances = page.reservations().iter().flat_map(|reservation| reservation.instances());
            for tag in instances.flat_map(|instance| instance.tags()) {
                if tag.key() == Some(tags::CLUSTER) {
                    found.extend(tag.value().map(str::to_owned));
                }
            }
        }
        Ok(found)
    }

    /// The subnets of instances.
    ///
    /// # Errors
    /// If EC2 doesn't say.
    pub async fn subnets_of(&self, instances: &[String]) -> Result<BTreeSet<String>, Unread> {
        let mut subnets = BTreeSet::new();
        for some in instances.chunks(MOST_FILTERED) {
            let filter = Filter::builder().name("instance-id").set_values(Some(some.to_vec())).build();
            let answer = self.clients.ec2.describe_instances().filters(filter).send().await;
            let found = answer.map_err(|error| unread("ec2:DescribeInstances", &error))?;
            let instances = found.reservations().iter().flat_map(|reservation| reservation.instances());
            subnets.extend(instances.filter_map(|instance| instance.subnet_id().map(str::to_owned)));
        }
        Ok(subnets)
    }

    /// The subnets of `subnets` that have no route to the internet.
    ///
    /// # Errors
    /// If EC2 doesn't say.
    pub async fn without_internet(
        &self,
        vpc: &str,
        subnets: &BTreeSet<String>,
    ) -> Result<Vec<String>, Unread> {
        let filter = Filter::builder().name("vpc-id").values(vpc).build();
        let mut pages = self.clients.ec2.describe_route_tables().filters(filter).into_paginator().send();
        let mut main = false;
        let mut own: BTreeMap<String, bool> = BTreeMap::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| unread("ec2:DescribeRouteTables", &error))?;
            for table in page.route_tables() {
                let leads_out = leads_out(table);
                for association in table.associations() {
                    match association.subnet_id() {
                        Some(subnet) => {
                            own.insert(subnet.to_owned(), leads_out);
                        }
                        None => main |= association.main() == Some(true) && leads_out,
                    }
                }
            }
        }
        let closed = subnets.iter().filter(|subnet| !own.get(*subnet).copied().unwrap_or(main));
        Ok(closed.cloned().collect())
    }

    /// The services with an endpoint in a VPC, such as `ec2` or `ecr.api`.
    ///
    /// # Errors
    /// If EC2 doesn't say.
    pub async fn endpoints(&self, vpc: &str) -> Result<BTreeSet<String>, Unread> {
        let filter = Filter::builder().name("vpc-id").values(vpc).build();
        let mut pages = self.clients.ec2.describe_vpc_endpoints().filters(filter).into_paginator().send();
        let mut services = BTreeSet::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| unread("ec2:DescribeVpcEndpoints", &error))?;
            let names = page.vpc_endpoints().iter().filter_map(|endpoint| endpoint.service_name());
            services.extend(names.map(|name| service(name, &self.clients.region)));
        }
        Ok(services)
    }
}

/// True if a table has a route to everywhere that works.
fn leads_out(table: &RouteTable) -> bool {
    table.routes().iter().any(|route| {
        let to = route.destination_cidr_block().or(route.destination_ipv6_cidr_block());
        let broken = route.state().is_some_and(|state| state.as_str() == "blackhole");
        to.is_some_and(|to| DEFAULT_ROUTES.contains(&to)) && !broken
    })
}

/// The service of an endpoint: `ecr.api` for `com.amazonaws.eu-central-1.ecr.api`.
fn service(name: &str, region: &str) -> String {
    let (_, name) = name.split_once("amazonaws.").unwrap_or(("", name));
    name.strip_prefix(region).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_of_an_endpoint_is_the_end_of_its_name() {
        for (name, region, expected) in [
            ("com.amazonaws.eu-central-1.ec2", "eu-central-1", "ec2"),
            ("com.amazonaws.eu-central-1.ecr.api", "eu-central-1", "ecr.api"),
            ("cn.com.amazonaws.cn-north-1.sts", "cn-north-1", "sts"),
            ("com.amazonaws.iam", "us-east-1", "iam"),
            ("com.example.own", "us-east-1", "com.example.own"),
        ] {
            assert_eq!(service(name, region), expected);
        }
    }
}
