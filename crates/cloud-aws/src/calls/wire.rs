//! A connection for tests: it keeps what is sent and answers with what it is given.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_config::{BehaviorVersion, Region, SdkConfig, retry::RetryConfig};
use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
use aws_smithy_runtime_api::client::{
    http::{HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector},
    orchestrator::{HttpRequest, HttpResponse},
    runtime_components::RuntimeComponents,
};
use aws_smithy_types::body::SdkBody;

/// URL, `authorization` header and body of a request.
pub(super) type Sent = (String, String, String);

/// Answers with the given statuses and bodies, the last one again and again.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    answers: Arc<Mutex<Vec<(u16, String)>>>,
    header: Option<(&'static str, &'static str)>,
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl Wire {
    pub(super) fn new(answers: &[(u16, &str)]) -> Self {
        let answers = answers.iter().map(|(status, body)| (*status, (*body).to_owned())).collect();
        Self { answers: Arc::new(Mutex::new(answers)), header: None, sent: Arc::default() }
    }

    /// The same with a header on every answer.
    pub(super) fn with_header(self, name: &'static str, value: &'static str) -> Self {
        Self { header: Some((name, value)), ..self }
    }

    /// The requests until now.
    pub(super) fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    /// Settings of a client on this connection.
    pub(super) fn config(&self, region: Option<&'static str>) -> SdkConfig {
        let keys = Credentials::new("AKIDTEST", "secret", None, None, "test");
        SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(self.clone())
            .retry_config(RetryConfig::standard().with_initial_backoff(Duration::from_millis(1)))
            .credentials_provider(SharedCredentialsProvider::new(keys))
            .sleep_impl(aws_smithy_async::rt::sleep::TokioSleep::new())
            .region(region.map(Region::from_static))
            .build()
    }
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
        let mut response = HttpResponse::new(status.try_into().unwrap(), SdkBody::from(body));
        if let Some((name, value)) = self.header {
            response.headers_mut().insert(name, value);
        }
        HttpConnectorFuture::ready(Ok(response))
    }
}
