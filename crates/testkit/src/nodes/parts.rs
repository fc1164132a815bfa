//! The programs and images of a cluster of real nodes, and which are missing.

use std::path::PathBuf;

use crate::{
    assets::{cache, installed, key, set},
    croft::CroftOptions,
    error::Error,
    helm::Helm,
};

/// The sources of tools/node/build.sh, which are the cache's key, as there.
const MODULES: [&[u8]; 5] = [
    include_bytes!("../../../../tools/node/kubernetes/go.mod"),
    include_bytes!("../../../../tools/node/kubernetes/go.sum"),
    include_bytes!("../../../../tools/node/containerd/go.mod"),
    include_bytes!("../../../../tools/node/containerd/go.sum"),
    include_bytes!("../../../../tools/node/pause/main.go"),
];
/// Programs of the system that nodes need, with their Debian packages.
const NEEDED: [(&str, &str); 7] = [
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("ip", "iproute2"),
    ("mount", "mount"),
    ("sysctl", "procps"),
    ("runc", "runc"),
    ("iptables", "iptables"),
];

/// Folders of the programs and images.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The folder that `tools/node/build.sh` fills.
    pub programs: PathBuf,
    /// The folder that `make node-images` fills.
    pub images: PathBuf,
    /// The folder of ec2-sim.
    pub binaries: PathBuf,
}

impl Parts {
    /// The node's programs in the cache, ec2-sim beside this program, and the images beside its folder.
    ///
    /// # Errors
    /// If there is no cache folder.
    pub fn find() -> Result<Self, Error> {
        let parent = set("CROFT_NODE_CACHE").map_or_else(|| Ok(cache()?.join("node")), Ok)?;
        let binaries = CroftOptions::find()?.binaries;
        let images = binaries.parent().unwrap_or(&binaries).join("node-images");
        Ok(Self { programs: parent.join(key(&MODULES)), images, binaries })
    }

    /// Prerequisites that are missing, each with its remedy.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if !rustix::process::geteuid().is_root() {
            missing.push("not root: run it by `sudo -E env \"PATH=$PATH\"`".to_owned());
        }
        for (program, package) in NEEDED {
            if installed(program).is_none() {
                missing.push(format!("{program} isn't installed (package {package})"));
            }
        }
        for (file, folder, remedy) in [
            ("kubelet", &self.programs, "run tools/node/build.sh"),
            ("croft-webhook.tar", &self.images, "run `make node-images`"),
            ("croft-controller.tar", &self.images, "run `make node-images`"),
            ("croft-page.tar", &self.images, "run `make node-images`"),
            ("pause.tar", &self.images, "run `make node-images`"),
            ("ec2-sim", &self.binaries, "run `cargo build --workspace --bins`"),
        ] {
            if !folder.join(file).is_file() {
                missing.push(format!("{file} isn't in {}: {remedy}", folder.display()));
            }
        }
        if let Err(error) = Helm::find() {
            missing.push(error.to_string());
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_key_equals_that_of_the_build_script() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/node");
        let script = std::fs::read_to_string(folder.join("build.sh")).unwrap();
        let files = script.lines().find_map(|line| line.split_once("$(cat ")?.1.split_once(" | digest)"));
        let command =
            format!("cat {} | {{ sha256sum 2>/dev/null || shasum -a 256; }} | cut -c1-16", files.unwrap().0);
        let output =
            std::process::Command::new("sh").args(["-c", &command]).current_dir(folder).output().unwrap();
        assert_eq!(key(&MODULES), String::from_utf8(output.stdout).unwrap().trim());
    }
}
