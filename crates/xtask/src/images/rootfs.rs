//! The files of an image beside its program: the libraries, CA roots, and the user.

use std::fs;

use anyhow::Context as _;
use base64::Engine as _;
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

use crate::images::{layer::Layer, program::Program};

/// User and group that the program runs as.
pub(crate) const NONROOT: u32 = 65532;

/// Where the program is.
pub(crate) const PROGRAMS: &str = "usr/local/bin";

/// The layers of an image, lowest first.
pub(crate) fn layers(program: &Program) -> anyhow::Result<[Layer; 2]> {
    Ok([base(program)?, own(program)])
}

/// What every image has: the same for programs with the same libraries, so a node pulls it once.
///
/// The programs are linked against glibc, and the image has the loader and libraries that they were linked on. Since
/// 2.34 glibc resolves names by files and DNS without further libraries, so `nsswitch.conf` is all that it needs.
fn base(program: &Program) -> anyhow::Result<Layer> {
    let mut layer = Layer::default();
    for library in &program.libraries {
        let contents =
            fs::read(library).with_context(|| format!("failed to read the library {}", library.display()))?;
        let place = library.to_str().context("a library's path isn't UTF-8")?;
        layer.file(place.trim_start_matches('/'), 0o755, contents);
    }
    layer.file("etc/passwd", 0o644, format!("nonroot:x:{NONROOT}:{NONROOT}:nonroot:/:/sbin/nologin\n"));
    layer.file("etc/group", 0o644, format!("nonroot:x:{NONROOT}:\n"));
    layer.file("etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nhosts: files dns\n");
    layer.file("etc/ssl/certs/ca-certificates.crt", 0o644, roots());
    Ok(layer)
}

/// The program alone.
fn own(program: &Program) -> Layer {
    let mut layer = Layer::default();
    layer.file(&format!("{PROGRAMS}/{}", program.name), 0o755, program.contents.clone());
    layer
}

/// Mozilla's roots as PEM, from the crate that Cargo.lock pins: the computer that builds may trust others.
fn roots() -> String {
    let mut text = String::new();
    for root in TLS_SERVER_ROOT_CERTS {
        let encoded = base64::engine::general_purpose::STANDARD.encode(root);
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in encoded.as_bytes().chunks(64) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}
