//! The protocols of AWS over HTTP: requests to [`Call`], and [`Answer`] to responses.

use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::{
    answer::{Answer, Call, Refusal, Service},
    params::Params,
    xml::Xml,
};

const XML: &str = "text/xml;charset=UTF-8";
const JSON: &str = "application/x-amz-json-1.1";
const REQUEST_ID: &str = "00000000-0000-4000-8000-000000000000";

/// Reads a call. Service and action are from the target header of the JSON protocols, else from the Action parameter and the
/// service in the credential's scope.
///
/// # Errors
/// A body that isn't in the protocol of its headers, or an action that isn't simulated.
pub fn read(headers: &HeaderMap, body: &[u8]) -> Result<Call, Refusal> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let malformed = || Refusal::new("MalformedQueryString", "The request body can't be read");
    if let Some((target, action)) = text("x-amz-target").split_once('.') {
        let service = match target {
            "AmazonSSM" => Service::Ssm,
            "AmazonSQS" => Service::Sqs,
            "AWSPriceListService" => Service::Pricing,
            "AWSEvents" => Service::Events,
            other => {
                return Err(Refusal::new("UnknownOperationException", format!("{other} is not simulated")));
            }
        };
        let json = serde_json::from_slice(body).map_err(|_| malformed())?;
        let access_key = access_key(headers);
        return Ok(Call { service, action: action.to_owned(), params: Params::default(), json, access_key });
    }
    let body = std::str::from_utf8(body).map_err(|_| malformed())?;
    let params = Params::new(body.split('&').filter_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        Some((percent_decode(key)?, percent_decode(value)?))
    }));
    let action = params.get("Action").ok_or_else(|| Refusal::missing("Action"))?.to_owned();
    let service = match credential(headers).nth(3) {
        Some("iam") => Service::Iam,
        Some("sts") => Service::Sts,
        _ => Service::Ec2,
    };
    Ok(Call { service, action, params, json: Value::Null, access_key: access_key(headers) })
}

/// The parts of a signature's credential, version 4: `KEY/DATE/REGION/SERVICE/aws4_request`.
fn credential(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let signature = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let credential = signature.and_then(|signature| Some(signature.split_once("Credential=")?.1));
    credential.into_iter().flat_map(|credential| credential.split('/'))
}

/// The access key of a signature.
pub(crate) fn access_key(headers: &HeaderMap) -> String {
    credential(headers).next().unwrap_or_default().to_owned()
}

/// The region of a signature.
pub(crate) fn signed_region(headers: &HeaderMap) -> Option<&str> {
    credential(headers).nth(2)
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let hex = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?
            }
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok()
}

/// The response to a call; `None` if the connection breaks instead.
#[must_use]
pub fn write(call: &Call, answer: &Answer) -> Option<Response<String>> {
    match answer {
        Answer::Xml(inner) => Some(respond(StatusCode::OK, XML, write_xml(call, inner))),
        Answer::Json(value) => Some(respond(StatusCode::OK, JSON, value.to_string())),
        Answer::Refused(refusal) => Some(refuse(call.service, refusal)),
        Answer::Aborted => None,
    }
}

fn write_xml(call: &Call, inner: &str) -> String {
    let action = &call.action;
    match call.service {
        Service::Ec2 => format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{action}Response xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>{REQUEST_ID}</requestId>{inner}</{action}Response>"
        ),
        _ => format!(
            "<{action}Response>{inner}<ResponseMetadata><RequestId>{REQUEST_ID}</RequestId></ResponseMetadata></{action}Response>"
        ),
    }
}

/// A refusal, as the service writes it.
#[must_use]
pub fn refuse(service: Service, refusal: &Refusal) -> Response<String> {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
    let mut xml = Xml::new();
    match service {
        Service::Ec2 => {
            xml.node("Response", |xml| {
                xml.node("Errors", |xml| {
                    xml.node("Error", |xml| {
                        xml.leaf("Code", &refusal.code).leaf("Message", &refusal.message);
                    });
                })
                .leaf("RequestID", REQUEST_ID);
            });
        }
        Service::Iam | Service::Sts => {
            xml.node("ErrorResponse", |xml| {
                xml.node("Error", |xml| {
                    xml.leaf("Type", "Sender").leaf("Code", &refusal.code).leaf("Message", &refusal.message);
                })
                .leaf("RequestId", REQUEST_ID);
            });
        }
        Service::Ssm | Service::Sqs | Service::Pricing | Service::Eks | Service::Events => {
            let body = json!({"__type": refusal.code, "message": refusal.message}).to_string();
            let mut response = respond(status, JSON, body);
            if let Ok(code) = HeaderValue::from_str(&refusal.code) {
                response.headers_mut().insert("x-amzn-errortype", code);
            }
            return response;
        }
    }
    respond(status, XML, xml.into_string())
}

fn respond(status: StatusCode, content_type: &'static str, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
