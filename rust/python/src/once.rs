//! What is made once for the process, so that a forked child never finds it half made.
//!
//! The cells of `PyO3` (its `intern!`, `PyOnceLock`, and what `derive(FromPyObject)` makes of them) let the interpreter lock go
//! between the beginning and the end of the making. A thread that forks meanwhile leaves a child in which the cell is being made
//! by a thread that is not there: whoever asks for it waits for ever. A cell of the standard library that is set with the
//! interpreter lock held is empty or full whenever another thread forks.

use std::sync::OnceLock;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PySequence, PyString};

/// What `cell` holds, else what `make` makes. That runs Python, so it runs outside of the cell. Where two make it, the first one
/// stays.
#[inline]
pub(crate) fn once<'a, T>(
    cell: &'a OnceLock<T>,
    _py: Python<'_>,
    make: impl FnOnce() -> PyResult<T>,
) -> PyResult<&'a T> {
    if let Some(found) = cell.get() {
        return Ok(found);
    }
    let value = make()?;
    let _ = cell.set(value);
    cell.get()
        .ok_or_else(|| crate::error::internal("what was kept is not there"))
}

/// The string that `cell` holds, which is `text`.
#[inline]
pub(crate) fn interned<'a, 'py>(
    cell: &'a OnceLock<Py<PyString>>,
    py: Python<'py>,
    text: &str,
) -> &'a Bound<'py, PyString> {
    // To make a string runs no Python, and lets no other thread run.
    cell.get_or_init(|| PyString::intern(py, text).unbind()).bind(py)
}

/// A string of Python, made once.
macro_rules! intern {
    ($py:expr, $text:expr) => {{
        static NAME: std::sync::OnceLock<pyo3::Py<pyo3::types::PyString>> = std::sync::OnceLock::new();
        $crate::once::interned(&NAME, $py, $text)
    }};
}

pub(crate) use intern;

/// Makes what `PyO3` keeps in cells of its own and what is used here, while the package is imported.
pub(crate) fn warm_up(py: Python<'_>) {
    PyRuntimeError::new_err("nothing").restore(py);
    drop(PyErr::take(py)); // it asks for the type of its own exception for panics
    drop(py.None().bind(py).cast::<PySequence>()); // what extracts a list of numbers may ask for this class
    crate::spare::warm_up(py);
}
