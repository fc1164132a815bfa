//! From a node's settings to user data of its image family.

use std::io::Write as _;

use super::{
    bootstrap, bottlerocket,
    model::{Family, MAX_BYTES, NodeBoot, UserData, UserDataError},
    nodeadm,
};

/// Deterministic: neither name nor time is included.
fn pack(text: &str) -> std::io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text.as_bytes())?;
    encoder.finish()
}

/// Renders the user data of an instance, before encoding.
///
/// # Errors
/// If the class's part can't be merged, or the whole is too large.
pub fn render(family: Family, boot: &NodeBoot<'_>) -> Result<UserData, UserDataError> {
    let text = match family {
        Family::Al2023 => nodeadm::render(boot)?,
        Family::Al2 | Family::Ubuntu => bootstrap::render(boot)?,
        Family::Bottlerocket => bottlerocket::render(boot)?,
        Family::Custom => boot.custom.unwrap_or_default().to_owned(),
    };
    let bytes = text.len();
    if bytes <= MAX_BYTES {
        return Ok(UserData { text, packed: None });
    }
    // Writing to memory can't fail; if it did, there would be no compressed form.
    match family.unpacks().then(|| pack(&text).ok()).flatten() {
        Some(packed) if packed.len() <= MAX_BYTES => Ok(UserData { text, packed: Some(packed) }),
        packed => Err(UserDataError::TooLarge { bytes, packed: packed.map(|p| p.len()) }),
    }
}
