//! A client of the API server. Called by every process that talks to one.

use std::{
    error::Error,
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, uri::InvalidUri};
use kube::{
    Client, Config,
    client::{AuthError, Body, ClientBuilder},
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use tokio::time::timeout;
use tower::{BoxError, Service, layer::layer_fn};

use crate::{
    connect_error::{of_client, of_credentials, of_kubeconfig, of_tls, without_numbers},
    proxy::leave_out_exempt,
};

/// Time without a byte after which an answer that has begun counts as ended: longer than any watch, which the API server ends after
/// five minutes.
const STALLED: Duration = Duration::from_secs(330);

/// Which cluster a command talks to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Target<'a> {
    /// The kubeconfig; else `KUBECONFIG`, `~/.kube/config`, or the pod's service account.
    pub kubeconfig: Option<&'a Path>,
    /// The context of the kubeconfig; else its current one.
    pub context: Option<&'a str>,
}

/// Errors of this module.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The file can't be read or is invalid.
    #[error("the kubeconfig {} can't be used: {}", .path.display(), of_kubeconfig(.error))]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The error.
        error: KubeconfigError,
    },
    /// The kubeconfig that nobody named can't be read, is invalid, or lacks the context.
    #[error("the kubeconfig of KUBECONFIG or ~/.kube/config can't be used: {}", of_kubeconfig(.0))]
    Inferred(KubeconfigError),
    /// Neither a kubeconfig nor a service account was found.
    #[error("no cluster is configured: write --kubeconfig FILE, or set KUBECONFIG ({})", of_kubeconfig(.0))]
    NoCluster(KubeconfigError),
    /// The program that the kubeconfig names for credentials can't be started.
    #[error(
        "failed to run {plugin}, from which the kubeconfig gets the credentials for {cluster} (install it, or add its folder to PATH): {}",
        without_numbers(.error)
    )]
    Plugin {
        /// The program.
        plugin: String,
        /// The API server's address.
        cluster: String,
        /// The reason.
        error: std::io::Error,
    },
    /// The kubeconfig's credentials can't be had.
    #[error("there are no credentials for {cluster}: {why}")]
    Credentials {
        /// The API server's address.
        cluster: String,
        /// The reason, in the user's words.
        why: String,
    },
    /// An address without `https://` or `http://`.
    #[error("{server} is no whole address: write https:// or http:// before it")]
    NoScheme {
        /// The server and its address.
        server: String,
    },
    /// The client can't be created.
    #[error("failed to make a client for {cluster}: {}", of_client(.error))]
    Client {
        /// The API server's address.
        cluster: String,
        /// The reason.
        error: kube::Error,
    },
}

/// A server gave no answer to a request.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// There is no connection to it, or it ended.
    #[error("{server} can't be reached: {why}; see whether the address is right, and the server runs")]
    Unreachable {
        /// The server and its address.
        server: String,
        /// The innermost cause.
        why: String,
    },
    /// There is no TLS between this computer and the server.
    #[error("there is no TLS connection to {server}: {why}")]
    NoTls {
        /// The server and its address.
        server: String,
        /// The reason, and what to write.
        why: String,
    },
    /// It accepted a request and doesn't answer.
    #[error(
        "{server} didn't answer {asked} within {within:?}: see whether it is the right address, and reachable without a proxy that holds \
         requests back"
    )]
    Late {
        /// The server and its address.
        server: String,
        /// Method and path of the request.
        asked: String,
        /// The time that it had.
        within: Duration,
    },
}

/// Creates a client from `kubeconfig`, or else from `KUBECONFIG`, `~/.kube/config`, or the pod's service account. Makes
/// no request. It waits for an answer as long as its caller does.
///
/// # Errors
/// If no configuration is found, or it is invalid.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    let config = configuration(Target { kubeconfig, context: None }).await?;
    let cluster = config.cluster_url.to_string();
    let plugin = plugin(&config);
    Client::try_from(config).map_err(|error| failed(error, cluster, plugin))
}

/// The same for a command, which has no deadline of its own: a request fails whose answer doesn't begin within this time.
///
/// # Errors
/// As [`connect`].
pub async fn connect_within(target: Target<'_>, within: Duration) -> Result<Client, ConnectError> {
    client_within(configuration(target).await?, "the API server", within)
}

