//! Paths to texts: files, folders, standard input.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::error::InputError;

/// One file's text.
pub(crate) struct Source {
    /// The name that messages use.
    pub(crate) file: Arc<str>,
    pub(crate) text: String,
}

/// A path that a caller named, and its texts.
pub(crate) struct Given {
    path: String,
    pub(crate) sources: Vec<Source>,
}

impl Given {
    /// Checks that the path holds an object: what renders manifests may have failed, and left nothing.
    ///
    /// # Errors
    /// [`InputError::Empty`] if `holds_object` is false.
    pub(crate) fn check(&self, holds_object: bool) -> Result<(), InputError> {
        if holds_object { Ok(()) } else { Err(InputError::Empty { path: self.path.clone() }) }
    }
}

/// Reads each path: a file, a folder (its YAML and JSON files, recursively, sorted by name, hidden ones left out), or `-`. A folder that
/// links lead to more than once, as one that links to itself, is read once.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Vec<Given>, InputError> {
    let mut given = Vec::new();
    for path in paths {
        let mut sources = Vec::new();
        if path.as_os_str() == "-" {
            let mut bytes = Vec::new();
            io::stdin().read_to_end(&mut bytes).map_err(|source| failed(path, source))?;
            sources.push(source(path, bytes)?);
        } else if path.is_dir() {
            folder(path, &mut BTreeSet::new(), &mut sources)?;
            if sources.is_empty() {
                return Err(InputError::EmptyFolder { path: path.display().to_string() });
            }
        } else {
            sources.push(file(path)?);
        }
        given.push(Given { path: path.display().to_string(), sources });
    }
    Ok(given)
}

/// The error about paths that hold no object but empty lists.
pub(crate) fn empty_lists(paths: &[PathBuf]) -> InputError {
    let name = |path: &PathBuf| match path.to_str() {
        Some("-") => "standard input".to_owned(),
        _ => path.display().to_string(),
    };
    InputError::EmptyLists { paths: paths.iter().map(name).collect::<Vec<_>>().join(", ") }
}

fn folder(path: &Path, read: &mut BTreeSet<PathBuf>, sources: &mut Vec<Source>) -> Result<(), InputError> {
    if !read.insert(path.canonicalize().map_err(|source| failed(path, source))?) {
        return Ok(());
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(|source| failed(path, source))? {
        entries.push(entry.map_err(|source| failed(path, source))?.path());
    }
    entries.sort();
    for entry in entries {
        let hidden = entry.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with('.'));
        if hidden {
            continue;
        }
        if entry.is_dir() {
            folder(&entry, read, sources)?;
        } else if is_manifest(&entry) {
            sources.push(file(&entry)?);
        }
    }
    Ok(())
}

/// `kustomization.yaml` is no API object.
fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str);
    let stem = path.file_stem().and_then(OsStr::to_str);
    matches!(extension, Some("yaml" | "yml" | "json"))
        && !matches!(stem, Some("kustomization" | "Kustomization"))
}

fn file(path: &Path) -> Result<Source, InputError> {
    source(path, fs::read(path).map_err(|source| failed(path, source))?)
}

fn source(path: &Path, bytes: Vec<u8>) -> Result<Source, InputError> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes().iter().take(at).filter(|b| **b == b'\n').count() + 1;
        failed(path, io::Error::new(io::ErrorKind::InvalidData, format!("line {line} is not UTF-8 text")))
    })?;
    // Some editors write a byte order mark, which YAML readers skip.
    let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
    Ok(Source { file: path.display().to_string().into(), text })
}

fn failed(path: &Path, source: io::Error) -> InputError {
    InputError::File { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_that_links_to_itself_is_read_once() {
        let root = std::env::temp_dir().join(format!("croft-manifest-links-{}", std::process::id()));
        fs::create_dir_all(root.join("inner")).unwrap();
        fs::write(root.join("inner/a.yaml"), "").unwrap();
        for link in ["again", "inner/up"] {
            std::os::unix::fs::symlink(&root, root.join(link)).unwrap();
        }
        std::os::unix::fs::symlink(root.join("inner"), root.join("other")).unwrap();
        let found = read(std::slice::from_ref(&root)).map(|sources| sources.len());
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found.unwrap(), 1);
    }
}
