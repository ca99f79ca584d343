//! Mapped memory: files, parts of files and anonymous memory that other processes can map too.
//!
//! A file is checked before it is mapped and its space is reserved before it is filled, so that neither a short file nor
//! a full disk becomes a signal. Nothing can stop another process from cutting a file that is mapped already; who
//! replaces a file of a data set therefore writes a new one and renames it, which leaves existing maps whole.
#![allow(
    unsafe_code,
    reason = "mapping a file privately is unsafe in memmap2, and a map is shared between threads by its address"
)]

mod filled;
mod memory;
mod space;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{Mode as Permissions, OFlags};
use rustix::io::{Errno, retry_on_intr};

pub use self::filled::{create_filled, create_mapped};
pub use self::memory::{anonymous, anonymous_with};
pub(crate) use self::memory::{check_memory, room};
pub use self::space::{Space, reserve};
use crate::turn::Turn;
use crate::{Error, Result};

/// What a write to mapped memory does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The memory must not be written: a write is a fault.
    ReadOnly,
    /// A write reaches the file and everyone who maps it.
    ReadWrite,
    /// A write stays in this map. Unwritten pages follow the file; no permission to write the file is needed.
    Private,
}

/// Address of the memory of an empty map: aligned for every type and never read.
const EMPTY: NonNull<u128> = NonNull::dangling();

/// Memory of a file, or of nothing but memory. It stays valid, at one address, until the map is dropped.
#[derive(Debug)]
pub struct Map {
    /// `None` for zero bytes, which the system cannot map.
    memory: Option<Memory>,
    mode: Mode,
    file: FileId,
}

/// What tells a file from all others as long as it is there: device and number. A name can come to mean another file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId(u64, u64);

impl FileId {
    /// The file that is at `path` now, if one is.
    #[must_use]
    pub fn at(path: &Path) -> Option<Self> {
        rustix::fs::stat(path).ok().map(|facts| Self::of(&facts))
    }

    /// Device and number.
    #[must_use]
    pub fn numbers(self) -> (u64, u64) {
        (self.0, self.1)
    }

    pub(crate) fn of(facts: &rustix::fs::Stat) -> Self {
        Self(facts.st_dev, facts.st_ino)
    }
}

/// Whose memory it is.
#[derive(Debug)]
enum Memory {
    Own(MmapRaw),
    /// That of all maps that were tied together.
    Tied(
        ManuallyDrop<MmapRaw>,
        #[allow(dead_code, reason = "it is there to be dropped")] Arc<Tie>,
    ),
}

impl Memory {
    fn raw(&self) -> &MmapRaw {
        match self {
            Self::Own(raw) => raw,
            Self::Tied(raw, _) => raw,
        }
    }
}

/// Stretches of memory that are unmapped together, each by one call.
#[derive(Debug)]
struct Tie(Vec<Stretch>);

/// Whole pages that lie one after the other and are mapped by this crate alone.
#[derive(Debug)]
struct Stretch {
    start: usize,
    bytes: usize,
}

impl Drop for Tie {
    fn drop(&mut self) {
        for stretch in &self.0 {
            let start = std::ptr::with_exposed_provenance_mut(stretch.start);
            // SAFETY: [pages] every page of the stretch was mapped by a map that is tied to this and gone: nobody has its address.
            // Nothing is to be done where the system refuses; the memory then stays mapped.
            let _ = unsafe { rustix::mm::munmap(start, stretch.bytes) };
        }
    }
}

/// Held by the thread that maps many files: others that want to can do something else first. Never held across a loop of
/// the thread pool.
static MAPPING: Turn<()> = Turn::new(|| ());

/// The turn of this thread to map many files.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    MAPPING.take()
}

/// Largest map that is tied to others. Tied maps keep each other's files from being freed once they are deleted.
const TIED_BYTES: usize = 64 << 10;
/// How many maps are tied together.
const TIED_MAPS: usize = 256;

