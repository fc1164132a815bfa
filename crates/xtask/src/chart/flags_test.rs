//! Every flag of each process is a value of the chart, and what the chart renders, the processes read.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use clap::{Command, CommandFactory as _, FromArgMatches as _};
use croft_testkit::Helm;
use serde_json::{Map, Value, json};

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(super::CHART)
}

/// The container of a process as the chart renders it.
fn container(process: &str, arguments: &[&str]) -> Value {
    let scratch = tempfile::tempdir().unwrap();
    let output = Helm::find()
        .unwrap()
        .command(scratch.path())
        .args(["template", "some-release"])
        .arg(chart())
        .arg(format!("--show-only=templates/{process}.yaml"))
        .arg("--set=page.enabled=true")
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let of_deployment = |document: &&str| document.contains("\nkind: Deployment\n");
    let deployment: Value = serde_saphyr::from_str(text.split("---\n").find(of_deployment).unwrap()).unwrap();
    deployment["spec"]["template"]["spec"]["containers"][0].clone()
}

/// The processes, with the kind of their arguments.
fn commands() -> [(&'static str, Command); 3] {
    [
        ("controller", croft_controller::config::args::Args::command()),
        ("page", croft_page::args::Args::command()),
        ("webhook", croft_webhook::args::Args::command()),
    ]
}

fn camel_case(flag: &str) -> String {
    let mut upper = false;
    flag.chars()
        .filter_map(|c| {
            let found = if upper { c.to_ascii_uppercase() } else { c };
            upper = c == '-';
            (c != '-').then_some(found)
        })
        .collect()
}

fn schema_of_settings(process: &str) -> Map<String, Value> {
    let text = std::fs::read_to_string(chart().join("values.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    let pointer = format!("/properties/{process}/properties/settings/properties");
    schema.pointer(&pointer).and_then(Value::as_object).cloned().unwrap()
}

/// A value that the schema and the flag accept.
fn sample(name: &str, schema: &Value) -> Value {
    if let Some(first) = schema.pointer("/enum/0") {
        return first.clone();
    }
    match schema["type"].as_str().unwrap() {
        "boolean" => json!(true),
        "integer" => json!(16_777_216 / if name == "threads" { 1_048_576 } else { 1 }),
        "array" => json!(["one", "two"]),
        _ if name == "url" => json!("https://127.0.0.1:8443"),
        _ if schema.get("pattern").is_some() => json!("2m30s"),
        _ => json!("some"),
    }
}

/// Parses the arguments and variables of a container as its process does.
fn parsed(command: Command, container: &Value) -> Result<clap::ArgMatches, String> {
    let words = |pointer: &str| -> Vec<String> {
        let list = container.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        list.map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let mut arguments = vec![command.get_name().to_owned()];
    arguments.extend(words("/args"));
    for variable in container["env"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().unwrap();
        let Some(value) = variable["value"].as_str() else { continue };
        let of = |arg: &&clap::Arg| arg.get_env().and_then(|env| env.to_str()) == Some(name);
        let Some(arg) = command.get_arguments().find(of) else {
            return Err(format!("{} reads no {name}", command.get_name()));
        };
        let flag = format!("--{}", arg.get_long().unwrap());
        arguments.push(if arg.get_action().takes_values() { format!("{flag}={value}") } else { flag });
    }
    command.try_get_matches_from(arguments).map_err(|error| error.to_string())
}

#[test]
fn every_flag_has_a_variable_and_a_value_or_is_decided_by_the_chart() {
    let mut arguments = Vec::new();
    for mode in ["self", "files"] {
        for (process, _) in commands() {
            let modes = format!("certificates.mode={mode},page.certificate.mode={mode}");
            let container = container(process, &["--set", &modes]);
            let words = container["args"].as_array().cloned().unwrap();
            arguments.extend(words.iter().map(|word| {
                let flag = word.as_str().unwrap().trim_start_matches('-');
                (process, flag.split('=').next().unwrap().to_owned())
            }));
            let variables = container["env"].as_array().cloned().unwrap();
            arguments.extend(variables.iter().map(|v| (process, v["name"].as_str().unwrap().to_owned())));
        }
    }
    for (process, command) in commands() {
        let settings = schema_of_settings(process);
        let mut names = BTreeSet::new();
        for arg in command.get_arguments() {
            let flag = arg.get_long().unwrap();
            let variable = arg.get_env().and_then(|env| env.to_str());
            let variable = variable.unwrap_or_else(|| panic!("{process} --{flag} has no variable"));
            let decided =
                [flag, variable].iter().any(|word| arguments.contains(&(process, (*word).to_owned())));
            let name = camel_case(flag);
            assert_ne!(decided, settings.contains_key(&name), "{process} --{flag}: run make generate");
            names.insert(name);
        }
        let unknown: Vec<_> = settings.keys().filter(|name| !names.contains(*name)).collect();
        assert!(unknown.is_empty(), "{process} has no flag for the settings {unknown:?}");
    }
}

#[test]
fn every_setting_reaches_its_flag() {
    for (process, command) in commands() {
        let schema = schema_of_settings(process);
        let values: Map<String, Value> =
            schema.iter().map(|(name, schema)| (name.clone(), sample(name, schema))).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let all = json!({process: {"settings": values}});
        std::io::Write::write_all(&mut file, all.to_string().as_bytes()).unwrap();
        let container = container(process, &["-f", file.path().to_str().unwrap()]);
        let matches = parsed(command.clone(), &container).unwrap();
        for arg in
            command.get_arguments().filter(|arg| schema.contains_key(&camel_case(arg.get_long().unwrap())))
        {
            let source = matches.value_source(arg.get_id().as_str());
            assert_eq!(source, Some(clap::parser::ValueSource::CommandLine), "{process} {}", arg.get_id());
        }
        if process == "webhook" {
            let args = croft_webhook::args::Args::from_arg_matches(&matches).unwrap();
            assert_eq!(args.tls.client_name, ["one", "two"]);
            assert_eq!(args.bounds.max_inflight_bytes, 16_777_216);
        }
    }
}
