//! The controller's cloud on ec2-sim's world, in the process and on virtual time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use croft_api::{
    EC2NodeClass,
    condition::{READY, Statement},
    nodeclass::SubnetStatus,
};
use croft_cloud::{
    Account, ClassFindings, CloudError, CloudInstance, CloudProvider, FailedCheck, Fault, FaultClass, InUse,
    InstanceHealth, InstanceState, Interruption, InterruptionKind, LaunchError, LaunchRequest, Launched,
    ObservedNode, OfferingKey, Prepared, ScheduledChange, Shortage, StatusCheck, Terminated, tags,
};
use croft_ec2_sim::{
    answer::{Answer, Call, Refusal, Service},
    params::Params,
    resources::{Check, Instance, State},
};
use croft_scheduler::{CapacityType, InstanceType};
use serde_json::{Value, json};

use super::{
    connection::{Connection, LATENCY_MS},
    environment::Environment,
    kubelet::REGION,
};

/// How long an offering without capacity is left out.
const UNAVAILABLE_MS: u64 = 30_000;
/// The account's quotas are used up.
const QUOTA_CODES: [&str; 2] = ["VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"];
/// The cluster's uid, as its instances' tags have it.
pub const CLUSTER: &str = "cluster";

/// The provider of one process: a model of croft-cloud-aws.
pub(crate) struct SimCloud {
    connection: Connection,
    /// Offerings without capacity, and up to when they are left out.
    unavailable: Mutex<BTreeMap<OfferingKey, u64>>,
}

/// The provider of a controller that isn't Croft's.
#[must_use]
pub fn cloud(environment: &Arc<Environment>) -> Arc<dyn CloudProvider> {
    let random = environment.random.lock().unwrap().fork();
    Arc::new(SimCloud::new(Connection::new(Arc::clone(environment), Arc::default(), random)))
}

fn call(service: Service, action: &str, params: Vec<(String, String)>, json: Value) -> Call {
    let params = Params::new(params);
    Call { service, action: action.to_owned(), params, json, access_key: "simulation".to_owned() }
}

fn fault(action: &'static str, code: &str, class: FaultClass) -> Fault {
    Fault { action, code: code.to_owned(), class, message: String::new(), meaning: "simulated", remedy: "" }
}

fn broken(action: &'static str) -> CloudError {
    CloudError::Refused { what: action.to_owned(), fault: fault(action, "Broken", FaultClass::Unavailable) }
}

fn throttled(action: &'static str) -> CloudError {
    let fault = fault(action, "RequestLimitExceeded", FaultClass::Throttled);
    CloudError::Refused { what: action.to_owned(), fault }
}

impl SimCloud {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection, unavailable: Mutex::default() }
    }

    fn environment(&self) -> &Environment {
        &self.connection.environment
    }

    /// Sends one call to EC2; `None` if the answer is lost, whatever became of it.
    async fn send(&self, action: &str, params: Vec<(String, String)>) -> Option<Result<String, Refusal>> {
        let call = call(Service::Ec2, action, params, Value::Null);
        match self.connection.send(&self.environment().world, &call).await {
            Answer::Xml(xml) => Some(Ok(xml)),
            Answer::Json(json) => Some(Ok(json.to_string())),
            Answer::Refused(refusal) => Some(Err(refusal)),
            Answer::Aborted => None,
        }
    }

    fn instance(&self, id: &str, instance: &Instance) -> CloudInstance {
        let tag = |key: &str| instance.tags.get(key).cloned();
        CloudInstance {
            id: id.to_owned(),
            provider_id: format!("aws:///{}/{id}", instance.zone),
            node_name: instance.dns_name(REGION),
            instance_type: instance.instance_type.clone(),
            zone: instance.zone.clone(),
            capacity_type: instance.capacity_type,
            image_id: instance.image.clone(),
            state: state(instance.state),
            launched_at: i64::try_from(instance.launched / 1000).unwrap(),
            health: Some(health(instance)),
            ended_at: instance.ended.map(|at| i64::try_from(at / 1000).unwrap()),
            claim: tag(tags::CLAIM),
            claim_uid: tag(tags::CLAIM_UID),
            pool: tag(tags::POOL),
            tags: instance.tags.clone(),
        }
    }

    fn launched(&self, id: &str, instance: &Instance) -> Launched {
        let types = self.environment().types();
        let kind = types.iter().find(|t| t.name == instance.instance_type).unwrap();
        let offering = kind
            .offerings
            .iter()
            .find(|o| o.zone == instance.zone && o.capacity_type == instance.capacity_type);
        Launched {
            instance: self.instance(id, instance),
            capacity: kind.capacity.clone(),
            allocatable: kind.allocatable(),
            price: offering.and_then(|o| o.price),
            price_estimated: false,
            labels: kind.labels.clone(),
        }
    }
}

