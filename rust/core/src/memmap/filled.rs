//! Files that replace others when they are complete, and leave nothing behind until then.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode as Permissions, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::{Map, Mode, beside, create_new, from_file, io_error, put, replaceable};
use crate::{Error, Result};

/// Makes the file `path` of the `bytes` bytes that `fill` writes, in the place of the one that is there, and maps it for
/// writing.
///
/// Where the file system has files without names, the file has none until it is complete, so that a process that is
/// killed leaves nothing behind.
///
/// # Errors
/// `fill` fails, or has not written as many bytes, or the system refuses. What was at `path` is as it was then.
pub fn create_filled(path: &Path, bytes: u64, fill: impl FnOnce(&File) -> Result<()>) -> Result<Map> {
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
            .and_then(|()| name(&link, path))
            .map_err(|source| io_error("replace", path, source))?;
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

/// Gives the file that `link` leads to the name `path`, in the place of one that has it.
///
/// Whoever replaces `path` first gives the new file one and the same other name. Two who do so at once may exchange their
/// files, which are complete: it is as if one had come after the other. A file that was left under that name by a process
/// that was killed is removed by the next one.
fn name(link: &Path, path: &Path) -> io::Result<()> {
    const ATTEMPTS: usize = 1000;
    let call = |to: &Path| rustix::fs::linkat(CWD, link, CWD, to, AtFlags::SYMLINK_FOLLOW);
    match call(path) {
        Err(Errno::EXIST) => {}
        done => return Ok(done?),
    }
    let between = between(path);
    for _ in 0..ATTEMPTS {
        match call(&between) {
            Err(Errno::EXIST) => {
                let _ = std::fs::remove_file(&between);
                continue;
            }
            done => done?,
        }
        match std::fs::rename(&between, path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => {
                // Two names of one file are left as they are by a rename.
                let _ = std::fs::remove_file(&between);
                return done;
            }
        }
    }
    Err(io::Error::other("others replace it all the time"))
}

/// The name that a file has for a moment before it replaces `path`.
fn between(path: &Path) -> PathBuf {
    const LONGEST: usize = 240;
    let own = path.file_name().unwrap_or_default().as_bytes();
    let mut name = OsString::from(".");
    if own.len() <= LONGEST {
        name.push(OsStr::from_bytes(own));
    } else {
        let mut hasher = DefaultHasher::new();
        own.hash(&mut hasher);
        name.push(format!("{:016x}", hasher.finish()));
    }
    name.push(".new");
    path.with_file_name(name)
}
