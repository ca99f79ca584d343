//! A folder that does not exist yet: it is made complete beside its place, and then renamed.

use std::io;
use std::path::{Path, PathBuf};

use crate::folder::{Folder, Locked, check_descriptors, there};
use crate::journal::STAGING;
use crate::memmap::Map;
use crate::transaction::Changes;
use crate::writer::Writer;
use crate::{Error, Result};

/// Longest name of a file on the usual file systems.
const LONGEST_NAME: usize = 255;

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
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with('.') && name.ends_with(STAGING) {
        return Err(Error::UnsafeName {
            key: path.display().to_string(),
            name: name.into_owned(),
        });
    }
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
    check_descriptors()?;
    match std::fs::create_dir(&beside) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::io("create", path, source));
        }
        // What is no folder is in the way; a link could lead to somebody else's, which would be emptied next.
        Err(_) if beside.symlink_metadata().is_ok_and(|facts| !facts.is_dir()) => {
            std::fs::remove_file(&beside).map_err(|source| Error::io("remove", beside, source))?;
            return Ok(None);
        }
        _ => {}
    }
    let folder = match Locked::wait(&beside) {
        // The writer that had the lock renamed or removed the folder.
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
        folder => folder?,
    };
    let look = || {
        let itself = there(rustix::fs::lstat(path), || path.into())?;
        let behind = there(rustix::fs::stat(path), || path.into())?;
        Ok::<_, Error>((itself.is_some(), behind.is_some()))
    };
    let found = look();
    if !matches!(found, Ok((false, _))) {
        let _ = std::fs::remove_dir_all(&beside);
    }
    match found? {
        (false, _) => {}
        (true, true) => return Ok(None),
        // A link to nowhere would be found again and again.
        (true, false) => return Err(Error::LinkedFolder { path: path.into() }),
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
        folder
            .make_folder(name)
            .map_err(|errno| Error::io("create", path.join(name), errno))?;
    }
    let names: Vec<String> = changes.writes.iter().map(|write| write.target.clone()).collect();
    let writer = Writer {
        folder,
        root: path,
        durable,
        stayed: changes.stayed,
    };
    let maps = writer.write_all(&names, &changes.writes)?;
    if durable {
        for name in &changes.folders {
            folder.sync_below(name)?;
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
        .take_while(|parent| !parent.as_os_str().is_empty() && parent.symlink_metadata().is_err())
        .map(Path::to_path_buf)
        .collect();
    let top = path.ancestors().nth(missing.len() + 1);
    let is_link = |top: &&Path| top.symlink_metadata().is_ok_and(|facts| facts.is_symlink());
    if let Some(top) = top.filter(is_link)
        && there(rustix::fs::stat(top), || top.into())?.is_none()
    {
        return Err(Error::LinkedFolder { path: top.into() });
    }
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
    let is_folder = beside.symlink_metadata().is_ok_and(|facts| facts.is_dir());
    if is_folder && let Ok(Some(_locked)) = Locked::at_once(&beside) {
        let _ = std::fs::remove_dir_all(&beside);
    }
}
