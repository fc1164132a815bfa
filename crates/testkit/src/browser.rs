//! Headless Chromium, driven by tools/browser/drive.mjs: a command as a line of JSON, its answer as another.

use std::{path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::{
    assets::{cache, installed, key, set},
    croft::CroftOptions,
};

/// The packages: their lock file is the cache's key, as in tools/browser/build.sh.
const PACKAGES: [&[u8]; 2] = [
    include_bytes!("../../../tools/browser/package.json"),
    include_bytes!("../../../tools/browser/package-lock.json"),
];
/// Longer than any command waits by itself.
const ANSWER_WITHIN: Duration = Duration::from_secs(180);
/// Time for a browser to close.
const END_WITHIN: Duration = Duration::from_secs(30);

/// A browser. Dropping it ends it.
#[derive(Debug)]
pub struct Browser {
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// Chromium ends with the pipes of this process.
    node: Child,
    /// Chromium's profile and other temporary files; removed when dropped.
    _folder: TempDir,
}

impl Browser {
    /// Starts Chromium: the program in `CROFT_CHROMIUM`, else the first `chromium` of `PATH`.
    ///
    /// # Errors
    /// If it, Node, or what `make browser` installs is missing.
    pub fn start() -> anyhow::Result<Self> {
        let packages = set("CROFT_CACHE").map_or_else(cache, Ok)?.join("browser").join(key(&PACKAGES));
        ensure!(packages.is_dir(), "{} is not there; run `make browser`", packages.display());
        let manifests = CroftOptions::find()?.manifests;
        let folder = TempDir::with_prefix("croft-browser-").context("failed to make a folder")?;
        let mut node = Command::new("node")
            .env("TMPDIR", folder.path())
            .arg(manifests.join("../tools/browser/drive.mjs"))
            .arg(chromium()?)
            .arg(&packages)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("failed to start node; run `make browser`")?;
        let (Some(commands), Some(answers)) = (node.stdin.take(), node.stdout.take()) else {
            bail!("failed to talk to the browser's driver");
        };
        Ok(Self { commands, answers: BufReader::new(answers).lines(), node, _folder: folder })
    }

    /// Closes the browser, and waits until it has ended.
    ///
    /// # Errors
    /// If it doesn't end.
    pub async fn end(self) -> anyhow::Result<()> {
        let Self { commands, answers: _, mut node, _folder } = self;
        drop(commands);
        timeout(END_WITHIN, node.wait()).await.context("the browser didn't end")??;
        Ok(())
    }

    /// The answer to a command of tools/browser/drive.mjs.
    ///
    /// # Errors
    /// If the browser ends, the command fails, or it takes too long.
    pub async fn ask(&mut self, command: &Value) -> anyhow::Result<Value> {
        let line = format!("{command}\n");
        self.commands.write_all(line.as_bytes()).await.context("failed to write to the browser's driver")?;
        let answer = timeout(ANSWER_WITHIN, self.answers.next_line()).await;
        let answer = answer.with_context(|| format!("no answer to {command}"))?;
        let answer = answer.context("failed to read from the browser's driver")?;
        let answer = answer.with_context(|| format!("the browser's driver ended at {command}"))?;
        let answer: Value = serde_json::from_str(&answer).with_context(|| answer.clone())?;
        match answer.get("error").and_then(Value::as_str) {
            Some(error) => bail!("{error}"),
            None => Ok(answer),
        }
    }
}

fn chromium() -> anyhow::Result<PathBuf> {
    set("CROFT_CHROMIUM")
        .or_else(|| installed("chromium"))
        .context("chromium is not there; run `make browser`")
}
