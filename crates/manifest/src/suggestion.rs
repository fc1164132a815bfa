//! "Did you mean": the known name closest to a mistyped one.

/// The candidate with the least edit distance to `word`, case ignored, unless it differs by more than a quarter.
///
/// ```
/// assert_eq!(croft_manifest::closest("TenantPol", &["Tenant", "TenantPool"]), Some("TenantPool"));
/// assert_eq!(croft_manifest::closest("Secret", &["Tenant", "TenantPool"]), None);
/// ```
#[must_use]
pub fn closest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let distance = |a: &str, b: &str| -> usize {
        let b: Vec<char> = b.to_lowercase().chars().collect();
        let mut row: Vec<usize> = (0..=b.len()).collect();
        for (i, x) in a.to_lowercase().chars().enumerate() {
            let mut diagonal = i;
            let mut left = i + 1;
            let mut next = vec![left];
            for (y, above) in b.iter().zip(row.iter().skip(1)) {
                let cost = diagonal + usize::from(x != *y);
                left = cost.min(above + 1).min(left + 1);
                diagonal = *above;
                next.push(left);
            }
            row = next;
        }
        row.last().copied().unwrap_or(usize::MAX)
    };
    candidates
        .iter()
        .map(|candidate| (distance(word, candidate), *candidate))
        .min_by_key(|(d, _)| *d)
        .filter(|(d, candidate)| *d <= 1 + candidate.len() / 4)
        .map(|(_, candidate)| candidate)
}