/// Ties small maps that were made together: their memory is unmapped once the last of them is dropped, by one call for all
/// that lie side by side, which takes less than half the time of a call for each.
pub fn tie<'a>(maps: impl Iterator<Item = &'a mut Map>) {
    let page = rustix::param::page_size();
    let address = |map: &Map| match &map.memory {
        Some(Memory::Own(raw)) if raw.len() <= TIED_BYTES => Some(raw.as_mut_ptr().expose_provenance()),
        _ => None,
    };
    // A part that starts inside a page has memory before its address.
    let is_whole = |map: &Map| address(map).is_some_and(|start| start % page == 0);
    let mut small: Vec<&mut Map> = maps.filter(|map| is_whole(map)).collect();
    small.sort_unstable_by_key(|map| address(map));
    for together in small.chunks_mut(TIED_MAPS) {
        let mut stretches: Vec<Stretch> = Vec::new();
        for map in together.iter() {
            let Some(start) = address(map) else { continue };
            let bytes = map.len().next_multiple_of(page);
            match stretches.last_mut() {
                Some(last) if last.start + last.bytes == start => last.bytes += bytes,
                _ => stretches.push(Stretch { start, bytes }),
            }
        }
        let tie = Arc::new(Tie(stretches));
        for map in together {
            map.memory = map.memory.take().map(|memory| match memory {
                Memory::Own(raw) => Memory::Tied(ManuallyDrop::new(raw), Arc::clone(&tie)),
                tied @ Memory::Tied(..) => tied,
            });
        }
    }
}

impl Map {
    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.raw().len())
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the first byte; of an empty map some aligned address that is not null.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.address()
    }

    /// Address of the first byte for writing; none where the mode forbids it.
    #[must_use]
    pub fn as_mut_ptr(&self) -> Option<*mut u8> {
        self.is_writable().then(|| self.address())
    }

    /// A copy of the bytes. As with every map, nothing keeps another process from cutting the file meanwhile.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        // SAFETY: [pages] as many bytes as the map has lie at its address, and stay while it is borrowed.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len()) }.to_vec()
    }

    fn address(&self) -> *mut u8 {
        match &self.memory {
            Some(memory) => memory.raw().as_mut_ptr(),
            None => EMPTY.as_ptr().cast(),
        }
    }

    /// Whether the memory may be written, be it with effect on the file or not.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.mode != Mode::ReadOnly
    }

    /// The file that is mapped, or the memory that is.
    #[must_use]
    pub fn file(&self) -> FileId {
        self.file
    }

    /// What a write does.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }
}

/// Opens the regular file `path` as `mode` needs it. Reading alone is asked for where the file is not to be written.
pub(crate) fn open_file(path: &Path, mode: Mode) -> Result<File> {
    let access = match mode {
        Mode::ReadWrite => OFlags::RDWR,
        Mode::ReadOnly | Mode::Private => OFlags::RDONLY,
    };
    // Without `NONBLOCK` a named pipe in place of a file would block here for ever.
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
    retry_on_intr(|| rustix::fs::open(path, flags, Permissions::empty()))
        .map(File::from)
        .map_err(|errno| io_error("open", path, errno.into()))
}

/// Size of `file`, which must be a regular one.
pub(crate) fn size(file: &File, path: &Path) -> Result<u64> {
    regular(file, path).map(|(size, _)| size)
}

/// Size of `file`, which must be a regular one, and which file it is.
fn regular(file: &File, path: &Path) -> Result<(u64, FileId)> {
    let facts = rustix::fs::fstat(file).map_err(|errno| io_error("read the size of", path, errno.into()))?;
    if rustix::fs::FileType::from_raw_mode(facts.st_mode).is_file() {
        Ok((facts.st_size.unsigned_abs(), FileId::of(&facts)))
    } else {
        Err(Error::NotAFile { path: path.into() })
    }
}

/// Maps `bytes` bytes at `path`, whose size must be exactly that.
///
/// # Errors
/// The file cannot be opened or mapped, or its size is another.
pub fn open(path: &Path, bytes: u64, mode: Mode) -> Result<Map> {
    from_file(&open_file(path, mode)?, path, bytes, mode)
}

/// Maps all of `file`, whose size must be exactly `bytes`; `path` is what errors name.
///
/// # Errors
/// The size is another, or the file cannot be mapped (it must be open for writing for [`Mode::ReadWrite`]).
pub fn from_file(file: &File, path: &Path, bytes: u64, mode: Mode) -> Result<Map> {
    Part::whole(file, path, bytes)?.map(file, || path.into(), mode)
}

/// Maps `bytes` bytes of `path` from `offset` on. The file may be longer.
///
/// # Errors
/// The file cannot be opened or mapped, or ends before the part does.
pub fn open_at_offset(path: &Path, offset: u64, bytes: u64, mode: Mode) -> Result<Map> {
    from_file_at_offset(&open_file(path, mode)?, path, offset, bytes, mode)
}

