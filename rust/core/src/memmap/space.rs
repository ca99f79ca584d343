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
