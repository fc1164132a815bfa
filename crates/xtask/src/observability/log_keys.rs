//! The keys of log lines: the fields of tracing's macros in the sources, each documented once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use anyhow::{Context as _, ensure};

use crate::{
    generated::File,
    references::{one_line, page},
    tokens::{Kind, Token, tokens},
};

const DATA: &str = include_str!("../../data/log-keys.yaml");
/// Sources whose lines a process writes, with the process.
const SOURCES: [(&str, &str); 9] = [
    ("webhook/src", "webhook"),
    ("controller/src", "controller"),
    ("crates/cloud/src", "controller"),
    ("crates/cloud-aws/src", "controller"),
    ("crates/disruption/src", "controller"),
    ("crates/scheduler/src", "controller"),
    ("crates/api/src", "both"),
    ("crates/policy/src", "both"),
    ("crates/runtime/src", "both"),
];
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];
const ABOUT: &str = "# Log keys

Both processes write one JSON object a line to standard error (`--log-format text` for people). Each has `timestamp`, `level`,
`target` (the module) and `message`; the other keys are these.

`--log` and `CROFT_LOG` set the filter at the start: a level (`error`, `warn`, `info`, `debug`, `trace`), or `target=level` pairs
such as `info,croft_controller::disruption=debug`. It can be replaced while the process runs, at the address of `--admin-listen`,
which must be loopback: the right to forward ports to Croft's pods decides who may. The chart sets it to 127.0.0.1 and the port
`ports.admin`, and to nothing with `hostNetwork`. A restart brings the first filter back. This needs a cluster with Croft's Deployments:

*Not run by a test:*

```bash
kubectl -n croft-system port-forward deployment/croft-controller 8082 &
curl -X PUT --data 'info,croft_controller::disruption=debug' http://127.0.0.1:8082/log
```

Each replica has its own filter: forward to a pod to choose one.

| key | written by | meaning |
|---|---|---|
";

/// The reference page.
///
/// # Errors
/// If a key has no documentation, or no line has a documented key.
pub(super) fn file(root: &Path) -> anyhow::Result<File> {
    let documented: BTreeMap<String, String> =
        serde_saphyr::from_str(DATA).context("failed to read crates/xtask/data/log-keys.yaml")?;
    let mut used: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (folder, process) in SOURCES {
        for key in keys_below(&root.join(folder))? {
            used.entry(key).or_default().insert(process);
        }
    }
    let missing: Vec<&String> = used.keys().filter(|key| !documented.contains_key(*key)).collect();
    ensure!(missing.is_empty(), "crates/xtask/data/log-keys.yaml lacks the keys {missing:?}");
    let unused: Vec<&String> = documented.keys().filter(|key| !used.contains_key(*key)).collect();
    ensure!(unused.is_empty(), "no log line has the keys {unused:?} of crates/xtask/data/log-keys.yaml");
    let mut text = ABOUT.to_owned();
    for (key, description) in &documented {
        let by = used.get(key).cloned().unwrap_or_default();
        let both = by.contains("both") || by.len() > 1;
        let by = if both { "both" } else { by.first().copied().unwrap_or_default() };
        writeln!(text, "| `{key}` | {by} | {} |", one_line(description))?;
    }
    Ok(page("log-keys.md", &text))
}

fn keys_below(folder: &Path) -> anyhow::Result<BTreeSet<String>> {
    let mut keys = BTreeSet::new();
    let read = || format!("failed to read {}", folder.display());
    for entry in fs::read_dir(folder).with_context(read)? {
        let path = entry.with_context(read)?.path();
        if path.is_dir() {
            keys.extend(keys_below(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("_test"))
        {
            keys.extend(keys_of(&fs::read_to_string(&path).with_context(read)?));
        }
    }
    Ok(keys)
}

/// The keys of the log lines in a source, without its tests.
fn keys_of(source: &str) -> BTreeSet<String> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let all: Vec<Token<'_>> = tokens(source).filter(|token| token.kind != Kind::Comment).collect();
    let text = |at: usize| all.get(at).map(|token| token.text).unwrap_or_default();
    let mut keys = BTreeSet::new();
    for at in 0..all.len() {
        let is_call = text(at) == "tracing"
            && (text(at + 1), text(at + 2)) == (":", ":")
            && LEVELS.contains(&text(at + 3))
            && (text(at + 4), text(at + 5)) == ("!", "(");
        if is_call {
            keys.extend(fields(all.get(at + 6..).unwrap_or_default()));
        }
    }
    keys
}

/// The fields of a call, whose arguments begin with `tokens`: those before the message.
fn fields(tokens: &[Token<'_>]) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let (mut depth, mut is_first) = (0_u32, true);
    for token in tokens {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 0 => break,
            ")" | "]" | "}" => depth -= 1,
            "," if depth == 0 => {
                is_first = true;
                continue;
            }
            // How the value is shown.
            "%" | "?" if is_first => continue,
            _ => {}
        }
        if is_first && token.kind == Kind::Text {
            break;
        }
        if is_first && token.kind == Kind::Identifier {
            keys.insert(token.text.to_owned());
        }
        is_first = false;
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_the_arguments_before_the_message() {
        let source = r#"
            tracing::warn!(%error, kind, count = list.iter().map(|x| f(x, y)).count(), "failed: {}", other);
            tracing::info!("a, b", c);
            // tracing::info!(comment, "x");
            tracing::debug!(?what, from = %address.ip(), "x");
            fn tracing_off() {}
            #[cfg(test)]
            mod tests { tracing::info!(of_a_test, "x"); }
        "#;
        let expected = ["count", "error", "from", "kind", "what"].map(str::to_owned);
        assert_eq!(keys_of(source), BTreeSet::from(expected));
    }
}
