//! An image as an OCI layout: blobs by digest, an index, and the whole as one tar.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
};

use anyhow::Context as _;
use oci_spec::image::{
    Arch, ConfigBuilder, Descriptor, DescriptorBuilder, HistoryBuilder, ImageConfigurationBuilder,
    ImageIndexBuilder, ImageManifestBuilder, MediaType, Os, PlatformBuilder, RootFsBuilder, Sha256Digest,
};
use serde::Serialize;
use serde_json::Value;

use crate::images::{
    layer::{append, sha256},
    program::Program,
    rootfs::{self, NONROOT},
    source::Source,
};

/// What an image's own files are written as, by their path in the layout.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// The name under which containerd and podman import an image.
pub(crate) const CONTAINERD_NAME: &str = "io.containerd.image.name";
pub(crate) const REFERENCE: &str = "org.opencontainers.image.ref.name";

/// An image in memory.
#[derive(Debug)]
pub(crate) struct Image {
    /// Name and tag.
    pub(crate) reference: String,
    /// The manifest's digest.
    pub(crate) digest: String,
    /// Bytes of its files.
    pub(crate) unpacked: u64,
    /// Bytes of its blobs.
    pub(crate) packed: u64,
    files: Files,
    epoch: u64,
}

impl Image {
    /// The image of `program` for the architecture that this runs on.
    pub(crate) fn new(program: &Program, source: &Source) -> anyhow::Result<Self> {
        let mut files = Files::new();
        let (mut layers, mut diffs, mut unpacked) = (Vec::new(), Vec::new(), 0);
        for layer in rootfs::layers(program)? {
            let packed = layer.pack(source.epoch)?;
            unpacked += packed.unpacked;
            diffs.push(format!("sha256:{}", packed.diff));
            layers.push(blob(&mut files, MediaType::ImageLayerGzip, packed.blob)?);
        }
        let labels = labels(program, source);
        let configuration = ImageConfigurationBuilder::default()
            .created(source.created()?)
            .architecture(Arch::default())
            .os(Os::Linux)
            .config(
                ConfigBuilder::default()
                    .user(format!("{NONROOT}:{NONROOT}"))
                    .entrypoint(vec![format!("/{}/{}", rootfs::PROGRAMS, program.name)])
                    .working_dir("/")
                    .env(environment(&program.name))
                    .labels(labels.clone())
                    .build()?,
            )
            .rootfs(RootFsBuilder::default().typ("layers").diff_ids(diffs).build()?)
            .history(
                ["libraries, CA roots and user", &program.name]
                    .map(|what| HistoryBuilder::default().created_by(what).build())
                    .into_iter()
                    .collect::<Result<Vec<_>, _>>()?,
            )
            .build()?;
        let config = blob(&mut files, MediaType::ImageConfig, canonical(&configuration)?)?;
        let manifest = ImageManifestBuilder::default()
            .schema_version(2_u32)
            .media_type(MediaType::ImageManifest)
            .config(config)
            .layers(layers)
            .annotations(labels)
            .build()?;
        let reference = format!("{}:{}", program.name, source.version);
        let mut described = blob(&mut files, MediaType::ImageManifest, canonical(&manifest)?)?;
        let digest = described.digest().to_string();
        described.set_platform(Some(
            PlatformBuilder::default().architecture(Arch::default()).os(Os::Linux).build()?,
        ));
        described.set_annotations(Some(names(&reference)));
        index(&mut files, vec![described])?;
        let packed = files.values().map(|file| file.len() as u64).sum();
        Ok(Self { reference, digest, unpacked, packed, files, epoch: source.epoch })
    }

    /// Writes the layout to `folder`, and as `<folder>.tar`.
    pub(crate) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        write(&self.files, folder, self.epoch)
    }
}

/// The annotations by which tools name an imported image.
pub(crate) fn names(reference: &str) -> HashMap<String, String> {
    HashMap::from([
        (CONTAINERD_NAME.to_owned(), format!("docker.io/library/{reference}")),
        (REFERENCE.to_owned(), reference.to_owned()),
    ])
}

/// Variables that hold wherever the image runs. glibc's allocator keeps what the webhook's first lists took for a moment
/// in arenas, unless told to return it; the controller has an allocator of its own.
fn environment(program: &str) -> Vec<String> {
    let tuned: &[&str] = match program {
        "croft-webhook" | "croft-page" => {
            &["MALLOC_ARENA_MAX=2", "MALLOC_MMAP_THRESHOLD_=65536", "MALLOC_TRIM_THRESHOLD_=65536"]
        }
        _ => &[],
    };
    tuned.iter().map(|&variable| variable.to_owned()).collect()
}

