//! The cloud that machines come from: the one place that names it.

use std::sync::Arc;

use croft_cloud::CloudProvider;

use crate::args::Args;

/// The provider that the arguments describe.
#[cfg(not(feature = "aws"))]
pub(crate) async fn connect(_: &Args, _: &str) -> anyhow::Result<Arc<dyn CloudProvider>> {
    anyhow::bail!("this croft-controller was built without a cloud; build it with the feature aws")
}