fn state(state: State) -> InstanceState {
    match state {
        State::Pending => InstanceState::Pending,
        State::Running => InstanceState::Running,
        State::ShuttingDown => InstanceState::ShuttingDown,
        State::Terminated => InstanceState::Terminated,
    }
}

fn health(instance: &Instance) -> InstanceHealth {
    let seconds = |ms: u64| i64::try_from(ms / 1000).unwrap();
    let failed = instance.failed_checks.iter().map(|(check, since)| FailedCheck {
        check: match check {
            Check::System => StatusCheck::System,
            Check::Instance => StatusCheck::Instance,
            Check::Ebs => StatusCheck::Ebs,
        },
        since: seconds(*since),
    });
    let scheduled = instance.scheduled.iter().map(|event| ScheduledChange {
        code: event.code.clone(),
        not_before: Some(seconds(event.not_before)),
    });
    InstanceHealth { failed: failed.collect(), scheduled: scheduled.collect() }
}

/// True if a list of the cluster's instances shows it.
fn is_tagged(instance: &Instance) -> bool {
    instance.tags.get(tags::CLUSTER).is_some_and(|value| value == CLUSTER)
}

/// Every `<tag>text</tag>` in order.
fn texts<'a>(xml: &'a str, tag: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    xml.split(&open).skip(1).filter_map(|rest| rest.split(&close).next()).collect()
}

#[async_trait]
impl CloudProvider for SimCloud {
    async fn resolve(&self, _: &EC2NodeClass) -> ClassFindings {
        tokio::time::sleep(Duration::from_millis(LATENCY_MS.1)).await;
        if self.environment().finds_nothing.load(Ordering::Relaxed) {
            let conditions = vec![Statement {
                kind: READY,
                status: Some(false),
                reason: "SecurityGroupsNotFound",
                message: "nothing is found".to_owned(),
            }];
            return ClassFindings { conditions, ..ClassFindings::default() };
        }
        let zones: BTreeSet<String> = self
            .environment()
            .types()
            .iter()
            .flat_map(|t| t.offerings.iter().map(|o| o.zone.clone()))
            .collect();
        ClassFindings {
            subnets: zones.into_iter().map(|zone| SubnetStatus { id: zone.clone(), zone }).collect(),
            security_groups: vec!["sg-1".to_owned(), "sg-2".to_owned()],
            conditions: vec![Statement {
                kind: READY,
                status: Some(true),
                reason: "Ready",
                message: "ready".to_owned(),
            }],
            ..ClassFindings::default()
        }
    }

    async fn instance_types(&self, _: &EC2NodeClass) -> Result<Arc<[InstanceType]>, CloudError> {
        let now = self.environment().now_ms();
        let mut unavailable = self.unavailable.lock().unwrap();
        unavailable.retain(|_, until| *until > now);
        if unavailable.is_empty() {
            return Ok(self.environment().types());
        }
        let mut types = self.environment().types().to_vec();
        for kind in &mut types {
            for offering in &mut kind.offerings {
                let key = OfferingKey {
                    instance_type: kind.name.clone(),
                    zone: offering.zone.clone(),
                    capacity_type: offering.capacity_type,
                };
                offering.available &= !unavailable.contains_key(&key);
            }
        }
        Ok(types.into())
    }

