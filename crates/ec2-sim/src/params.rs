//! The parameters of a Query call: `Filter.1.Value.2=x`, read by name.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Form-encoded parameters by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Params(BTreeMap<String, String>);

impl Params {
    /// Stores decoded pairs.
    #[must_use]
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(pairs.into_iter().collect())
    }

    /// The value of `name`, unless it is absent or empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The value of `name` as a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    /// The values of `name.1`, `name.2` (or `name.member.1`, as IAM and STS write it).
    #[must_use]
    pub fn list(&self, name: &str) -> Vec<String> {
        self.items(name).into_iter().filter_map(|item| item.get("").map(str::to_owned)).collect()
    }

    /// The structures `name.1.*`, `name.2.*`, with the rest of each name.
    #[must_use]
    pub fn items(&self, name: &str) -> Vec<Self> {
        let prefix = format!("{name}.");
        let mut items: BTreeMap<u32, BTreeMap<String, String>> = BTreeMap::new();
        for (key, value) in self.0.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix)) {
            let rest = key.get(prefix.len()..).unwrap_or_default();
            let rest = rest.strip_prefix("member.").unwrap_or(rest);
            let (index, field) = rest.split_once('.').unwrap_or((rest, ""));
            if let Ok(index) = index.parse() {
                items.entry(index).or_default().insert(field.to_owned(), value.clone());
            }
        }
        items.into_values().map(Self).collect()
    }

    /// The structure `name.*`.
    #[must_use]
    pub fn within(&self, name: &str) -> Self {
        let prefix = format!("{name}.");
        Self(
            self.0
                .range(prefix.clone()..)
                .take_while(|(key, _)| key.starts_with(&prefix))
                .filter_map(|(key, value)| Some((key.get(prefix.len()..)?.to_owned(), value.clone())))
                .collect(),
        )
    }

    /// `Tag.n.Key` and `Tag.n.Value` in this structure.
    #[must_use]
    pub fn tags(&self, name: &str) -> BTreeMap<String, String> {
        self.items(name)
            .into_iter()
            .filter_map(|tag| {
                Some((tag.get("Key")?.to_owned(), tag.get("Value").unwrap_or_default().to_owned()))
            })
            .collect()
    }

    /// `Filter.n`.
    #[must_use]
    pub fn filters(&self) -> Vec<Filter> {
        self.items("Filter")
            .into_iter()
            .filter_map(|f| Some(Filter { name: f.get("Name")?.to_owned(), values: f.list("Value") }))
            .collect()
    }

    /// All parameters except `without`, as one string that is equal for equal calls.
    #[must_use]
    pub fn canonical(&self, without: &BTreeSet<&str>) -> String {
        let mut text = String::new();
        for (key, value) in self.0.iter().filter(|(key, _)| !without.contains(key.as_str())) {
            text.push_str(key);
            text.push('=');
            text.push_str(value);
            text.push('\n');
        }
        text
    }
}

/// One filter of a Describe call: any of the values, `*` and `?` as wildcards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The compared attribute.
    pub name: String,
    /// The accepted values.
    pub values: Vec<String>,
}

impl Filter {
    /// True if one of `actual` is one of the values.
    pub fn matches<'a>(&self, actual: impl IntoIterator<Item = &'a str>) -> bool {
        actual.into_iter().any(|have| self.values.iter().any(|want| wildcard(want, have)))
    }

    /// True if it is a filter of tags that `tags` satisfy; `None` for another filter.
    #[must_use]
    pub fn matches_tags(&self, tags: &BTreeMap<String, String>) -> Option<bool> {
        if let Some(key) = self.name.strip_prefix("tag:") {
            return Some(tags.get(key).is_some_and(|value| self.matches([value.as_str()])));
        }
        (self.name == "tag-key").then(|| self.matches(tags.keys().map(String::as_str)))
    }
}

/// Matches `text` against `pattern`, where `*` is any text and `?` one character.
#[must_use]
pub fn wildcard(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some('?') => {
                p += 1;
                t += 1;
            }
            Some(c) if text.get(t) == Some(c) => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    p = at + 1;
                    t = from + 1;
                    star = Some((at, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(text: &str) -> Params {
        Params::new(
            text.split('&').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.into(), v.into())),
        )
    }

    #[test]
    fn lists_are_read_in_order() {
        let p = params("A.10=j&A.2=b&A.1=a&AB.1=no&M.member.1=x&F.1.Name=n&F.1.Value.1=v&F.1.Value.2=w");
        assert_eq!(p.list("A"), ["a", "b", "j"]);
        assert_eq!(p.list("M"), ["x"]);
        let f = p.items("F");
        assert_eq!((f[0].get("Name"), f[0].list("Value")), (Some("n"), vec!["v".to_owned(), "w".to_owned()]));
    }

    #[test]
    fn wildcards_match_as_in_ec2_filters() {
        for (pattern, text, yes) in [
            ("m5.*", "m5.large", true),
            ("m5.*", "m5a.large", false),
            ("*", "", true),
            ("?5.*e", "m5.large", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXbY", false),
            ("", "x", false),
        ] {
            assert_eq!(wildcard(pattern, text), yes, "{pattern} {text}");
        }
    }
}
