//! Captures AdmissionReviews from the real API server into tests/corpus/reviews, byte for byte: `cargo run -p
//! croft-tests --bin capture-reviews`. Run it again when the lab's Kubernetes changes.

use std::{fs, path::Path};

use anyhow::Context as _;
use croft_testkit::{Component, ControlPlane, CroftOptions, Options};
use croft_tests::{
    corpus,
    recorder::{Recorder, named},
};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    croft_runtime::process::install_crypto();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let options = Options::default().without(Component::Scheduler).without(Component::Kubelets);
    let plane = ControlPlane::start(options).await?;
    let crds = CroftOptions::find()?.manifests.join("crds");
    plane.kubectl(["apply".as_ref(), "-k".as_ref(), crds.as_os_str()]).await?;
    let client = plane.admin().await?;
    let recorder = Recorder::start(&client, corpus::tenants(&folder.join("config.yaml"))?).await?;
    let scenes = fs::read_to_string(folder.join("scenes.yaml")).context("failed to read scenes.yaml")?;
    for scene in corpus::scenes(&scenes) {
        // The request may be denied: only its review matters.
        let said = match &scene.arguments {
            None => plane.apply(&scene.manifest).await,
            Some(arguments) => plane.kubectl_with(arguments, &scene.manifest).await,
        };
        eprintln!("{}: {}", scene.name, said.unwrap_or_else(|error| error.to_string()));
    }
    let reviews = named(&recorder.take())?;
    let target = folder.join("reviews");
    fs::create_dir_all(&target)?;
    for entry in fs::read_dir(&target)? {
        fs::remove_file(entry?.path())?;
    }
    for (name, body) in &reviews {
        fs::write(target.join(format!("{name}.json")), body)?;
    }
    eprintln!("{} reviews", reviews.len());
    plane.stop()?;
    Ok(())
}
