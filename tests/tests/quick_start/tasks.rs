//! docs/tasks: the commands of each page, one page after the other on one lab. A page removes what it made.

use std::{fs, path::Path};

use croft_testkit::{CroftOptions, Options};
use croft_tests::{page, stack::Stack};

const FOLDER: &str = "docs/tasks";

#[tokio::test]
#[ignore = "takes minutes: `make docs-test` runs it"]
async fn commands_of_the_task_pages_succeed_and_leave_nothing() {
    let stack = Stack::start_with(Options::default(), CroftOptions::find().unwrap()).await.unwrap();
    let folder = page::root().unwrap().join(FOLDER);
    let mut names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let path = Path::new(FOLDER).join(name);
        if let Err(error) = page::run(&stack, &path).await {
            panic!("{error:#}");
        }
        let kinds = "tenants,tenantpools,ec2nodeclasses,croftconfigs,nodeclaims";
        let left = stack.plane.kubectl(["get", kinds, "--output", "name"]).await.unwrap();
        assert_eq!(left, "", "{} leaves objects", path.display());
    }
}
