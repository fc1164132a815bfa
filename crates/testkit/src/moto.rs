//! moto, an emulator of AWS that knows nothing of Croft, as a process on loopback.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, ensure};

use crate::{
    assets::cached,
    process::{Process, Recipe},
    reaper::Reaper,
    wait::{Seen, until},
};

const STARTED_WITHIN: Duration = Duration::from_secs(60);

/// A server. Dropping it ends it.
#[derive(Debug)]
pub struct Moto {
    _process: Process,
    _reaper: Reaper,
    /// Its address, as AWS_ENDPOINT_URL has it.
    pub url: String,
}

impl Moto {
    /// Starts the server that `make moto` installs, with its log in `folder`. `settings` are environment variables of moto.
    ///
    /// # Errors
    /// If it isn't installed, or doesn't start.
    pub async fn start(folder: &Path, settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let program = cached("CROFT_MOTO", "moto-5.2.5/bin/moto_server")?;
        ensure!(program.is_file(), "{} is not there; run `make moto`", program.display());
        let log = folder.join("moto.log");
        let reaper = Reaper::start()?;
        let recipe = Recipe::new("moto", program, &log).arguments(["-H", "127.0.0.1", "-p", "0"]);
        let recipe = settings.iter().fold(recipe, |recipe, (name, value)| recipe.environment(name, value));
        let process = recipe.start(&reaper)?;
        let url = until("moto's address", STARTED_WITHIN, async || {
            let text = std::fs::read_to_string(&log)?;
            let url = text.split("Running on ").nth(1).and_then(|rest| rest.split_whitespace().next());
            Ok::<_, std::io::Error>(Seen::from_option(url.map(str::to_owned), text.clone()))
        })
        .await
        .context("moto didn't start")?;
        Ok(Self { _process: process, _reaper: reaper, url })
    }
}