    async fn prepare(&self, request: &LaunchRequest) -> Result<Prepared, LaunchError> {
        let user_data = json!({"labels": request.labels, "taints": request.taints}).to_string();
        let name = format!("t-{}", croft_api::hash::hash(&[&user_data], 20));
        let params = vec![
            ("LaunchTemplateName".to_owned(), name.clone()),
            ("LaunchTemplateData.ImageId".to_owned(), self.image()),
            ("LaunchTemplateData.UserData".to_owned(), STANDARD.encode(&user_data)),
        ];
        let later = |code: &str| LaunchError::Later {
            claim: request.claim_name.clone(),
            after: Duration::from_millis(500),
            fault: fault("CreateLaunchTemplate", code, FaultClass::Unavailable),
        };
        if self.is_elsewhere() {
            return Err(later("OptInRequired"));
        }
        match self.send("CreateLaunchTemplate", params).await {
            Some(Ok(_)) => {}
            Some(Err(refusal)) if refusal.code.contains("AlreadyExists") => {}
            Some(Err(refusal)) => return Err(later(&refusal.code)),
            None => return Err(later("Broken")),
        }
        let subnets = self.subnets();
        let mut params: Vec<(String, String)> = Vec::new();
        let mut put = |key: String, value: &str| params.push((key, value.to_owned()));
        put("Type".into(), "instant");
        put("ClientToken".into(), &format!("{}-{}", request.claim_uid, request.attempt));
        put("TargetCapacitySpecification.TotalTargetCapacity".into(), "1");
        put("TargetCapacitySpecification.DefaultTargetCapacityType".into(), request.capacity_type.as_str());
        put("LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName".into(), &name);
        put("LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version".into(), "$Latest");
        let mut n = 0;
        for kind in &request.instance_types {
            for (subnet, zone) in &subnets {
                if request.zones.contains(zone) {
                    n += 1;
                    let stem = format!("LaunchTemplateConfigs.1.Overrides.{n}");
                    put(format!("{stem}.InstanceType"), kind);
                    put(format!("{stem}.SubnetId"), subnet);
                }
            }
        }
        put("TagSpecification.1.ResourceType".into(), "instance");
        for (n, (key, value)) in tags::of_instance(CLUSTER, request).iter().enumerate() {
            put(format!("TagSpecification.1.Tag.{}.Key", n + 1), key);
            put(format!("TagSpecification.1.Tag.{}.Value", n + 1), value);
        }
        let body =
            json!({"claim": request.claim_name, "ct": request.capacity_type, "params": params}).to_string();
        Ok(Prepared { hash: croft_api::hash::hash(&[&body], 16), body })
    }

    async fn launch(&self, prepared: &Prepared) -> Result<Launched, LaunchError> {
        let body: Value = serde_json::from_str(&prepared.body).unwrap();
        let claim = body["claim"].as_str().unwrap().to_owned();
        let params: Vec<(String, String)> = serde_json::from_value(body["params"].clone()).unwrap();
        let capacity_type: CapacityType = serde_json::from_value(body["ct"].clone()).unwrap();
        let unknown = || LaunchError::Unknown {
            claim: claim.clone(),
            fault: fault("CreateFleet", "Broken", FaultClass::Unavailable),
        };
        if self.is_elsewhere() {
            let (after, fault) =
                (Duration::from_millis(500), fault("CreateFleet", "OptInRequired", FaultClass::Unavailable));
            return Err(LaunchError::Later { claim, after, fault });
        }
        let xml = match self.send("CreateFleet", params.clone()).await {
            Some(Ok(xml)) => xml,
            // The token was used for another request, before what was recorded of it was lost.
            Some(Err(refusal)) if refusal.code == "IdempotentParameterMismatch" => return Err(unknown()),
            Some(Err(refusal)) => {
                return Err(LaunchError::Later {
                    claim,
                    after: Duration::from_millis(500),
                    fault: fault("CreateFleet", &refusal.code, FaultClass::Throttled),
                });
            }
            None => return Err(unknown()),
        };
        if let Some(id) =
            texts(&xml, "instanceIds").first().and_then(|ids| texts(ids, "item").first().copied())
        {
            let world = self.environment().world.lock().unwrap();
            return match world.instance(id) {
                Some(instance) if instance.state.is_alive() => Ok(self.launched(id, instance)),
                // The token's response is an instance that has been terminated since.
                Some(_) => Err(LaunchError::Refused {
                    claim,
                    fault: fault("CreateFleet", "IdempotentInstanceTerminated", FaultClass::NoCapacity),
                }),
                None => Err(unknown()),
            };
        }
        let quota = texts(&xml, "errorCode").into_iter().find(|code| QUOTA_CODES.contains(code));
        let fault = match quota {
            Some(code) => fault("CreateFleet", code, FaultClass::Quota),
            None => fault("CreateFleet", "InsufficientInstanceCapacity", FaultClass::NoCapacity),
        };
        Err(self.without_capacity(claim, &params, capacity_type, fault))
    }

    async fn find_by_claim(&self, claim_uid: &str) -> Result<Option<Launched>, CloudError> {
        self.ask_for_instances().await?;
        let world = self.environment().world.lock().unwrap();
        let visible = self.environment().now_ms().saturating_sub(world.settings.consistency_ms);
        let found = world
            .instances()
            .filter(|(_, i)| i.launched <= visible && !self.is_elsewhere() && is_tagged(i))
            .filter(|(_, i)| i.tags.get(tags::CLAIM_UID).is_some_and(|uid| uid == claim_uid))
            .map(|(id, i)| self.launched(id, i))
            .next();
        Ok(found)
    }

