//! The program: its arguments take effect in the simulated cloud.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::{fs, path::Path, process::Command, time::Duration};

use croft_testkit::{
    Process, Reaper, Recipe,
    wait::{Seen, until},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const BINARY: &str = env!("CARGO_BIN_EXE_ec2-sim");

/// Starts the program in `folder`; it ends with the test process.
async fn start(folder: &Path, reaper: &Reaper, arguments: &[String]) -> (Process, String) {
    let log = folder.join("ec2-sim.log");
    let process = Recipe::new("ec2-sim", BINARY, &log).arguments(arguments).start(reaper).unwrap();
    let address = until("ec2-sim's address", Duration::from_secs(60), async || {
        let text = fs::read_to_string(&log)?;
        let found = text.lines().find_map(|line| line.strip_prefix("http://")).map(str::to_owned);
        Ok::<_, std::io::Error>(Seen::from_option(found, text))
    })
    .await
    .unwrap();
    (process, address)
}

/// One POST. Returns status and body.
async fn post(address: &str, path: &str, kind: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: {kind}\r\nAuthorization: AWS4-HMAC-SHA256 Credential=k/d/us-east-1/ec2/aws4_request\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

async fn call(address: &str, action: &str) -> (u16, String) {
    post(address, "/", "application/x-www-form-urlencoded", &format!("Action={action}&Version=2016-11-15"))
        .await
}

#[tokio::test]
async fn arguments_configure_the_cloud() {
    let folder = tempfile::tempdir().unwrap();
    let reaper = Reaper::start().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let catalog = write(
        "catalog.json",
        r#"{"instanceTypes": [{"name": "x9.tiny", "arch": "amd64", "capacity": {"cpu": "1", "memory": "1Gi", "pods": "11"},
            "offerings": [{"zone": "us-east-1a", "capacityType": "on-demand", "price": 0.01}]}]}"#,
    );
    let faults =
        write("faults.yaml", "- action: DescribeSubnets\n  error: RequestLimitExceeded\n  times: 1\n");
    let arguments = ["--catalog", &catalog, "--faults", &faults, "--virtual-time", "--subnet-addresses", "7"];
    let arguments: Vec<String> = arguments.map(str::to_owned).into();
    let (_process, address) = start(folder.path(), &reaper, &arguments).await;

    let (status, body) = call(&address, "DescribeSubnets").await;
    assert!(status == 503 && body.contains("RequestLimitExceeded"), "{body}");
    let (status, body) = call(&address, "DescribeSubnets").await;
    assert!(status == 200 && body.contains("<availableIpAddressCount>7<"), "the rule hits once: {body}");
    let (_, body) = call(&address, "DescribeInstanceTypes").await;
    assert_eq!(body.matches("<instanceType>").count(), 1, "{body}");
    assert!(body.contains("x9.tiny"), "{body}");

    let advance = r#"{"do": "advance", "ms": 60000}"#;
    assert_eq!(post(&address, "/_control", "application/json", advance).await.0, 204);
    let unknown = r#"{"do": "advance", "minutes": 1}"#;
    let (status, body) = post(&address, "/_control", "application/json", unknown).await;
    assert!(status == 422 && body.contains("minutes"), "{status} {body}");
}

#[test]
fn unreadable_arguments_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong");
    fs::write(&path, "{").unwrap();
    for (flag, words) in
        [("--catalog", "failed to read the catalogue"), ("--faults", "failed to read the faults")]
    {
        let output = Command::new(BINARY).arg(flag).arg(&path).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{flag}");
        assert!(text.contains(words) && text.contains("wrong"), "{flag}: {text}");
    }
}
