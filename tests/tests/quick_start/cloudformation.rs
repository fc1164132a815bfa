//! manifests/aws: the CloudFormation template without lint and as a stack on moto, and the Terraform module around it.
//!
//! moto's stacks have no EKS resources, no queue policies and no attached policies: the linter alone reads these.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use croft_testkit::CroftOptions;
use serde_json::{Value, json};

use crate::account::{Account, cached, text};

const UID: &str = "11111111-2222-3333-4444-555555555555";
const ISSUER: &str = "oidc.eks.us-east-1.amazonaws.com/id/ABC";
/// The directory of the linter in the cache.
const LINTER: &str = "cfn-lint-1.58.0-hcl2-8.1.4/bin";
/// Bytes that the CloudFormation API takes as the body of a template. Source: "CloudFormation quotas", its user guide.
const MOST_BYTES: usize = 51_200;

fn file(name: &str) -> PathBuf {
    CroftOptions::find().unwrap().manifests.join("aws").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(file(name)).unwrap()
}

/// Runs a program and returns its output; it must succeed.
fn run(account: &Account, program: &Path, arguments: &[&str]) -> String {
    let output = account.command(program, arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    text(&output)
}

/// An answer of AWS's command line.
fn ask(account: &Account, line: &str) -> Value {
    let arguments: Vec<&str> = line.split(' ').collect();
    let answer = run(account, &account.folder.path().join("bin/aws"), &arguments);
    if answer.trim().is_empty() { Value::Null } else { serde_json::from_str(&answer).unwrap() }
}

/// Creates the stack of the template for the cluster `prod`, and returns its outputs.
fn create(account: &Account, parameters: &[(&str, &str)]) -> BTreeMap<String, String> {
    let given = [("ClusterName", "prod"), ("ClusterUid", UID)];
    let all = given.iter().chain(parameters);
    // JSON without spaces: a line is split at them.
    let values: Vec<Value> =
        all.map(|(key, value)| json!({"ParameterKey": key, "ParameterValue": value})).collect();
    let body = format!("file://{}", file("croft.yaml").display());
    let parameters = Value::from(values).to_string();
    ask(
        account,
        &format!(
            "cloudformation create-stack --stack-name croft --capabilities CAPABILITY_NAMED_IAM --template-body {body} \
             --parameters {parameters}"
        ),
    );
    let stack = &ask(account, "cloudformation describe-stacks --stack-name croft")["Stacks"][0];
    assert_eq!(stack["StackStatus"], "CREATE_COMPLETE", "{stack}");
    let outputs = stack["Outputs"].as_array().unwrap();
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    outputs.iter().map(|output| (word(&output["OutputKey"]), word(&output["OutputValue"]))).collect()
}

/// The last part of an ARN.
fn name(arn: &str) -> &str {
    arn.rsplit('/').next().unwrap()
}

/// The trust of a role.
fn trust(account: &Account, role: &str) -> Value {
    let found = ask(account, &format!("iam get-role --role-name {role}"));
    found["Role"]["AssumeRolePolicyDocument"]["Statement"].clone()
}

#[test]
fn template_has_no_lint_in_any_partition_and_fits_into_a_request() {
    let linter = cached("CROFT_CFN_LINT", &format!("{LINTER}/cfn-lint"));
    let template = file("croft.yaml");
    let regions = ["us-east-1", "eu-central-1", "us-gov-west-1", "cn-north-1"];
    let arguments = [&["--regions"][..], &regions[..], &["--", template.to_str().unwrap()][..]].concat();
    assert_eq!(run(&Account::offline(), &linter, &arguments), "");
    assert!(read("croft.yaml").len() < MOST_BYTES);
}

#[tokio::test]
async fn stack_grants_the_controller_the_policy_and_the_service_account_its_role() {
    let account = Account::moto().await;
    let outputs = create(&account, &[]);
    assert_eq!(outputs["NodeRoleName"], "croft-node");
    assert_eq!(outputs["NodeInstanceProfileName"], "croft-node");
    assert_eq!(outputs["InterruptionQueueName"], "croft-prod");
    let role = name(&outputs["ControllerRoleArn"]);

    // Every test of crates/cloud-aws/tests/sim/rights.rs holds for it.
    let granted = ask(&account, &format!("iam get-role-policy --role-name {role} --policy-name croft"));
    let policy = [
        ("CLUSTER_UID", UID),
        ("CLUSTER_NAME", "prod"),
        ("REGION", "us-east-1"),
        ("ACCOUNT", "123456789012"),
        ("NODE_ROLE", "croft-node"),
        (":QUEUE", ":croft-prod"),
    ]
    .into_iter()
    .fold(read("iam-policy.json"), |policy, (from, to)| policy.replace(from, to));
    assert_eq!(granted["PolicyDocument"], serde_json::from_str::<Value>(&policy).unwrap());
    let policies = ask(&account, &format!("iam list-role-policies --role-name {role}"));
    assert_eq!(policies["PolicyNames"], json!(["croft"]), "nothing else is granted");

    let trusted = json!([{
        "Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"},
        "Action": ["sts:AssumeRole", "sts:TagSession"],
        "Condition": {"StringEquals": {
            "aws:RequestTag/eks-cluster-arn": "arn:aws:eks:us-east-1:123456789012:cluster/prod",
            "aws:RequestTag/kubernetes-namespace": "croft-system",
            "aws:RequestTag/kubernetes-service-account": "croft-controller",
        }},
    }]);
    assert_eq!(trust(&account, role), trusted);
    let nodes = json!([{
        "Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole",
    }]);
    assert_eq!(trust(&account, "croft-node"), nodes);
    let profile = ask(&account, "iam get-instance-profile --instance-profile-name croft-node");
    assert_eq!(profile["InstanceProfile"]["Roles"][0]["RoleName"], "croft-node");
}

