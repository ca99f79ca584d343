//! The text of a file as a tree, in the grammar of Python's `json`, which writes and reads it.
//!
//! That grammar has more than JSON: `NaN`, `Infinity` and `-Infinity`, numbers of any length, and halves of surrogate
//! pairs that stand alone. Nothing here calls itself, so that no depth is too much for the stack, and what
//! objects hold is looked at, not kept.

use std::borrow::Cow;
use std::fmt;

use serde::de::Error as _;

type Result<T> = std::result::Result<T, serde_json::Error>;

/// The key of a level under which its objects stand.
const OBJECTS: &str = "non_tensors";

/// No more characters than this of a value are told in an error.
const TOLD: usize = 200;

const MEMORY: &str = "no more values, for which there is no memory,";

/// A value, and where in the text it stands.
struct Node<'t> {
    key: Cow<'t, str>,
    kind: Kind<'t>,
    span: (usize, usize),
    /// The next value of the same list or object; 0 behind the last one.
    next: usize,
}

enum Kind<'t> {
    Null,
    Bool,
    Size(u64),
    Number,
    Text(Cow<'t, str>),
    /// The first value, or 0.
    List(usize),
    Object(usize),
}

/// A list or an object that is not closed yet.
struct Open {
    object: bool,
    /// `None` where what is inside is not kept.
    node: Option<usize>,
    last: usize,
    count: usize,
    /// Whether the lists in it are objects of a tensordict, each with what it holds as its first value.
    holds: bool,
}

/// A text, read.
pub(super) struct Tree<'t> {
    text: &'t str,
    nodes: Vec<Node<'t>>,
}

impl<'t> Tree<'t> {
    /// Reads a text.
    ///
    /// # Errors
    /// Python's `json` would not read it.
    pub(super) fn new(text: &'t str) -> Result<Self> {
        let mut reader = Reader {
            text,
            at: 0,
            nodes: Vec::new(),
        };
        reader.all()?;
        Ok(Self {
            text,
            nodes: reader.nodes,
        })
    }

    /// The outermost value.
    pub(super) fn root(&self) -> Value<'_> {
        Value { tree: self, at: 0 }
    }
}

/// A value of a tree.
#[derive(Clone, Copy)]
pub(super) struct Value<'a> {
    tree: &'a Tree<'a>,
    at: usize,
}

impl<'a> Value<'a> {
    fn node(self) -> &'a Node<'a> {
        &self.tree.nodes[self.at]
    }

    pub(super) fn is_null(self) -> bool {
        matches!(self.node().kind, Kind::Null)
    }

    pub(super) fn is_bool(self) -> bool {
        matches!(self.node().kind, Kind::Bool)
    }

    pub(super) fn as_u64(self) -> Option<u64> {
        match self.node().kind {
            Kind::Size(size) => Some(size),
            _ => None,
        }
    }

    pub(super) fn as_str(self) -> Option<&'a str> {
        match &self.node().kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The values of a list.
    pub(super) fn list(self) -> Option<impl Iterator<Item = Self>> {
        match self.node().kind {
            Kind::List(first) => Some(self.from(first)),
            _ => None,
        }
    }

    /// The keys and values of an object.
    pub(super) fn object(self) -> Option<impl Iterator<Item = (&'a str, Self)>> {
        match self.node().kind {
            Kind::Object(first) => Some(self.from(first).map(|value| (value.node().key.as_ref(), value))),
            _ => None,
        }
    }

    /// The value of an object at `key`, the last one as in Python.
    pub(super) fn get(self, key: &str) -> Option<Self> {
        self.object()?
            .filter(|(own, _)| *own == key)
            .map(|(_, value)| value)
            .last()
    }

    fn from(self, first: usize) -> impl Iterator<Item = Self> {
        let known = |at: usize| (at > 0).then_some(at);
        let tree = self.tree;
        std::iter::successors(known(first), move |at| known(tree.nodes[*at].next))
            .map(move |at| Self { tree, at })
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, end) = self.node().span;
        let text = self.tree.text.get(start..end).unwrap_or_default();
        match text.char_indices().nth(TOLD) {
            Some((cut, _)) => write!(to, "{}...", &text[..cut]),
            None => to.write_str(text),
        }
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    nodes: Vec<Node<'t>>,
}

