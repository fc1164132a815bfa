//! docs/quick-start.md: the lab's commands on the lab, and AWS's against moto as far as it has their services.

use std::fs;

use croft_testkit::{CroftOptions, Options};
use croft_tests::{cli::croft, stack::Stack};

use crate::account::{Account, text};

/// The blocks of a language on the page.
fn blocks(language: &str) -> Vec<String> {
    let manifests = CroftOptions::find().unwrap().manifests;
    let page = fs::read_to_string(manifests.join("../docs/quick-start.md")).unwrap();
    let start = format!("\n```{language}\n");
    page.split(start.as_str()).skip(1).map(|rest| rest.split("\n```").next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn commands_of_the_lab_give_two_tenants_their_nodes_and_remove_one_tenants() {
    let stack = Stack::start_with(Options::default(), CroftOptions::find().unwrap()).await.unwrap();
    let manifests = stack.croft.manifests().display().to_string();
    let mut printed = Vec::new();
    for line in blocks("sh").iter().flat_map(|block| block.lines()) {
        let line = line.replace("manifests/", &format!("{manifests}/"));
        let (program, arguments) = line.split_once(' ').unwrap();
        printed.push(match program {
            "kubectl" => stack.plane.kubectl(arguments.split_whitespace()).await.unwrap(),
            "croft" => {
                let (code, text) = croft(&stack.plane, arguments).await.unwrap();
                assert_eq!(code, 0, "{line}: {text}");
                text
            }
            other => panic!("docs/quick-start.md runs {other}: run it here as well"),
        });
    }
    let tops: Vec<&String> =
        printed.iter().filter(|text| text.contains("pool-a") && text.contains("$/H")).collect();
    let [before, after] = tops.as_slice() else { panic!("{printed:#?}") };
    assert!(before.contains("tenant-b") && before != after, "{before}\n{after}");
}

#[tokio::test]
async fn commands_of_aws_run_in_the_order_of_the_page() {
    let account = Account::moto().await;
    account.program("kubectl", "echo 11111111-2222-3333-4444-555555555555");
    let cluster = "aws eks create-cluster --name prod --role-arn arn:aws:iam::123456789012:role/x \
                   --resources-vpc-config subnetIds=$(aws ec2 describe-subnets --query 'Subnets[0].SubnetId' --output text)\n";
    let commands = blocks("bash").join("\n").replace("AWS_REGION=eu-central-1", "AWS_REGION=us-east-1");
    let root = CroftOptions::find().unwrap().manifests.join("..");
    let file = account.folder.path().join("commands");
    fs::write(&file, format!("set -eu\n{cluster}{commands}\n")).unwrap();
    let bash = std::path::Path::new("/bin/bash");
    let output = account.command(bash, &[file.to_str().unwrap()]).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));

    let aws = account.folder.path().join("bin/aws");
    let ask = |line: &str| {
        let arguments: Vec<&str> = line.split(' ').collect();
        text(&account.command(&aws, &arguments).output().unwrap())
    };
    let stack = ask("cloudformation describe-stacks --stack-name croft-prod");
    assert!(stack.contains("CREATE_COMPLETE"), "{stack}");
    let role = ask("iam get-role --role-name croft-node");
    assert!(role.contains("role/croft-node"), "the role of the example's EC2NodeClass: {role}");
    let queue = ask("sqs get-queue-url --queue-name croft-prod");
    assert!(queue.contains("/croft-prod"), "the queue of the chart's value: {queue}");
    let tagged = ask("ec2 describe-tags --filters Name=key,Values=croft.dev/discovery");
    assert!(tagged.contains("subnet-"), "{tagged}");
}
