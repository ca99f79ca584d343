//! Changes to a folder that happen as a whole or not at all.
//!
//! A new folder is made complete beside its place and then renamed. A folder that exists gets its new files in
//! [`STAGING`], a folder within it, together with a journal of what is to be renamed and removed; renaming that folder to
//! [`COMMITTED`] is the moment from which the changes count. They are then carried out and the folder goes. Whoever finds
//! a committed folder carries it out, or, where it may not write, reads as if that were done. Whoever finds a staging
//! folder that nobody works on removes it.
//!
//! Writers exclude each other by locking the folder itself; the system frees that lock when a process dies.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode as Permissions, OFlags, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::memmap::Map;
use crate::metadata::is_inside;
use crate::writer::{Source, Write, Writer};
use crate::{Error, Result};

/// Folder of changes that do not count yet.
pub const STAGING: &str = ".tensordict-staging";
/// Folder of changes that count.
pub const COMMITTED: &str = ".tensordict-committed";
/// The journal in either.
const JOURNAL: &str = "journal.json";
/// Longest name of a file on the usual file systems.
const LONGEST_NAME: usize = 255;

/// Changes to one folder.
#[derive(Debug, Default)]
pub(crate) struct Changes<'a> {
    /// Folders that must exist, parents first.
    pub(crate) folders: Vec<String>,
    pub(crate) writes: Vec<Write<'a>>,
    pub(crate) removed_files: Vec<String>,
    /// Folders that go if nothing else is in them, the deepest first.
    pub(crate) removed_folders: Vec<String>,
}

/// What is to be done once it is committed. Doing any part of it twice does no harm.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Journal {
    remove_files: Vec<String>,
    remove_folders: Vec<String>,
    make_folders: Vec<String>,
    /// Name in the committed folder and place in the folder.
    rename: Vec<(String, String)>,
}

