//! Writes of one field.

/// Sets an absent field.
pub(super) fn fill<T>(field: &mut Option<T>, value: T) {
    field.get_or_insert(value);
}

/// Sets an absent or empty field: Go doesn't distinguish them.
pub(super) fn fill_text(field: &mut Option<String>, text: &str) {
    if field.as_deref().unwrap_or_default().is_empty() {
        *field = Some(text.to_owned());
    }
}
