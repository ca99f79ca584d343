//! A set of files as one whole: the folder that a tree belongs to, and reading it as it was at one moment.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::Stat;

use crate::folder::{Folder, Locked};
use crate::journal::{COMMITTED, JOURNAL, Journal, STAGING, View, read_all};
use crate::metadata::{Entry, META, Metadata, Naming, is_member};
use crate::transaction::{self, recovered};
use crate::{Error, Result};

/// How often a read is tried while others write, before it waits for them.
const ATTEMPTS: usize = 8;

/// Where a tree is: in a folder that is a level of no other, or in one of its sub-folders.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The outermost folder. All changes below it are made in it, so that they exclude each other, and whoever reads any part
    /// knows of all.
    pub(crate) root: PathBuf,
    /// The sub-folder of the tree; empty for the outermost folder itself.
    pub(crate) below: String,
}

impl Place {
    /// Where the tree in the folder `path` is.
    pub(crate) fn of(path: &Path) -> Self {
        let mut found = Self {
            root: path.into(),
            below: String::new(),
        };
        // Most folders are in one that holds no tree, which one question tells.
        let Some(above) = path.parent() else {
            return found;
        };
        if !is_level(above) && path.components().next_back().is_some_and(is_plain) && !is_link(path) {
            return found;
        }
        let Ok(full) = path.canonicalize() else {
            return found;
        };
        let mut below = String::new();
        for (level, above) in full.ancestors().zip(full.ancestors().skip(1)) {
            let Some(name) = level.file_name().and_then(|name| name.to_str()) else {
                break;
            };
            if !is_level(above) || !claims(above, name) {
                break;
            }
            below = if below.is_empty() {
                name.to_owned()
            } else {
                format!("{name}/{below}")
            };
            found = Self {
                root: above.into(),
                below: below.clone(),
            };
        }
        found
    }

    /// A place in the sub-folder `part` of this one.
    pub(crate) fn part(&self, part: &str) -> String {
        match (self.below.is_empty(), part.is_empty()) {
            (true, _) => part.to_owned(),
            (_, true) => self.below.clone(),
            _ => format!("{}/{part}", self.below),
        }
    }

    /// The place `file`, which is relative to the outermost folder, relative to the tree.
    pub(crate) fn relative<'a>(&self, file: &'a str) -> &'a str {
        let rest = file.strip_prefix(&self.below).unwrap_or(file);
        rest.strip_prefix('/').unwrap_or(rest)
    }

    /// Locks the outermost folder, waiting for other writers.
    pub(crate) fn lock(path: &Path) -> Result<(Self, Locked)> {
        loop {
            let place = Self::of(path);
            let locked = Locked::wait(&place.root)?;
            // Meanwhile another writer may have made it a level of another, or none.
            if Self::of(path) == place {
                return Ok((place, locked));
            }
        }
    }
}

fn is_plain(part: std::path::Component<'_>) -> bool {
    matches!(part, std::path::Component::Normal(_))
}

fn is_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|facts| facts.is_symlink())
}

/// Whether there is a sign of a tree in a folder.
fn is_level(folder: &Path) -> bool {
    folder.join(META).exists() || folder.join(COMMITTED).exists()
}

/// Whether the tree in the folder `above` has a level in its sub-folder `name`, now or once what is committed is done.
fn claims(above: &Path, name: &str) -> bool {
    let Ok(folder) = Folder::open(above) else {
        return false;
    };
    let journal = Journal::committed(&folder).unwrap_or_default();
    if journal
        .places()
        .any(|place| place.split('/').next() == Some(name))
    {
        return true;
    }
    let Ok(meta) = metadata(&View::after(&folder, journal), "") else {
        return false;
    };
    if !meta.is_plain() {
        return is_member(name);
    }
    let is_name = |key: &str| {
        [Naming::Robust, Naming::Verbatim]
            .iter()
            .any(|naming| naming.name(key) == name)
    };
    meta.entries
        .iter()
        .any(|(key, entry)| matches!(entry, Entry::Level(_)) && is_name(key))
}

/// Metadata of the level in the sub-folder `level`.
pub(crate) fn metadata(view: &View<'_>, level: &str) -> Result<Metadata> {
    let relative = if level.is_empty() {
        META.to_owned()
    } else {
        format!("{level}/{META}")
    };
    let path = view.folder.full(&relative);
    let file = view.open_file(&relative, false).map_err(|errno| match errno {
        rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR => Error::NoMetadata {
            path: view.folder.full(level),
        },
        errno => Error::io("open", &path, errno),
    })?;
    Metadata::parse(&read_all(file, &path)?, &path)
}

/// What tells whether there were changes between two moments: each change replaces the metadata of the root while its folder
/// of committed changes is there.
#[derive(Debug)]
pub(crate) struct State {
    /// Both are kept open, so that no new file can have the same number.
    meta: Option<File>,
    committed: Option<File>,
}

impl State {
    /// The state before a read. The metadata is opened first: a change that ends before the second question has replaced it
    /// by then or will have replaced it at the end.
    pub(crate) fn of(folder: &Folder) -> Self {
        let meta = folder.open_file(META, false).ok();
        let committed = folder.open_file(&format!("{COMMITTED}/{JOURNAL}"), false).ok();
        Self { meta, committed }
    }

    /// Whether the folder is in the same state, with these questions in the opposite order.
    pub(crate) fn holds(&self, folder: &Folder) -> bool {
        let number = |facts: Stat| (facts.st_dev, facts.st_ino);
        let same = |before: &Option<File>, relative: &str| {
            let before = before.as_ref().and_then(|file| rustix::fs::fstat(file).ok());
            before.map(number) == folder.stat(relative).ok().map(number)
        };
        same(&self.committed, &format!("{COMMITTED}/{JOURNAL}")) && same(&self.meta, META)
    }
}

/// Calls `read` with the folder `path` as it was at one moment. It may be called several times, while others write.
///
/// # Errors
/// There is no such folder, what was interrupted in it cannot be understood, or what `read` says.
pub(crate) fn read<R>(path: &Path, read: impl Fn(&View<'_>) -> Result<R>) -> Result<R> {
    for _ in 0..ATTEMPTS {
        let folder = Folder::open(path).inspect_err(|_| transaction::clean_beside(path))?;
        if !folder.has(COMMITTED) && folder.has(STAGING) {
            // Another writer is at work, or one was killed: what it left goes as far as that works.
            if let Ok(Some(locked)) = Locked::at_once(path) {
                let _ = recovered(&locked);
            }
        }
        let state = State::of(&folder);
        // Without metadata nothing would tell of changes.
        if state.meta.is_none() || state.committed.is_some() || folder.has(COMMITTED) {
            break;
        }
        let found = read(&View::plain(&folder));
        if state.holds(&folder) {
            return found;
        }
    }
    let locked = Locked::wait(path)?;
    let view = recovered(&locked)?;
    read(&view)
}
