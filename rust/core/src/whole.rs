//! A set of files as one whole: the folder that a tree belongs to, and reading it as it was at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::folder::{Folder, Locked, is_absent, of_the_system, there};
use crate::fresh;
use crate::journal::{COMMITTED, JOURNAL, Journal, STAGING, View, read_all};
use crate::metadata::{Entry, META, Metadata, Naming};
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
    ///
    /// # Errors
    /// The system does not let it be found out.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let mut found = Self {
            root: path.into(),
            below: String::new(),
        };
        // Most folders are in one that holds no tree, which one question tells.
        let Some(above) = path.parent() else {
            return Ok(found);
        };
        if !is_level(above)? && path.components().next_back().is_some_and(is_plain) && !is_link(path)? {
            return Ok(found);
        }
        let Some(full) = there(of_the_system(path.canonicalize()), || path.into())? else {
            return Ok(found);
        };
        let mut below = String::new();
        for (level, above) in full.ancestors().zip(full.ancestors().skip(1)) {
            let Some(name) = level.file_name().and_then(|name| name.to_str()) else {
                break;
            };
            if !is_level(above)? || !claims(above, name)? {
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
        Ok(found)
    }

    /// The same for a read. Of a folder above that this process must not look at nothing can be known: then the tree is a whole.
    pub(crate) fn to_read(path: &Path) -> Result<Self> {
        match Self::of(path) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => Ok(Self {
                root: path.into(),
                below: String::new(),
            }),
            found => found,
        }
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
            let place = Self::of(path)?;
            let locked = Locked::wait(&place.root)?;
            // Meanwhile another writer may have made it a level of another, or none.
            if Self::of(path)? == place {
                return Ok((place, locked));
            }
        }
    }
}

fn is_plain(part: std::path::Component<'_>) -> bool {
    matches!(part, std::path::Component::Normal(_))
}

fn is_link(path: &Path) -> Result<bool> {
    let facts = there(rustix::fs::lstat(path), || path.into())?;
    Ok(facts.is_some_and(|facts| FileType::from_raw_mode(facts.st_mode).is_symlink()))
}

/// Whether there is a sign of a tree in a folder.
fn is_level(folder: &Path) -> Result<bool> {
    let has = |name| {
        let path = folder.join(name);
        let found = there(rustix::fs::lstat(&path), || path.clone())?;
        Ok::<_, Error>(found.is_some())
    };
    Ok(has(META)? || has(COMMITTED)?)
}

/// What is found; none where there is no tree, or nothing that can be understood. That the system did not let it be looked at
/// is an error.
pub(crate) fn known<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(error) if error.is_of_the_system() => Err(error),
        found => Ok(found.ok()),
    }
}

/// Whether the tree in the folder `above` has a level in its sub-folder `name`, now or once what is committed is done.
fn claims(above: &Path, name: &str) -> Result<bool> {
    let Some(folder) = known(Folder::open(above))? else {
        return Ok(false);
    };
    let journal = known(Journal::committed(&folder))?.unwrap_or_default();
    if journal
        .places()
        .any(|place| place.split('/').next() == Some(name))
    {
        return Ok(true);
    }
    let Some(meta) = known(metadata(&View::after(&folder, journal), ""))? else {
        return Ok(false);
    };
    if !meta.is_plain() {
        return Ok(meta.has_member(name));
    }
    let is_name = |key: &str| {
        [Naming::Robust, Naming::Verbatim]
            .iter()
            .any(|naming| naming.name(key) == name)
    };
    Ok(meta
        .entries
        .iter()
        .any(|(key, entry)| matches!(entry, Entry::Level(_)) && is_name(key)))
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
        errno if is_absent(errno) => Error::NoMetadata {
            path: view.folder.full(level),
        },
        // A socket.
        Errno::NXIO => Error::NotAFile { path: path.clone() },
        errno => Error::io("open", &path, errno),
    })?;
    Metadata::parse(&read_all(file, &path)?, &path)
}

/// What tells whether there were changes between two moments: each change replaces the metadata of the root while its folder
/// of committed changes is there.
#[derive(Debug)]
pub(crate) struct State {
    /// Both are kept open, so that no new file can have the same number.
    meta: Seen,
    committed: Seen,
}

/// A file, none where there was none, or why that is not known.
type Seen = Result<Option<File>, Errno>;

impl State {
    /// The state before a read. The metadata is opened first: a change that ends before the second question has replaced it
    /// by then or will have replaced it at the end.
    pub(crate) fn of(folder: &Folder) -> Self {
        let see = |relative: &str| match folder.open_file(relative, false) {
            Err(errno) if is_absent(errno) => Ok(None),
            found => found.map(Some),
        };
        let meta = see(META);
        let committed = see(&format!("{COMMITTED}/{JOURNAL}"));
        Self { meta, committed }
    }

    /// Whether changes count that are not carried out yet, or nothing would tell of changes, for want of metadata.
    fn is_changing(&self, folder: &Folder) -> Result<bool> {
        let is_settled = matches!((&self.meta, &self.committed), (Ok(Some(_)), Ok(None)));
        Ok(!is_settled || folder.is_folder(COMMITTED)?)
    }

