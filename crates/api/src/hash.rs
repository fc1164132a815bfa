//! Hashes for names and stamps: equal for every process that has the same values.

use sha2::{Digest, Sha256};

/// A hash of `parts` with this many hexadecimal digits.
#[must_use]
pub fn hash(parts: &[&str], digits: usize) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        // Includes the lengths, so that ("ab", "c") and ("a", "bc") differ.
        hasher.update(part.len().to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().iter().flat_map(|byte| [byte >> 4, byte & 15]).take(digits).map(hex).collect()
}

fn hex(nibble: u8) -> char {
    char::from_digit(u32::from(nibble), 16).unwrap_or('0')
}
