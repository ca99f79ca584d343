//! Many leaves in one buffer, and such a buffer as a file.
//!
//! The file holds the buffer, then a JSON text that says where each leaf lies in it, then the number of bytes of that text
//! as eight little-endian bytes. A level of the text is an object:
//!
//! ```json
//! {"cls": "TensorDict", "non_tensors": {}, "leaves": {"a": ["torch.float32", [3], 0, 16, 4]},
//!  "cls_metadata": {"device": null, "names": [null], "batch_size": [3], "is_locked": false}, "nested": {}}
//! ```
//!
//! A leaf is its dtype, shape, first byte, first byte behind its padding, and the bytes of that padding. Every other key
//! is a nested level. A jagged leaf `a` is written as `<NJT_VALUES>a`, `<NJT_OFFSETS>a`, which also says which dimension is
//! ragged, and perhaps `<NJT_LENGTHS>a`; offsets may lie at the same place as those of another leaf.

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::{Map as Object, Value};

use crate::layout::Layout;
use crate::memmap::{self, Map, Mode};
use crate::rows::{self, Job, Join, Source};
use crate::schema::{DType, dense_bytes};
use crate::{Error, Result};

/// What the keys of the tensors of a jagged leaf begin with.
const VALUES: &str = "<NJT_VALUES>";
const OFFSETS: &str = "<NJT_OFFSETS>";
const LENGTHS: &str = "<NJT_LENGTHS>";

/// Bytes at the end of a file that say how long its text is.
const LENGTH: u64 = 8;

/// A buffer of so many bytes is memory that the system has just given, and not yet filled with pages.
const LARGE: u64 = 4 << 20;

/// No padding is longer.
const ZEROS: [u8; 16] = [0; 16];

/// Keys of a level that are not nested levels.
pub const RESERVED: [&str; 4] = ["cls", "non_tensors", "leaves", "cls_metadata"];

/// Leaves that are to lie in one buffer.
#[derive(Debug)]
pub struct Pack<'a> {
    layout: Layout,
    jobs: Vec<Job<'a>>,
}

impl<'a> Pack<'a> {
    /// Lays out `leaves` in their order.
    ///
    /// # Errors
    /// All of them together are larger than memory can be.
    pub fn new(leaves: &[Source<'a>]) -> Result<Self> {
        let sizes = leaves.iter().map(|leaf| {
            let layout = leaf.layout();
            (layout.bytes() as u64, layout.item() as u64)
        });
        let layout = Layout::packed(sizes)?;
        if usize::try_from(layout.bytes).is_err() {
            return Err(Error::LayoutOverflow);
        }
        let mut jobs = Vec::new();
        let mut run = Run::default();
        let mut end = 0;
        for (leaf, (start, bytes)) in leaves.iter().zip(&layout.places) {
            run.pad(start - end)?;
            end = start + bytes;
            if *bytes == 0 {
                continue;
            }
            if leaf.layout().is_contiguous() {
                run.push(&leaf.bytes()[..leaf.layout().bytes()])?;
            } else {
                run.finish(&mut jobs);
                jobs.push(strided(leaf)?);
            }
        }
        run.pad(layout.bytes - end)?;
        run.finish(&mut jobs);
        Ok(Self { layout, jobs })
    }

    /// Where the leaves lie.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Copies the leaves into `target`, by all threads where that is worth it. The bytes between them become zero.
    ///
    /// # Errors
    /// `target` is not as long as the layout says.
    pub fn copy_to(&self, target: &mut [MaybeUninit<u8>]) -> Result<()> {
        if target.len() as u64 != self.layout.bytes {
            return Err(Error::RowsShort {
                wanted: self.layout.bytes as usize,
                found: target.len(),
            });
        }
        if self.layout.bytes >= LARGE {
            memmap::prefer_large_pages(target);
        }
        let mut rest = target;
        let mut work = Vec::with_capacity(self.jobs.len());
        for job in &self.jobs {
            let (now, later) = rest.split_at_mut(job.bytes());
            work.push((job, now));
            rest = later;
        }
        rows::run(work)
    }
}

/// Contiguous leaves, and padding, one after the other: one job, whatever their types.
#[derive(Default)]
struct Run<'a>(Option<Join<'a>>);