impl Journal {
    /// Whether everything it names lies within the folder.
    fn is_safe(&self) -> bool {
        let places = self.rename.iter().map(|(_, place)| place);
        let names = self.rename.iter().map(|(name, _)| name);
        [&self.remove_files, &self.remove_folders, &self.make_folders]
            .into_iter()
            .flatten()
            .chain(places)
            .all(|path| is_inside(path))
            && names
                .into_iter()
                .all(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder {
    fd: OwnedFd,
    pub(crate) path: PathBuf,
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Files that are elsewhere until a committed change is carried out: place in the folder to place of the new file.
pub(crate) type Redirects = HashMap<String, String>;

impl Folder {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Permissions::empty())
            .map_err(|errno| Error::io("open", path, errno))?;
        Ok(Self {
            fd,
            path: path.into(),
        })
    }

    /// Opens the folder and locks it against other writers, waiting for them.
    pub(crate) fn lock(path: &Path) -> Result<Self> {
        loop {
            let folder = Self::open(path)?;
            folder.acquire(FlockOperation::LockExclusive)?;
            if folder.is_at(path) {
                return Ok(folder);
            }
        }
    }

    /// Whether the lock was acquired.
    fn acquire(&self, operation: FlockOperation) -> Result<bool> {
        match rustix::io::retry_on_intr(|| rustix::fs::flock(&self.fd, operation)) {
            // File systems without locks: then nothing keeps two writers apart, as without this crate.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::BADF | Errno::NOSYS) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(Error::io("lock", &self.path, errno)),
        }
    }

    /// Whether this folder is what `path` names now.
    fn is_at(&self, path: &Path) -> bool {
        let same = |(one, other): (rustix::fs::Stat, rustix::fs::Stat)| {
            (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
        };
        rustix::fs::fstat(&self.fd)
            .and_then(|one| Ok((one, rustix::fs::stat(path)?)))
            .is_ok_and(same)
    }

    pub(crate) fn full(&self, relative: &str) -> PathBuf {
        if relative.is_empty() {
            self.path.clone()
        } else {
            self.path.join(relative)
        }
    }

    pub(crate) fn has(&self, relative: &str) -> bool {
        rustix::fs::accessat(&self.fd, relative, rustix::fs::Access::EXISTS, AtFlags::empty()).is_ok()
    }

    /// Opens a file for reading, and for writing too where `write` is set.
    pub(crate) fn open_file(&self, relative: &str, write: bool) -> Result<File, Errno> {
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        // A named pipe in place of a file would otherwise block for ever.
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
        rustix::io::retry_on_intr(|| rustix::fs::openat(&self.fd, relative, flags, Permissions::empty()))
            .map(File::from)
    }

    pub(crate) fn stat(&self, relative: &str) -> Result<rustix::fs::Stat, Errno> {
        rustix::fs::statat(&self.fd, relative, AtFlags::empty())
    }

    fn sync(&self) -> Result<()> {
        rustix::fs::fsync(&self.fd).map_err(|errno| Error::io("flush", &self.path, errno))
    }

    /// Carries out what was committed and removes what nobody works on. The folder must be locked.
    pub(crate) fn recover(&self) -> Result<()> {
        if self.has(COMMITTED) {
            self.carry_out(&self.journal()?)?;
        }
        if self.has(STAGING) {
            let staging = self.full(STAGING);
            std::fs::remove_dir_all(&staging).map_err(|source| Error::io("remove", staging, source))?;
        }
        Ok(())
    }

    /// The journal of the committed changes; an empty one where it is gone, as it goes last.
    fn journal(&self) -> Result<Journal> {
        let relative = format!("{COMMITTED}/{JOURNAL}");
        let path = self.full(&relative);
        let mut text = Vec::new();
        match self.open_file(&relative, false) {
            Ok(mut file) => file
                .read_to_end(&mut text)
                .map_err(|source| Error::io("read", &path, source))?,
            Err(Errno::NOENT) => return Ok(Journal::default()),
            Err(errno) => return Err(Error::io("open", path, errno)),
        };
        let journal: Journal = serde_json::from_slice(&text).map_err(|source| Error::Json {
            path: path.clone(),
            source,
        })?;
        if journal.is_safe() {
            Ok(journal)
        } else {
            Err(Error::Metadata {
                path,
                field: "rename".into(),
                wanted: "places within the folder",
                found: "a place outside".into(),
            })
        }
    }

    fn carry_out(&self, journal: &Journal) -> Result<()> {
        self.refuse_links(journal)?;
        for file in &journal.remove_files {
            self.done(
                "remove",
                file,
                rustix::fs::unlinkat(&self.fd, file, AtFlags::empty()),
                &[Errno::NOENT, Errno::NOTDIR],
            )?;
        }
        for folder in &journal.remove_folders {
            let kept = [Errno::NOENT, Errno::NOTEMPTY, Errno::EXIST, Errno::NOTDIR];
            self.done(
                "remove",
                folder,
                rustix::fs::unlinkat(&self.fd, folder, AtFlags::REMOVEDIR),
                &kept,
            )?;
        }
        for folder in &journal.make_folders {
            let made = rustix::fs::mkdirat(&self.fd, folder, Permissions::from_raw_mode(0o777));
            self.done("create", folder, made, &[Errno::EXIST])?;
        }
        for (name, place) in &journal.rename {
            let staged = format!("{COMMITTED}/{name}");
            match self.put(&staged, place) {
                // It was renamed before whoever carried this out was stopped.
                Err(Errno::NOENT) if self.has(place) => {}
                done => self.done("replace", place, done, &[])?,
            }
        }
        // From here on it is rubbish again, which goes at once or with the next writer.
        let renamed = rustix::fs::renameat(&self.fd, COMMITTED, &self.fd, STAGING);
        self.done("remove", COMMITTED, renamed, &[])?;
        let staging = self.full(STAGING);
        std::fs::remove_dir_all(&staging).map_err(|source| Error::io("remove", staging, source))
    }

    /// Renames a file, also to a place that is taken. What is there is removed first: some file systems (ext4) write a
    /// file to the disk when it is renamed onto another, which takes a hundred times as long.
    fn put(&self, staged: &str, place: &str) -> Result<(), Errno> {
        match rustix::fs::renameat_with(&self.fd, staged, &self.fd, place, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => match rustix::fs::unlinkat(&self.fd, place, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => rustix::fs::renameat(&self.fd, staged, &self.fd, place),
                refused => refused,
            },
            Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(&self.fd, staged, &self.fd, place),
            done => done,
        }
    }

    /// The result of a system call on `relative`, with the errors in `fine` as success.
    fn done(
        &self,
        action: &'static str,
        relative: &str,
        result: Result<(), Errno>,
        fine: &[Errno],
    ) -> Result<()> {
        match result {
            Err(errno) if !fine.contains(&errno) => Err(Error::io(action, self.full(relative), errno)),
            _ => Ok(()),
        }
    }

    /// A folder that is a link could lead a journal that came with a data set to places outside of it.
    fn refuse_links(&self, journal: &Journal) -> Result<()> {
        let parents: std::collections::BTreeSet<&str> = journal
            .rename
            .iter()
            .map(|(_, place)| place)
            .chain(&journal.remove_files)
            .chain(&journal.remove_folders)
            .chain(&journal.make_folders)
            .flat_map(|path| path.match_indices('/').map(|(end, _)| &path[..end]))
            .chain([COMMITTED])
            .collect();
        for parent in parents {
            let link = rustix::fs::statat(&self.fd, parent, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|facts| rustix::fs::FileType::from_raw_mode(facts.st_mode).is_symlink());
            if link {
                return Err(Error::LinkedFolder {
                    path: self.full(parent),
                });
            }
        }
        Ok(())
    }

    /// Whether a change is under way or was interrupted.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.has(COMMITTED) || self.has(STAGING)
    }

    /// Finishes what was interrupted, as far as this process may write; what it may not finish is returned as
    /// redirects.
    pub(crate) fn settle(&self) -> Result<Redirects> {
        if !self.is_unsettled() {
            return Ok(Redirects::new());
        }
        let committed = self.has(COMMITTED);
        // A writer that is staging may take long, and the folder is as it was; one that has committed is nearly done.
        let operation = if committed {
            FlockOperation::LockExclusive
        } else {
            FlockOperation::NonBlockingLockExclusive
        };
        let locked = Self::open(&self.path)?;
        if !locked.acquire(operation)? {
            return Ok(Redirects::new());
        }
        match locked.recover() {
            Err(Error::Io { source, .. }) if is_read_only(&source) => {}
            done => return done.map(|()| Redirects::new()),
        }
        let redirects = self.journal()?.rename.into_iter();
        Ok(redirects
            .map(|(name, place)| (place, format!("{COMMITTED}/{name}")))
            .filter(|(_, staged)| self.has(staged))
            .collect())
    }

    /// Makes the changes. The folder must be locked and recovered. The maps are in the order of the writes.
    pub(crate) fn change(&self, changes: Changes<'_>, durable: bool) -> Result<Vec<Option<Map>>> {
        rustix::fs::mkdirat(&self.fd, STAGING, Permissions::from_raw_mode(0o777))
            .map_err(|errno| Error::io("write in", &self.path, errno))?;
        let staged = self.stage(changes, durable);
        let (journal, maps) = staged.inspect_err(|_| {
            // The error at hand is the one to tell; what cannot be removed now goes with the next writer.
            let _ = std::fs::remove_dir_all(self.full(STAGING));
        })?;
        rustix::fs::renameat(&self.fd, STAGING, &self.fd, COMMITTED)
            .map_err(|errno| Error::io("write in", &self.path, errno))?;
        if durable {
            self.sync()?;
        }
        self.carry_out(&journal)?;
        if durable {
            self.sync()?;
        }
        Ok(maps)
    }

    fn stage(&self, changes: Changes<'_>, durable: bool) -> Result<(Journal, Vec<Option<Map>>)> {
        let staging = Self::open(&self.full(STAGING))?;
        let writer = |folder, root| Writer {
            folder,
            root,
            durable,
        };
        let names: Vec<String> = (0..changes.writes.len())
            .map(|number| number.to_string())
            .collect();
        let maps = writer(&staging, &self.path).write_all(&names, &changes.writes)?;
        let places = changes.writes.into_iter().map(|write| write.target);
        let journal = Journal {
            remove_files: changes.removed_files,
            remove_folders: changes.removed_folders,
            make_folders: changes.folders,
            rename: names.into_iter().zip(places).collect(),
        };
        self.check_places(&journal)?;
        let path = self.full(STAGING).join(JOURNAL);
        let text = serde_json::to_vec(&journal).map_err(|source| Error::Json {
            path: path.clone(),
            source,
        })?;
        let write = Write {
            target: JOURNAL.into(),
            source: Source::Owned(text),
            map: false,
            key: Vec::new(),
        };
        writer(&staging, &staging.path).write(&[JOURNAL.to_owned()], &[write])?;
        if durable {
            staging.sync()?;
        }
        Ok((journal, maps))
    }

    /// Checks before the commit that what follows it can be done: no place is a folder, and each folder is one.
    fn check_places(&self, journal: &Journal) -> Result<()> {
        self.refuse_links(journal)?;
        let device = rustix::fs::fstat(&self.fd)
            .map_err(|errno| Error::io("open", &self.path, errno))?
            .st_dev;
        let removed = |list: &[String], path: &str| list.iter().any(|other| other == path);
        for folder in &journal.make_folders {
            if let Ok(facts) = self.stat(folder) {
                let is_folder = rustix::fs::FileType::from_raw_mode(facts.st_mode).is_dir();
                if !is_folder && !removed(&journal.remove_files, folder) {
                    return Err(Error::io("create", self.full(folder), Errno::EXIST));
                }
                if is_folder && facts.st_dev != device {
                    return Err(Error::io("write in", self.full(folder), Errno::XDEV));
                }
            }
        }
        for (_, place) in &journal.rename {
            let is_folder = rustix::fs::statat(&self.fd, place, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|facts| rustix::fs::FileType::from_raw_mode(facts.st_mode).is_dir());
            if is_folder {
                return Err(Error::io("replace", self.full(place), Errno::ISDIR));
            }
        }
        Ok(())
    }
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
    )
}

/// Name of the folder beside `path` in which a new `path` is made.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut name = format!(".{name}");
    while name.len() + STAGING.len() > LONGEST_NAME {
        name.pop();
    }
    path.with_file_name(name + STAGING)
}

