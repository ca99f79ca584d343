//! What a committed change still has to do, and a folder read as if it were done.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::folder::Folder;
use crate::metadata::is_inside;
use crate::{Error, Result, memmap};

/// Folder of changes that do not count yet.
pub(crate) const STAGING: &str = ".tensordict-staging";
/// Folder of changes that count.
pub(crate) const COMMITTED: &str = ".tensordict-committed";
/// The journal in either.
pub(crate) const JOURNAL: &str = "journal.json";
/// What was put in place before the change counts, in either.
pub(crate) const TRIED: &str = "tried.json";

/// What is to be done once it is committed. Doing any part of it twice does no harm.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Journal {
    pub(crate) remove_files: Vec<String>,
    pub(crate) remove_folders: Vec<String>,
    pub(crate) make_folders: Vec<String>,
    /// Name in the committed folder and place in the folder.
    pub(crate) rename: Vec<(String, String)>,
}

/// What is put in place before the commit, since nothing of the old content is in its way and nothing refers to it: so a name
/// that the system does not take, or a folder that must not be written, shows in time.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tried {
    pub(crate) folders: Vec<String>,
    /// Name in the staging folder and place in the folder.
    pub(crate) files: Vec<(String, String)>,
}

/// Whether the names are those of staged files, and the places lie within the folder.
fn is_safe<'a>(
    mut names: impl Iterator<Item = &'a String>,
    mut places: impl Iterator<Item = &'a String>,
) -> bool {
    names.all(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()))
        && places.all(|place| is_inside(place))
}

impl Journal {
    fn is_safe(&self) -> bool {
        is_safe(self.rename.iter().map(|(name, _)| name), self.places())
    }

    /// All places that it names.
    pub(crate) fn places(&self) -> impl Iterator<Item = &String> {
        [&self.remove_files, &self.remove_folders, &self.make_folders]
            .into_iter()
            .flatten()
            .chain(self.rename.iter().map(|(_, place)| place))
    }

    /// The journal of the committed changes; an empty one where it is gone, as it goes last. What is no folder holds none: a
    /// change counts from the moment when its folder gets that name.
    ///
    /// # Errors
    /// [`Error::Damaged`] where there is one that does not say what is to be done, which only a power cut or another program
    /// brings about; or the system does not let it be read.
    pub(crate) fn committed(folder: &Folder) -> Result<Self> {
        if !folder.is_folder(COMMITTED)? {
            return Ok(Self::default());
        }
        read_json(folder, &format!("{COMMITTED}/{JOURNAL}"))
            .and_then(|journal| checked(folder, journal.unwrap_or_else(Self::default), Self::is_safe))
            .map_err(|error| match error {
                Error::Io { .. } => error,
                error => damaged(folder, error),
            })
    }
}

impl Tried {
    /// What a writer whose changes do not count had put in place; nothing where it had not come so far, or where that does
    /// not say: nothing refers to what then stays.
    pub(crate) fn staged(folder: &Folder) -> Result<Self> {
        match read_json(folder, &format!("{STAGING}/{TRIED}")) {
            Ok(Some(tried)) => Ok(checked(folder, tried, Self::is_safe).unwrap_or_default()),
            Err(error @ Error::Io { .. }) => Err(error),
            // It was being written.
            Ok(None) | Err(_) => Ok(Self::default()),
        }
    }

    fn is_safe(&self) -> bool {
        let places = self.files.iter().map(|(_, place)| place);
        is_safe(
            self.files.iter().map(|(name, _)| name),
            self.folders.iter().chain(places),
        )
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.folders.is_empty() && self.files.is_empty()
    }
}

/// The error that the committed changes of a folder are not to be understood.
pub(crate) fn damaged(folder: &Folder, source: Error) -> Error {
    Error::Damaged {
        path: folder.full(COMMITTED),
        source: Box::new(source),
    }
}

fn checked<T>(folder: &Folder, found: T, safe: impl Fn(&T) -> bool) -> Result<T> {
    if safe(&found) {
        Ok(found)
    } else {
        Err(Error::Metadata {
            path: folder.path.clone(),
            field: "rename".into(),
            wanted: "places within the folder",
            found: "a place outside".into(),
        })
    }
}

