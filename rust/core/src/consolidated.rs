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

mod text;

use std::collections::HashMap;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::key::KeyPath;
use crate::layout::Layout;
use crate::memmap::{self, Map, Mode};
use crate::rows::{self, Job, Join, Source};
use crate::schema::{DType, dense_bytes};
use crate::writer::Stayed;
use crate::{Error, Result};
use text::{Tree, Value};

/// What the keys of the tensors of a jagged leaf begin with.
const VALUES: &str = "<NJT_VALUES>";
const OFFSETS: &str = "<NJT_OFFSETS>";
const LENGTHS: &str = "<NJT_LENGTHS>";
const MARKS: [&str; 3] = [VALUES, OFFSETS, LENGTHS];

/// Bytes at the end of a file that say how long its text is.
const LENGTH: u64 = 8;

/// Bytes of a text that are read at once.
const PIECE: u64 = 1 << 20;

/// A buffer of so many bytes is memory that the system has just given, and not yet filled with pages. Fewer are copied in
/// less time than it takes until another thread would be let in.
pub const LARGE: usize = 4 << 20;

/// No padding is longer.
const ZEROS: [u8; 16] = [0; 16];

/// Keys of a level that are not nested levels.
pub const RESERVED: [&str; 4] = ["cls", "non_tensors", "leaves", "cls_metadata"];

/// Jobs, and where each of them writes.
type Work<'s, 'a> = Vec<(&'s Job<'a>, &'s mut [MaybeUninit<u8>])>;

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
        Self::laid_out(layout, leaves.iter().copied().map(Ok::<_, Error>))
    }

    /// The leaves for which `layout` was made, in its order.
    ///
    /// # Errors
    /// One of `leaves` is an error, they are others than the layout is for, or larger than memory can be.
    pub fn laid_out<E: From<Error>>(
        layout: Layout,
        leaves: impl IntoIterator<Item = std::result::Result<Source<'a>, E>>,
    ) -> std::result::Result<Self, E> {
        if usize::try_from(layout.bytes).is_err() {
            return Err(Error::LayoutOverflow.into());
        }
        let mut jobs = Vec::new();
        let mut run = Run::default();
        let mut end = 0;
        let mut leaves = leaves.into_iter();
        for (start, bytes) in &layout.places {
            let leaf = leaves.next().ok_or(Error::LayoutOverflow)??;
            if leaf.layout().bytes() as u64 != *bytes {
                return Err(Error::LayoutOverflow.into());
            }
            run.pad(start - end)?;
            end = start + bytes;
            if *bytes == 0 {
                continue;
            }
            if leaf.layout().is_contiguous() {
                run.push(&leaf.bytes()[..leaf.layout().bytes()])?;
            } else {
                run.finish(&mut jobs);
                jobs.push(strided(&leaf)?);
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
        if target.len() >= LARGE {
            memmap::prefer_large_pages(target);
        }
        rows::run(self.work(target)?)
    }

    /// [`Self::copy_to`] by the calling thread alone, which waits for no other one.
    ///
    /// # Errors
    /// The same.
    pub fn copy_here(&self, target: &mut [MaybeUninit<u8>]) -> Result<()> {
        rows::run_here(self.work(target)?)
    }

    /// The jobs, and where each of them writes.
    fn work<'s>(&'s self, target: &'s mut [MaybeUninit<u8>]) -> Result<Work<'s, 'a>> {
        if target.len() as u64 != self.layout.bytes {
            return Err(Error::RowsShort {
                wanted: self.layout.bytes as usize,
                found: target.len(),
            });
        }
        let mut rest = target;
        let mut work = Vec::with_capacity(self.jobs.len());
        for job in &self.jobs {
            let (now, later) = rest.split_at_mut(job.bytes());
            work.push((job, now));
            rest = later;
        }
        Ok(work)
    }
}

/// Contiguous leaves, and padding, one after the other: one job, whatever their types.
#[derive(Default)]
struct Run<'a> {
    join: Option<Join<'a>>,
    /// Bytes of the last leaf.
    last: usize,
}

impl<'a> Run<'a> {
    fn push(&mut self, bytes: &'a [u8]) -> Result<()> {
        if let Some(join) = &mut self.join
            && self.last == bytes.len()
        {
            return join.push_alike(bytes);
        }
        self.last = bytes.len();
        let join = self.join.get_or_insert_with(|| Join::along(0, 0));
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
        jobs.extend(self.join.take().map(Job::from));
    }
}

