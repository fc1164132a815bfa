//! Strings and maps of a request: borrowed from the body, owned only where JSON has an escape. Structs are read from objects alone.

use std::{borrow::Cow, fmt, ops::Deref};

use serde::{Deserialize, Deserializer, Serialize, de};

/// A string of the document.
///
/// Serde fills `Option<Cow<str>>` and `Vec<Cow<str>>` with owned strings even where it could borrow
/// (serde-rs/serde#1852), which would cost an allocation per field. This type borrows everywhere.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Text<'a>(Cow<'a, str>);

impl<'a> Text<'a> {
    /// Borrows `text`.
    #[must_use]
    pub const fn borrowed(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }

    /// The text itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Text<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self::borrowed(text)
    }
}

impl<'a> From<&'a String> for Text<'a> {
    fn from(text: &'a String) -> Self {
        Self::borrowed(text)
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

impl PartialEq<str> for Text<'_> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Text<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: de::Error>(self, v: &'de str) -> Result<Text<'de>, E> {
                Ok(Text::borrowed(v))
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(v.to_owned())))
            }
            fn visit_string<E: de::Error>(self, v: String) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(v)))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

/// A map of the document, sorted by key. A duplicate key is an error, since the next reader may take either of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map<'a>(Vec<(Text<'a>, Text<'a>)>);

impl<'a> Map<'a> {
    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Text<'a>> {
        let at = self.0.binary_search_by(|(k, _)| k.as_str().cmp(key)).ok()?;
        self.0.get(at).map(|(_, v)| v)
    }

    /// Keys and values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&Text<'a>, &Text<'a>)> {
        self.0.iter().map(|(k, v)| (k, v))
    }

    /// True if it has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds or replaces the value of `key`.
    pub(crate) fn insert(&mut self, key: Text<'a>, value: Text<'a>) {
        match self.0.binary_search_by(|(k, _)| k.as_str().cmp(&key)) {
            Ok(at) => self.0.splice(at..=at, [(key, value)]).for_each(drop),
            Err(at) => self.0.insert(at, (key, value)),
        }
    }

    /// Removes `key`.
    pub(crate) fn remove(&mut self, key: &str) {
        if let Ok(at) = self.0.binary_search_by(|(k, _)| k.as_str().cmp(key)) {
            self.0.remove(at);
        }
    }
}

impl<'a, K: Into<Text<'a>>, V: Into<Text<'a>>> FromIterator<(K, V)> for Map<'a> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(iter: I) -> Self {
        let mut entries: Vec<_> = iter.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        entries.sort_unstable();
        entries.dedup_by(|a, b| a.0 == b.0);
        Self(entries)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Map<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Map<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut access: A) -> Result<Map<'de>, A::Error> {
                let mut entries: Vec<(Text<'de>, Text<'de>)> = Vec::new();
                // Go's decoder reads a null value as an empty string.
                while let Some((key, value)) = access.next_entry::<Text<'de>, Option<Text<'de>>>()? {
                    entries.push((key, value.unwrap_or_default()));
                }
                entries.sort_by(|a, b| a.0.cmp(&b.0));
                let twice = entries.iter().zip(entries.iter().skip(1)).find(|(a, b)| a.0 == b.0);
                match twice {
                    Some(((key, _), _)) => Err(de::Error::custom(format!("duplicate key {key:?}"))),
                    None => Ok(Map(entries)),
                }
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

/// Implements `Deserialize` for structs that derive it with `remote = "Self"`: the derived function, for JSON objects only.
///
/// The implementation that serde derives for a struct accepts a list as well, as the fields in their order. Kubernetes never writes
/// one; `"spec": []` would be read as a spec without fields.
macro_rules! objects {
    ($($name:ident),* $(,)?) => {$(
        impl<'de: 'a, 'a> serde::Deserialize<'de> for $name<'a> {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl<'de> serde::de::Visitor<'de> for Visitor {
                    type Value = $name<'de>;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("an object (", stringify!($name), ")"))
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<$name<'de>, A::Error> {
                        // Calls the derived function, which takes precedence over the trait's.
                        $name::deserialize(serde::de::value::MapAccessDeserializer::new(map))
                    }
                }
                deserializer.deserialize_map(Visitor)
            }
        }
    )*};
}

pub(crate) use objects;
