//! OCI images of Croft's programs, without a registry or a daemon.
//!
//! ```text
//! target/release/<program> --ldd--> libraries --.
//! crate webpki-root-certs --PEM--> CA roots ----+--> base layer ----.
//! passwd, group, nsswitch.conf -----------------'                   +--> manifest --> OCI layout, and a tar of it
//! stripped program -------------------------------> program layer --'
//! cargo metadata --> linked crates --+--> section .dep-v0 of the program
//!                                    '--> SBOM beside the image <-- packages of the libraries
//! ```
//!
//! The same commit gives the same digests, in whatever folder it is checked out: entries are sorted, owned by root and dated by the
//! commit, and the build id is a hash of the stripped program. Cargo's own folder is part of panic messages, so it has to be the same.

mod auditable;
mod dependencies;
mod join;
mod layer;
mod layout;
mod libraries;
mod program;
mod rootfs;
mod sbom;
mod source;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use clap::Args;

pub(crate) use join::{JoinArgs, join};

use crate::images::{dependencies::Metadata, layout::Image, program::Program, source::Source};

/// What a node pulls for an image at most.
const MAX_BYTES: u64 = 40 << 20;

/// The programs that have an image, without options.
const PROGRAMS: [&str; 3] = ["croft-webhook", "croft-controller", "croft-page"];

/// Arguments of `croft-xtask images`.
#[derive(Args)]
pub(crate) struct ImagesArgs {
    /// Folder of the built programs
    #[arg(long, value_name = "FOLDER", default_value = "target/release")]
    binaries: PathBuf,
    /// Folder that the images are written to
    #[arg(long, value_name = "FOLDER", default_value = "target/images")]
    out: PathBuf,
    /// Make an image of this program instead, named as its file
    #[arg(long, value_name = "FILE")]
    program: Vec<PathBuf>,
    /// Write the files of each image to NAME.rootfs too, for a builder
    #[arg(long)]
    rootfs: bool,
}

/// Writes the image of each program, its symbols and its SBOM, and prints a line for each.
pub(crate) fn run(root: &Path, args: &ImagesArgs) -> anyhow::Result<()> {
    let ImagesArgs { binaries, out, program, rootfs } = args;
    let source = Source::of_checkout(root)?;
    fs::create_dir_all(out).with_context(|| format!("failed to make {}", out.display()))?;
    let files = if program.is_empty() {
        PROGRAMS.iter().map(|name| binaries.join(name)).collect()
    } else {
        program.clone()
    };
    let metadata = Metadata::read(root)?;
    for file in &files {
        // Another program is none of this workspace, such as the sandbox of `make node-test`.
        let linked = match file.file_name().and_then(|name| name.to_str()) {
            Some(name) if PROGRAMS.contains(&name) => Some(metadata.dependencies(name)?),
            _ => None,
        };
        let program = Program::prepare(file, out, linked.as_ref())?;
        let image = Image::new(&program, &source)?;
        if image.packed > MAX_BYTES {
            bail!(
                "the image of {} has {} MiB packed, more than {}: see what its program links",
                program.name,
                image.packed >> 20,
                MAX_BYTES >> 20
            );
        }
        let folder = out.join(&program.name);
        image.write(&folder)?;
        if *rootfs {
            let files = folder.with_extension("rootfs");
            for layer in rootfs::layers(&program)? {
                layer.unpack(&files)?;
            }
        }
        if let Some(linked) = &linked {
            sbom::write(&program, linked, &source, &out.join(format!("{}.cdx.json", program.name)))?;
        }
        println!(
            "images: {} {} unpacked={:.1}MiB packed={:.1}MiB {}",
            image.reference,
            image.digest,
            mebibytes(image.unpacked),
            mebibytes(image.packed),
            folder.with_extension("tar").display()
        );
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "printed with one decimal")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