fn labels(program: &Program, source: &Source) -> HashMap<String, String> {
    let mut labels = HashMap::from([
        ("org.opencontainers.image.title".to_owned(), program.name.clone()),
        ("org.opencontainers.image.version".to_owned(), source.version.clone()),
        ("org.opencontainers.image.licenses".to_owned(), "Apache-2.0".to_owned()),
    ]);
    if let Some(commit) = &source.commit {
        labels.insert("org.opencontainers.image.revision".to_owned(), commit.clone());
    }
    labels
}

/// Adds a blob. Returns its descriptor.
pub(crate) fn blob(files: &mut Files, kind: MediaType, contents: Vec<u8>) -> anyhow::Result<Descriptor> {
    let digest = sha256(&contents);
    let descriptor = DescriptorBuilder::default()
        .media_type(kind)
        .digest(digest.parse::<Sha256Digest>().context("a digest of this program isn't one")?)
        .size(contents.len() as u64)
        .build()?;
    files.insert(format!("blobs/sha256/{digest}"), contents);
    Ok(descriptor)
}

/// Adds the layout's own two files.
pub(crate) fn index(files: &mut Files, manifests: Vec<Descriptor>) -> anyhow::Result<()> {
    let index = ImageIndexBuilder::default()
        .schema_version(2_u32)
        .media_type(MediaType::ImageIndex)
        .manifests(manifests)
        .build()?;
    files.insert("index.json".to_owned(), canonical(&index)?);
    files.insert("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec());
    Ok(())
}

/// Replaces the layout in `folder`, and writes the same as `<folder>.tar`, which every importer reads.
pub(crate) fn write(files: &Files, folder: &Path, epoch: u64) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("failed to empty {}", folder.display()))?;
    }
    let mut archive = tar::Builder::new(Vec::new());
    for (path, contents) in files {
        let file = folder.join(path);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent).with_context(|| format!("failed to make {}", parent.display()))?;
        }
        fs::write(&file, contents).with_context(|| format!("failed to write {}", file.display()))?;
        append(&mut archive, path, tar::EntryType::Regular, 0o644, contents, epoch)?;
    }
    let name = format!("{}.tar", folder.display());
    fs::write(&name, archive.into_inner()?).with_context(|| format!("failed to write {name}"))
}

/// JSON with sorted keys: maps of annotations have no order of their own.
pub(crate) fn canonical(value: &impl Serialize) -> anyhow::Result<Vec<u8>> {
    fn sorted(value: Value) -> Value {
        match value {
            Value::Object(fields) => {
                let fields: BTreeMap<String, Value> =
                    fields.into_iter().map(|(key, value)| (key, sorted(value))).collect();
                Value::Object(fields.into_iter().collect())
            }
            Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
            other => other,
        }
    }
    Ok(serde_json::to_vec(&sorted(serde_json::to_value(value)?))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str) -> Image {
        let program = Program { name: name.to_owned(), contents: b"program".to_vec(), libraries: Vec::new() };
        let source =
            Source { version: "1.2.3".to_owned(), commit: Some("abc".to_owned()), epoch: 1_767_225_600 };
        Image::new(&program, &source).unwrap()
    }

    #[test]
    fn image_is_reproducible_and_runs_as_nonroot() {
        let (one, other) = (image("croft-webhook"), image("croft-webhook"));
        assert_eq!((&one.digest, &one.files), (&other.digest, &other.files));
        let index: Value = serde_json::from_slice(one.files.get("index.json").unwrap()).unwrap();
        let described = index.pointer("/manifests/0").unwrap();
        assert_eq!(
            described.pointer("/annotations/org.opencontainers.image.ref.name").unwrap(),
            "croft-webhook:1.2.3"
        );
        let read = |digest: &Value| -> Value {
            let hex = digest.as_str().unwrap().trim_start_matches("sha256:");
            serde_json::from_slice(one.files.get(&format!("blobs/sha256/{hex}")).unwrap()).unwrap()
        };
        let manifest = read(described.get("digest").unwrap());
        let config = read(manifest.pointer("/config/digest").unwrap());
        assert_eq!(config.pointer("/config/User").unwrap(), "65532:65532");
        assert_eq!(config.pointer("/config/Entrypoint/0").unwrap(), "/usr/local/bin/croft-webhook");
        assert_eq!(config.pointer("/created").unwrap(), "2026-01-01T00:00:00Z");
        assert_eq!(config.pointer("/rootfs/diff_ids").unwrap().as_array().unwrap().len(), 2);
    }

    #[test]
    fn images_share_their_base_layer() {
        let (webhook, controller) = (image("croft-webhook"), image("croft-controller"));
        let shared = webhook.files.keys().filter(|path| controller.files.contains_key(*path));
        assert_eq!(shared.filter(|path| path.starts_with("blobs/")).count(), 1);
    }
}
