//! When the space of a file that is made empty is taken.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::FallocateFlags;
use rustix::io::{Errno, retry_on_intr};

use super::{io_error, too_large};
use crate::{Error, Result};

/// When the space of a file of zeros, or of memory without a file, is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Space {
    /// When it is made: where there is not enough that is an error.
    #[default]
    Reserved,
    /// As it is written to. It may be larger than what is there; a write through a map for which there is no space then ends
    /// the process with a signal.
    Sparse,
}

impl Space {
    /// Makes the empty `file` hold `bytes` zero bytes; `path` is what errors name.
    ///
    /// # Errors
    /// There is no space, or the size is beyond what a file or the address space can have.
    pub fn take(self, file: &File, path: &Path, bytes: u64) -> Result<()> {
        match self {
            Self::Reserved => reserve(file, path, bytes),
            Self::Sparse => {
                check_size(path, bytes)?;
                file.set_len(bytes)
                    .map_err(|source| io_error("set the size of", path, source))
            }
        }
    }
}

/// How much space is asked for without looking whether it is there.
const WORTH_ASKING: u64 = 64 << 20;

/// Bytes that are free where a file is, as far as the system says.
fn free(file: &File) -> Option<u64> {
    let facts = rustix::fs::fstatvfs(file).ok()?;
    (facts.f_blocks > 0).then(|| facts.f_bfree.saturating_mul(facts.f_frsize))
}

fn check_size(path: &Path, bytes: u64) -> Result<()> {
    if i64::try_from(bytes).is_err() || isize::try_from(bytes).is_err() {
        return Err(too_large(path, bytes));
    }
    Ok(())
}

/// That there is no space, where that is what the system says, or else its error.
pub(super) fn refused(path: &Path, bytes: u64, source: io::Error) -> Error {
    let full = [Errno::NOSPC, Errno::DQUOT, Errno::NOMEM];
    if full
        .iter()
        .any(|errno| source.raw_os_error() == Some(errno.raw_os_error()))
    {
        Error::NoSpace {
            path: path.into(),
            bytes,
            source,
        }
    } else {
        io_error("reserve space for", path, source)
    }
}

/// Makes the empty `file` hold `bytes` zero bytes whose space on the disk is taken; `path` is what errors name.
///
/// # Errors
/// There is no space, or the size is beyond what a file or the address space can have.
pub fn reserve(file: &File, path: &Path, bytes: u64) -> Result<()> {
    check_size(path, bytes)?;
    if bytes == 0 {
        return Ok(());
    }
    // The system would take all there is before it finds that this is not enough.
    if bytes > WORTH_ASKING && free(file).is_some_and(|free| bytes > free) {
        return Err(refused(path, bytes, Errno::NOSPC.into()));
    }
    match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)) {
        // On Linux the size is set by then; elsewhere only the blocks are taken.
        Ok(()) => file.set_len(bytes),
        // The file system cannot reserve: zeros that are written take their space as well.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(file, bytes),
        Err(errno) => Err(errno.into()),
    }
    .map_err(|source| refused(path, bytes, source))
}

fn write_zeros(mut file: &File, bytes: u64) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let part = left.min(zeros.len() as u64);
        file.write_all(&zeros[..part as usize])?;
        left -= part;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparse_file_takes_no_space() -> std::result::Result<(), Box<dyn std::error::Error>> {
        let file = tempfile::tempfile()?;
        Space::Sparse.take(&file, Path::new("file"), 1 << 30)?;
        let facts = rustix::fs::fstat(&file)?;
        assert_eq!((facts.st_size, facts.st_blocks), (1 << 30, 0));
        assert!(matches!(
            Space::Sparse.take(&file, Path::new("file"), 1 << 63),
            Err(Error::TooLarge { .. })
        ));
        Ok(())
    }

    #[test]
    fn what_is_not_there_is_refused_before_any_is_taken()
    -> std::result::Result<(), Box<dyn std::error::Error>> {
        let file = tempfile::tempfile()?;
        let wanted = free(&file).unwrap_or(1 << 40).saturating_mul(2);
        let Err(Error::NoSpace { bytes, .. }) = reserve(&file, Path::new("file"), wanted) else {
            return Err("there was space".into());
        };
        assert_eq!((bytes, rustix::fs::fstat(&file)?.st_blocks), (wanted, 0));
        Ok(())
    }

    #[test]
    fn zeros_are_written_where_space_cannot_be_reserved()
    -> std::result::Result<(), Box<dyn std::error::Error>> {
        let file = tempfile::tempfile()?;
        write_zeros(&file, (1 << 20) + 5)?;
        assert_eq!(file.metadata()?.len(), (1 << 20) + 5);
        Ok(())
    }
}