/// What a file in JSON says; none where there is no such file.
fn read_json<T: DeserializeOwned>(folder: &Folder, relative: &str) -> Result<Option<T>> {
    let path = folder.full(relative);
    let text = match folder.open_file(relative, false) {
        Ok(file) => read_all(file, &path)?,
        Err(Errno::NOENT) => return Ok(None),
        // A link to itself, a socket: whatever the system does not open as a file.
        Err(Errno::LOOP | Errno::NXIO) => return Err(Error::NotAFile { path }),
        Err(errno) => return Err(Error::io("open", path, errno)),
    };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|source| Error::Json { path, source })
}

/// All bytes of a regular file. One that says it is longer than memory is refused before memory is asked for.
pub(crate) fn read_all(mut file: File, path: &std::path::Path) -> Result<Vec<u8>> {
    let size = memmap::size(&file, path)?;
    let mut content = Vec::new();
    memmap::check_memory(size, path)?;
    usize::try_from(size)
        .ok()
        .and_then(|size| content.try_reserve_exact(size.saturating_add(1)).ok())
        .ok_or_else(|| Error::io("read", path, Errno::NOMEM))?;
    file.by_ref()
        .take(size)
        .read_to_end(&mut content)
        .map_err(|source| Error::io("read", path, source))?;
    Ok(content)
}

/// A folder as it is, or as it will be once what was committed is carried out.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) folder: &'a Folder,
    /// Where files are that are not in place yet: place to name in the committed folder.
    moved: HashMap<String, String>,
    /// Files that are still there.
    removed: HashSet<String>,
    /// Whether what is committed is not to be understood, so that it is what the next changes take the place of.
    pub(crate) is_damaged: bool,
    /// Links that were followed: what is behind them may be changed without this folder.
    links: Mutex<BTreeSet<PathBuf>>,
}

impl<'a> View<'a> {
    /// The folder as it is.
    pub(crate) fn plain(folder: &'a Folder) -> Self {
        Self::after(folder, Journal::default())
    }

    /// The folder after the journal was carried out.
    pub(crate) fn after(folder: &'a Folder, journal: Journal) -> Self {
        Self {
            folder,
            moved: journal
                .rename
                .into_iter()
                .map(|(name, place)| (place, format!("{COMMITTED}/{name}")))
                .collect(),
            removed: journal.remove_files.into_iter().collect(),
            is_damaged: false,
            links: Mutex::default(),
        }
    }

    /// The folder as it is, beside committed changes that are not to be understood.
    pub(crate) fn damaged(folder: &'a Folder) -> Self {
        Self {
            is_damaged: true,
            ..Self::plain(folder)
        }
    }

    /// The links that were followed.
    pub(crate) fn links(&self) -> BTreeSet<PathBuf> {
        std::mem::take(&mut self.links.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn follow(&self, link: &str) {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.insert(self.folder.full(link));
    }

    /// Has a link at `place` count as followed: who asks goes by what is behind it.
    pub(crate) fn follow_if_link(&self, place: &str) -> Result<()> {
        if self.folder.kind(place)?.is_some_and(FileType::is_symlink) {
            self.follow(place);
        }
        Ok(())
    }

    /// Of the level in the sub-folder `level`, to which a link may lead.
    pub(crate) fn stat(&self, level: &str) -> Result<Stat, Errno> {
        let facts = self.folder.stat_itself(level)?;
        if FileType::from_raw_mode(facts.st_mode).is_symlink() {
            self.follow(level);
            return self.folder.stat(level);
        }
        Ok(facts)
    }

    /// Whether something is committed that could not be carried out.
    pub(crate) fn is_pending(&self) -> bool {
        self.is_damaged || !self.moved.is_empty() || !self.removed.is_empty()
    }

    /// What is tried in turn to find `relative`.
    fn places<'b>(&'b self, relative: &'b str) -> impl Iterator<Item = &'b str> {
        let staged = self.moved.get(relative).map(String::as_str);
        let in_place = (staged.is_some() || !self.removed.contains(relative)).then_some(relative);
        staged.into_iter().chain(in_place)
    }

    pub(crate) fn open_file(&self, relative: &str, write: bool) -> Result<File, Errno> {
        let mut found = Err(Errno::NOENT);
        for place in self.places(relative) {
            found = self.folder.open_own_file(place, write);
            if matches!(found, Err(Errno::LOOP)) {
                self.follow(place);
                found = self.folder.open_file(place, write);
            }
            if !matches!(found, Err(Errno::NOENT)) {
                break;
            }
        }
        found
    }

    /// Whether something is at `relative`, be it a link to nowhere.
    pub(crate) fn has(&self, relative: &str) -> Result<bool> {
        for place in self.places(relative) {
            if self.folder.has(place)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
