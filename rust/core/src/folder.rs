//! Open folders, and the locks that writers hold on them.

use std::fs::File;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode as Permissions, OFlags};
use rustix::io::Errno;

use crate::{Error, Result};

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

impl Folder {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, Permissions::empty()))
            .map_err(|errno| Error::io("open", path, errno))?;
        Ok(Self {
            fd,
            path: path.into(),
        })
    }

    /// Whether this folder is what `path` names now.
    ///
    /// # Errors
    /// The system does not say.
    pub(crate) fn is_at(&self, path: &Path) -> Result<bool> {
        let own = rustix::fs::fstat(&self.fd).map_err(|errno| Error::io("look at", &self.path, errno))?;
        let there = there(rustix::fs::stat(path), || path.into())?;
        Ok(there.is_some_and(|there| (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)))
    }

    pub(crate) fn full(&self, relative: &str) -> PathBuf {
        if relative.is_empty() {
            self.path.clone()
        } else {
            self.path.join(relative)
        }
    }

    /// Whether something is at `relative`, be it a link to nowhere.
    pub(crate) fn has(&self, relative: &str) -> Result<bool> {
        Ok(self.kind(relative)?.is_some())
    }

    /// Checks that entries of the sub-folder `relative` may be made and removed by this process.
    pub(crate) fn check_change(&self, relative: &str) -> Result<()> {
        let wanted = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        let place = if relative.is_empty() { "." } else { relative };
        match rustix::fs::accessat(&self.fd, place, wanted, AtFlags::EACCESS) {
            // A system without the question for the effective user: what is refused shows when it is done.
            Ok(()) | Err(Errno::INVAL | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(Error::io("write in", self.full(relative), errno)),
        }
    }

    /// Opens a file for reading, and for writing too where `write` is set.
    pub(crate) fn open_file(&self, relative: &str, write: bool) -> Result<File, Errno> {
        self.open_as(relative, write, OFlags::empty())
    }

    /// The same, where a link in place of the file is an error.
    pub(crate) fn open_own_file(&self, relative: &str, write: bool) -> Result<File, Errno> {
        self.open_as(relative, write, OFlags::NOFOLLOW)
    }

    fn open_as(&self, relative: &str, write: bool, more: OFlags) -> Result<File, Errno> {
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY } | more;
        // A named pipe in place of a file would otherwise block for ever.
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
        rustix::io::retry_on_intr(|| rustix::fs::openat(&self.fd, relative, flags, Permissions::empty()))
            .map(File::from)
    }

    pub(crate) fn stat(&self, relative: &str) -> Result<rustix::fs::Stat, Errno> {
        rustix::fs::statat(&self.fd, relative, AtFlags::empty())
    }

    /// Of what is at `relative` itself, be it a link or not.
    pub(crate) fn stat_itself(&self, relative: &str) -> Result<rustix::fs::Stat, Errno> {
        let place = if relative.is_empty() { "." } else { relative };
        rustix::fs::statat(&self.fd, place, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// What the system found at `relative`; none where it says that nothing is there.
    pub(crate) fn there<T>(&self, relative: &str, found: Result<T, Errno>) -> Result<Option<T>> {
        there(found, || self.full(relative))
    }

    /// What is at `relative` itself, be it a link or not; none where nothing is.
    pub(crate) fn facts(&self, relative: &str) -> Result<Option<rustix::fs::Stat>> {
        self.there(relative, self.stat_itself(relative))
    }

    /// The kind of what is at `relative` itself, be it a link or not; none where nothing is.
    pub(crate) fn kind(&self, relative: &str) -> Result<Option<FileType>> {
        Ok(self
            .facts(relative)?
            .map(|facts| FileType::from_raw_mode(facts.st_mode)))
    }

    /// Names of what is in the folder `relative`.
    pub(crate) fn names(&self, relative: &str) -> Result<Vec<String>> {
        let path = self.full(relative);
        let fail = |source| Error::io("read", &path, source);
        std::fs::read_dir(&path)
            .map_err(fail)?
            .map(|item| Ok(item.map_err(fail)?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    pub(crate) fn is_folder(&self, relative: &str) -> Result<bool> {
        Ok(self.kind(relative)?.is_some_and(FileType::is_dir))
    }

    /// Makes the folder `relative`; one that is there is an error of the system.
    pub(crate) fn make_folder(&self, relative: &str) -> Result<(), Errno> {
        rustix::fs::mkdirat(&self.fd, relative, Permissions::from_raw_mode(0o777))
    }

    /// Removes a file.
    pub(crate) fn unlink(&self, relative: &str) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.fd, relative, AtFlags::empty())
    }

    /// Removes an empty folder.
    pub(crate) fn remove_folder(&self, relative: &str) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.fd, relative, AtFlags::REMOVEDIR)
    }

    pub(crate) fn rename(&self, old: &str, new: &str) -> Result<(), Errno> {
        rustix::fs::renameat(&self.fd, old, &self.fd, new)
    }

    /// Removes a folder with all that is in it, or what else is at `relative`.
    pub(crate) fn remove_all(&self, relative: &str) -> Result<()> {
        let path = self.full(relative);
        if self.is_folder(relative)? {
            std::fs::remove_dir_all(&path)
        } else {
            std::fs::remove_file(&path)
        }
        .map_err(|source| Error::io("remove", path, source))
    }

    pub(crate) fn sync(&self) -> Result<()> {
        rustix::fs::fsync(&self.fd).map_err(|errno| Error::io("flush", &self.path, errno))
    }

    /// Flushes the sub-folder `relative`, that is which entries it has.
    pub(crate) fn sync_below(&self, relative: &str) -> Result<()> {
        if relative.is_empty() {
            self.sync()
        } else {
            Self::open(&self.full(relative))?.sync()
        }
    }
}

