//! Which rights of the controller's policy an identity has, without changing anything: EC2's dry runs, and reads.
//!
//! `croft check --preflight` calls this. The list of rights is the table of docs/aws-permissions.md. A right on a resource that
//! doesn't exist yet, such as a launch template of the cluster, can't be checked, since the policy grants it by the
//! resource's tags. Source: "Verify permissions" (`DryRun`), the EC2 API Reference.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::{
    FleetLaunchTemplateConfigRequest, FleetLaunchTemplateOverridesRequest,
    FleetLaunchTemplateSpecificationRequest, FleetType, InstanceType, RequestLaunchTemplateData,
    ResourceType, Tag, TagSpecification, TargetCapacitySpecificationRequest,
};
use aws_smithy_runtime_api::client::{orchestrator::HttpResponse, result::SdkError};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use croft_cloud::{CloudError, Fault, FaultClass, tags};

use crate::{
    connect::{self, Access, Clients},
    provider::Identity,
    refusal,
};

/// The page whose table names every right, the calls that need it, and what for.
const PAGE: &str = include_str!("../../../docs/aws-permissions.md");
/// EC2's answer to a dry run that would have been permitted.
const PERMITTED: &str = "DryRunOperation";
/// The name of what a dry run would create. Nothing has this name.
const NAME: &str = "croft-preflight";
/// A type of amd64 that every region has.
const TYPE: InstanceType = InstanceType::M5Large;

/// The cluster that the rights are needed for.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// UID of the Namespace kube-system, by which the policy recognises what is the cluster's own.
    pub cluster_uid: String,
    /// The cluster's name at EKS; without it `eks:DescribeCluster` isn't checked.
    pub cluster_name: Option<String>,
    /// The cluster's version, such as `1.36`, whose image a dry run names.
    pub kubernetes_version: String,
    /// The interruption queue; without it `sqs:GetQueueUrl` isn't checked.
    pub interruption_queue: Option<String>,
}

/// The state of knowledge about a right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The identity has it.
    Granted,
    /// The identity lacks it; AWS's message.
    Denied(String),
    /// It can't be known; why.
    Unknown(String),
}

/// A right, and whether the identity has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The IAM action.
    pub action: String,
    /// Croft's need for it.
    pub purpose: String,
    /// Whether the identity has it.
    pub verdict: Verdict,
}

/// The rights of an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The identity that was checked.
    pub identity: Identity,
    /// Every right of the policy, in the order of the page.
    pub rights: Vec<Right>,
}

/// Verdicts by action.
type Verdicts = BTreeMap<&'static str, Verdict>;

/// Checks every right of the policy for the identity that `access` finds; `None` if it finds no region.
///
/// # Errors
/// If AWS doesn't say whose credentials these are: there are none, or it can't be reached.
pub async fn check(access: &Access, subject: &Subject) -> Result<Option<Rights>, CloudError> {
    let clients = connect::connect(access).await;
    if clients.region.is_empty() {
        return Ok(None);
    }
    let identity = identify(&clients).await?;
    let mut verdicts = Verdicts::new();
    read(&clients, subject, &mut verdicts).await;
    describe(&clients, &mut verdicts).await;
    launch(&clients, subject, &mut verdicts).await;
    change_own(&clients, subject, &mut verdicts).await;
    let rights = listed()
        .map(|(action, purpose)| {
            let verdict =
                verdicts.get(action).cloned().unwrap_or_else(|| Verdict::Unknown(reason(action).to_owned()));
            Right { action: action.to_owned(), purpose: purpose.to_owned(), verdict }
        })
        .collect();
    Ok(Some(Rights { identity, rights }))
}

/// Actions and purposes of the page's table.
fn listed() -> impl Iterator<Item = (&'static str, &'static str)> {
    PAGE.lines().filter_map(|line| {
        let (action, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        let (_, purpose) = rest.strip_suffix(" |")?.split_once(" | ")?;
        Some((action, purpose))
    })
}

/// Why a right without a verdict wasn't checked.
fn reason(action: &str) -> &'static str {
    match action {
        "sqs:DeleteMessage" | "sqs:ReceiveMessage" => {
            "it can't be checked without taking messages off the queue"
        }
        "iam:PassRole" => "it is checked only when an instance gets its role",
        _ if action.starts_with("iam:") => "IAM has no dry run",
        _ => "no call shows it",
    }
}

