//! JSON values as block YAML, the way `kubectl get -o yaml` writes them.

use serde_json::Value;

/// The lines of `value`.
pub(crate) fn block(value: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    write(value, 0, &mut lines);
    lines
}

/// Documents as one YAML text.
pub(crate) fn documents(values: &[Value]) -> String {
    let texts: Vec<String> = values.iter().map(|v| block(v).join("\n")).collect();
    let mut text = texts.join("\n---\n");
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

fn write(value: &Value, indent: usize, lines: &mut Vec<String>) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, field) in fields {
                let key = text(key);
                match field {
                    Value::Object(inner) if !inner.is_empty() => {
                        lines.push(format!("{pad}{key}:"));
                        write(field, indent + 2, lines);
                    }
                    // A list stands below its key without a further step, as kubectl writes it.
                    Value::Array(inner) if !inner.is_empty() => {
                        lines.push(format!("{pad}{key}:"));
                        write(field, indent, lines);
                    }
                    Value::String(long) if is_block(long) => {
                        lines.push(format!("{pad}{key}: {}", chomping(long)));
                        lines.extend(block_lines(long, indent + 2));
                    }
                    _ => lines.push(format!("{pad}{key}: {}", scalar(field))),
                }
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let mut inner = Vec::new();
                write(item, indent + 2, &mut inner);
                // The item's first line carries the dash.
                if let Some(first) = inner.first_mut() {
                    let rest = first.get(indent + 2..).unwrap_or_default().to_owned();
                    *first = format!("{pad}- {rest}");
                }
                lines.append(&mut inner);
            }
        }
        _ => lines.push(format!("{pad}{}", scalar(value))),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(v) => v.to_string(),
        Value::Number(v) => v.to_string(),
        Value::String(v) => text(v),
        Value::Array(_) => "[]".to_owned(),
        Value::Object(_) => "{}".to_owned(),
    }
}

/// A string, quoted where YAML 1.1 would read something else, or where it can't stand bare.
fn text(text: &str) -> String {
    let bare = !text.is_empty()
        && text.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '.' | '$' | '('))
        && text.chars().all(|c| c.is_ascii_graphic() || c == ' ')
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !crate::input::is_special_scalar(text);
    if bare { text.to_owned() } else { Value::String(text.to_owned()).to_string() }
}

/// Text of several lines that a literal block can hold.
fn is_block(text: &str) -> bool {
    text.contains('\n')
        && !text.starts_with([' ', '\n'])
        && text.chars().all(|c| c == '\n' || c == '\t' || !c.is_control())
        && !text.lines().any(|line| line.ends_with([' ', '\t']))
        && !text.ends_with("\n\n")
}

fn chomping(text: &str) -> &'static str {
    if text.ends_with('\n') { "|" } else { "|-" }
}

fn block_lines(text: &str, indent: usize) -> impl Iterator<Item = String> {
    text.lines().map(
        move |line| if line.is_empty() { String::new() } else { format!("{}{line}", " ".repeat(indent)) },
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read_back_as_it_was() {
        let value = json!({
            "a": {"b": [1, {"c": "d", "e": [[], {}]}, [2, 3]]},
            "texts": ["yes", "1", "0x1", "", " x", "a: b", "a #b", "-", "null", "é", "it's", "x:", "1e3", "~", "@x", "*a", "!t", "%d", "{}", "[a]", "a\tb"],
            "script": "#!/bin/sh\necho 'a: b'\n\n\texit 0\n", "end": "x\ny", "odd": "x \ny\n",
            "n": null, "t": true, "f": 1.5, "y": "z"
        });
        let text = documents(std::slice::from_ref(&value));
        assert_eq!(crate::input::parse_for_tests(&text), [value], "{text}");
    }
}
