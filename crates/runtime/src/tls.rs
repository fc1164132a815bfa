//! A server's TLS identity, replaced as a whole while connections are open.
//!
//! A connection keeps the identity that it was accepted with; the next one gets the new identity. So a reload drops no
//! connection, and a reload that fails changes nothing.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::{
    RootCertStore, ServerConfig,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Errors of this module.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The text is no PEM, or not the expected PEM.
    #[error("failed to read the {what}: {source}")]
    Pem {
        /// The part.
        what: &'static str,
        /// The reason.
        source: rustls::pki_types::pem::Error,
    },
    /// The PEM is empty.
    #[error("failed to find a certificate in the {0}")]
    Empty(&'static str),
    /// The PEM holds no valid certificate.
    #[error("failed to read the {what}: {reason}")]
    Certificate {
        /// The part.
        what: &'static str,
        /// The reason.
        reason: String,
    },
    /// The parts don't match: most often the key isn't the certificate's.
    #[error("failed to use the certificate with its key: {0}")]
    Config(#[from] rustls::Error),
    /// A client would refuse it.
    #[error("{0}")]
    Distrusted(rustls::Error),
    /// The authority of clients, or of the server, can't be used.
    #[error("failed to use the certificate authority: {0}")]
    ClientAuthority(#[from] rustls::server::VerifierBuilderError),
}

/// A certificate chain with its key, both as PEM, leaf first.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The chain, leaf first.
    pub chain_pem: String,
    /// The leaf's key.
    pub key_pem: String,
}

// Written by hand so that no log line ever holds the key.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("chain_pem", &self.chain_pem).finish_non_exhaustive()
    }
}

/// The clients that may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRule {
    /// Certificates of the authorities that sign the clients' certificates, as PEM.
    pub authority_pem: String,
    /// Common names that may connect; empty accepts every certificate of the authority.
    pub names: Vec<String>,
}

/// The identity with which a server accepts the next connection.
#[derive(Default)]
pub struct TlsSlot {
    current: ArcSwapOption<Loaded>,
    clients: Option<ClientRule>,
}

struct Loaded {
    acceptor: TlsAcceptor,
    chain: Vec<CertificateDer<'static>>,
}

impl Loaded {
    fn leaf(&self) -> Option<&[u8]> {
        self.chain.first().map(AsRef::as_ref)
    }
}

impl TlsSlot {
    /// An empty slot: connections are closed until an identity is installed.
    #[must_use]
    pub fn new(clients: Option<ClientRule>) -> Self {
        Self { current: ArcSwapOption::empty(), clients }
    }

    /// Installs `identity`. Returns whether it differs from the one in use.
    ///
    /// # Errors
    /// If it can't be used; the old one stays in use.
    pub fn install(&self, identity: &Identity) -> Result<bool, TlsError> {
        let chain = certificates("certificate", &identity.chain_pem)?;
        let leaf = chain.first().ok_or(TlsError::Empty("certificate"))?;
        if self.current.load().as_ref().is_some_and(|loaded| loaded.leaf() == Some(leaf.as_ref())) {
            return Ok(false);
        }
        let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())
            .map_err(|source| TlsError::Pem { what: "private key", source })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let mut config = match &self.clients {
            None => builder.with_no_client_auth(),
            Some(rule) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates("clients' certificate authority", &rule.authority_pem)? {
                    roots.add(certificate)?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
                builder.with_client_cert_verifier(verifier)
            }
        }
        .with_single_cert(chain.clone(), key)?;
        // The API server speaks HTTP/1.1 to webhooks on purpose: kubernetes#75791.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        self.current.store(Some(Arc::new(Loaded { acceptor, chain })));
        Ok(true)
    }

    /// The acceptor of the next connection; `None` before the first identity.
    #[must_use]
    pub fn acceptor(&self) -> Option<TlsAcceptor> {
        self.current.load().as_ref().map(|loaded| loaded.acceptor.clone())
    }

    /// The leaf in use, as DER.
    #[must_use]
    pub fn leaf(&self) -> Option<Vec<u8>> {
        self.current.load().as_ref().and_then(|loaded| loaded.leaf().map(<[u8]>::to_vec))
    }

    /// Checks that a client that trusts `bundle_pem` and asks for `name` would accept the identity in use at `now`.
    ///
    /// # Errors
    /// If it would not. Without an identity there is nothing to refuse.
    pub fn trusted_by(&self, bundle_pem: &str, name: &str, now: jiff::Timestamp) -> Result<(), TlsError> {
        let current = self.current.load();
        let Some((leaf, intermediates)) = current.as_ref().and_then(|loaded| loaded.chain.split_first())
        else {
            return Ok(());
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates("authority", bundle_pem)? {
            roots.add(certificate)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        let name = ServerName::try_from(name.to_owned())
            .map_err(|error| TlsError::Certificate { what: "name", reason: error.to_string() })?;
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now.as_second().unsigned_abs()));
        verifier.verify_server_cert(leaf, intermediates, &name, &[], now).map_err(TlsError::Distrusted)?;
        Ok(())
    }

    /// True if clients must show a certificate.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        self.clients.is_some()
    }

    /// True if a client that presented `certificate` may stay. The handshake has checked its signature.
    #[must_use]
    pub fn admits(&self, certificate: Option<&CertificateDer<'_>>) -> bool {
        let Some(rule) = &self.clients else { return true };
        if rule.names.is_empty() {
            return certificate.is_some();
        }
        certificate.and_then(|der| common_name(der)).is_some_and(|name| rule.names.contains(&name))
    }
}

/// Parses every certificate in `pem`.
///
/// # Errors
/// If `pem` is malformed. `what` names it in the error.
pub fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|source| TlsError::Pem { what, source })
}

/// The common name in a certificate.
pub(crate) fn common_name(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let name = certificate.subject().iter_common_name().next()?;
    name.as_str().ok().map(str::to_owned)
}
