//! Arguments of `croft-webhook`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Parser, ValueEnum};
use croft_runtime::process::ProcessArgs;

/// Croft's admission webhook: pins the pods of tenants to their pools and keeps all other pods off them.
#[derive(Clone, Debug, Parser)]
#[command(name = "croft-webhook", version)]
pub struct Args {
    /// Arguments of every server.
    #[command(flatten)]
    pub process: ProcessArgs,
    /// Address on which reviews are answered, over TLS
    #[arg(long, value_name = "ADDRESS", env = "CROFT_LISTEN", default_value = "0.0.0.0:8443")]
    pub listen: SocketAddr,
    /// Certificates, and the clients that may connect.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// The address of the webhook.
    #[command(flatten)]
    pub registration: RegistrationArgs,
    /// Bounds of reviews.
    #[command(flatten)]
    pub bounds: BoundArgs,
    /// Connections open at once; a client may have as many as it leaves free
    #[arg(long, value_name = "N", env = "CROFT_MAX_CONNECTIONS", default_value = "1024")]
    pub max_connections: usize,
    /// Namespace that Croft is installed in: of the Secret and the Leases, and always exempt
    #[arg(long, env = "POD_NAMESPACE", default_value = croft_policy::model::DEFAULT_NAMESPACE)]
    pub namespace: String,
    /// Name of this replica, unique among them; the host's name if not given
    #[arg(long, env = "POD_NAME")]
    pub replica: Option<String>,
    /// How long connections are accepted after SIGTERM, so that endpoints can change and clients can close
    /// kept connections
    #[arg(long, value_name = "SECONDS", env = "CROFT_DRAIN", default_value = "10", value_parser = seconds)]
    pub drain: Duration,
}

/// Certificates, and the clients that may connect.
#[derive(Clone, Debug, clap::Args)]
pub struct TlsArgs {
    /// Source of the certificate
    #[arg(long, env = "CROFT_TLS_MODE", value_enum, default_value = "self")]
    pub tls_mode: TlsMode,
    /// The Secret of the modes self and cert-manager
    #[arg(long, value_name = "NAME", env = "CROFT_TLS_SECRET", default_value = "croft-webhook-tls")]
    pub tls_secret: String,
    /// The certificate chain of the mode files
    #[arg(long, value_name = "FILE", env = "CROFT_TLS_CERT", required_if_eq("tls_mode", "files"))]
    pub tls_cert: Option<PathBuf>,
    /// The key of the mode files
    #[arg(long, value_name = "FILE", env = "CROFT_TLS_KEY", required_if_eq("tls_mode", "files"))]
    pub tls_key: Option<PathBuf>,
    /// The authority of the mode files, kept in the webhook configurations; without it they are left alone
    #[arg(long, value_name = "FILE", env = "CROFT_TLS_CA")]
    pub tls_ca: Option<PathBuf>,
    /// How long a new authority is trusted before it signs, so that API servers learn of it
    #[arg(long, value_name = "SECONDS", env = "CROFT_CA_PROPAGATION_DELAY", default_value = "60", value_parser = seconds)]
    pub ca_propagation_delay: Duration,
    /// Only clients with a certificate of this authority may connect
    #[arg(long, value_name = "FILE", env = "CROFT_CLIENT_CA")]
    pub client_ca: Option<PathBuf>,
    /// Of those, only the ones with this common name; may be repeated
    #[arg(
        long,
        value_name = "NAME",
        env = "CROFT_CLIENT_NAME",
        value_delimiter = ',',
        requires = "client_ca"
    )]
    pub client_name: Vec<String>,
}

/// Source of the certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TlsMode {
    /// Created here, stored in a Secret, rotated, and trusted through the caBundle.
    #[value(name = "self")]
    SelfManaged,
    /// cert-manager writes the Secret, and injects the caBundle.
    CertManager,
    /// Files that another process replaces.
    Files,
}

/// The address of the webhook.
#[derive(Clone, Debug, clap::Args)]
pub struct RegistrationArgs {
    /// The Service of the replicas; the certificate is for its names
    #[arg(long, value_name = "NAME", env = "CROFT_SERVICE", default_value = "croft-webhook")]
    pub service: String,
    /// Address of the webhook instead of the Service: https://host:port, written into the webhook
    /// configurations
    #[arg(long, value_name = "URL", env = "CROFT_URL", value_parser = base_url)]
    pub url: Option<String>,
    /// A MutatingWebhookConfiguration of this webhook; may be repeated
    #[arg(long, value_name = "NAME", env = "CROFT_MUTATING_CONFIGURATION", value_delimiter = ',', default_values = ["croft-webhook"])]
    pub mutating_configuration: Vec<String>,
    /// A ValidatingWebhookConfiguration of this webhook; may be repeated
    #[arg(long, value_name = "NAME", env = "CROFT_VALIDATING_CONFIGURATION", value_delimiter = ',', default_values = ["croft-webhook"])]
    pub validating_configuration: Vec<String>,
}

/// Bounds of reviews.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct BoundArgs {
    /// Reviews in flight at once; a client may have as many as it leaves free, and gets 429 for more
    #[arg(long, value_name = "N", env = "CROFT_MAX_INFLIGHT", default_value = "512")]
    pub max_inflight: usize,
    /// Bytes of reviews in flight at once, shared likewise
    #[arg(long, value_name = "BYTES", env = "CROFT_MAX_INFLIGHT_BYTES", default_value = "67108864")]
    pub max_inflight_bytes: usize,
    /// How long a review waits for a namespace that isn't in the index yet, in milliseconds
    #[arg(long, value_name = "MS", env = "CROFT_NAMESPACE_WAIT", default_value = "1000", value_parser = millis)]
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
    /// The names of the certificate.
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
    fn arguments_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn url_replaces_the_names_of_the_service() {
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
