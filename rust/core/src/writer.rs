//! New files of a folder, many at once.
//!
//! The system lets one thread at a time make a file in a folder, and one thread of a process change its memory map. Threads
//! therefore take turns, with a batch of files each, and do the rest meanwhile.

use std::fs::File;
use std::io::{self, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode as Permissions, OFlags};

use crate::balance::runs_under;
use crate::folder::Folder;
use crate::key::KeyPath;
use crate::memmap::{self, Map, Mode, Space};
use crate::turn::Turn;
use crate::{Error, Result, schedule};

/// Bytes of a batch, unless one file has more, so that large files are written side by side.
const BATCH_BYTES: u64 = 1 << 20;

/// Held by the thread that makes files. Never held across a loop of the thread pool.
static CREATING: Turn<()> = Turn::new(|| ());

/// What a new file holds.
#[derive(Debug, Clone)]
pub enum Source<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// Bytes that were made for it.
    Owned(Vec<u8>),
    /// That many zero bytes.
    Zeros(u64, Space),
}

impl Source<'_> {
    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Owned(bytes) => bytes.len() as u64,
            Self::Zeros(bytes, _) => *bytes,
        }
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One new file.
#[derive(Debug, Clone)]
pub(crate) struct Write<'a> {
    /// Where it goes, relative to the folder.
    pub(crate) target: String,
    pub(crate) source: Source<'a>,
    /// Whether a map of it is wanted.
    pub(crate) map: bool,
    /// Key path that errors name; none for metadata.
    pub(crate) key: KeyPath,
}

/// A question that is asked once all files are written, and before they count: whether the bytes they were written from were
/// those of their owners all the time. Memory that others give back meanwhile has foreign content, or none.
#[derive(Clone, Copy, Default)]
pub struct Stayed<'a>(Option<&'a (dyn Fn() -> bool + Sync)>);

impl<'a> Stayed<'a> {
    /// Bytes that nobody else can give back.
    pub const ALWAYS: Self = Self(None);

    /// Asks `question`.
    #[must_use]
    pub fn asked(question: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Self(Some(question))
    }

    /// Asks.
    ///
    /// # Errors
    /// [`Error::Moved`] if they did not stay.
    pub fn check(self) -> Result<()> {
        match self.0 {
            Some(question) if !question() => Err(Error::Moved),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for Stayed<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Stayed").field(&self.0.is_some()).finish()
    }
}

/// Where files are written, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) folder: &'a Folder,
    /// Errors name places below it.
    pub(crate) root: &'a Path,
    /// Whether what was written is on the disk before the call returns.
    pub(crate) durable: bool,
    pub(crate) stayed: Stayed<'a>,
}

impl Writer<'_> {
    /// Writes all files under their `names`, in parallel. The maps are in the order of the files.
    pub(crate) fn write_all(self, names: &[String], writes: &[Write<'_>]) -> Result<Vec<Option<Map>>> {
        let mut maps = schedule::map_runs(&batches(writes), |batch| {
            self.write(&names[batch.clone()], &writes[batch])
        })?;
        self.stayed.check()?;
        memmap::tie(maps.iter_mut().flatten());
        Ok(maps)
    }

    /// Writes a batch of files, from the first on as many as descriptors are free.
    fn write(self, names: &[String], writes: &[Write<'_>]) -> Result<Vec<Option<Map>>> {
        let files: Vec<File> = {
            let _turn = CREATING.take();
            let files: Vec<_> = names.iter().zip(writes).collect();
            schedule::as_many_as_open(&files, |(name, write)| self.create(name, write))?
        };
        for (file, write) in files.iter().zip(writes) {
            self.fill(file, write).map_err(|error| at_key(error, write))?;
        }
        let _turn = memmap::turn();
        files
            .iter()
            .zip(writes)
            .map(|(file, write)| {
                let map = || memmap::from_file(file, &self.place(write), write.source.len(), Mode::ReadWrite);
                write
                    .map
                    .then(map)
                    .transpose()
                    .map_err(|error| at_key(error, write))
            })
            .collect()
    }

    fn place(self, write: &Write<'_>) -> PathBuf {
        self.root.join(&write.target)
    }

    fn create(self, name: &str, write: &Write<'_>) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let permissions = Permissions::from_raw_mode(0o666);
        rustix::fs::openat(self.folder, name, flags, permissions)
            .map(File::from)
            .map_err(|errno| at_key(Error::io("create", self.place(write), errno), write))
    }

    /// Puts the content into a file, with `write` and not through a map: a full disk is then an error and not a signal.
    fn fill(self, mut file: &File, write: &Write<'_>) -> Result<()> {
        let fail = |source: io::Error| Error::io("write", self.place(write), source);
        match &write.source {
            Source::Bytes(bytes) => file.write_all(bytes).map_err(fail)?,
            Source::Owned(bytes) => file.write_all(bytes).map_err(fail)?,
            Source::Zeros(bytes, space) => space.take(file, &self.place(write), *bytes)?,
        }
        if self.durable {
            file.sync_all().map_err(fail)?;
        }
        Ok(())
    }
}

fn at_key(error: Error, write: &Write<'_>) -> Error {
    if write.key.is_root() {
        error
    } else {
        error.at_key(&write.key)
    }
}

/// Cuts the files into runs that are few enough to be open at once, and small enough to be dealt to threads.
fn batches(writes: &[Write<'_>]) -> Vec<Range<usize>> {
    let sizes: Vec<u64> = writes.iter().map(|write| write.source.len()).collect();
    runs_under(&sizes, BATCH_BYTES)
        .into_iter()
        .flat_map(schedule::runs)
        .collect()
}