impl<'t> Reader<'t> {
    fn fail(&self, wanted: &str) -> serde_json::Error {
        serde_json::Error::custom(format_args!("expected {wanted} at byte {} of the text", self.at))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, wanted: &str) -> bool {
        let found = self.text.as_bytes()[self.at..].starts_with(wanted.as_bytes());
        self.at += if found { wanted.len() } else { 0 };
        found
    }

    /// Reads one value with all that is in it, and the end.
    fn all(&mut self) -> Result<()> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            self.value(&mut open)?;
            // Behind a value: others, or ends.
            loop {
                self.skip_space();
                let Some(inner) = open.last() else {
                    return if self.at == self.text.len() {
                        Ok(())
                    } else {
                        Err(self.fail("the end"))
                    };
                };
                let (object, close) = (inner.object, if inner.object { "}" } else { "]" });
                if self.take(close) {
                    if let Some(node) = inner.node {
                        self.nodes[node].span.1 = self.at;
                    }
                    open.pop();
                } else if inner.count == 0 || self.take(",") {
                    break;
                } else {
                    return Err(self.fail(if object { "',' or '}'" } else { "',' or ']'" }));
                }
            }
        }
    }

    /// Reads the beginning of a list or object, or any other value, with its key where it has one.
    fn value(&mut self, open: &mut Vec<Open>) -> Result<()> {
        let key = match open.last() {
            Some(Open { object: true, .. }) => self.key()?,
            _ => Cow::Borrowed(""),
        };
        self.skip_space();
        let start = self.at;
        let kind = self.kind()?;
        let depth = open.len();
        let held =
            depth > 1 && open[depth - 2].holds && !open[depth - 1].object && open[depth - 1].count == 0;
        let mut node = None;
        let mut kept = true;
        if let Some(parent) = open.last_mut() {
            parent.count += 1;
            kept = parent.node.is_some();
        }
        let inner = match kind {
            Kind::List(_) => Some(false),
            Kind::Object(_) => Some(true),
            _ => None,
        };
        let holds = key == OBJECTS && inner == Some(true);
        if kept {
            let at = self.nodes.len();
            self.nodes.try_reserve(1).map_err(|_| self.fail(MEMORY))?;
            self.nodes.push(Node {
                key,
                kind,
                span: (start, self.at),
                next: 0,
            });
            if let Some(parent) = open.last_mut() {
                self.tie(parent, at);
            }
            node = (!held).then_some(at);
        }
        if let Some(object) = inner {
            open.try_reserve(1).map_err(|_| self.fail(MEMORY))?;
            open.push(Open {
                object,
                node,
                last: 0,
                count: 0,
                holds,
            });
        }
        Ok(())
    }

    /// Makes the node `at` the next one of its list or object.
    fn tie(&mut self, parent: &mut Open, at: usize) {
        let Some(node) = parent.node else { return };
        if parent.last > 0 {
            self.nodes[parent.last].next = at;
        } else if let Kind::List(first) | Kind::Object(first) = &mut self.nodes[node].kind {
            *first = at;
        }
        parent.last = at;
    }

    fn key(&mut self) -> Result<Cow<'t, str>> {
        self.skip_space();
        if !self.take("\"") {
            return Err(self.fail("a key in quotes"));
        }
        let key = self.string()?;
        self.skip_space();
        if self.take(":") {
            Ok(key)
        } else {
            Err(self.fail("':'"))
        }
    }

    fn kind(&mut self) -> Result<Kind<'t>> {
        Ok(match self.peek() {
            Some(b'"') => {
                self.at += 1;
                Kind::Text(self.string()?)
            }
            Some(b'{') => {
                self.at += 1;
                Kind::Object(0)
            }
            Some(b'[') => {
                self.at += 1;
                Kind::List(0)
            }
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ if self.take("null") => Kind::Null,
            _ if self.take("true") || self.take("false") => Kind::Bool,
            _ if self.take("NaN") || self.take("Infinity") => Kind::Number,
            _ => return Err(self.fail("a value")),
        })
    }

    fn number(&mut self) -> Result<Kind<'t>> {
        let start = self.at;
        let negative = self.take("-");
        if negative && self.take("Infinity") {
            return Ok(Kind::Number);
        }
        if !self.take("0") {
            self.digits()?;
        }
        let whole = self.at;
        if self.take(".") {
            self.digits()?;
        }
        if self.take("e") || self.take("E") {
            let _ = self.take("+") || self.take("-");
            self.digits()?;
        }
        let number = &self.text[start..self.at];
        // One of more than 64 bits is no size.
        let size = if negative || self.at > whole {
            None
        } else {
            number.parse().ok()
        };
        Ok(size.map_or(Kind::Number, Kind::Size))
    }

    fn digits(&mut self) -> Result<()> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at > start {
            Ok(())
        } else {
            Err(self.fail("a digit"))
        }
    }

    /// Reads a string behind its first quote.
    fn string(&mut self) -> Result<Cow<'t, str>> {
        let mut decoded: Option<String> = None;
        loop {
            let start = self.at;
            while !matches!(self.peek(), None | Some(b'"' | b'\\' | 0..=0x1f)) {
                self.at += 1;
            }
            // Quotes, backslashes and control characters are no parts of longer characters.
            let plain = &self.text[start..self.at];
            if self.take("\"") {
                return Ok(match decoded {
                    None => Cow::Borrowed(plain),
                    Some(before) => Cow::Owned(before + plain),
                });
            }
            if !self.take("\\") {
                return Err(self.fail("a character of a string, or its end"));
            }
            let decoded = decoded.get_or_insert_default();
            decoded.push_str(plain);
            self.escape(decoded)?;
        }
    }

    /// Reads what follows a backslash.
    fn escape(&mut self, into: &mut String) -> Result<()> {
        let known = [
            ("\"", '"'),
            ("\\", '\\'),
            ("/", '/'),
            ("b", '\u{8}'),
            ("f", '\u{c}'),
            ("n", '\n'),
            ("r", '\r'),
            ("t", '\t'),
        ];
        if let Some((_, meant)) = known.iter().find(|(letter, _)| self.take(letter)) {
            into.push(*meant);
            return Ok(());
        }
        if !self.take("u") {
            return Err(self.fail("a known character behind a backslash"));
        }
        let first = self.hex()?;
        let behind = self.at;
        if (0xd800..0xdc00).contains(&first) && self.take("\\u") {
            let second = self.hex()?;
            if (0xdc00..0xe000).contains(&second) {
                let both = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                into.extend(char::from_u32(both));
                return Ok(());
            }
            self.at = behind;
        }
        if let Some(meant) = char::from_u32(first) {
            into.push(meant);
        } else {
            // Half of a pair, which is no character here; its number tells it from others.
            into.push(char::REPLACEMENT_CHARACTER);
            let digits = [12, 8, 4, 0].map(|bits| char::from_digit((first >> bits) & 15, 16));
            into.extend(digits.into_iter().flatten());
        }
        Ok(())
    }

    fn hex(&mut self) -> Result<u32> {
        let digits = self.text.get(self.at..self.at + 4);
        let number = digits
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let number = number.ok_or_else(|| self.fail("four hexadecimal digits"))?;
        self.at += 4;
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn same(ours: Value<'_>, theirs: &serde_json::Value) -> bool {
        use serde_json::Value as Json;
        match theirs {
            Json::Null => ours.is_null(),
            Json::Bool(_) => ours.is_bool(),
            Json::Number(_) => ours.as_u64() == theirs.as_u64() && ours.as_str().is_none(),
            Json::String(text) => ours.as_str() == Some(text),
            Json::Array(list) => ours.list().is_some_and(|own| {
                let own: Vec<_> = own.collect();
                own.len() == list.len() && own.iter().zip(list).all(|(a, b)| same(*a, b))
            }),
            Json::Object(object) => ours.object().is_some_and(|own| {
                own.count() == object.len()
                    && object
                        .iter()
                        .all(|(key, value)| ours.get(key).is_some_and(|own| same(own, value)))
            }),
        }
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<u64>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(5, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_json_is_read_as_json(value in json(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.unwrap_or_default();
            let tree = Tree::new(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert!(same(tree.root(), &value));
        }

        #[test]
        fn what_is_no_json_is_an_error(value in json(), at: prop::sample::Index, byte in 32_u8..127) {
            let mut bytes = serde_json::to_vec(&value).unwrap_or_default();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(text) = String::from_utf8(bytes) {
                let wanted = serde_json::from_str::<serde_json::Value>(&text);
                let found = Tree::new(&text);
                match (wanted, found) {
                    (Ok(wanted), Ok(tree)) => prop_assert!(same(tree.root(), &wanted) || text.contains("\\u") || has_twice(&text)),
                    (Ok(_), Err(error)) => prop_assert!(false, "{text}: {error}"),
                    // What only Python reads.
                    (Err(error), Ok(_)) => prop_assert!(error.to_string().contains("number out of range") || error.to_string().contains("surrogate") || error.to_string().contains("hex escape"), "{text}: {error}"),
                    (Err(_), Err(_)) => {}
                }
            }
        }
    }

    /// Whether a key may stand twice in an object: the number of values then differs.
    fn has_twice(text: &str) -> bool {
        text.matches("\":").count() > 1
    }

    #[test]
    fn what_only_python_writes_is_read() -> Result<()> {
        let digits = "9".repeat(1000);
        let text = format!(
            r#"[NaN, Infinity, -Infinity, {digits}, -{digits}, 1e999, "\ud800", "\udc00\ud83d\ude00"]"#
        );
        let tree = Tree::new(&text)?;
        let values: Vec<_> = tree.root().list().into_iter().flatten().collect();
        assert_eq!(values.len(), 8);
        assert!(
            values[..6]
                .iter()
                .all(|value| value.as_u64().is_none() && !value.is_null())
        );
        assert_eq!(values[6].as_str(), Some("\u{fffd}d800"));
        assert_eq!(values[7].as_str(), Some("\u{fffd}dc00\u{1f600}"));
        assert!(values[3].to_string().ends_with("9..."));
        Ok(())
    }

    #[test]
    fn depth_needs_no_stack() -> Result<()> {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let text = open.repeat(1_000_000) + "null" + &close.repeat(1_000_000);
            assert_eq!(Tree::new(&text)?.nodes.len(), 1_000_001);
            assert!(Tree::new(&text[..text.len() - 1]).is_err());
        }
        Ok(())
    }

    #[test]
    fn what_objects_hold_is_checked_and_not_kept() -> Result<()> {
        let text = r#"{"non_tensors": {"a": [[1, {"b": [2]}], [3], null], "c": [{}, [], "cpu"]}}"#;
        let tree = Tree::new(text)?;
        let objects = tree
            .root()
            .get(OBJECTS)
            .map(|held| held.object().into_iter().flatten());
        let objects: Vec<_> = objects
            .into_iter()
            .flatten()
            .map(|(key, value)| (key, value.to_string()))
            .collect();
        assert_eq!(
            objects,
            [
                ("a", r#"[[1, {"b": [2]}], [3], null]"#.into()),
                ("c", r#"[{}, [], "cpu"]"#.into())
            ]
        );
        assert_eq!(tree.nodes.len(), 11);
        assert!(Tree::new(&text.replace("[2]", "[2")).is_err());
        Ok(())
    }

    #[test]
    fn bad_texts_are_errors() {
        for text in [
            "",
            " ",
            "[",
            "[1",
            "[1,",
            "[1,]",
            "[,1]",
            "{",
            "{1: 2}",
            "{\"a\"}",
            "{\"a\" 1}",
            "{\"a\": 1,}",
            "[1}",
            "{\"a\": 1]",
            "1 2",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "-NaN",
            "nan",
            "tru",
            "\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u+123\"",
            "\"\u{1}\"",
            "]",
            "\"\\ud800\\u12\"",
            "[]]",
        ] {
            assert!(Tree::new(text).is_err(), "{text}");
        }
    }
}
