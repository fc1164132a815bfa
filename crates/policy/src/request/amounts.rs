//! The extended resources among amounts of resources, huge pages included.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny},
};

use crate::request::text::Text;

/// The names of extended resources and huge pages, such as `nvidia.com/gpu`, of which there is more than none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtendedResources<'a>(Vec<Text<'a>>);

impl<'a> ExtendedResources<'a> {
    /// The extended resources among `amounts`, each a name with an amount.
    #[must_use]
    pub fn among(amounts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let named = amounts.into_iter().filter(|(name, amount)| is_extended(name) && *amount != "0");
        Self(named.map(|(name, _)| name.into()).collect())
    }

    /// Their names.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }
}

/// True if nodes have the resource by a device plugin or their own settings alone.
fn is_extended(name: &str) -> bool {
    name.starts_with("hugepages-") || (name.contains('/') && !name.contains("kubernetes.io/"))
}

/// True for the amount zero: API servers write it as `"0"`, files also as a number.
struct IsZero(bool);

impl<'de> Deserialize<'de> for IsZero {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = IsZero;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an amount")
            }
            fn visit_str<E: de::Error>(self, amount: &str) -> Result<IsZero, E> {
                Ok(IsZero(amount == "0"))
            }
            fn visit_u64<E: de::Error>(self, amount: u64) -> Result<IsZero, E> {
                Ok(IsZero(amount == 0))
            }
            fn visit_i64<E: de::Error>(self, _: i64) -> Result<IsZero, E> {
                Ok(IsZero(false))
            }
            fn visit_f64<E: de::Error>(self, _: f64) -> Result<IsZero, E> {
                Ok(IsZero(false))
            }
            fn visit_unit<E: de::Error>(self) -> Result<IsZero, E> {
                Ok(IsZero(true))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ExtendedResources<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = ExtendedResources<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("amounts by resource")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = access.next_key::<Text<'de>>()? {
                    if is_extended(&name) {
                        let IsZero(is_zero) = access.next_value()?;
                        names.extend((!is_zero).then_some(name));
                    } else {
                        access.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(ExtendedResources(names))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}
