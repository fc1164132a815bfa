//! Runs a program within its time, with its output in a file.

use std::{
    fs,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use croft_runtime::clock::{Clock as _, SystemClock};

/// Between two looks at a process.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The time that a process has to end by itself once it is asked to.
const GRACE: Duration = Duration::from_secs(30);
/// Lines of the output that are shown of a program that failed.
const SHOWN: usize = 20;

/// Runs `command`, and returns what it wrote; both streams are in `file`.
///
/// # Errors
/// A program that fails, or runs longer than `limit`: it is ended with all processes that it started.
pub(crate) fn run(command: &mut Command, file: &Path, limit: Duration) -> anyhow::Result<String> {
    let output = fs::File::create(file).with_context(|| format!("failed to create {}", file.display()))?;
    let errors = output.try_clone()?;
    let mut child =
        command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn().context("failed to start")?;
    let status = wait(&mut child, limit)?;
    let text = fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
    let reason = match status {
        Some(status) if status.success() => return Ok(text),
        Some(status) => status.to_string(),
        None => format!("ran longer than {} s and was ended", limit.as_secs()),
    };
    let lines: Vec<&str> = text.lines().collect();
    let shown = lines.get(lines.len().saturating_sub(SHOWN)..).unwrap_or_default().join("\n");
    bail!("{reason}; the end of {}:\n{shown}", file.display())
}

/// Waits for a process; `None` if it was ended.
fn wait(child: &mut Child, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
    if let Some(status) = wait_for(child, limit)? {
        return Ok(Some(status));
    }
    let processes = descendants(child.id());
    signal("-TERM", &processes);
    wait_for(child, GRACE)?;
    signal("-KILL", &processes);
    child.wait()?;
    Ok(None)
}

fn wait_for(child: &mut Child, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
    let begun = SystemClock.monotonic();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if SystemClock.monotonic() - begun >= limit {
            return Ok(None);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A process and all that it started.
fn descendants(process: u32) -> Vec<u32> {
    let mut found = vec![process];
    let mut at = 0;
    while let Some(process) = found.get(at) {
        let children =
            fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
        found.extend(children.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        at += 1;
    }
    found
}

fn signal(signal: &str, processes: &[u32]) {
    // Some have ended by now, which kill says.
    let ids = processes.iter().map(u32::to_string);
    let _ = Command::new("kill").arg(signal).args(ids).stderr(Stdio::null()).status();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> anyhow::Result<String> {
        let folder = tempfile::tempdir().unwrap();
        run(Command::new("sh").args(["-c", script]), &folder.path().join("output"), limit)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn output_of_both_streams_is_returned() {
        assert_eq!(shell("echo a; echo b >&2", LONG).unwrap(), "a\nb\n");
    }

    #[test]
    fn a_program_that_fails_is_an_error_with_the_end_of_its_output() {
        let error = shell("seq 30; exit 3", LONG).unwrap_err().to_string();
        assert!(error.starts_with("exit status: 3; the end of "), "{error}");
        assert_eq!(
            error.lines().skip(1).collect::<Vec<_>>(),
            (11..=30).map(|n| n.to_string()).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_program_beyond_its_time_is_ended_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("output");
        let script = "sleep 1000 & echo $!; wait";
        let error = run(Command::new("sh").args(["-c", script]), &file, Duration::from_secs(1)).unwrap_err();
        assert!(error.to_string().starts_with("ran longer than 1 s and was ended; "), "{error}");
        let child = fs::read_to_string(&file).unwrap();
        let is_there = || {
            // Without a parent that waits for it, an ended process may stay as a zombie.
            let state = fs::read_to_string(format!("/proc/{}/stat", child.trim()));
            state.is_ok_and(|state| !state.contains(") Z "))
        };
        // A signal is sent before it takes effect.
        let ends_by = SystemClock.monotonic() + LONG;
        while is_there() && SystemClock.monotonic() < ends_by {
            std::thread::sleep(LOOK_EVERY);
        }
        assert!(!is_there(), "process {child} is still there");
    }
}
