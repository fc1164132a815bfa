//! How the account serves the cluster besides its instances: access entries, Pod Identity, Fargate profiles, EventBridge rules,
//! routes and VPC endpoints. Only read by calls; the control endpoint changes it.

use serde_json::{Value, json};

use crate::{
    answer::{Answer, Call, Outcome, Refusal},
    policy::Demand,
    resources::{Integration, VPC},
    world::World,
    xml::Xml,
};

impl World {
    /// Changes how the account serves the cluster.
    pub fn integrate(&mut self, change: impl FnOnce(&mut Integration)) {
        change(&mut self.integration);
    }

    fn cluster_arn(&self, kind: &str, rest: &str) -> String {
        format!("arn:aws:eks:{}:{}:{kind}/{rest}", self.settings.region, self.settings.account)
    }

    /// The calls of EKS about a cluster's identities and Fargate profiles.
    pub(crate) fn eks_reads(&mut self, call: &Call) -> Outcome {
        let text = |field: &str| call.json.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (cluster, id) = (text("name"), text("id"));
        let resource = match call.action.as_str() {
            "ListClusters" => "*".to_owned(),
            "DescribeAccessEntry" => self.cluster_arn("access-entry", &format!("{cluster}/*")),
            "DescribePodIdentityAssociation" => {
                self.cluster_arn("podidentityassociation", &format!("{cluster}/{id}"))
            }
            "DescribeFargateProfile" => self.cluster_arn("fargateprofile", &format!("{cluster}/{id}/*")),
            _ => self.cluster_arn("cluster", &cluster),
        };
        self.require(call, &Demand::new(format!("eks:{}", call.action), resource))?;
        if call.action == "ListClusters" {
            let mut names = self.integration.other_clusters.clone();
            names.push(self.settings.cluster_name.clone());
            return Ok(Answer::Json(json!({"clusters": names})));
        }
        let absent = |what: &str| Refusal::new("ResourceNotFoundException", format!("No {what} found."));
        if cluster != self.settings.cluster_name {
            return Err(absent(&format!("cluster for name: {cluster}")));
        }
        let held = &self.integration;
        Ok(Answer::Json(match call.action.as_str() {
            "ListAccessEntries" => {
                // Pages of one, so that callers show that they read all of them.
                let entries: Vec<&String> = held.access_entries.keys().collect();
                let at: usize = text("nextToken").parse().unwrap_or(0);
                let next = (at + 1 < entries.len()).then(|| (at + 1).to_string());
                json!({"accessEntries": entries.get(at..entries.len().min(at + 1)), "nextToken": next})
            }
            "DescribeAccessEntry" => {
                let kind = held.access_entries.get(&id).ok_or_else(|| absent("access entry"))?;
                json!({"accessEntry": {"principalArn": id, "type": kind, "clusterName": cluster}})
            }
            "ListPodIdentityAssociations" => {
                let key = format!("{}/{}", text("namespace"), text("serviceAccount"));
                let found = held.pod_identities.keys().filter(|held| **held == key);
                let found: Vec<Value> = found
                    .map(|_| json!({"associationId": format!("a-{}", key.replace('/', "-")), "clusterName": cluster}))
                    .collect();
                json!({"associations": found})
            }
            "ListFargateProfiles" => {
                json!({"fargateProfileNames": held.fargate_profiles.keys().collect::<Vec<_>>()})
            }
            "DescribeFargateProfile" => {
                let selectors = held.fargate_profiles.get(&id).ok_or_else(|| absent("fargate profile"))?;
                json!({"fargateProfile": {"fargateProfileName": id, "status": "ACTIVE", "selectors": selectors}})
            }
            _ => {
                let found =
                    held.pod_identities.iter().find(|(key, _)| format!("a-{}", key.replace('/', "-")) == id);
                let (_, role) = found.ok_or_else(|| absent("association"))?;
                json!({"association": {"associationId": id, "roleArn": role}})
            }
        }))
    }

    /// EventBridge.
    pub(crate) fn events(&mut self, call: &Call) -> Outcome {
        let (region, account) = (self.settings.region.clone(), self.settings.account.clone());
        let text = |field: &str| call.json.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let arn = |name: &str| format!("arn:aws:events:{region}:{account}:rule/{name}");
        let resource = if call.action == "DescribeRule" { arn(&text("Name")) } else { "*".to_owned() };
        self.require(call, &Demand::new(format!("events:{}", call.action), resource))?;
        let rules = &self.integration.rules;
        match call.action.as_str() {
            "ListRuleNamesByTarget" => {
                let queue = self.settings.queue.clone().unwrap_or_default();
                let is_ours = text("TargetArn") == format!("arn:aws:sqs:{region}:{account}:{queue}");
                let names: Vec<String> = if is_ours {
                    (0..rules.len()).map(|number| format!("croft-{number}")).collect()
                } else {
                    Vec::new()
                };
                Ok(Answer::Json(json!({"RuleNames": names})))
            }
            "DescribeRule" => {
                let name = text("Name");
                let number: Option<usize> = name.strip_prefix("croft-").and_then(|n| n.parse().ok());
                let rule = number.and_then(|number| rules.get(number)).ok_or_else(|| {
                    Refusal::new("ResourceNotFoundException", format!("Rule {name} does not exist."))
                })?;
                let (state, kind) = match rule.strip_prefix('!') {
                    Some(kind) => ("DISABLED", kind),
                    None => ("ENABLED", rule.as_str()),
                };
                let source = if kind == "AWS Health Event" { "aws.health" } else { "aws.ec2" };
                let pattern = json!({"source": [source], "detail-type": [kind]}).to_string();
                Ok(Answer::Json(json!({"Name": name, "State": state, "EventPattern": pattern})))
            }
            other => Err(Refusal::new("InvalidAction", format!("{other} is not simulated"))),
        }
    }

    /// One main route table, which every subnet without one of its own has.
    pub(crate) fn describe_route_tables(&mut self, call: &Call) -> Outcome {
        self.require_plain(call)?;
        let internet = self.integration.internet;
        let mut xml = Xml::new();
        xml.items("routeTableSet", ["rtb-0c0ffee000000001"], |xml, id| {
            xml.leaf("routeTableId", id).leaf("vpcId", VPC);
            let local = [("10.0.0.0/8", "gatewayId", "local")];
            let out = internet.then_some(("0.0.0.0/0", "natGatewayId", "nat-0c0ffee000000001"));
            xml.items("routeSet", local.into_iter().chain(out), |xml, (block, target, to)| {
                xml.leaf("destinationCidrBlock", block).leaf(target, to).leaf("state", "active");
            });
            xml.items("associationSet", [()], |xml, ()| {
                xml.leaf("routeTableId", id).leaf("main", true);
            });
        });
        Ok(xml.into())
    }

    pub(crate) fn describe_vpc_endpoints(&mut self, call: &Call) -> Outcome {
        self.require_plain(call)?;
        let region = self.settings.region.clone();
        let services = self.integration.endpoints.clone();
        let mut xml = Xml::new();
        xml.items("vpcEndpointSet", services.iter().enumerate(), |xml, (number, service)| {
            xml.leaf("vpcEndpointId", format!("vpce-{number:017x}"))
                .leaf("vpcEndpointType", if service == "s3" { "Gateway" } else { "Interface" })
                .leaf("vpcId", VPC)
                .leaf("serviceName", format!("com.amazonaws.{region}.{service}"))
                .leaf("state", "available");
        });
        Ok(xml.into())
    }
}
