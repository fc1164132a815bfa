//! The command line, run in this process.

use std::{
    ffi::OsString,
    io::{self, Write},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use croft_cli::Output;
use croft_testkit::{ControlPlane, CroftOptions};

#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<Vec<u8>>>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs `croft` with `arguments` against `plane`. Returns the exit code, and both streams without colours.
///
/// # Errors
/// If the command panics, or writes what isn't text.
pub async fn croft(plane: &ControlPlane, arguments: &str) -> anyhow::Result<(u8, String)> {
    croft_as(&plane.admin_kubeconfig(), arguments).await
}

/// The same as the user of a kubeconfig.
///
/// # Errors
/// As [`croft`].
pub async fn croft_as(kubeconfig: &Path, arguments: &str) -> anyhow::Result<(u8, String)> {
    let mut words: Vec<OsString> = vec!["croft".into()];
    words.extend(arguments.split_whitespace().map(OsString::from));
    words.push("--kubeconfig".into());
    words.push(kubeconfig.into());
    let pipe = Pipe::default();
    let writer = pipe.clone();
    // The command has a runtime of its own.
    let code = tokio::task::spawn_blocking(move || {
        croft_cli::run_with(words, &mut Output::to(Box::new(writer.clone()), Box::new(writer)))
    })
    .await?;
    let bytes = pipe.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut text = String::new();
    let mut in_colour = false;
    for c in String::from_utf8(bytes)?.chars() {
        match c {
            '\u{1b}' => in_colour = true,
            'm' if in_colour => in_colour = false,
            _ if in_colour => {}
            c => text.push(c),
        }
    }
    Ok((code, text))
}

/// Runs the program `croft` with `arguments` against `plane`, with the credentials of the simulated cloud. Returns the exit
/// code and standard output.
///
/// # Errors
/// If it can't be run, or writes what isn't text.
pub async fn croft_with_credentials(plane: &ControlPlane, arguments: &str) -> anyhow::Result<(i32, String)> {
    croft_with(plane, arguments, &[]).await
}

/// The same, with further environment variables.
///
/// # Errors
/// If it can't be run, or writes what isn't text.
pub async fn croft_with(
    plane: &ControlPlane,
    arguments: &str,
    environment: &[(&str, &str)],
) -> anyhow::Result<(i32, String)> {
    let output = tokio::process::Command::new(CroftOptions::find()?.binaries.join("croft"))
        .args(arguments.split_whitespace())
        .arg("--kubeconfig")
        .arg(plane.admin_kubeconfig())
        .env("AWS_ACCESS_KEY_ID", "lab")
        .env("AWS_SECRET_ACCESS_KEY", "lab")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .envs(environment.iter().copied())
        .kill_on_drop(true)
        .output()
        .await?;
    let mut text = String::from_utf8(output.stdout)?;
    text.push_str(&String::from_utf8(output.stderr)?);
    Ok((output.status.code().unwrap_or(-1), text))
}
