//! A client of the API server. Called by every process that talks to one.

use std::{
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::Request;
use kube::{
    Client, Config,
    client::{AuthError, Body, ClientBuilder},
    config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use tokio::time::timeout;
use tower::{BoxError, Service, layer::layer_fn};

/// Time without a byte after which an answer that has begun counts as ended: longer than any watch, which the API server ends after
/// five minutes.
const STALLED: Duration = Duration::from_secs(330);

/// Errors of this module.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The file can't be read or is invalid.
    #[error("failed to read the kubeconfig {path}: {source}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The error.
        source: KubeconfigError,
    },
    /// Neither a kubeconfig nor a service account was found.
    #[error("failed to find the cluster; give --kubeconfig, set KUBECONFIG, or run in a pod: {0}")]
    Infer(#[from] InferConfigError),
    /// The program that the kubeconfig names for credentials can't be started.
    #[error(
        "failed to run {plugin}, from which the kubeconfig gets the credentials for {cluster} (install it, or add its folder to PATH): {source}"
    )]
    Plugin {
        /// The program.
        plugin: String,
        /// The API server's address.
        cluster: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The client can't be created.
    #[error("failed to make a client for {cluster}: {source}")]
    Client {
        /// The API server's address.
        cluster: String,
        /// The reason.
        source: kube::Error,
    },
}

/// A server accepted a request and doesn't answer.
#[derive(Debug, thiserror::Error)]
#[error(
    "{server} didn't answer {asked} within {} s: see whether it is the right address, and reachable without a proxy that holds requests back",
    .within.as_secs()
)]
struct NoAnswer {
    server: String,
    asked: String,
    within: Duration,
}

/// Creates a client from `kubeconfig`, or else from `KUBECONFIG`, the pod's service account, or `~/.kube/config`. Makes
/// no request. It waits for an answer as long as its caller does.
///
/// # Errors
/// If no configuration is found, or it is invalid.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    let config = configuration(kubeconfig).await?;
    let cluster = config.cluster_url.to_string();
    let plugin = plugin(&config);
    Client::try_from(config).map_err(|error| failed(error, cluster, plugin))
}

/// The same for a command, which has no deadline of its own: a request fails whose answer doesn't begin within this time.
///
/// # Errors
/// As [`connect`].
pub async fn connect_within(kubeconfig: Option<&Path>, within: Duration) -> Result<Client, ConnectError> {
    client_within(configuration(kubeconfig).await?, within)
}

/// A client whose requests fail if their answer doesn't begin `within` this time.
///
/// # Errors
/// If the configuration is invalid.
pub fn client_within(mut config: Config, within: Duration) -> Result<Client, ConnectError> {
    config.default_retry = false;
    config.read_timeout = Some(STALLED);
    config.reset_reader_on_write = true;
    let cluster = config.cluster_url.to_string();
    let (server, plugin) = (cluster.clone(), plugin(&config));
    let layer = layer_fn(move |inner| Answered { inner, server: server.clone(), within });
    let builder = ClientBuilder::try_from(config).map_err(|error| failed(error, cluster, plugin))?;
    Ok(builder.with_layer(&layer).build())
}

async fn configuration(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let named = |source| ConnectError::Kubeconfig { path: path.to_owned(), source };
            let file = Kubeconfig::read_from(path).map_err(named)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(named)?
        }
        None => Config::infer().await?,
    };
    // 429 is an answer: the API server gives it to an eviction that a budget blocks, and each caller retries in its own
    // way. A retry below the caller would also be an effect after its deadline.
    config.default_retry = false;
    Ok(config)
}

/// The program that the credentials come from.
fn plugin(config: &Config) -> Option<String> {
    config.auth_info.exec.as_ref().and_then(|exec| exec.command.clone())
}

fn failed(error: kube::Error, cluster: String, plugin: Option<String>) -> ConnectError {
    match (error, plugin) {
        (kube::Error::Auth(AuthError::AuthExecStart(source)), Some(plugin)) => {
            ConnectError::Plugin { plugin, cluster, source }
        }
        (source, _) => ConnectError::Client { cluster, source },
    }
}

/// A service whose answers begin within a time.
struct Answered<S> {
    inner: S,
    server: String,
    within: Duration,
}

impl<S> Service<Request<Body>> for Answered<S>
where
    S: Service<Request<Body>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let asked = format!("{} {}", request.method(), request.uri().path());
        let (server, within) = (self.server.clone(), self.within);
        let answer = self.inner.call(request);
        Box::pin(async move {
            match timeout(within, answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(NoAnswer { server, asked, within }.into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use kube::config::{AuthInfo, ExecConfig};
    use tokio::net::TcpListener;

    use super::*;
    use crate::process::{chain, install_crypto};

    #[tokio::test]
    async fn request_to_a_server_that_accepts_and_does_not_answer_fails_and_names_it() {
        install_crypto();
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", silent.local_addr().unwrap());
        let client = client_within(Config::new(address.parse().unwrap()), Duration::from_millis(50)).unwrap();
        let error = chain(&client.apiserver_version().await.unwrap_err());
        assert!(
            error.contains(&address) && error.contains("didn't answer GET /version within 0 s"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn missing_credential_plugin_is_named_once() {
        install_crypto();
        let exec = ExecConfig { command: Some("no-such-plugin".to_owned()), ..ExecConfig::default() };
        let mut config = Config::new("http://127.0.0.1:1".parse().unwrap());
        config.auth_info = AuthInfo { exec: Some(exec), ..AuthInfo::default() };
        let error = client_within(config, Duration::from_secs(1)).map(drop).unwrap_err();
        let text = chain(&error);
        assert!(text.starts_with("failed to run no-such-plugin, "), "{text}");
        assert_eq!(text.matches("No such file").count(), 1, "{text}");
        assert!(text.contains("add its folder to PATH"), "{text}");
    }
}