/// Maps `bytes` bytes of `file` from `offset` on. The file may be longer; `path` is what errors name.
///
/// # Errors
/// The file ends before the part does, or cannot be mapped.
pub fn from_file_at_offset(file: &File, path: &Path, offset: u64, bytes: u64, mode: Mode) -> Result<Map> {
    Part::at_offset(file, path, offset, bytes)?.map(file, || path.into(), mode)
}

/// A part of a file that is known to be in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    start: u64,
    length: usize,
    file: FileId,
}

impl Part {
    /// All of `file`, whose size must be exactly `bytes`.
    pub(crate) fn whole(file: &File, path: &Path, bytes: u64) -> Result<Self> {
        let (found, id) = regular(file, path)?;
        if found > bytes {
            return Err(Error::LongFile {
                path: path.into(),
                wanted: bytes,
                found,
            });
        }
        Self::checked(path, 0..bytes, found, id)
    }

    /// `bytes` bytes of `file` from `offset` on. The file may be longer.
    pub(crate) fn at_offset(file: &File, path: &Path, offset: u64, bytes: u64) -> Result<Self> {
        let (found, id) = regular(file, path)?;
        let end = offset
            .checked_add(bytes)
            .ok_or_else(|| too_large(path, u64::MAX))?;
        Self::checked(path, offset..end, found, id)
    }

    /// A part of a file of `found` bytes, which must reach to its end.
    fn checked(path: &Path, part: std::ops::Range<u64>, found: u64, file: FileId) -> Result<Self> {
        if found < part.end {
            return Err(Error::ShortFile {
                path: path.into(),
                wanted: part.end,
                found,
            });
        }
        let bytes = part.end - part.start;
        let length = isize::try_from(bytes)
            .map_err(|_| too_large(path, bytes))?
            .unsigned_abs();
        Ok(Self {
            start: part.start,
            length,
            file,
        })
    }

    /// Maps it. The file must be the one that it is a part of, open for writing for [`Mode::ReadWrite`].
    pub(crate) fn map(self, file: &File, path: impl FnOnce() -> PathBuf, mode: Mode) -> Result<Map> {
        if self.length == 0 {
            return Ok(Map {
                memory: None,
                mode,
                file: self.file,
            });
        }
        let mut options = MmapOptions::new();
        options.offset(self.start).len(self.length);
        let memory = match mode {
            Mode::ReadOnly => options.map_raw_read_only(file),
            Mode::ReadWrite => options.map_raw(file),
            // SAFETY: [pages] the map becomes a raw one at once, which hands out addresses and no references: the promise that
            // nobody changes the file underneath is not needed for that. Pages that are not written need no swap space,
            // so that a file larger than memory can be mapped.
            Mode::Private => unsafe { options.no_reserve_swap().map_copy(file) }.map(MmapRaw::from),
        };
        let memory = memory.map_err(|source| io_error("map", &path(), source))?;
        Ok(Map {
            memory: Some(Memory::Own(memory)),
            mode,
            file: self.file,
        })
    }
}

/// [`create_with`] whose space is reserved.
///
/// # Errors
/// As there.
pub fn create(path: &Path, bytes: u64, existsok: bool) -> Result<Map> {
    create_with(path, bytes, existsok, Space::Reserved)
}

/// Makes the file `path` of `bytes` zero bytes, and maps it for writing.
///
/// A file that is there already is an error unless `existsok`; it is then replaced by a new file, once that is complete:
/// maps of the old one stay as they are.
///
/// # Errors
/// The file exists, the disk is full, or the system refuses. Nothing is left behind then, and an existing file is as it
/// was.
pub fn create_with(path: &Path, bytes: u64, existsok: bool, space: Space) -> Result<Map> {
    match create_zeros(path, path, bytes, space) {
        Err(Error::Exists { .. }) if existsok => {}
        done => return done,
    }
    let permissions = replaceable(path)?;
    loop {
        let beside = beside(path);
        match create_zeros(&beside, path, bytes, space) {
            // A process that was killed, and had the number of this one, left it.
            Err(Error::Exists { .. }) => {}
            map => {
                let map = map?;
                put(&beside, path, Some(permissions))?;
                return Ok(map);
            }
        }
    }
}