impl<'a> Run<'a> {
    fn push(&mut self, bytes: &'a [u8]) -> Result<()> {
        let join = self.0.get_or_insert_with(|| Join::along(0, 0));
        join.push(bytes, &rows::Layout::contiguous(1, &[bytes.len()])?)
    }

    fn pad(&mut self, bytes: u64) -> Result<()> {
        if bytes > 0 {
            // A gap is shorter than the largest item.
            self.push(&ZEROS[..bytes as usize])?;
        }
        Ok(())
    }

    fn finish(&mut self, jobs: &mut Vec<Job<'a>>) {
        jobs.extend(self.0.take().map(Job::from));
    }
}

/// The job that makes a leaf with gaps, or in another order, contiguous.
fn strided<'a>(leaf: &Source<'a>) -> Result<Job<'a>> {
    let mut join = Join::along(0, 1);
    join.push(leaf.bytes(), leaf.layout())?;
    Ok(join.into())
}

/// Writes the file `path`, in the place of one that is there: the leaves, then `text`. Maps all of it.
///
/// # Errors
/// The disk is full, or the system refuses. What was at `path` is as it was then.
pub fn write(path: &Path, pack: &Pack<'_>, text: &str) -> Result<Map> {
    let length = text.len() as u64;
    let total = pack.layout.bytes.checked_add(length + LENGTH);
    let total = total.ok_or(Error::LayoutOverflow)?;
    memmap::create_filled(path, total, |file| {
        let put = |offset, bytes: &[u8]| {
            file.write_all_at(bytes, offset)
                .map_err(|source| Error::io("write", path, source))
        };
        rows::stream(&pack.jobs, put)?;
        put(
            pack.layout.bytes,
            &[text.as_bytes(), &length.to_le_bytes()].concat(),
        )
    })
}

/// A file of leaves in one buffer, all of it mapped.
#[derive(Debug)]
pub struct Opened {
    /// The whole file.
    pub map: Map,
    /// Bytes of the buffer, which comes first.
    pub bytes: u64,
    /// What says where the leaves lie; checked against the buffer.
    pub text: String,
}

/// Opens a file that [`write`] made.
///
/// # Errors
/// The file cannot be opened, is shorter than it says, or its text is not valid or leads out of the buffer.
pub fn open(path: &Path, mode: Mode) -> Result<Opened> {
    let file = memmap::open_file(path, mode)?;
    let size = memmap::size(&file, path)?;
    let body = size.checked_sub(LENGTH).ok_or_else(|| Error::ShortFile {
        path: path.into(),
        wanted: LENGTH,
        found: size,
    })?;
    let mut length = [0; LENGTH as usize];
    read(&file, path, body, &mut length)?;
    let length = u64::from_le_bytes(length);
    let Some(bytes) = body.checked_sub(length) else {
        return Err(Error::Metadata {
            path: path.into(),
            field: "length of the metadata".into(),
            wanted: "no more than the file has",
            found: length.to_string(),
        });
    };
    let mut text = vec![0; length as usize];
    read(&file, path, bytes, &mut text)?;
    let text = String::from_utf8(text).map_err(|error| Error::Metadata {
        path: path.into(),
        field: "metadata".into(),
        wanted: "a text in UTF-8",
        found: error.utf8_error().to_string(),
    })?;
    let level = serde_json::from_str(&text).map_err(|source| Error::Json {
        path: path.into(),
        source,
    })?;
    Check { path, bytes }.level(&level, &mut Vec::new())?;
    let map = memmap::from_file(&file, path, size, mode)?;
    Ok(Opened { map, bytes, text })
}

fn read(file: &File, path: &Path, offset: u64, into: &mut [u8]) -> Result<()> {
    file.read_exact_at(into, offset)
        .map_err(|source| Error::io("read", path, source))
}

/// Holds what a text says against the buffer.
struct Check<'a> {
    path: &'a Path,
    bytes: u64,
}