/// Whether the system says by an error that nothing is there. A name that is too long is the name of nothing. Any other error
/// says nothing of what is there.
pub(crate) fn is_absent(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG)
}

/// What the standard library says, by the number of the system.
pub(crate) fn of_the_system<T>(found: std::io::Result<T>) -> Result<T, Errno> {
    found.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// What the system found at a path; none where it says that nothing is there.
pub(crate) fn there<T>(found: Result<T, Errno>, path: impl FnOnce() -> PathBuf) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(errno) if is_absent(errno) => Ok(None),
        Err(errno) => Err(Error::io("look at", path(), errno)),
    }
}

/// Number of descriptors that a change has open at once, however few it does with.
const SPARE: usize = 4;

/// Checks that there are a few descriptors, before anything is changed: without one a change could neither be made nor taken
/// back.
pub(crate) fn check_descriptors() -> Result<()> {
    let open = || rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Permissions::empty());
    let found: Result<Vec<OwnedFd>, Errno> = std::iter::repeat_with(open).take(SPARE).collect();
    found.map(drop).map_err(|errno| Error::io("open", "/", errno))
}

/// Descriptors of the locks that this process holds; -1 where there is none. A slot is written without waiting for anyone,
/// so that a fork cannot catch it half done.
static HELD: [AtomicI32; 64] = [const { AtomicI32::new(-1) }; 64];

/// The descriptors of locks that were held when this process was forked, to be closed in it: the lock of a parent that dies
/// would else last as long as the child. To be called in the child before anything else, once.
#[must_use]
pub fn inherited_locks() -> Vec<RawFd> {
    HELD.iter()
        .map(|slot| slot.swap(-1, Ordering::SeqCst))
        .filter(|descriptor| *descriptor >= 0)
        .collect()
}

/// A folder that is locked against other writers until this is dropped.
///
/// The lock is one of the system (`flock`): it ends with the process that holds it. Waiting for it may take as long as another
/// writer needs, so it is never asked for on a thread of the pool.
#[derive(Debug)]
pub(crate) struct Locked {
    folder: Folder,
    slot: Option<&'static AtomicI32>,
}

impl Deref for Locked {
    type Target = Folder;

    fn deref(&self) -> &Folder {
        &self.folder
    }
}

impl Locked {
    /// Opens the folder and locks it, waiting for other writers. A signal ends that with [`std::io::ErrorKind::Interrupted`],
    /// before anything was done, so that a program can be stopped while it waits.
    pub(crate) fn wait(path: &Path) -> Result<Self> {
        loop {
            let locked = Self::open(path)?;
            locked.acquire(FlockOperation::LockExclusive)?;
            if locked.is_at(path)? {
                return Ok(locked);
            }
        }
    }

    /// Opens the folder and locks it, unless another writer has the lock.
    pub(crate) fn at_once(path: &Path) -> Result<Option<Self>> {
        let locked = Self::open(path)?;
        let free = locked.acquire(FlockOperation::NonBlockingLockExclusive)?;
        Ok((free && locked.is_at(path)?).then_some(locked))
    }

    fn open(path: &Path) -> Result<Self> {
        let folder = Folder::open(path)?;
        let descriptor = folder.fd.as_raw_fd();
        // Where more locks are held than there are slots, a child keeps the rest.
        let slot = HELD.iter().find(|slot| {
            slot.compare_exchange(-1, descriptor, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        });
        Ok(Self { folder, slot })
    }

    /// Whether the lock was acquired.
    fn acquire(&self, operation: FlockOperation) -> Result<bool> {
        match rustix::fs::flock(&self.folder, operation) {
            // File systems without locks: then nothing keeps two writers apart, as without this crate.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::BADF | Errno::NOSYS) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(Error::io("lock", &self.path, errno)),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing would do, were there no child that has the descriptor too. A file system without locks refuses, which is
        // fine.
        let _ = rustix::fs::flock(&self.folder, FlockOperation::Unlock);
        if let Some(slot) = self.slot {
            slot.store(-1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_looked_at_is_neither_there_nor_away() {
        let top = tempfile::tempdir().unwrap();
        let folder = Folder::open(top.path()).unwrap();
        std::os::unix::fs::symlink("loop", top.path().join("loop")).unwrap();
        std::os::unix::fs::symlink("nowhere", top.path().join("link")).unwrap();
        std::fs::write(top.path().join("file"), "").unwrap();
        let long = "x".repeat(256);
        for (place, there) in [
            ("file", true),
            ("link", true),
            ("loop", true),
            ("other", false),
            ("file/in", false),
            ("link/in", false),
            (&long, false),
        ] {
            assert_eq!(folder.has(place).unwrap(), there, "{place}");
        }
        for place in ["loop/in", "loop/in/deeper"] {
            let said = folder.has(place).unwrap_err();
            assert!(said.is_of_the_system(), "{said}");
            assert!(matches!(said, Error::Io { path, .. } if path == top.path().join(place)));
            assert!(folder.kind(place).is_err() && folder.is_folder(place).is_err());
        }
        assert!(folder.is_at(top.path()).unwrap());
        assert!(!folder.is_at(&top.path().join("other")).unwrap());
        assert!(!folder.is_at(Path::new("/")).unwrap());
        assert!(folder.is_at(&top.path().join("loop")).is_err());
    }

    #[test]
    fn a_lock_ends_when_it_is_dropped_though_a_copy_of_its_descriptor_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let locked = Locked::wait(folder.path()).unwrap();
        let copy = locked.fd.try_clone().unwrap();
        assert!(Locked::at_once(folder.path()).unwrap().is_none());
        drop(locked);
        assert!(Locked::at_once(folder.path()).unwrap().is_some());
        drop(copy);
    }
}
