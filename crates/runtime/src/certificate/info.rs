//! The fields of a certificate.

use jiff::Timestamp;
use x509_parser::{
    extensions::GeneralName,
    prelude::{FromDer, X509Certificate},
};

/// The fields of a certificate that rotation and the webhook need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    /// Valid from.
    pub not_before: Timestamp,
    /// Valid until.
    pub not_after: Timestamp,
    /// DNS names and IP addresses that it is for, sorted.
    pub names: Vec<String>,
    /// Its public key, as DER.
    pub public_key: Vec<u8>,
}

impl CertificateInfo {
    /// Parses a certificate; `None` if `der` isn't one.
    #[must_use]
    pub fn parse(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let time = |seconds: i64| Timestamp::from_second(seconds).ok();
        let mut names = Vec::new();
        if let Ok(Some(extension)) = certificate.subject_alternative_name() {
            for name in &extension.value.general_names {
                match name {
                    GeneralName::DNSName(name) => names.push((*name).to_owned()),
                    GeneralName::IPAddress(bytes) => names.extend(address(bytes)),
                    _ => {}
                }
            }
        }
        names.sort_unstable();
        Some(Self {
            not_before: time(certificate.validity().not_before.timestamp())?,
            not_after: time(certificate.validity().not_after.timestamp())?,
            names,
            public_key: certificate.public_key().raw.to_vec(),
        })
    }

    /// True from `not_before` to `not_after`.
    #[must_use]
    pub fn valid_at(&self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// The time at which two thirds of its lifetime are over.
    #[must_use]
    pub fn renew_at(&self) -> Timestamp {
        let life = self.not_after.as_second().saturating_sub(self.not_before.as_second());
        Timestamp::from_second(self.not_before.as_second().saturating_add(life / 3 * 2))
            .unwrap_or(self.not_after)
    }
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(v4).to_string());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| std::net::Ipv6Addr::from(v6).to_string())
}
