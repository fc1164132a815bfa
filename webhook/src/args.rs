//! Arguments of `croft-webhook`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Parser, ValueEnum};
use croft_runtime::process::ProcessArgs;

/// Croft's admission webhook: pins the pods of tenants to their pools and keeps everybody else out.
#[derive(Clone, Debug, Parser)]
#[command(name = "croft-webhook", version)]
pub struct Args {
    /// What every server has.
    #[command(flatten)]
    pub process: ProcessArgs,
    /// Where reviews are answered, over TLS
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    pub listen: SocketAddr,
    /// Certificates, and who may connect.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// How API servers reach us.
    #[command(flatten)]
    pub registration: RegistrationArgs,
    /// Bounds on what reviews may cost.
    #[command(flatten)]
    pub bounds: BoundArgs,
    /// Connections open at once; a client may have as many as it leaves free
    #[arg(long, value_name = "N", default_value = "1024")]
    pub max_connections: usize,
    /// Namespace that Croft is installed in: of the Secret and the Leases, and always exempt
    #[arg(long, env = "POD_NAMESPACE", default_value = croft_policy::model::DEFAULT_NAMESPACE)]
    pub namespace: String,
    /// Name of this replica, unique among them; the host's name if not given
    #[arg(long, env = "POD_NAME")]
    pub replica: Option<String>,
    /// How long to go on accepting connections after SIGTERM, so that endpoints can change and kept
    /// connections be given up
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub drain: Duration,
}

/// Certificates, and who may connect.
#[derive(Clone, Debug, clap::Args)]
pub struct TlsArgs {
    /// Where the certificate comes from
    #[arg(long, value_enum, default_value = "self")]
    pub tls_mode: TlsMode,
    /// The Secret of the modes self and cert-manager
    #[arg(long, value_name = "NAME", default_value = "croft-webhook-tls")]
    pub tls_secret: String,
    /// The certificate chain of the mode files
    #[arg(long, value_name = "FILE", required_if_eq("tls_mode", "files"))]
    pub tls_cert: Option<PathBuf>,
    /// The key of the mode files
    #[arg(long, value_name = "FILE", required_if_eq("tls_mode", "files"))]
    pub tls_key: Option<PathBuf>,
    /// The authority of the mode files, kept in the webhook configurations; without it they are left alone
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// How long a new authority is trusted before it signs, for API servers to learn of it
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub announce: Duration,
    /// Only clients with a certificate of this authority may connect
    #[arg(long, value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
    /// Of those, only the ones with this common name; may be repeated
    #[arg(long, value_name = "NAME", requires = "client_ca")]
    pub client_name: Vec<String>,
}

/// Where the certificate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TlsMode {
    /// Made here, kept in a Secret, rotated, and trusted through the caBundle.
    #[value(name = "self")]
    SelfManaged,
    /// cert-manager writes the Secret, and injects the caBundle.
    CertManager,
    /// Files that somebody else replaces.
    Files,
}

/// How API servers reach us.
#[derive(Clone, Debug, clap::Args)]
pub struct RegistrationArgs {
    /// The Service of the replicas; the certificate is for its names
    #[arg(long, value_name = "NAME", default_value = "croft-webhook")]
    pub service: String,
    /// API servers reach us at this address instead of the Service: https://host:port, written into the
    /// webhook configurations
    #[arg(long, value_name = "URL", value_parser = base_url)]
    pub url: Option<String>,
    /// A MutatingWebhookConfiguration of ours; may be repeated
    #[arg(long, value_name = "NAME", default_values = ["croft-webhook"])]
    pub mutating_configuration: Vec<String>,
    /// A ValidatingWebhookConfiguration of ours; may be repeated
    #[arg(long, value_name = "NAME", default_values = ["croft-webhook"])]
    pub validating_configuration: Vec<String>,
}

/// Bounds on what reviews may cost.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct BoundArgs {
    /// Reviews under way at once; a client may have as many as it leaves free, and is told to come again with more
    #[arg(long, value_name = "N", default_value = "512")]
    pub max_inflight: usize,
    /// Bytes of reviews under way at once, shared out alike
    #[arg(long, value_name = "BYTES", default_value = "67108864")]
    pub max_inflight_bytes: usize,
    /// How long a namespace that isn't known yet is waited for, in milliseconds
    #[arg(long, value_name = "MS", default_value = "1000", value_parser = millis)]
    pub namespace_wait: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_secs).map_err(|_| "a number of seconds is needed".to_owned())
}

fn millis(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_millis).map_err(|_| "a number of milliseconds is needed".to_owned())
}

fn base_url(text: &str) -> Result<String, String> {
    let url: http::Uri = text.parse().map_err(|error| format!("not a URL: {error}"))?;
    if url.scheme_str() != Some("https") || url.host().is_none() || url.path() != "/" || url.query().is_some()
    {
        return Err("write https://host:port, without a path".to_owned());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

impl RegistrationArgs {
    /// The names that the certificate must be for.
    #[must_use]
    pub fn names(&self, namespace: &str) -> Vec<String> {
        let url = self.url.as_deref().and_then(|url| url.parse::<http::Uri>().ok());
        match url.as_ref().and_then(http::Uri::host) {
            Some(host) => vec![host.trim_matches(['[', ']']).to_owned()],
            None => [
                format!("{}.{namespace}.svc", self.service),
                format!("{}.{namespace}.svc.cluster.local", self.service),
                format!("{}.{namespace}", self.service),
            ]
            .into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_make_sense() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_url_replaces_the_service() {
        let args = Args::parse_from(["croft-webhook", "--url", "https://127.0.0.1:8443"]);
        assert_eq!(args.registration.names("croft-system"), ["127.0.0.1"]);
        let args = Args::parse_from(["croft-webhook", "--url", "https://[::1]:8443/"]);
        assert_eq!(args.registration.names("croft-system"), ["::1"]);
        assert_eq!(args.registration.url.as_deref(), Some("https://[::1]:8443"));
        let args = Args::parse_from(["croft-webhook"]);
        assert_eq!(args.registration.names("croft-system")[0], "croft-webhook.croft-system.svc");
        for bad in ["http://127.0.0.1", "https://x/path", "127.0.0.1:8443"] {
            assert!(Args::try_parse_from(["croft-webhook", "--url", bad]).is_err(), "{bad}");
        }
    }
}
