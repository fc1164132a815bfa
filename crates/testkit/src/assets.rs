//! Paths of the control plane's binaries.

use std::{
    env,
    fmt::Write as _,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::error::Error;

/// The lab's Go module: its versions are the cache's key, as in tools/lab/build.sh.
const MODULE: [&[u8]; 2] =
    [include_bytes!("../../../tools/lab/go.mod"), include_bytes!("../../../tools/lab/go.sum")];
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
        let parent = set("CROFT_LAB_CACHE").map_or_else(|| Ok(cache()?.join("lab")), Ok)?;
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

/// The path in an environment variable, unless it is empty.
pub(crate) fn set(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// A program that is installed: the first of that name in the folders of `PATH`.
pub(crate) fn installed(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The cache of everything that make targets build or install, unless a variable of its own says where that is.
pub(crate) fn cache() -> Result<PathBuf, Error> {
    let parent = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    parent.map(|parent| parent.join("croft")).ok_or(Error::NoCache)
}

/// A program that a make target puts into the cache: `variable` names it, else it is at `path` there.
///
/// # Errors
/// If there is no cache folder.
pub fn cached(variable: &str, path: &str) -> Result<PathBuf, Error> {
    set(variable).map_or_else(|| Ok(cache()?.join(path)), Ok)
}

/// The name of the cache folder of what is built or installed from these files, such as a Go module.
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
        let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/lab");
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