async fn identify(clients: &Clients) -> Result<Identity, CloudError> {
    let answer = clients.sts.get_caller_identity().send().await;
    let answer = answer.map_err(|error| {
        refusal::refused("learn whose credentials these are", refusal::fault("GetCallerIdentity", &error))
    })?;
    Ok(Identity::read(&answer, &clients.region))
}

/// The verdict of a read: what doesn't exist was looked for, so the right is there.
fn verdict_of_read<T, E>(action: &'static str, answer: Result<T, SdkError<E, HttpResponse>>) -> Verdict
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    match answer.map_err(|error| refusal::fault(action, &error)) {
        Ok(_) => Verdict::Granted,
        Err(fault) if fault.class == FaultClass::NotFound => Verdict::Granted,
        Err(fault) => of_fault(&fault),
    }
}

/// The verdict of a dry run.
fn verdict_of_dry_run<T, E>(action: &'static str, answer: Result<T, SdkError<E, HttpResponse>>) -> Verdict
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    match answer.map_err(|error| refusal::fault(action, &error)) {
        Ok(_) => Verdict::Granted,
        Err(fault) if fault.code == PERMITTED => Verdict::Granted,
        Err(fault) => of_fault(&fault),
    }
}

fn of_fault(fault: &Fault) -> Verdict {
    let said = format!("{}: {}", fault.code, fault.message);
    if fault.class == FaultClass::Forbidden { Verdict::Denied(said) } else { Verdict::Unknown(said) }
}

/// Calls outside EC2 that change nothing.
async fn read(clients: &Clients, subject: &Subject, verdicts: &mut Verdicts) {
    let profile = clients.iam.get(NAME).await;
    verdicts.insert("iam:GetInstanceProfile", verdict_of_read("GetInstanceProfile", profile));
    let profiles = clients.iam.list("/croft/", None).await;
    verdicts.insert("iam:ListInstanceProfiles", verdict_of_read("ListInstanceProfiles", profiles));
    let pricing = match &clients.pricing {
        Some(pricing) => {
            let answer = pricing.get_products().service_code("AmazonEC2").max_results(1).send().await;
            verdict_of_read("GetProducts", answer)
        }
        None => Verdict::Unknown("the partition has no price list: built-in prices are used".to_owned()),
    };
    verdicts.insert("pricing:GetProducts", pricing);
    let cluster = match &subject.cluster_name {
        Some(name) => match clients.eks.describe_cluster(name).await {
            Ok(_) => Verdict::Granted,
            Err(error) => of_fault(&refusal::fault("DescribeCluster", &error)),
        },
        None => Verdict::Unknown("give the cluster's name at EKS with --cluster-name".to_owned()),
    };
    verdicts.insert("eks:DescribeCluster", cluster);
    let queue = match &subject.interruption_queue {
        // A queue that doesn't exist and one that may not be seen have the same answer.
        Some(queue) => {
            let name = queue.rsplit('/').next().unwrap_or_default();
            match clients.sqs.get_queue_url().queue_name(name).send().await {
                Ok(_) => Verdict::Granted,
                Err(error) => of_fault(&refusal::fault("GetQueueUrl", &error)),
            }
        }
        None => Verdict::Unknown("give the queue's name with --interruption-queue".to_owned()),
    };
    verdicts.insert("sqs:GetQueueUrl", queue);
}

