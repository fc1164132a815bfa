//! docs/quick-start.md: the lab's commands on the lab, and AWS's against moto as far as it has their services.

use std::{fs, path::Path};

use croft_testkit::{CroftOptions, Options};
use croft_tests::{page, stack::Stack};

use crate::account::{Account, text};

const PAGE: &str = "docs/quick-start.md";

/// The blocks of a language on the page.
fn blocks(language: &str) -> Vec<String> {
    let page = fs::read_to_string(page::root().unwrap().join(PAGE)).unwrap();
    let start = format!("\n```{language}\n");
    page.split(start.as_str()).skip(1).map(|rest| rest.split("\n```").next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn commands_of_the_lab_give_two_tenants_their_nodes_and_remove_one_tenants() {
    let stack = Stack::start_with(Options::default(), CroftOptions::find().unwrap()).await.unwrap();
    let printed = page::run(&stack, Path::new(PAGE)).await.unwrap();
    let tops: Vec<&str> = printed.split("TENANT ").skip(1).collect();
    let [before, after] = tops.as_slice() else { panic!("{printed}") };
    let row = |top: &str| top.lines().find(|line| line.starts_with("tenant-b ")).map(str::to_owned);
    assert!(row(before).is_some() && row(before) != row(after), "{printed}");
}

#[tokio::test]
async fn commands_of_aws_run_in_the_order_of_the_page() {
    let account = Account::moto().await;
    // Calls that moto lacks are only counted.
    let counted = "case \"$*\" in *access-entry*|*pod-identity*) echo \"$2\" >> \"$(dirname \"$0\")/counted\"; exit 0;; esac\n";
    account.program("aws", &(counted.to_owned() + &Account::aws()));
    account.program("kubectl", "echo 11111111-2222-3333-4444-555555555555");
    let cluster = "aws eks create-cluster --name prod --role-arn arn:aws:iam::123456789012:role/x \
                   --resources-vpc-config subnetIds=$(aws ec2 describe-subnets --query 'Subnets[0].SubnetId' --output text)\n";
    let commands = blocks("bash").join("\n").replace("AWS_REGION=eu-central-1", "AWS_REGION=us-east-1");
    let root = page::root().unwrap();
    let file = account.folder.path().join("commands");
    fs::write(&file, format!("set -eu\n{cluster}{commands}\n")).unwrap();
    let bash = std::path::Path::new("/bin/bash");
    let output = account.command(bash, &[file.to_str().unwrap()]).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let counted = fs::read_to_string(account.folder.path().join("bin/counted")).unwrap();
    assert_eq!(counted, "create-access-entry\ncreate-pod-identity-association\n");

    let aws = account.folder.path().join("bin/aws");
    let ask = |arguments: &[&str]| text(&account.command(&aws, arguments).output().unwrap());
    let policy =
        ask(&["iam", "get-role-policy", "--role-name", "croft-controller", "--policy-name", "croft"]);
    for placeholder in ["CLUSTER_UID", "CLUSTER_NAME", "REGION", "ACCOUNT", "NODE_ROLE", ":QUEUE"] {
        assert!(!policy.contains(placeholder), "{placeholder}: {policy}");
    }
    assert!(policy.contains(":croft-prod\"") && policy.contains("role/croft-node\""), "{policy}");
    let targets = ask(&["events", "list-targets-by-rule", "--rule", "croft-prod"]);
    assert!(targets.contains("arn:aws:sqs:us-east-1:123456789012:croft-prod"), "{targets}");
}
