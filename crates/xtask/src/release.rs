//! Where a release is published, from `release/address.env`.

use anyhow::Context as _;

/// The file, which the scripts of the release and the workflow read as well.
const ADDRESS: &str = include_str!("../../../release/address.env");

/// The address of the sources, below which the releases are.
///
/// # Errors
/// If the file doesn't set it.
pub(crate) fn source() -> anyhow::Result<&'static str> {
    setting("SOURCE")
}

/// The registry of images and charts.
///
/// # Errors
/// If the file doesn't set it.
pub(crate) fn registry() -> anyhow::Result<&'static str> {
    setting("REGISTRY")
}

fn setting(name: &str) -> anyhow::Result<&'static str> {
    let value = ADDRESS.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value.filter(|value| !value.is_empty()).with_context(|| format!("release/address.env doesn't set {name}"))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    fn read(name: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        fs::read_to_string(root.join(name)).unwrap()
    }

    #[test]
    fn pages_name_the_addresses_of_a_release() {
        let (registry, source) = (registry().unwrap(), source().unwrap());
        assert_eq!(registry, registry.to_lowercase(), "a registry takes lower case alone");
        for page in ["README.md", "docs/quick-start.md", "docs/install.md"] {
            let text = read(page);
            assert!(text.contains(registry), "{page} begins with the published images and charts");
            for (prefix, address) in [("ghcr.io/", registry), ("https://github.com/croft", source)] {
                for (at, _) in text.match_indices(prefix) {
                    assert!(
                        text.split_at(at).1.starts_with(address),
                        "{page} names another address than {address}"
                    );
                }
            }
        }
    }

    /// `brew` takes `OWNER/tap/croft` for the formula `croft` of the repository `OWNER/homebrew-tap`.
    #[test]
    fn homebrew_is_told_the_tap_to_which_the_formula_is_published() {
        let (owner, name) = setting("TAP").unwrap().split_once("/homebrew-").unwrap();
        let install = format!("brew install {owner}/{name}/croft\n");
        assert!(read("docs/quick-start.md").contains(&install), "{install}");
        let workflow = read(".github/workflows/release.yaml");
        assert!(workflow.contains("(REGISTRY|SOURCE|TAP)=") && workflow.contains("github.com/$TAP"));
    }

    #[test]
    fn example_of_the_readme_is_the_file_that_it_runs() {
        let file = read("manifests/examples/two-tenants/platform.yaml");
        let readme = read("README.md");
        let blocks: Vec<&str> =
            readme.split("\n```yaml\n").skip(1).filter_map(|rest| rest.split("\n```").next()).collect();
        assert!(!blocks.is_empty());
        for block in blocks {
            assert!(file.contains(block), "platform.yaml of the example doesn't have:\n{block}");
        }
    }
}
