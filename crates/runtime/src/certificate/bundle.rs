//! The content of the Secret, decided from its current content, the names to serve, and the time. Pure; called by
//! `secret`.
//!
//! ```text
//!            renew_at or request          ca_propagation_delay later             overlap later
//!  [A] signs ────────────────▶ [A] signs, B  ───────────────▶ [B] signs, A  ────────────────▶ [B] signs
//!                              is trusted                     is trusted
//! ```
//!
//! A new authority is trusted before it signs anything, and the old one is trusted until long after its last leaf has
//! been replaced. So at no moment does a replica serve a certificate that an API server doesn't trust. Only a broken
//! Secret skips the delay, since no valid certificate is in use then.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use jiff::Timestamp;
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData,
};
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    pki_types::{ServerName, UnixTime},
};

use super::info::CertificateInfo;
use crate::tls::{Identity, certificates};

/// Keys of the Secret. cert-manager uses `tls.crt`, `tls.key` and `ca.crt` as well.
pub mod keys {
    /// The served certificate with its chain.
    pub const CERTIFICATE: &str = "tls.crt";
    /// Its key.
    pub const KEY: &str = "tls.key";
    /// Trusted authorities, the signing one first.
    pub const AUTHORITY: &str = "ca.crt";
    /// The signing authority's key.
    pub const AUTHORITY_KEY: &str = "ca.key";
    /// The authority that will sign next.
    pub const NEXT: &str = "next-ca.crt";
    /// Its key.
    pub const NEXT_KEY: &str = "next-ca.key";
}

/// Common name of the authorities that are created here.
const AUTHORITY_NAME: &str = "croft-webhook-ca";
/// The time by which a certificate's validity begins before its creation, for API servers whose clocks are behind.
const SKEW: Duration = Duration::from_secs(60 * 60);

/// Lifetimes.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// Lifetime of an authority; renewed after two thirds.
    pub authority_life: Duration,
    /// Lifetime of a leaf; renewed after two thirds.
    pub leaf_life: Duration,
    /// Time for which an authority is trusted before it signs. API servers learn of a caBundle by a watch.
    pub ca_propagation_delay: Duration,
    /// Time for which an authority is trusted after it last signed.
    pub overlap: Duration,
}

impl Default for Rotation {
    fn default() -> Self {
        const DAY: u64 = 24 * 60 * 60;
        Self {
            authority_life: Duration::from_secs(5 * 365 * DAY),
            leaf_life: Duration::from_secs(90 * DAY),
            ca_propagation_delay: Duration::from_secs(60),
            overlap: Duration::from_secs(DAY),
        }
    }
}

/// A rotation that a user requests by an annotation of the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationRequest {
    /// A new leaf.
    Leaf,
    /// A new authority, trusted before it signs.
    Authority,
}

impl RotationRequest {
    /// Parses the annotation's value.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        match value {
            "leaf" => Some(Self::Leaf),
            "authority" => Some(Self::Authority),
            _ => None,
        }
    }
}

/// A certificate can't be created.
#[derive(Debug, thiserror::Error)]
#[error("failed to make the {what} for {names:?}: {source}")]
pub struct BundleError {
    what: &'static str,
    names: Vec<String>,
    source: rcgen::Error,
}

/// An authority with its key.
#[derive(Clone, PartialEq, Eq)]
struct Authority {
    pem: String,
    key_pem: String,
}

/// The content of the Secret: authorities with their keys, and the served identity.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateBundle {
    signing: Authority,
    next: Option<Authority>,
    previous: Vec<String>,
    leaf: Identity,
}

// Written by hand, so that no log line holds a key.
impl std::fmt::Debug for CertificateBundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateBundle").field("trusted", &self.trusted_pem()).finish_non_exhaustive()
    }
}

impl CertificateBundle {
    /// Parses the data of a Secret; `None` if a required part is missing or invalid.
    #[must_use]
    pub fn parse(data: &BTreeMap<String, ByteString>) -> Option<Self> {
        let text = |key: &str| data.get(key).and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
        let mut trusted = split(&text(keys::AUTHORITY)?)?.into_iter();
        let signing = Authority { pem: trusted.next()?, key_pem: text(keys::AUTHORITY_KEY)? };
        let next = match (text(keys::NEXT), text(keys::NEXT_KEY)) {
            (Some(pem), Some(key_pem)) => Some(Authority { pem: split(&pem)?.into_iter().next()?, key_pem }),
            _ => None,
        };
        let next_pem = next.as_ref().map(|next| next.pem.clone());
        Some(Self {
            previous: trusted.filter(|pem| Some(pem) != next_pem.as_ref()).collect(),
            signing,
            next,
            leaf: Identity { chain_pem: text(keys::CERTIFICATE)?, key_pem: text(keys::KEY)? },
        })
    }

