//! Calls, errors and regional endpoints of the services that speak JSON.

use aws_smithy_runtime_api::client::{orchestrator::HttpResponse, result::SdkError};
use aws_smithy_types::error::metadata::ErrorMetadata;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Call, CallError, Endpoint, SignedCalls, Variant};

/// Domains of the partitions by the prefix of their regions: of IPv4, and of dual-stack endpoints where there are any.
/// Source: "Partitions", the endpoint rules of the SDK.
const DOMAINS: [(&str, &str, Option<&str>); 8] = [
    ("cn-", "amazonaws.com.cn", Some("api.amazonwebservices.com.cn")),
    ("us-gov-", "amazonaws.com", Some("api.aws")),
    ("us-iso-", "c2s.ic.gov", None),
    ("us-isob-", "sc2s.sgov.gov", None),
    ("us-isof-", "csp.hci.ic.gov", None),
    ("eu-isoe-", "cloud.adc-e.uk", None),
    ("eusc-", "amazonaws.eu", None),
    ("", "amazonaws.com", Some("api.aws")),
];

/// First parts of a service's host names.
pub(super) struct HostNames {
    pub(super) plain: &'static str,
    pub(super) fips: &'static str,
    pub(super) fips_dual_stack: &'static str,
}

/// The endpoint of a service that each region has. In GovCloud the plain ones are FIPS endpoints.
pub(super) fn regional(names: &HostNames, region: &str, variant: Variant) -> Endpoint {
    let (prefix, ipv4, dual_stack) = DOMAINS
        .into_iter()
        .find(|(prefix, ..)| region.starts_with(prefix))
        .unwrap_or(("", "amazonaws.com", Some("api.aws")));
    let dual_stack = dual_stack.filter(|_| variant.dual_stack);
    let fips = variant.fips && prefix != "us-gov-";
    let name = match (fips, dual_stack) {
        (false, _) => names.plain,
        (true, None) => names.fips,
        (true, Some(_)) => names.fips_dual_stack,
    };
    let domain = dual_stack.unwrap_or(ipv4);
    Endpoint { host: format!("{name}.{region}.{domain}"), signing_region: region.to_owned() }
}

/// Code and message of a refusal. The code is in a header or in the body, with a namespace before and an address behind.
/// Source: "AWS JSON 1.1 protocol" and "AWS restJson1 protocol", Smithy, on error serialization.
pub(super) fn read_error(response: &HttpResponse) -> Option<ErrorMetadata> {
    // As a map: an emulator writes the message in both spellings.
    let body: serde_json::Map<String, Value> = serde_json::from_slice(response.body().bytes()?).ok()?;
    let text = |names: [&str; 2]| names.iter().find_map(|name| body.get(*name)?.as_str()).map(str::to_owned);
    let code = response.headers().get("x-amzn-errortype").map(str::to_owned);
    let code = code.or_else(|| text(["__type", "code"]))?;
    let code = code.split(':').next()?;
    let code = code.rsplit('#').next()?;
    let mut error = ErrorMetadata::builder().code(code);
    if let Some(message) = text(["message", "Message"]) {
        error = error.message(message);
    }
    Some(error.build())
}

/// Calls `target` with `parameters`, and reads its answer. Source: "AWS JSON 1.1 protocol", Smithy.
pub(super) async fn call<T: DeserializeOwned>(
    calls: &SignedCalls,
    target: &'static str,
    parameters: &Value,
) -> Result<T, CallError> {
    let call = Call {
        method: "POST",
        path: "/".to_owned(),
        headers: vec![("content-type", "application/x-amz-json-1.1"), ("x-amz-target", target)],
        body: parameters.to_string(),
    };
    read(calls.service, &calls.send(call).await?)
}

/// The answer of `service` as `T`.
#[expect(clippy::result_large_err, reason = "the SDK's own error, which every call returns")]
pub(super) fn read<T: DeserializeOwned>(service: &str, answer: &str) -> Result<T, CallError> {
    serde_json::from_str(answer).map_err(|error| {
        SdkError::construction_failure(format!("the answer of {service} can't be read: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: HostNames = HostNames { plain: "eks", fips: "fips.eks", fips_dual_stack: "eks-fips" };

    #[test]
    fn endpoints_follow_partition_and_variant() {
        for (region, fips, dual_stack, host) in [
            ("eu-west-1", false, false, "eks.eu-west-1.amazonaws.com"),
            ("us-east-1", true, false, "fips.eks.us-east-1.amazonaws.com"),
            ("us-east-1", false, true, "eks.us-east-1.api.aws"),
            ("us-east-1", true, true, "eks-fips.us-east-1.api.aws"),
            ("us-gov-west-1", true, false, "eks.us-gov-west-1.amazonaws.com"),
            ("cn-north-1", false, false, "eks.cn-north-1.amazonaws.com.cn"),
            ("cn-north-1", false, true, "eks.cn-north-1.api.amazonwebservices.com.cn"),
            ("us-isob-east-1", false, true, "eks.us-isob-east-1.sc2s.sgov.gov"),
        ] {
            let found = regional(&NAMES, region, Variant { fips, dual_stack });
            assert_eq!((found.host.as_str(), found.signing_region.as_str()), (host, region));
        }
    }
}
