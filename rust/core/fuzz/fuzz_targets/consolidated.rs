//! Consolidated files from anywhere are opened or refused.
//!
//! `cargo +nightly fuzz run consolidated` in the folder above.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tensordict_core::consolidated;
use tensordict_core::memmap::Mode;

fuzz_target!(|input: (u8, &str)| {
    let (bytes, text) = input;
    let path = std::env::temp_dir().join(format!("tensordict-fuzz-{}", std::process::id()));
    let length = (text.len() as u64).to_le_bytes();
    let content = [&vec![0; bytes.into()], text.as_bytes(), &length].concat();
    std::fs::write(&path, content).expect("a temporary file can be written");
    if let Ok(opened) = consolidated::open(&path, Mode::ReadOnly) {
        assert_eq!((opened.bytes, opened.text.as_str()), (u64::from(bytes), text));
    }
});