    /// The data of the Secret.
    #[must_use]
    pub fn data(&self) -> BTreeMap<String, ByteString> {
        let mut data: BTreeMap<String, ByteString> = BTreeMap::new();
        let mut put =
            |key: &str, text: &str| data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec()));
        put(keys::CERTIFICATE, &self.leaf.chain_pem);
        put(keys::KEY, &self.leaf.key_pem);
        put(keys::AUTHORITY, &self.trusted_pem());
        put(keys::AUTHORITY_KEY, &self.signing.key_pem);
        if let Some(next) = &self.next {
            put(keys::NEXT, &next.pem);
            put(keys::NEXT_KEY, &next.key_pem);
        }
        data
    }

    /// The trusted authorities as PEM: the signing one, the next one, the previous ones.
    #[must_use]
    pub fn trusted_pem(&self) -> String {
        let next = self.next.as_ref().map(|next| &next.pem);
        [&self.signing.pem].into_iter().chain(next).chain(&self.previous).map(String::as_str).collect()
    }

    /// The served identity.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.leaf
    }
}

/// Decides the next content of the Secret; equal to `current` if nothing is to be changed.
///
/// # Errors
/// If a certificate can't be created, such as for an invalid name.
pub fn next_bundle(
    current: Option<&CertificateBundle>,
    names: &[String],
    rotation: &Rotation,
    request: Option<RotationRequest>,
    now: Timestamp,
) -> Result<CertificateBundle, BundleError> {
    let Some(current) = current else {
        return new_bundle(Vec::new(), names, rotation, now);
    };
    if !usable(&current.signing, now) {
        // Replicas serve the old leaf until they see the new one, so valid authorities stay trusted.
        let kept = [&current.signing.pem].into_iter().chain(&current.previous).filter(|pem| valid(pem, now));
        return new_bundle(kept.cloned().collect(), names, rotation, now);
    }
    let mut wanted = current.clone();
    wanted.previous.retain(|pem| valid(pem, now));
    match &current.next {
        Some(next) if !usable(next, now) => wanted.next = None,
        Some(next) if now >= after(created_at(&next.pem, now), rotation.ca_propagation_delay) => {
            wanted.previous.insert(0, current.signing.pem.clone());
            wanted.signing = next.clone();
            wanted.next = None;
        }
        Some(_) => {}
        None => {
            let due = info(&current.signing.pem).is_some_and(|info| now >= info.renew_at());
            if due || request == Some(RotationRequest::Authority) {
                wanted.next = Some(authority(rotation, now)?);
            }
            let overlap_ends = after(
                created_at(&current.signing.pem, now),
                rotation.ca_propagation_delay + rotation.overlap,
            );
            if now >= overlap_ends {
                wanted.previous.clear();
            }
        }
    }
    if request == Some(RotationRequest::Leaf) || !serves(&wanted.leaf, &wanted.signing.pem, names, now) {
        wanted.leaf = leaf(&wanted.signing, names, rotation, now)?;
    }
    Ok(wanted)
}

/// True if a client that trusts `authority_pem` accepts `identity` for `names`, and it isn't due for renewal.
fn serves(identity: &Identity, authority_pem: &str, names: &[String], now: Timestamp) -> bool {
    let Some(info) = info(&identity.chain_pem) else { return false };
    let mut wanted = names.to_vec();
    wanted.sort_unstable();
    let key_fits = KeyPair::from_pem(&identity.key_pem)
        .is_ok_and(|key| key.subject_public_key_info() == info.public_key);
    info.names == wanted
        && now < info.renew_at()
        && key_fits
        && names.iter().all(|name| trusted(&identity.chain_pem, authority_pem, name, now))
}

