//! Macros that keep a name that users see, its spelling and its documentation in one place.
//!
//! A doc comment is written once, above the item. The macros turn it into text as well, so that reference pages are
//! generated from the code and can't differ from it. Used by this crate, `croft-api` and `croft-webhook`.

/// The kind of object that has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyKind {
    /// A label.
    Label,
    /// An annotation.
    Annotation,
    /// A prefix of annotations.
    AnnotationPrefix,
    /// A taint.
    Taint,
    /// A finalizer.
    Finalizer,
}

impl KeyKind {
    /// The kind as a reference page spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Label => "label",
            Self::Annotation => "annotation",
            Self::AnnotationPrefix => "annotation prefix",
            Self::Taint => "taint",
            Self::Finalizer => "finalizer",
        }
    }
}

/// A label, annotation, taint or finalizer that Croft reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name, such as `croft.dev/pool`.
    pub name: &'static str,
    /// The kind of the item.
    pub kind: KeyKind,
    /// The objects that carry it.
    pub on: &'static str,
    /// The user or process that writes it.
    pub written_by: &'static str,
    /// Its meaning: the doc comment of its constant, as Markdown.
    pub description: &'static str,
}

/// Defines an enum whose variants users see by name, with `ALL`, `as_str` and `description`.
///
/// ```
/// croft_policy::documented_enum! {
///     /// Why a request waits.
///     pub enum Wait {
///         /// The namespace is not known yet.
///         UnknownNamespace,
///     }
/// }
/// assert_eq!(Wait::ALL[0].as_str(), "UnknownNamespace");
/// assert_eq!(Wait::ALL[0].description(), "The namespace is not known yet.");
/// ```
#[macro_export]
macro_rules! documented_enum {
    ($(#[doc = $about:literal])+ $vis:vis enum $name:ident { $($(#[doc = $doc:literal])+ $variant:ident,)+ }) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis enum $name { $($(#[doc = $doc])+ $variant,)+ }

        impl $name {
            /// Every variant, in the order of its definition.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The name that users see.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)+ }
            }

            /// The meaning: the variant's doc comment, as Markdown.
            #[must_use]
            pub const fn description(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+).trim_ascii(),)+ }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

/// Defines constants for keys of labels, annotations, taints and finalizers, and a table of them.
///
/// Each entry is `Kind CONSTANT = "key", on "objects", by "writer";` below its doc comment.
///
/// ```
/// croft_policy::documented_keys! {
///     /// Every key of this example.
///     pub const KEYS;
///     /// The name of the pool to use.
///     Annotation POOL = "croft.dev/pool", on "pods", by "users";
/// }
/// assert_eq!((POOL, KEYS[0].name), ("croft.dev/pool", "croft.dev/pool"));
/// ```
#[macro_export]
macro_rules! documented_keys {
    (
        $(#[doc = $about:literal])+ $vis:vis const $table:ident;
        $($(#[doc = $doc:literal])+ $kind:ident $name:ident = $key:expr, on $on:literal, by $by:literal;)+
    ) => {
        $($(#[doc = $doc])+ $vis const $name: &str = $key;)+

        $(#[doc = $about])+
        $vis const $table: &[$crate::documented::Key] = &[$($crate::documented::Key {
            name: $key,
            kind: $crate::documented::KeyKind::$kind,
            on: $on,
            written_by: $by,
            description: concat!($($doc),+).trim_ascii(),
        },)+];
    };
}
