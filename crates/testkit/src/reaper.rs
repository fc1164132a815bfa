//! Kills all child processes, however the parent ends.
//!
//! A test killed with SIGKILL runs no destructor, and PR_SET_PDEATHSIG follows the *thread* that forked, which in a
//! test harness or an async runtime may end at any time. So there is a reaper: a shell that reads a pipe. The parent
//! holds the other end. When the parent is gone, the shell reads end of file, kills the registered process groups, and
//! removes the folder.

use std::{
    io::Write,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use crate::error::Error;

/// One verb and one value per line. A group has ended when signal 0 no longer reaches it; only then is the folder
/// removed, since a dying process may still write there.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
groups=' ' folder=
while IFS=' ' read -r verb value; do
    case $verb in
        watch) groups="$groups$value " ;;
        forget)
            case $groups in
                *" $value "*) groups=${groups%%" $value "*}" "${groups#*" $value "} ;;
            esac
            ;;
        folder) folder=$value ;;
        release) exit 0 ;;
    esac
done
for group in $groups; do kill -KILL "-$group" 2>/dev/null; done
for group in $groups; do
    tries=0
    while kill -0 "-$group" 2>/dev/null && [ $tries -lt 100 ]; do sleep 0.05; tries=$((tries + 1)); done
done
[ -z "$folder" ] || rm -rf -- "$folder"
"#;

/// The parent's end. Clones share one reaper, which acts when the last is dropped.
#[derive(Clone, Debug)]
pub struct Reaper {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shell: Mutex<Child>,
    pipe: Mutex<Option<ChildStdin>>,
}

impl Reaper {
    /// Starts the shell.
    pub fn start() -> Result<Self, Error> {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "croft-lab-reaper"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Its own process group: Ctrl-C in the terminal must not reach it before the parent ends.
            .process_group(0)
            .spawn()
            .map_err(Error::io("start the reaper"))?;
        let pipe = shell.stdin.take();
        Ok(Self { inner: Arc::new(Inner { shell: Mutex::new(shell), pipe: Mutex::new(pipe) }) })
    }

    /// From now on the process group `group` ends with this process.
    pub fn watch(&self, group: u32) -> Result<(), Error> {
        self.inner.say("watch", group)
    }

    /// The group has ended, and its id may be reused.
    pub fn forget(&self, group: u32) -> Result<(), Error> {
        self.inner.say("forget", group)
    }

    /// From now on `folder` is removed with this process.
    pub fn remove(&self, folder: &Path) -> Result<(), Error> {
        self.inner.say("folder", folder.display())
    }

    /// Releases everything that is watched to another owner.
    pub fn release(&self) -> Result<(), Error> {
        self.inner.say("release", "")
    }
}

impl Inner {
    fn say(&self, verb: &str, value: impl std::fmt::Display) -> Result<(), Error> {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        match pipe.as_mut() {
            Some(pipe) => pipe.write_all(format!("{verb} {value}\n").as_bytes()),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
        .map_err(Error::io("tell the reaper what to watch"))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.pipe.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // Waited for here, so that it leaves no zombie; it ends at once if nothing is left to kill.
        let _ = self.shell.get_mut().unwrap_or_else(PoisonError::into_inner).wait();
    }
}
