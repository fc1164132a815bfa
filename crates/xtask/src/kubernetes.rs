//! The reference page of Kubernetes releases: which are supported, and which features each has.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use anyhow::Context as _;
use croft_runtime::kubernetes::{FEATURES, NEWEST, OLDEST, Release};

use crate::{
    generated::File,
    references::{one_line, page},
};

/// The module of the lab's own control plane, and the folder of those of the other releases.
const LAB: &str = "tools/lab/go.mod";
const COMPAT: &str = "tools/lab/compat";

pub(crate) fn file(root: &Path) -> anyhow::Result<File> {
    let tested = tested(root)?;
    let supported: Vec<Release> = (OLDEST.minor()..=NEWEST.minor()).map(Release::new).collect();
    anyhow::ensure!(
        tested.keys().eq(&supported),
        "tools/lab has modules of the Kubernetes releases {:?}, and Croft supports {OLDEST} to {NEWEST}",
        tested.values()
    );
    let mut out = format!(
        "# Kubernetes versions\n\nCroft supports Kubernetes {OLDEST} to {NEWEST}. `croft version` prints the range, and \
         `croft check --preflight` compares it with a cluster's. `make test-compat` builds the control plane of each release and runs \
         the attacks on admission, two tenants and consolidation against it: {}.\n\n",
        tested.values().cloned().collect::<Vec<_>>().join(", "),
    );
    writeln!(
        out,
        "- On a release before {OLDEST}, webhook and controller end at their start with an error that says so. The chart refuses \
         to be installed (`kubeVersion`). No webhook configuration is filled, so no pod is refused.\n\
         - On a release after {NEWEST} both start and log a warning; `croft check` warns.\n\
         - On a release that lacks a feature below, Croft does without. The condition `KubernetesFeatures` is False on each \
         TenantPool and on the CroftConfig, and its message says what doesn't work. The controller reads the release once a minute, so \
         the condition goes when the cluster is upgraded.\n\
         - The release decides, not the cluster's feature gates: a feature that is turned off isn't noticed. With \
         `--emulated-version` the emulated release counts.\n\
         - A release that can't be read (a cluster without the ClusterRoleBinding `system:public-info-viewer`) isn't checked.\n"
    )?;
    let heads: Vec<String> = supported.iter().map(|release| format!(" {release} |")).collect();
    writeln!(out, "| feature | used for |{} without it |", heads.concat())?;
    writeln!(out, "|---|---|{}---|", "---|".repeat(supported.len()))?;
    for feature in FEATURES {
        let has = |release: &Release| if *release >= feature.since { " yes |" } else { " no |" };
        let columns: String = supported.iter().map(has).collect();
        let without = feature.without.unwrap_or("the cluster lacks it, and Croft needs nothing");
        writeln!(
            out,
            "| {} | {} |{columns} {} |",
            feature.name,
            one_line(feature.used_for),
            one_line(without)
        )?;
    }
    writeln!(
        out,
        "\nPolicy mode needs Kubernetes 1.36, the first release that serves `MutatingAdmissionPolicy` in \
         `admissionregistration.k8s.io/v1`. The default mode, Webhook, works on every release; before 1.36 it lacks the policy `croft-nodes`, and agents wait for the webhook. So the table and the condition \
         `KubernetesFeatures` leave that API out. Where `spec.admission.mutation: Policy` is set on an older release, the webhook goes \
         on, and the condition `MutationInForce` of the CroftConfig is False with the reason `MutatingPoliciesMissing`: \
         [Use Policy mode](../tasks/policy-mode.md).\n\nCroft doesn't need `NominatedNodeNameForExpectation` (1.35): that gate is about \
         nominations that kube-scheduler itself writes, and kube-scheduler honours those of others without it."
    )?;
    Ok(page("kubernetes.md", &out))
}

/// The version of Kubernetes in each module under tools/lab, by its release.
fn tested(root: &Path) -> anyhow::Result<BTreeMap<Release, String>> {
    let mut modules = vec![root.join(LAB)];
    let folder = root.join(COMPAT);
    let entries = fs::read_dir(&folder).with_context(|| format!("failed to read {}", folder.display()))?;
    for entry in entries {
        let module = entry?.path().join("go.mod");
        modules.extend(module.is_file().then_some(module));
    }
    let mut tested = BTreeMap::new();
    for path in modules {
        let text = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        let version = pinned(&text).with_context(|| format!("{} requires no Kubernetes", path.display()))?;
        let minor = version.split('.').nth(1).with_context(|| format!("{version} isn't a version"))?;
        let release = Release::parse("1", minor).with_context(|| format!("{version} isn't a version"))?;
        tested.insert(release, version.to_owned());
    }
    Ok(tested)
}

/// The version that a module requires of k8s.io/kubernetes, such as `1.36.3`.
fn pinned(module: &str) -> Option<&str> {
    let version = module.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes v"))?;
    version.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_requirement() {
        let module = "tool (\n\tk8s.io/kubernetes/cmd/kubectl\n)\nrequire (\n\tk8s.io/kubernetes v1.33.13 // indirect\n)\n";
        assert_eq!(pinned(module), Some("1.33.13"));
        assert_eq!(pinned("require (\n)\n"), None);
    }
}
