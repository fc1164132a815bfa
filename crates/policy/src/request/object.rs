//! Deserialization of structs from JSON objects alone.
//!
//! The implementation that serde derives for a struct accepts a list as well, as the fields in their order. Kubernetes
//! never writes one; `"spec": []` would be read as a spec without fields.

/// Implements `Deserialize` for structs that derive it with `remote = "Self"`: the derived function, for JSON objects
/// only.
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
