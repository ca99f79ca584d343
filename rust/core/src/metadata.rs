//! The `meta.json` of a folder that holds a dictionary of tensors, and how keys become names of files.
//!
//! Each level is a folder with its own file: an object with one entry a field, and beside those `shape` (the batch
//! size), `device`, `_type`, `_class`, `_names` and `_format_version`. A tensor `a` is in `a.memmap`, a nested level `b`
//! in the folder `b`. Fields whose key is one of those other names would be lost in such an object. They are written to
//! an entry of their own, `_fields`, which older readers pass over.

use std::borrow::Cow;
use std::path::Path;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::ragged::RaggedSchema;
use crate::schema::{DType, LeafSchema};
use crate::{Error, Result};

mod text;

/// Name of the metadata file of a level.
pub const META: &str = "meta.json";
/// What the name of a tensor's file ends with.
pub const LEAF_SUFFIX: &str = ".memmap";
/// Newest version of the format that is read, and the one that is written.
pub const VERSION: u64 = 1;
/// Type of the dictionaries that are described by the metadata alone.
pub const PLAIN_TYPE: &str = "<class 'tensordict._td.TensorDict'>";
/// Class of the same.
pub const PLAIN_CLASS: &str = "tensordict:TensorDict";

/// Sub-folders in which a level that is no plain dictionary keeps another one; its members are in sub-folders named by their
/// numbers.
pub const INNER: [&str; 2] = ["_tensordict", "_source"];
/// Files that such a level may have beside its metadata.
pub const ATTACHED: [&str; 2] = ["other.pickle", "pickle.pkl"];

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

/// Entries of the object that are not fields.
const RESERVED: [&str; 7] = [
    "shape",
    "device",
    "_type",
    "_class",
    "_format_version",
    "_names",
    FIELDS,
];
/// Entries by which a level of any kind is known.
const DESCRIBED: [&str; 3] = ["_type", "_class", "_format_version"];
/// Entry with the fields whose key is reserved.
const FIELDS: &str = "_fields";

/// What a level says of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A tensor in a file of its own.
    Leaf(LeafSchema),
    /// A ragged tensor.
    Ragged(RaggedSchema),
    /// A level in a folder of its own, and the name of its type.
    Level(String),
}

/// Metadata of one level.
#[derive(Debug, Clone, PartialEq)]
pub struct Metadata {
    /// Python's `str` of the class: `<class 'tensordict._td.TensorDict'>`.
    pub kind: String,
    /// Where to import the class from, `module:name`. Older folders have none.
    pub class: Option<String>,
    /// Version of the format. Older folders have none.
    pub version: Option<u64>,
    /// Batch size. A level that is no dictionary may have none.
    pub shape: Option<Vec<u64>>,
    /// Device.
    pub device: Option<String>,
    /// Names of the batch dimensions.
    pub names: Option<Vec<Option<String>>>,
    /// Fields in their order.
    pub entries: Vec<(String, Entry)>,
    /// What else is in the file, kept as it is.
    pub rest: Map<String, Value>,
    /// The whole file, where the level is no plain dictionary: its own code reads it, and numbers and texts stay as they are.
    pub text: Option<Vec<u8>>,
}

impl Metadata {
    /// Metadata of a plain dictionary without fields.
    #[must_use]
    pub fn plain(shape: Vec<u64>) -> Self {
        Self {
            kind: PLAIN_TYPE.into(),
            class: Some(PLAIN_CLASS.into()),
            version: Some(VERSION),
            shape: Some(shape),
            device: Some("cpu".into()),
            names: None,
            entries: Vec::new(),
            rest: Map::new(),
            text: None,
        }
    }