/// A client whose requests fail if their answer doesn't begin `within` this time, with an [`Unanswered`] that calls the server so.
///
/// # Errors
/// If the configuration is invalid.
pub fn client_within(mut config: Config, called: &str, within: Duration) -> Result<Client, ConnectError> {
    if config.cluster_url.scheme().is_none() {
        return Err(ConnectError::NoScheme { server: format!("{called} {}", config.cluster_url) });
    }
    config.default_retry = false;
    config.read_timeout = Some(STALLED);
    config.reset_reader_on_write = true;
    let cluster = config.cluster_url.to_string();
    let (server, plugin) = (format!("{called} {}", cluster.trim_end_matches('/')), plugin(&config));
    let layer = layer_fn(move |inner| Answered { inner, server: server.clone(), within });
    let builder = ClientBuilder::try_from(config).map_err(|error| failed(error, cluster, plugin))?;
    Ok(builder.with_layer(&layer).build())
}

/// The namespace of the context; `default` if it has none, or there is no context.
pub async fn context_namespace(target: Target<'_>) -> String {
    configuration(target).await.map_or_else(|_| "default".to_owned(), |config| config.default_namespace)
}

async fn configuration(target: Target<'_>) -> Result<Config, ConnectError> {
    let options =
        KubeConfigOptions { context: target.context.map(str::to_owned), ..KubeConfigOptions::default() };
    let mut config = match (target.kubeconfig, target.context) {
        (Some(path), _) => {
            let named = |error| ConnectError::Kubeconfig { path: path.to_owned(), error };
            let file = Kubeconfig::read_from(path).map_err(named)?;
            Config::from_custom_kubeconfig(file, &options).await.map_err(named)?
        }
        // A pod's service account has no contexts.
        (None, Some(_)) => Config::from_kubeconfig(&options).await.map_err(inferred)?,
        // As the client infers it, whose error has both causes and their types in it.
        (None, None) => match Config::from_kubeconfig(&options).await {
            Ok(config) => config,
            Err(error) => Config::incluster().map_err(|_| inferred(error))?,
        },
    };
    with_scheme(&mut config)
        .map_err(|error| ConnectError::Inferred(KubeconfigError::ParseClusterUrl(error)))?;
    leave_out_exempt(&mut config, |name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    // 429 is an answer: the API server gives it to an eviction that a budget blocks, and each caller retries in its own
    // way. A retry below the caller would also be an effect after its deadline.
    config.default_retry = false;
    Ok(config)
}

/// A server without a scheme has the one that kubectl takes: `https` with anything of TLS beside it, or else `http`.
fn with_scheme(config: &mut Config) -> Result<(), InvalidUri> {
    if config.cluster_url.scheme().is_some() {
        return Ok(());
    }
    let of = &config.auth_info;
    let has_tls = config.root_cert.is_some()
        || config.accept_invalid_certs
        || of.client_certificate.is_some()
        || of.client_certificate_data.is_some();
    let scheme = if has_tls { "https" } else { "http" };
    config.cluster_url = format!("{scheme}://{}", config.cluster_url).parse()?;
    Ok(())
}

/// An error of the kubeconfig that nobody named: none is there, or it can't be used.
fn inferred(error: KubeconfigError) -> ConnectError {
    let is_absent = match &error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(error, _) => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    };
    if is_absent { ConnectError::NoCluster(error) } else { ConnectError::Inferred(error) }
}

/// The program that the credentials come from.
fn plugin(config: &Config) -> Option<String> {
    config.auth_info.exec.as_ref().and_then(|exec| exec.command.clone())
}

fn failed(error: kube::Error, cluster: String, plugin: Option<String>) -> ConnectError {
    match (error, plugin) {
        (kube::Error::Auth(AuthError::AuthExecStart(error)), Some(plugin)) => {
            ConnectError::Plugin { plugin, cluster, error }
        }
        (kube::Error::Auth(error), plugin) => {
            ConnectError::Credentials { cluster, why: of_credentials(&error, plugin.as_deref()) }
        }
        (error, _) => ConnectError::Client { cluster, error },
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
                Ok(answer) => answer.map_err(|error| said(error.into(), server)),
                Err(_) => Err(Unanswered::Late { server, asked, within }.into()),
            }
        })
    }
}

