//! A reader of the page: requests over TLS with a token, as `croft --page` and a browser send them.

use anyhow::Context as _;
use croft_testkit::{ControlPlane, Croft, Part};
use futures::{Stream, StreamExt as _};
use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use kube::{Client, Config, client::Body};
use serde_json::Value;

/// The audience of tokens for the page.
pub const AUDIENCE: &str = "croft-page";
/// The account of operators, as the manifests install it.
pub const OPERATOR: (&str, &str) = ("croft-system", "croft-page-operator");

/// The page's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub text: String,
}

impl Answer {
    /// The body as JSON; null if it isn't.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

/// A client of the page.
#[derive(Clone)]
pub struct PageReader {
    client: Client,
    token: Option<String>,
}

impl PageReader {
    /// A reader without a token.
    ///
    /// # Errors
    /// If the page isn't installed.
    pub fn anonymous(plane: &ControlPlane, croft: &mut Croft) -> anyhow::Result<Self> {
        let mut config = Config::new(format!("https://{}", croft.address(Part::Page)?).parse()?);
        config.root_cert_file = Some(plane.authority_files().0);
        Self::new(config)
    }

    /// A reader without a token, of the page at `address`, such as `http://127.0.0.1:8444`.
    ///
    /// # Errors
    /// If it is no address.
    pub fn at(address: &str) -> anyhow::Result<Self> {
        Self::new(Config::new(address.parse()?))
    }

    fn new(mut config: Config) -> anyhow::Result<Self> {
        config.default_retry = false;
        Ok(Self { client: Client::try_from(config)?, token: None })
    }

    /// The same with this token.
    #[must_use]
    pub fn with_token(&self, token: impl Into<String>) -> Self {
        Self { client: self.client.clone(), token: Some(token.into()) }
    }

    /// The same with a token of a ServiceAccount for the page.
    ///
    /// # Errors
    /// If the API server issues none.
    pub async fn with_account(
        &self,
        plane: &ControlPlane,
        (namespace, name): (&str, &str),
    ) -> anyhow::Result<Self> {
        Ok(self.with_token(plane.token_for(namespace, name, Some(AUDIENCE)).await?))
    }

    fn request(&self, method: &str, path: &str, body: &str) -> anyhow::Result<Request<Body>> {
        let method = Method::from_bytes(method.to_uppercase().as_bytes())?;
        let mut request =
            Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        Ok(request.body(Body::from(body.as_bytes().to_vec()))?)
    }

    /// The answer to a request.
    ///
    /// # Errors
    /// If the page can't be reached.
    pub async fn ask(&self, method: &str, path: &str, body: &str) -> anyhow::Result<Answer> {
        let answer = self.client.send(self.request(method, path, body)?).await;
        let (parts, body) = answer.with_context(|| format!("{method} {path}"))?.into_parts();
        let text = String::from_utf8(body.collect_bytes().await?.to_vec())?;
        Ok(Answer { status: parts.status.as_u16(), text })
    }

    /// The answer to a GET.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.ask("get", path, "").await
    }

    /// The events from now on, as they come.
    ///
    /// # Errors
    /// If the page refuses.
    pub async fn events(&self) -> anyhow::Result<impl Stream<Item = anyhow::Result<String>> + Unpin + use<>> {
        let answer = self.client.send(self.request("get", "/api/v1/events", "")?).await?;
        anyhow::ensure!(answer.status().is_success(), "events: {}", answer.status());
        let bytes = answer.into_body().into_data_stream();
        Ok(bytes.map(|bytes| Ok(String::from_utf8(bytes?.to_vec())?)).boxed())
    }
}
