//! Paths of the control plane's binaries.

use std::{
    env,
    fmt::Write as _,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::error::Error;

/// The lab's Go module: its versions are the cache's key, as in lab/build.sh.
const MODULE: [&[u8]; 2] = [include_bytes!("../../../lab/go.mod"), include_bytes!("../../../lab/go.sum")];
/// Bytes of the digest in the folder's name; two hexadecimal digits each.
const KEY_BYTES: usize = 8;

/// The binaries of one control plane.
#[derive(Clone, Debug)]
pub struct Assets {
    overrides: Option<PathBuf>,
    cache: PathBuf,
}

impl Assets {
    /// Finds the folders by the environment: `KUBEBUILDER_ASSETS` first, for each binary that it has, then the cache
    /// that `make lab` fills.
    pub fn from_env() -> Result<Self, Error> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let parent = set("CROFT_LAB_CACHE")
            .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("croft/lab")))
            .or_else(|| set("HOME").map(|home| home.join(".cache/croft/lab")))
            .ok_or(Error::NoCache)?;
        Ok(Self { overrides: set("KUBEBUILDER_ASSETS"), cache: parent.join(key(&MODULE)) })
    }

    /// The folder that `make lab` fills.
    #[must_use]
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// The path of one binary.
    pub fn binary(&self, name: &'static str) -> Result<PathBuf, Error> {
        self.overrides
            .iter()
            .chain([&self.cache])
            .map(|folder| folder.join(name))
            .find(|path| path.is_file())
            .ok_or_else(|| Error::Missing { name, folder: self.cache.clone() })
    }
}

/// The name of the cache folder of what is built from a Go module with these files.
pub(crate) fn key(module: &[&[u8]]) -> String {
    let mut digest = Sha256::new();
    for part in module {
        digest.update(part);
    }
    digest.finalize().iter().take(KEY_BYTES).fold(String::new(), |mut key, byte| {
        // Writing to a String can't fail.
        let _ = write!(key, "{byte:02x}");
        key
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_key_equals_that_of_the_build_scripts() {
        let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab");
        let output = std::process::Command::new("sh")
            .args(["-c", "cat go.mod go.sum | { sha256sum 2>/dev/null || shasum -a 256; } | cut -c1-16"])
            .current_dir(lab)
            .output()
            .unwrap();
        assert_eq!(key(&MODULE), String::from_utf8(output.stdout).unwrap().trim());
    }

    #[test]
    fn missing_binary_error_says_how_to_get_it() {
        let assets = Assets { overrides: None, cache: "/nowhere".into() };
        let message = assets.binary("etcd").unwrap_err().to_string();
        assert!(message.contains("make lab") && message.contains("etcd"), "{message}");
    }
}