#[tokio::test]
async fn parameters_choose_irsa_other_images_a_boundary_and_a_name() {
    let account = Account::moto().await;
    let provider = format!("arn:aws:iam::123456789012:oidc-provider/{ISSUER}");
    let boundary = "arn:aws:iam::123456789012:policy/boundary";
    let images = ["a", "b"].map(|name| format!("arn:aws:ssm:us-east-1:123456789012:parameter/images/{name}"));
    let outputs = create(
        &account,
        &[
            ("OidcProviderArn", &provider),
            ("ImageParameterArns", &images.join(",")),
            ("RecordArchive", "croft-record/prod"),
            ("PermissionsBoundaryArn", boundary),
            ("NodeRoleName", "prod-nodes"),
            ("Namespace", "platform"),
            ("AccessEntry", "false"),
        ],
    );
    let role = name(&outputs["ControllerRoleArn"]);
    let trusted = json!([{
        "Effect": "Allow", "Principal": {"Federated": provider}, "Action": "sts:AssumeRoleWithWebIdentity",
        "Condition": {"StringEquals": {
            format!("{ISSUER}:aud"): "sts.amazonaws.com",
            format!("{ISSUER}:sub"): "system:serviceaccount:platform:croft-controller",
        }},
    }]);
    assert_eq!(trust(&account, role), trusted);
    let granted =
        ask(&account, &format!("iam get-role-policy --role-name {role} --policy-name image-parameters"));
    assert_eq!(granted["PolicyDocument"]["Statement"][0]["Resource"], json!(images));
    let granted =
        ask(&account, &format!("iam get-role-policy --role-name {role} --policy-name record-archive"));
    let statement = &granted["PolicyDocument"]["Statement"][0];
    assert_eq!(statement["Action"], json!("s3:PutObject"));
    assert_eq!(statement["Resource"], json!("arn:aws:s3:::croft-record/prod/*"));
    let granted = ask(&account, &format!("iam get-role-policy --role-name {role} --policy-name croft"));
    let statements = granted["PolicyDocument"]["Statement"].as_array().unwrap();
    let passes = statements.iter().find(|statement| statement["Action"] == "iam:PassRole").unwrap();
    assert_eq!(passes["Resource"], "arn:aws:iam::123456789012:role/prod-nodes");
    for role in [role, "prod-nodes"] {
        let found = ask(&account, &format!("iam get-role --role-name {role}"));
        assert_eq!(found["Role"]["PermissionsBoundary"]["PermissionsBoundaryArn"], boundary);
    }
}

