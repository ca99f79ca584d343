//! Files that replace others when they are complete, and leave nothing behind until then.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode as Permissions, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::{FileId, Map, Mode, Space, beside, create_new, from_file, io_error, put, replaceable};
use crate::{Error, Result};

/// How the names end that files have for a moment before they replace others. Users have no such files.
const NEW: &str = ".tensordict-new";

/// How often, a millisecond apart, a file gets the name by which it replaces another while others have it.
const ATTEMPTS: usize = 10_000;

/// Makes the file `path` of `bytes` bytes, which `fill` writes into its map, and maps it for writing. The file has its name only
/// then. One that is there is replaced, or an error unless `existsok`.
///
/// # Errors
/// As [`create_filled`], and the file is there.
pub fn create_mapped(
    path: &Path,
    bytes: u64,
    existsok: bool,
    fill: impl FnOnce(Map) -> Result<()>,
) -> Result<Map> {
    if !existsok && path.symlink_metadata().is_ok() {
        return Err(Error::Exists { path: path.into() });
    }
    create_filled(path, bytes, |file| {
        Space::Reserved.take(file, path, bytes)?;
        fill(from_file(file, path, bytes, Mode::ReadWrite)?)
    })
}

/// Makes the file `path` of the `bytes` bytes that `fill` writes, in the place of the one that is there, and maps it for
/// writing.
///
/// Where the file system has files without names, the file has none until it is complete, so that a process that is
/// killed leaves nothing behind.
///
/// # Errors
/// `fill` fails, or has not written as many bytes, the name is one of those that files have before they replace others, or the
/// system refuses. What was at `path` is as it was then.
pub fn create_filled(path: &Path, bytes: u64, fill: impl FnOnce(&File) -> Result<()>) -> Result<Map> {
    let own = path.file_name().unwrap_or_default().as_bytes();
    if own.starts_with(b".") && own.ends_with(NEW.as_bytes()) {
        return Err(Error::UnsafeName {
            key: path.display().to_string(),
            name: String::from_utf8_lossy(own).into_owned(),
        });
    }
    let permissions = match replaceable(path) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
        found => Some(found?),
    };
    let write = |file: &File| {
        fill(file)?;
        from_file(file, path, bytes, Mode::ReadWrite)
    };
    if let Some((file, link)) = unnamed(path) {
        let map = write(&file)?;
        permissions
            .map_or(Ok(()), |permissions| file.set_permissions(permissions))
            .map_err(|source| io_error("replace", path, source))?;
        name(&file, &link, path)?;
        return Ok(map);
    }
    let beside = beside(path);
    let map = create_new(&beside, path, write)?;
    put(&beside, path, permissions)?;
    Ok(map)
}

/// A new file without a name in the folder of `path`, and a path that leads to it. `None` where the system has no such
/// files, or refuses: a file with a name then says why.
fn unnamed(path: &Path) -> Option<(File, PathBuf)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let open = || rustix::fs::open(folder, flags, Permissions::from_raw_mode(0o666));
    let file = File::from(retry_on_intr(open).ok()?);
    let link = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    // Without this folder the file could never get a name.
    std::fs::read_link(&link).ok()?;
    Some((file, link))
}

/// Gives the new `file`, to which `link` leads, the name `path`, in the place of one that has it.
///
/// Whoever replaces `path` first gives the new file one and the same other name, and holds a lock on the file meanwhile. A file
/// that is found under that name without a lock was left by a process that was killed, and goes. What else has it stays.
fn name(file: &File, link: &Path, path: &Path) -> Result<()> {
    let refused = |source: io::Error| io_error("replace", path, source);
    let call = |to: &Path| rustix::fs::linkat(CWD, link, CWD, to, AtFlags::SYMLINK_FOLLOW);
    match call(path) {
        Err(Errno::EXIST) => {}
        done => return done.map_err(|errno| refused(errno.into())),
    }
    let between = between(path);
    lock(file, FlockOperation::NonBlockingLockExclusive);
    let mut done = call(&between);
    for _ in 0..ATTEMPTS {
        match done {
            Err(Errno::EXIST) if is_left(&between)? => {
                let _ = std::fs::remove_file(&between);
            }
            Err(Errno::EXIST) => std::thread::sleep(Duration::from_millis(1)),
            _ => break,
        }
        done = call(&between);
    }
    let done = done.map_err(io::Error::from).and_then(|()| {
        std::fs::rename(&between, path).inspect_err(|_| {
            let _ = std::fs::remove_file(&between);
        })
    });
    // Maps of the file would keep the lock.
    lock(file, FlockOperation::Unlock);
    done.map_err(refused)
}

/// Whether the lock could be had; also where the file system has none.
fn lock(file: &File, operation: FlockOperation) -> bool {
    !matches!(rustix::fs::flock(file, operation), Err(Errno::WOULDBLOCK))
}

/// Whether nobody is at work with the file that is at `between`. An error where that is no file.
fn is_left(between: &Path) -> Result<bool> {
    if between.symlink_metadata().is_ok_and(|facts| !facts.is_file()) {
        return Err(Error::NotAFile { path: between.into() });
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(found) = rustix::fs::open(between, flags, Permissions::empty()).map(File::from) else {
        // It is gone, or one that this process may not open: then it stays, and the link says why.
        return Ok(false);
    };
    let is_there = || FileId::at(between) == rustix::fs::fstat(&found).ok().map(|facts| FileId::of(&facts));
    Ok(lock(&found, FlockOperation::NonBlockingLockExclusive) && is_there())
}

/// The name that a file has for a moment before it replaces `path`.
fn between(path: &Path) -> PathBuf {
    const LONGEST: usize = 239;
    let own = path.file_name().unwrap_or_default().as_bytes();
    let mut name = OsString::from(".");
    if own.len() <= LONGEST {
        name.push(OsStr::from_bytes(own));
    } else {
        let mut hasher = DefaultHasher::new();
        own.hash(&mut hasher);
        name.push(format!("{:016x}", hasher.finish()));
    }
    name.push(NEW);
    path.with_file_name(name)
}
