//! A client of the API server. Called by every process that talks to one.

use std::path::{Path, PathBuf};

use kube::{
    Client, Config,
    config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

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
    /// The client can't be created.
    #[error("failed to make a client for {cluster}: {source}")]
    Client {
        /// The API server's address.
        cluster: String,
        /// The reason.
        source: kube::Error,
    },
}

/// Creates a client from `kubeconfig`, or else from `KUBECONFIG`, the pod's service account, or `~/.kube/config`. Makes
/// no request.
///
/// # Errors
/// If no configuration is found, or it is invalid.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
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
    let cluster = config.cluster_url.to_string();
    Client::try_from(config).map_err(|source| ConnectError::Client { cluster, source })
}