/// The job that makes a leaf with gaps, or in another order, contiguous.
fn strided<'a>(leaf: &Source<'a>) -> Result<Job<'a>> {
    let mut join = Join::along(0, 1);
    join.push(leaf.bytes(), leaf.layout())?;
    Ok(join.into())
}

/// Writes the file `path`, in the place of one that is there: the leaves, then `text`. Maps all of it. `stayed` is asked
/// once the leaves were read.
///
/// # Errors
/// The text is not one that [`open`] takes, the disk is full, leaves did not stay, or the system refuses. What was at `path` is as
/// it was then.
pub fn write(path: &Path, pack: &Pack<'_>, text: &str, stayed: Stayed<'_>) -> Result<Map> {
    let length = text.len() as u64;
    let total = pack.layout.bytes.checked_add(length + LENGTH);
    let total = total.ok_or(Error::LayoutOverflow)?;
    // What could not be read is not written.
    let bytes = pack.layout.bytes;
    Check { path, bytes }.text(text)?;
    memmap::create_filled(path, total, |file| {
        let put = |offset, bytes: &[u8]| {
            file.write_all_at(bytes, offset)
                .map_err(|source| Error::io("write", path, source))
        };
        rows::stream(&pack.jobs, put)?;
        stayed.check()?;
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
    let text = read_text(&file, path, bytes, length)?;
    Check { path, bytes }.text(&text)?;
    let map = memmap::from_file(&file, path, size, mode)?;
    Ok(Opened { map, bytes, text })
}

/// Reads the text piece by piece: a file with a hole where its text should be is known by the first one, however long it
/// says that its text is.
fn read_text(file: &File, path: &Path, mut offset: u64, length: u64) -> Result<String> {
    let wrong = |found: String| Error::Metadata {
        path: path.into(),
        field: "metadata".into(),
        wanted: "a text in UTF-8 without zero bytes",
        found,
    };
    let mut text = Vec::new();
    let mut rest = length;
    while rest > 0 {
        let (start, step) = (text.len(), rest.min(PIECE));
        text.try_reserve(step as usize)
            .map_err(|_| Error::io("read", path, std::io::ErrorKind::OutOfMemory))?;
        text.resize(start + step as usize, 0);
        read(file, path, offset, &mut text[start..])?;
        if text[start..].contains(&0) {
            return Err(wrong("a text with zero bytes".into()));
        }
        offset += step;
        rest -= step;
    }
    String::from_utf8(text).map_err(|error| wrong(error.utf8_error().to_string()))
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
    /// Checks a whole text.
    fn text(&self, text: &str) -> Result<()> {
        let tree = Tree::new(text).map_err(|source| Error::Json {
            path: self.path.into(),
            source,
        })?;
        // The levels that are left, with their depths, and the keys that lead to the one at hand.
        let mut levels = vec![(tree.root(), "", 0)];
        let mut keys: Vec<String> = Vec::new();
        while let Some((level, key, depth)) = levels.pop() {
            if depth > 0 {
                keys.truncate(depth - 1);
                keys.push(key.into());
            }
            let path = KeyPath::new(keys.iter().cloned());
            self.own(level, &path).map_err(|error| located(error, &path))?;
            let below = level.object().into_iter().flatten();
            let nested = below.filter(|(key, _)| !RESERVED.contains(key));
            levels.extend(nested.map(|(key, value)| (value, key, depth + 1)));
        }
        Ok(())
    }

    fn wrong(&self, field: &str, wanted: &'static str, found: Option<Value<'_>>) -> Error {
        Error::Metadata {
            path: self.path.into(),
            field: field.into(),
            wanted,
            found: found.map_or_else(|| "missing".into(), |value| value.to_string()),
        }
    }

    fn object<'v>(
        &self,
        field: &str,
        value: Option<Value<'v>>,
    ) -> Result<impl Iterator<Item = (&'v str, Value<'v>)> + use<'v>> {
        let found = value.and_then(Value::object);
        found.ok_or_else(|| self.wrong(field, "an object", value))
    }

    /// Checks what a level says of itself and of its leaves.
    fn own(&self, level: Value<'_>, path: &KeyPath) -> Result<()> {
        let _ = self.object("level", Some(level))?;
        let [mut cls, mut objects, mut leaves, mut about] = [None; 4];
        for (key, value) in level.object().into_iter().flatten() {
            match key {
                "cls" => cls = Some(value),
                "non_tensors" => objects = Some(value),
                "leaves" => leaves = Some(value),
                "cls_metadata" => about = Some(value),
                _ => {}
            }
        }
        if cls.and_then(Value::as_str).is_none() {
            return Err(self.wrong("cls", "the name of a class", cls));
        }
        for (_, found) in self.object("non_tensors", objects)? {
            self.held(found)?;
        }
        let batch_size = self.about(about)?;
        let mut jagged = HashMap::new();
        for (key, leaf) in self.object("leaves", leaves)? {
            if MARKS.iter().any(|mark| key.starts_with(mark)) {
                jagged.insert(key, leaf);
            } else {
                self.leaf(leaf, &batch_size, 0)
                    .map_err(|error| error.at_key(&path.child(key)))?;
            }
        }
        for (key, leaf) in &jagged {
            self.piece(&jagged, key, *leaf, &batch_size)
                .map_err(|error| error.at_key(&path.child(key)))?;
        }
        Ok(())
    }

    /// Checks a tensor of a jagged leaf.
    fn piece(
        &self,
        pieces: &HashMap<&str, Value<'_>>,
        key: &str,
        piece: Value<'_>,
        batch_size: &[u64],
    ) -> Result<()> {
        if let Some(name) = key.strip_prefix(VALUES) {
            let dims = self.leaf(piece, &[], 0)?.len() as u64;
            self.jagged(pieces, name, piece, dims, batch_size)
        } else if key.starts_with(OFFSETS) {
            self.leaf(piece, &[], 1).map(drop)
        } else {
            self.leaf(piece, &[], 0).map(drop)
        }
    }

    /// Checks that offsets and lengths belong to the values, of so many dimensions, of a jagged leaf.
    fn jagged(
        &self,
        pieces: &HashMap<&str, Value<'_>>,
        name: &str,
        values: Value<'_>,
        dims: u64,
        batch_size: &[u64],
    ) -> Result<()> {
        let of = |mark: &str| pieces.get(format!("{mark}{name}").as_str()).copied();
        let Some(offsets) = of(OFFSETS) else {
            return Err(self.wrong("leaf", "offsets beside the values of a jagged leaf", Some(values)));
        };
        let shape = self.leaf(offsets, &[], 1)?;
        let count = match (batch_size.first(), &shape[..]) {
            (Some(count), [length]) if count.checked_add(1) != Some(*length) => None,
            (_, [length]) => length.checked_sub(1),
            _ => None,
        };
        let Some(count) = count else {
            return Err(self.wrong("leaf", "one offset more than there are components", Some(offsets)));
        };
        if let Some(lengths) = of(LENGTHS) {
            if self.leaf(lengths, &[], 0)? != [count] {
                return Err(self.wrong("leaf", "a length for each component", Some(lengths)));
            }
        }
        let dim = offsets.list().and_then(|mut about| about.nth(5));
        match dim.map_or(Some(1), Value::as_u64) {
            Some(dim) if (1..=dims).contains(&dim) => Ok(()),
            _ => Err(self.wrong("leaf", "a ragged dimension that the values have", Some(offsets))),
        }
    }

    /// Checks an entry that is no tensor: what it holds, its batch size and its device.
    fn held(&self, entry: Value<'_>) -> Result<()> {
        let parts: Vec<_> = entry.list().into_iter().flatten().take(4).collect();
        match parts[..] {
            [_, sizes, device] if device.is_null() || device.as_str().is_some() => self
                .sizes("batch size of an entry of non_tensors", Some(sizes))
                .map(drop),
            _ => Err(self.wrong(
                "non_tensors",
                "for each entry what it holds, its batch size, and the name of its device or null",
                Some(entry),
            )),
        }
    }

    /// Checks what is not about leaves; gives the batch size.
    fn about(&self, about: Option<Value<'_>>) -> Result<Vec<u64>> {
        let _ = self.object("cls_metadata", about)?;
        let entry = |name: &str| about.and_then(|about| about.get(name));
        let given = |name: &str| entry(name).filter(|value| !value.is_null());
        let text = |field, value: Option<Value<'_>>, wanted| match value {
            Some(value) if value.as_str().is_none() => Err(self.wrong(field, wanted, Some(value))),
            _ => Ok(()),
        };
        text("device", given("device"), "the name of a device, or null")?;
        if !entry("is_locked").is_some_and(Value::is_bool) {
            return Err(self.wrong("is_locked", "true or false", entry("is_locked")));
        }
        if let (None, Some(dim)) = (given("batch_size"), given("stack_dim")) {
            // A stack has no batch size and no leaves of its own.
            if dim.as_u64().is_none() {
                return Err(self.wrong("stack_dim", "a dimension", Some(dim)));
            }
            text("stack_dim_name", given("stack_dim_name"), "a string or null")?;
            return Ok(Vec::new());
        }
        let batch_size = self.sizes("batch_size", entry("batch_size"))?;
        if let Some(names) = given("names") {
            let known = |name: &Value<'_>| name.is_null() || name.as_str().is_some();
            let count = names.list().map(|names| names.take_while(known).count());
            if count != Some(batch_size.len()) || names.list().map(Iterator::count) != count {
                return Err(self.wrong("names", "a string or null for each batch dimension", Some(names)));
            }
        }
        Ok(batch_size)
    }

    fn sizes(&self, field: &str, value: Option<Value<'_>>) -> Result<Vec<u64>> {
        let sizes = value.and_then(Value::list);
        let sizes: Option<Vec<u64>> = sizes.and_then(|sizes| sizes.map(Value::as_u64).collect());
        sizes.ok_or_else(|| self.wrong(field, "a list of sizes", value))
    }

    /// Checks what is said of a tensor, with up to `more` entries behind what every tensor has; gives its shape.
    fn leaf(&self, value: Value<'_>, batch_size: &[u64], more: usize) -> Result<Vec<u64>> {
        let wrong = |wanted| self.wrong("leaf", wanted, Some(value));
        let mut parts = value.list().into_iter().flatten();
        let (Some(dtype), Some(shape), Some(start), Some(stop), Some(pad)) = (
            parts.next(),
            parts.next(),
            parts.next(),
            parts.next(),
            parts.next(),
        ) else {
            return Err(wrong("dtype, shape, start, stop and padding"));
        };
        if parts.count() > more {
            return Err(wrong("dtype, shape, start, stop and padding"));
        }
        let dtype = dtype.as_str().and_then(|name| DType::parse(name).ok());
        let dtype = dtype.ok_or_else(|| wrong("the name of a dtype"))?;
        let shape = self.sizes("shape", Some(shape))?;
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
        Ok(shape)
    }
}

