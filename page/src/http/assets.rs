//! The browser's part: four files that `make page-web` builds, embedded in the program.

use std::sync::LazyLock;

use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sha2::{Digest as _, Sha256};

/// A file of the page.
pub struct Asset {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

/// The files.
pub const ASSETS: [Asset; 4] = [
    Asset { path: "/", kind: "text/html; charset=utf-8", bytes: include_bytes!("../../dist/index.html") },
    Asset {
        path: "/app.js",
        kind: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../../dist/app.js"),
    },
    Asset { path: "/app.css", kind: "text/css; charset=utf-8", bytes: include_bytes!("../../dist/app.css") },
    Asset { path: "/icon.svg", kind: "image/svg+xml", bytes: include_bytes!("../../dist/icon.svg") },
];

/// Digests of the files, in their order: a browser that has a file asks whether it is still that one.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let tag = |asset: &Asset| {
        let digest = Sha256::digest(asset.bytes);
        let hex: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        format!("\"{hex}\"")
    };
    ASSETS.iter().map(tag).collect()
});

/// The file of a path.
#[must_use]
pub fn find(path: &str) -> Option<usize> {
    ASSETS.iter().position(|asset| asset.path == path)
}

/// The paths of the files.
pub fn paths() -> impl Iterator<Item = &'static str> {
    ASSETS.iter().map(|asset| asset.path)
}

/// The file of a path, or that the browser has it.
#[must_use]
pub fn answer(path: &str, headers: &HeaderMap) -> Response {
    let found = find(path).and_then(|at| Some((ASSETS.get(at)?, TAGS.get(at)?)));
    let Some((asset, tag)) = found else { return StatusCode::NOT_FOUND.into_response() };
    let has = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response =
        if has { StatusCode::NOT_MODIFIED.into_response() } else { asset.bytes.into_response() };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    #[test]
    fn the_page_is_below_150_kb_compressed() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        ASSETS.iter().for_each(|asset| encoder.write_all(asset.bytes).unwrap());
        let bytes = encoder.finish().unwrap().len();
        assert!(bytes < 150_000, "{bytes} bytes");
    }

    #[test]
    fn the_script_is_below_120_kb_as_the_browser_reads_it() {
        let script = ASSETS.iter().find(|asset| asset.path == "/app.js").unwrap();
        assert!(script.bytes.len() < 120_000, "{} bytes", script.bytes.len());
    }

    #[test]
    fn no_file_names_another_origin() {
        for asset in ASSETS {
            let text = String::from_utf8_lossy(asset.bytes);
            let others: Vec<&str> = text
                .match_indices("://")
                .filter_map(|(at, _)| text.get(at.saturating_sub(5)..(at + 40).min(text.len())))
                // Names of vocabularies, which no browser fetches.
                .filter(|url| !url.contains("www.w3.org/"))
                .collect();
            assert!(others.is_empty(), "{}: {others:?}", asset.path);
        }
    }
}
