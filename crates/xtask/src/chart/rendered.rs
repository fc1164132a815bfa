//! The manifests for kustomize, rendered from the chart by Helm.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use croft_testkit::Helm;

use super::CHART;
use crate::generated::File;

const HEADER: &str = "# Rendered from manifests/chart/croft by `make generate`; edit there.\n";
const NAMESPACE: &str = "croft-system";
/// A kind that the chart renders only for API servers that serve it.
const SERVED: &str = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy";

/// Files of one rendering: the values, and each file with the template that it comes from.
struct Rendering {
    values: &'static [&'static str],
    files: &'static [(&'static str, &'static str)],
}

const RENDERINGS: [Rendering; 3] = [
    Rendering {
        // In an overlay, the controller is told by a ConfigMap which cluster is its own.
        values: &[
            "createNamespace=true",
            "controller.envFrom[0].configMapRef.name=croft-controller-settings",
        ],
        files: &[
            ("manifests/install/namespace.yaml", "namespace.yaml"),
            ("manifests/install/policies.yaml", "policies.yaml"),
            ("manifests/install/rbac-controller.yaml", "rbac-controller.yaml"),
            ("manifests/install/rbac-users.yaml", "rbac-users.yaml"),
            ("manifests/install/rbac-webhook.yaml", "rbac-webhook.yaml"),
            ("manifests/install/record.yaml", "record.yaml"),
            ("manifests/install/secret.yaml", "certificate.yaml"),
            ("manifests/install/webhooks.yaml", "webhooks.yaml"),
            ("manifests/deploy/controller.yaml", "controller.yaml"),
            ("manifests/deploy/webhook.yaml", "webhook.yaml"),
            ("manifests/overlays/policy-mode/mutation.yaml", "mutation.yaml"),
        ],
    },
    Rendering {
        values: &["certificates.mode=cert-manager"],
        files: &[("manifests/overlays/cert-manager/certificate.yaml", "certificate.yaml")],
    },
    Rendering {
        values: &["page.enabled=true"],
        files: &[
            ("manifests/overlays/page/page.yaml", "page.yaml"),
            ("manifests/overlays/page/rbac.yaml", "rbac-page.yaml"),
        ],
    },
];

/// The rendered files, from the chart in the checkout `root`.
///
/// # Errors
/// If Helm isn't built, the chart doesn't render, or a template has become empty.
pub(crate) fn files(root: &Path) -> anyhow::Result<Vec<File>> {
    let helm = Helm::find()?;
    let mut files = Vec::new();
    for Rendering { values, files: wanted } in RENDERINGS {
        let mut documents = template(&helm, root, values)?;
        for (path, source) in wanted {
            let contents =
                documents.remove(*source).with_context(|| format!("{source} renders no object"))?;
            files.push(File { path: PathBuf::from(path), contents: format!("{HEADER}{contents}") });
        }
        // What the first rendering has belongs to the manifests, or they would lack it.
        if let (true, Some(left)) = (values.contains(&"createNamespace=true"), documents.keys().next()) {
            bail!(
                "no file of the manifests takes what {left} renders: add it to crates/xtask/src/chart/rendered.rs"
            );
        }
    }
    Ok(files)
}

/// The rendered documents of each template.
fn template(helm: &Helm, root: &Path, values: &[&str]) -> anyhow::Result<BTreeMap<String, String>> {
    let scratch = tempfile::tempdir()?;
    let output = helm
        .command(scratch.path())
        .args(["template", "croft"])
        .arg(root.join(CHART))
        .args(["--namespace", NAMESPACE, "--api-versions", SERVED])
        .args(values.iter().map(|value| format!("--set={value}")))
        .output()
        .context("failed to run helm template")?;
    if !output.status.success() {
        bail!("helm template failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout)?;
    let mut documents: BTreeMap<String, String> = BTreeMap::new();
    for document in text.split("---\n").filter(|document| !document.trim().is_empty()) {
        let (source, body) = document
            .strip_prefix("# Source: croft/templates/")
            .and_then(|rest| rest.split_once('\n'))
            .with_context(|| format!("helm template wrote a document without its source:\n{document}"))?;
        let all = documents.entry(source.to_owned()).or_default();
        if !all.is_empty() {
            all.push_str("---\n");
        }
        for line in body.trim_end().lines().filter(|line| !line.trim().is_empty()) {
            all.push_str(line.trim_end());
            all.push('\n');
        }
    }
    Ok(documents)
}
