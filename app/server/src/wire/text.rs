//! Bytes that are text nearly always.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::openapi::{Object, RefOr};
use utoipa::{PartialSchema, ToSchema};

/// What Linux takes as bytes (arguments, variables, paths): in JSON a string, or an array of
/// bytes where it is no UTF-8.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Text(pub Vec<u8>);

/// Shows no contents: arguments and variables may hold secrets.
impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes)", self.0.len())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl PartialSchema for Text {
    fn schema() -> RefOr<Schema> {
        let byte = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(255));
        let shapes = OneOfBuilder::new()
            .item(Object::with_type(Type::String))
            .item(ArrayBuilder::new().items(byte))
            .description(Some("A string, or an array of bytes where it is no UTF-8."));
        shapes.into()
    }
}

impl ToSchema for Text {}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => self.0.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or an array of bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        Ok(text.into())
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Text, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<Text, A::Error> {
        let mut text = Vec::new();
        while let Some(byte) = bytes.next_element()? {
            text.push(byte);
        }
        Ok(Text(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive() {
        for (bytes, json) in [(&b"a\"b"[..], r#""a\"b""#), (b"", r#""""#), (b"a\xff", "[97,255]")] {
            assert_eq!(serde_json::to_string(&Text(bytes.to_vec())).unwrap(), json);
            assert_eq!(serde_json::from_str::<Text>(json).unwrap().0, bytes);
        }
        assert!(serde_json::from_str::<Text>("[256]").is_err());
    }
}
