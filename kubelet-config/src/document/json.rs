//! JSON, with the lines that its parts stand in.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::Read;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::tree::{Content, Fields, Node};
use super::{Document, place};

/// Reads a text as JSON.
pub(super) fn read(text: &[u8]) -> Result<Document, String> {
    let line = Cell::new(1);
    let duplicates = RefCell::new(Vec::new());
    let mut json = serde_json::Deserializer::from_reader(Lines { text, line: &line });
    let reader = Reader {
        line: &line,
        duplicates: &duplicates,
    };
    let root = reader
        .deserialize(&mut json)
        .and_then(|root| json.end().map(|()| root))
        .map_err(|error| format!("what starts with {{ must be JSON: {error}"))?;
    Ok(Document {
        root,
        duplicates: duplicates.into_inner(),
        passed_over: Vec::new(),
    })
}

/// A text that knows up to which line it was read. JSON is read byte by byte, and no further than the end of a
/// string or the start of an object.
struct Lines<'a> {
    text: &'a [u8],
    line: &'a Cell<u64>,
}

impl Read for Lines<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.text.read(buffer)?;
        let ends = buffer.iter().take(read).filter(|byte| **byte == b'\n').count();
        self.line.set(self.line.get() + ends as u64);
        Ok(read)
    }
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    line: &'a Cell<u64>,
    duplicates: &'a RefCell<Vec<String>>,
}

impl Reader<'_> {
    fn node(self, content: Content) -> Node {
        let line = self.line.get();
        Node { line, content }
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(self.node(Content::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(self.node(Content::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(self.node(Content::Int(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(self.node(Content::uint(value)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(self.node(Content::Float(value)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(self.node(Content::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let start = self.node(Content::Null);
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Node {
            content: Content::List(items),
            ..start
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let start = self.node(Content::Null);
        let mut fields = Fields::default();
        while let Some(key) = map.next_key::<String>()? {
            let line = self.line.get();
            let content = map.next_value_seed(self)?.content;
            if fields.set(key.clone(), Node { line, content }) {
                let duplicate = format!("{}duplicate field {key:?}", place(line));
                self.duplicates.borrow_mut().push(duplicate);
            }
        }
        Ok(Node {
            content: Content::Map(fields.list),
            ..start
        })
    }
}