    /// Whether the level is a dictionary that this metadata describes in full. Others need their own code to be read.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        is_plain(&self.kind, self.class.as_deref())
    }

    /// Whether this is what a level that is no plain dictionary says of itself, and it has another one in the sub-folder `name`.
    /// The files of other programs may be named alike and have a `_type` too: that of a level is a class as Python prints it,
    /// and one with numbered members lists them or says along which dimension they are stacked.
    #[must_use]
    pub fn has_member(&self, name: &str) -> bool {
        let class = self.kind.strip_prefix("<class '");
        let is_class = class.is_some_and(|rest| rest.ends_with("'>") && rest.contains('.'));
        if !is_class || self.is_plain() {
            return false;
        }
        let is_listed = || self.entries.iter().any(|(key, _)| key == name);
        INNER.contains(&name) || (is_number(name) && (is_listed() || self.is_stack()))
    }

    fn is_stack(&self) -> bool {
        let text = self.text.as_deref().unwrap_or_default();
        text::Entries::of(text).is_some_and(|entries| entries.0.iter().any(|(key, _)| key == "stack_dim"))
    }

    /// Reads the text of the file `path`.
    ///
    /// # Errors
    /// The text is no JSON object, its version is too new, or an entry is not what it must be.
    pub fn parse(text: &[u8], path: &Path) -> Result<Self> {
        let mut meta = Self {
            kind: String::new(),
            class: None,
            version: None,
            shape: None,
            device: None,
            names: None,
            entries: Vec::new(),
            rest: Map::new(),
            text: None,
        };
        match text::Entries::of(text) {
            Some(entries) if entries.is_plain() => meta.take_all(entries, path)?,
            Some(entries) => meta.take_other(entries, text, path)?,
            None => meta.take_values(Self::object(text, path)?, text, path)?,
        }
        if meta.kind.is_empty() {
            return Err(Error::Metadata {
                path: path.into(),
                field: "_type".into(),
                wanted: "the name of a class",
                found: "missing".into(),
            });
        }
        meta.check_names(path)?;
        Ok(meta)
    }

    /// Checks that there is one name for each dimension, and that no two are the same.
    fn check_names(&self, path: &Path) -> Result<()> {
        let Some(names) = &self.names else {
            return Ok(());
        };
        let mut seen = std::collections::HashSet::new();
        let is_unique = names.iter().flatten().all(|name| seen.insert(name));
        if is_unique && names.len() == self.shape.as_ref().map_or(0, Vec::len) {
            return Ok(());
        }
        let found = Value::from(names.clone());
        Err(unexpected(
            path,
            "_names",
            "one name for each dimension of the batch",
            &found,
        ))
    }

    /// The JSON object that a text is.
    ///
    /// # Errors
    /// It is none.
    pub fn object(text: &[u8], path: &Path) -> Result<Map<String, Value>> {
        serde_json::from_slice(text).map_err(|source| not_json(source, path))
    }

    /// Puts entries where they belong. Plain leaves are read as what they are, all else as JSON values.
    fn take_all(&mut self, entries: text::Entries<'_>, path: &Path) -> Result<()> {
        self.entries.reserve(entries.0.len());
        for (key, text) in entries.0 {
            if !RESERVED.contains(&key.as_str())
                && let Some(leaf) = text::leaf(text)
            {
                self.entries.push((key, Entry::Leaf(leaf)));
            } else {
                let value = serde_json::from_str(text.get()).map_err(|source| not_json(source, path))?;
                self.take(key, value, path)?;
            }
        }
        Ok(())
    }

    /// Takes what is to be known of a level that is no plain dictionary: its class, and which members it lists. The rest is
    /// for its own code, so it may be nested to any depth and hold any number.
    fn take_other(&mut self, entries: text::Entries<'_>, text: &[u8], path: &Path) -> Result<()> {
        for (key, found) in entries.0 {
            let is_object = found.get().starts_with('{');
            if is_number(&key) && is_object {
                self.entries.push((key, Entry::Level(String::new())));
            } else if DESCRIBED.contains(&key.as_str()) {
                let value = serde_json::from_str(found.get()).map_err(|source| not_json(source, path))?;
                self.take(key, value, path)?;
            }
        }
        self.entries
            .sort_by_key(|(key, _)| (key.trim_start_matches('0').len(), key.clone()));
        self.text = Some(text.to_vec());
        Ok(())
    }

    /// The same for entries that are values already, of a level of either kind.
    fn take_values(&mut self, mut object: Map<String, Value>, text: &[u8], path: &Path) -> Result<()> {
        let named = |name: &str| object.get(name).and_then(Value::as_str);
        if !is_plain(named("_type").unwrap_or_default(), named("_class")) {
            self.text = Some(text.to_vec());
            object.retain(|key, value| {
                DESCRIBED.contains(&key.as_str()) || (is_number(key) && value.is_object())
            });
        }
        for (key, value) in object {
            if self.text.is_some() && is_number(&key) {
                self.entries.push((key, Entry::Level(String::new())));
            } else {
                self.take(key, value, path)?;
            }
        }
        Ok(())
    }

    /// Puts one entry of the object where it belongs.
    fn take(&mut self, key: String, value: Value, path: &Path) -> Result<()> {
        let fail = |wanted, value: &Value| Err(unexpected(path, &key, wanted, value));
        match (key.as_str(), value) {
            (FIELDS, Value::Array(pairs)) => return self.take_reserved(pairs, path),
            ("_type", Value::String(kind)) if !kind.is_empty() => self.kind = kind,
            ("_class", Value::String(class)) => self.class = Some(class),
            ("_format_version", value @ Value::Number(_)) => match value.as_u64() {
                Some(found) if found > VERSION => {
                    return Err(Error::FormatVersion {
                        path: path.into(),
                        found,
                        supported: VERSION,
                    });
                }
                Some(found) => self.version = Some(found),
                None => return fail("a version number", &value),
            },
            ("shape", value @ Value::Array(_)) => self.shape = Some(shape(&value, "shape", path)?),
            ("device", Value::String(device)) => self.device = Some(device),
            ("device", Value::Null) => {}
            ("_names", Value::Array(names)) => self.names = Some(dimension_names(names, path)?),
            ("_type" | "shape" | "device", value) => return fail("a description of the level", &value),
            (_, Value::Object(object)) => match entry(&object, &key, path)? {
                Some(found) => self.entries.push((key, found)),
                None => {
                    self.rest.insert(key, Value::Object(object));
                }
            },
            (_, value) => {
                self.rest.insert(key, value);
            }
        }
        Ok(())
    }

    fn take_reserved(&mut self, pairs: Vec<Value>, path: &Path) -> Result<()> {
        for pair in pairs {
            let (key, value) = match pair {
                Value::Array(mut pair) if pair.len() == 2 => (pair.swap_remove(0), pair.swap_remove(0)),
                other => return Err(unexpected(path, FIELDS, "pairs of a key and its entry", &other)),
            };
            match (key, value) {
                (Value::String(key), Value::Object(object)) => match entry(&object, &key, path)? {
                    Some(found) => self.entries.push((key, found)),
                    None => {
                        return Err(unexpected(
                            path,
                            FIELDS,
                            "entries of fields",
                            &Value::Object(object),
                        ));
                    }
                },
                (key, _) => return Err(unexpected(path, FIELDS, "pairs of a key and its entry", &key)),
            }
        }
        // A file that says one key twice would make two fields of one name.
        let mut seen = std::collections::HashSet::new();
        match self.entries.iter().find(|(key, _)| !seen.insert(key.as_str())) {
            None => Ok(()),
            Some((key, _)) => Err(Error::Metadata {
                path: path.into(),
                field: key.clone(),
                wanted: "one entry",
                found: "there twice".into(),
            }),
        }
    }

    /// The text of the file.
    ///
    /// # Errors
    /// Never for what this crate makes; the serializer's own error otherwise.
    pub fn to_json(&self, path: &Path) -> Result<Vec<u8>> {
        if let Some(text) = &self.text {
            return Ok(text.clone());
        }
        serde_json::to_vec(self).map_err(|source| not_json(source, path))
    }
}