/// An error of the connection, with the server's address; another error as it is.
fn said(error: BoxError, server: String) -> BoxError {
    let mut cause: &(dyn Error + 'static) = &*error;
    let mut is_connection = false;
    loop {
        is_connection |= cause.is::<hyper_util::client::legacy::Error>();
        match cause.source() {
            Some(inner) => cause = inner,
            None => break,
        }
    }
    if !is_connection {
        return error;
    }
    match of_tls(cause) {
        Some(why) => Unanswered::NoTls { server, why }.into(),
        None => Unanswered::Unreachable { server, why: without_numbers(&cause) }.into(),
    }
}

#[cfg(test)]
mod tests {
    use kube::config::{AuthInfo, ExecConfig};
    use tokio::{io::AsyncWriteExt as _, net::TcpListener};

    use super::*;
    use crate::process::{chain, install_crypto};

    #[tokio::test]
    async fn request_to_a_server_that_accepts_and_does_not_answer_fails_and_names_it() {
        install_crypto();
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", silent.local_addr().unwrap());
        let client =
            client_within(Config::new(address.parse().unwrap()), "the API server", Duration::from_millis(50))
                .unwrap();
        let error = chain(&client.apiserver_version().await.unwrap_err());
        assert!(
            error.contains(&address) && error.contains("didn't answer GET /version within 50ms"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn missing_credential_plugin_is_named_once() {
        install_crypto();
        let exec = ExecConfig { command: Some("no-such-plugin".to_owned()), ..ExecConfig::default() };
        let mut config = Config::new("http://127.0.0.1:1".parse().unwrap());
        config.auth_info = AuthInfo { exec: Some(exec), ..AuthInfo::default() };
        let error = client_within(config, "the API server", Duration::from_secs(1)).map(drop).unwrap_err();
        let text = chain(&error);
        assert!(text.starts_with("failed to run no-such-plugin, "), "{text}");
        assert_eq!(text.matches("No such file").count(), 1, "{text}");
        assert!(text.contains("add its folder to PATH"), "{text}");
    }

    #[tokio::test]
    async fn server_that_is_away_is_named_with_the_innermost_cause_alone() {
        install_crypto();
        let config = Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = client_within(config, "the API server", Duration::from_secs(9)).unwrap();
        let kube::Error::Service(error) = client.apiserver_version().await.unwrap_err() else { panic!() };
        let text = chain(&*error);
        assert_eq!(
            text,
            "the API server http://127.0.0.1:1 can't be reached: Connection refused; see whether the address is right, and the server runs"
        );
    }

    #[tokio::test]
    async fn server_in_the_clear_is_no_server_of_tls() {
        install_crypto();
        let clear = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("https://{}", clear.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = clear.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            stream.flush().await.unwrap();
            std::future::pending::<()>().await;
        });
        let mut config = Config::new(address.parse().unwrap());
        config.accept_invalid_certs = true;
        let client = client_within(config, "the API server", Duration::from_secs(9)).unwrap();
        let text = chain(&client.apiserver_version().await.unwrap_err());
        let expected =
            format!("there is no TLS connection to the API server {address}: it answers in the clear");
        assert!(text.contains(&expected), "{text}");
    }

    #[tokio::test]
    async fn server_without_a_scheme_has_that_which_kubectl_takes() {
        for (tls, expected) in [(false, "http://127.0.0.1:9/"), (true, "https://127.0.0.1:9/")] {
            let mut config = Config::new("127.0.0.1:9".parse().unwrap());
            config.accept_invalid_certs = tls;
            with_scheme(&mut config).unwrap();
            assert_eq!(config.cluster_url.to_string(), expected);
        }
        let config = Config::new("page:8443".parse().unwrap());
        let error = client_within(config, "the page", Duration::from_secs(1)).map(drop).unwrap_err();
        assert_eq!(
            chain(&error),
            "the page page:8443 is no whole address: write https:// or http:// before it"
        );
    }

    #[test]
    fn errors_of_a_kubeconfig_say_what_to_write() {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = inferred(KubeconfigError::ReadConfig(missing, "/none".into()));
        assert_eq!(
            chain(&error),
            "no cluster is configured: write --kubeconfig FILE, or set KUBECONFIG (there is no file /none)"
        );
        let error = inferred(KubeconfigError::LoadContext("typo".to_owned()));
        assert_eq!(
            chain(&error),
            "the kubeconfig of KUBECONFIG or ~/.kube/config can't be used: it has no context typo: kubectl config get-contexts lists those \
             that it has"
        );
        let error = KubeconfigError::LoadContext("prod".to_owned());
        let error = ConnectError::Kubeconfig { path: "k".into(), error };
        assert_eq!(
            chain(&error),
            "the kubeconfig k can't be used: it has no context prod: kubectl config get-contexts lists those that it has"
        );
    }
}
