//! Plans of small trees, and what a folder holds.
#![allow(
    clippy::unwrap_used,
    dead_code,
    missing_docs,
    reason = "a test fails by panicking, and each takes what it needs"
)]

use std::fs;
use std::path::Path;

use tensordict_core::Error;
use tensordict_core::file::{SaveLeaf, SaveLevel, SaveOptions, SavePlan, Says, Source, Stayed};
use tensordict_core::metadata::{Metadata, Naming};
use tensordict_core::reader::{ReadOptions, Tree, read};
use tensordict_core::schema::{DType, LeafSchema};

pub(crate) const OPTIONS: SaveOptions<'static> = SaveOptions {
    stayed: Stayed::ALWAYS,
    naming: Naming::Robust,
    copy_existing: false,
    replace: true,
    durable: false,
};

/// A level of batch size 2.
pub(crate) fn level(parent: Option<usize>, key: &str, after: usize) -> SaveLevel<'_> {
    SaveLevel {
        parent,
        key: key.into(),
        kind: "TensorDict".into(),
        meta: Metadata::plain(vec![2]),
        after,
        files: Vec::new(),
    }
}

/// A level that says of itself what `text` says.
pub(crate) fn described<'a>(parent: Option<usize>, key: &'a str, after: usize, text: &str) -> SaveLevel<'a> {
    SaveLevel {
        meta: Metadata::parse(text.as_bytes(), Path::new("text")).unwrap(),
        ..level(parent, key, after)
    }
}

/// A leaf of bytes, in two rows.
pub(crate) fn leaf<'a>(level: usize, key: &'a str, bytes: &'a [u8]) -> SaveLeaf<'a> {
    SaveLeaf {
        level,
        key: key.into(),
        schema: LeafSchema {
            dtype: DType::U8,
            shape: vec![2, bytes.len() as u64 / 2],
        },
        source: Source::Bytes(bytes),
        origin: None,
        says: Says::Schema,
    }
}

/// `{"a": bytes, "n": {"b": bytes}}`
pub(crate) fn plain(bytes: &[u8]) -> SavePlan<'_> {
    SavePlan {
        levels: vec![level(None, "", 0), level(Some(0), "n", 1)],
        leaves: vec![leaf(0, "a", bytes), leaf(1, "b", bytes)],
    }
}

pub(crate) fn load(path: &Path) -> Result<Tree, Error> {
    read(path, "", ReadOptions::default())
}

/// Bytes of each leaf.
pub(crate) fn lengths(tree: &Tree) -> Vec<usize> {
    let length = |leaf: &tensordict_core::reader::Leaf| leaf.map.as_ref().unwrap().len();
    tree.leaves.iter().map(length).collect()
}

/// What is in a folder and, but for links, in those below.
pub(crate) fn everything(path: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![path.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for item in fs::read_dir(folder).unwrap() {
            let item = item.unwrap();
            let place = item.path();
            found.push(place.strip_prefix(path).unwrap().to_str().unwrap().to_owned());
            if item.file_type().unwrap().is_dir() {
                folders.push(place);
            }
        }
    }
    found.sort();
    found
}

/// The same without the folders.
pub(crate) fn files(path: &Path) -> Vec<String> {
    let mut found = everything(path);
    found.retain(|place| !path.join(place).is_dir());
    found
}
