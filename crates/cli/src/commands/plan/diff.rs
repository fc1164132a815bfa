//! The difference of two objects as lines of YAML: each differing field with its path.

use croft_manifest::{WriteError, to_yaml};
use serde_json::{Map, Value};

/// One line of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Same(String),
    Added(String),
    Removed(String),
}

/// Depth to which only differing fields are shown: that of `spec.template.spec.nodeSelector`.
const DEPTH: usize = 4;

/// The lines that differ between `before` and `after`, with context; none if they are equal.
///
/// # Errors
/// Values that YAML can't hold.
pub(crate) fn lines(before: &Value, after: &Value) -> Result<Vec<Line>, WriteError> {
    if before == after {
        return Ok(Vec::new());
    }
    let block = |value: Value| -> Result<Vec<String>, WriteError> {
        let text = to_yaml(&[value])?;
        Ok(text.lines().map(|line| line.strip_suffix(UNCHANGED_SUFFIX).unwrap_or(line).to_owned()).collect())
    };
    let old = block(changed(before, after, DEPTH))?;
    let new = block(changed(after, before, DEPTH))?;
    Ok(shorten(align(&old, &new)))
}

/// The value of a field whose own fields are all equal, and how YAML writes it behind the field's name.
const UNCHANGED: &str = "\u{0}";
const UNCHANGED_SUFFIX: &str = " \"\\0\"";

/// Lines of context around a change, besides the fields that contain it.
const CONTEXT: usize = 2;

/// Replaces equal lines that are far from any change by `...`.
fn shorten(lines: Vec<Line>) -> Vec<Line> {
    let text = |line: &Line| match line {
        Line::Same(text) | Line::Added(text) | Line::Removed(text) => text.clone(),
    };
    let indent = |line: &Line| text(line).chars().take_while(|c| matches!(c, ' ' | '-')).count();
    let mut kept = vec![false; lines.len()];
    for (i, line) in lines.iter().enumerate() {
        if matches!(line, Line::Same(_)) {
            continue;
        }
        let near = i.saturating_sub(CONTEXT)..=i.saturating_add(CONTEXT);
        kept.iter_mut().enumerate().filter(|(at, _)| near.contains(at)).for_each(|(_, keep)| *keep = true);
        let mut depth = indent(line);
        for (above, keep) in lines.iter().zip(kept.iter_mut()).take(i).rev() {
            if indent(above) < depth || text(above).ends_with(':') && indent(above) <= depth {
                depth = indent(above);
                *keep = true;
            }
        }
    }
    let mut shown = Vec::new();
    let mut gap = false;
    for (line, keep) in lines.into_iter().zip(kept) {
        if keep {
            gap = false;
            shown.push(line);
        } else if !gap {
            gap = true;
            let indent = indent(&line);
            shown.push(Line::Same(format!("{}...", " ".repeat(indent))));
        }
    }
    shown
}

/// The parts of `value` that differ from `other`.
fn changed(value: &Value, other: &Value, depth: usize) -> Value {
    let (Value::Object(fields), Value::Object(others)) = (value, other) else { return value.clone() };
    // Maps of strings, such as labels and selectors, are shown whole, since their entries are read together.
    if depth == 0 || fields.values().chain(others.values()).all(Value::is_string) {
        return value.clone();
    }
    let kept: Map<String, Value> = fields
        .iter()
        .filter_map(|(key, field)| match others.get(key) {
            Some(same) if same == field => None,
            Some(differs) => Some((key.clone(), changed(field, differs, depth - 1))),
            None => Some((key.clone(), field.clone())),
        })
        .collect();
    if kept.is_empty() { Value::String(UNCHANGED.to_owned()) } else { Value::Object(kept) }
}

/// Equal, removed and added lines, by the longest common subsequence.
fn align(old: &[String], new: &[String]) -> Vec<Line> {
    let width = new.len() + 1;
    let mut best = vec![0_usize; (old.len() + 1) * width];
    let at = |i: usize, j: usize| i * width + j;
    let get = |best: &[usize], i: usize, j: usize| best.get(at(i, j)).copied().unwrap_or(0);
    for (i, a) in old.iter().enumerate().rev() {
        for (j, b) in new.iter().enumerate().rev() {
            let value = if a == b {
                get(&best, i + 1, j + 1) + 1
            } else {
                get(&best, i + 1, j).max(get(&best, i, j + 1))
            };
            if let Some(cell) = best.get_mut(at(i, j)) {
                *cell = value;
            }
        }
    }
    let mut lines = Vec::new();
    let (mut i, mut j) = (0, 0);
    loop {
        match (old.get(i), new.get(j)) {
            (None, None) => return lines,
            (Some(a), Some(b)) if a == b => {
                lines.push(Line::Same(a.clone()));
                i += 1;
                j += 1;
            }
            (Some(a), b) if b.is_none() || get(&best, i + 1, j) >= get(&best, i, j + 1) => {
                lines.push(Line::Removed(a.clone()));
                i += 1;
            }
            (_, Some(b)) => {
                lines.push(Line::Added(b.clone()));
                j += 1;
            }
            (Some(a), None) => {
                lines.push(Line::Removed(a.clone()));
                i += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_differing_fields_are_shown_under_their_path() {
        let before =
            json!({"spec": {"a": 1, "nodeSelector": {"disk": "ssd"}, "containers": [{"name": "x"}]}});
        let after = json!({"spec": {"a": 1, "nodeSelector": {"disk": "ssd", "node-pool": "a"}, "containers": [{"name": "x"}],
            "tolerations": [{"key": "node-pool", "value": "a"}]}});
        let same = |t: &str| Line::Same(t.to_owned());
        let added = |t: &str| Line::Added(t.to_owned());
        assert_eq!(
            lines(&before, &after).unwrap(),
            [
                same("spec:"),
                same("  nodeSelector:"),
                same("    disk: ssd"),
                added("    node-pool: a"),
                added("  tolerations:"),
                added("  - key: node-pool"),
                added("    value: a"),
            ]
        );
        assert_eq!(lines(&after, &after).unwrap(), []);
        let bare = json!({"spec": {"a": 1}});
        let with = json!({"spec": {"a": 1, "b": {}}});
        assert_eq!(lines(&bare, &with).unwrap(), [same("spec:"), added("  b: {}")]);
    }

    #[test]
    fn lines_far_from_a_change_are_elided() {
        let taint =
            |key: &str| json!({"effect": "NoExecute", "key": key, "operator": "Exists", "seconds": 300});
        let before = json!({"spec": {"tolerations": [taint("a"), taint("b")]}});
        let after = json!({"spec": {"tolerations": [taint("a"), taint("b"), taint("c")]}});
        let shown: Vec<String> = lines(&before, &after)
            .unwrap()
            .into_iter()
            .map(|line| match line {
                Line::Same(text) => format!("  {text}"),
                Line::Added(text) => format!("+ {text}"),
                Line::Removed(text) => format!("- {text}"),
            })
            .collect();
        assert_eq!(
            shown.join("\n"),
            "  spec:\n    tolerations:\n      ...\n      operator: Exists\n      seconds: 300\n+   - effect: NoExecute\n+     key: c\n+     \
             operator: Exists\n+     seconds: 300"
        );
    }
}
