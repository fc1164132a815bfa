//! What the Secret should hold, decided from what it holds, the names to serve, and the time.
//!
//! ```text
//!            renew_at or asked               ANNOUNCE later                     OVERLAP later
//!  [A] signs ────────────────▶ [A] signs, B  ───────────────▶ [B] signs, A  ────────────────▶ [B] signs
//!                              is trusted                     is trusted
//! ```
//!
//! A new authority is trusted before it signs anything, and the old one is trusted until long after its last
//! leaf is gone; so at no moment does a replica serve what an API server doesn't trust. Only a broken Secret
//! skips the announcement: there is nothing left to protect.

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

use super::facts::Facts;
use crate::tls::{Identity, certificates};

/// Keys of the Secret. `tls.crt`, `tls.key` and `ca.crt` are where cert-manager has them too.
pub mod keys {
    /// The certificate that is served, with its chain.
    pub const CERTIFICATE: &str = "tls.crt";
    /// Its key.
    pub const KEY: &str = "tls.key";
    /// Authorities to trust, the signing one first.
    pub const AUTHORITY: &str = "ca.crt";
    /// The signing authority's key.
    pub const AUTHORITY_KEY: &str = "ca.key";
    /// The authority that will sign next.
    pub const NEXT: &str = "next-ca.crt";
    /// Its key.
    pub const NEXT_KEY: &str = "next-ca.key";
}

/// Common name of the authorities that are made here.
const AUTHORITY_NAME: &str = "croft-webhook-ca";
/// Certificates begin this much before they are made, for API servers whose clocks are behind.
const SKEW: Duration = Duration::from_secs(60 * 60);

/// Life times.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// Of an authority; renewed when two thirds are over.
    pub authority_life: Duration,
    /// Of a leaf; renewed when two thirds are over.
    pub leaf_life: Duration,
    /// How long an authority is trusted before it signs. API servers learn of a caBundle by a watch.
    pub announce: Duration,
    /// How long an authority is trusted after it last signed.
    pub overlap: Duration,
}

impl Default for Rotation {
    fn default() -> Self {
        const DAY: u64 = 24 * 60 * 60;
        Self {
            authority_life: Duration::from_secs(5 * 365 * DAY),
            leaf_life: Duration::from_secs(90 * DAY),
            announce: Duration::from_secs(60),
            overlap: Duration::from_secs(DAY),
        }
    }
}

/// What a person may ask for, by an annotation on the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// A new leaf.
    Leaf,
    /// A new authority, announced first.
    Authority,
}

impl Wish {
    /// Reads the annotation's value.
    #[must_use]
    pub fn read(value: &str) -> Option<Self> {
        match value {
            "leaf" => Some(Self::Leaf),
            "authority" => Some(Self::Authority),
            _ => None,
        }
    }
}

/// Errors of this module: making a certificate failed.
#[derive(Debug, thiserror::Error)]
#[error("failed to make the {what} for {names:?}: {source}")]
pub struct MaterialError {
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

/// What the Secret holds.
#[derive(Clone, PartialEq, Eq)]
pub struct Material {
    signing: Authority,
    next: Option<Authority>,
    previous: Vec<String>,
    leaf: Identity,
}

// Written by hand so that no log line ever holds a key.
impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Material").field("bundle", &self.bundle()).finish_non_exhaustive()
    }
}

impl Material {
    /// Reads a Secret's data; `None` if a part that every Secret of ours has is missing or isn't what it should be.
    #[must_use]
    pub fn read(data: &BTreeMap<String, ByteString>) -> Option<Self> {
        let text = |key: &str| data.get(key).and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
        let mut trusted = split(&text(keys::AUTHORITY)?)?.into_iter();
        let signing = Authority { pem: trusted.next()?, key_pem: text(keys::AUTHORITY_KEY)? };
        let next = match (text(keys::NEXT), text(keys::NEXT_KEY)) {
            (Some(pem), Some(key_pem)) => Some(Authority { pem: split(&pem)?.into_iter().next()?, key_pem }),
            _ => None,
        };
        let announced = next.as_ref().map(|next| next.pem.clone());
        Some(Self {
            previous: trusted.filter(|pem| Some(pem) != announced.as_ref()).collect(),
            signing,
            next,
            leaf: Identity { chain_pem: text(keys::CERTIFICATE)?, key_pem: text(keys::KEY)? },
        })
    }

    /// The Secret's data.
    #[must_use]
    pub fn write(&self) -> BTreeMap<String, ByteString> {
        let mut data: BTreeMap<String, ByteString> = BTreeMap::new();
        let mut put =
            |key: &str, text: &str| data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec()));
        put(keys::CERTIFICATE, &self.leaf.chain_pem);
        put(keys::KEY, &self.leaf.key_pem);
        put(keys::AUTHORITY, &self.bundle());
        put(keys::AUTHORITY_KEY, &self.signing.key_pem);
        if let Some(next) = &self.next {
            put(keys::NEXT, &next.pem);
            put(keys::NEXT_KEY, &next.key_pem);
        }
        data
    }

    /// Authorities to trust, as PEM: the signing one, the next, the previous ones.
    #[must_use]
    pub fn bundle(&self) -> String {
        let next = self.next.as_ref().map(|next| &next.pem);
        [&self.signing.pem].into_iter().chain(next).chain(&self.previous).map(String::as_str).collect()
    }

    /// What to serve.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.leaf
    }
}

