//! The calls to IAM: six operations on instance profiles.
//!
//! IAM speaks the AWS query protocol, a form in and XML out. The SDK's client for it is as large as EC2's to compile, so
//! these six calls are written here, on the same orchestrator: signing, credentials, retries, timeouts and connections
//! are the SDK's. `profile` is the only caller. Source: "Actions", AWS IAM API Reference, version 2010-05-08.

use std::time::Duration;

use aws_config::{SdkConfig, retry::RetryConfig};
use aws_runtime::{
    auth::{SigV4OperationSigningConfig, SigningOptions, sigv4},
    retries::classifiers::AwsErrorCodeClassifier,
};
use aws_smithy_runtime::client::{
    identity::IdentityCache,
    orchestrator::operation::Operation,
    retries::classifiers::{HttpStatusCodeClassifier, TransientErrorClassifier},
};
use aws_smithy_runtime_api::{
    box_error::BoxError,
    client::{
        auth::{
            AuthSchemeOptionResolverParams, SharedAuthScheme, SharedAuthSchemeOptionResolver,
            static_resolver::StaticAuthSchemeOptionResolver,
        },
        identity::SharedIdentityResolver,
        orchestrator::{HttpRequest, HttpResponse, OrchestratorError},
        result::SdkError,
        runtime_components::RuntimeComponentsBuilder,
        runtime_plugin::StaticRuntimePlugin,
    },
};
use aws_smithy_types::{body::SdkBody, config_bag::Layer, error::metadata::ErrorMetadata};
use aws_smithy_xml::decode::{Document, ScopedDecoder, XmlDecodeError, try_data};
use aws_types::{SigningName, region::SigningRegion, service_config::ServiceConfigKey};

const VERSION: &str = "2010-05-08";

/// The failure of a call.
pub(crate) type IamError = SdkError<ErrorMetadata, HttpResponse>;

/// An instance profile, as far as Croft reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InstanceProfile {
    /// Its name, unique in the account.
    pub(crate) name: String,
    /// The names of its roles: none or one.
    pub(crate) roles: Vec<String>,
}

/// A page of ListInstanceProfiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// The profiles of this page.
    pub(crate) profiles: Vec<InstanceProfile>,
    /// Where the next page starts; `None` on the last one.
    pub(crate) marker: Option<String>,
}

/// A client for IAM.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// `None` without a region: then neither the endpoint nor what to sign for is known.
    operation: Option<Operation<Form, String, ErrorMetadata>>,
}

/// The parameters of a call.
#[derive(Clone, Debug)]
struct Form {
    action: &'static str,
    /// URL-encoded.
    body: String,
}

impl Form {
    fn new(action: &'static str) -> Self {
        Self { action, body: format!("Action={action}&Version={VERSION}") }
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.body.push('&');
        self.body.push_str(name);
        self.body.push('=');
        self.body.push_str(&aws_smithy_http::query::fmt_string(value));
        self
    }
}

impl Client {
    /// A client with the credentials, endpoint, retries and timeouts of `config`.
    pub(crate) fn new(config: &SdkConfig) -> Self {
        Self { operation: operation(config) }
    }

    /// GetInstanceProfile.
    pub(crate) async fn get(&self, name: &str) -> Result<InstanceProfile, IamError> {
        let form = Form::new("GetInstanceProfile").with("InstanceProfileName", name);
        self.call(form, |root| {
            let found = read_page(root, "GetInstanceProfileResult")?.profiles.pop();
            found.ok_or_else(|| XmlDecodeError::custom("it has no instance profile"))
        })
        .await
    }

    /// CreateInstanceProfile with one tag.
    pub(crate) async fn create(
        &self,
        name: &str,
        path: &str,
        (key, value): (&str, &str),
    ) -> Result<(), IamError> {
        let form = Form::new("CreateInstanceProfile")
            .with("InstanceProfileName", name)
            .with("Path", path)
            .with("Tags.member.1.Key", key)
            .with("Tags.member.1.Value", value);
        self.call(form, |_| Ok(())).await
    }

    /// AddRoleToInstanceProfile.
    pub(crate) async fn add_role(&self, name: &str, role: &str) -> Result<(), IamError> {
        self.call(change_role("AddRoleToInstanceProfile", name, role), |_| Ok(())).await
    }

    /// RemoveRoleFromInstanceProfile.
    pub(crate) async fn remove_role(&self, name: &str, role: &str) -> Result<(), IamError> {
        self.call(change_role("RemoveRoleFromInstanceProfile", name, role), |_| Ok(())).await
    }

