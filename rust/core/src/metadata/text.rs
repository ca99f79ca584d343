//! The text of a metadata file, cut into its entries without a tree of JSON values: most entries are plain leaves, and
//! reading thousands of those as values takes six times as long.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::schema::{DType, LeafSchema};

/// The entries of an object in their order, each with its text.
pub(super) struct Entries<'a>(pub(super) Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Entries<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}

impl<'a> Entries<'a> {
    /// The entries of `text`. None where it is no object, or one with a key twice: reading it as a value says what that
    /// means.
    pub(super) fn of(text: &'a [u8]) -> Option<Self> {
        let entries: Self = serde_json::from_slice(text).ok()?;
        let mut seen = HashSet::with_capacity(entries.0.len());
        let distinct = entries.0.iter().all(|(key, _)| seen.insert(key.as_str()));
        distinct.then_some(entries)
    }

    /// Whether they are those of a plain dictionary.
    pub(super) fn is_plain(&self) -> bool {
        let named = |name: &str| {
            let (_, text) = self.0.iter().find(|(key, _)| key == name)?;
            serde_json::from_str::<String>(text.get()).ok()
        };
        super::is_plain(&named("_type").unwrap_or_default(), named("_class").as_deref())
    }
}

/// What is written for a leaf, and nothing else beside it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeafText<'a> {
    /// Not used: tensors of a folder are on the CPU.
    #[serde(borrow, rename = "device")]
    _device: Option<&'a str>,
    shape: Vec<u64>,
    dtype: &'a str,
    #[serde(default)]
    is_nested: bool,
}

/// The leaf that `text` describes. None where it is something else or not valid.
pub(super) fn leaf(text: &RawValue) -> Option<LeafSchema> {
    let found: LeafText<'_> = serde_json::from_str(text.get()).ok()?;
    let sizes_fit = found.shape.iter().all(|&size| i64::try_from(size).is_ok());
    let dtype = DType::parse(found.dtype).ok()?;
    (sizes_fit && !found.is_nested).then_some(LeafSchema {
        dtype,
        shape: found.shape,
    })
}