/// What the Secret should hold; equal to `current` if that is right.
///
/// # Errors
/// When a certificate can't be made, such as for a name that isn't one.
pub fn next(
    current: Option<&Material>,
    names: &[String],
    rotation: &Rotation,
    wish: Option<Wish>,
    now: Timestamp,
) -> Result<Material, MaterialError> {
    let Some(current) = current else {
        return renewed(Vec::new(), names, rotation, now);
    };
    if !usable(&current.signing, now) {
        // Replicas serve the old leaf until they see the new one: what can still be trusted stays trusted.
        let kept = [&current.signing.pem].into_iter().chain(&current.previous).filter(|pem| valid(pem, now));
        return renewed(kept.cloned().collect(), names, rotation, now);
    }
    let mut wanted = current.clone();
    wanted.previous.retain(|pem| valid(pem, now));
    match &current.next {
        Some(next) if !usable(next, now) => wanted.next = None,
        Some(next) if now >= after(made_at(&next.pem, now), rotation.announce) => {
            wanted.previous.insert(0, current.signing.pem.clone());
            wanted.signing = next.clone();
            wanted.next = None;
        }
        Some(_) => {}
        None => {
            let due = facts(&current.signing.pem).is_some_and(|facts| now >= facts.renew_at());
            if due || wish == Some(Wish::Authority) {
                wanted.next = Some(authority(rotation, now)?);
            }
            let settled = after(made_at(&current.signing.pem, now), rotation.announce + rotation.overlap);
            if now >= settled {
                wanted.previous.clear();
            }
        }
    }
    if wish == Some(Wish::Leaf) || !serves(&wanted.leaf, &wanted.signing.pem, names, now) {
        wanted.leaf = leaf(&wanted.signing, names, rotation, now)?;
    }
    Ok(wanted)
}

/// True if `identity`, served for `names`, would be accepted by a client that trusts `bundle`, and isn't due
/// for renewal.
fn serves(identity: &Identity, authority_pem: &str, names: &[String], now: Timestamp) -> bool {
    let Some(facts) = facts(&identity.chain_pem) else { return false };
    let mut wanted = names.to_vec();
    wanted.sort_unstable();
    let key_fits = KeyPair::from_pem(&identity.key_pem)
        .is_ok_and(|key| key.subject_public_key_info() == facts.public_key);
    facts.names == wanted
        && now < facts.renew_at()
        && key_fits
        && names.iter().all(|name| trusted(&identity.chain_pem, authority_pem, name, now))
}

/// Whether a client that trusts `bundle_pem` accepts `chain_pem` for `name`: by the very code that would judge
/// it in a handshake.
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

fn renewed(
    previous: Vec<String>,
    names: &[String],
    rotation: &Rotation,
    now: Timestamp,
) -> Result<Material, MaterialError> {
    let signing = authority(rotation, now)?;
    let leaf = leaf(&signing, names, rotation, now)?;
    Ok(Material { signing, next: None, previous, leaf })
}

fn authority(rotation: &Rotation, now: Timestamp) -> Result<Authority, MaterialError> {
    let named = |source| MaterialError { what: "authority", names: Vec::new(), source };
    let key = KeyPair::generate().map_err(named)?;
    let mut params = params(now, rotation.authority_life);
    // The signing time in the name tells two authorities apart that are trusted together; verifiers look
    // issuers up by name.
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
) -> Result<Identity, MaterialError> {
    let named = |source| MaterialError { what: "certificate", names: names.to_vec(), source };
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

fn facts(pem: &str) -> Option<Facts> {
    Facts::read(certificates("certificate", pem).ok()?.first()?)
}

fn valid(pem: &str, now: Timestamp) -> bool {
    facts(pem).is_some_and(|facts| facts.valid_at(now))
}

/// True if the authority is valid and the key is its own.
fn usable(authority: &Authority, now: Timestamp) -> bool {
    let (Some(facts), Ok(key)) = (facts(&authority.pem), KeyPair::from_pem(&authority.key_pem)) else {
        return false;
    };
    facts.valid_at(now) && key.subject_public_key_info() == facts.public_key
}

/// When an authority of ours was made: it begins [`SKEW`] before that.
fn made_at(pem: &str, now: Timestamp) -> Timestamp {
    facts(pem).map_or(now, |facts| after(facts.not_before, SKEW))
}

fn after(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

fn before(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_sub(by).unwrap_or(Timestamp::MIN)
}

/// Every certificate of a bundle as PEM of its own, in the form in which this module writes them.
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
#[path = "material_tests.rs"]
mod tests;
