//! Metadata from anywhere is read or refused, and what was read is written and read back as the same.
//!
//! `cargo +nightly fuzz run metadata` in the folder above.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use tensordict_core::metadata::{Entry, Metadata, Naming, is_plain_name};

fuzz_target!(|text: &[u8]| {
    let path = Path::new("meta.json");
    let Ok(meta) = Metadata::parse(text, path) else {
        return;
    };
    for (key, entry) in &meta.entries {
        assert!(is_plain_name(&Naming::Robust.name(key)));
        if let Entry::Leaf(leaf) = entry {
            let _ = leaf.bytes();
        }
    }
    let written = meta.to_json(path).expect("what was read can be written");
    let again = Metadata::parse(&written, path).expect("what was written can be read");
    let sorted = |mut meta: Metadata| {
        meta.entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        meta
    };
    assert_eq!(sorted(again), sorted(meta));
});
