//! The calls to EKS: how nodes join the cluster, and for `croft check` access entries, identities and Fargate profiles. Source: "Actions", Amazon EKS API
//! Reference, version 2017-11-01.

use std::collections::BTreeMap;

use aws_config::SdkConfig;
use aws_smithy_http::{
    label::{EncodingStrategy, fmt_string},
    query,
};
use serde::{Deserialize, de::DeserializeOwned};

use super::{Call, CallError, Service, SignedCalls, json};

const SERVICE: Service = Service {
    id: "EKS",
    name: "eks",
    endpoint: |region, variant| {
        let names = json::HostNames { plain: "eks", fips: "fips.eks", fips_dual_stack: "eks-fips" };
        json::regional(&names, region, variant)
    },
    read_error: json::read_error,
};

/// A cluster, as far as Croft reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Cluster {
    /// The API server's address.
    pub(crate) endpoint: Option<String>,
    pub(crate) certificate_authority: CertificateAuthority,
    pub(crate) kubernetes_network_config: NetworkConfig,
    /// Major and minor version.
    pub(crate) version: Option<String>,
    /// Such as `ACTIVE`.
    pub(crate) status: Option<String>,
    pub(crate) resources_vpc_config: VpcConfig,
    pub(crate) access_config: AccessConfig,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VpcConfig {
    pub(crate) vpc_id: Option<String>,
    pub(crate) subnet_ids: Vec<String>,
    pub(crate) cluster_security_group_id: Option<String>,
    /// `None` if the answer doesn't say.
    pub(crate) endpoint_public_access: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AccessConfig {
    /// `API`, `API_AND_CONFIG_MAP` or `CONFIG_MAP`.
    pub(crate) authentication_mode: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct CertificateAuthority {
    /// PEM in base64.
    pub(crate) data: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NetworkConfig {
    pub(crate) service_ipv4_cidr: Option<String>,
    pub(crate) service_ipv6_cidr: Option<String>,
}

/// A Fargate profile, as far as Croft reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct FargateProfile {
    /// Such as `ACTIVE`.
    pub(crate) status: String,
    pub(crate) selectors: Vec<FargateSelector>,
}

/// Which pods a Fargate profile takes: patterns with `*` and `?`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct FargateSelector {
    pub(crate) namespace: String,
    /// `null` or absent for none.
    pub(crate) labels: Option<BTreeMap<String, String>>,
}

/// A client for EKS.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    calls: SignedCalls,
}

impl Client {
    /// A client with the credentials, endpoint, retries and timeouts of `config`.
    pub(crate) fn new(config: &SdkConfig) -> Self {
        Self { calls: SignedCalls::new(config, &SERVICE) }
    }

    /// DescribeCluster: `None` if the answer has no cluster.
    pub(crate) async fn describe_cluster(&self, name: &str) -> Result<Option<Cluster>, CallError> {
        #[derive(Deserialize)]
        struct Answer {
            cluster: Option<Cluster>,
        }
        let answer: Answer = self.get(format!("/clusters/{}", segment(name))).await?;
        Ok(answer.cluster)
    }

    /// ListClusters: the names of the account's clusters in the region.
    pub(crate) async fn list_clusters(&self) -> Result<Vec<String>, CallError> {
        #[derive(Deserialize)]
        struct Page {
            #[serde(default)]
            clusters: Vec<String>,
        }
        self.pages("/clusters", |page: Page| page.clusters).await
    }

