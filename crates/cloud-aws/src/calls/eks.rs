//! The call to EKS: how nodes join the cluster. Source: "DescribeCluster", Amazon EKS API Reference, version 2017-11-01.

use aws_config::SdkConfig;
use aws_smithy_http::label::{EncodingStrategy, fmt_string};
use serde::Deserialize;

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
        let path = format!("/clusters/{}", fmt_string(name, EncodingStrategy::Default));
        let call = Call { method: "GET", path, headers: Vec::new(), body: String::new() };
        let answer: Answer = json::read(SERVICE.id, &self.calls.send(call).await?)?;
        Ok(answer.cluster)
    }
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