    /// DeleteInstanceProfile.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), IamError> {
        let form = Form::new("DeleteInstanceProfile").with("InstanceProfileName", name);
        self.call(form, |_| Ok(())).await
    }

    /// ListInstanceProfiles: the page at `marker`, of the profiles below `path`.
    pub(crate) async fn list(&self, path: &str, marker: Option<&str>) -> Result<Page, IamError> {
        let mut form = Form::new("ListInstanceProfiles").with("PathPrefix", path);
        if let Some(marker) = marker {
            form = form.with("Marker", marker);
        }
        self.call(form, |root| read_page(root, "ListInstanceProfilesResult")).await
    }

    /// Sends `form` and reads the answer with `read`.
    async fn call<T>(
        &self,
        form: Form,
        read: impl FnOnce(&mut ScopedDecoder<'_, '_>) -> Result<T, XmlDecodeError>,
    ) -> Result<T, IamError> {
        let Some(operation) = &self.operation else {
            return Err(SdkError::construction_failure("a region must be set to call IAM"));
        };
        let expected = format!("{}Response", form.action);
        let answer = operation.invoke(form).await?;
        let unreadable = |error: XmlDecodeError| {
            SdkError::construction_failure(format!("IAM's answer can't be read: {error}"))
        };
        let mut document = Document::try_from(answer.as_bytes()).map_err(unreadable)?;
        let mut root = document.root_element().map_err(unreadable)?;
        // A proxy's page is no answer without profiles.
        if root.start_el().local() != expected {
            return Err(unreadable(XmlDecodeError::custom(format!("it isn't a {expected}"))));
        }
        read(&mut root).map_err(unreadable)
    }
}

fn change_role(action: &'static str, name: &str, role: &str) -> Form {
    Form::new(action).with("InstanceProfileName", name).with("RoleName", role)
}

/// The host of IAM for `region`, and the region that calls are signed for: IAM is one service per partition. FIPS
/// endpoints exist where the first list has one. Source: "AWS Identity and Access Management endpoints and quotas", the
/// AWS general reference, and the endpoint rules of the SDK.
fn endpoint(region: &str, fips: bool) -> (String, String) {
    let known = [
        ("cn-", "iam.cn-north-1.amazonaws.com.cn", "iam-fips.amazonaws.com.cn", "cn-north-1"),
        ("us-gov-", "iam.us-gov.amazonaws.com", "iam.us-gov.amazonaws.com", "us-gov-west-1"),
        ("us-iso-", "iam.us-iso-east-1.c2s.ic.gov", "iam-fips.us-iso-east-1.c2s.ic.gov", "us-iso-east-1"),
        (
            "us-isob-",
            "iam.us-isob-east-1.sc2s.sgov.gov",
            "iam-fips.us-isob-east-1.sc2s.sgov.gov",
            "us-isob-east-1",
        ),
        ("us-isof-", "iam.us-isof-south-1.csp.hci.ic.gov", "iam-fips.csp.hci.ic.gov", "us-isof-south-1"),
        ("eu-isoe-", "iam.eu-isoe-west-1.cloud.adc-e.uk", "iam-fips.cloud.adc-e.uk", "eu-isoe-west-1"),
        ("eusc-", "iam.eusc-de-east-1.amazonaws.eu", "iam-fips.amazonaws.eu", "eusc-de-east-1"),
    ];
    let (_, host, fips_host, signing) = known
        .into_iter()
        .find(|(prefix, ..)| region.starts_with(prefix))
        .unwrap_or(("", "iam.amazonaws.com", "iam-fips.amazonaws.com", "us-east-1"));
    (format!("https://{}", if fips { fips_host } else { host }), signing.to_owned())
}

