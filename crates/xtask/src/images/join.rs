//! Layouts of one image for several architectures, joined into one.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use clap::Args;
use oci_spec::image::{Descriptor, ImageIndex, ImageIndexBuilder, MediaType};

use crate::images::{
    layout::{self, Files, REFERENCE},
    source::Source,
};

/// Arguments of `croft-xtask join-images`.
#[derive(Args)]
pub(crate) struct JoinArgs {
    /// Layouts of the same image, one for each architecture
    #[arg(value_name = "FOLDER", num_args = 2.., required = true)]
    layouts: Vec<PathBuf>,
    /// Folder that the joined layout is written to
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
}

/// Writes one layout whose only image is an index of those in `layouts`.
pub(crate) fn join(root: &Path, args: &JoinArgs) -> anyhow::Result<()> {
    let JoinArgs { layouts, out } = args;
    let mut files = Files::new();
    let (mut manifests, mut references): (Vec<Descriptor>, Vec<String>) = (Vec::new(), Vec::new());
    for folder in layouts {
        let index = ImageIndex::from_file(folder.join("index.json"))
            .with_context(|| format!("{} isn't an OCI layout", folder.display()))?;
        let [manifest] = index.manifests().as_slice() else {
            bail!("{} has {} images; join layouts with one each", folder.display(), index.manifests().len());
        };
        let platform = manifest.platform().clone();
        if platform.is_none() || manifests.iter().any(|other| *other.platform() == platform) {
            bail!("{}: its architecture is missing, or given twice", folder.display());
        }
        let name = manifest.annotations().as_ref().and_then(|annotations| annotations.get(REFERENCE));
        references.extend(name.cloned());
        let mut manifest = manifest.clone();
        manifest.set_annotations(None);
        manifests.push(manifest);
        let blobs = folder.join("blobs/sha256");
        for entry in fs::read_dir(&blobs).with_context(|| format!("failed to read {}", blobs.display()))? {
            let entry = entry?;
            let name = entry.file_name().into_string().ok().context("a blob's name isn't UTF-8")?;
            files.insert(format!("blobs/sha256/{name}"), fs::read(entry.path())?);
        }
    }
    references.dedup();
    let [reference] = references.as_slice() else {
        bail!("the layouts are of {references:?}; join those of one image");
    };
    manifests.sort_by_key(|manifest| manifest.digest().to_string());
    let index = ImageIndexBuilder::default()
        .schema_version(2_u32)
        .media_type(MediaType::ImageIndex)
        .manifests(manifests)
        .build()?;
    let mut described = layout::blob(&mut files, MediaType::ImageIndex, layout::canonical(&index)?)?;
    println!("images: {reference} {} {}", described.digest(), out.display());
    described.set_annotations(Some(layout::names(reference)));
    layout::index(&mut files, vec![described])?;
    layout::write(&files, out, Source::of_checkout(root)?.epoch)
}
