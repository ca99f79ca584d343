//! Mapped memory as Python objects with the buffer protocol, from which torch makes tensors without a copy.
#![allow(
    unsafe_code,
    reason = "the buffer protocol hands out an address, and a descriptor comes in as a number"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "what Python passes is extracted into values"
)]

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use tensordict_core::memmap::{self, FileId, Map, Mode, Space};

use crate::enter::enter;
use crate::error::raise;

/// Memory that is mapped until the last buffer on it is gone.
#[pyclass(frozen, name = "Map", module = "tensordict._core")]
pub(crate) struct PyMap(Map);

impl PyMap {
    pub(crate) fn new(map: Map) -> Self {
        Self(map)
    }

    /// Whether a write reaches the file.
    pub(crate) fn is_shared(&self) -> bool {
        self.0.mode() == Mode::ReadWrite
    }

    pub(crate) fn file(&self) -> FileId {
        self.0.file()
    }
}

impl PyMap {
    /// The file that is mapped.
    pub(crate) fn id(&self) -> FileId {
        self.0.file()
    }
}

#[pymethods]
impl PyMap {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Device and number of the file that is mapped: what tells it from all others on this machine.
    fn number(&self) -> (u64, u64) {
        self.0.file().numbers()
    }

    /// Whether `path` still names the file that is mapped.
    fn is_at(&self, path: PathBuf) -> bool {
        FileId::at(&path) == Some(self.0.file())
    }

    /// Hands out the memory; for writing unless it is mapped for reading alone.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let map = &slf.get().0;
        // The length of a map fits, by how it is made.
        let length = map.len().try_into().unwrap_or(ffi::Py_ssize_t::MAX);
        let readonly = c_int::from(!map.is_writable());
        // SAFETY: [pages] Python gives a valid `view`. The address is valid for `length` bytes for as long as the object lives,
        // which the view keeps alive; readers of a map that others write to are C code, as with Python's own `mmap`.
        let code = unsafe {
            let start = map.as_ptr().cast_mut().cast();
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, readonly, flags)
        };
        if code == 0 {
            Ok(())
        } else {
            Err(PyErr::fetch(slf.py()))
        }
    }
}

/// A file descriptor, closed when the object goes.
#[pyclass(frozen, module = "tensordict._core")]
pub(crate) struct Descriptor(OwnedFd);

#[pymethods]
impl Descriptor {
    /// The number of the descriptor, which stays this object's.
    fn fileno(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// `r` reads alone, `r+` writes to the file, `c` keeps what is written.
pub(crate) fn parse_mode(text: &str) -> PyResult<Mode> {
    match text {
        "r" => Ok(Mode::ReadOnly),
        "r+" => Ok(Mode::ReadWrite),
        "c" => Ok(Mode::Private),
        _ => Err(PyValueError::new_err(format!(
            "the mode must be 'r', 'r+' or 'c', got '{text}'"
        ))),
    }
}

/// Maps `bytes` bytes at `path` from `offset` on; without an offset the file must have exactly that size.
#[pyfunction]
#[pyo3(signature = (path, bytes, mode, offset=None))]
pub(crate) fn map_open(path: PathBuf, bytes: u64, mode: &str, offset: Option<u64>) -> PyResult<PyMap> {
    let mode = parse_mode(mode)?;
    match offset {
        Some(offset) => memmap::open_at_offset(&path, offset, bytes, mode),
        None => memmap::open(&path, bytes, mode),
    }
    .map(PyMap::new)
    .map_err(|error| raise(&error))
}

/// When space is taken: as it is written to, or at once.
pub(crate) fn space(sparse: bool) -> Space {
    if sparse { Space::Sparse } else { Space::Reserved }
}

/// Makes the file `path` of `bytes` zero bytes and maps it; a file that is there is replaced if `existsok`. Its space is taken
/// as it is written to if `sparse`.
#[pyfunction]
#[pyo3(signature = (path, bytes, existsok, sparse=false))]
pub(crate) fn map_create(
    py: Python<'_>,
    path: PathBuf,
    bytes: u64,
    existsok: bool,
    sparse: bool,
) -> PyResult<PyMap> {
    enter(py, bytes, || {
        memmap::create_with(&path, bytes, existsok, space(sparse))
    })
    .map(PyMap::new)
}

/// Makes the file `path` of `bytes` bytes, which `fill` writes into its map, and maps it for writing. The file has its name only
/// once `fill` is done; one that is there is replaced, or an error unless `existsok`.
#[pyfunction]
pub(crate) fn map_filled(
    py: Python<'_>,
    path: PathBuf,
    bytes: u64,
    existsok: bool,
    fill: &Bound<'_, PyAny>,
) -> PyResult<PyMap> {
    let mut failed = None;
    let made = memmap::create_mapped(&path, bytes, existsok, |map| {
        let done = Py::new(py, PyMap::new(map)).and_then(|map| fill.call1((map,)).map(drop));
        done.map_err(|error| {
            failed = Some(error);
            tensordict_core::Error::Abandoned { path: path.clone() }
        })
    });
    match failed {
        Some(error) => Err(error),
        None => made.map(PyMap::new).map_err(|error| raise(&error)),
    }
}

/// Maps `bytes` zero bytes that have no file, with the descriptor by which other processes map them. There may be more than
/// there is memory if `sparse`.
#[pyfunction]
#[pyo3(signature = (bytes, sparse=false))]
pub(crate) fn map_anonymous(py: Python<'_>, bytes: u64, sparse: bool) -> PyResult<(PyMap, Descriptor)> {
    let (map, descriptor) = enter(py, bytes, || memmap::anonymous_with(bytes, space(sparse)))?;
    Ok((PyMap::new(map), Descriptor(descriptor)))
}

/// Maps the memory behind a descriptor that another process gave; the number stays the caller's.
#[pyfunction]
pub(crate) fn map_descriptor(fileno: RawFd, bytes: u64) -> PyResult<(PyMap, Descriptor)> {
    if fileno < 0 {
        return Err(PyValueError::new_err(format!(
            "{fileno} is not a file descriptor"
        )));
    }
    // SAFETY: [bounds] the number is not -1, and it is borrowed only to be duplicated: a closed one gives an error.
    let own = unsafe { BorrowedFd::borrow_raw(fileno) }.try_clone_to_owned()?;
    let file = File::from(own);
    let map = memmap::from_file_at_offset(&file, Path::new("shared memory"), 0, bytes, Mode::ReadWrite)
        .map_err(|error| raise(&error))?;
    Ok((PyMap::new(map), Descriptor(file.into())))
}