    /// Whether the folder is known to be in the same state, with these questions in the opposite order.
    pub(crate) fn holds(&self, folder: &Folder) -> bool {
        let number = |facts: Stat| (facts.st_dev, facts.st_ino);
        let same = |before: &Seen, relative: &str| {
            let before = match before {
                Ok(Some(file)) => rustix::fs::fstat(file).map(Some),
                Ok(None) => Ok(None),
                Err(errno) => Err(*errno),
            };
            let now = folder.there(relative, folder.stat(relative));
            matches!((before, now), (Ok(before), Ok(now)) if before.map(number) == now.map(number))
        };
        same(&self.committed, &format!("{COMMITTED}/{JOURNAL}")) && same(&self.meta, META)
    }
}

/// Wholes beside the one that is read, to which links in it lead, by device and number: the order in which they are locked.
#[derive(Debug, Default)]
struct Beyond(BTreeMap<(u64, u64), PathBuf>);

impl Beyond {
    /// Adds those behind more links, and says whether there are any that were not known.
    fn add(&mut self, links: BTreeSet<PathBuf>, own: &Folder) -> Result<bool> {
        let before = self.0.len();
        for link in links {
            let root = Place::to_read(&folder_behind(&link))?.root;
            // What is no level is changed by no save.
            if is_level(&root)?
                && !own.is_at(&root)?
                && let Some(facts) = there(rustix::fs::stat(&root), || root.clone())?
            {
                self.0.insert((facts.st_dev, facts.st_ino), root);
            }
        }
        Ok(self.0.len() > before)
    }

    /// The state of each; none where changes of one count that are not carried out yet.
    fn states(&self) -> Result<Option<Vec<(Folder, State)>>> {
        let mut states = Vec::with_capacity(self.0.len());
        for root in self.0.values() {
            let folder = Folder::open(root)?;
            let state = State::of(&folder);
            if state.is_changing(&folder)? {
                return Ok(None);
            }
            states.push((folder, state));
        }
        Ok(Some(states))
    }
}

/// The folder to which a link leads, or in which the file is to which it does: that may be away for a moment.
fn folder_behind(link: &Path) -> PathBuf {
    const MOST: usize = 40;
    let mut at = link.to_path_buf();
    for _ in 0..MOST {
        match at.read_link() {
            Ok(target) => at = at.parent().unwrap_or(Path::new("/")).join(target),
            Err(_) => break,
        }
    }
    if !at.is_dir() {
        at.pop();
    }
    at.canonicalize().unwrap_or(at)
}

/// Calls `read` with the folder `path` as it was at one moment, and so are those to which links in it lead. It may be called
/// several times, while others write.
///
/// # Errors
/// There is no such folder, what was interrupted in it cannot be understood, or what `read` says.
pub(crate) fn read<R>(path: &Path, read: impl Fn(&View<'_>) -> Result<R>) -> Result<R> {
    let mut beyond = Beyond::default();
    for _ in 0..ATTEMPTS {
        let folder = Folder::open(path).inspect_err(|_| fresh::clean_beside(path))?;
        if !folder.has(COMMITTED)? && folder.has(STAGING)? {
            // Another writer is at work, or one was killed: what it left goes as far as that works.
            if let Ok(Some(locked)) = Locked::at_once(path) {
                let _ = recovered(&locked);
            }
        }
        let state = State::of(&folder);
        if state.is_changing(&folder)? {
            break;
        }
        let Some(others) = beyond.states()? else {
            break;
        };
        let view = View::plain(&folder);
        let found = read(&view);
        let mut holds = state.holds(&folder);
        for (folder, state) in &others {
            holds = holds && state.holds(folder) && folder.is_at(&folder.path)?;
        }
        // What is behind links that were not known was not looked at before.
        if !beyond.add(view.links(), &folder)? && holds {
            return found;
        }
    }
    wait_and_read(path, &mut beyond, read)
}

/// The same, with the locks that keep others from writing meanwhile.
fn wait_and_read<R>(path: &Path, beyond: &mut Beyond, read: impl Fn(&View<'_>) -> Result<R>) -> Result<R> {
    for _ in 0..ATTEMPTS {
        // Locking the same folder twice would wait for ever, so it has to be known which it is.
        let own = rustix::fs::stat(path).map_err(|errno| Error::io("open", path, errno))?;
        let own = (own.st_dev, own.st_ino);
        beyond.0.remove(&own);
        // All who wait for several locks do so in one order.
        let (before, after): (Vec<_>, Vec<_>) = beyond.0.iter().partition(|(number, _)| **number < own);
        let wait = |roots: Vec<(_, &PathBuf)>| -> Result<Vec<Locked>> {
            roots.into_iter().map(|(_, root)| Locked::wait(root)).collect()
        };
        let before = wait(before)?;
        let locked = Locked::wait(path)?;
        let after = wait(after)?;
        for other in before.iter().chain(&after) {
            if recovered(other)?.is_pending() {
                transaction::carry_out_again(other)?;
            }
        }
        let view = recovered(&locked)?;
        let found = read(&view);
        if !beyond.add(view.links(), &locked)? {
            return found;
        }
    }
    Err(Error::Busy { path: path.into() })
}
