//! The entry points: from files or text to an [`Input`].

use std::path::PathBuf;

use crate::{
    error::{InputError, Problem},
    files::{self, Source},
    input::Input,
    kinds::{self, Findings},
};

/// How objects are read.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Namespace of namespaced objects that name none.
    pub namespace: String,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { namespace: "default".to_owned() }
    }
}

/// Reads every object in files and folders.
///
/// `paths` are files, folders (their `.yaml`, `.yml` and `.json` files, recursively, hidden ones left out), or `-` for
/// standard input. A second object of the same kind, namespace and name replaces the first, with a warning in
/// [`Input::warnings`].
///
/// ```
/// use croft_manifest::{LoadOptions, load};
///
/// let folder = std::env::temp_dir().join(format!("croft-manifest-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// std::fs::write(folder.join("team.yaml"), "{apiVersion: v1, kind: Namespace, metadata: {name: team}}")?;
/// let input = load(&[folder.clone()], &LoadOptions::default())?;
/// assert!(input.namespaces.get("", "team").is_some());
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`InputError::File`] and [`InputError::EmptyFolder`] for paths that can't be read, [`InputError::Empty`] for one without an
/// object, [`InputError::EmptyLists`] if all of them hold none but empty lists, [`InputError::Problems`] with all that the API
/// server would refuse.
pub fn load(paths: &[PathBuf], options: &LoadOptions) -> Result<Input, InputError> {
    let mut reading = Reading::new(options);
    for given in files::read(paths)? {
        let mut holds_object = false;
        for source in &given.sources {
            holds_object |= reading.read(source);
        }
        given.check(holds_object)?;
    }
    if reading.findings.is_nothing() {
        return Err(files::empty_lists(paths));
    }
    reading.finish()
}

/// Reads every object in `text`, which problems name `file`.
///
/// ```
/// use croft_manifest::{LoadOptions, parse};
///
/// let web = "
/// apiVersion: apps/v1
/// kind: Deployment
/// metadata: {name: web}
/// spec:
///   selector: {matchLabels: {app: web}}
///   template:
///     metadata: {labels: {app: web}}
///     spec: {containers: [{name: web, image: nginx}]}
/// ";
/// let input = parse("web.yaml", web, &LoadOptions::default())?;
/// let deployment = input.deployments.get("default", "web").ok_or("not read")?;
/// assert_eq!(deployment.spec.as_ref().and_then(|spec| spec.replicas), Some(1), "the API server's default");
///
/// // A field that this version doesn't know, as of a newer cluster, is ignored with a warning.
/// let input = parse("web.yaml", &web.replace("spec:\n  sel", "spec:\n  color: red\n  sel"), &LoadOptions::default())?;
/// let warning = "web.yaml:6: Deployment default/web: spec.color: there is no such field (ignored)";
/// assert_eq!(input.warnings, [warning]);
///
/// let error = parse("web.yaml", &web.replace("matchLabels", "matchLabel"), &LoadOptions::default()).unwrap_err();
/// let first = "web.yaml:6: Deployment default/web: spec.selector.matchLabel: there is no such field; \
///              did you mean \"matchLabels\"?";
/// assert_eq!(error.to_string().lines().next(), Some(first));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`InputError::Problems`] with all that the API server would refuse.
pub fn parse(file: &str, text: &str, options: &LoadOptions) -> Result<Input, InputError> {
    let mut reading = Reading::new(options);
    reading.read(&Source { file: file.into(), text: text.to_owned() });
    reading.finish()
}

/// Objects and findings so far.
struct Reading<'o> {
    options: &'o LoadOptions,
    input: Input,
    findings: Findings,
}

impl<'o> Reading<'o> {
    fn new(options: &'o LoadOptions) -> Self {
        Self { options, input: Input::default(), findings: Findings::default() }
    }

    /// Reads the objects of one text. False if it holds nothing but comments.
    fn read(&mut self, source: &Source) -> bool {
        kinds::read(source, &self.options.namespace, &mut self.input, &mut self.findings)
    }

    fn finish(self) -> Result<Input, InputError> {
        let Self { mut input, findings, .. } = self;
        input.warnings.extend(findings.foreign_warnings());
        let Findings { mut problems, unknown, .. } = findings;
        input.warnings.extend(unknown.warnings());
        input.make_pools_for_tenants();
        references(&input, &mut problems);
        if problems.is_empty() { Ok(input) } else { Err(InputError::Problems(problems)) }
    }
}

/// A NodeClaim names a TenantPool of the input, if it holds any.
fn references(input: &Input, problems: &mut Vec<Problem>) {
    for claim in &input.claims {
        if input.pools.get("", &claim.spec.pool).is_none() && !input.pools.is_empty() {
            problems.push(Problem {
                origin: claim.origin.clone(),
                object: format!("NodeClaim {}", claim.metadata.name.as_deref().unwrap_or_default()),
                field: "spec.pool".to_owned(),
                message: format!("there is no TenantPool {}", claim.spec.pool),
            });
        }
    }
}
