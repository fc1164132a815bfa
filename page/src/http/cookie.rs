//! The session cookie, which holds the token.

use http::{HeaderMap, HeaderValue, header};

/// The cookie's name.
const COOKIE: &str = "croft_page";
const ATTRIBUTES: &str = "Path=/; HttpOnly; Secure; SameSite=Strict";

/// The token of the session cookie.
#[must_use]
pub fn token(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find_map(|(name, value)| (name == COOKIE && !value.is_empty()).then_some(value))
}

/// The header that sets the cookie to `value`; none if that can't stand in one.
#[must_use]
pub fn set(value: &str, more: &str) -> Option<HeaderValue> {
    // A token has letters, digits and a few signs; anything else would end the value or the header.
    let is_plain =
        value.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b';' | b',' | b'"' | b'\\'));
    is_plain.then(|| HeaderValue::try_from(format!("{COOKIE}={value}; {ATTRIBUTES}{more}")).ok()).flatten()
}
