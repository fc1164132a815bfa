//! The section of a program that names the crates linked into it, as scanners of images read it.
//!
//! The format is that of cargo-auditable, which wraps the compiler, so that every crate would be built once more. Here
//! `objcopy` adds the section to the stripped program.

use std::{io::Write as _, path::Path, process::Command};

use anyhow::Context as _;
use auditable_serde::{DependencyKind, Package, Source, VersionInfo};
use flate2::{Compression, write::ZlibEncoder};

use crate::images::{dependencies::Dependencies, program::run};

/// The name of the section, of version 0 of the format.
const SECTION: &str = ".dep-v0";
/// The revision of the format in which procedural macros aren't dependencies of the running program.
const WITHOUT_MACROS: u32 = 1;
/// The index of crates.io, by which Cargo names packages from there.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Adds the section to the program `file`.
pub(crate) fn add(file: &Path, dependencies: &Dependencies) -> anyhow::Result<()> {
    let text = serde_json::to_vec(&list(dependencies)?).context("the list of crates can't be written")?;
    let mut encoder = ZlibEncoder::new(tempfile::NamedTempFile::new()?, Compression::best());
    encoder.write_all(&text)?;
    let section = encoder.finish()?;
    run(Command::new("objcopy")
        .arg("--add-section")
        .arg(format!("{SECTION}={}", section.path().display()))
        .args(["--set-section-flags", &format!("{SECTION}=noload,readonly")])
        .arg(file))
}

fn list(dependencies: &Dependencies) -> anyhow::Result<VersionInfo> {
    let packages = dependencies.packages.iter().enumerate().map(|(index, package)| {
        let source = match package.source.as_deref() {
            None => Source::Local,
            Some(CRATES_IO) => Source::CratesIo,
            Some(source) if source.starts_with("git+") => Source::Git,
            Some(_) => Source::Registry,
        };
        Ok(Package {
            name: package.name.clone(),
            version: package.version.parse().with_context(|| format!("the version of {}", package.name))?,
            source,
            kind: DependencyKind::Runtime,
            dependencies: package.dependencies.clone(),
            root: index == dependencies.root,
        })
    });
    Ok(VersionInfo { packages: packages.collect::<anyhow::Result<_>>()?, format: WITHOUT_MACROS })
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use auditable_info::audit_info_from_file;

    use super::*;
    use crate::images::dependencies::tests::webhook;

    #[test]
    fn a_program_names_its_crates_to_a_scanner_and_still_runs() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("program");
        fs::copy(env::current_exe().unwrap(), &file).unwrap();
        add(&file, &webhook()).unwrap();

        let read = audit_info_from_file(&file, Default::default()).unwrap();
        let named: Vec<_> =
            read.packages.iter().map(|p| (p.name.as_str(), p.source.clone(), p.root)).collect();
        assert_eq!(
            named,
            [
                ("a", Source::Registry, false),
                ("b", Source::Git, false),
                ("croft-webhook", Source::Local, true)
            ]
        );
        let listed = Command::new(&file).args(["--list", "--exact", "none"]).status().unwrap();
        assert!(listed.success());
    }
}
