//! Every folder of `tests/cases` is a case: `cmd` has the arguments, `stdout`, `stderr` and `code` the expected result;
//! other files are input. The command runs in the folder. In expected output `[..]` stands for any text within a line.
//!
//! `CROFT_CASES=overwrite` writes the actual results, to be reviewed before they are committed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of a test may panic like the test")]

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

#[test]
fn every_case_gives_its_expected_output() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut cases: Vec<PathBuf> =
        fs::read_dir(&root).unwrap().map(|e| e.unwrap().path()).filter(|p| p.join("cmd").is_file()).collect();
    cases.sort();
    assert!(cases.len() > 10, "the cases aren't where they should be: {}", root.display());
    let overwrite = std::env::var("CROFT_CASES").is_ok_and(|v| v == "overwrite");
    let mut wrong = String::new();
    for case in &cases {
        run(case, overwrite, &mut wrong);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

fn run(case: &Path, overwrite: bool, wrong: &mut String) {
    let name = case.file_name().unwrap().to_string_lossy().into_owned();
    let arguments = words(&fs::read_to_string(case.join("cmd")).unwrap());
    let mut child = Command::new(env!("CARGO_BIN_EXE_croft"))
        .args(&arguments)
        .current_dir(case)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdin = fs::read(case.join("stdin")).unwrap_or_default();
    // A command that doesn't read its input may end before it is written.
    let _ = child.stdin.take().unwrap().write_all(&stdin);
    let output = child.wait_with_output().unwrap();
    let code = output.status.code().map_or_else(|| "signal".to_owned(), |c| c.to_string());
    for (file, got) in [
        ("stdout", String::from_utf8(output.stdout).unwrap()),
        ("stderr", String::from_utf8(output.stderr).unwrap()),
        ("code", format!("{code}\n")),
    ] {
        let path = case.join(file);
        let expected = fs::read_to_string(&path).unwrap_or_default();
        let got = steady(&got);
        if matches(&expected, &got) {
            continue;
        }
        if !overwrite {
            write!(wrong, "case {name}, {file}:\n--- expected\n{expected}--- got\n{got}\n").unwrap();
        } else if got.is_empty() {
            let _ = fs::remove_file(&path);
        } else {
            fs::write(&path, got).unwrap();
        }
    }
}

/// Arguments are separated by blanks and line ends; `'...'` quotes one.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (i, part) in text.split('\'').enumerate() {
        if i % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// Replaces measured times, which differ between runs.
fn steady(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.starts_with("planned in ") {
            lines.push("planned in [..] ms".to_owned());
        } else if line.trim_start().starts_with("\"elapsedMs\"") {
            let indent = line.len() - line.trim_start().len();
            lines.push(format!("{}\"elapsedMs\": [..]", " ".repeat(indent)));
        } else {
            lines.push(line.to_owned());
        }
    }
    let mut text = lines.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

fn matches(expected: &str, got: &str) -> bool {
    let (expected, got): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), got.lines().collect());
    expected.len() == got.len() && expected.iter().zip(&got).all(|(e, g)| line_matches(e, g))
}

fn line_matches(expected: &str, got: &str) -> bool {
    let mut parts = expected.split("[..]");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = got.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        last = Some(part);
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    match last {
        Some(part) => part.is_empty() || rest.is_empty(),
        None => rest.is_empty(),
    }
}