/// True if a client that trusts `bundle_pem` accepts `chain_pem` for `name`, by the verifier of rustls itself.
#[must_use]
pub fn trusted(chain_pem: &str, bundle_pem: &str, name: &str, now: Timestamp) -> bool {
    let (Ok(chain), Ok(bundle)) =
        (certificates("certificate", chain_pem), certificates("authority", bundle_pem))
    else {
        return false;
    };
    let Some((leaf, intermediates)) = chain.split_first() else { return false };
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(bundle).0 == 0 {
        return false;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let Ok(verifier) = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build() else {
        return false;
    };
    let (Ok(name), Ok(seconds)) = (ServerName::try_from(name), u64::try_from(now.as_second())) else {
        return false;
    };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    verifier.verify_server_cert(leaf, intermediates, &name, &[], now).is_ok()
}

fn new_bundle(
    previous: Vec<String>,
    names: &[String],
    rotation: &Rotation,
    now: Timestamp,
) -> Result<CertificateBundle, BundleError> {
    let signing = authority(rotation, now)?;
    let leaf = leaf(&signing, names, rotation, now)?;
    Ok(CertificateBundle { signing, next: None, previous, leaf })
}

fn authority(rotation: &Rotation, now: Timestamp) -> Result<Authority, BundleError> {
    let named = |source| BundleError { what: "authority", names: Vec::new(), source };
    let key = KeyPair::generate().map_err(named)?;
    let mut params = params(now, rotation.authority_life);
    // The signing time in the name tells apart two authorities that are trusted together: verifiers look issuers up by
    // name.
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, format!("{AUTHORITY_NAME}@{}", now.as_second()));
    params.distinguished_name = name;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let pem = params.self_signed(&key).map_err(named)?.pem();
    Ok(Authority { pem, key_pem: key.serialize_pem() })
}

fn leaf(
    signing: &Authority,
    names: &[String],
    rotation: &Rotation,
    now: Timestamp,
) -> Result<Identity, BundleError> {
    let named = |source| BundleError { what: "certificate", names: names.to_vec(), source };
    let authority_key = KeyPair::from_pem(&signing.key_pem).map_err(named)?;
    let issuer = Issuer::from_ca_cert_pem(&signing.pem, authority_key).map_err(named)?;
    let key = KeyPair::generate().map_err(named)?;
    let mut params = params(now, rotation.leaf_life);
    params.subject_alt_names = CertificateParams::new(names).map_err(named)?.subject_alt_names;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, names.first().map_or("croft-webhook", String::as_str));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let chain_pem = params.signed_by(&key, &issuer).map_err(named)?.pem();
    Ok(Identity { chain_pem, key_pem: key.serialize_pem() })
}

fn params(now: Timestamp, life: Duration) -> CertificateParams {
    let at = |time: Timestamp| SystemTime::from(time).into();
    let mut params = CertificateParams::default();
    params.not_before = at(before(now, SKEW));
    params.not_after = at(after(now, life));
    params
}

fn info(pem: &str) -> Option<CertificateInfo> {
    CertificateInfo::parse(certificates("certificate", pem).ok()?.first()?)
}

fn valid(pem: &str, now: Timestamp) -> bool {
    info(pem).is_some_and(|info| info.valid_at(now))
}

/// True if the authority is valid and the key is its own.
fn usable(authority: &Authority, now: Timestamp) -> bool {
    let (Some(info), Ok(key)) = (info(&authority.pem), KeyPair::from_pem(&authority.key_pem)) else {
        return false;
    };
    info.valid_at(now) && key.subject_public_key_info() == info.public_key
}

/// The creation time of one of our authorities, whose validity begins [`SKEW`] before.
fn created_at(pem: &str, now: Timestamp) -> Timestamp {
    info(pem).map_or(now, |info| after(info.not_before, SKEW))
}

fn after(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

fn before(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_sub(by).unwrap_or(Timestamp::MIN)
}

/// Splits a bundle into certificates, each as PEM in the form that this module writes.
fn split(bundle: &str) -> Option<Vec<String>> {
    const END: &str = "-----END CERTIFICATE-----";
    certificates("bundle", bundle).ok()?;
    let parts = bundle.split_inclusive(END).filter_map(|part| {
        let begin = part.find("-----BEGIN CERTIFICATE-----")?;
        Some(format!("{}\n", part.get(begin..)?.replace("\r\n", "\n")))
    });
    Some(parts.collect())
}

#[cfg(test)]
#[path = "bundle_test.rs"]
mod tests;
