//! Generated files: written, or compared with what is there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

/// One generated file.
pub(crate) struct File {
    /// Where it belongs, relative to the root of the checkout.
    pub(crate) path: PathBuf,
    /// Its content.
    pub(crate) contents: String,
}

impl File {
    /// A file of this name in a folder.
    pub(crate) fn new(folder: impl AsRef<Path>, name: &str, contents: String) -> Self {
        Self { path: folder.as_ref().join(name), contents }
    }
}

/// Writes every file that differs, and says which.
pub(crate) fn write(root: &Path, files: &[File]) -> anyhow::Result<()> {
    for file in files {
        let path = root.join(&file.path);
        if fs::read_to_string(&path).is_ok_and(|old| old == file.contents) {
            continue;
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("failed to make {}", folder.display()))?;
        }
        fs::write(&path, &file.contents).with_context(|| format!("failed to write {}", path.display()))?;
        println!("wrote {}", file.path.display());
    }
    Ok(())
}

/// Fails if a file differs from what is on disk, naming each.
pub(crate) fn check(root: &Path, files: &[File]) -> anyhow::Result<()> {
    let stale: Vec<String> = files
        .iter()
        .filter(|file| !fs::read_to_string(root.join(&file.path)).is_ok_and(|old| old == file.contents))
        .map(|file| file.path.display().to_string())
        .collect();
    if stale.is_empty() {
        println!("{} generated files are up to date", files.len());
        return Ok(());
    }
    bail!("generated files are stale: {}; run `make generate` and commit what it writes", stale.join(", "))
}
