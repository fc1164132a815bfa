//! The syntax of names, label keys and label values (`k8s.io/apimachinery/pkg/util/validation`).

/// A DNS subdomain, which the names of nearly all kinds are.
///
/// # Errors
/// With what to write, if `name` is none.
pub fn object_name(name: &str) -> Result<(), String> {
    if is_subdomain(name) {
        return Ok(());
    }
    Err(format!(
        "{name:?} is no name; write lower case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253 characters"
    ))
}

/// A label or taint key: a name, optionally behind a DNS subdomain and a slash.
pub(super) fn qualified(key: &str) -> Result<(), String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if prefix.is_none_or(is_subdomain) && !name.is_empty() && is_label_text(name) {
        return Ok(());
    }
    Err(format!("{key:?} is no key; write a name such as \"app\" or \"example.com/app\""))
}

/// A label's value: empty, or at most 63 characters that begin and end with a letter or digit.
pub(super) fn label_value(value: &str) -> Result<(), String> {
    if is_label_text(value) {
        return Ok(());
    }
    Err(format!(
        "{value:?} is no label value; write at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
    ))
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|part| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && !part.starts_with('-')
                && !part.ends_with('-')
        })
}

fn is_label_text(text: &str) -> bool {
    text.is_empty()
        || (text.len() <= 63
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_label_keys_follow_the_api_servers_syntax() {
        for good in ["a", "a-1", "a.b", "1"] {
            assert_eq!(object_name(good), Ok(()), "{good}");
        }
        for bad in ["", "A", "a_b", "-a", "a-", "a..b", &"a".repeat(254)] {
            assert!(object_name(bad).is_err(), "{bad}");
        }
        for good in ["app", "example.com/App_1.x", "node-restriction.kubernetes.io/pool"] {
            assert_eq!(qualified(good), Ok(()), "{good}");
        }
        for bad in ["", "/a", "a/", "A.com/a", "a/b/c", "a b", &"a".repeat(64)] {
            assert!(qualified(bad).is_err(), "{bad}");
        }
        assert_eq!(label_value(""), Ok(()));
        assert!(label_value("-a").is_err());
    }
}