fn is_plain(kind: &str, class: Option<&str>) -> bool {
    class == Some(PLAIN_CLASS) || [PLAIN_TYPE, "<class 'tensordict.tensordict.TensorDict'>"].contains(&kind)
}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let reserved = |key: &str| RESERVED.contains(&key) || self.rest.contains_key(key);
        for (key, entry) in self.entries.iter().filter(|(key, _)| !reserved(key)) {
            map.serialize_entry(key, entry)?;
        }
        let hidden: Vec<(&str, &Entry)> = self
            .entries
            .iter()
            .filter(|(key, _)| reserved(key))
            .map(|(key, entry)| (key.as_str(), entry))
            .collect();
        if !hidden.is_empty() {
            map.serialize_entry(FIELDS, &hidden)?;
        }
        if let Some(shape) = &self.shape {
            map.serialize_entry("shape", shape)?;
        }
        if let Some(device) = &self.device {
            map.serialize_entry("device", device)?;
        }
        map.serialize_entry("_type", &self.kind)?;
        if let Some(version) = self.version {
            map.serialize_entry("_format_version", &version)?;
        }
        if let Some(class) = &self.class {
            map.serialize_entry("_class", class)?;
        }
        if let Some(names) = &self.names {
            map.serialize_entry("_names", names)?;
        }
        for (key, value) in &self.rest {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Leaf(leaf) => {
                let mut map = serializer.serialize_map(Some(4))?;
                map.serialize_entry("device", "cpu")?;
                map.serialize_entry("shape", &leaf.shape)?;
                map.serialize_entry("dtype", &leaf.dtype)?;
                map.serialize_entry("is_nested", &false)?;
                map.end()
            }
            Self::Ragged(ragged) => ragged.entry.serialize(serializer),
            Self::Level(kind) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("type", kind)?;
                map.end()
            }
        }
    }
}

