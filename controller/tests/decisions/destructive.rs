//! The page docs/destructive-actions.md has a row for each place that ends, rewrites or releases something, and
//! no other rows.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Where the table is.
const PAGE: &str = "docs/destructive-actions.md";
const SECTION: &str = "# Destructive actions";
/// Sources that act on the cluster or on the cloud.
const SOURCES: [&str; 5] =
    ["controller/src", "webhook/src", "crates/runtime/src", "crates/cloud-aws/src", "crates/cli/src"];
/// The parts of destructive actions: its own decisions, and the calls that any new one would have to make.
const PRIMITIVES: [&str; 24] = [
    // Decisions of the engine.
    "Verb::Delete {",
    "Verb::Evict {",
    "Action::Terminate {",
    "Action::Sweep(",
    "node_patch::cordon(",
    "node_patch::remove_finalizer(",
    "delete_claim(",
    "\"finalizers\":",
    // Decisions about tenants.
    "write_template(",
    "rewrite_object(",
    "delete_object(",
    // Calls to the API server and the cloud.
    ".delete(",
    ".evict(",
    "delete_collection(",
    "Request::delete",
    "Method::DELETE",
    "terminate_instances()",
    "stop_instances()",
    "delete_tags()",
    "delete_launch_template()",
    "iam.delete(",
    "iam.remove_role(",
    "delete_message_batch()",
    "purge_queue()",
];
/// Lines that read a decision instead of making one.
const READS: [&str; 6] = ["=>", "matches!(", "{ .. }", ", .. }", "else {", "let ("];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// The function that a line begins, if it begins one.
fn function(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let begins = before.is_empty() || ["pub", "async", "const"].iter().any(|word| before.starts_with(word));
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (begins && !name.is_empty()).then_some(name)
}

/// Places with a primitive, as `file function`, with files relative to the repository.
fn places(text: &str, file: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut current = "";
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]"
            && lines.clone().find(|l| !l.starts_with("#[")).is_some_and(|l| l.starts_with("mod "))
        {
            break;
        }
        let line = line.trim();
        if let Some(name) = function(line) {
            current = name;
        }
        let reads = READS.iter().any(|read| line.contains(read));
        let is_code = !line.starts_with("//") && !line.contains("\"finalizers\": [FINALIZER]");
        if is_code && !reads && PRIMITIVES.iter().any(|primitive| line.contains(primitive)) {
            found.insert(format!("{file} {current}"));
        }
    }
    found
}

fn in_code() -> BTreeSet<String> {
    let root = root();
    let mut paths = Vec::new();
    for folder in SOURCES {
        files(&root.join(folder), &mut paths);
    }
    let of = |path: &PathBuf| {
        let file = path.strip_prefix(&root).unwrap().display().to_string();
        places(&fs::read_to_string(path).unwrap(), &file)
    };
    paths.iter().flat_map(of).collect()
}

/// The places that the table's second column names, each between backticks.
fn on_page() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(PAGE)).unwrap();
    let section = text.split_once(SECTION).expect("the section is there").1;
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| action"));
    let mut named = BTreeSet::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        assert_eq!(cells.len(), 5, "action, places, evidence, how it can be wrong, cap: {row}");
        assert!(cells.iter().all(|cell| !cell.trim().is_empty()), "a row says everything: {row}");
        let places = cells[1].split('`').skip(1).step_by(2).map(str::to_owned);
        named.extend(places);
    }
    named
}

#[test]
fn the_page_has_a_row_for_every_destructive_action_and_no_other() {
    let (code, page) = (in_code(), on_page());
    let missing: Vec<_> = code.difference(&page).collect();
    let stale: Vec<_> = page.difference(&code).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "{PAGE}, section Destructive actions: without a row, so say on which evidence it rests, how that can be wrong and what \
         caps it: {missing:#?}; in a row and not in the code: {stale:#?}"
    );
}

#[test]
fn a_new_action_is_noticed() {
    let text = "
        // Verb::Delete { a comment }
        pub(super) async fn quiet(a: u8) -> u8 { match verb { Verb::Delete { .. } => 1 } }
        fn loud() {
            ctx.request(delete_claim(name, claim));
        }
        async fn direct(client: &Client) {
            api.delete(\"x\", &params).await
        }
";
    let found = places(text, "f.rs");
    assert_eq!(found, ["f.rs direct", "f.rs loud"].map(str::to_owned).into());
    assert_eq!(places(&format!("#[cfg(test)]\nmod tests {{\n{text}"), "f.rs"), BTreeSet::new());
}
