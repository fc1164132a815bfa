//! The calls to IAM: six operations on instance profiles.
//!
//! IAM speaks the AWS query protocol, a form in and XML out. `profile` is the only caller that changes anything. Source:
//! "Actions", AWS IAM API Reference, version 2010-05-08.

use aws_config::SdkConfig;
use aws_smithy_runtime_api::client::{orchestrator::HttpResponse, result::SdkError};
use aws_smithy_types::error::metadata::ErrorMetadata;
use aws_smithy_xml::decode::{Document, ScopedDecoder, XmlDecodeError, try_data};

use super::{Call, CallError, Endpoint, Service, SignedCalls, Variant};

const VERSION: &str = "2010-05-08";

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
    calls: SignedCalls,
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

impl From<Form> for Call {
    fn from(form: Form) -> Self {
        let content_type = ("content-type", "application/x-www-form-urlencoded");
        Self { method: "POST", path: "/".to_owned(), headers: vec![content_type], body: form.body }
    }
}

const SERVICE: Service = Service { id: "IAM", name: "iam", endpoint, read_error };

impl Client {
    /// A client with the credentials, endpoint, retries and timeouts of `config`.
    pub(crate) fn new(config: &SdkConfig) -> Self {
        Self { calls: SignedCalls::new(config, &SERVICE) }
    }

    /// GetInstanceProfile.
    pub(crate) async fn get(&self, name: &str) -> Result<InstanceProfile, CallError> {
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
    ) -> Result<(), CallError> {
        let form = Form::new("CreateInstanceProfile")
            .with("InstanceProfileName", name)
            .with("Path", path)
            .with("Tags.member.1.Key", key)
            .with("Tags.member.1.Value", value);
        self.call(form, |_| Ok(())).await
    }

    /// AddRoleToInstanceProfile.
    pub(crate) async fn add_role(&self, name: &str, role: &str) -> Result<(), CallError> {
        self.call(change_role("AddRoleToInstanceProfile", name, role), |_| Ok(())).await
    }

    /// RemoveRoleFromInstanceProfile.
    pub(crate) async fn remove_role(&self, name: &str, role: &str) -> Result<(), CallError> {
        self.call(change_role("RemoveRoleFromInstanceProfile", name, role), |_| Ok(())).await
    }

    /// DeleteInstanceProfile.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), CallError> {
        let form = Form::new("DeleteInstanceProfile").with("InstanceProfileName", name);
        self.call(form, |_| Ok(())).await
    }

    /// ListInstanceProfiles: the page at `marker`, of the profiles below `path`.
    pub(crate) async fn list(&self, path: &str, marker: Option<&str>) -> Result<Page, CallError> {
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
    ) -> Result<T, CallError> {
        let expected = format!("{}Response", form.action);
        let answer = self.calls.send(form.into()).await?;
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
fn endpoint(region: &str, variant: Variant) -> Endpoint {
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
    Endpoint {
        host: if variant.fips { fips_host } else { host }.to_owned(),
        signing_region: signing.to_owned(),
    }
}

/// Code and message of a refusal; `None` if it isn't XML.
fn read_error(response: &HttpResponse) -> Option<ErrorMetadata> {
    let mut found = ErrorMetadata::builder();
    let mut document = Document::try_from(response.body().bytes()?).ok()?;
    let mut root = document.root_element().ok()?;
    while let Some(mut tag) = root.next_tag() {
        if tag.start_el().local() != "Error" {
            continue;
        }
        while let Some(mut field) = tag.next_tag() {
            match field.start_el().local() {
                "Code" => found = found.code(try_data(&mut field).ok()?),
                "Message" => found = found.message(try_data(&mut field).ok()?),
                _ => {}
            }
        }
    }
    Some(found.build())
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
    use aws_smithy_types::error::metadata::ProvideErrorMetadata as _;

    use super::*;
    use crate::calls::wire::Wire;

    fn client(wire: &Wire, region: Option<&'static str>) -> Client {
        Client::new(&wire.config(region))
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
            let wire = Wire::new(&[(200, PROFILE)]);
            let found = client(&wire, Some(region)).get("croft-1").await.unwrap();
            assert_eq!(found, InstanceProfile { name: "croft-1".to_owned(), roles: vec!["a&b".to_owned()] });
            let sent = wire.sent();
            let [(to, signed, body)] = sent.as_slice() else { panic!("{sent:?}") };
            assert_eq!(to, url);
            assert!(signed.starts_with("AWS4-HMAC-SHA256 Credential=AKIDTEST/"), "{signed}");
            assert!(signed.contains(scope), "{signed}");
            assert_eq!(body, "Action=GetInstanceProfile&Version=2010-05-08&InstanceProfileName=croft-1");
        }
    }

    #[tokio::test]
    async fn parameters_are_escaped() {
        let wire = Wire::new(&[(200, "<CreateInstanceProfileResponse/>")]);
        client(&wire, Some("us-east-1")).create("a+b", "/croft/x y/", ("k&", "v=1")).await.unwrap();
        let sent = wire.sent();
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
            let wire = Wire::new(&[(200, &list(truncated))]);
            let page = client(&wire, Some("us-east-1")).list("/croft/", Some("m=")).await.unwrap();
            assert_eq!(page.profiles.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
            assert_eq!(page.marker, marker);
            assert!(wire.sent().first().unwrap().2.ends_with("&Marker=m%3D"));
        }
    }

    #[tokio::test]
    async fn refusal_has_code_and_message_and_is_sent_once() {
        let refused = "<ErrorResponse><Error><Type>Sender</Type><Code>NoSuchEntity</Code>\
                       <Message>Instance Profile x cannot be found.</Message></Error></ErrorResponse>";
        let wire = Wire::new(&[(404, refused)]);
        let error = client(&wire, Some("us-east-1")).get("x").await.unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            (Some("NoSuchEntity"), Some("Instance Profile x cannot be found."))
        );
        assert_eq!(wire.sent().len(), 1);
    }

    #[tokio::test]
    async fn throttling_and_failures_of_the_server_are_retried() {
        let throttled = "<ErrorResponse><Error><Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>";
        let wire =
            Wire::new(&[(400, throttled), (503, "<html>busy"), (200, "<DeleteInstanceProfileResponse/>")]);
        client(&wire, Some("us-east-1")).delete("x").await.unwrap();
        assert_eq!(wire.sent().len(), 3);
    }

    #[tokio::test]
    async fn unreadable_answers_are_errors() {
        for body in ["", "<html>", "<GetInstanceProfileResponse><GetInstanceProfileResult><InstanceProfile/>"]
        {
            let wire = Wire::new(&[(200, body)]);
            let found = client(&wire, Some("us-east-1")).get("x").await;
            assert!(found.is_err(), "{body}: {found:?}");
        }
        let wire = Wire::new(&[(403, "<html>blocked by the proxy")]);
        let error = client(&wire, Some("us-east-1")).get("x").await.unwrap_err();
        assert_eq!((error.code(), error.message()), (None, Some("<html>blocked by the proxy")));
    }

    #[tokio::test]
    async fn missing_region_sends_nothing() {
        let wire = Wire::new(&[(200, PROFILE)]);
        let error = client(&wire, None).get("x").await.unwrap_err();
        assert_eq!(crate::refusal::fault("GetInstanceProfile", &error).code, "NoRegion");
        assert!(wire.sent().is_empty());
    }
}
