//! tools/make/eks-smoke.sh: its plan, its parts against moto, what it undoes, and its interruption on the lab.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use croft_testkit::{
    CroftOptions, Options, Part,
    wait::{Seen, until},
};
use croft_tests::{
    manifests::joined,
    stack::{EVENTUALLY, Stack, running},
};
use serde_json::json;

use crate::account::{Account, WITHIN, text};

/// The parts that need AWS alone, and of its services only what moto has.
const PARTS: &str = "cluster_role system_role node_role cluster system_nodes discovery queue cluster_uid";

/// The cluster that is created, and another one of the account.
const CLUSTER_UID: &str = "11111111-2222-3333-4444-555555555555";
const OTHER_UID: &str = "66666666-7777-8888-9999-000000000000";

fn script() -> PathBuf {
    CroftOptions::find().unwrap().manifests.join("../tools/make/eks-smoke.sh").canonicalize().unwrap()
}

/// Runs the script. Returns its exit code and both streams.
fn run(account: &Account, arguments: &[&str], variables: &[(&str, &str)]) -> (i32, String) {
    let output = account.command(&script(), arguments).envs(variables.iter().copied()).output().unwrap();
    (output.status.code().unwrap_or(-1), text(&output))
}

/// The lines of a shell by which Croft launches an instance in the cluster, as far as AWS is concerned.
fn launching(cluster_uid: &str, role: &str) -> String {
    let tagged = |kind: &str| {
        format!(
            "--tag-specifications 'ResourceType={kind},Tags=[{{Key=croft.dev/cluster,Value={cluster_uid}}}]'"
        )
    };
    let name = format!("croft-{cluster_uid}");
    [
        format!(
            "aws iam create-instance-profile --instance-profile-name {name} --path /croft/{cluster_uid}/"
        ),
        format!("aws iam add-role-to-instance-profile --instance-profile-name {name} --role-name {role}"),
        format!(
            "aws ec2 create-launch-template --launch-template-name {name} --launch-template-data InstanceType=m5.large {}",
            tagged("launch-template")
        ),
        format!(
            "aws ec2 run-instances --image-id ami-12c6146b --instance-type m5.large {}",
            tagged("instance")
        ),
    ]
    .join("\n")
}

/// kubectl of a cluster without Croft. An instance is launched when its UID is asked for, so that the undo finds all of it.
fn kubectl_that_launches() -> String {
    format!(
        "case \"$*\" in 'get crd '*) exit 0;; 'get namespace kube-system '*) ;; *) exit 1;; esac\nset -e\n{{\n{}\n}} >&2\necho {CLUSTER_UID}",
        launching(CLUSTER_UID, "croft-smoke-node")
    )
}

/// A command's service and noun, and the names that it gives: `create-role` and `delete-role` of one role are alike.
fn subject(line: &str, verbs: &[&str]) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (program, service, operation) = (*words.first()?, *words.get(1)?, *words.get(2)?);
    if program == "helm" {
        return verbs.contains(&service).then(|| format!("helm {operation}"));
    }
    let (verb, noun) = operation.split_once('-')?;
    let names = words.iter().filter(|word| word.contains("croft-smoke") && !word.contains('{'));
    let first = names.clone().find(|name| !name.contains('/')).or_else(|| names.clone().next());
    (program == "aws" && verbs.contains(&verb)).then(|| format!("{service} {noun} {}", first.unwrap_or(&"")))
}

#[test]
fn plan_contacts_nothing_and_undoes_each_creation() {
    let account = Account::offline();
    let (code, text) = run(&account, &["--plan"], &[]);
    assert_eq!(code, 0, "{text}");
    assert!(!account.folder.path().join("bin/ran").exists(), "a plan runs nothing: {text}");
    let (made, undone) = text.split_once("# undone at the end").unwrap();
    let undone: BTreeSet<String> =
        undone.lines().filter_map(|line| subject(line, &["delete", "detach", "uninstall"])).collect();
    let created: Vec<String> =
        made.lines().filter_map(|line| subject(line, &["create", "attach", "put", "install"])).collect();
    assert!(created.len() > 15, "{created:?}");
    for subject in created {
        // An association is deleted by the id that a list shows, a queue by its address.
        let of_the_kind = subject.starts_with("eks pod-identity") || subject.starts_with("sqs queue");
        let kind = subject.rsplit_once(' ').unwrap().0;
        let found =
            undone.contains(&subject) || of_the_kind && undone.iter().any(|undo| undo.starts_with(kind));
        assert!(found, "{subject} is not undone: {undone:#?}");
    }
    let after = text.split_once("# undone at the end").unwrap().1;
    assert_in_order(after, &DELETED_IN_ORDER);
    for checked in ["aws ec2 describe-volumes", "aws sqs list-queues", "aws eks list-clusters"] {
        assert!(after.contains(checked), "{checked} is no check of the end: {after}");
    }
}

