//! A program for an image: stripped, with its symbols kept beside, and the libraries that it loads.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};

use crate::images::{auditable, dependencies::Dependencies};

/// The section of the build id.
const BUILD_ID: &str = ".note.gnu.build-id";
/// Bytes of the section before the id: three lengths, and the owner `GNU`.
const NOTE_HEADER: usize = 16;

/// A program that is ready for an image.
#[derive(Debug)]
pub(crate) struct Program {
    /// The file's name.
    pub(crate) name: String,
    /// The stripped program.
    pub(crate) contents: Vec<u8>,
    /// The files that its loader maps, the loader included: absolute paths as the loader looks for them.
    pub(crate) libraries: Vec<PathBuf>,
}

impl Program {
    /// Copies `file` to `out` without its symbols, which go to `<name>.debug` there, names the crates of `linked` in it, and
    /// asks for its libraries.
    pub(crate) fn prepare(file: &Path, out: &Path, linked: Option<&Dependencies>) -> anyhow::Result<Self> {
        let name = file.file_name().and_then(|name| name.to_str()).context("a program needs a file name")?;
        if !file.is_file() {
            bail!("{} isn't there; run `make release`, or name its folder by --binaries", file.display());
        }
        let folder = out.join("programs");
        fs::create_dir_all(&folder)?;
        let (stripped, symbols) = (folder.join(name), folder.join(format!("{name}.debug")));
        run(Command::new("objcopy").arg("--only-keep-debug").arg(file).arg(&symbols))?;
        run(Command::new("objcopy").arg("--strip-all").arg(file).arg(&stripped))?;
        if let Some(linked) = linked {
            auditable::add(&stripped, linked)?;
            name_by_contents(&stripped, &symbols)?;
        }
        let contents =
            fs::read(&stripped).with_context(|| format!("failed to read {}", stripped.display()))?;
        Ok(Self { name: name.to_owned(), contents, libraries: libraries(file)? })
    }
}

/// Replaces the build id of a program and its symbols, by which debuggers join them, by a hash of the stripped program. The
/// linker's own covers the line tables too, which have the paths of the checkout, so that every checkout had other digests.
fn name_by_contents(stripped: &Path, symbols: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("note");
    let section = format!("{BUILD_ID}={}", file.display());
    run(Command::new("objcopy").args(["--dump-section", &section]).arg(stripped))?;
    let mut note = fs::read(&file).with_context(|| format!("{} has no build id", stripped.display()))?;
    let write = |note: &[u8], programs: &[&Path]| {
        fs::write(&file, note)?;
        programs.iter().try_for_each(|program| {
            run(Command::new("objcopy").args(["--update-section", &section]).arg(program))
        })
    };
    let id = note.get_mut(NOTE_HEADER..).context("the note of the build id is too short")?;
    id.fill(0);
    write(&note, &[stripped])?;
    let digest = Sha256::digest(fs::read(stripped)?);
    for (byte, hashed) in note.iter_mut().skip(NOTE_HEADER).zip(digest) {
        *byte = hashed;
    }
    write(&note, &[stripped, symbols])
}

/// Runs one of the binutils.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("failed to run {name}: install binutils"))?;
    if !status.success() {
        bail!("{name} failed: {status}");
    }
    Ok(())
}

/// What `ldd` names. A static program has none.
fn libraries(file: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(file).env("LC_ALL", "C").output().context("failed to run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let said = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
        if said.contains("not a dynamic executable") {
            return Ok(Vec::new());
        }
        bail!("ldd {} failed: {said}", file.display());
    }
    parse_ldd(&text)
}

fn parse_ldd(text: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        // `name => path (address)`, `path (address)` for the loader, `name (address)` for what the kernel maps.
        let place = line.split_once(" => ").map_or(line, |(_, place)| place);
        let place = place.split_once(" (").map_or(place, |(place, _)| place).trim();
        if place.starts_with('/') {
            found.push(PathBuf::from(place));
        } else if line.contains("not found") {
            bail!("a library is missing on this computer: {line}");
        } else if place != "statically linked" && !line.starts_with("linux-vdso") {
            bail!("ldd said {line:?}, which names no file");
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::dependencies::tests::webhook;

    #[test]
    fn a_program_has_one_build_id_whatever_its_linker_gave_it() {
        let folder = tempfile::tempdir().unwrap();
        let note = folder.path().join("note");
        let section = format!("{BUILD_ID}={}", note.display());
        let prepared = ["a", "b"].map(|name| {
            let file = folder.path().join(name).join("program");
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::copy(std::env::current_exe().unwrap(), &file).unwrap();
            run(Command::new("objcopy").args(["--dump-section", &section]).arg(&file)).unwrap();
            let mut bytes = fs::read(&note).unwrap();
            bytes[NOTE_HEADER..].fill(name.as_bytes()[0]);
            fs::write(&note, bytes).unwrap();
            run(Command::new("objcopy").args(["--update-section", &section]).arg(&file)).unwrap();
            let out = file.parent().unwrap().join("out");
            let program = Program::prepare(&file, &out, Some(&webhook())).unwrap();
            let symbols = out.join("programs/program.debug");
            run(Command::new("objcopy").args(["--dump-section", &section]).arg(&symbols)).unwrap();
            (program.contents, fs::read(&note).unwrap())
        });
        let [(contents, id), (other, other_id)] = prepared;
        assert!(contents == other, "the programs differ");
        assert_eq!(id, other_id);
        assert!(contents.windows(id.len()).any(|bytes| bytes == id), "program and symbols have one id");
    }

    #[test]
    fn ldd_names_libraries_and_loader_sorted() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(
            parse_ldd(text).unwrap(),
            [
                "/lib/x86_64-linux-gnu/libc.so.6",
                "/lib/x86_64-linux-gnu/libgcc_s.so.1",
                "/lib64/ld-linux-x86-64.so.2"
            ]
            .map(PathBuf::from)
        );
    }

    #[test]
    fn ldd_with_a_missing_library_is_an_error_and_static_has_none() {
        assert!(parse_ldd("\tlibfoo.so.1 => not found\n").unwrap_err().to_string().contains("libfoo.so.1"));
        assert!(parse_ldd("\tstatically linked\n").unwrap().is_empty());
    }
}
