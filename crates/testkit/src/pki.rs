//! The cluster's own certificate authority, and what it signs.

use std::{fs, os::unix::fs::OpenOptionsExt, path::Path};

use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use crate::error::Error;

/// Object identifier of organizationName (X.520). rcgen keeps one value per type of name and takes this for another
/// type than its own `OrganizationName`, so that a second group fits.
const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

/// A key and its certificate, as PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its key (PKCS#8).
    pub key: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// A certificate authority of one control plane.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    key: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Creates one.
    pub fn new(name: &str) -> Result<Self, Error> {
        let failed = failed(name);
        let key = KeyPair::generate().map_err(&failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key).map_err(&failed)?.pem();
        let pem = key.serialize_pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate, key: pem })
    }

    /// Its certificate, as PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Its key, as PEM, for the cluster's signers (the controller manager, a cloud that registers kubelets).
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// A certificate for a server on loopback.
    pub fn server(&self, name: &str, also: &[&str]) -> Result<Identity, Error> {
        let names =
            ["127.0.0.1", "localhost"].iter().chain(also).map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).map_err(failed(name))?;
        // etcd's servers are clients of each other, with the same certificate.
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(name, &[], params)
    }

    /// A client certificate for `user`, with at most two groups.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Identity, Error> {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(user, groups, params)
    }

    fn sign(&self, name: &str, groups: &[&str], mut params: CertificateParams) -> Result<Identity, Error> {
        let failed = failed(name);
        let mut subject = DistinguishedName::new();
        match groups {
            [] => {}
            [one] => subject.push(DnType::OrganizationName, *one),
            [one, other] => {
                subject.push(DnType::OrganizationName, *one);
                subject.push(DnType::CustomDnType(ORGANIZATION.to_vec()), *other);
            }
            more => return Err(Error::TooManyGroups { name: name.to_owned(), groups: more.len() }),
        }
        subject.push(DnType::CommonName, name);
        params.distinguished_name = subject;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(&failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(&failed)?.pem();
        Ok(Identity { certificate, key: key.serialize_pem() })
    }
}

/// The key pair that signs ServiceAccount tokens: private and public half, as PEM.
pub(crate) fn token_key() -> Result<(String, String), Error> {
    let key = KeyPair::generate().map_err(failed("the ServiceAccount issuer"))?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

fn failed(name: &str) -> impl Fn(rcgen::Error) -> Error + use<> {
    let name = name.to_owned();
    move |source| Error::Certificate { name: name.clone(), source }
}

/// Writes a file that only its owner may read.
pub(crate) fn write_secret(path: &Path, text: &str) -> Result<(), Error> {
    use std::io::Write as _;
    let failed = || format!("write {}", path.display());
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .map_err(Error::io(failed()))?;
    file.write_all(text.as_bytes()).map_err(Error::io(failed()))
}

/// Credentials of a client.
#[derive(Clone, Debug)]
pub(crate) enum Proof<'a> {
    /// A client certificate.
    Certificate(&'a Identity),
    /// A bearer token.
    Token(&'a str),
}

/// A self-contained kubeconfig for `user` at `url`.
pub(crate) fn kubeconfig(url: &str, authority: &str, user: &str, proof: &Proof<'_>) -> Kubeconfig {
    use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
    let auth_info = match proof {
        Proof::Certificate(identity) => AuthInfo {
            client_certificate_data: Some(BASE64.encode(&identity.certificate)),
            client_key_data: Some(BASE64.encode(&identity.key).into()),
            ..AuthInfo::default()
        },
        Proof::Token(token) => AuthInfo { token: Some((*token).to_owned().into()), ..AuthInfo::default() },
    };
    let cluster = Cluster {
        server: Some(url.to_owned()),
        certificate_authority_data: Some(BASE64.encode(authority)),
        ..Cluster::default()
    };
    let context = Context { cluster: "lab".to_owned(), user: Some(user.to_owned()), ..Context::default() };
    Kubeconfig {
        api_version: Some("v1".to_owned()),
        kind: Some("Config".to_owned()),
        clusters: vec![NamedCluster {
            name: "lab".to_owned(),
            cluster: Some(cluster),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: user.to_owned(),
            auth_info: Some(auth_info),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: "lab".to_owned(),
            context: Some(context),
            ..NamedContext::default()
        }],
        current_context: Some("lab".to_owned()),
        ..Kubeconfig::default()
    }
}
