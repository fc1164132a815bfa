//! The difference of two objects as lines of YAML: the fields that differ, whole, under their path.

use serde_json::{Map, Value};

use crate::yaml;

/// One line of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Same(String),
    Added(String),
    Removed(String),
}

/// How deep a path is followed before the whole value is shown: `spec.template.spec.nodeSelector`.
const DEPTH: usize = 4;

/// The lines of what differs between `before` and `after`; none if they are equal.
pub(crate) fn lines(before: &Value, after: &Value) -> Vec<Line> {
    if before == after {
        return Vec::new();
    }
    let old = yaml::block(&changed(before, after, DEPTH));
    let new = yaml::block(&changed(after, before, DEPTH));
    align(&old, &new)
}

/// What of `value` isn't the same in `other`.
fn changed(value: &Value, other: &Value, depth: usize) -> Value {
    let (Value::Object(fields), Value::Object(others)) = (value, other) else { return value.clone() };
    // Maps of labels and selectors are shown whole: their order and neighbours matter to a reader.
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
    Value::Object(kept)
}

/// The longest common subsequence of both, with the rest between.
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
    fn only_what_differs_is_shown_under_its_path() {
        let before =
            json!({"spec": {"a": 1, "nodeSelector": {"disk": "ssd"}, "containers": [{"name": "x"}]}});
        let after = json!({"spec": {"a": 1, "nodeSelector": {"disk": "ssd", "node-pool": "a"}, "containers": [{"name": "x"}],
            "tolerations": [{"key": "node-pool", "value": "a"}]}});
        let same = |t: &str| Line::Same(t.to_owned());
        let added = |t: &str| Line::Added(t.to_owned());
        assert_eq!(
            lines(&before, &after),
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
        assert_eq!(lines(&after, &after), []);
    }
}