/// EC2's reads, which have a dry run.
async fn describe(clients: &Clients, verdicts: &mut Verdicts) {
    macro_rules! dry {
        ($($action:literal, $call:literal => $method:ident;)*) => {
            $(
                let answer = clients.ec2.$method().dry_run(true).send().await;
                verdicts.insert($action, verdict_of_dry_run($call, answer));
            )*
        };
    }
    dry! {
        "ec2:DescribeCapacityReservations", "DescribeCapacityReservations" => describe_capacity_reservations;
        "ec2:DescribeImages", "DescribeImages" => describe_images;
        "ec2:DescribeInstanceTypeOfferings", "DescribeInstanceTypeOfferings" => describe_instance_type_offerings;
        "ec2:DescribeInstanceTypes", "DescribeInstanceTypes" => describe_instance_types;
        "ec2:DescribeInstanceStatus", "DescribeInstanceStatus" => describe_instance_status;
        "ec2:DescribeInstances", "DescribeInstances" => describe_instances;
        "ec2:DescribeLaunchTemplates", "DescribeLaunchTemplates" => describe_launch_templates;
        "ec2:DescribeSecurityGroups", "DescribeSecurityGroups" => describe_security_groups;
        "ec2:DescribeSpotPriceHistory", "DescribeSpotPriceHistory" => describe_spot_price_history;
        "ec2:DescribeSubnets", "DescribeSubnets" => describe_subnets;
    }
}

/// The tags of a new resource, as the policy asks for them.
fn tagged(subject: &Subject, kind: ResourceType) -> TagSpecification {
    let tag = Tag::builder().key(tags::CLUSTER).value(&subject.cluster_uid).build();
    TagSpecification::builder().resource_type(kind).tags(tag).build()
}

/// Any subnet.
async fn some_subnet(clients: &Clients) -> Option<String> {
    let page = clients.ec2.describe_subnets().max_results(5).send().await.ok()?;
    page.subnets().first()?.subnet_id().map(str::to_owned)
}

/// Dry runs of what creates: an instance and a launch template, with the tags that the policy asks for.
async fn launch(clients: &Clients, subject: &Subject, verdicts: &mut Verdicts) {
    let tagged = |kind| tagged(subject, kind);
    let template = clients
        .ec2
        .create_launch_template()
        .dry_run(true)
        .launch_template_name(NAME)
        .launch_template_data(RequestLaunchTemplateData::builder().instance_type(TYPE).build())
        .tag_specifications(tagged(ResourceType::LaunchTemplate))
        .send()
        .await;
    let verdict = verdict_of_dry_run("CreateLaunchTemplate", template);
    record_tagged("ec2:CreateLaunchTemplate", verdict, verdicts);

    let parameter = format!(
        "/aws/service/eks/optimized-ami/{}/amazon-linux-2023/x86_64/standard/recommended/image_id",
        subject.kubernetes_version
    );
    let image = clients.ssm.get_parameter(&parameter).await;
    let id = image.as_ref().ok().cloned().flatten();
    verdicts.insert("ssm:GetParameter", verdict_of_read("GetParameter", image));
    let (Some(image), Some(subnet)) = (id, some_subnet(clients).await) else {
        let why = "its dry run needs an image and a subnet, and one of them can't be found";
        verdicts.insert("ec2:RunInstances", Verdict::Unknown(why.to_owned()));
        return;
    };
    let instance = clients
        .ec2
        .run_instances()
        .dry_run(true)
        .image_id(image)
        .subnet_id(subnet)
        .instance_type(TYPE)
        .min_count(1)
        .max_count(1)
        .tag_specifications(tagged(ResourceType::Instance))
        .tag_specifications(tagged(ResourceType::Volume))
        .tag_specifications(tagged(ResourceType::NetworkInterface))
        .send()
        .await;
    record_tagged("ec2:RunInstances", verdict_of_dry_run("RunInstances", instance), verdicts);
}

/// Records the verdict of a dry run that needs `action` and the right to tag what it creates.
fn record_tagged(action: &'static str, verdict: Verdict, verdicts: &mut Verdicts) {
    const TAG: &str = "ec2:CreateTags";
    let lacks_tag = matches!(&verdict, Verdict::Denied(said) if said.contains(TAG));
    match verdict {
        Verdict::Denied(said) if lacks_tag => {
            verdicts.insert(TAG, Verdict::Denied(said));
            verdicts
                .insert(action, Verdict::Unknown(format!("its dry run was stopped by the lack of {TAG}")));
        }
        Verdict::Granted => {
            verdicts.entry(TAG).or_insert(Verdict::Granted);
            verdicts.insert(action, Verdict::Granted);
        }
        other => {
            let why = format!("it is needed with {action}, whose dry run doesn't show it");
            verdicts.entry(TAG).or_insert(Verdict::Unknown(why));
            verdicts.insert(action, other);
        }
    }
}

