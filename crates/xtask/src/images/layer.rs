//! One layer of an image: a tar whose bytes depend on its files and one time alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use anyhow::Context as _;
use flate2::{Compression, GzBuilder};
use sha2::{Digest as _, Sha256};
use tar::{EntryType, Header};

/// Files by their path, without the leading slash.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    files: BTreeMap<String, (u32, Vec<u8>)>,
}

/// A layer as an image stores it.
#[derive(Debug)]
pub(crate) struct Packed {
    /// The compressed tar.
    pub(crate) blob: Vec<u8>,
    /// SHA-256 of the tar, which the configuration names.
    pub(crate) diff: String,
    /// The bytes of its files.
    pub(crate) unpacked: u64,
}

impl Layer {
    /// Adds a file, owned by root.
    pub(crate) fn file(&mut self, path: &str, mode: u32, contents: impl Into<Vec<u8>>) {
        self.files.insert(path.to_owned(), (mode, contents.into()));
    }

    /// Writes the files below `folder`, with their modes.
    pub(crate) fn unpack(&self, folder: &Path) -> anyhow::Result<()> {
        for (path, (mode, contents)) in &self.files {
            let file = folder.join(path);
            if let Some(parent) = file.parent() {
                fs::create_dir_all(parent).with_context(|| format!("failed to make {}", parent.display()))?;
            }
            fs::write(&file, contents).with_context(|| format!("failed to write {}", file.display()))?;
            fs::set_permissions(&file, fs::Permissions::from_mode(*mode))?;
        }
        Ok(())
    }

    /// The layer with every file and folder dated `epoch`.
    pub(crate) fn pack(&self, epoch: u64) -> anyhow::Result<Packed> {
        let mut tar = tar::Builder::new(Vec::new());
        let mut folders = BTreeSet::new();
        for path in self.files.keys() {
            let parents = Path::new(path).ancestors().skip(1).filter_map(Path::to_str);
            folders.extend(parents.filter(|parent| !parent.is_empty()).map(str::to_owned));
        }
        // A folder sorts before what is in it.
        for folder in &folders {
            append(&mut tar, &format!("{folder}/"), EntryType::Directory, 0o755, &[], epoch)?;
        }
        for (path, (mode, contents)) in &self.files {
            append(&mut tar, path, EntryType::Regular, *mode, contents, epoch)?;
        }
        let tar = tar.into_inner()?;
        // No name and no time in the header, and one fixed operating system: 255 is unknown.
        let mut packer =
            GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::best());
        packer.write_all(&tar)?;
        Ok(Packed {
            blob: packer.finish()?,
            diff: sha256(&tar),
            unpacked: self.files.values().map(|(_, contents)| contents.len() as u64).sum(),
        })
    }
}

/// Adds an entry owned by root, with nothing in it that depends on the computer.
pub(crate) fn append(
    tar: &mut tar::Builder<Vec<u8>>,
    path: &str,
    kind: EntryType,
    mode: u32,
    contents: &[u8],
    epoch: u64,
) -> anyhow::Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(epoch);
    header.set_size(contents.len() as u64);
    Ok(tar.append_data(&mut header, path, contents)?)
}

/// SHA-256 in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_is_the_same_whatever_the_order_and_has_the_given_time() {
        let files = [("usr/bin/b", 0o755, "b"), ("etc/a", 0o644, "aa")];
        let pack = |order: &[usize]| {
            let mut layer = Layer::default();
            for (path, mode, contents) in order.iter().filter_map(|at| files.get(*at)) {
                layer.file(path, *mode, *contents);
            }
            layer.pack(1_767_225_600).unwrap()
        };
        let (one, other) = (pack(&[0, 1]), pack(&[1, 0]));
        assert_eq!((&one.blob, &one.diff, one.unpacked), (&other.blob, &other.diff, 3));

        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(one.blob.as_slice()));
        let entries: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                assert_eq!((header.mtime().unwrap(), header.uid().unwrap()), (1_767_225_600, 0));
                (entry.path().unwrap().display().to_string(), header.mode().unwrap())
            })
            .collect();
        let expected =
            [("etc/", 0o755), ("usr/", 0o755), ("usr/bin/", 0o755), ("etc/a", 0o644), ("usr/bin/b", 0o755)];
        assert_eq!(entries, expected.map(|(path, mode)| (path.to_owned(), mode)));
    }
}
