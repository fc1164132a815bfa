//! cyclonus, an evaluator of NetworkPolicies that knows nothing of Croft.

use std::{path::Path, process::Command};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

/// The line of a result that has the answer, without spaces.
const ANSWER: &str = "|ISALLOWED?|";

/// One end of a connection: an address, and the pod that has it, if a pod does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Its address.
    pub address: String,
    /// Namespace, and the value of the label `app`.
    pub pod: Option<(String, String)>,
}

/// A connection.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// The end that opens it.
    pub from: End,
    /// The end that is reached.
    pub to: End,
    /// `TCP` or `UDP`.
    pub protocol: &'static str,
    /// The port that is reached.
    pub port: u16,
}

impl Traffic {
    fn as_json(&self) -> Value {
        let end = |end: &End| {
            let internal = end.pod.as_ref().map(|(namespace, app)| {
                let labels = json!({"kubernetes.io/metadata.name": namespace});
                json!({"Namespace": namespace, "NamespaceLabels": labels, "PodLabels": {"app": app}})
            });
            json!({"IP": end.address, "Internal": internal})
        };
        json!({
            "Source": end(&self.from), "Destination": end(&self.to), "Protocol": self.protocol,
            "ResolvedPort": self.port, "ResolvedPortName": "",
        })
    }
}

/// Whether each connection is allowed by `policies`, a list as `kubectl get -o json` prints it. Files are written into
/// `folder`.
///
/// # Errors
/// If the program isn't built, fails, or answers something else.
pub fn allowed(folder: &Path, policies: &str, traffic: &[Traffic]) -> anyhow::Result<Vec<bool>> {
    let program = croft_testkit::cached("CROFT_CYCLONUS", "tools/cyclonus-0.5.6/cyclonus")?;
    ensure!(program.is_file(), "{} is not there; run `make cyclonus`", program.display());
    let (policy_file, traffic_file) = (folder.join("policies.json"), folder.join("traffic.json"));
    std::fs::write(&policy_file, policies)?;
    let lines: Vec<Value> = traffic.iter().map(Traffic::as_json).collect();
    std::fs::write(&traffic_file, Value::Array(lines).to_string())?;
    let output = Command::new(&program)
        .args(["analyze", "--mode", "query-traffic", "--policy-path"])
        .arg(&policy_file)
        .arg("--traffic-path")
        .arg(&traffic_file)
        .output()
        .with_context(|| format!("failed to run {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let rows = text.lines().map(|line| line.split_whitespace().collect::<String>());
    let answers: Vec<bool> =
        rows.filter_map(|row| Some(row.strip_prefix(ANSWER)?.starts_with("TRUE"))).collect();
    ensure!(answers.len() == traffic.len(), "{} answers to {} questions", answers.len(), traffic.len());
    Ok(answers)
}
