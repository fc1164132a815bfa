//! JSON objects that are read from JSON objects alone.
//!
//! The readers that serde derives for structs take a list, too, as the struct's fields in their order. Kubernetes never
//! writes one; `"spec": []` would read as a spec without any field, and be judged as that.

/// Implements `Deserialize` for structs that derive it with `remote = "Self"`: by the derived reader, from objects only.
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
                        // The derived function, which comes before the trait's.
                        $name::deserialize(serde::de::value::MapAccessDeserializer::new(map))
                    }
                }
                deserializer.deserialize_map(Visitor)
            }
        }
    )*};
}

pub(crate) use objects;