/// A role that an instance profile holds can't be deleted, and a controller that runs would create both again.
const DELETED_IN_ORDER: [&str; 6] = [
    "ec2 terminate-instances",
    "ec2 delete-launch-template",
    "iam remove-role-from-instance-profile",
    "iam delete-instance-profile",
    "iam delete-role --role-name croft-smoke-node",
    "iam list-instance-profiles",
];

/// Each of `calls` is in `text` after the one before.
fn assert_in_order(text: &str, calls: &[&str]) {
    let mut rest = text;
    for call in calls {
        let found = rest.split_once(call);
        rest =
            found.unwrap_or_else(|| panic!("{call} is missing, or not after the calls before it: {text}")).1;
    }
}

#[test]
fn what_it_needs_and_what_it_may_cost_is_said_before_anything_is_done() {
    let account = Account::offline();
    for (variables, says) in [
        ([("COST_CAP", "0.5"), ("MINUTES", "60")], "it may cost $1.70, which is above COST_CAP=0.5"),
        ([("REGISTRY", ""), ("MINUTES", "60")], "no images: push those of 'make images' and write REGISTRY="),
        ([("REGION", ""), ("AWS_DEFAULT_REGION", "")], "no region: write REGION=eu-central-1"),
    ] {
        let (code, text) = run(&account, &[], &variables);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains(says), "{says}\n{text}");
    }
    assert!(!account.folder.path().join("bin/ran").exists());
    let (code, text) = run(&account, &["--help"], &[]);
    assert_eq!((code, text.contains("--help is no option: write --plan")), (2, true), "{text}");
    fs::remove_file(account.folder.path().join("bin/helm")).unwrap();
    let (code, text) = run(&account, &[], &[]);
    assert!(code == 2 && text.contains("helm is missing: install it and put it on PATH"), "{text}");
}

#[tokio::test]
async fn parts_run_on_aws_and_leave_nothing_that_croft_created_for_this_cluster() {
    let account = Account::moto().await;
    assert_eq!(account.left(), "");
    account.shell("aws iam create-role --role-name other --assume-role-policy-document '{}'");
    account.shell(&launching(OTHER_UID, "other"));
    let others = account.left();
    account.program("kubectl", &kubectl_that_launches());
    let calls = account.folder.path().join("calls");
    account.program("aws", &format!("echo \"$*\" >> {}\n{}", calls.display(), Account::aws()));
    let (code, text) = run(&account, &[], &[("STEPS", PARTS)]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("undoing cluster_role") && text.contains("nothing is left"), "{text}");
    assert_in_order(&fs::read_to_string(&calls).unwrap(), &DELETED_IN_ORDER);
    assert_eq!(account.left(), others, "{text}");

    // A Croft that is there already isn't removed.
    account.program("kubectl", "echo customresourcedefinition.apiextensions.k8s.io/tenants.croft.dev");
    let given = [("STEPS", "node_role cluster_uid"), ("CLUSTER", "prod"), ("KUBECONFIG", "/nowhere")];
    let (code, text) = run(&account, &[], &given);
    assert!(code == 1 && text.contains("Croft is in the cluster prod already"), "{text}");
    assert_eq!(account.left(), others, "{text}");
}

#[tokio::test]
async fn a_template_that_stays_or_cannot_be_listed_is_told() {
    let account = Account::moto().await;
    account.program("kubectl", &kubectl_that_launches());
    let steps = [("STEPS", "node_role cluster_uid"), ("SETTLE", "1")];
    for (case, says) in [
        ("delete-launch-template*) exit 0", "left: launch templates lt-"),
        ("describe-launch-templates*) exit 255", "failed to list launch templates: some may be left"),
    ] {
        account.program("aws", &format!("case \"$*\" in *{case};; esac\n{}", Account::aws()));
        let (code, text) = run(&account, &[], &steps);
        assert_eq!(code, 1, "{text}");
        assert!(text.contains(says) && !text.contains("nothing is left"), "{says}\n{text}");
        account.program("aws", &Account::aws());
        account.shell(&format!("aws ec2 delete-launch-template --launch-template-name croft-{CLUSTER_UID}"));
        assert_eq!(account.left(), "", "{text}");
    }
}

