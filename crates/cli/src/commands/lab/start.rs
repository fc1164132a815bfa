//! Starts the control plane and Croft, with a line of progress per step.

use croft_testkit::{ControlPlane, Croft, CroftOptions, Options, Part};

use super::progress::Progress;
use crate::page_client::AUDIENCE;

/// The account that sees the whole page.
const OPERATOR: &str = "croft-page-operator";

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

/// Installs Croft and starts its processes, the page among them. Returns the page's address too, which signs in as an operator
/// while the lab runs.
pub(super) async fn start_croft(
    plane: &ControlPlane,
    options: CroftOptions,
    progress: &mut Progress<'_>,
) -> anyhow::Result<(Croft, String)> {
    let mut croft = Croft::install(plane, options.page()).await?;
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
    let token = plane.token_for(croft.namespace(), OPERATOR, Some(AUDIENCE)).await?;
    let page = format!("http://{}/#token={token}", croft.forward()?);
    progress.line(&format!("the page is open for operators at:\n         {page}"))?;
    Ok((croft, page))
}
