//! The README's picture: what a command prints for the example, as a terminal shows it.

use std::{
    cell::RefCell,
    ffi::OsString,
    io::{self, Write},
    path::{Path, PathBuf},
    rc::Rc,
};

use anstyle_svg::Term;
use anyhow::{Context as _, ensure};
use croft_cli::Output;

use crate::generated::File;

const EXAMPLE: &str = "manifests/examples/two-tenants";

/// `docs/croft.svg`.
pub(crate) fn files(root: &Path) -> anyhow::Result<Vec<File>> {
    let example = root.join(EXAMPLE);
    let printed = Printed::default();
    let args: [OsString; 4] = ["croft".into(), "simulate".into(), "-f".into(), example.into()];
    let code =
        croft_cli::run_with(args.into(), &mut Output::to(Box::new(printed.clone()), Box::new(io::stderr())));
    ensure!(code == 0, "croft simulate of {EXAMPLE} ended with {code}: see the error above");
    let text = String::from_utf8(printed.0.take()).context("what croft simulate printed isn't text")?;
    // The time that it took differs from run to run.
    let text: Vec<&str> = text.lines().filter(|line| !line.contains("planned in ")).collect();
    let text = text.join("\n");
    let contents = Term::new().render_svg(&format!("$ croft simulate -f {EXAMPLE}\n\n{text}"));
    Ok(vec![File { path: PathBuf::from("docs/croft.svg"), contents }])
}

/// What was written, shared with the writer.
#[derive(Clone, Default)]
struct Printed(Rc<RefCell<Vec<u8>>>);

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