/// The permissions of the file that is to be replaced. What would not be replaced by a rename, or not as meant, is told
/// before anything is written.
fn replaceable(path: &Path) -> Result<std::fs::Permissions> {
    let facts = std::fs::symlink_metadata(path).map_err(|source| io_error("replace", path, source))?;
    if facts.is_symlink() {
        return Err(Error::Symlink { path: path.into() });
    }
    if !facts.is_file() {
        return Err(Error::NotAFile { path: path.into() });
    }
    Ok(facts.permissions())
}

/// Puts the complete file `beside` at `path`; where that fails it is removed.
fn put(beside: &Path, path: &Path, permissions: Option<std::fs::Permissions>) -> Result<()> {
    permissions
        .map_or(Ok(()), |permissions| {
            std::fs::set_permissions(beside, permissions)
        })
        .and_then(|()| std::fs::rename(beside, path))
        .map_err(|source| {
            // The error that matters is the one at hand; the temporary file is removed as far as that works.
            let _ = std::fs::remove_file(beside);
            io_error("replace", path, source)
        })
}

/// A name in the folder of `path` that no file has: process and a running number tell it from everyone else's.
fn beside(path: &Path) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{number}.new", std::process::id()));
    path.with_file_name(name)
}

/// Makes the new file `place` of zeros and maps it. Errors name `path`.
fn create_zeros(place: &Path, path: &Path, bytes: u64, space: Space) -> Result<Map> {
    create_new(place, path, |file| {
        space.take(file, path, bytes)?;
        from_file(file, path, bytes, Mode::ReadWrite)
    })
}

/// Makes the new file `place`, which goes again if `write` fails. Errors name `path`.
fn create_new(place: &Path, path: &Path, write: impl FnOnce(&File) -> Result<Map>) -> Result<Map> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(place)
        .map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => Error::Exists { path: path.into() },
            _ => io_error("create", path, source),
        })?;
    let map = write(&file);
    if map.is_err() {
        // As above: the first error is the one to tell.
        let _ = std::fs::remove_file(place);
    }
    map
}

/// Whether memory that is mapped from a file has lost its end, because the file was cut: to read it would be a fault that ends
/// the process. False also where the system cannot tell. The last page is looked at, and read from the disk where it has to be.
///
/// Nothing keeps another process from cutting the file later.
#[must_use]
pub fn is_cut(memory: &[u8]) -> bool {
    #[cfg(target_os = "linux")]
    if let Some(last) = memory.last() {
        let page = rustix::param::page_size();
        let inside = std::ptr::from_ref(last).addr() % page;
        let start = std::ptr::from_ref(last).wrapping_sub(inside).cast_mut().cast();
        // SAFETY: [pages] the page has the last byte of memory that is borrowed, and the advice leaves its content alone.
        let found = unsafe { rustix::mm::madvise(start, page, rustix::mm::Advice::LinuxPopulateRead) };
        return found == Err(Errno::FAULT);
    }
    false
}

/// Asks that new memory is given in large pages, which takes a third of the time for many megabytes. Of memory that is in
/// use nothing changes.
pub fn prefer_large_pages(memory: &mut [MaybeUninit<u8>]) {
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 2 << 20;
        let skipped = memory.as_ptr().align_offset(PAGE);
        let length = memory.len().saturating_sub(skipped) / PAGE * PAGE;
        if length >= 2 * PAGE {
            let start = memory.as_mut_ptr().wrapping_add(skipped).cast();
            // SAFETY: [exclusive] the part is of whole pages inside memory that is borrowed mutably, and the advice leaves its content
            // alone. Where the system knows no such pages nothing is lost.
            let _ = unsafe { rustix::mm::madvise(start, length, rustix::mm::Advice::LinuxHugepage) };
        }
    }
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Io {
        action,
        path: path.into(),
        source,
    }
}

