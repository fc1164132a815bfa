//! The modules of a crate, and the paths by which they import each other.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::Context as _;

use crate::tokens::{Kind, tokens};

/// A module's path within its crate; empty for the root.
pub(crate) type Module = Vec<String>;

/// The modules of a crate, each with its file.
pub(crate) type Modules = BTreeMap<Module, File>;

/// A module's file, read once.
pub(crate) struct File {
    /// Names of the items that it defines itself.
    items: BTreeSet<String>,
    /// It defines an item, if only in a macro.
    has_items: bool,
    /// Paths in it, those of its tests left out.
    pub(crate) paths: Vec<Vec<String>>,
}

impl File {
    pub(crate) fn new(text: &str) -> Self {
        let words = words(text);
        let is_item = |word: &String| ITEMS.contains(&word.as_str());
        let item = |pair: &[String]| match pair {
            [keyword, item] if is_item(keyword) => Some(item.clone()),
            _ => None,
        };
        Self {
            items: words.windows(2).filter_map(item).collect(),
            has_items: words.iter().any(is_item),
            paths: paths(&without_tests(&words)),
        }
    }
}

/// Keywords before the name of an item.
const ITEMS: [&str; 9] = ["struct", "enum", "trait", "type", "fn", "const", "static", "union", "macro_rules"];

/// Reads the modules of a crate, those of tests left out.
///
/// # Errors
/// If a file can't be read.
pub(crate) fn modules(source: &Path) -> anyhow::Result<Modules> {
    let mut found = BTreeMap::new();
    let mut folders = vec![(source.to_owned(), Module::new())];
    while let Some((folder, module)) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("failed to list {}", folder.display()))? {
            let path = entry?.path();
            let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
            let mut own = module.clone();
            if path.is_dir() {
                own.push(stem);
                folders.push((path, own));
            } else if path.extension().is_some_and(|e| e == "rs") && stem != "main" && !is_test(&stem) {
                if !["lib", "mod"].contains(&stem.as_str()) {
                    own.push(stem);
                }
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("failed to read {}", path.display()))?;
                found.insert(own, File::new(&text));
            }
        }
    }
    Ok(found)
}

/// True for the name of a file that holds tests alone.
fn is_test(stem: &str) -> bool {
    stem == "tests" || stem.ends_with("_test")
}

/// The module that `path`, written in `module`, leads to: the longest prefix that is one, unless that is a parent which
/// only passes names on.
pub(crate) fn resolve<'a>(modules: &'a Modules, module: &Module, path: &[String]) -> Option<&'a Module> {
    let (target, rest) = reach(modules, module, path)?;
    let file = modules.get(target)?;
    match rest.first().filter(|name| *name != "self") {
        Some(name) if file.items.contains(name) => Some(target),
        Some(name) => passed_on(modules, target, file, name),
        // The module itself is imported, and its items are named by it. A parent without items passes names on.
        None => file.has_items.then_some(target),
    }
}

/// The module in whose folder the item is that `path`, written in `module`, leads to: [`resolve`], or a parent that only passes
/// the name on, and is above the item in any case.
pub(crate) fn resolve_folder<'a>(
    modules: &'a Modules,
    module: &Module,
    path: &[String],
) -> Option<&'a Module> {
    resolve(modules, module, path).or_else(|| Some(reach(modules, module, path)?.0))
}

/// The longest prefix of `path`, written in `module`, that is a module, and what follows it.
fn reach<'a, 'p>(
    modules: &'a Modules,
    module: &Module,
    path: &'p [String],
) -> Option<(&'a Module, &'p [String])> {
    let (first, mut rest) = path.split_first()?;
    let mut at: Module = match first.as_str() {
        "crate" => Module::new(),
        "super" => module.split_last()?.1.to_vec(),
        "self" => module.clone(),
        // A child of this module, or another crate.
        child => {
            let mut at = module.clone();
            at.push(child.to_owned());
            modules.contains_key(&at).then_some(at)?
        }
    };
    while let Some((next, more)) = rest.split_first() {
        if next == "super" {
            at.pop();
        } else {
            let mut deeper = at.clone();
            deeper.push(next.clone());
            if !modules.contains_key(&deeper) {
                break;
            }
            at = deeper;
        }
        rest = more;
    }
    Some((modules.get_key_value(&at)?.0, rest))
}