    async fn list(&self) -> Result<Vec<CloudInstance>, CloudError> {
        self.ask_for_instances().await?;
        let world = self.environment().world.lock().unwrap();
        let visible = self.environment().now_ms().saturating_sub(world.settings.consistency_ms);
        Ok(world
            .instances()
            .filter(|(_, i)| i.state != State::Terminated && i.launched <= visible)
            .filter(|(_, i)| !self.is_elsewhere() && is_tagged(i))
            .map(|(id, i)| self.instance(id, i))
            .collect())
    }

    async fn describe(&self, ids: &[String]) -> Result<Vec<CloudInstance>, CloudError> {
        self.ask_for_instances().await?;
        if self.is_elsewhere() {
            return Ok(Vec::new());
        }
        let world = self.environment().world.lock().unwrap();
        let visible = self.environment().now_ms().saturating_sub(world.settings.consistency_ms);
        let found =
            ids.iter().filter_map(|id| Some((id, world.instance(id).filter(|i| i.launched <= visible)?)));
        Ok(found.map(|(id, i)| self.instance(id, i)).collect())
    }

    async fn account(&self) -> Result<Account, CloudError> {
        let id = if self.is_elsewhere() { "another" } else { "simulated" };
        Ok(Account { id: id.to_owned(), region: "us-east-1".to_owned() })
    }

    async fn terminate(&self, ids: &[String]) -> Result<Vec<Terminated>, CloudError> {
        if self.is_elsewhere() {
            self.ask_for_instances().await?;
            let unknown = |id: &String| Terminated { id: id.clone(), state: InstanceState::Unknown };
            return Ok(ids.iter().map(unknown).collect());
        }
        let params =
            ids.iter().enumerate().map(|(n, id)| (format!("InstanceId.{}", n + 1), id.clone())).collect();
        self.send("TerminateInstances", params)
            .await
            .ok_or_else(|| broken("TerminateInstances"))?
            .map_err(|_| throttled("TerminateInstances"))?;
        let world = self.environment().world.lock().unwrap();
        let now = |id: &String| world.instance(id).map_or(InstanceState::Unknown, |i| state(i.state));
        Ok(ids.iter().map(|id| Terminated { id: id.clone(), state: now(id) }).collect())
    }

    async fn tag(&self, id: &str, more: &BTreeMap<String, String>) -> Result<(), CloudError> {
        if self.is_elsewhere() {
            return Err(broken("CreateTags"));
        }
        let mut all = more.clone();
        all.insert(tags::CLUSTER.to_owned(), CLUSTER.to_owned());
        let mut params = vec![("ResourceId.1".to_owned(), id.to_owned())];
        for (n, (key, value)) in all.iter().enumerate() {
            params.push((format!("Tag.{}.Key", n + 1), key.clone()));
            params.push((format!("Tag.{}.Value", n + 1), value.clone()));
        }
        let answer = self.send("CreateTags", params).await.ok_or_else(|| broken("CreateTags"))?;
        answer.map(|_| ()).map_err(|_| broken("CreateTags"))
    }

    async fn interruptions(&self) -> Result<Vec<Interruption>, CloudError> {
        // A long poll.
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_secs(2)).await;
            self.connection.links.wait_while_paused().await;
            if self.connection.links.cloud_cut.load(Ordering::Relaxed) {
                return Err(broken("ReceiveMessage"));
            }
            if self.environment().world.lock().unwrap().waiting_news() == 0 {
                continue;
            }
            let body = self.queue("ReceiveMessage", json!({"MaxNumberOfMessages": 10}));
            let messages = body["Messages"].as_array().cloned().unwrap_or_default();
            if !messages.is_empty() {
                return Ok(messages.iter().map(read).collect());
            }
        }
        Ok(Vec::new())
    }

    async fn acknowledge(&self, news: &[Interruption]) -> Result<(), CloudError> {
        self.environment().point(&self.connection.links).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        if self.connection.links.cloud_cut.load(Ordering::Relaxed) {
            return Err(broken("DeleteMessageBatch"));
        }
        let entries: Vec<Value> =
            news.iter().map(|n| json!({"Id": "1", "ReceiptHandle": n.receipt})).collect();
        self.queue("DeleteMessageBatch", json!({"Entries": entries}));
        Ok(())
    }

    fn observe_capacity(&self, _: &ObservedNode) -> bool {
        false
    }

    fn shortages(&self) -> Vec<Shortage> {
        let now = self.environment().now_ms();
        let unavailable = self.unavailable.lock().unwrap();
        unavailable
            .iter()
            .filter(|(_, until)| **until > now)
            .map(|(offering, until)| Shortage {
                offering: offering.clone(),
                fault: fault("CreateFleet", "InsufficientInstanceCapacity", FaultClass::NoCapacity),
                strikes: 1,
                next_try: Duration::from_millis(until - now),
            })
            .collect()
    }

    async fn sweep(&self, _: &InUse) -> Result<usize, CloudError> {
        Ok(0)
    }
}

