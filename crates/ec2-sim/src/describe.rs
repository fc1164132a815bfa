//! Parts of every Describe call: times, pages, filters.

use crate::{
    answer::{Call, Refusal},
    params::Filter,
};

/// `ms` since 1970 as EC2 writes times.
pub(crate) fn iso(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or_default();
    jiff::Timestamp::from_millisecond(ms)
        .map_or_else(|_| "1970-01-01T00:00:00Z".to_owned(), |t| t.to_string())
}

/// The page of `all` selected by MaxResults and NextToken, and the token of the next page.
pub(crate) fn page<T>(call: &Call, all: Vec<T>) -> Result<(Vec<T>, Option<String>), Refusal> {
    let from = match call.params.get("NextToken") {
        None => 0,
        Some(token) => token
            .strip_prefix("page-")
            .and_then(|n| n.parse::<usize>().ok())
            .ok_or_else(|| Refusal::new("InvalidNextToken", "The token is not valid"))?,
    };
    let size = match call.params.get("MaxResults") {
        None => usize::MAX,
        Some(text) => match text.parse() {
            Ok(n) if (5..=1000).contains(&n) => n,
            _ => {
                return Err(Refusal::new(
                    "InvalidParameterValue",
                    format!("Value ( {text} ) for parameter maxResults is invalid"),
                ));
            }
        },
    };
    let total = all.len();
    let until = from.saturating_add(size).min(total);
    let next = (until < total).then(|| format!("page-{until}"));
    Ok((all.into_iter().skip(from).take(size).collect(), next))
}

/// True if every filter holds. An unknown filter is refused, as by EC2.
pub(crate) fn all(filters: &[Filter], matches: impl Fn(&Filter) -> Option<bool>) -> Result<bool, Refusal> {
    for filter in filters {
        match matches(filter) {
            Some(true) => {}
            Some(false) => return Ok(false),
            None => {
                return Err(Refusal::new(
                    "InvalidParameterValue",
                    format!("The filter '{}' is invalid", filter.name),
                ));
            }
        }
    }
    Ok(true)
}

/// A zone's id, which differs between accounts, beside its name.
pub(crate) fn zone_id(zone: &str) -> String {
    let number = zone.bytes().last().map_or(0, |letter| letter.saturating_sub(b'a') + 1);
    format!("use1-az{number}")
}
