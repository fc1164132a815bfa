//! An AWS account for scripts: moto, or none at all.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use croft_testkit::moto::Moto;

pub(crate) const WITHIN: Duration = Duration::from_secs(60);

/// A program that `make test` puts into the cache: `variable` names it, else it is at `path` there.
pub(crate) fn cached(variable: &str, path: &str) -> PathBuf {
    let found = croft_testkit::cached(variable, path).unwrap();
    assert!(found.is_file(), "{} is not there; `make test` installs it", found.display());
    found
}

/// The environment of a script: programs of its own on PATH, no credentials but the test's, no endpoint but the test's.
pub(crate) struct Account {
    pub(crate) folder: tempfile::TempDir,
    endpoint: String,
    _moto: Option<Moto>,
}

impl Account {
    /// With no AWS: each program on PATH records that it was run.
    pub(crate) fn offline() -> Self {
        let account = Self {
            folder: tempfile::tempdir().unwrap(),
            endpoint: "http://127.0.0.1:1".to_owned(),
            _moto: None,
        };
        for program in ["aws", "kubectl", "helm", "croft"] {
            account.program(program, "echo ran >> \"$(dirname \"$0\")/ran\"");
        }
        account
    }

    pub(crate) async fn moto() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Without this setting moto has none of the policies that AWS manages, which the nodes' role has.
        let settings = [("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")];
        let moto = Moto::start(folder.path(), &settings).await.unwrap();
        let account = Self { folder, endpoint: moto.url.clone(), _moto: Some(moto) };
        for program in ["kubectl", "helm", "croft"] {
            account.program(program, "exit 1");
        }
        account.program("aws", &Self::aws());
        account
    }

    /// The real command line of AWS. For SQS it takes no endpoint from the environment in most regions.
    pub(crate) fn aws() -> String {
        format!(
            "case $1 in sqs) set -- \"$@\" --endpoint-url \"${{AWS_ENDPOINT_URL_SQS:-$AWS_ENDPOINT_URL}}\";; esac\nexec {} \"$@\"",
            cached("CROFT_AWS_CLI", "aws-cli-1.46.3/bin/aws").display()
        )
    }

    /// Puts a program on PATH: the lines of a shell.
    pub(crate) fn program(&self, name: &str, lines: &str) {
        let path = self.folder.path().join("bin").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.folder.path())
            .env("TMPDIR", self.folder.path())
            .env("PATH", format!("{}:/usr/bin:/bin", self.folder.path().join("bin").display()))
            .env("AWS_ENDPOINT_URL", &self.endpoint)
            .env("AWS_ACCESS_KEY_ID", "AKIDTEST")
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .env("REGION", "us-east-1")
            .env("AWS_DEFAULT_REGION", "us-east-1")
            .env("REGISTRY", "registry.example/croft")
            .stdin(Stdio::null());
        command
    }

    /// Runs lines of a shell with the account's programs, which must succeed.
    pub(crate) fn shell(&self, lines: &str) {
        let output = self.command(Path::new("/bin/sh"), &["-ec", lines]).output().unwrap();
        assert!(output.status.success(), "{lines}: {}", text(&output));
    }

    /// The contents of the account.
    pub(crate) fn left(&self) -> String {
        let aws = self.folder.path().join("bin/aws");
        let list = |arguments: &str| {
            let arguments: Vec<&str> = arguments.split(' ').collect();
            let output = self.command(&aws, &arguments).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", text(&output));
            String::from_utf8(output.stdout).unwrap().replace("None", "").trim().to_owned()
        };
        [
            "iam list-roles --query Roles[].RoleName --output text",
            "iam list-instance-profiles --query InstanceProfiles[].InstanceProfileName --output text",
            "ec2 describe-launch-templates --query LaunchTemplates[].LaunchTemplateName --output text",
            "ec2 describe-instances --filters Name=instance-state-name,Values=pending,running,stopping,stopped --query Reservations[].Instances[].InstanceId --output text",
            "eks list-clusters --query clusters --output text",
            "sqs list-queues --query QueueUrls --output text",
            "ec2 describe-tags --filters Name=key,Values=croft.dev/discovery --query Tags[].ResourceId --output text",
        ]
        .map(list)
        .concat()
    }
}

pub(crate) fn text(output: &Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8(text).unwrap()
}
