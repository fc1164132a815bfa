//! Checks the links of the Markdown pages: each leads to a file, and to a heading of it; and the book has each page of docs/.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context as _, bail};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// Folders and files whose pages are checked, relative to the root of the checkout.
const CHECKED: [&str; 9] = [
    "docs",
    "designs",
    "certs",
    "manifests/deploy",
    "tests/README.md",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
];
/// The book's table of contents.
const SUMMARY: &str = "docs/SUMMARY.md";

/// A page, as far as links are concerned.
#[derive(Debug, Default)]
struct Page {
    /// The ids of its headings.
    anchors: BTreeSet<String>,
    /// Line and destination of each link and image.
    links: Vec<(usize, String)>,
}

/// Fails if a link leads nowhere or the book lacks a page, naming file, line and link.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let mut files = Vec::new();
    for path in CHECKED {
        collect(&root.join(path), &mut files)?;
    }
    let mut pages = BTreeMap::new();
    for path in files {
        let text = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        let name = path.strip_prefix(root).unwrap_or(&path).to_owned();
        pages.insert(name, read(&text));
    }
    let mut wrong: Vec<String> =
        pages.iter().flat_map(|(path, page)| broken(root, path, page, &pages)).collect();
    wrong.extend(
        missing(&pages).into_iter().map(|page| format!("{SUMMARY}: {} is not listed", page.display())),
    );
    if wrong.is_empty() {
        let links: usize = pages.values().map(|page| page.links.len()).sum();
        println!("{links} links of {} pages are valid", pages.len());
        return Ok(());
    }
    bail!("{} links are broken:\n{}", wrong.len(), wrong.join("\n"))
}

/// The pages below a path.
pub(crate) fn collect(path: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if path.is_file() {
        files.extend(path.extension().is_some_and(|e| e == "md").then(|| path.to_owned()));
        return Ok(());
    }
    for entry in fs::read_dir(path).with_context(|| format!("failed to list {}", path.display()))? {
        collect(&entry?.path(), files)?;
    }
    Ok(())
}

fn read(text: &str) -> Page {
    let (mut page, mut heading, mut used) = (Page::default(), None, HashMap::new());
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                page.anchors.insert(unique(&heading.take().unwrap_or_default(), &mut used));
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                let line = text.get(..range.start).unwrap_or_default().matches('\n').count() + 1;
                page.links.push((line, dest_url.into_string()));
            }
            _ => {}
        }
    }
    page
}

/// The id of a heading, as GitHub and mdBook make it: words in lower case with hyphens between, numbered where repeated.
fn unique(heading: &str, used: &mut HashMap<String, usize>) -> String {
    let kept = heading.trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    });
    let id: String = kept.flat_map(char::to_lowercase).collect();
    let count = used.entry(id.clone()).or_default();
    *count += 1;
    if *count == 1 { id } else { format!("{id}-{}", *count - 1) }
}

/// The links of `page` that lead nowhere. Addresses of the web aren't asked.
fn broken(root: &Path, path: &Path, page: &Page, pages: &BTreeMap<PathBuf, Page>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (line, link) in &page.links {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (file, anchor) =
            link.split_once('#').map_or((link.as_str(), None), |(file, id)| (file, Some(id)));
        let target = if file.is_empty() { path.to_owned() } else { resolved(path, file) };
        let place = format!("{}:{line}: {link}", path.display());
        if !root.join(&target).exists() {
            wrong.push(format!("{place} leads to no file"));
        } else if let Some(id) = anchor
            && !pages.get(&target).is_some_and(|page| page.anchors.contains(id))
        {
            wrong.push(format!("{place} leads to no heading"));
        }
    }
    wrong
}

/// The path of a link of the page `from`, relative to the root.
fn resolved(from: &Path, link: &str) -> PathBuf {
    let mut path = from.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

/// The pages of the book's folder that its table of contents lacks.
fn missing(pages: &BTreeMap<PathBuf, Page>) -> Vec<&Path> {
    let summary = Path::new(SUMMARY);
    let Some(contents) = pages.get(summary) else { return vec![summary] };
    let listed: BTreeSet<PathBuf> = contents.links.iter().map(|(_, link)| resolved(summary, link)).collect();
    let folder = summary.parent().unwrap_or(summary);
    let chapters = pages.keys().filter(|page| page.starts_with(folder) && *page != summary);
    chapters.filter(|page| !listed.contains(*page)).map(PathBuf::as_path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(texts: &[(&str, &str)]) -> BTreeMap<PathBuf, Page> {
        texts.iter().map(|(path, text)| (PathBuf::from(path), read(text))).collect()
    }

    #[test]
    fn headings_get_the_ids_of_github() {
        let page = read("# Pools & isolation\n## `spec.key`, once\n## Again\n## Again\n");
        let ids: Vec<&str> = page.anchors.iter().map(String::as_str).collect();
        assert_eq!(ids, ["again", "again-1", "pools--isolation", "speckey-once"]);
    }

    #[test]
    fn links_to_missing_files_and_headings_are_named_with_their_line() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("docs/tasks")).unwrap();
        for page in ["docs/a.md", "docs/tasks/b.md"] {
            fs::write(root.path().join(page), "").unwrap();
        }
        let b = "[up](../a.md#one)\n\n[no](../c.md) [none](../a.md#two) `[code](x.md)`\n[web](https://a.example/#x)\n";
        let pages = pages(&[("docs/a.md", "# One\n"), ("docs/tasks/b.md", b)]);
        let path = Path::new("docs/tasks/b.md");
        assert_eq!(
            broken(root.path(), path, pages.get(path).unwrap(), &pages),
            [
                "docs/tasks/b.md:3: ../c.md leads to no file",
                "docs/tasks/b.md:3: ../a.md#two leads to no heading",
            ]
        );
    }

    #[test]
    fn pages_that_the_contents_lack_are_named() {
        let pages =
            pages(&[(SUMMARY, "- [A](a.md)\n"), ("docs/a.md", ""), ("docs/b/c.md", ""), ("README.md", "")]);
        assert_eq!(missing(&pages), [Path::new("docs/b/c.md")]);
    }
}
