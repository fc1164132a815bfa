//! The cgroups below which both nodes keep their pods, with version 1 and 2.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;

const MOUNT: &str = "/sys/fs/cgroup";
const PREFIX: &str = "croft-node-";
const REMOVE_ATTEMPTS: u32 = 50;
const REMOVE_PAUSE: Duration = Duration::from_millis(100);

/// A cgroup of this process in every hierarchy. Dropping it removes it with what is below.
#[derive(Debug)]
pub struct Cgroups {
    name: String,
    hierarchies: Vec<PathBuf>,
}

impl Cgroups {
    /// Makes them, after removing what a killed run left.
    ///
    /// # Errors
    /// If there are no cgroups, or they can't be written.
    pub fn create() -> anyhow::Result<Self> {
        let hierarchies = hierarchies()?;
        for stale in stale(&hierarchies)? {
            // One whose processes still run belongs to a run that still ends.
            let _ = remove(&stale);
        }
        let name = format!("{PREFIX}{}", std::process::id());
        let cgroups = Self { name, hierarchies };
        for hierarchy in &cgroups.hierarchies {
            let folder = hierarchy.join(&cgroups.name);
            if is_unified(hierarchy) {
                delegate(hierarchy)?;
            }
            make(&folder)?;
            for node in ["node-1", "node-2"] {
                if is_unified(hierarchy) {
                    delegate(&folder)?;
                }
                make(&folder.join(node))?;
            }
        }
        Ok(cgroups)
    }

    /// Their name below the root of each hierarchy.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for hierarchy in &self.hierarchies {
            let folder = hierarchy.join(&self.name);
            // Processes that were killed leave their cgroup a moment later.
            for _ in 0..REMOVE_ATTEMPTS {
                if remove(&folder).is_ok() {
                    break;
                }
                std::thread::sleep(REMOVE_PAUSE);
            }
        }
    }
}

/// The folders under which a cgroup can be made: one with version 2, one for each controller with version 1.
fn hierarchies() -> anyhow::Result<Vec<PathBuf>> {
    let mount = Path::new(MOUNT);
    if mount.join("cgroup.controllers").is_file() {
        return Ok(vec![mount.to_owned()]);
    }
    let entries =
        fs::read_dir(mount).with_context(|| format!("failed to read {MOUNT}; mount cgroups there"))?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        // `cpu,cpuacct` often has links to it, which are the same hierarchy.
        .filter(|path| !path.is_symlink() && path.join("cgroup.procs").is_file())
        .collect();
    found.sort();
    anyhow::ensure!(!found.is_empty(), "no cgroup hierarchy is mounted at {MOUNT}");
    Ok(found)
}

fn is_unified(hierarchy: &Path) -> bool {
    hierarchy.join("cgroup.controllers").is_file()
}

/// Passes the controllers that a kubelet needs to the children of a cgroup of version 2.
fn delegate(folder: &Path) -> anyhow::Result<()> {
    let available = fs::read_to_string(folder.join("cgroup.controllers"))?;
    for controller in ["cpuset", "cpu", "io", "memory", "hugetlb", "pids"] {
        if available.split_whitespace().any(|one| one == controller) {
            let file = folder.join("cgroup.subtree_control");
            fs::write(&file, format!("+{controller}"))
                .with_context(|| format!("failed to pass {controller} on in {}", file.display()))?;
        }
    }
    Ok(())
}

fn make(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("failed to make the cgroup {}", folder.display()))?;
    // A cpuset of version 1 takes no process before it has processors and memory.
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (own, parent) = (folder.join(file), folder.parent().map(|parent| parent.join(file)));
        let (Ok(present), Some(Ok(inherited))) = (fs::read_to_string(&own), parent.map(fs::read_to_string))
        else {
            continue;
        };
        if present.trim().is_empty() && !inherited.trim().is_empty() {
            fs::write(&own, inherited.trim())
                .with_context(|| format!("failed to write {}", own.display()))?;
        }
    }
    Ok(())
}

/// Cgroups of runs that were killed: their process isn't there any more.
fn stale(hierarchies: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for hierarchy in hierarchies {
        for entry in fs::read_dir(hierarchy)? {
            let path = entry?.path();
            let process =
                path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(PREFIX));
            if process.is_some_and(|id| !Path::new("/proc").join(id).exists()) {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// Removes a cgroup, innermost first. One that still has processes stays.
fn remove(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            // A child that stays lets its parent stay, whose error is the answer.
            let _ = remove(&entry.path());
        }
    }
    match fs::remove_dir(folder) {
        Err(error) if folder.exists() => Err(error),
        _ => Ok(()),
    }
}
