//! A webhook client that behaves as an API server: HTTP/1.1, keep-alive, TLS.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::pki::Identity;

/// Trusted authorities, the expected server name and the client's identity.
#[derive(Clone)]
pub struct Trust {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Trust {
    /// Trusts `bundle_pem` for the server name `name`.
    ///
    /// # Errors
    /// If the bundle has no certificate, or the name is invalid.
    pub fn new(bundle_pem: &str, name: &str) -> io::Result<Self> {
        Self::of(bundle_pem, name, None)
    }

    /// As [`Trust::new`], with the client certificate `identity`.
    ///
    /// # Errors
    /// As [`Trust::new`], and if certificate and key don't match.
    pub fn with_identity(bundle_pem: &str, name: &str, identity: &Identity) -> io::Result<Self> {
        Self::of(bundle_pem, name, Some(identity))
    }

    fn of(bundle_pem: &str, name: &str, identity: Option<&Identity>) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle_pem.as_bytes()) {
            roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some(Identity { certificate, key }) => {
                let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<_, _>>();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(io::Error::other)?;
                config
                    .with_client_auth_cert(chain.map_err(io::Error::other)?, key)
                    .map_err(io::Error::other)?
            }
        };
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }
}

/// One keep-alive connection.
pub struct Reviewer {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
    filled: usize,
}

/// An answer.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// The HTTP status.
    pub status: u16,
    /// True if the server closes the connection.
    pub closes: bool,
    /// Length of the body.
    pub length: usize,
    start: usize,
}

impl Reviewer {
    /// Connects.
    ///
    /// # Errors
    /// If no process listens, or the server isn't trusted.
    pub async fn connect(address: SocketAddr, trust: &Trust) -> io::Result<Self> {
        Self::over(TcpStream::connect(address).await?, trust).await
    }

    /// Connects from `source`, such as another loopback address.
    ///
    /// # Errors
    /// As [`Reviewer::connect`], and if `source` isn't a local address.
    pub async fn connect_from(source: IpAddr, address: SocketAddr, trust: &Trust) -> io::Result<Self> {
        Self::over(dial(source, address).await?, trust).await
    }

    async fn over(stream: TcpStream, trust: &Trust) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let stream = trust.connector.connect(trust.name.clone(), stream).await?;
        Ok(Self { stream, buffer: vec![0; 1 << 14], filled: 0 })
    }

    /// The bytes of a POST of `body` to `path`.
    #[must_use]
    pub fn request(path: &str, body: &[u8]) -> Vec<u8> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: webhook\r\nUser-Agent: kube-apiserver-admission\r\nContent-Length: {}\r\nAccept: \
             application/json, */*\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    }

    /// Sends the bytes of [`Reviewer::request`] and reads the answer; [`Reviewer::body`] is its body until the next
    /// call.
    ///
    /// # Errors
    /// If the connection ends, or the answer isn't HTTP/1.1 with a length.
    pub async fn send(&mut self, request: &[u8]) -> io::Result<Head> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        self.filled = 0;
        let mut head = None;
        loop {
            if head.is_none() {
                head = parse(self.buffer.get(..self.filled).unwrap_or_default())?;
            }
            if let Some(head) = head {
                let end = head.start.saturating_add(head.length);
                if self.filled >= end {
                    return Ok(head);
                }
                if self.buffer.len() < end {
                    self.buffer.resize(end, 0);
                }
            } else if self.filled == self.buffer.len() {
                return Err(io::Error::other("the answer's head doesn't end"));
            }
            let room = self.buffer.get_mut(self.filled..).unwrap_or_default();
            match self.stream.read(room).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.filled = self.filled.saturating_add(read),
            }
        }
    }

    /// The body of the last answer.
    #[must_use]
    pub fn body(&self, head: Head) -> &[u8] {
        self.buffer.get(head.start..head.start.saturating_add(head.length)).unwrap_or_default()
    }

    /// Sends raw bytes, for requests that no API server sends.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Reads until the server closes the connection, cleanly or not.
    pub async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // Bytes received before the connection broke are returned.
        let _ = self.stream.read_to_end(&mut rest).await;
        rest
    }

    /// Posts `body` to `path`. Returns status and body.
    ///
    /// # Errors
    /// As [`Reviewer::send`].
    pub async fn post(&mut self, path: &str, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        let head = self.send(&Self::request(path, body)).await?;
        Ok((head.status, self.body(head).to_vec()))
    }
}

/// A connection from `source` to `address`, without a handshake.
///
/// # Errors
/// If no process listens, or `source` isn't a local address.
pub async fn dial(source: IpAddr, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if source.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.bind(SocketAddr::new(source, 0))?;
    socket.connect(address).await
}

/// The leaf certificate that a server presents, from any issuer.
///
/// # Errors
/// If no process listens, or the handshake fails.
pub async fn presented(address: SocketAddr) -> io::Result<Vec<u8>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::from(address.ip());
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let nothing = || io::Error::other("no certificate was presented");
    let certificates = stream.get_ref().1.peer_certificates().ok_or_else(nothing)?;
    Ok(certificates.first().ok_or_else(nothing)?.to_vec())
}

/// Accepts certificates of any issuer.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The head of an answer, once it is complete.
fn parse(bytes: &[u8]) -> io::Result<Option<Head>> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(bytes.get(..end).unwrap_or_default()).map_err(io::Error::other)?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
    let mut head = Head {
        status: status.ok_or_else(|| io::Error::other("no HTTP/1.1 answer"))?,
        closes: false,
        length: 0,
        start: end.saturating_add(4),
    };
    let mut length = None;
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok();
        } else if name.eq_ignore_ascii_case("connection") {
            head.closes = value.trim().eq_ignore_ascii_case("close");
        }
    }
    head.length = length.ok_or_else(|| io::Error::other("the answer has no length"))?;
    Ok(Some(head))
}