/// Makes the folder `path`, which does not exist, with all its files. None where another writer was faster.
pub(crate) fn create(path: &Path, changes: &Changes<'_>, durable: bool) -> Result<Option<Vec<Option<Map>>>> {
    let made = make_parents(path)?;
    let done = create_in_parent(path, changes, durable);
    if done.is_err() {
        for parent in made.iter().rev() {
            // What is no longer empty has got another user meanwhile.
            let _ = std::fs::remove_dir(parent);
        }
    }
    done
}

fn create_in_parent(path: &Path, changes: &Changes<'_>, durable: bool) -> Result<Option<Vec<Option<Map>>>> {
    let beside = beside(path);
    match std::fs::create_dir(&beside) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::io("create", path, source));
        }
        _ => {}
    }
    let folder = match Folder::lock(&beside) {
        // The writer that had the lock renamed or removed the folder.
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
        folder => folder?,
    };
    if path.symlink_metadata().is_ok() {
        let _ = std::fs::remove_dir_all(&beside);
        return Ok(None);
    }
    let done = fill(&folder, path, changes, durable).and_then(|maps| {
        rustix::fs::rename(&beside, path).map_err(|errno| Error::io("create", path, errno))?;
        Ok(Some(maps))
    });
    if done.is_err() {
        let _ = std::fs::remove_dir_all(&beside);
    }
    if durable && let Some(parent) = path.parent().filter(|parent| parent.is_dir()) {
        Folder::open(parent)?.sync()?;
    }
    done
}