/// The field that an entry describes; none where it describes no field.
fn entry(object: &Map<String, Value>, key: &str, path: &Path) -> Result<Option<Entry>> {
    if let Some(Value::String(kind)) = object.get("type") {
        return Ok(Some(Entry::Level(kind.clone())));
    }
    if object.get("is_nested") == Some(&Value::Bool(true)) {
        return RaggedSchema::parse(object, key, path).map(|found| Some(Entry::Ragged(found)));
    }
    let (Some(sizes), Some(dtype)) = (object.get("shape"), object.get("dtype")) else {
        return Ok(None);
    };
    let shape = shape(sizes, key, path)?;
    let dtype = match dtype {
        Value::String(name) => {
            DType::parse(name).map_err(|_| unexpected(path, key, "a data type of torch", dtype))?
        }
        other => return Err(unexpected(path, key, "a data type of torch", other)),
    };
    Ok(Some(Entry::Leaf(LeafSchema { dtype, shape })))
}

/// A list of sizes, each within what a signed number holds.
pub(crate) fn shape(value: &Value, field: &str, path: &Path) -> Result<Vec<u64>> {
    let fail = || unexpected(path, field, "a list of sizes", value);
    let sizes = value.as_array().ok_or_else(fail)?;
    sizes
        .iter()
        .map(|size| {
            size.as_u64()
                .filter(|&size| i64::try_from(size).is_ok())
                .ok_or_else(fail)
        })
        .collect()
}

fn dimension_names(names: Vec<Value>, path: &Path) -> Result<Vec<Option<String>>> {
    names
        .into_iter()
        .map(|name| match name {
            Value::Null => Ok(None),
            Value::String(name) => Ok(Some(name)),
            other => Err(unexpected(path, "_names", "names of dimensions", &other)),
        })
        .collect()
}

/// The error for a value of the wrong kind. Long values are cut.
pub(crate) fn unexpected(path: &Path, field: &str, wanted: &'static str, found: &Value) -> Error {
    let mut found = found.to_string();
    if let Some((cut, _)) = found.char_indices().nth(60) {
        found.truncate(cut);
        found.push_str("...");
    }
    Error::Metadata {
        path: path.into(),
        field: field.into(),
        wanted,
        found,
    }
}

fn not_json(source: serde_json::Error, path: &Path) -> Error {
    Error::Json {
        path: path.into(),
        source,
    }
}

/// How keys become names of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Naming {
    /// Characters that a file system might not take are percent-encoded.
    #[default]
    Robust,
    /// The key itself.
    Verbatim,
}

impl Naming {
    /// Name of the folder of a level `key`. The file of a tensor has [`LEAF_SUFFIX`] after it.
    #[must_use]
    pub fn name(self, key: &str) -> Cow<'_, str> {
        match self {
            Self::Robust => encode(key),
            Self::Verbatim => key.into(),
        }
    }

    /// The other way to name.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Robust => Self::Verbatim,
            Self::Verbatim => Self::Robust,
        }
    }
}

/// Percent-encodes what file systems reserve: control characters, the space, separators and wildcards, and the keys that
/// would name no file, the folder itself or its parent.
fn encode(key: &str) -> Cow<'_, str> {
    match key {
        "" => return "%".into(),
        "." => return "%2E".into(),
        ".." => return "%2E%2E".into(),
        _ => {}
    }
    let special = |byte: u8| byte <= b' ' || byte == 0x7F || b"\"%*/:<>?\\|".contains(&byte);
    if !key.bytes().any(special) {
        return key.into();
    }
    let mut name = String::with_capacity(key.len() + 8);
    for character in key.chars() {
        match u8::try_from(character) {
            Ok(byte) if special(byte) => {
                let digit = |nibble: u8| char::from(b"0123456789ABCDEF"[usize::from(nibble & 15)]);
                name.extend(['%', digit(byte >> 4), digit(byte)]);
            }
            _ => name.push(character),
        }
    }
    name.into()
}

/// Whether `name` is the name of something directly in a folder.
#[must_use]
pub fn is_plain_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

