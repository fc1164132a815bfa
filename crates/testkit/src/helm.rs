//! Helm, by which the manifests are rendered and the chart is tested.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    assets::{cache, key, set},
    error::Error,
};

/// Helm's Go module: its versions are the cache's key, as in tools/helm/build.sh.
const MODULE: [&[u8]; 2] =
    [include_bytes!("../../../tools/helm/go.mod"), include_bytes!("../../../tools/helm/go.sum")];

/// The binary that `make helm` builds.
#[derive(Clone, Debug)]
pub struct Helm {
    binary: PathBuf,
}

impl Helm {
    /// Finds the binary: `CROFT_HELM`, else in the cache.
    ///
    /// # Errors
    /// If it isn't there.
    pub fn find() -> Result<Self, Error> {
        if let Some(binary) = set("CROFT_HELM") {
            return Self::at(binary);
        }
        let cache = set("CROFT_CACHE").map_or_else(cache, Ok)?;
        Self::at(cache.join("helm").join(key(&MODULE)).join("helm"))
    }

    fn at(binary: PathBuf) -> Result<Self, Error> {
        if binary.is_file() { Ok(Self { binary }) } else { Err(Error::NoHelm { path: binary }) }
    }

    /// The binary's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.binary
    }

    /// Helm with these arguments, for the caller to run. It reads no configuration of the user, and writes its cache into
    /// `scratch`.
    #[must_use]
    pub fn command(&self, scratch: &Path) -> Command {
        let mut command = Command::new(&self.binary);
        command.env_remove("KUBECONFIG").env_remove("HELM_NAMESPACE");
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(variable, scratch.join(variable.to_lowercase()));
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_binary_error_says_how_to_get_it() {
        let message = Helm::at("/nowhere/helm".into()).unwrap_err().to_string();
        assert!(message.contains("make helm") && message.contains("/nowhere/helm"), "{message}");
    }
}
