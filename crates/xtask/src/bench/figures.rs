//! Figures in the output of a benchmark.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};

/// Figures by name.
pub(crate) type Figures = BTreeMap<String, f64>;

/// How a program prints its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// The last line has `key=value` words.
    Line,
    /// divan's tree of functions with a column `median`.
    Table,
}

/// What a change of a figure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Lower,
    Higher,
    /// Nothing by itself: it describes the computer or the input.
    Shown,
    /// Above zero the run found a defect.
    Zero,
}

/// The direction of a figure: times, costs, memory and gaps are better when lower.
pub(crate) fn direction(figure: &str) -> Direction {
    match figure {
        "violations" | "errors" | "worse_than_ffd" | "extra_instances" => Direction::Zero,
        "a5000_pods_s" | "a20000_pods_s" | "b_pods_s" | "b_zone1" | "floor_ratio" => Direction::Higher,
        // The slope is about zero, where a share means nothing; the floor is the computer's.
        "exponent" | "floor_rps" | "floor_cpu_us" => Direction::Shown,
        // The reference that Croft's month is compared with, and differences that are smaller than their noise.
        _ if figure.starts_with("usual_") || figure.starts_with("alone_") => Direction::Shown,
        _ => Direction::Lower,
    }
}

/// Reads the figures of an output.
///
/// # Errors
/// An output without any, which is that of a program that failed.
pub(crate) fn read(format: Format, output: &str) -> anyhow::Result<Figures> {
    let figures = match format {
        Format::Line => line(output)?,
        Format::Table => table(output),
    };
    if figures.is_empty() {
        bail!("the output has no figure");
    }
    Ok(figures)
}

fn line(output: &str) -> anyhow::Result<Figures> {
    let last = output.lines().rfind(|line| !line.trim().is_empty()).context("the output is empty")?;
    let mut figures = Figures::new();
    for word in last.split_whitespace() {
        let Some((name, value)) = word.split_once('=') else { continue };
        let number = value.parse::<f64>().ok().filter(|number| number.is_finite());
        let number = number.with_context(|| format!("{name}={value} is no number"))?;
        figures.insert(name.to_owned(), number);
    }
    Ok(figures)
}

/// Medians of divan's table in nanoseconds, by `function` or `function/argument` with `_ns` behind.
fn table(output: &str) -> Figures {
    let mut figures = Figures::new();
    let mut path: Vec<&str> = Vec::new();
    for row in output.lines() {
        // A row begins with one branch of the tree for each level.
        let Some(at) = row.find("├─ ").or_else(|| row.find("╰─ ")) else { continue };
        let (indent, rest) = row.split_at(at);
        let columns: Vec<&str> = rest.split('│').collect();
        let Some(first) = columns.first() else { continue };
        // Name and the column `fastest` share the first part, more than one space apart.
        let name = first.trim_start_matches(['├', '╰', '─', ' ']);
        let name = name.split("  ").next().unwrap_or_default().trim();
        path.truncate(indent.chars().count() / 3);
        path.push(name);
        if let Some(median) = columns.get(2).and_then(|column| nanoseconds(column)) {
            figures.insert(format!("{}_ns", path.join("/")), median);
        }
    }
    figures
}

/// `12.3 µs` in nanoseconds.
fn nanoseconds(text: &str) -> Option<f64> {
    let (number, unit) = text.trim().split_once(' ')?;
    let each = match unit {
        "ps" => 1e-3,
        "ns" => 1.0,
        "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    // As many digits as divan prints.
    Some((number.parse::<f64>().ok()? * each * 1e3).round() / 1e3)
}

/// The median of each figure over runs; of an even number, the mean of the middle two. A figure that a run lacks counts in
/// the others.
pub(crate) fn medians(runs: &[Figures]) -> Figures {
    let mut values: BTreeMap<&String, Vec<f64>> = BTreeMap::new();
    for (name, value) in runs.iter().flatten() {
        values.entry(name).or_default().push(*value);
    }
    values.into_iter().map(|(name, values)| (name.clone(), median(values))).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    let at = |n: usize| values.get(n).copied().unwrap_or(f64::NAN);
    f64::midpoint(at(low), at(high))
}

/// Defects that the figures count: `violations=2`.
pub(crate) fn defects(figures: &Figures) -> Vec<String> {
    let counted = figures.iter().filter(|(name, count)| direction(name) == Direction::Zero && **count > 0.0);
    counted.map(|(name, count)| format!("{name}={count}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_the_words_of_the_last_line() {
        let output = "a table=1\nbench-scheduler: a5000_pods_s=116301 d_ms=15.3 exponent=-0.091\n\n";
        let figures = read(Format::Line, output).unwrap();
        let expected = [("a5000_pods_s", 116_301.0), ("d_ms", 15.3), ("exponent", -0.091)];
        assert_eq!(figures, expected.map(|(name, value)| (name.to_owned(), value)).into());
        assert_eq!(read(Format::Line, "ended early").unwrap_err().to_string(), "the output has no figure");
        assert_eq!(read(Format::Line, "d_ms=many").unwrap_err().to_string(), "d_ms=many is no number");
        assert_eq!(read(Format::Line, "d_ms=NaN").unwrap_err().to_string(), "d_ms=NaN is no number");
    }

    #[test]
    fn figures_of_a_table_are_medians_by_function_and_argument_in_nanoseconds() {
        let output = "\
Timer precision: 20 ns
inner                fastest       │ slowest       │ median        │ mean          │ samples │ iters
├─ quantity                        │               │               │               │         │
│  ├─ 250m           12.1 ns       │ 19.9 ns       │ 12.5 ns       │ 12.6 ns       │ 100     │ 6400
│  ╰─ 64Gi           0.9 µs        │ 2.1 µs        │ 1.5 µs        │ 1.6 µs        │ 100     │ 6400
╰─ upsert_1000_pods  1.1 ms        │ 2.1 ms        │ 1.25 ms       │ 1.6 ms        │ 100     │ 100
";
        let figures = read(Format::Table, output).unwrap();
        let expected =
            [("quantity/250m_ns", 12.5), ("quantity/64Gi_ns", 1_500.0), ("upsert_1000_pods_ns", 1_250_000.0)];
        assert_eq!(figures, expected.map(|(name, value)| (name.to_owned(), value)).into());
    }

    #[test]
    fn median_of_runs_is_the_middle_one_or_between_the_middle_two() {
        let runs =
            |values: &[f64]| values.iter().map(|v| [("x".to_owned(), *v)].into()).collect::<Vec<Figures>>();
        assert_eq!(medians(&runs(&[3.0, 9.0, 4.0])).get("x"), Some(&4.0));
        assert_eq!(medians(&runs(&[3.0, 9.0])).get("x"), Some(&6.0));
        assert_eq!(medians(&[]), Figures::new());
    }

    #[test]
    fn only_counts_of_defects_above_zero_are_defects() {
        let figures = [("violations", 0.0), ("errors", 2.0), ("extra_instances", 1.0), ("d_ms", 3.0)];
        let found = defects(&figures.map(|(name, value)| (name.to_owned(), value)).into());
        assert_eq!(found, ["errors=2", "extra_instances=1"]);
    }
}