/// Whether `path` stays within the folder it is relative to, by its names alone.
#[must_use]
pub fn is_inside(path: &str) -> bool {
    path.split('/').all(is_plain_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_encoded_as_the_reference_does() {
        for (key, name) in [
            ("a.b", "a.b"),
            ("x/y.z \u{e9}", "x%2Fy.z%20\u{e9}"),
            ("", "%"),
            (".", "%2E"),
            ("..", "%2E%2E"),
            ("...", "..."),
            ("%2F", "%252F"),
            (":*?\"<>|\\", "%3A%2A%3F%22%3C%3E%7C%5C"),
            ("a\u{0}\u{1f}\u{7f}\u{85}", "a%00%1F%7F\u{85}"),
            ("!#$&'()+,-.;=@[]^_`{}~", "!#$&'()+,-.;=@[]^_`{}~"),
        ] {
            assert_eq!(Naming::Robust.name(key), name);
            assert!(is_plain_name(&Naming::Robust.name(key)));
        }
    }

    #[test]
    fn entries_read_as_text_are_those_read_as_values() {
        let entries = [
            r#"{"shape": [3, 0], "dtype": "torch.int64"}"#,
            r#"{"device": null, "shape": [], "dtype": "float32", "is_nested": false}"#,
            r#"{"shape": [1], "shape": [2], "dtype": "torch.int8"}"#,
            r#"{"shape": [1], "dtype": "torch\u002eint8"}"#,
            r#"{"shape": [1], "dtype": "torch.int8", "more": [1, {"a": 2}]}"#,
            r#"{"shape": [18446744073709551615], "dtype": "torch.int8"}"#,
            r#"{"shape": [-1], "dtype": "torch.int8"}"#,
            r#"{"shape": [1.5], "dtype": "torch.int8"}"#,
            r#"{"shape": [1], "dtype": "torch.int9"}"#,
            r#"{"shape": [1], "dtype": "torch.int8", "is_nested": 3}"#,
            r#"{"type": "TensorDict"}"#,
            r#"{"is_nested": true}"#,
            "[1, 2]",
            "null",
        ];
        for entry in entries {
            for key in ["a", "_names", "device", "x\\u0041"] {
                let text = format!(r#"{{"{key}": {entry}, "shape": [], "_type": "{PLAIN_TYPE}"}}"#);
                let path = Path::new("meta.json");
                let quick = Metadata::parse(text.as_bytes(), path);
                // The same file with a key twice is read as a value.
                let twice = text.replacen('{', r#"{"_type": "U", "#, 1);
                let slow = Metadata::parse(twice.as_bytes(), path);
                let plain = |found: Result<Metadata>| found.map_err(|error| error.to_string());
                assert_eq!(plain(quick), plain(slow), "{text}");
            }
        }
    }

    #[test]
    fn the_reference_s_file_is_read() -> Result<()> {
        let text = br#"{"a": {"device": "cpu", "shape": [3, 2], "dtype": "torch.int64", "is_nested": false},
            "b": {"type": "TensorDict"}, "shape": [3], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>",
            "_format_version": 1, "_class": "tensordict:TensorDict", "_names": ["t"]}"#;
        let meta = Metadata::parse(text, Path::new("meta.json"))?;
        assert!(meta.is_plain());
        assert_eq!(meta.shape, Some(vec![3]));
        assert_eq!(meta.names, Some(vec![Some("t".into())]));
        assert_eq!(meta.entries[1], ("b".into(), Entry::Level("TensorDict".into())));
        assert_eq!(
            Metadata::parse(&meta.to_json(Path::new("x"))?, Path::new("x"))?,
            meta
        );
        Ok(())
    }

    #[test]
    fn reserved_keys_are_not_lost() -> Result<()> {
        let mut meta = Metadata::plain(vec![2]);
        for key in RESERVED.iter().chain(&["ordinary"]) {
            let leaf = LeafSchema {
                dtype: DType::F32,
                shape: vec![2],
            };
            meta.entries.push(((*key).into(), Entry::Leaf(leaf)));
        }
        let again = Metadata::parse(&meta.to_json(Path::new("x"))?, Path::new("x"))?;
        let mut keys: Vec<&str> = again.entries.iter().map(|(key, _)| key.as_str()).collect();
        keys.sort_unstable();
        let mut wanted: Vec<&str> = meta.entries.iter().map(|(key, _)| key.as_str()).collect();
        wanted.sort_unstable();
        assert_eq!(keys, wanted);
        Ok(())
    }
}
