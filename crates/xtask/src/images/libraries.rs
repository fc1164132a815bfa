//! The packages of the distribution that a program's libraries come from.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

/// A library that an image carries.
#[derive(Debug)]
pub(crate) struct Library {
    /// The file as the loader looks for it.
    pub(crate) path: PathBuf,
    /// Its SHA-256, in hexadecimal digits.
    pub(crate) sha256: String,
    /// The package that installed it, if dpkg knows it.
    pub(crate) package: Option<DebianPackage>,
}

/// A package of Debian or a distribution made from it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DebianPackage {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) architecture: String,
    /// The distribution and its release, such as `debian` and `12`.
    pub(crate) distribution: (String, String),
}

impl DebianPackage {
    /// Its package URL.
    pub(crate) fn url(&self) -> String {
        let (id, release) = &self.distribution;
        // `+` and `:` of a version mean something else in a URL.
        let version = self.version.replace('+', "%2B").replace(':', "%3A");
        format!("pkg:deb/{id}/{}@{version}?arch={}&distro={id}-{release}", self.name, self.architecture)
    }
}

/// Looks each of `paths` up. On a system without dpkg no package is known.
///
/// # Errors
/// If a file can't be read.
pub(crate) fn describe(paths: &[PathBuf]) -> anyhow::Result<Vec<Library>> {
    let distribution = distribution(&fs::read_to_string("/etc/os-release").unwrap_or_default());
    paths
        .iter()
        .map(|path| {
            let contents =
                fs::read(path).with_context(|| format!("failed to read the library {}", path.display()))?;
            let sha256 = Sha256::digest(&contents).iter().map(|byte| format!("{byte:02x}")).collect();
            let package = distribution.as_ref().and_then(|distribution| package(path, distribution));
            Ok(Library { path: path.clone(), sha256, package })
        })
        .collect()
}

fn package(path: &Path, distribution: &(String, String)) -> Option<DebianPackage> {
    // Where /lib is a link to /usr/lib, dpkg knows a file by one of the two.
    let real = fs::canonicalize(path).ok()?;
    let bare = real.strip_prefix("/usr").map(|rest| Path::new("/").join(rest)).ok();
    let names = [Some(path.to_owned()), Some(real), bare];
    let owner = names.into_iter().flatten().find_map(|name| {
        let owner = dpkg(&["-S", name.to_str()?])?;
        Some(owner.lines().next()?.split(": ").next()?.to_owned())
    })?;
    let fields = dpkg(&["-W", "-f", "${Package} ${Version} ${Architecture}", &owner])?;
    let mut fields = fields.split(' ').map(str::to_owned);
    let (name, version, architecture) = (fields.next()?, fields.next()?, fields.next()?);
    Some(DebianPackage { name, version, architecture, distribution: distribution.clone() })
}

fn dpkg(arguments: &[&str]) -> Option<String> {
    let output = Command::new("dpkg-query").args(arguments).env("LC_ALL", "C").output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).ok()).flatten()
}

/// Id and release in the text of `/etc/os-release`.
fn distribution(text: &str) -> Option<(String, String)> {
    let fields: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once('=')).collect();
    let field = |name: &str| Some(fields.get(name)?.trim_matches('"').to_owned());
    Some((field("ID")?, field("VERSION_ID")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_url_escapes_the_version_and_names_the_release() {
        let distribution = distribution("NAME=\"Debian\"\nID=debian\nVERSION_ID=\"12\"\n").unwrap();
        let package = DebianPackage {
            name: "libc6".to_owned(),
            version: "1:2.36-9+deb12u10".to_owned(),
            architecture: "amd64".to_owned(),
            distribution,
        };
        assert_eq!(package.url(), "pkg:deb/debian/libc6@1%3A2.36-9%2Bdeb12u10?arch=amd64&distro=debian-12");
    }

    #[test]
    fn a_file_of_no_package_is_described_by_its_digest() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let found = describe(&[file.path().to_owned()]).unwrap();
        assert_eq!(found[0].package, None);
        assert_eq!(found[0].sha256, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
