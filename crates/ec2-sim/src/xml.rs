//! Writes the XML of Query answers.

use std::fmt::{Display, Write as _};

/// XML under construction. Names are the caller's literals; values are escaped.
#[derive(Debug, Default)]
pub struct Xml(String);

impl Xml {
    /// Empty.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// `<name>value</name>`.
    pub fn leaf(&mut self, name: &str, value: impl Display) -> &mut Self {
        let _ = write!(self.0, "<{name}>");
        self.text(value);
        let _ = write!(self.0, "</{name}>");
        self
    }

    /// A bare value.
    pub fn text(&mut self, value: impl Display) {
        for c in value.to_string().chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                c => self.0.push(c),
            }
        }
    }

    /// [`Xml::leaf`] if there is a value.
    pub fn maybe(&mut self, name: &str, value: Option<impl Display>) -> &mut Self {
        if let Some(value) = value {
            self.leaf(name, value);
        }
        self
    }

    /// `<name>…</name>`.
    pub fn node(&mut self, name: &str, inner: impl FnOnce(&mut Self)) -> &mut Self {
        let _ = write!(self.0, "<{name}>");
        inner(self);
        let _ = write!(self.0, "</{name}>");
        self
    }

    /// `<name><item>…</item>…</name>`.
    pub fn items<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut each: impl FnMut(&mut Self, T),
    ) -> &mut Self {
        self.listed(name, "item", items, &mut each)
    }

    /// `<name><member>…</member>…</name>`, as IAM writes lists.
    pub fn members<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut each: impl FnMut(&mut Self, T),
    ) -> &mut Self {
        self.listed(name, "member", items, &mut each)
    }

    fn listed<T>(
        &mut self,
        name: &str,
        member: &str,
        items: impl IntoIterator<Item = T>,
        each: &mut dyn FnMut(&mut Self, T),
    ) -> &mut Self {
        self.node(name, |xml| {
            for item in items {
                xml.node(member, |xml| each(xml, item));
            }
        })
    }

    /// `tagSet`.
    pub fn tags<'a>(&mut self, tags: impl IntoIterator<Item = (&'a String, &'a String)>) -> &mut Self {
        self.items("tagSet", tags, |xml, (key, value)| {
            xml.leaf("key", key).leaf("value", value);
        })
    }

    /// The text so far.
    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }
}