fn operation(config: &SdkConfig) -> Option<Operation<Form, String, ErrorMetadata>> {
    let region = config.region()?;
    let (official, signing) = endpoint(region.as_ref(), config.use_fips().unwrap_or_default());
    // As the SDK's clients: the service's own setting, then the one of all services.
    let own = config.service_config().and_then(|settings| {
        let key =
            ServiceConfigKey::builder().service_id("IAM").env("AWS_ENDPOINT_URL").profile("endpoint_url");
        key.build().ok().and_then(|key| settings.load_config(key))
    });
    let url = own.or_else(|| config.endpoint_url().map(str::to_owned)).unwrap_or(official);

    let mut layer = Layer::new("iam");
    layer.store_put(AuthSchemeOptionResolverParams::new(()));
    layer.store_put(SigningName::from_static("iam"));
    layer.store_put(SigningRegion::from(aws_config::Region::new(signing)));
    layer.store_put(SigV4OperationSigningConfig {
        signing_options: SigningOptions::default(),
        ..SigV4OperationSigningConfig::default()
    });
    let mut components = RuntimeComponentsBuilder::new("iam")
        .with_auth_scheme(SharedAuthScheme::new(sigv4::SigV4AuthScheme::new()))
        .with_auth_scheme_option_resolver(Some(SharedAuthSchemeOptionResolver::new(
            StaticAuthSchemeOptionResolver::new(vec![sigv4::SCHEME_ID]),
        )))
        .with_identity_cache(Some(config.identity_cache().unwrap_or_else(|| IdentityCache::lazy().build())));
    if let Some(credentials) = config.credentials_provider() {
        components.set_identity_resolver(sigv4::SCHEME_ID, SharedIdentityResolver::new(credentials));
    }
    let retries = config.retry_config().cloned().unwrap_or_else(RetryConfig::standard);
    let mut builder = Operation::builder()
        .service_name("iam")
        .operation_name("query")
        .endpoint_url(url.trim_end_matches('/'))
        .standard_retry(&retries)
        .timeout_config(config.timeout_config().cloned().unwrap_or_else(default_timeouts))
        .retry_classifier(TransientErrorClassifier::<ErrorMetadata>::new())
        .retry_classifier(HttpStatusCodeClassifier::default())
        .retry_classifier(AwsErrorCodeClassifier::<ErrorMetadata>::new())
        .with_connection_poisoning()
        .runtime_plugin(
            StaticRuntimePlugin::new().with_config(layer.freeze()).with_runtime_components(components),
        );
    if let Some(http) = config.http_client() {
        builder = builder.http_client(http);
    }
    if let Some(version) = config.behavior_version() {
        builder = builder.behavior_version(version);
    }
    Some(builder.serializer(write_request).deserializer(read_answer).build())
}

fn default_timeouts() -> aws_config::timeout::TimeoutConfig {
    aws_config::timeout::TimeoutConfig::builder().operation_attempt_timeout(Duration::from_secs(30)).build()
}

fn write_request(form: Form) -> Result<HttpRequest, BoxError> {
    let mut request = HttpRequest::new(SdkBody::from(form.body));
    request.set_method("POST")?;
    request.set_uri("/")?;
    let headers = request.headers_mut();
    headers.insert("content-type", "application/x-www-form-urlencoded");
    headers.insert("user-agent", concat!("croft/", env!("CARGO_PKG_VERSION")));
    Ok(request)
}

fn read_answer(response: &HttpResponse) -> Result<String, OrchestratorError<ErrorMetadata>> {
    let body = response.body().bytes().unwrap_or_default();
    if response.status().is_success() {
        return String::from_utf8(body.to_vec()).map_err(OrchestratorError::other);
    }
    Err(OrchestratorError::operation(read_error(body)))
}

/// Code and message of a refusal. What isn't XML, such as a proxy's page, is an error without a code.
fn read_error(body: &[u8]) -> ErrorMetadata {
    let read = || -> Result<ErrorMetadata, XmlDecodeError> {
        let mut found = ErrorMetadata::builder();
        let mut document = Document::try_from(body)?;
        let mut root = document.root_element()?;
        while let Some(mut tag) = root.next_tag() {
            if tag.start_el().local() != "Error" {
                continue;
            }
            while let Some(mut field) = tag.next_tag() {
                match field.start_el().local() {
                    "Code" => found = found.code(try_data(&mut field)?),
                    "Message" => found = found.message(try_data(&mut field)?),
                    _ => {}
                }
            }
        }
        let found = found.build();
        if found.code().is_none() { Err(XmlDecodeError::custom("it has no code")) } else { Ok(found) }
    };
    read().unwrap_or_else(|_| {
        let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
        ErrorMetadata::builder().message(text).build()
    })
}

/// The profiles in the element `result` of an answer: those of a list, or the single one.
fn read_page(root: &mut ScopedDecoder<'_, '_>, result: &str) -> Result<Page, XmlDecodeError> {
    let mut page = Page::default();
    let mut truncated = false;
    while let Some(mut outer) = root.next_tag() {
        if outer.start_el().local() != result {
            continue;
        }
        while let Some(mut tag) = outer.next_tag() {
            match tag.start_el().local() {
                "InstanceProfile" => page.profiles.push(read_profile(&mut tag)?),
                "InstanceProfiles" => {
                    while let Some(mut member) = tag.next_tag() {
                        page.profiles.push(read_profile(&mut member)?);
                    }
                }
                "IsTruncated" => truncated = try_data(&mut tag)?.trim() == "true",
                "Marker" => page.marker = Some(try_data(&mut tag)?.trim().to_owned()),
                _ => {}
            }
        }
    }
    page.marker = page.marker.filter(|marker| truncated && !marker.is_empty());
    Ok(page)
}