/// The child module that a parent takes the name from.
fn passed_on<'a>(modules: &'a Modules, parent: &'a Module, file: &File, name: &str) -> Option<&'a Module> {
    file.paths.iter().find_map(|path| {
        let (last, front) = path.split_last()?;
        if last != name && last != "*" {
            return None;
        }
        let mut at = parent.clone();
        for segment in front.iter().filter(|s| !["self", "crate"].contains(&s.as_str())) {
            at.push(segment.clone());
        }
        let (child, file) = modules.get_key_value(&at)?;
        file.items.contains(name).then_some(child)
    })
}

/// Identifiers and punctuation of code, comments and literals left out.
fn words(text: &str) -> Vec<String> {
    let code = |kind: Kind| matches!(kind, Kind::Identifier | Kind::Other);
    tokens(text).filter(|token| code(token.kind)).map(|token| token.text.to_owned()).collect()
}

/// The words before each item of tests.
const CFG_TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];

/// `words` without the items of tests: their imports are no part of the crate.
fn without_tests(words: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut rest = words;
    while let Some((word, more)) = rest.split_first() {
        if rest.iter().zip(CFG_TEST).filter(|(word, of_test)| word == of_test).count() == CFG_TEST.len() {
            rest = after_item(rest.get(CFG_TEST.len()..).unwrap_or_default());
        } else {
            kept.push(word.clone());
            rest = more;
        }
    }
    kept
}

/// The words after the first item of `words`: a semicolon ends it, or the brace that closes its body.
fn after_item(words: &[String]) -> &[String] {
    let mut depth = 0;
    for (at, word) in words.iter().enumerate() {
        match word.as_str() {
            "{" | "(" | "[" => depth += 1,
            // The end of what the item is in: it is a field.
            "}" if depth == 0 => return words.get(at..).unwrap_or_default(),
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 && ["}", ";"].contains(&word.as_str()) {
            return words.get(at + 1..).unwrap_or_default();
        }
    }
    &[]
}

/// Every path with `::`, trees of `use` taken apart.
fn paths(words: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let begins = words.get(at).is_some_and(|w| w.chars().all(|c| c.is_alphanumeric() || c == '_'));
        let follows =
            words.get(at + 1).is_some_and(|w| w == ":") && words.get(at + 2).is_some_and(|w| w == ":");
        if begins && follows {
            at = tree(words, at, &mut Vec::new(), &mut found);
        } else {
            at += 1;
        }
    }
    found
}

/// Reads one path or tree from `at`; answers where it ends.
fn tree(words: &[String], mut at: usize, prefix: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> usize {
    let depth = prefix.len();
    loop {
        match words.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while words.get(at).is_some_and(|w| w != "}") {
                    let next = tree(words, at, prefix, found);
                    at = if words.get(next).is_some_and(|w| w == ",") { next + 1 } else { next.max(at + 1) };
                }
                at += 1;
                break;
            }
            Some(word) if word == "*" || word.chars().all(|c| c.is_alphanumeric() || c == '_') => {
                prefix.push(word.to_owned());
                at += 1;
                let more =
                    words.get(at).is_some_and(|w| w == ":") && words.get(at + 1).is_some_and(|w| w == ":");
                if !more {
                    found.push(prefix.clone());
                    if words.get(at).is_some_and(|w| w == "as") {
                        at += 2;
                    }
                    break;
                }
                at += 2;
            }
            _ => break,
        }
    }
    prefix.truncate(depth);
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths_of(text: &str) -> Vec<String> {
        File::new(text).paths.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn comments_strings_and_tests_do_not_import() {
        let text =
            "// crate::a::A\nconst T: &str = \"crate::b::B\";\n#[cfg(test)]\nmod tests { use crate::c::C; }";
        assert_eq!(paths_of(text), Vec::<String>::new());
    }

    #[test]
    fn what_follows_an_item_of_tests_imports() {
        let text = "#[cfg(test)] use crate::a::A; #[cfg(test)] fn of(x: [u8; 3]) -> A { crate::b::B } use crate::c::C;";
        assert_eq!(paths_of(text), ["crate::c::C"]);
    }
}
