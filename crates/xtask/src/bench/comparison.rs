//! Comparison of two sets of figures.

use std::{collections::BTreeSet, fmt};

use crate::bench::figures::{Direction, Figures, direction};

/// The share by which a figure may be worse.
const TOLERANCE: f64 = 0.10;

/// One figure before and now.
#[derive(Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) figure: String,
    pub(crate) before: Option<f64>,
    pub(crate) now: Option<f64>,
    pub(crate) is_regression: bool,
}

/// Every figure of either set, by name.
pub(crate) fn compare(before: &Figures, now: &Figures) -> Vec<Row> {
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let row = |name: &String| {
        let (old, new) = (before.get(name).copied(), now.get(name).copied());
        let is_regression = old.zip(new).is_some_and(|(old, new)| is_worse(direction(name), old, new));
        Row { figure: name.clone(), before: old, now: new, is_regression }
    };
    names.into_iter().map(row).collect()
}

/// True if `new` is worse than `old` by more than the tolerance. A share of zero is zero.
fn is_worse(direction: Direction, old: f64, new: f64) -> bool {
    let allowed = old.abs() * TOLERANCE;
    match direction {
        Direction::Lower => new > old + allowed,
        Direction::Higher => new < old - allowed,
        Direction::Zero => new > old,
        Direction::Shown => false,
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        write!(f, "  {:<34} {:>15} {:>15}", self.figure, number(self.before), number(self.now))?;
        if let Some((old, new)) = self.before.zip(self.now).filter(|(old, _)| *old != 0.0) {
            write!(f, "{:>+9.1} %", (new - old) / old.abs() * 100.0)?;
        }
        if self.is_regression { f.write_str("  worse") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regressions(figure: &str, before: f64, now: f64) -> bool {
        let figures = |value: f64| Figures::from([(figure.to_owned(), value)]);
        compare(&figures(before), &figures(now)).iter().any(|row| row.is_regression)
    }

    #[test]
    fn a_figure_is_worse_beyond_ten_per_cent_in_its_direction() {
        assert!(!regressions("d_ms", 100.0, 110.0));
        assert!(regressions("d_ms", 100.0, 110.1));
        assert!(!regressions("d_ms", 100.0, 10.0));
        assert!(!regressions("a5000_pods_s", 100.0, 90.0));
        assert!(regressions("a5000_pods_s", 100.0, 89.9));
        assert!(!regressions("a5000_pods_s", 100.0, 1_000.0));
    }

    #[test]
    fn zero_may_not_grow_and_a_shown_figure_may() {
        assert!(regressions("extra_instances", 0.0, 1.0));
        assert!(!regressions("extra_instances", 0.0, 0.0));
        assert!(regressions("violations", 0.0, 1.0));
        assert!(!regressions("exponent", 0.01, 0.5));
        // A latency that came out below zero is noise about zero.
        assert!(!regressions("added_ms", -0.10, -0.09));
        assert!(regressions("added_ms", -0.10, -0.08));
    }

    #[test]
    fn a_figure_of_one_side_only_is_shown_and_no_regression() {
        let (before, now) =
            (Figures::from([("old".to_owned(), 1.0)]), Figures::from([("new".to_owned(), 2.0)]));
        let rows = compare(&before, &now);
        let shown: Vec<String> =
            rows.iter().map(|row| row.to_string().split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(shown, ["new - 2", "old 1 -"]);
        assert!(rows.iter().all(|row| !row.is_regression));
    }
}