/// Parses a message of the queue.
fn read(message: &Value) -> Interruption {
    let event: Value = serde_json::from_str(message["Body"].as_str().unwrap()).unwrap();
    let at = event["time"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second();
    let detail = &event["detail"];
    let kind = match event["detail-type"].as_str().unwrap() {
        "EC2 Spot Instance Interruption Warning" => InterruptionKind::SpotWarning,
        "EC2 Instance Rebalance Recommendation" => InterruptionKind::Rebalance,
        "AWS Health Event" => InterruptionKind::ScheduledChange,
        _ => InterruptionKind::StateChange,
    };
    let instance = detail["instance-id"].as_str().or(detail["affectedEntities"][0]["entityValue"].as_str());
    Interruption {
        kind,
        instances: vec![instance.unwrap().to_owned()],
        at,
        deadline: (kind == InterruptionKind::SpotWarning).then_some(at + 120),
        over_at: None,
        receipt: message["ReceiptHandle"].as_str().unwrap().to_owned(),
    }
}

impl SimCloud {
    /// The error of a launch whose offerings were all refused: they are left out for a while.
    fn without_capacity(
        &self,
        claim: String,
        params: &[(String, String)],
        capacity_type: CapacityType,
        fault: Fault,
    ) -> LaunchError {
        let types: BTreeSet<&String> =
            params.iter().filter(|(k, _)| k.ends_with(".InstanceType")).map(|(_, v)| v).collect();
        let subnets: BTreeMap<String, String> = self.subnets().into_iter().collect();
        let zones: BTreeSet<&String> = params
            .iter()
            .filter(|(k, _)| k.ends_with(".SubnetId"))
            .filter_map(|(_, v)| subnets.get(v))
            .collect();
        let mut offerings = Vec::new();
        for kind in types {
            for zone in &zones {
                offerings.push(OfferingKey {
                    instance_type: kind.clone(),
                    zone: (*zone).clone(),
                    capacity_type,
                });
            }
        }
        let until = self.environment().now_ms() + UNAVAILABLE_MS;
        self.unavailable.lock().unwrap().extend(offerings.iter().map(|key| (key.clone(), until)));
        LaunchError::NoCapacity { claim, offerings, fault }
    }

    /// True while this process calls another account.
    fn is_elsewhere(&self) -> bool {
        self.connection.links.elsewhere.load(Ordering::Relaxed)
    }

    async fn ask_for_instances(&self) -> Result<(), CloudError> {
        match self.send("DescribeInstances", Vec::new()).await {
            None => Err(broken("DescribeInstances")),
            Some(Err(_)) => Err(throttled("DescribeInstances")),
            Some(Ok(_)) => Ok(()),
        }
    }

    fn queue(&self, action: &str, mut json: Value) -> Value {
        json["QueueUrl"] = json!("https://sqs.simulated/000000000000/croft");
        let call = call(Service::Sqs, action, Vec::new(), json);
        match self.environment().world.lock().unwrap().handle(&call, self.environment().now_ms()).0 {
            Answer::Json(body) => body,
            other => panic!("{action}: {other:?}"),
        }
    }

    /// Subnets and their zones, as the world describes them.
    fn subnets(&self) -> Vec<(String, String)> {
        let xml = self.ask("DescribeSubnets");
        let ids = texts(&xml, "subnetId").into_iter().map(str::to_owned);
        ids.zip(texts(&xml, "availabilityZone").into_iter().map(str::to_owned)).collect()
    }

    fn image(&self) -> String {
        let xml = self.ask("DescribeImages");
        let instances_run = |(_, arch): &(&str, &str)| *arch == "x86_64";
        let mut images = texts(&xml, "imageId").into_iter().zip(texts(&xml, "architecture"));
        images.find(instances_run).map(|(id, _)| id.to_owned()).unwrap()
    }

    fn ask(&self, action: &str) -> String {
        let call = call(Service::Ec2, action, Vec::new(), Value::Null);
        let (answer, _) = self.environment().world.lock().unwrap().handle(&call, self.environment().now_ms());
        match answer {
            Answer::Xml(xml) => xml,
            other => {
                let mut text = String::new();
                let _ = write!(text, "{other:?}");
                panic!("{action}: {text}");
            }
        }
    }
}
