//! The JSON Schema, for editors and other programs.

use serde_json::{Map, Value, json};

use crate::shape::{Field, Presence, Record, Shape};
use crate::top;

/// The schema of the whole file, in the dialect 2020-12, ending in a line feed.
pub fn json_schema() -> String {
    let text = serde_json::to_string_pretty(&schema()).expect("a value is always JSON");
    text + "\n"
}

fn schema() -> Value {
    let mut records = Map::new();
    let root = record(top(), &mut records);
    let mut schema = Map::new();
    schema.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".to_owned(), json!("fourplane.yaml"));
    let Value::Object(root) = root else { unreachable!("a record is an object") };
    schema.extend(root);
    schema.insert("$defs".to_owned(), Value::Object(records));
    Value::Object(schema)
}

fn record(record: &'static Record, records: &mut Map<String, Value>) -> Value {
    let mut properties = Map::new();
    for field in record.fields {
        properties.insert(field.name.to_owned(), property(field, records));
    }
    let required = record.fields.iter().filter(|field| field.presence == Presence::Required);
    json!({
        "description": record.doc.trim(),
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
        "required": required.map(|field| field.name).collect::<Vec<_>>(),
    })
}

fn property(field: &'static Field, records: &mut Map<String, Value>) -> Value {
    let Value::Object(mut schema) = shape(field.shape, records) else { unreachable!("a shape is an object") };
    schema.insert("description".to_owned(), json!(field.doc.trim()));
    if let Presence::Default(text) = field.presence {
        let default = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
        schema.insert("default".to_owned(), default);
    }
    Value::Object(schema)
}

fn shape(shape_of: &'static Shape, records: &mut Map<String, Value>) -> Value {
    match shape_of {
        Shape::Text(form) if form.pattern.is_empty() => json!({ "type": "string" }),
        Shape::Text(form) => json!({ "type": "string", "pattern": form.pattern }),
        Shape::Integer { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Shape::Bool => json!({ "type": "boolean" }),
        Shape::Choice(choices) => {
            let words: Vec<_> = choices
                .iter()
                .map(|choice| json!({ "const": choice.word, "description": choice.doc.trim() }))
                .collect();
            json!({ "oneOf": words })
        }
        Shape::List(item) => {
            let item = shape(item, records);
            json!({ "anyOf": [{ "type": "array", "items": item.clone() }, item] })
        }
        Shape::Map(item) => {
            let item = shape(item, records);
            json!({ "type": "object", "additionalProperties": item })
        }
        Shape::Record(one) => {
            if !records.contains_key(one.name) {
                // Its place is taken first, should it hold itself.
                records.insert(one.name.to_owned(), Value::Null);
                let schema = record(one, records);
                records.insert(one.name.to_owned(), schema);
            }
            json!({ "$ref": format!("#/$defs/{}", one.name) })
        }
    }
}
