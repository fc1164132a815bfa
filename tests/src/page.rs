//! Runs a page of docs/: its blocks of the language `sh`, in their order, as its reader would.

use std::{
    env,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use croft_testkit::{Assets, CroftOptions, Helm};
use tokio::process::Command;

use crate::stack::Stack;

/// For all commands of one page, which wait for instances and drains.
const WITHIN: Duration = Duration::from_secs(15 * 60);

/// The folder of the checkout, in which pages are run.
///
/// # Errors
/// If it isn't found.
pub fn root() -> anyhow::Result<PathBuf> {
    let manifests = CroftOptions::find()?.manifests;
    Ok(manifests.parent().unwrap_or(&manifests).to_owned())
}

/// The bash script of a page's `sh` blocks. Each line has the number that it has on the page, so that a failure names it.
fn script(page: &str) -> String {
    let mut script = String::new();
    let mut shown = None;
    for (index, line) in page.lines().enumerate() {
        let fence = line.strip_prefix("```");
        match (fence, shown) {
            // The heading of the page makes room for the options.
            (None, _) if index == 0 => {
                script.push_str(
                    r#"set -Eeuo pipefail; trap 'echo "failed at line $LINENO: $BASH_COMMAND" >&2' ERR"#,
                );
            }
            (None, Some("sh")) => script.push_str(line),
            (None, _) => {}
            (Some(language), None) => shown = Some(language),
            (Some(_), Some(_)) => shown = None,
        }
        script.push('\n');
    }
    script
}

/// Runs the page at `path`, relative to the checkout, with `kubectl`, `helm` and `croft` as the administrator of `stack`.
/// Returns what the commands print.
///
/// # Errors
/// If a command fails, with the page and the line; if it takes too long.
pub async fn run(stack: &Stack, path: &Path) -> anyhow::Result<String> {
    let root = root()?;
    let page = std::fs::read_to_string(root.join(path));
    let page = page.with_context(|| format!("failed to read {}", path.display()))?;
    let folder = tempfile::tempdir().context("failed to make a folder")?;
    let file = folder.path().join("commands");
    std::fs::write(&file, script(&page)).context("failed to write the commands of the page")?;
    let (kubectl, helm) = (Assets::from_env()?.binary("kubectl")?, Helm::find()?);
    let folders =
        [kubectl.as_path(), helm.path()].map(|program| program.parent().unwrap_or(program).to_owned());
    let programs = [CroftOptions::find()?.binaries].into_iter().chain(folders);
    let system = ["/usr/bin", "/bin"].map(PathBuf::from);
    let output = Command::new("/bin/bash")
        .arg(&file)
        .current_dir(&root)
        .env_clear()
        .env("PATH", env::join_paths(programs.chain(system)).context("failed to join PATH")?)
        .env("HOME", folder.path())
        .env("KUBECONFIG", stack.plane.admin_kubeconfig())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(WITHIN, output).await;
    let output = output.with_context(|| format!("{} takes more than {WITHIN:?}", path.display()))??;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{} {err}\n{out}", path.display());
    Ok(out.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_has_the_sh_blocks_on_the_lines_of_the_page() {
        let page = "# Title\n```bash\naws x\n```\ntext\n```sh\nkubectl get pods\n```\n```yaml\na: b\n```\n";
        let script = script(page);
        let lines: Vec<&str> = script.lines().collect();
        assert!(lines[0].starts_with("set -Eeuo pipefail"), "{script}");
        assert_eq!(lines[6], "kubectl get pods");
        assert_eq!((lines.len(), lines.iter().filter(|line| !line.is_empty()).count()), (11, 2), "{script}");
    }
}
