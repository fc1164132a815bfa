//! The calls to EventBridge: the rules that send events to a queue. Source: "ListRuleNamesByTarget" and "DescribeRule", Amazon
//! EventBridge API Reference, version 2015-10-07.

use aws_config::SdkConfig;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{CallError, Service, SignedCalls, json};

const SERVICE: Service = Service {
    id: "EventBridge",
    name: "events",
    endpoint: |region, variant| {
        let names = json::HostNames { plain: "events", fips: "events-fips", fips_dual_stack: "events-fips" };
        json::regional(&names, region, variant)
    },
    read_error: json::read_error,
};

/// A rule, as far as Croft reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Rule {
    pub(crate) name: String,
    /// `ENABLED`, or why it sends nothing.
    pub(crate) state: String,
    /// JSON; absent for a rule on a schedule.
    pub(crate) event_pattern: Option<String>,
}

/// A client for EventBridge.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    calls: SignedCalls,
}

impl Client {
    /// A client with the credentials, endpoint, retries and timeouts of `config`.
    pub(crate) fn new(config: &SdkConfig) -> Self {
        Self { calls: SignedCalls::new(config, &SERVICE) }
    }

    /// ListRuleNamesByTarget: every rule of the default bus whose target is `arn`.
    pub(crate) async fn list_rule_names(&self, arn: &str) -> Result<Vec<String>, CallError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Page {
            #[serde(default)]
            rule_names: Vec<String>,
            next_token: Option<String>,
        }
        let mut names = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let mut parameters = json!({"TargetArn": arn});
            if let (Some(fields), Some(token)) = (parameters.as_object_mut(), &token) {
                fields.insert("NextToken".to_owned(), Value::from(token.as_str()));
            }
            let page: Page = json::call(&self.calls, "AWSEvents.ListRuleNamesByTarget", &parameters).await?;
            names.extend(page.rule_names);
            match page.next_token.filter(|next| !next.is_empty()) {
                next @ Some(_) => token = next,
                None => return Ok(names),
            }
        }
    }

    /// DescribeRule.
    pub(crate) async fn describe_rule(&self, name: &str) -> Result<Rule, CallError> {
        json::call(&self.calls, "AWSEvents.DescribeRule", &json!({"Name": name})).await
    }
}

#[cfg(test)]
mod tests {
    use aws_smithy_types::error::metadata::ProvideErrorMetadata as _;

    use super::*;
    use crate::calls::wire::Wire;

    #[tokio::test]
    async fn every_page_of_names_is_read() {
        let wire = Wire::new(&[
            (200, r#"{"RuleNames": ["a"], "NextToken": "n"}"#),
            (200, r#"{"RuleNames": ["b"], "NextToken": null}"#),
        ]);
        let names = Client::new(&wire.config(Some("eu-west-1"))).list_rule_names("arn:q").await.unwrap();
        assert_eq!(names, ["a", "b"]);
        let sent = wire.sent();
        let [(to, signed, first), (_, _, second)] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!(to, "https://events.eu-west-1.amazonaws.com/");
        assert!(signed.contains("/eu-west-1/events/aws4_request"), "{signed}");
        assert_eq!(first, r#"{"TargetArn":"arn:q"}"#);
        assert_eq!(second, r#"{"NextToken":"n","TargetArn":"arn:q"}"#);
    }

    #[tokio::test]
    async fn rule_is_read_and_a_refusal_has_its_code() {
        let wire =
            Wire::new(&[(200, r#"{"Name": "a", "State": "ENABLED", "EventPattern": "{}", "Arn": "x"}"#)]);
        let found = Client::new(&wire.config(Some("us-east-1"))).describe_rule("a").await.unwrap();
        assert_eq!((found.name.as_str(), found.state.as_str()), ("a", "ENABLED"));
        assert_eq!(found.event_pattern.as_deref(), Some("{}"));
        let wire = Wire::new(&[(400, r#"{"__type": "AccessDeniedException", "Message": "no"}"#)]);
        let error = Client::new(&wire.config(Some("us-east-1"))).describe_rule("a").await.unwrap_err();
        assert_eq!((error.code(), error.message()), (Some("AccessDeniedException"), Some("no")));
    }
}
