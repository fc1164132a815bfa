//! docs/quick-start.md: the lab's commands on the lab, and AWS's against moto as far as it has their services.

use std::{fs, path::Path};

use croft_testkit::{CroftOptions, Options};
use croft_tests::{page, stack::Stack};

use crate::account::{Account, text};

const PAGE: &str = "docs/quick-start.md";
/// Where a release is published.
const ADDRESS: &str = include_str!("../../../release/address.env");

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
    account.program("kubectl", "echo 11111111-2222-3333-4444-555555555555");
    // The registry is not in the account: what is pushed, and where, is read here.
    let pushed = account.folder.path().join("pushed");
    account.program("skopeo", &format!("cat > /dev/null\necho \"$*\" >> {}", pushed.display()));
    let installed = account.folder.path().join("installed");
    account.program("helm", &format!("echo \"$*\" >> {0}\ncat >> {0}", installed.display()));
    let cluster = "aws eks create-cluster --name prod --role-arn arn:aws:iam::123456789012:role/x \
                   --resources-vpc-config subnetIds=$(aws ec2 describe-subnets --query 'Subnets[0].SubnetId' --output text)\n";
    let commands = blocks("bash").join("\n").replace("AWS_REGION=eu-central-1", "AWS_REGION=us-east-1");
    let root = page::root().unwrap();
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
    let version = env!("CARGO_PKG_VERSION");
    let registry = "123456789012.dkr.ecr.us-east-1.amazonaws.com";
    let mut wanted = format!("login --username AWS --password-stdin {registry}\n");
    for image in ["croft-webhook", "croft-controller", "croft-page"] {
        let repository = ask(&format!("ecr describe-repositories --repository-names croft/{image}"));
        assert!(repository.contains(&format!("{registry}/croft/{image}")), "{repository}");
        wanted += &format!("copy oci:target/images/{image} docker://{registry}/croft/{image}:{version}\n");
    }
    assert_eq!(fs::read_to_string(&pushed).unwrap(), wanted);
    let installed = fs::read_to_string(&installed).unwrap();
    let published = ADDRESS.lines().find_map(|line| line.strip_prefix("REGISTRY=")).unwrap();
    let wanted = [
        format!(
            "install croft-crds oci://{published}/croft-crds --namespace croft-system --create-namespace"
        ),
        format!("imageRegistry: {published}"),
        "  settings: {clusterName: prod, awsRegion: us-east-1, interruptionQueue: croft-prod}".to_owned(),
    ];
    for line in &wanted {
        assert!(installed.lines().any(|one| one == line.as_str()), "{installed}");
    }
    let tagged = ask("ec2 describe-tags --filters Name=key,Values=croft.dev/discovery");
    assert!(tagged.contains("subnet-"), "{tagged}");
}