/// Puts all files into the new `folder`, after what a killed writer left there is gone.
fn fill(folder: &Folder, path: &Path, changes: &Changes<'_>, durable: bool) -> Result<Vec<Option<Map>>> {
    let empty = || -> io::Result<()> {
        for item in std::fs::read_dir(&folder.path)? {
            let item = item?;
            if item.file_type()?.is_dir() {
                std::fs::remove_dir_all(item.path())?;
            } else {
                std::fs::remove_file(item.path())?;
            }
        }
        Ok(())
    };
    empty().map_err(|source| Error::io("remove", &folder.path, source))?;
    for name in &changes.folders {
        rustix::fs::mkdirat(folder, name, Permissions::from_raw_mode(0o777))
            .map_err(|errno| Error::io("create", path.join(name), errno))?;
    }
    let names: Vec<String> = changes.writes.iter().map(|write| write.target.clone()).collect();
    let writer = Writer {
        folder,
        root: path,
        durable,
    };
    let maps = writer.write_all(&names, &changes.writes)?;
    if durable {
        for name in &changes.folders {
            Folder::open(&folder.full(name))?.sync()?;
        }
        folder.sync()?;
    }
    Ok(maps)
}

/// Makes the folders above `path` and returns those that were not there, from the top.
fn make_parents(path: &Path) -> Result<Vec<PathBuf>> {
    let mut missing: Vec<PathBuf> = path
        .ancestors()
        .skip(1)
        .take_while(|parent| !parent.as_os_str().is_empty() && !parent.exists())
        .map(Path::to_path_buf)
        .collect();
    missing.reverse();
    for parent in &missing {
        match std::fs::create_dir(parent) {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("create", parent, source));
            }
            _ => {}
        }
    }
    Ok(missing)
}

/// Removes what a killed writer left beside `path`, which does not exist. Nothing is told of a failure: the caller is
/// about to tell that there is no folder.
pub(crate) fn clean_beside(path: &Path) {
    let beside = beside(path);
    if let Ok(folder) = Folder::open(&beside)
        && folder
            .acquire(FlockOperation::NonBlockingLockExclusive)
            .unwrap_or(false)
        && folder.is_at(&beside)
    {
        let _ = std::fs::remove_dir_all(&beside);
    }
}

/// Finishes what was interrupted in the folders above `path`, of which it is a level.
pub(crate) fn settle_above(path: &Path) -> Result<()> {
    let Ok(path) = path.canonicalize() else {
        return Ok(());
    };
    let levels = path
        .ancestors()
        .skip(1)
        .take_while(|parent| parent.join(crate::metadata::META).exists() || parent.join(COMMITTED).exists());
    for parent in levels {
        Folder::open(parent)?.settle()?;
    }
    Ok(())
}
