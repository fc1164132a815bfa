//! Mutation of inputs: as bytes, and as JSON documents that stay documents.

use croft_simkit::Random;
use serde_json::{Map, Value};

/// Words that mean something to what is tried.
const WORDS: [&str; 44] = [
    "node-pool",
    "pool-a",
    "pool-b",
    "pool-a-gpu",
    "croft.dev/pool",
    "croft.dev/injected",
    "tenant-a",
    "tenant-b",
    "non-tenant",
    "kube-system",
    "node-restriction.kubernetes.io/pool",
    "Exists",
    "Equal",
    "Lt",
    "DoesNotExist",
    "NotIn",
    "In",
    "NoExecute",
    "NoSchedule",
    "node-a",
    "node-x",
    "system:kube-scheduler",
    "system:node:node-a",
    "kubernetes.io/config.mirror",
    "CREATE",
    "UPDATE",
    "DELETE",
    "matchLabels",
    "matchExpressions",
    "values",
    "team",
    "CONNECT",
    "Pod",
    "DaemonSet",
    "Binding",
    "binding",
    "status",
    "ephemeralcontainers",
    "",
    "\u{0}",
    "\\",
    "~1",
    "/",
    "\u{10ffff}",
];

/// Bytes that end or begin things.
const TOKENS: [&[u8]; 16] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b":",
    b",",
    b"null",
    b"true",
    b"1e999",
    b"-0",
    b"18446744073709551616",
    b"\\u0000",
    b"\\ud800",
    b"\xff",
    b"\xef\xbb\xbf",
];

/// Longer inputs than this are cut: what is about length has tests of its own.
const LONGEST: usize = 64 << 10;

/// `input`, changed in a few places, some of them by parts of others in `pool`.
pub fn mutated(input: &[u8], pool: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = input.to_vec();
    for _ in 0..=random.index(4) {
        let document = if random.index(4) == 0 { None } else { serde_json::from_slice::<Value>(&input).ok() };
        match document {
            Some(mut document) => {
                let other = random.pick(pool).and_then(|other| serde_json::from_slice::<Value>(other).ok());
                change(&mut document, other.as_ref(), random);
                input = document.to_string().into_bytes();
                if random.index(8) == 0 {
                    double_a_key(&mut input, random);
                }
            }
            None => bytes(&mut input, pool, random),
        }
    }
    input.truncate(LONGEST);
    input
}

fn bytes(input: &mut Vec<u8>, pool: &[Vec<u8>], random: &mut Random) {
    let at = random.index(input.len().saturating_add(1));
    let end = at.saturating_add(random.index(64)).min(input.len());
    match random.index(6) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << random.index(8);
            }
        }
        1 => drop(input.drain(at..end)),
        2 => {
            let again = input.get(at..end).unwrap_or_default().to_vec();
            drop(input.splice(at..at, again));
        }
        3 => {
            let token = random.pick(&TOKENS).copied().unwrap_or_default();
            drop(input.splice(at..end.min(at.saturating_add(random.index(3))), token.iter().copied()));
        }
        4 => {
            let other = random.pick(pool).cloned().unwrap_or_default();
            let from = random.index(other.len().saturating_add(1));
            input.truncate(at);
            input.extend(other.get(from..).unwrap_or_default());
        }
        _ => {
            let word = random.pick(&WORDS).copied().unwrap_or_default();
            drop(input.splice(at..at, word.bytes()));
        }
    }
}

/// Writes some key of the text a second time, which no JSON value can hold.
fn double_a_key(input: &mut Vec<u8>, random: &mut Random) {
    let opens: Vec<usize> =
        input.iter().enumerate().filter(|(_, byte)| **byte == b'{').map(|(at, _)| at).collect();
    let Some(at) = random.pick(&opens).copied() else { return };
    let key =
        random.pick(&["kind", "uid", "spec", "namespace", "nodeSelector", "tolerations", "object"]).copied();
    let text = format!("\"{}\":null,", key.unwrap_or_default());
    let after = at.saturating_add(1);
    if input.get(after) != Some(&b'}') {
        drop(input.splice(after..after, text.into_bytes()));
    }
}

/// Changes one place of `document`.
fn change(document: &mut Value, other: Option<&Value>, random: &mut Random) {
    let paths = paths(document);
    let Some(path) = random.pick(&paths).cloned() else { return };
    let graft = other.and_then(|other| {
        let theirs = self::paths(other);
        other.pointer(random.pick(&theirs)?).cloned()
    });
    let Some(place) = document.pointer_mut(&path) else { return };
    let word = || Value::String;
    match (random.index(8), &mut *place) {
        (0, _) => *place = Value::Null,
        (1, _) => *place = word()(random.pick(&WORDS).copied().unwrap_or_default().to_owned()),
        (2 | 3, place) => *place = graft.unwrap_or(Value::Null),
        (4, Value::Object(map)) => {
            let keys: Vec<String> = map.keys().cloned().collect();
            if let Some(key) = random.pick(&keys) {
                map.remove(key);
            }
        }
        (_, Value::Object(map)) => {
            let key = random.pick(&WORDS).copied().unwrap_or_default();
            map.insert(key.to_owned(), graft.unwrap_or_else(|| Value::Object(Map::new())));
        }
        (4, Value::Array(list)) if !list.is_empty() => drop(list.remove(random.index(list.len()))),
        (_, Value::Array(list)) => {
            let again = random.pick(list).cloned().or(graft).unwrap_or(Value::Null);
            list.insert(random.index(list.len().saturating_add(1)), again);
        }
        (5, place) => *place = Value::from(random.next_u64().cast_signed()),
        (6, place) => *place = Value::Array(vec![place.take()]),
        (_, place) => *place = word()(random.pick(&WORDS).copied().unwrap_or_default().to_owned()),
    }
}

/// Every place of a document, as JSON Pointers.
fn paths(document: &Value) -> Vec<String> {
    fn walk(value: &Value, path: &str, all: &mut Vec<String>) {
        all.push(path.to_owned());
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    walk(value, &format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), all);
                }
            }
            Value::Array(list) => {
                for (index, value) in list.iter().enumerate() {
                    walk(value, &format!("{path}/{index}"), all);
                }
            }
            _ => {}
        }
    }
    let mut all = Vec::new();
    walk(document, "", &mut all);
    all
}