fn too_large(path: &Path, bytes: u64) -> Error {
    Error::TooLarge {
        path: path.into(),
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Done = std::result::Result<(), Box<dyn std::error::Error>>;

    fn bytes(map: &Map) -> Vec<u8> {
        // SAFETY: [pages] the test's map is alive and nobody writes to it meanwhile.
        unsafe { std::slice::from_raw_parts(map.as_ptr(), map.len()) }.to_vec()
    }

    fn write(map: &Map, at: usize, byte: u8) {
        assert!(at < map.len());
        let start = map.as_mut_ptr().unwrap_or(std::ptr::null_mut());
        assert!(!start.is_null());
        // SAFETY: [pages] `at` is inside the map, which may be written.
        unsafe { start.add(at).write(byte) };
    }

    #[test]
    fn a_map_of_a_file_that_was_cut_is_told() -> Done {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let map = create(&path, 50_000, false)?;
        // SAFETY: [pages] the map is alive, and the bytes are not read.
        let memory = unsafe { std::slice::from_raw_parts(map.as_ptr(), map.len()) };
        assert!(!is_cut(memory) && !is_cut(&memory[..1]) && !is_cut(&[]));
        OpenOptions::new().write(true).open(&path)?.set_len(20_000)?;
        assert!(!is_cut(&memory[..20_000]));
        if cfg!(target_os = "linux") {
            assert!(is_cut(memory) && is_cut(&memory[40_000..40_001]));
        }
        Ok(())
    }

    #[test]
    fn a_created_file_is_shared_by_its_maps() -> Done {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let map = create(&path, 5000, false)?;
        assert_eq!(bytes(&map), vec![0; 5000]);
        let other = open(&path, 5000, Mode::ReadOnly)?;
        write(&map, 4999, 7);
        assert_eq!(bytes(&other)[4999], 7);
        assert_eq!(std::fs::read(&path)?[4999], 7);
        assert!(other.as_mut_ptr().is_none());
        Ok(())
    }

    #[test]
    fn a_private_map_keeps_its_writes() -> Done {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        std::fs::write(&path, [1, 2, 3])?;
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o400))?;
        let map = open(&path, 3, Mode::Private)?;
        write(&map, 1, 9);
        assert_eq!(bytes(&map), [1, 9, 3]);
        assert_eq!(std::fs::read(&path)?, [1, 2, 3]);
        Ok(())
    }

    #[test]
    fn sizes_are_checked_before_mapping() -> Done {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        std::fs::write(&path, [0; 10])?;
        assert!(matches!(
            open(&path, 11, Mode::ReadOnly),
            Err(Error::ShortFile { wanted: 11, found: 10, path: named }) if named == path
        ));
        assert!(matches!(
            open(&path, 9, Mode::ReadOnly),
            Err(Error::LongFile {
                wanted: 9,
                found: 10,
                ..
            })
        ));
        assert!(matches!(
            open(&path, u64::MAX, Mode::ReadOnly),
            Err(Error::ShortFile { .. })
        ));
        assert!(matches!(
            open(folder.path(), 0, Mode::ReadOnly),
            Err(Error::NotAFile { .. })
        ));
        let missing = open(&folder.path().join("b"), 0, Mode::ReadOnly);
        assert!(matches!(missing, Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound));
        Ok(())
    }

    #[test]
    fn a_part_starts_anywhere_and_ends_in_the_file() -> Done {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let content: Vec<u8> = (0..=255).cycle().take(9000).collect();
        std::fs::write(&path, &content)?;
        for (offset, length) in [(0, 9000), (1, 10), (4096, 4), (4100, 4900), (9000, 0)] {
            let map = open_at_offset(&path, offset, length, Mode::ReadOnly)?;
            assert_eq!(bytes(&map), content[offset as usize..(offset + length) as usize]);
        }
        let long = open_at_offset(&path, 8999, 2, Mode::ReadOnly);
        assert!(matches!(
            long,
            Err(Error::ShortFile {
                wanted: 9001,
                found: 9000,
                ..
            })
        ));
        let beyond = open_at_offset(&path, 2, u64::MAX, Mode::ReadOnly);
        assert!(matches!(beyond, Err(Error::TooLarge { .. })));
        Ok(())
    }

    #[test]
    fn nothing_is_mapped_for_no_bytes() -> Done {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let map = create(&path, 0, false)?;
        assert!(map.is_empty() && !map.as_ptr().is_null());
        assert!(open(&path, 0, Mode::Private)?.is_empty());
        assert!(anonymous(0)?.0.is_empty());
        Ok(())
    }

    #[test]
    fn a_replaced_file_leaves_old_maps_whole() -> Done {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let old = create(&path, 8, false)?;
        write(&old, 0, 1);
        assert!(matches!(create(&path, 8, false), Err(Error::Exists { .. })));
        let new = create(&path, 3, true)?;
        assert_eq!(bytes(&new), [0; 3]);
        assert_eq!(bytes(&old)[0], 1);
        assert_eq!(std::fs::metadata(&path)?.len(), 3);
        assert!(matches!(
            create(folder.path(), 3, true),
            Err(Error::NotAFile { .. })
        ));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link)?;
        assert!(matches!(create(&link, 3, true), Err(Error::Symlink { .. })));
        assert!(std::fs::symlink_metadata(&link)?.is_symlink());
        Ok(())
    }

    #[test]
    fn what_cannot_be_made_leaves_nothing() -> Done {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        // No file system has that much, and no address space.
        for wanted in [1 << 61, u64::MAX] {
            assert!(create(&path, wanted, false).is_err());
            assert_eq!(std::fs::read_dir(folder.path())?.count(), 0);
        }
        std::fs::write(&path, [5; 4])?;
        assert!(create(&path, 1 << 61, true).is_err());
        assert_eq!(std::fs::read(&path)?, [5; 4]);
        assert_eq!(std::fs::read_dir(folder.path())?.count(), 1);
        Ok(())
    }

    #[test]
    fn tied_maps_keep_their_memory_until_the_last_goes() -> Done {
        let folder = tempfile::tempdir()?;
        let sizes = [10, 5000, 4096, TIED_BYTES as u64 + 1, 0, 1];
        let mut maps: Vec<Map> = (0..600)
            .map(|number| {
                let bytes = sizes[number % sizes.len()];
                let map = create(&folder.path().join(number.to_string()), bytes, false)?;
                if bytes > 0 {
                    write(&map, 0, (number % 251) as u8);
                }
                Ok(map)
            })
            .collect::<Result<_>>()?;
        tie(maps.iter_mut());
        tie(maps.iter_mut());
        let kept: Vec<(usize, Map)> = maps
            .into_iter()
            .enumerate()
            .filter(|(number, _)| number % 7 == 0)
            .collect();
        for (number, map) in &kept {
            if !map.is_empty() {
                assert_eq!(bytes(map)[0], (number % 251) as u8);
                write(map, map.len() - 1, 9);
                assert_eq!(
                    std::fs::read(folder.path().join(number.to_string()))?.last(),
                    Some(&9)
                );
            }
        }
        Ok(())
    }

    #[test]
    fn tied_memory_is_unmapped() -> Done {
        let folder = tempfile::tempdir()?;
        let make = |name: &str| create(&folder.path().join(name), 100, false);
        let mut maps = [make("tied_one")?, make("tied_two")?];
        tie(maps.iter_mut());
        let mapped = || std::fs::read_to_string("/proc/self/maps").map(|text| text.matches("tied_").count());
        assert_eq!(mapped()?, 2);
        let [one, two] = maps;
        drop(one);
        assert_eq!(mapped()?, 2);
        drop(two);
        assert_eq!(mapped()?, 0);
        Ok(())
    }

    #[test]
    fn anonymous_memory_is_shared_by_its_descriptor() -> Done {
        let (map, descriptor) = anonymous(100)?;
        let file = File::from(descriptor.try_clone()?);
        let other = from_file(&file, Path::new("memory"), 100, Mode::ReadWrite)?;
        write(&other, 99, 3);
        assert_eq!(bytes(&map)[99], 3);
        drop((map, descriptor, file));
        assert_eq!(bytes(&other)[99], 3);
        Ok(())
    }

    #[test]
    fn anonymous_memory_is_taken_as_it_is_written() -> Done {
        let bytes = 256 << 20;
        let Ok((map, descriptor)) = anonymous(bytes) else {
            return Ok(());
        };
        let file = File::from(descriptor);
        write(&map, 200 << 20, 1);
        let taken = std::os::unix::fs::MetadataExt::blocks(&file.metadata()?) * 512;
        // One page, which may be a large one.
        assert!(taken > 0 && taken <= 4 << 20, "{taken}");
        assert!(file.set_len(bytes - 1).is_err());
        assert_eq!(file.metadata()?.len(), bytes);
        Ok(())
    }

    #[test]
    fn room_is_bounded() -> Done {
        assert!(room::<u64>(1000)?.capacity() >= 1000);
        for count in [usize::MAX, usize::MAX / 8, 1 << 50] {
            let refused = room::<u64>(count);
            assert!(matches!(refused, Err(Error::NoMemory { count: found, item: 8 }) if found == count));
        }
        Ok(())
    }

    #[test]
    fn more_memory_than_there_is_is_refused() {
        for wanted in [1 << 55, u64::MAX] {
            assert!(anonymous(wanted).is_err());
        }
    }
}
