//! The commands of the documented targets against the programs that they run: what a target passes, its program must take.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use clap::Parser;
use regex_lite::Regex;
use serde_json::Value;

#[allow(dead_code, reason = "what the arguments do is the benchmark's matter")]
#[path = "../../../tests/benches/lab/args.rs"]
mod lab;
#[allow(dead_code, reason = "what the arguments do is the benchmark's matter")]
#[path = "../../../controller/benches/month/args.rs"]
mod month;
#[allow(dead_code, reason = "what the arguments do is the benchmark's matter")]
#[path = "../../../controller/benches/scale/args.rs"]
mod scale;
#[allow(dead_code, reason = "what the arguments do is the benchmark's matter")]
#[path = "../../../webhook/benches/webhook/args.rs"]
mod webhook;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn makefiles() -> BTreeMap<String, String> {
    let rules = fs::read_dir(root().join("tools/make")).unwrap().map(|entry| entry.unwrap().path());
    let all =
        rules.filter(|path| path.extension().is_some_and(|of| of == "mk")).chain([root().join("Makefile")]);
    all.map(|path| {
        (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read_to_string(path).unwrap())
    })
    .collect()
}

/// Arguments of `make`: every target of `make help`, once as it is and once with each variable that its line sets.
fn of_help() -> BTreeSet<Vec<String>> {
    let target = Regex::new(r"(?m)^([a-z][a-z-]*):.*## (.*)$").unwrap();
    let variable = Regex::new(r#"[A-Z_]+=("[^"]*"|[^\s,;)]+)"#).unwrap();
    let mut found = BTreeSet::new();
    for text in makefiles().values() {
        for line in target.captures_iter(text) {
            found.insert(vec![line[1].to_owned()]);
            for variable in variable.find_iter(&line[2]) {
                found.insert(vec![line[1].to_owned(), variable.as_str().replace('"', "")]);
            }
        }
    }
    found
}

/// Arguments of `make` in code of the pages.
fn of_pages() -> BTreeSet<Vec<String>> {
    let mut pages = ["README.md", "CONTRIBUTING.md", "tests/README.md", "tools/lab/compat/README.md"]
        .map(|page| root().join(page))
        .to_vec();
    for folder in ["docs", "docs/tasks", "docs/concepts", "designs"] {
        let files = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(files.filter(|path| path.extension().is_some_and(|of| of == "md")));
    }
    let span = Regex::new(r"`(make [^`]+)`").unwrap();
    let line = Regex::new(r"(?m)^(?:    )?(make [a-z].*)$").unwrap();
    let word = Regex::new(r#"[A-Z_]+="[^"]*"|\S+"#).unwrap();
    let known = Regex::new(r"^(?:[a-z][a-z-]*|[A-Z_]+=.*)$").unwrap();
    let mut found = BTreeSet::new();
    for page in pages {
        let text = fs::read_to_string(page).unwrap();
        let code = span
            .captures_iter(&text)
            .chain(line.captures_iter(&text))
            .map(|one| one.get(1).unwrap().as_str());
        for command in code {
            let command = command.split([';', '#', '&', '|', '>']).next().unwrap().replace('<', "");
            let words: Vec<String> =
                word.find_iter(&command).skip(1).map(|word| word.as_str().replace('"', "")).collect();
            if !words.is_empty() && words.iter().all(|word| known.is_match(word)) {
                found.insert(words);
            }
        }
    }
    found
}

/// The commands that `make` would run, by their words.
fn commands(arguments: &[String]) -> Vec<Vec<String>> {
    let mut make = Command::new("make");
    // This test is run by make as well, with variables of its own.
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS");
    let output = make
        .args(["--dry-run", "--no-print-directory"])
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap();
    let (text, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "make {arguments:?}: {errors}");
    let text = text.replace("\\\n", " ");
    let separate = Regex::new(r"[;|(){}]|&&").unwrap();
    let words = |command: &str| -> Vec<String> {
        let ends = |word: &&str| !word.starts_with('>') && !word.starts_with("2>");
        command
            .split_whitespace()
            .take_while(ends)
            .map(|word| word.trim_matches(['\'', '"']).to_owned())
            .collect()
    };
    text.lines()
        .flat_map(|line| separate.split(line).map(words).collect::<Vec<_>>())
        .filter(|words| !words.is_empty())
        .collect()
}

/// Kind and name of every target of the workspace, packages included.
fn targets() -> BTreeSet<(String, String)> {
    let mut cargo = Command::new(env!("CARGO"));
    let output = cargo
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut found = BTreeSet::new();
    for package in metadata["packages"].as_array().unwrap() {
        found.insert(("package".to_owned(), text(&package["name"])));
        for target in package["targets"].as_array().unwrap() {
            for kind in target["kind"].as_array().unwrap() {
                found.insert((text(kind), text(&target["name"])));
            }
        }
    }
    found
}

fn read<T: Parser>(arguments: &[String]) -> Result<(), String> {
    T::try_parse_from(["program".to_owned()].iter().chain(arguments))
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Flags of a program that reads them by hand: each is a text of its source.
fn read_by_hand(folder: &str, arguments: &[String]) -> Result<(), String> {
    let source = fs::read_to_string(root().join(folder).join("main.rs")).unwrap();
    let unknown = arguments
        .iter()
        .find(|argument| argument.starts_with('-') && !source.contains(&format!("\"{argument}\"")));
    unknown.map_or(Ok(()), |flag| Err(format!("{folder} has no {flag}")))
}

/// Checks what a command names and passes.
fn check(words: &[String], targets: &BTreeSet<(String, String)>) -> Result<(), String> {
    let Some(program) = words.iter().position(|word| {
        !word.contains('=') && !matches!(word.as_str(), "!" | "then" | "else" | "do" | "if" | "exec")
    }) else {
        return Ok(());
    };
    let (name, arguments) = (words[program].rsplit('/').next().unwrap(), &words[program + 1..]);
    if name == "croft-xtask" {
        return read::<crate::Args>(arguments);
    }
    if words[program].contains("/debug/") || words[program].contains("/release/") {
        let is_known =
            ["bin", "example"].iter().any(|kind| targets.contains(&((*kind).to_owned(), name.to_owned())));
        return if is_known { Ok(()) } else { Err(format!("there is no program {name}")) };
    }
    if name != "cargo" || matches!(arguments.first().map(String::as_str), Some("install" | "fmt")) {
        return Ok(());
    }
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let (of_cargo, of_program) = arguments.split_at(end);
    for two in of_cargo.windows(2) {
        let kind = match two[0].as_str() {
            "-p" | "--package" => "package",
            "--bench" => "bench",
            "--bin" => "bin",
            "--test" => "test",
            "--example" => "example",
            _ => continue,
        };
        if !targets.contains(&(kind.to_owned(), two[1].clone())) {
            return Err(format!("there is no {kind} {}", two[1]));
        }
    }
    let bench = of_cargo.windows(2).find(|two| two[0] == "--bench").map(|two| two[1].as_str());
    let package = of_cargo.windows(2).find(|two| two[0] == "-p").map_or("", |two| two[1].as_str());
    let given: Vec<String> = of_program.iter().skip(1).cloned().collect();
    match (package, bench) {
        (_, Some("lab")) => read::<lab::Args>(&given),
        (_, Some("month")) => read::<month::Args>(&given),
        (_, Some("scale")) => read::<scale::Args>(&given),
        (_, Some("webhook")) => read::<webhook::Args>(&given),
        ("croft-scheduler", Some("scheduler")) => read_by_hand("crates/scheduler/benches/scheduler", &given),
        ("croft-scheduler", Some("disruption")) => {
            read_by_hand("crates/scheduler/benches/disruption", &given)
        }
        (_, Some(other)) => Err(format!("this test doesn't know the arguments of the bench {other}")),
        (_, None) => Ok(()),
    }
}

#[test]
fn programs_take_what_their_documented_targets_pass() {
    let (of_help, of_pages, targets) = (of_help(), of_pages(), targets());
    assert!(of_help.len() > 40 && of_pages.len() > 15, "{} {}", of_help.len(), of_pages.len());
    let mut benches = BTreeSet::new();
    for arguments in of_help.union(&of_pages) {
        for words in commands(arguments) {
            let checked = check(&words, &targets);
            assert!(
                checked.is_ok(),
                "make {}: {}: {}",
                arguments.join(" "),
                words.join(" "),
                checked.unwrap_err()
            );
            benches.extend(words.windows(2).filter(|two| two[0] == "--bench").map(|two| two[1].clone()));
        }
    }
    assert!(
        ["lab", "month", "scheduler", "webhook"].iter().all(|bench| benches.contains(*bench)),
        "{benches:?}"
    );
}

#[test]
fn a_part_of_another_target_is_no_part_of_a_benchmark() {
    let targets = targets();
    let words = |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    for (command, is_right) in [
        ("cargo bench --bench webhook -- capacity size", true),
        ("cargo bench --bench webhook -- policy scheduler", false),
        ("cargo bench --package croft-tests --bench lab -- steady5000", true),
        ("cargo bench --bench lab -- day", false),
        ("cargo bench -p croft-scheduler --bench scheduler -- --dumps x", false),
        ("cargo test --test no_such_test", false),
        ("target/debug/croft-xtask bench --no-such-flag", false),
        ("target/debug/no-such-program", false),
    ] {
        assert_eq!(check(&words(command), &targets).is_ok(), is_right, "{command}");
    }
}

/// All files are read into one namespace: a variable that one sets for every target changes what another means by it.
#[test]
fn no_file_sets_a_variable_for_the_targets_of_another() {
    let assignment = Regex::new(r"(?m)^(?:export )?([A-Z][A-Z0-9_]*) *(?:\?|:)?=").unwrap();
    let files = makefiles();
    for (file, text) in files.iter().filter(|(file, _)| *file != "Makefile") {
        for variable in assignment.captures_iter(text).map(|one| one[1].to_owned()) {
            let uses = |other: &String| {
                ["$(", "$(or $("].iter().any(|open| {
                    [")", ",", ":"].iter().any(|close| other.contains(&format!("{open}{variable}{close}")))
                })
            };
            let users: Vec<&String> = files
                .iter()
                .filter(|(other, text)| *other != file && uses(text))
                .map(|(other, _)| other)
                .collect();
            assert!(
                users.is_empty(),
                "tools/make/{file} sets {variable} for every target, and {users:?} use it: write it as `target: {variable} ?= ...`"
            );
        }
    }
}