impl Check<'_> {
    fn wrong(&self, field: &str, wanted: &'static str, found: &Value) -> Error {
        Error::Metadata {
            path: self.path.into(),
            field: field.into(),
            wanted,
            found: found.to_string(),
        }
    }

    fn object<'v>(&self, field: &str, value: &'v Value) -> Result<&'v Object<String, Value>> {
        value
            .as_object()
            .ok_or_else(|| self.wrong(field, "an object", value))
    }

    /// Checks a level and those below it; `keys` lead to it.
    fn level(&self, value: &Value, keys: &mut Vec<String>) -> Result<()> {
        self.own(value, keys).map_err(|error| located(error, keys))?;
        for (key, below) in self.object("level", value)? {
            if !RESERVED.contains(&key.as_str()) {
                keys.push(key.clone());
                self.level(below, keys)?;
                keys.pop();
            }
        }
        Ok(())
    }

    /// Checks what a level says of itself and of its leaves.
    fn own(&self, value: &Value, keys: &[String]) -> Result<()> {
        let level = self.object("level", value)?;
        let entry = |name: &str| level.get(name).unwrap_or(&Value::Null);
        if !entry("cls").is_string() {
            return Err(self.wrong("cls", "the name of a class", entry("cls")));
        }
        for found in self.object("non_tensors", entry("non_tensors"))?.values() {
            self.held(found)?;
        }
        let batch_size = self.about(self.object("cls_metadata", entry("cls_metadata"))?)?;
        let leaves = self.object("leaves", entry("leaves"))?;
        for (key, leaf) in leaves {
            self.entry(leaves, key, leaf, &batch_size).map_err(|error| {
                let mut path = keys.to_vec();
                path.push(key.clone());
                error.at_key(&path)
            })?;
        }
        Ok(())
    }

    /// Checks one key of the leaves of a level.
    fn entry(
        &self,
        leaves: &Object<String, Value>,
        key: &str,
        leaf: &Value,
        batch_size: &[u64],
    ) -> Result<()> {
        if let Some(name) = key.strip_prefix(VALUES) {
            self.leaf(leaf, &[], 0)?;
            self.jagged(leaves, name, leaf, batch_size)
        } else if key.starts_with(OFFSETS) {
            self.leaf(leaf, &[], 1)
        } else if key.starts_with(LENGTHS) {
            self.leaf(leaf, &[], 0)
        } else {
            self.leaf(leaf, batch_size, 0)
        }
    }

    /// Checks that offsets and lengths belong to the values of a jagged leaf.
    fn jagged(
        &self,
        leaves: &Object<String, Value>,
        name: &str,
        values: &Value,
        batch_size: &[u64],
    ) -> Result<()> {
        let of = |mark: &str| leaves.get(&format!("{mark}{name}"));
        let Some(offsets) = of(OFFSETS) else {
            return Err(self.wrong("leaf", "offsets beside the values of a jagged leaf", values));
        };
        let shape = self.sizes("shape", &offsets[1])?;
        let count = match (batch_size.first(), &shape[..]) {
            (Some(count), [length]) if count.checked_add(1) != Some(*length) => None,
            (_, [length]) => length.checked_sub(1),
            _ => None,
        };
        let Some(count) = count else {
            return Err(self.wrong("leaf", "one offset more than there are components", offsets));
        };
        if let Some(lengths) = of(LENGTHS) {
            if self.sizes("shape", &lengths[1])? != [count] {
                return Err(self.wrong("leaf", "a length for each component", lengths));
            }
        }
        let dims = self.sizes("shape", &values[1])?.len() as u64;
        match offsets.get(5).map_or(Some(1), Value::as_u64) {
            Some(dim) if (1..=dims).contains(&dim) => Ok(()),
            _ => Err(self.wrong("leaf", "a ragged dimension that the values have", offsets)),
        }
    }

    /// Checks an entry that is no tensor: what it holds, its batch size and its device.
    fn held(&self, entry: &Value) -> Result<()> {
        match entry.as_array().map(Vec::as_slice) {
            Some([_, sizes, Value::Null | Value::String(_)]) => {
                self.sizes("batch size of an entry of non_tensors", sizes)?;
                Ok(())
            }
            _ => Err(self.wrong(
                "non_tensors",
                "for each entry what it holds, its batch size, and the name of its device or null",
                entry,
            )),
        }
    }

    /// Checks what is not about leaves; gives the batch size.
    fn about(&self, about: &Object<String, Value>) -> Result<Vec<u64>> {
        let entry = |name: &str| about.get(name).unwrap_or(&Value::Null);
        let (device, locked, names) = (entry("device"), entry("is_locked"), entry("names"));
        if !device.is_null() && !device.is_string() {
            return Err(self.wrong("device", "the name of a device, or null", device));
        }
        if !locked.is_boolean() {
            return Err(self.wrong("is_locked", "true or false", locked));
        }
        if entry("batch_size").is_null() && !entry("stack_dim").is_null() {
            return self.stack(entry("stack_dim"), entry("stack_dim_name"));
        }
        let batch_size = self.sizes("batch_size", entry("batch_size"))?;
        let count = names.as_array().map(|names| {
            let known = |name: &Value| name.is_null() || name.is_string();
            names.iter().filter(|name| known(name)).count()
        });
        if !names.is_null() && count != Some(batch_size.len()) {
            return Err(self.wrong("names", "a string or null for each batch dimension", names));
        }
        Ok(batch_size)
    }

    /// Checks what a stack says of itself: it has no batch size and no leaves of its own.
    fn stack(&self, dim: &Value, name: &Value) -> Result<Vec<u64>> {
        if !dim.is_u64() {
            return Err(self.wrong("stack_dim", "a dimension", dim));
        }
        if !name.is_null() && !name.is_string() {
            return Err(self.wrong("stack_dim_name", "a string or null", name));
        }
        Ok(Vec::new())
    }

    fn sizes(&self, field: &str, value: &Value) -> Result<Vec<u64>> {
        let sizes: Option<Vec<u64>> = value
            .as_array()
            .and_then(|sizes| sizes.iter().map(Value::as_u64).collect());
        sizes.ok_or_else(|| self.wrong(field, "a list of sizes", value))
    }

    /// Checks what is said of a tensor, with up to `more` entries behind what every tensor has.
    fn leaf(&self, value: &Value, batch_size: &[u64], more: usize) -> Result<()> {
        let wrong = |wanted| self.wrong("leaf", wanted, value);
        let Some([dtype, shape, start, stop, pad, rest @ ..]) = value.as_array().map(Vec::as_slice) else {
            return Err(wrong("dtype, shape, start, stop and padding"));
        };
        if rest.len() > more {
            return Err(wrong("dtype, shape, start, stop and padding"));
        }
        let dtype = dtype.as_str().and_then(|name| DType::parse(name).ok());
        let dtype = dtype.ok_or_else(|| wrong("the name of a dtype"))?;
        let shape = self.sizes("shape", shape)?;
        let (Some(start), Some(stop), Some(pad)) = (start.as_u64(), stop.as_u64(), pad.as_u64()) else {
            return Err(wrong("start, stop and padding as numbers"));
        };
        let bytes = dense_bytes(dtype, &shape).map_err(|_| wrong("a shape that fits in memory"))?;
        if !shape.starts_with(batch_size) {
            return Err(wrong("a shape that starts with the batch size"));
        }
        if bytes > 0 && start % dtype.item_size() != 0 {
            return Err(wrong("a start at a whole element"));
        }
        let end = start.checked_add(bytes).and_then(|end| end.checked_add(pad));
        if end != Some(stop) || stop > self.bytes {
            return Err(wrong("a place of the size of the shape, within the buffer"));
        }
        Ok(())
    }
}

