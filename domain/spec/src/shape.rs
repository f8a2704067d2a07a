//! What a field can hold, told once: decoding, the JSON Schema and `explain` all read it.

/// What a value looks like.
#[derive(Debug)]
pub enum Shape {
    /// Free text, or text of a form.
    Text(&'static Form),
    /// A whole number between two bounds.
    Integer {
        /// The least.
        least: i64,
        /// The most.
        most: i64,
    },
    /// `true` or `false`.
    Bool,
    /// One of some words.
    Choice(&'static [Choice]),
    /// A list, or a lone value that stands for a list of one.
    List(&'static Shape),
    /// Values under names of the user's.
    Map(&'static Shape),
    /// A mapping with known fields.
    Record(&'static Record),
}

/// The form of a text.
#[derive(Debug)]
pub struct Form {
    /// With its article: "an amount of data".
    pub what: &'static str,
    /// The units it may have, where it is an amount; else empty.
    pub units: &'static str,
    /// A regular expression that it must match, for editors; empty where none is simple enough.
    pub pattern: &'static str,
}

/// One of some words.
#[derive(Debug)]
pub struct Choice {
    /// The word.
    pub word: &'static str,
    /// What it means.
    pub doc: &'static str,
}

/// A mapping with known fields.
#[derive(Debug)]
pub struct Record {
    /// The name of its type.
    pub name: &'static str,
    /// What it is.
    pub doc: &'static str,
    /// Its fields, at most 64.
    pub fields: &'static [Field],
}

/// A field of a record.
#[derive(Debug)]
pub struct Field {
    /// Its key.
    pub name: &'static str,
    /// What it is for.
    pub doc: &'static str,
    /// What it holds.
    pub shape: &'static Shape,
    /// Whether it must be there.
    pub presence: Presence,
    /// The requirements it answers for, as REQUIREMENTS numbers them.
    pub ids: &'static [&'static str],
    /// What is done with it today.
    pub status: Status,
    /// A value, as YAML.
    pub example: &'static str,
    /// The release that brought it.
    pub since: &'static str,
}

/// Whether a field must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It must.
    Required,
    /// It need not; without it nothing is assumed.
    Optional,
    /// It need not; without it this value holds.
    Default(&'static str),
}

/// What is done with a field today.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// `apply` acts on it, or holds it against the server.
    Applied,
    /// `check` holds it against the rest of the file.
    Checked,
    /// Only its form is checked.
    Later,
}

impl Shape {
    /// What it holds, in words with an article.
    pub fn words(&self) -> String {
        match self {
            Self::Text(form) => form.what.to_owned(),
            Self::Integer { least, most } => format!("a whole number from {least} to {most}"),
            Self::Bool => "true or false".to_owned(),
            Self::Choice(choices) => {
                let words: Vec<_> = choices.iter().map(|choice| choice.word).collect();
                format!("one of {}", words.join(", "))
            }
            Self::List(item) => format!("a list, each {}", item.words()),
            Self::Map(item) => format!("a mapping of names, each {}", item.words()),
            Self::Record(record) => {
                let fields: Vec<_> = record.fields.iter().map(|field| field.name).collect();
                format!("a mapping with {}", fields.join(", "))
            }
        }
    }
}

/// Declares a record: its type, how it is decoded, and its row in every table made from it. A field is
/// `name: Type { presence, [requirements], status, "example" }`.
macro_rules! record {
    (
        $(#[doc = $doc:literal])*
        pub struct $name:ident {
            $(
                $(#[doc = $field_doc:literal])*
                $field:ident : $type:ty {
                    $presence:ident $($default:literal)?, [$($id:ident)*], $status:ident, $example:literal
                }
            ),* $(,)?
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $field_doc])* pub $field: $type,)*
        }

        impl $crate::decode::Decode for $name {
            const SHAPE: &'static $crate::shape::Shape =
                &$crate::shape::Shape::Record(&$crate::shape::Record {
                    name: stringify!($name),
                    doc: concat!($($doc, "\n"),*),
                    fields: &[$($crate::shape::Field {
                        name: stringify!($field),
                        doc: concat!($($field_doc, "\n"),*),
                        shape: <$type as $crate::decode::Decode>::SHAPE,
                        presence: $crate::shape::presence!($presence $($default)?),
                        ids: &[$(stringify!($id)),*],
                        status: $crate::shape::Status::$status,
                        example: $example,
                        since: "0.1.0",
                    }),*],
                });

            fn decode<'n>(
                node: &'n $crate::tree::Node<'_>,
                context: &mut $crate::decode::Context<'n>,
            ) -> Self {
                let $crate::shape::Shape::Record(record) = Self::SHAPE else {
                    unreachable!("SHAPE is a record")
                };
                $(let mut $field: Option<$type> = None;)*
                let is_map = context.entries(node, record, |context, key, value| match key {
                    $(stringify!($field) => {
                        $field = Some(context.field(stringify!($field), $example, |context| {
                            <$type as $crate::decode::Decode>::decode(value, context)
                        }));
                        true
                    })*
                    _ => false,
                });
                if !is_map {
                    return <Self as $crate::decode::Decode>::placeholder();
                }
                let mut fields = record.fields.iter();
                Self {
                    $($field: {
                        let told = fields.next();
                        $field.unwrap_or_else(|| context.absent(node, told))
                    },)*
                }
            }

            fn placeholder() -> Self {
                Self { $($field: <$type as $crate::decode::Decode>::placeholder(),)* }
            }
        }
    };
}

macro_rules! presence {
    (required) => {
        $crate::shape::Presence::Required
    };
    (optional) => {
        $crate::shape::Presence::Optional
    };
    (default $text:literal) => {
        $crate::shape::Presence::Default($text)
    };
}

/// Declares an enum of words: `Variant = "word"`.
macro_rules! choice {
    (
        $(#[doc = $doc:literal])*
        pub enum $name:ident {
            $($(#[doc = $word_doc:literal])* $variant:ident = $word:literal),* $(,)?
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[doc = $word_doc])* $variant),* }

        impl $name {
            const ALL: &'static [Self] = &[$(Self::$variant),*];
        }

        impl $crate::decode::Decode for $name {
            const SHAPE: &'static $crate::shape::Shape = &$crate::shape::Shape::Choice(&[
                $($crate::shape::Choice { word: $word, doc: concat!($($word_doc, "\n"),*) }),*
            ]);

            fn decode<'n>(
                node: &'n $crate::tree::Node<'_>,
                context: &mut $crate::decode::Context<'n>,
            ) -> Self {
                let $crate::shape::Shape::Choice(choices) = Self::SHAPE else {
                    unreachable!("SHAPE is a choice")
                };
                context.choice(node, choices).map_or(Self::ALL[0], |at| Self::ALL[at])
            }

            fn placeholder() -> Self {
                Self::ALL[0]
            }
        }
    };
}

pub(crate) use {choice, presence, record};
