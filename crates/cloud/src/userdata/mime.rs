//! MIME multi-part texts, as cloud-init and nodeadm read them.

use super::model::UserDataError;

/// Content type of nodeadm's parts.
pub(super) const NODE_CONFIG: &str = "application/node.eks.aws";
/// Content type of scripts.
pub(super) const SCRIPT: &str = "text/x-shellscript; charset=\"us-ascii\"";
const BOUNDARY: &str = "//";

/// One part: content type and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) content_type: String,
    pub(super) body: String,
}

impl Part {
    pub(super) fn new(content_type: &str, body: impl Into<String>) -> Self {
        Self { content_type: content_type.to_owned(), body: body.into() }
    }
}

/// The parts of the class's user data: those of a MIME text, else one script or NodeConfig.
pub(super) fn custom_parts(text: &str) -> Result<Vec<Part>, UserDataError> {
    let trimmed = text.trim_start();
    if trimmed.is_empty() {
        return Ok(Vec::new());
    }
    if trimmed.to_ascii_lowercase().starts_with("mime-version:")
        || trimmed.to_ascii_lowercase().starts_with("content-type: multipart/")
    {
        return read(trimmed);
    }
    if trimmed.starts_with("#!") {
        return Ok(vec![Part::new(SCRIPT, text)]);
    }
    if trimmed.contains("node.eks.aws/") {
        return Ok(vec![Part::new(NODE_CONFIG, text)]);
    }
    Err(UserDataError::Custom {
        problem: "it is neither MIME multi-part, nor a script, nor a NodeConfig".to_owned(),
        remedy: "begin it with `#!/bin/bash`, `apiVersion: node.eks.aws/v1alpha1` or `MIME-Version: 1.0`",
    })
}

fn read(text: &str) -> Result<Vec<Part>, UserDataError> {
    let bad = |problem: &str| UserDataError::Custom {
        problem: problem.to_owned(),
        remedy: "write MIME-Version and Content-Type with a boundary, an empty line, and parts between boundaries",
    };
    let text = text.replace("\r\n", "\n");
    let (head, body) =
        text.split_once("\n\n").ok_or_else(|| bad("the MIME text has no empty line behind its head"))?;
    let head = head.replace("\n\t", " ").replace("\n ", " ");
    let content_type = head
        .lines()
        .find(|line| line.to_ascii_lowercase().starts_with("content-type:"))
        .ok_or_else(|| bad("the MIME text has no Content-Type"))?;
    let boundary = content_type
        .split(';')
        .find_map(|parameter| parameter.trim().strip_prefix("boundary="))
        .map(|value| value.trim_matches('"'))
        .filter(|value| !value.is_empty())
        .ok_or_else(|| bad("its Content-Type names no boundary"))?;
    let (opening, closing) = (format!("--{boundary}"), format!("--{boundary}--"));
    let mut parts = Vec::new();
    let mut current: Option<String> = None;
    let mut closed = false;
    for line in body.lines() {
        if line == closing || line == opening {
            if let Some(part) = current.take() {
                parts.push(split_part(&part).ok_or_else(|| bad("a part has no empty line behind its head"))?);
            }
            if line == closing {
                closed = true;
                break;
            }
            current = Some(String::new());
        } else if let Some(part) = &mut current {
            part.push_str(line);
            part.push('\n');
        }
    }
    if !closed {
        return Err(bad("its last boundary is missing"));
    }
    Ok(parts)
}

fn split_part(text: &str) -> Option<Part> {
    // A part without headers begins with the empty line.
    let (head, body) =
        text.strip_prefix('\n').map_or_else(|| text.split_once("\n\n"), |body| Some(("", body)))?;
    let content_type = head
        .lines()
        .find_map(|line| line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-type")))
        .map_or("text/plain", |(_, value)| value.trim());
    Some(Part::new(content_type, body.trim_end_matches('\n')))
}

/// A MIME text of `parts`.
pub(super) fn write(parts: &[Part]) -> String {
    // The boundary must not occur in a part.
    let mut boundary = BOUNDARY.to_owned();
    while parts.iter().any(|part| part.body.lines().any(|line| line.starts_with(&format!("--{boundary}")))) {
        boundary.push('/');
    }
    let mut text = format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{boundary}\"\n\n");
    for part in parts {
        text.push_str(&format!(
            "--{boundary}\nContent-Type: {}\n\n{}\n\n",
            part.content_type,
            part.body.trim_end_matches('\n')
        ));
    }
    text.push_str(&format!("--{boundary}--\n"));
    text
}
