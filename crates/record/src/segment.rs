//! Segments: gzip members of JSON lines, one after another.

use std::io::{BufRead, BufReader, Read as _, Write as _};

use flate2::{Compression, bufread::MultiGzDecoder, write::GzEncoder};
use serde::{Deserialize, Serialize};

use crate::entry::Entry;

/// The format of the lines.
pub(crate) const FORMAT: u32 = 1;
/// A segment of more text is not read to its end: no writer makes one.
const TEXT_BYTES: u64 = 64 * 1024 * 1024;

/// The first line of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// The format of the lines.
    pub(crate) record: u32,
    /// The number of the segment; numbers grow.
    pub(crate) segment: u64,
}

/// A segment that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// Its number; none if the header can't be read.
    pub(crate) number: Option<u64>,
    /// The entries up to the first damage.
    pub(crate) entries: Vec<Entry>,
    /// True if nothing of it is damaged.
    pub(crate) intact: bool,
}

/// One gzip member with `text`.
pub(crate) fn member(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    // A vector takes every write.
    let written = encoder.write_all(text).and_then(|()| encoder.finish());
    written.unwrap_or_default()
}

/// A value as a line.
pub(crate) fn line<T: Serialize>(value: &T) -> Vec<u8> {
    let mut text = serde_json::to_vec(value).unwrap_or_default();
    text.push(b'\n');
    text
}

/// The text of gzip members, which is read no further than it is asked for.
pub(crate) fn reader(bytes: &[u8]) -> impl BufRead {
    BufReader::new(MultiGzDecoder::new(bytes).take(TEXT_BYTES))
}

/// Reads a segment, up to its first damage. Its lines may also be plain, as `zcat` writes them.
pub(crate) fn decode(bytes: &[u8]) -> Decoded {
    if bytes.starts_with(b"{") { decode_lines(bytes) } else { decode_lines(reader(bytes)) }
}

fn decode_lines(mut lines: impl BufRead) -> Decoded {
    let mut decoded = Decoded::default();
    let mut text = Vec::new();
    loop {
        text.clear();
        match lines.read_until(b'\n', &mut text) {
            Ok(0) => {
                decoded.intact = decoded.number.is_some();
                return decoded;
            }
            Ok(_) if text.ends_with(b"\n") => {}
            _ => return decoded,
        }
        if decoded.number.is_none() {
            let Ok(header) = serde_json::from_slice::<Header>(&text) else { return decoded };
            if header.record != FORMAT {
                return decoded;
            }
            decoded.number = Some(header.segment);
        } else if let Ok(entry) = serde_json::from_slice(&text) {
            decoded.entries.push(entry);
        } else {
            return decoded;
        }
    }
}

/// Number and time of the first entry of a segment; none without an entry.
pub(crate) fn head(bytes: &[u8]) -> Option<(u64, i64)> {
    let mut lines = reader(bytes).lines();
    let header: Header = serde_json::from_str(&lines.next()?.ok()?).ok()?;
    let first: Entry = serde_json::from_str(&lines.next()?.ok()?).ok()?;
    (header.record == FORMAT).then_some((header.segment, first.at))
}

/// The text of gzip members, up to the first damage. The second result is true if there is none.
pub(crate) fn text(bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut text = Vec::new();
    let read = reader(bytes).read_to_end(&mut text);
    (text, read.is_ok())
}