#[tokio::test]
async fn queue_gets_the_events_that_the_controller_reads_and_no_others() {
    let account = Account::moto().await;
    create(&account, &[]);
    let queue = ask(&account, "sqs get-queue-url --queue-name croft-prod");
    let url = queue["QueueUrl"].as_str().unwrap();
    let attributes =
        ask(&account, &format!("sqs get-queue-attributes --queue-url {url} --attribute-names All"));
    assert_eq!(attributes["Attributes"]["SqsManagedSseEnabled"], "true");
    let events = [
        ("aws.ec2", "EC2 Spot Instance Interruption Warning", json!({"instance-id": "i-1"}), true),
        ("aws.ec2", "EC2 Instance Rebalance Recommendation", json!({"instance-id": "i-2"}), true),
        (
            "aws.ec2",
            "EC2 Instance State-change Notification",
            json!({"instance-id": "i-3", "state": "shutting-down"}),
            true,
        ),
        (
            "aws.ec2",
            "EC2 Instance State-change Notification",
            json!({"instance-id": "i-4", "state": "running"}),
            false,
        ),
        (
            "aws.health",
            "AWS Health Event",
            json!({"service": "EC2", "eventTypeCategory": "scheduledChange"}),
            true,
        ),
        (
            "aws.health",
            "AWS Health Event",
            json!({"service": "RDS", "eventTypeCategory": "scheduledChange"}),
            false,
        ),
        ("aws.health", "AWS Health Event", json!({"service": "EC2", "eventTypeCategory": "issue"}), false),
    ];
    let entries: Vec<Value> = events
        .iter()
        .map(|(source, kind, detail, _)| {
            json!({"Source": source, "DetailType": kind, "Detail": detail.to_string()})
        })
        .collect();
    let aws = account.folder.path().join("bin/aws");
    run(&account, &aws, &["events", "put-events", "--entries", &Value::from(entries).to_string()]);
    let received =
        ask(&account, &format!("sqs receive-message --queue-url {url} --max-number-of-messages 10"));
    let details: BTreeSet<String> = received["Messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| {
            let event: Value = serde_json::from_str(message["Body"].as_str().unwrap()).unwrap();
            event["detail"].to_string()
        })
        .collect();
    let reaching = events.iter().filter(|(.., reaches)| *reaches);
    let wanted: BTreeSet<String> = reaching.map(|(_, _, detail, _)| detail.to_string()).collect();
    assert_eq!(details, wanted);
}

/// A file of the Terraform module as JSON.
fn terraform(name: &str) -> Value {
    let reader = cached("CROFT_HCL2", &format!("{LINTER}/hcl2tojson"));
    let path = file("terraform").join(name);
    let arguments = ["--quiet", "--strip-string-quotes", "--no-explicit-blocks", path.to_str().unwrap()];
    serde_json::from_str(&run(&Account::offline(), &reader, &arguments)).unwrap()
}

/// The blocks of a kind with one label, by label.
fn blocks(file: &Value, kind: &str) -> BTreeMap<String, Value> {
    let blocks = file[kind].as_array().unwrap().iter().flat_map(|block| block.as_object().unwrap());
    blocks.map(|(label, body)| (label.clone(), body.clone())).collect()
}

/// A section of the template without functions, as JSON.
fn section(name: &str) -> BTreeMap<String, Value> {
    let template = read("croft.yaml");
    let (_, rest) = template.split_once(&format!("\n{name}:\n")).unwrap();
    let lines: Vec<&str> = rest.lines().take_while(|line| line.is_empty() || line.starts_with(' ')).collect();
    serde_saphyr::from_str(&lines.join("\n").replace(": !", ": \"\" #")).unwrap()
}

/// The name after `prefix` in an expression of Terraform.
fn named<'a>(expression: &'a str, prefix: &str) -> &'a str {
    let (_, rest) = expression.split_once(prefix).unwrap_or_else(|| panic!("{expression} lacks {prefix}"));
    rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap()
}

#[test]
fn terraform_passes_each_parameter_with_its_default_and_returns_each_output() {
    let main = terraform("main.tf");
    let stack = &blocks(&main, "resource")["aws_cloudformation_stack"]["croft"];
    assert_eq!(stack["template_body"], "${file(\"${path.module}/../croft.yaml\")}");
    assert_eq!(stack["capabilities"], json!(["CAPABILITY_NAMED_IAM"]));
    let variables = blocks(&terraform("variables.tf"), "variable");
    let passed = stack["parameters"].as_object().unwrap();
    let parameters = section("Parameters");
    assert_eq!(passed.keys().collect::<BTreeSet<_>>(), parameters.keys().collect());
    for (parameter, expression) in passed {
        let variable = &variables[named(expression.as_str().unwrap(), "var.")];
        let default = match &variable["default"] {
            Value::Null => Value::Null,
            Value::Bool(yes) => Value::from(yes.to_string()),
            Value::Array(none) if none.is_empty() => Value::from(""),
            other => other.clone(),
        };
        assert_eq!(default, parameters[parameter]["Default"], "{parameter}");
    }
    let returned: BTreeSet<String> = blocks(&terraform("outputs.tf"), "output")
        .values()
        .map(|output| named(output["value"].as_str().unwrap(), "outputs[\"").to_owned())
        .collect();
    assert_eq!(returned, section("Outputs").into_keys().collect());
}