fn located(error: Error, keys: &[String]) -> Error {
    if keys.is_empty() || matches!(error, Error::Key { .. }) {
        error
    } else {
        error.at_key(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Done = std::result::Result<(), Box<dyn std::error::Error>>;

    const TEXT: &str = r#"{"cls": "TensorDict", "non_tensors": {}, "leaves": {"a": ["torch.int16", [3], 0, 8, 2]},
        "cls_metadata": {"device": null, "names": [], "batch_size": [], "is_locked": false},
        "n": {"cls": "TensorDict", "non_tensors": {}, "leaves": {"b": ["torch.uint8", [2, 2], 8, 16, 4]},
        "cls_metadata": {"device": "cpu", "names": ["t"], "batch_size": [2], "is_locked": true}}}"#;

    fn source<'a>(bytes: &'a [u8], item: usize, shape: &[usize], strides: &[usize]) -> Result<Source<'a>> {
        Source::new(bytes, rows::Layout::new(item, shape, strides)?)
    }

    #[test]
    fn leaves_lie_one_after_the_other() -> Done {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let data: Vec<u8> = (0..24).collect();
        let leaves = [
            source(&data, 2, &[3], &[2])?,
            source(&data, 4, &[0, 2], &[8, 4])?,
            source(&data, 1, &[2, 3], &[1, 2])?,
            source(&data, 8, &[], &[])?,
            source(&data[8..], 16, &[], &[])?,
            source(&data, 1, &[3], &[0])?,
        ];
        let pack = Pack::new(&leaves)?;
        let places = [(0, 6), (8, 0), (8, 6), (16, 8), (32, 16), (48, 3)];
        assert_eq!(pack.layout().places, places);
        let map = write(&path, &pack, "{}")?;
        let mut wanted = vec![0; 56];
        wanted[..6].copy_from_slice(&data[..6]);
        wanted[8..14].copy_from_slice(&[0, 2, 4, 1, 3, 5]);
        wanted[16..24].copy_from_slice(&data[..8]);
        wanted[32..48].copy_from_slice(&data[8..]);
        wanted.extend(b"{}\x02\0\0\0\0\0\0\0");
        assert_eq!(std::fs::read(&path)?, wanted);
        assert_eq!(map.len(), wanted.len());
        Ok(())
    }

    #[test]
    fn large_leaves_are_shared_out() -> Done {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let data: Vec<u8> = (0..3_000_001_u32).map(|at| (at % 251) as u8).collect();
        let leaves = [
            source(&data, 1, &[data.len()], &[1])?,
            source(&data, 1, &[1000, 1500], &[1, 2000])?,
            source(&data, 1, &[1_000_000], &[1])?,
        ];
        write(&path, &Pack::new(&leaves)?, "")?;
        let found = std::fs::read(&path)?;
        assert_eq!(found[..data.len()], data);
        let turned = (0..1000).flat_map(|row| (0..1500).map(move |column| row + 2000 * column));
        assert!(
            turned
                .zip(&found[3_000_008..])
                .all(|(at, byte)| data[at] == *byte)
        );
        assert_eq!(found[4_500_008..5_500_008], data[..1_000_000]);
        Ok(())
    }

    fn file(folder: &Path, data: &[u8], text: &str, length: u64) -> std::io::Result<std::path::PathBuf> {
        let path = folder.join("file");
        let parts = [data, text.as_bytes(), &length.to_le_bytes()];
        std::fs::write(&path, parts.concat())?;
        Ok(path)
    }

    #[test]
    fn what_is_written_is_opened() -> Done {
        let folder = tempfile::tempdir()?;
        let path = file(folder.path(), &[7; 16], TEXT, TEXT.len() as u64)?;
        let opened = open(&path, Mode::ReadOnly)?;
        assert_eq!((opened.bytes, opened.text.as_str()), (16, TEXT));
        assert_eq!(opened.map.len(), 16 + TEXT.len() + 8);
        let text = TEXT.replace(
            "non_tensors\": {}",
            "non_tensors\": {\"x\": [{\"y\": null}, [2], \"cpu\"]}",
        );
        let path = file(folder.path(), &[7; 16], &text, text.len() as u64)?;
        assert_eq!(open(&path, Mode::ReadOnly)?.text, text);
        Ok(())
    }

    #[test]
    fn what_lies_is_an_error() -> Done {
        let folder = tempfile::tempdir()?;
        let changes = [
            ("[3]", "[4]"),
            ("[3]", "[-1]"),
            ("[3]", "[9223372036854775807]"),
            ("int16", "int17"),
            ("8, 16, 4", "8, 24, 12"),
            ("8, 16, 4", "8, 16, 3"),
            ("0, 8, 2", "1, 9, 2"),
            ("0, 8, 2]", "0, 8]"),
            ("0, 8, 2", "18446744073709551615, 8, 2"),
            ("[2, 2]", "[1, 4]"),
            ("\"cls\": \"TensorDict\", ", ""),
            ("null", "3"),
            ("false", "0"),
            ("[\"t\"]", "[]"),
            ("non_tensors\": {}", "non_tensors\": {\"x\": 1}"),
            ("non_tensors\": {}", "non_tensors\": {\"x\": [1, [-1], null]}"),
            ("non_tensors\": {}", "non_tensors\": {\"x\": [1, [], 3]}"),
            ("non_tensors\": {}", "non_tensors\": {\"x\": [[], null]}"),
            ("\"n\": {", "\"n\": 3, \"m\": {"),
            ("}}}", "}}"),
        ];
        for (from, to) in changes {
            let text = TEXT.replacen(from, to, 1);
            assert_ne!(text, TEXT);
            let path = file(folder.path(), &[7; 16], &text, text.len() as u64)?;
            let error = open(&path, Mode::ReadOnly).err().ok_or(to)?;
            assert!(error.to_string().contains("/file"), "{to}: {error}");
        }
        let path = file(folder.path(), &[], TEXT, u64::MAX)?;
        assert!(matches!(open(&path, Mode::ReadOnly), Err(Error::Metadata { .. })));
        std::fs::write(&path, [0; 7])?;
        assert!(matches!(
            open(&path, Mode::ReadOnly),
            Err(Error::ShortFile { .. })
        ));
        std::fs::write(&path, [0xff, 1, 0, 0, 0, 0, 0, 0, 0])?;
        assert!(matches!(open(&path, Mode::ReadOnly), Err(Error::Metadata { .. })));
        assert!(matches!(
            open(folder.path(), Mode::ReadOnly),
            Err(Error::NotAFile { .. })
        ));
        Ok(())
    }

    const JAGGED: &str = r#"{"cls": "TensorDict", "non_tensors": {}, "leaves": {
        "<NJT_VALUES>a": ["torch.uint8", [7, 1], 0, 8, 1], "<NJT_LENGTHS>a": ["torch.uint8", [2], 8, 16, 6],
        "<NJT_OFFSETS>a": ["torch.uint8", [3], 16, 24, 5, 2]},
        "cls_metadata": {"device": null, "names": [null], "batch_size": [2], "is_locked": false}}"#;

    #[test]
    fn jagged_leaves_are_checked() -> Done {
        let folder = tempfile::tempdir()?;
        let changes = [
            (JAGGED, JAGGED, true),
            (", 5, 2]", ", 5]", true),
            (", 5, 2]", ", 5, 3]", false),
            (", 5, 2]", ", 5, 0]", false),
            (", 5, 2]", ", 5, 2, 2]", false),
            ("8, 1]", "8, 1, 1]", false),
            ("[3], 16, 24, 5", "[2], 16, 24, 6", false),
            ("[3], 16, 24, 5", "[3, 1], 16, 24, 5", false),
            ("[2], 8, 16, 6", "[1], 8, 16, 7", false),
            ("<NJT_OFFSETS>a", "<NJT_OFFSETS>b", false),
            ("\"batch_size\": [2]", "\"batch_size\": [3]", false),
        ];
        for (from, to, fine) in changes {
            let text = JAGGED.replacen(from, to, 1);
            let path = file(folder.path(), &[7; 24], &text, text.len() as u64)?;
            assert_eq!(open(&path, Mode::ReadOnly).is_ok(), fine, "{to}");
        }
        Ok(())
    }

    #[test]
    fn a_failed_write_leaves_what_was_there() -> Done {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        std::fs::write(&path, [5; 4])?;
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link)?;
        let pack = Pack::new(&[source(&[1], 1, &[1], &[1])?])?;
        assert!(matches!(write(&link, &pack, ""), Err(Error::Symlink { .. })));
        assert!(matches!(
            write(folder.path(), &pack, ""),
            Err(Error::NotAFile { .. })
        ));
        assert!(write(&folder.path().join("missing/a"), &pack, "").is_err());
        assert_eq!(std::fs::read(&path)?, [5; 4]);
        assert_eq!(std::fs::read_dir(folder.path())?.count(), 2);
        Ok(())
    }
}