fn read_profile(element: &mut ScopedDecoder<'_, '_>) -> Result<InstanceProfile, XmlDecodeError> {
    let mut profile = InstanceProfile::default();
    while let Some(mut tag) = element.next_tag() {
        match tag.start_el().local() {
            "InstanceProfileName" => profile.name = try_data(&mut tag)?.trim().to_owned(),
            "Roles" => {
                while let Some(mut role) = tag.next_tag() {
                    while let Some(mut field) = role.next_tag() {
                        if field.start_el().local() == "RoleName" {
                            profile.roles.push(try_data(&mut field)?.trim().to_owned());
                        }
                    }
                }
            }
            _ => {}
        }
    }
    if profile.name.is_empty() {
        return Err(XmlDecodeError::custom("an instance profile has no name"));
    }
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::Pin,
        sync::{Arc, Mutex},
    };

    use aws_config::{BehaviorVersion, Region};
    use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
    use aws_smithy_runtime_api::client::{
        http::{HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector},
        runtime_components::RuntimeComponents,
    };
    use aws_smithy_types::error::metadata::ProvideErrorMetadata as _;

    use super::*;

    /// Answers with the given statuses and bodies, the last one again and again, and keeps what was sent.
    #[derive(Clone, Debug, Default)]
    struct Wire {
        answers: Arc<Mutex<Vec<(u16, String)>>>,
        sent: Arc<Mutex<Vec<(String, String, String)>>>,
    }

    impl HttpClient for Wire {
        fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
            SharedHttpConnector::new(self.clone())
        }
    }

    impl HttpConnector for Wire {
        fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
            let body = String::from_utf8(request.body().bytes().unwrap().to_vec()).unwrap();
            let signed = request.headers().get("authorization").unwrap_or_default().to_owned();
            self.sent.lock().unwrap().push((request.uri().to_owned(), signed, body));
            let mut answers = self.answers.lock().unwrap();
            let (status, body) =
                if answers.len() > 1 { answers.remove(0) } else { answers.first().cloned().unwrap() };
            let response = HttpResponse::new(status.try_into().unwrap(), SdkBody::from(body));
            let answer: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async { Ok(response) });
            HttpConnectorFuture::new(answer)
        }
    }

    fn client(wire: &Wire, region: Option<&'static str>) -> Client {
        let keys = Credentials::new("AKIDTEST", "secret", None, None, "test");
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(wire.clone())
            .retry_config(RetryConfig::standard().with_initial_backoff(Duration::from_millis(1)))
            .credentials_provider(SharedCredentialsProvider::new(keys))
            .sleep_impl(aws_smithy_async::rt::sleep::TokioSleep::new())
            .region(region.map(Region::from_static));
        Client::new(&config.build())
    }

    fn wire(answers: &[(u16, &str)]) -> Wire {
        let wire = Wire::default();
        *wire.answers.lock().unwrap() = answers.iter().map(|(s, b)| (*s, (*b).to_owned())).collect();
        wire
    }

    const PROFILE: &str = r#"<GetInstanceProfileResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/">
  <GetInstanceProfileResult><InstanceProfile>
    <InstanceProfileId>AIPA1</InstanceProfileId>
    <Roles><member><Path>/application_abc/</Path><RoleName>a&amp;b</RoleName></member></Roles>
    <InstanceProfileName>croft-1</InstanceProfileName><Path>/croft/x/</Path>
    <Tags><member><Key>k</Key><Value>v</Value></member></Tags>
  </InstanceProfile></GetInstanceProfileResult>
  <ResponseMetadata><RequestId>37289fda</RequestId></ResponseMetadata>