    /// ListAccessEntries: the ARNs of the principals that a cluster lets in.
    pub(crate) async fn list_access_entries(&self, cluster: &str) -> Result<Vec<String>, CallError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Page {
            #[serde(default)]
            access_entries: Vec<String>,
        }
        let path = format!("/clusters/{}/access-entries", segment(cluster));
        self.pages(&path, |page: Page| page.access_entries).await
    }

    /// DescribeAccessEntry: its type, such as `EC2_LINUX`.
    pub(crate) async fn access_entry_type(
        &self,
        cluster: &str,
        principal: &str,
    ) -> Result<Option<String>, CallError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Answer {
            access_entry: Option<Entry>,
        }
        #[derive(Deserialize)]
        struct Entry {
            #[serde(rename = "type")]
            kind: Option<String>,
        }
        let path = format!("/clusters/{}/access-entries/{}", segment(cluster), segment(principal));
        let answer: Answer = self.get(path).await?;
        Ok(answer.access_entry.and_then(|entry| entry.kind))
    }

    /// ListPodIdentityAssociations of one ServiceAccount: their ids.
    pub(crate) async fn list_pod_identities(
        &self,
        cluster: &str,
        namespace: &str,
        service_account: &str,
    ) -> Result<Vec<String>, CallError> {
        #[derive(Deserialize)]
        struct Page {
            #[serde(default)]
            associations: Vec<Association>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Association {
            association_id: String,
        }
        let path = format!(
            "/clusters/{}/pod-identity-associations?namespace={}&serviceAccount={}",
            segment(cluster),
            query::fmt_string(namespace),
            query::fmt_string(service_account)
        );
        let ids = |page: Page| page.associations.into_iter().map(|found| found.association_id).collect();
        self.pages(&path, ids).await
    }

    /// DescribePodIdentityAssociation: the ARN of its role.
    pub(crate) async fn pod_identity_role(
        &self,
        cluster: &str,
        id: &str,
    ) -> Result<Option<String>, CallError> {
        #[derive(Deserialize)]
        struct Answer {
            association: Option<Association>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Association {
            role_arn: Option<String>,
        }
        let path = format!("/clusters/{}/pod-identity-associations/{}", segment(cluster), segment(id));
        let answer: Answer = self.get(path).await?;
        Ok(answer.association.and_then(|found| found.role_arn))
    }

    /// ListFargateProfiles: their names.
    pub(crate) async fn list_fargate_profiles(&self, cluster: &str) -> Result<Vec<String>, CallError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Page {
            #[serde(default)]
            fargate_profile_names: Vec<String>,
        }
        let path = format!("/clusters/{}/fargate-profiles", segment(cluster));
        self.pages(&path, |page: Page| page.fargate_profile_names).await
    }

    /// DescribeFargateProfile.
    pub(crate) async fn describe_fargate_profile(
        &self,
        cluster: &str,
        name: &str,
    ) -> Result<Option<FargateProfile>, CallError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Answer {
            fargate_profile: Option<FargateProfile>,
        }
        let path = format!("/clusters/{}/fargate-profiles/{}", segment(cluster), segment(name));
        let answer: Answer = self.get(path).await?;
        Ok(answer.fargate_profile)
    }

    async fn get<T: DeserializeOwned>(&self, path: String) -> Result<T, CallError> {
        let call = Call { method: "GET", path, headers: Vec::new(), body: String::new() };
        json::read(SERVICE.id, &self.calls.send(call).await?)
    }

    /// The items of every page of a list.
    async fn pages<P: DeserializeOwned, T>(
        &self,
        path: &str,
        items: impl Fn(P) -> Vec<T>,
    ) -> Result<Vec<T>, CallError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Page<P> {
            next_token: Option<String>,
            #[serde(flatten)]
            rest: P,
        }
        let mut all = Vec::new();
        let mut next = path.to_owned();
        loop {
            let page: Page<P> = self.get(next).await?;
            all.extend(items(page.rest));
            let Some(token) = page.next_token.filter(|token| !token.is_empty()) else { return Ok(all) };
            let mark = if path.contains('?') { '&' } else { '?' };
            next = format!("{path}{mark}nextToken={}", query::fmt_string(token));
        }
    }
}

/// `text` as one segment of a path.
fn segment(text: &str) -> String {
    fmt_string(text, EncodingStrategy::Default)
}

#[cfg(test)]
mod tests {
    use aws_smithy_types::error::metadata::ProvideErrorMetadata as _;

    use super::*;
    use crate::calls::wire::Wire;

