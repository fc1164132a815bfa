//! The flags of each process as values of the chart: `settings.<flag in camel case>`, which becomes the flag's
//! environment variable.

use std::{any::TypeId, collections::BTreeMap, time::Duration};

use anyhow::{Context as _, ensure};
use clap::{Arg, Command, CommandFactory as _};
use serde_json::{Value, json};

/// A process, and where its settings are.
pub(crate) struct Process {
    /// The key of its values.
    pub(crate) values: &'static str,
    command: fn() -> Command,
    /// Flags that another value, or the pod, decides: flag and what decides it.
    owned: &'static [(&'static str, &'static str)],
}

/// The processes.
pub(crate) const PROCESSES: [Process; 3] = [
    Process {
        values: "controller",
        command: croft_controller::config::args::Args::command,
        owned: &[
            ("admin-listen", "controller.ports.admin"),
            ("health-listen", "listenAddress and controller.ports.health"),
            ("identity", "the pod's name"),
            ("namespace", "the release's namespace"),
        ],
    },
    Process {
        values: "page",
        command: croft_page::args::Args::command,
        owned: &[
            ("admin-listen", "page.ports.admin"),
            ("cluster-name", "controller.settings.clusterName"),
            ("forward-listen", "page.ports.forward"),
            ("health-listen", "listenAddress and page.ports.health"),
            ("listen", "listenAddress and page.ports.page"),
            ("namespace", "the release's namespace"),
            ("tls-cert", "page.certificate.mode"),
            ("tls-key", "page.certificate.mode"),
        ],
    },
    Process {
        values: "webhook",
        command: croft_webhook::args::Args::command,
        owned: &[
            ("admin-listen", "webhook.ports.admin"),
            ("health-listen", "listenAddress and webhook.ports.health"),
            ("listen", "listenAddress and webhook.ports.reviews"),
            ("namespace", "the release's namespace"),
            ("replica", "the pod's name"),
            ("tls-ca", "certificates.registerAuthority"),
            ("tls-cert", "certificates.mode"),
            ("tls-key", "certificates.mode"),
            ("tls-mode", "certificates.mode"),
            ("tls-secret", "certificates.secretName"),
        ],
    },
];

/// A flag that is a setting.
pub(crate) struct Setting {
    /// The environment variable.
    pub(crate) variable: String,
    /// The JSON schema of the value.
    pub(crate) schema: Value,
}

impl Process {
    /// The flags that other values decide, with those.
    pub(crate) const fn owned(&self) -> &'static [(&'static str, &'static str)] {
        self.owned
    }

    /// The settings by name.
    ///
    /// # Errors
    /// If a flag has no environment variable, or an owned one doesn't exist.
    pub(crate) fn settings(&self) -> anyhow::Result<BTreeMap<String, Setting>> {
        let mut command = (self.command)();
        command.build();
        let name = command.get_name().to_owned();
        let mut owned: Vec<&str> = self.owned.iter().map(|(flag, _)| *flag).collect();
        let mut settings = BTreeMap::new();
        for arg in command.get_arguments().filter(|arg| !["help", "version"].contains(&arg.get_id().as_str()))
        {
            let flag =
                arg.get_long().with_context(|| format!("{name}: {} has no long form", arg.get_id()))?;
            let variable = arg.get_env().and_then(|variable| variable.to_str()).with_context(|| {
                format!("{name} --{flag} has no environment variable: give it one by clap's `env`")
            })?;
            if let Some(at) = owned.iter().position(|owned| *owned == flag) {
                owned.swap_remove(at);
                continue;
            }
            let setting = Setting { variable: variable.to_owned(), schema: schema(arg, flag, variable) };
            settings.insert(camel_case(flag), setting);
        }
        ensure!(owned.is_empty(), "{name} has no flag {}", owned.join(", "));
        Ok(settings)
    }
}

fn camel_case(flag: &str) -> String {
    let mut words = flag.split('-');
    let mut name = words.next().unwrap_or_default().to_owned();
    for word in words {
        let (first, rest) = word.split_at(1);
        name.push_str(&first.to_uppercase());
        name.push_str(rest);
    }
    name
}

fn schema(arg: &Arg, flag: &str, variable: &str) -> Value {
    let parser = arg.get_value_parser().type_id();
    let is = |types: &[TypeId]| types.iter().any(|known| parser == *known);
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let defaults: Vec<&str> = arg.get_default_values().iter().filter_map(|text| text.to_str()).collect();
    let single = defaults.first().copied();
    let numeric = single.and_then(|text| text.parse::<u64>().ok());
    let choices: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|_| arg.get_action().takes_values())
        .map(|choice| choice.get_name().to_owned())
        .collect();
    let counts = [TypeId::of::<u16>(), TypeId::of::<u32>(), TypeId::of::<u64>(), TypeId::of::<usize>()];
    let mut schema = if !arg.get_action().takes_values() {
        json!({"type": "boolean", "default": false})
    } else if matches!(arg.get_action(), clap::ArgAction::Append) {
        json!({"type": "array", "items": {"type": "string", "minLength": 1, "pattern": "^[^,]+$"}})
    } else if !choices.is_empty() {
        json!({"type": "string", "enum": choices})
    } else if is(&counts) || (is(&[TypeId::of::<Duration>()]) && numeric.is_some()) {
        json!({"type": "integer", "minimum": 0})
    } else if is(&[TypeId::of::<Duration>()]) {
        json!({"type": "string", "pattern": "^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"})
    } else {
        json!({"type": "string", "minLength": 1})
    };
    if let Some(map) = schema.as_object_mut() {
        map.insert("description".to_owned(), json!(format!("{help}. Flag --{flag}, variable {variable}.")));
        let default = match (map.get("type").and_then(Value::as_str), numeric) {
            (Some("array"), _) if !defaults.is_empty() => Some(json!(defaults)),
            (Some("integer"), Some(number)) => Some(json!(number)),
            (Some("boolean"), _) => Some(json!(false)),
            _ => single.map(|text| json!(text)),
        };
        map.extend(default.map(|default| ("default".to_owned(), default)));
    }
    schema
}
