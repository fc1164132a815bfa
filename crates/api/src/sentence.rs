//! Counts and lists of names in sentences that users read.

/// `1 pod`, `2 pods`.
#[must_use]
pub fn counted(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// The first `most` of `names`, and the number of the others.
#[must_use]
pub fn shortened<S: AsRef<str>>(names: &[S], most: usize) -> String {
    let shown: Vec<&str> = names.iter().take(most).map(AsRef::as_ref).collect();
    match names.len().checked_sub(most).filter(|rest| *rest > 0) {
        Some(rest) => format!("{} and {rest} more", shown.join(", ")),
        None => shown.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_shown_are_counted() {
        assert_eq!(shortened(&["a", "b", "c"], 3), "a, b, c");
        assert_eq!(shortened(&["a", "b", "c"], 1), "a and 2 more");
        assert_eq!((counted(1, "pod"), counted(0, "pod")), ("1 pod".to_owned(), "0 pods".to_owned()));
    }
}