/// Dry runs on what is the cluster's own, if there is anything.
async fn change_own(clients: &Clients, subject: &Subject, verdicts: &mut Verdicts) {
    let filter = || {
        aws_sdk_ec2::types::Filter::builder()
            .name(format!("tag:{}", tags::CLUSTER))
            .values(&subject.cluster_uid)
            .build()
    };
    let instances = clients.ec2.describe_instances().filters(filter()).max_results(5).send().await;
    let instance = instances
        .ok()
        .and_then(|page| Some(page.reservations().first()?.instances().first()?.instance_id()?.to_owned()));
    let terminate = match instance {
        Some(id) => {
            let answer = clients.ec2.terminate_instances().dry_run(true).instance_ids(id).send().await;
            verdict_of_dry_run("TerminateInstances", answer)
        }
        None => Verdict::Unknown(
            "the policy grants it on instances of this cluster, and there are none yet".to_owned(),
        ),
    };
    verdicts.insert("ec2:TerminateInstances", terminate);

    let templates = clients.ec2.describe_launch_templates().filters(filter()).max_results(5).send().await;
    let template = templates
        .ok()
        .and_then(|page| page.launch_templates().first()?.launch_template_name().map(str::to_owned));
    let Some(template) = template else {
        let why = "the policy grants it on launch templates of this cluster, and there are none yet";
        for action in ["ec2:CreateFleet", "ec2:DeleteLaunchTemplate"] {
            verdicts.insert(action, Verdict::Unknown(why.to_owned()));
        }
        return;
    };
    let delete =
        clients.ec2.delete_launch_template().dry_run(true).launch_template_name(&template).send().await;
    verdicts.insert("ec2:DeleteLaunchTemplate", verdict_of_dry_run("DeleteLaunchTemplate", delete));
    verdicts.insert("ec2:CreateFleet", create_fleet(clients, subject, template).await);
}

async fn create_fleet(clients: &Clients, subject: &Subject, template: String) -> Verdict {
    let tagged = |kind| tagged(subject, kind);
    let config = FleetLaunchTemplateConfigRequest::builder()
        .launch_template_specification(
            FleetLaunchTemplateSpecificationRequest::builder()
                .launch_template_name(template)
                .version("$Default")
                .build(),
        )
        .overrides(
            FleetLaunchTemplateOverridesRequest::builder()
                .instance_type(TYPE)
                .set_subnet_id(some_subnet(clients).await)
                .build(),
        )
        .build();
    let capacity = TargetCapacitySpecificationRequest::builder().total_target_capacity(1).build();
    let answer = clients
        .ec2
        .create_fleet()
        .dry_run(true)
        .r#type(FleetType::Instant)
        .launch_template_configs(config)
        .target_capacity_specification(capacity)
        .tag_specifications(tagged(ResourceType::Fleet))
        .tag_specifications(tagged(ResourceType::Instance))
        .tag_specifications(tagged(ResourceType::Volume))
        .send()
        .await;
    verdict_of_dry_run("CreateFleet", answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_lists_every_right_with_its_purpose() {
        let rows: Vec<_> = listed().collect();
        assert!(rows.len() > 25, "{rows:?}");
        assert!(rows.contains(&("ec2:TerminateInstances", "terminate an instance")), "{rows:?}");
    }

    #[test]
    fn missing_right_to_tag_is_told_apart() {
        let mut verdicts = Verdicts::new();
        let said =
            "UnauthorizedOperation: not authorized to perform: ec2:CreateTags on resource: x".to_owned();
        record_tagged("ec2:RunInstances", Verdict::Denied(said.clone()), &mut verdicts);
        assert_eq!(verdicts["ec2:CreateTags"], Verdict::Denied(said.clone()));
        assert!(matches!(verdicts["ec2:RunInstances"], Verdict::Unknown(_)));
        record_tagged("ec2:CreateLaunchTemplate", Verdict::Granted, &mut verdicts);
        assert_eq!(verdicts["ec2:CreateTags"], Verdict::Denied(said), "one kind of resource lacks it");
    }
}
