//! CPU time and memory of processes, from /proc.

use anyhow::Context as _;
use croft_testkit::{Component, ControlPlane, Part};
use croft_tests::stack::Stack;

/// Kernel clock ticks a second, the unit of /proc/<pid>/stat: 100 on every Linux that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU seconds, user and system, that a process has used.
///
/// # Errors
/// If the process doesn't run.
pub(crate) fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    // The name may contain spaces and brackets: the fields begin after the last bracket.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok());
    let (user, system) = (ticks(11), ticks(12));
    Ok((user.context("no user time")? + system.context("no system time")?) / TICKS_PER_SECOND)
}

/// Resident memory in megabytes (1e6 bytes): present and peak.
///
/// # Errors
/// If the process doesn't run.
pub(crate) fn rss_megabytes(pid: u32) -> anyhow::Result<(f64, f64)> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024.0 / 1e6)
    };
    Ok((of("VmRSS:").context("no VmRSS")?, of("VmHWM:").context("no VmHWM")?))
}

/// The flags of a process, without those that name files and addresses.
///
/// # Errors
/// If the process doesn't run.
pub(crate) fn flags(pid: u32) -> anyhow::Result<String> {
    let path = format!("/proc/{pid}/cmdline");
    let line = std::fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    let settings = line.split('\0').filter(|word| word.starts_with("--") && !word.contains('/'));
    Ok(settings.collect::<Vec<_>>().join(" "))
}

/// CPU seconds of every process of a stack or a control plane.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage(Vec<(&'static str, f64)>);

impl Usage {
    /// CPU seconds so far.
    ///
    /// # Errors
    /// If a process has ended.
    pub(crate) fn of(stack: &Stack) -> anyhow::Result<Self> {
        let Self(mut all) = Self::of_plane(&stack.plane)?;
        let parts =
            Part::ALL.iter().filter_map(|part| Some((part.binary(), stack.croft.process(*part)?.pid())));
        for (name, pid) in parts {
            all.push((name, cpu_seconds(pid)?));
        }
        Ok(Self(all))
    }

    /// CPU seconds so far of the control plane alone.
    ///
    /// # Errors
    /// If a process has ended.
    pub(crate) fn of_plane(plane: &ControlPlane) -> anyhow::Result<Self> {
        let components = Component::ALL.iter().filter_map(|c| Some((c.binary(), plane.process(*c)?.pid())));
        let all = components.map(|(name, pid)| Ok((name, cpu_seconds(pid)?)));
        Ok(Self(all.collect::<anyhow::Result<_>>()?))
    }

    /// One line: CPU seconds since `before`, in descending order.
    pub(crate) fn since(&self, before: &Self) -> String {
        let used = |name: &str| before.0.iter().find(|(n, _)| *n == name).map_or(0.0, |(_, cpu)| *cpu);
        let mut all: Vec<(&str, f64)> = self.0.iter().map(|(name, cpu)| (*name, cpu - used(name))).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        let words: Vec<String> = all.iter().map(|(name, cpu)| format!("{name} {cpu:.2}")).collect();
        words.join(", ")
    }
}