    #[tokio::test]
    async fn cluster_is_read() {
        let wire = Wire::new(&[(
            200,
            r#"{"cluster": {"name": "a", "endpoint": "https://b", "version": "1.36", "status": "ACTIVE",
                "certificateAuthority": {"data": "Y2E="},
                "kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.0.0.0/16", "ipFamily": "ipv4"}}}"#,
        )]);
        let found = Client::new(&wire.config(Some("cn-north-1"))).describe_cluster("a/b c").await.unwrap();
        let found = found.unwrap();
        assert_eq!(found.endpoint.as_deref(), Some("https://b"));
        assert_eq!(found.certificate_authority.data.as_deref(), Some("Y2E="));
        assert_eq!(found.kubernetes_network_config.service_ipv4_cidr.as_deref(), Some("10.0.0.0/16"));
        assert_eq!(
            (found.version.as_deref(), found.kubernetes_network_config.service_ipv6_cidr),
            (Some("1.36"), None)
        );
        let sent = wire.sent();
        let [(to, signed, _)] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!(to, "https://eks.cn-north-1.amazonaws.com.cn/clusters/a%2Fb%20c");
        assert!(signed.contains("/cn-north-1/eks/aws4_request"), "{signed}");
    }

    #[tokio::test]
    async fn network_and_authentication_of_a_cluster_are_read() {
        let wire = Wire::new(&[(
            200,
            r#"{"cluster": {"resourcesVpcConfig": {"vpcId": "vpc-1", "subnetIds": ["subnet-1"], "clusterSecurityGroupId": "sg-1",
                "endpointPublicAccess": false}, "accessConfig": {"authenticationMode": "API"}}}"#,
        )]);
        let found =
            Client::new(&wire.config(Some("us-east-1"))).describe_cluster("a").await.unwrap().unwrap();
        let network = found.resources_vpc_config;
        assert_eq!((network.vpc_id.as_deref(), network.endpoint_public_access), (Some("vpc-1"), Some(false)));
        assert_eq!(network.subnet_ids, ["subnet-1"]);
        assert_eq!(network.cluster_security_group_id.as_deref(), Some("sg-1"));
        assert_eq!(found.access_config.authentication_mode.as_deref(), Some("API"));
    }

    #[tokio::test]
    async fn every_page_of_a_list_is_read() {
        let wire = Wire::new(&[
            (200, r#"{"accessEntries": ["a"], "nextToken": "n="}"#),
            (200, r#"{"accessEntries": ["b"], "nextToken": null}"#),
        ]);
        let client = Client::new(&wire.config(Some("us-east-1")));
        assert_eq!(client.list_access_entries("c").await.unwrap(), ["a", "b"]);
        let paths: Vec<String> = wire.sent().into_iter().map(|(to, ..)| to).collect();
        let base = "https://eks.us-east-1.amazonaws.com/clusters/c/access-entries";
        assert_eq!(paths, [base.to_owned(), format!("{base}?nextToken=n%3D")]);
    }

    #[tokio::test]
    async fn identities_are_asked_for_by_escaped_names() {
        let wire = Wire::new(&[
            (200, r#"{"accessEntry": {"principalArn": "x", "type": "EC2_LINUX"}}"#),
            (200, r#"{"associations": [{"associationId": "a-1", "namespace": "n"}]}"#),
            (200, r#"{"association": {"roleArn": "arn:r"}}"#),
        ]);
        let client = Client::new(&wire.config(Some("us-east-1")));
        let kind = client.access_entry_type("c", "arn:aws:iam::1:role/n").await.unwrap();
        assert_eq!(kind.as_deref(), Some("EC2_LINUX"));
        assert_eq!(client.list_pod_identities("c", "n s", "sa").await.unwrap(), ["a-1"]);
        assert_eq!(client.pod_identity_role("c", "a-1").await.unwrap().as_deref(), Some("arn:r"));
        let paths: Vec<String> = wire.sent().into_iter().map(|(to, ..)| to).collect();
        let base = "https://eks.us-east-1.amazonaws.com/clusters/c";
        assert_eq!(
            paths,
            [
                format!("{base}/access-entries/arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fn"),
                format!("{base}/pod-identity-associations?namespace=n%20s&serviceAccount=sa"),
                format!("{base}/pod-identity-associations/a-1"),
            ]
        );
    }

    #[tokio::test]
    async fn fargate_profile_is_read_with_and_without_labels() {
        let wire = Wire::new(&[
            (200, r#"{"fargateProfileNames": ["p"]}"#),
            (
                200,
                r#"{"fargateProfile": {"status": "ACTIVE", "selectors": [{"namespace": "a*", "labels": null}, {"namespace": "b", "labels": {"k": "v"}}]}}"#,
            ),
        ]);
        let client = Client::new(&wire.config(Some("us-east-1")));
        assert_eq!(client.list_fargate_profiles("c").await.unwrap(), ["p"]);
        let profile = client.describe_fargate_profile("c", "p").await.unwrap().unwrap();
        assert_eq!(profile.status, "ACTIVE");
        let labels = Some(BTreeMap::from([("k".to_owned(), "v".to_owned())]));
        let selector = |namespace: &str, labels| FargateSelector { namespace: namespace.to_owned(), labels };
        assert_eq!(profile.selectors, [selector("a*", None), selector("b", labels)]);
        assert!(wire.sent()[1].0.ends_with("/clusters/c/fargate-profiles/p"));
    }

    #[tokio::test]
    async fn refusals_have_their_code_of_body_or_header() {
        let wire =
            Wire::new(&[(404, r#"{"__type": "ResourceNotFoundException", "message": "no cluster a"}"#)]);
        let error = Client::new(&wire.config(Some("us-east-1"))).describe_cluster("a").await.unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            (Some("ResourceNotFoundException"), Some("no cluster a"))
        );
        let wire = Wire::new(&[(403, r#"{"message": "not authorized"}"#)])
            .with_header("x-amzn-errortype", "AccessDeniedException:http://internal.amazon.com/coral/");
        let error = Client::new(&wire.config(Some("us-east-1"))).describe_cluster("a").await.unwrap_err();
        assert_eq!((error.code(), error.message()), (Some("AccessDeniedException"), Some("not authorized")));
    }

    #[tokio::test]
    async fn answer_without_a_cluster_is_none() {
        let wire = Wire::new(&[(200, "{}")]);
        let found = Client::new(&wire.config(Some("us-east-1"))).describe_cluster("a").await;
        assert_eq!(found.unwrap(), None);
    }
}
