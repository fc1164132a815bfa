//! The account's one cluster.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

use crate::{
    answer::{Answer, Call, Outcome, Refusal},
    policy::Demand,
    resources::VPC,
    world::World,
};

impl World {
    pub(crate) fn eks(&mut self, call: &Call) -> Outcome {
        let name = call.json.get("name").and_then(|n| n.as_str()).unwrap_or_default().to_owned();
        let s = &self.settings;
        let arn = format!("arn:aws:eks:{}:{}:cluster/{name}", s.region, s.account);
        self.require(call, &Demand::new("eks:DescribeCluster", &arn))?;
        let s = &self.settings;
        if call.action != "DescribeCluster" || name != s.cluster_name {
            return Err(Refusal::new(
                "ResourceNotFoundException",
                format!("No cluster found for name: {name}."),
            ));
        }
        Ok(Answer::Json(json!({"cluster": {
            "name": name,
            "arn": arn,
            "version": s.kubernetes_version,
            "endpoint": s.cluster_endpoint,
            "status": "ACTIVE",
            "certificateAuthority": {"data": STANDARD.encode(&s.cluster_ca)},
            "kubernetesNetworkConfig": {"serviceIpv4Cidr": s.service_cidr, "ipFamily": "ipv4"},
            "resourcesVpcConfig": {
                "vpcId": VPC,
                "subnetIds": self.subnets.keys().collect::<Vec<_>>(),
                "clusterSecurityGroupId": self.groups.keys().next(),
                "endpointPublicAccess": self.integration.internet,
                "endpointPrivateAccess": true,
            },
            "accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"},
        }})))
    }
}
