//! Arguments of `croft-page`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Parser;
use croft_runtime::process::ProcessArgs;

/// The audience of tokens for the page.
pub const AUDIENCE: &str = "croft-page";

/// Croft's web page: read-only, each reader sees what the API server lets that reader see.
#[derive(Clone, Debug, Parser)]
#[command(name = "croft-page", version)]
pub struct Args {
    /// Arguments of every server.
    #[command(flatten)]
    pub process: ProcessArgs,
    /// Address of the page, over TLS
    #[arg(long, value_name = "ADDRESS", env = "CROFT_LISTEN", default_value = "0.0.0.0:8443")]
    pub listen: SocketAddr,
    /// Address of the page without TLS, on loopback only: for kubectl port-forward and croft page. Default: nowhere
    #[arg(long, value_name = "ADDRESS", env = "CROFT_FORWARD_LISTEN", value_parser = loopback)]
    pub forward_listen: Option<SocketAddr>,
    /// The certificate chain. Default: a certificate that this process creates and no client trusts by itself
    #[arg(long, value_name = "FILE", env = "CROFT_TLS_CERT", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", env = "CROFT_TLS_KEY", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// The Service of the replicas; a certificate that this process creates is for its names
    #[arg(long, value_name = "NAME", env = "CROFT_SERVICE", default_value = "croft-page")]
    pub service: String,
    /// Audience of the tokens that are accepted; may be repeated. With that of the API server, the page receives tokens that
    /// are valid there
    #[arg(long, value_name = "AUDIENCE", env = "CROFT_AUDIENCE", value_delimiter = ',', default_values = [AUDIENCE])]
    pub audience: Vec<String>,
    /// Namespace that Croft is installed in: of the decision log
    #[arg(long, env = "POD_NAMESPACE", default_value = croft_policy::model::DEFAULT_NAMESPACE)]
    pub namespace: String,
    /// Name of the cluster, which the page shows
    #[arg(long, value_name = "NAME", env = "CLUSTER_NAME", default_value = "")]
    pub cluster_name: String,
    /// Bounds of requests.
    #[command(flatten)]
    pub bounds: BoundArgs,
    /// How long connections are accepted after SIGTERM, so that endpoints can change
    #[arg(long, value_name = "SECONDS", env = "CROFT_DRAIN", default_value = "5", value_parser = seconds)]
    pub drain: Duration,
}

/// Bounds of requests.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct BoundArgs {
    /// Connections open at once; a client may have as many as it leaves free
    #[arg(long, value_name = "N", env = "CROFT_MAX_CONNECTIONS", default_value = "512")]
    pub max_connections: usize,
    /// Requests in flight at once, shared likewise; half of them also among users
    #[arg(long, value_name = "N", env = "CROFT_MAX_INFLIGHT", default_value = "64")]
    pub max_inflight: usize,
    /// Streams of events open at once; a user may have as many as that user leaves free
    #[arg(long, value_name = "N", env = "CROFT_MAX_STREAMS", default_value = "256")]
    pub max_streams: usize,
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|error| format!("{error}"))?;
    let error = || "write a loopback address, such as 127.0.0.1:8444".to_owned();
    if address.ip().is_loopback() { Ok(address) } else { Err(error()) }
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_secs).map_err(|_| "a number of seconds is needed".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_listener_without_tls_is_refused_beyond_loopback() {
        assert!(Args::try_parse_from(["croft-page", "--forward-listen", "127.0.0.1:8444"]).is_ok());
        let refused = Args::try_parse_from(["croft-page", "--forward-listen", "0.0.0.0:8444"]).unwrap_err();
        assert!(refused.to_string().contains("write a loopback address"), "{refused}");
    }
}
