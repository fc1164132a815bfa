//! Starts the control plane and Croft, with a line of progress per step.

use croft_testkit::{ControlPlane, Croft, CroftOptions, Options, Part};

use super::progress::Progress;

/// Starts the control plane.
pub(super) async fn start_plane(
    options: Options,
    progress: &mut Progress<'_>,
) -> anyhow::Result<ControlPlane> {
    progress.line("starting etcd, API server, controller manager, scheduler, and KWOK for the kubelets")?;
    let plane = ControlPlane::start(options).await?;
    progress.line(&format!("control plane is up: {}", plane.url()))?;
    Ok(plane)
}

/// Installs Croft and starts its processes.
pub(super) async fn start_croft(plane: &ControlPlane, progress: &mut Progress<'_>) -> anyhow::Result<Croft> {
    let mut croft = Croft::install(plane, CroftOptions::find()?).await?;
    progress.line("installed custom resources, rights and webhook configurations from manifests/install")?;
    for part in croft.parts() {
        croft.resume(plane, part).await?;
        let what = match part {
            Part::Cloud => format!("ec2-sim is up: http://{}", croft.address(part)?),
            Part::Webhook => "croft-webhook is up, with a self-managed certificate".to_owned(),
            Part::Controller => "croft-controller is up".to_owned(),
            Part::Page => "croft-page is up".to_owned(),
        };
        progress.line(&what)?;
    }
    Ok(croft)
}
