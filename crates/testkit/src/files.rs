//! Folders of files.

use std::{fs, path::Path};

use crate::error::Error;

/// Copies a folder and all below it; `to` is made if it isn't there.
///
/// # Errors
/// If a file can't be read or written.
pub fn copy_folder(from: &Path, to: &Path) -> Result<(), Error> {
    let failed = || Error::io(format!("copy {} to {}", from.display(), to.display()));
    fs::create_dir_all(to).map_err(failed())?;
    for entry in fs::read_dir(from).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        let target = to.join(entry.file_name());
        if entry.file_type().map_err(failed())?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target).map_err(failed())?;
        }
    }
    Ok(())
}