#[tokio::test]
async fn teardown_after_the_cluster_is_gone_finds_its_tag_by_the_nodes_role() {
    let account = Account::moto().await;
    account.shell("aws iam create-role --role-name croft-smoke-node --assume-role-policy-document '{}'");
    account.shell(&launching(CLUSTER_UID, "croft-smoke-node"));
    let (code, text) =
        run(&account, &["--teardown"], &[("STEPS", "node_role cluster discovery queue cluster_uid croft")]);
    assert_eq!((code, account.left().as_str()), (0, ""), "{text}");
    assert!(text.contains("nothing is left"), "{text}");
}

#[tokio::test]
async fn parts_leave_nothing_when_one_fails_or_they_are_stopped() {
    let account = Account::moto().await;
    // A step fails half-way.
    let few = [("STEPS", "node_role queue cluster_role")];
    let fails = "case \"$*\" in *sqs\\ create-queue*) exec 1>&2; echo refused; exit 254;; esac\n";
    account.program("aws", &(fails.to_owned() + &Account::aws()));
    let (code, text) = run(&account, &[], &few);
    assert_eq!(code, 254, "{text}");
    assert!(text.contains("failed at step queue") && text.contains("undoing node_role"), "{text}");
    assert!(!text.contains("undoing cluster_role"), "it was not begun: {text}");
    assert_eq!(account.left(), "", "{text}");

    // It is asked to stop in the middle of a call.
    let reached = account.folder.path().join("reached");
    let hangs =
        format!("case \"$*\" in *sqs\\ create-queue*) touch {}; exec sleep 600;; esac\n", reached.display());
    account.program("aws", &(hangs + &Account::aws()));
    let started = || {
        let mut command = account.command(&script(), &[]);
        command.envs(few).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    for signal in ["TERM", "KILL"] {
        let mut child = started();
        until("the call that hangs", WITHIN, async || {
            Ok::<_, std::io::Error>(Seen::from_option(reached.exists().then_some(()), "not yet"))
        })
        .await
        .unwrap();
        fs::remove_file(&reached).unwrap();
        let killed = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let status = child.wait().unwrap();
        if signal == "TERM" {
            assert_eq!((status.code(), account.left().as_str()), (Some(143), ""));
        } else {
            // Nothing could be undone: the next command does it.
            assert!(account.left().contains("croft-smoke-node"));
            account.program("aws", &Account::aws());
            let (code, text) = run(&account, &["--teardown"], &few);
            assert_eq!((code, account.left().as_str()), (0, ""), "{text}");
        }
    }
}

#[tokio::test]
async fn its_interruption_replaces_the_instance_as_a_real_one_does() {
    let options = CroftOptions::find().unwrap().flag(Part::Controller, "--interruption-queue=croft");
    let mut stack = Stack::start_with(Options::default(), options).await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    let platform = stack.manifest("examples/two-tenants/platform.yaml").unwrap();
    stack.plane.apply(&platform).await.unwrap();
    let pod = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": "1"}}}]},
    });
    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "tenant-b"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": pod},
    });
    stack.plane.apply(&joined(&[web])).await.unwrap();
    running(&client, "tenant-b", 1).await.unwrap();

    let account = Account::moto().await;
    let cloud = format!("http://{}", stack.croft.address(Part::Cloud).unwrap());
    let kubectl = format!(
        "exec {} \"$@\"",
        croft_testkit::Assets::from_env().unwrap().binary("kubectl").unwrap().display()
    );
    account.program("kubectl", &kubectl);
    let mut command = account.command(&script(), &[]);
    command
        .envs([("STEPS", "interruption"), ("NAME", "croft"), ("AWS_ENDPOINT_URL_SQS", &cloud)])
        .envs([("AWS_ENDPOINT_URL_EC2", cloud.as_str()), ("CLUSTER", "lab")])
        .env("AWS_ACCESS_KEY_ID", "lab")
        .env("KUBECONFIG", stack.plane.admin_kubeconfig());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = tokio::time::timeout(4 * EVENTUALLY, output).await.unwrap().unwrap();
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("nothing is left"), "{said}");
    running(&client, "tenant-b", 1).await.unwrap();
}
