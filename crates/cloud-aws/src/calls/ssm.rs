//! The call to SSM: the value of a parameter, by which images are found. Source: "GetParameter", AWS Systems Manager API
//! Reference, version 2014-11-06.

use aws_config::SdkConfig;
use serde::Deserialize;
use serde_json::json;

use super::{CallError, Service, SignedCalls, json};

const SERVICE: Service = Service {
    id: "SSM",
    name: "ssm",
    endpoint: |region, variant| {
        let names = json::HostNames { plain: "ssm", fips: "ssm-fips", fips_dual_stack: "ssm-fips" };
        json::regional(&names, region, variant)
    },
    read_error: json::read_error,
};

/// A client for SSM.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    calls: SignedCalls,
}

impl Client {
    /// A client with the credentials, endpoint, retries and timeouts of `config`.
    pub(crate) fn new(config: &SdkConfig) -> Self {
        Self { calls: SignedCalls::new(config, &SERVICE) }
    }

    /// GetParameter: its value, `None` if the answer has none.
    pub(crate) async fn get_parameter(&self, name: &str) -> Result<Option<String>, CallError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Answer {
            parameter: Option<Parameter>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Parameter {
            value: Option<String>,
        }
        let answer: Answer =
            json::call(&self.calls, "AmazonSSM.GetParameter", &json!({"Name": name})).await?;
        Ok(answer.parameter.and_then(|parameter| parameter.value))
    }
}

#[cfg(test)]
mod tests {
    use aws_smithy_types::error::metadata::ProvideErrorMetadata as _;

    use super::*;
    use crate::calls::wire::Wire;

    #[tokio::test]
    async fn value_of_a_parameter_is_read() {
        let wire =
            Wire::new(&[(200, r#"{"Parameter": {"Name": "/a", "Type": "String", "Value": "ami-1"}}"#)]);
        let found = Client::new(&wire.config(Some("us-east-1"))).get_parameter("/a \"b\"").await.unwrap();
        assert_eq!(found.as_deref(), Some("ami-1"));
        let sent = wire.sent();
        let [(to, signed, body)] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!(
            (to.as_str(), body.as_str()),
            ("https://ssm.us-east-1.amazonaws.com/", r#"{"Name":"/a \"b\""}"#)
        );
        assert!(
            signed.contains("/us-east-1/ssm/aws4_request") && signed.contains("x-amz-target"),
            "{signed}"
        );
    }

    #[tokio::test]
    async fn refusals_have_their_code_without_the_namespace() {
        let refused = r#"{"__type": "com.amazonaws.ssm#ParameterNotFound", "message": "no /a"}"#;
        let wire = Wire::new(&[(400, refused)]);
        let error = Client::new(&wire.config(Some("us-east-1"))).get_parameter("/a").await.unwrap_err();
        assert_eq!((error.code(), error.message()), (Some("ParameterNotFound"), Some("no /a")));
        assert_eq!(wire.sent().len(), 1);
    }

    #[tokio::test]
    async fn message_in_both_spellings_is_read() {
        let refused = r#"{"__type": "ParameterNotFound", "message": "no /a", "Message": "no /a"}"#;
        let wire = Wire::new(&[(400, refused)]);
        let error = Client::new(&wire.config(Some("us-east-1"))).get_parameter("/a").await.unwrap_err();
        assert_eq!((error.code(), error.message()), (Some("ParameterNotFound"), Some("no /a")));
    }

    #[tokio::test]
    async fn answers_without_a_value_and_unreadable_ones() {
        for answer in ["{}", r#"{"Parameter": {}}"#] {
            let wire = Wire::new(&[(200, answer)]);
            let found = Client::new(&wire.config(Some("us-east-1"))).get_parameter("/a").await;
            assert_eq!(found.unwrap(), None);
        }
        let wire = Wire::new(&[(200, "<html>")]);
        let found = Client::new(&wire.config(Some("us-east-1"))).get_parameter("/a").await;
        let fault = crate::refusal::fault("GetParameter", &found.unwrap_err());
        assert!(fault.message.contains("the answer of SSM can't be read"), "{fault:?}");
    }
}
