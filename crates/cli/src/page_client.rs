//! The page's API as a source of answers: for users with rights in their own namespaces only.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use croft_runtime::connect::client_within;
use http::{Method, Request};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Api, Client, Config,
    api::{ObjectMeta, PostParams},
    client::Body,
};
use serde::de::DeserializeOwned;

use crate::source::{ClusterArgs, block_on};

/// The audience of tokens for the page.
pub(crate) const AUDIENCE: &str = "croft-page";
/// Seconds for which a requested token is valid: the least that API servers grant.
const TOKEN_SECONDS: i64 = 600;

/// Arguments of a command that may ask the page instead of the cluster.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct PageArgs {
    /// Ask the page at this address, which shows what your rights in your own namespaces allow, instead of the cluster
    #[arg(long, value_name = "URL", env = "CROFT_PAGE")]
    page: Option<http::Uri>,
    /// File with the certificate authority of the page; that of the system if left out
    #[arg(long, value_name = "FILE", env = "CROFT_PAGE_CA", requires = "page")]
    page_ca: Option<PathBuf>,
    /// File with a token for the page's audience
    #[arg(long, value_name = "FILE", env = "CROFT_PAGE_TOKEN_FILE", requires = "page")]
    token_file: Option<PathBuf>,
    /// Without a token file, request a token for this ServiceAccount
    #[arg(long = "as-account", value_name = "NAMESPACE/NAME", requires = "page")]
    account: Option<Account>,
}

/// A ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl std::str::FromStr for Account {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(format!("{text} is no ServiceAccount: write NAMESPACE/NAME")),
        }
    }
}

impl std::fmt::Display for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl PageArgs {
    /// True if the page is asked.
    pub(crate) const fn is_given(&self) -> bool {
        self.page.is_some()
    }

    /// The answer of a route, such as `pods/NAMESPACE/NAME`. None if no page is given.
    ///
    /// # Errors
    /// If there is no token, or the page refuses or can't be reached.
    pub(crate) fn get<T: DeserializeOwned>(
        &self,
        route: &str,
        cluster: &ClusterArgs,
    ) -> anyhow::Result<Option<T>> {
        self.ask(Method::GET, route, String::new(), cluster)
    }

    /// The same for a body.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        route: &str,
        body: String,
        cluster: &ClusterArgs,
    ) -> anyhow::Result<Option<T>> {
        self.ask(Method::POST, route, body, cluster)
    }

    fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        route: &str,
        body: String,
        cluster: &ClusterArgs,
    ) -> anyhow::Result<Option<T>> {
        let Some(page) = &self.page else { return Ok(None) };
        let token = self.token(cluster)?;
        let answer = block_on(async {
            let client = self.client(page, cluster)?;
            let request = Request::builder()
                .method(method)
                .uri(format!("/api/v1/{route}"))
                .header(http::header::AUTHORIZATION, format!("Bearer {token}"))
                .body(Body::from(body.into_bytes()))
                .context("the request can't be written")?;
            let answer =
                client.send(request).await.with_context(|| format!("failed to reach the page {page}"))?;
            let (parts, body) = answer.into_parts();
            let bytes = body.collect_bytes().await.context("the answer of the page ended early")?;
            if !parts.status.is_success() {
                let error: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
                let why = error.get("error").and_then(serde_json::Value::as_str);
                bail!("the page answers {}: {}", parts.status.as_u16(), why.unwrap_or("without a reason"));
            }
            serde_json::from_slice(&bytes).context("the page's answer isn't of this version of croft")
        })?;
        Ok(Some(answer))
    }

    /// A client of the page alone: it has no certificate and no token of the cluster.
    fn client(&self, page: &http::Uri, cluster: &ClusterArgs) -> anyhow::Result<Client> {
        let mut config = Config::new(page.clone());
        if let Some(file) = &self.page_ca {
            std::fs::File::open(file)
                .with_context(|| format!("failed to read {} of --page-ca", file.display()))?;
        }
        config.root_cert_file.clone_from(&self.page_ca);
        Ok(client_within(config, "the page", cluster.answer())?)
    }

    fn token(&self, cluster: &ClusterArgs) -> anyhow::Result<String> {
        if let Some(file) = &self.token_file {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("failed to read {}", file.display()))?;
            return Ok(text.trim().to_owned());
        }
        let Some(account) = &self.account else {
            bail!(
                "the page needs a token: write --as-account NAMESPACE/NAME for a ServiceAccount of yours, or --token-file FILE (kubectl create token NAME --namespace NAMESPACE --audience {AUDIENCE})"
            );
        };
        cluster.run(async |client| request_token(&client, account, TOKEN_SECONDS).await)
    }
}

/// A token of `account` for the page.
///
/// # Errors
/// If the API server refuses it.
pub(crate) async fn request_token(
    client: &Client,
    account: &Account,
    seconds: i64,
) -> anyhow::Result<String> {
    let api: Api<ServiceAccount> = Api::namespaced(client.clone(), &account.namespace);
    let wanted = TokenRequest {
        metadata: ObjectMeta::default(),
        spec: Some(TokenRequestSpec {
            audiences: Some(vec![AUDIENCE.to_owned()]),
            expiration_seconds: Some(seconds),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let answer = api
        .create_token_request(&account.name, &PostParams::default(), &wanted)
        .await
        .with_context(|| format!("failed to request a token for ServiceAccount {account}"))?;
    answer.status.and_then(|status| status.token).context("the API server answered without a token")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_a_namespace_and_a_name() {
        let account: Account = "team/reader".parse().unwrap();
        assert_eq!((account.namespace.as_str(), account.name.as_str()), ("team", "reader"));
        for wrong in ["reader", "/reader", "team/", "a/b/c"] {
            assert!(wrong.parse::<Account>().unwrap_err().contains("NAMESPACE/NAME"), "{wrong}");
        }
    }
}