</GetInstanceProfileResponse>"#;

    #[tokio::test]
    async fn profile_is_read_from_a_call_signed_for_the_partition() {
        for (region, url, scope) in [
            ("eu-west-1", "https://iam.amazonaws.com/", "/us-east-1/iam/aws4_request"),
            ("cn-northwest-1", "https://iam.cn-north-1.amazonaws.com.cn/", "/cn-north-1/iam/aws4_request"),
            ("us-gov-east-1", "https://iam.us-gov.amazonaws.com/", "/us-gov-west-1/iam/aws4_request"),
        ] {
            let wire = wire(&[(200, PROFILE)]);
            let found = client(&wire, Some(region)).get("croft-1").await.unwrap();
            assert_eq!(found, InstanceProfile { name: "croft-1".to_owned(), roles: vec!["a&b".to_owned()] });
            let sent = wire.sent.lock().unwrap().clone();
            let [(to, signed, body)] = sent.as_slice() else { panic!("{sent:?}") };
            assert_eq!(to, url);
            assert!(signed.starts_with("AWS4-HMAC-SHA256 Credential=AKIDTEST/"), "{signed}");
            assert!(signed.contains(scope), "{signed}");
            assert_eq!(body, "Action=GetInstanceProfile&Version=2010-05-08&InstanceProfileName=croft-1");
        }
    }

    #[tokio::test]
    async fn parameters_are_escaped() {
        let wire = wire(&[(200, "<CreateInstanceProfileResponse/>")]);
        client(&wire, Some("us-east-1")).create("a+b", "/croft/x y/", ("k&", "v=1")).await.unwrap();
        let sent = wire.sent.lock().unwrap().clone();
        assert_eq!(
            sent.first().unwrap().2,
            "Action=CreateInstanceProfile&Version=2010-05-08&InstanceProfileName=a%2Bb&Path=%2Fcroft%2Fx%20y%2F\
             &Tags.member.1.Key=k%26&Tags.member.1.Value=v%3D1"
        );
    }

    #[tokio::test]
    async fn list_has_its_profiles_and_a_marker_only_if_truncated() {
        let list = |truncated: bool| {
            format!(
                "<ListInstanceProfilesResponse><ListInstanceProfilesResult><IsTruncated>{truncated}</IsTruncated>\
                 <InstanceProfiles><member><InstanceProfileName>a</InstanceProfileName><Roles/></member>\
                 <member><InstanceProfileName>b</InstanceProfileName></member></InstanceProfiles>\
                 <Marker>next</Marker></ListInstanceProfilesResult></ListInstanceProfilesResponse>"
            )
        };
        for (truncated, marker) in [(true, Some("next".to_owned())), (false, None)] {
            let wire = wire(&[(200, &list(truncated))]);
            let page = client(&wire, Some("us-east-1")).list("/croft/", Some("m=")).await.unwrap();
            assert_eq!(page.profiles.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
            assert_eq!(page.marker, marker);
            assert!(wire.sent.lock().unwrap().first().unwrap().2.ends_with("&Marker=m%3D"));
        }
    }

    #[tokio::test]
    async fn refusal_has_code_and_message_and_is_sent_once() {
        let refused = "<ErrorResponse><Error><Type>Sender</Type><Code>NoSuchEntity</Code>\
                       <Message>Instance Profile x cannot be found.</Message></Error></ErrorResponse>";
        let wire = wire(&[(404, refused)]);
        let error = client(&wire, Some("us-east-1")).get("x").await.unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            (Some("NoSuchEntity"), Some("Instance Profile x cannot be found."))
        );
        assert_eq!(wire.sent.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn throttling_and_failures_of_the_server_are_retried() {
        let throttled = "<ErrorResponse><Error><Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>";
        let wire = wire(&[(400, throttled), (503, "<html>busy"), (200, "<DeleteInstanceProfileResponse/>")]);
        client(&wire, Some("us-east-1")).delete("x").await.unwrap();
        assert_eq!(wire.sent.lock().unwrap().len(), 3);
    }

    #[tokio::test]
    async fn unreadable_answers_are_errors() {
        for body in ["", "<html>", "<GetInstanceProfileResponse><GetInstanceProfileResult><InstanceProfile/>"]
        {
            let wire = wire(&[(200, body)]);
            let found = client(&wire, Some("us-east-1")).get("x").await;
            assert!(found.is_err(), "{body}: {found:?}");
        }
        let wire = wire(&[(403, "<html>blocked by the proxy")]);
        let error = client(&wire, Some("us-east-1")).get("x").await.unwrap_err();
        assert_eq!((error.code(), error.message()), (None, Some("<html>blocked by the proxy")));
    }

    #[tokio::test]
    async fn missing_region_sends_nothing() {
        let wire = wire(&[(200, PROFILE)]);
        let error = client(&wire, None).get("x").await.unwrap_err();
        assert_eq!(crate::refusal::fault("GetInstanceProfile", &error).code, "NoRegion");
        assert!(wire.sent.lock().unwrap().is_empty());
    }
}