fn located(error: Error, path: &KeyPath) -> Error {
    if path.is_root() || matches!(error, Error::Key { .. }) {
        error
    } else {
        error.at_key(path)
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

    /// A text without leaves.
    const NONE: &str = r#"{"cls": "TensorDict", "non_tensors": {}, "leaves": {},
        "cls_metadata": {"device": null, "names": null, "batch_size": [], "is_locked": false}}"#;

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
        let map = write(&path, &pack, NONE, Stayed::ALWAYS)?;
        let mut wanted = vec![0; 56];
        wanted[..6].copy_from_slice(&data[..6]);
        wanted[8..14].copy_from_slice(&[0, 2, 4, 1, 3, 5]);
        wanted[16..24].copy_from_slice(&data[..8]);
        wanted[32..48].copy_from_slice(&data[8..]);
        wanted.extend(NONE.as_bytes());
        wanted.extend((NONE.len() as u64).to_le_bytes());
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
        write(&path, &Pack::new(&leaves)?, NONE, Stayed::ALWAYS)?;
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
        assert!(matches!(
            write(&link, &pack, NONE, Stayed::ALWAYS),
            Err(Error::Symlink { .. })
        ));
        assert!(matches!(
            write(folder.path(), &pack, NONE, Stayed::ALWAYS),
            Err(Error::NotAFile { .. })
        ));
        assert!(write(&folder.path().join("missing/a"), &pack, NONE, Stayed::ALWAYS).is_err());
        assert_eq!(std::fs::read(&path)?, [5; 4]);
        assert_eq!(std::fs::read_dir(folder.path())?.count(), 2);
        Ok(())
    }
}
