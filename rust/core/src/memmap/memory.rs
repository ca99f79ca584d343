//! Memory without a file, and how much memory there is.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

use super::space::refused;
use super::{Map, Mode, Space, from_file, io_error, too_large};
use crate::{Error, Result};

/// Whether the system has this much memory is not asked, which takes longer than making the map.
const WORTH_ASKING: u64 = 64 << 20;

/// [`anonymous_with`] for which there is memory now.
///
/// # Errors
/// As there.
pub fn anonymous(bytes: u64) -> Result<(Map, OwnedFd)> {
    anonymous_with(bytes, Space::Reserved)
}

/// Maps `bytes` zero bytes of memory that has no file, of which pages are taken as they are written. The descriptor that comes
/// with it stands for the memory: another process that gets it maps the same bytes with [`from_file`].
///
/// # Errors
/// There is not that much memory, unless it may be more than there is ([`Space::Sparse`]), or too many descriptors are open.
pub fn anonymous_with(bytes: u64, space: Space) -> Result<(Map, OwnedFd)> {
    let path = Path::new("anonymous memory");
    // Without this, asking for too much would have the process killed once it is filled.
    let asks = space == Space::Reserved && bytes > WORTH_ASKING;
    if asks && available().is_some_and(|available| bytes > available) {
        return Err(refused(path, bytes, Errno::NOMEM.into()));
    }
    if isize::try_from(bytes).is_err() {
        return Err(too_large(path, bytes));
    }
    let file = rustix::fs::memfd_create("tensordict", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map(File::from)
        .map_err(|errno| io_error("create", path, errno.into()))?;
    // Pages are taken as they are written: memory that is never filled is never used.
    file.set_len(bytes)
        .map_err(|source| io_error("reserve", path, source))?;
    // Nobody who gets the descriptor can cut off memory that others have mapped.
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK)
        .map_err(|errno| io_error("seal", path, errno.into()))?;
    let map = from_file(&file, path, bytes, Mode::ReadWrite)?;
    Ok((map, file.into()))
}

/// Refuses to read more than memory can hold from a file that says it has so much.
pub(crate) fn check_memory(bytes: u64, path: &Path) -> Result<()> {
    if bytes > WORTH_ASKING && available().is_some_and(|available| bytes > available) {
        return Err(io_error("read", path, Errno::NOMEM.into()));
    }
    Ok(())
}

/// An empty vector with room for `count` items: memory for as many as somebody claims there are is asked for, and may be
/// refused, before the first is made.
///
/// # Errors
/// [`Error::NoMemory`] where there is not that much.
pub(crate) fn room<T>(count: usize) -> Result<Vec<T>> {
    let refuse = || Error::NoMemory {
        count,
        item: size_of::<T>(),
    };
    let bytes = count.checked_mul(size_of::<T>()).ok_or_else(refuse)? as u64;
    if bytes > WORTH_ASKING && available().is_some_and(|available| bytes > available) {
        return Err(refuse());
    }
    let mut items = Vec::new();
    items.try_reserve_exact(count).map_err(|_| refuse())?;
    Ok(items)
}

/// Bytes of memory that could be had without taking any from a program, as far as the system says.
fn available() -> Option<u64> {
    let report = std::fs::read_to_string("/proc/meminfo").ok()?;
    let bytes = |name: &str| {
        let line = report.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
        kilobytes.checked_mul(1024)
    };
    bytes("MemAvailable:")?.checked_add(bytes("SwapFree:").unwrap_or(0))
}
