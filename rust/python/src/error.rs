//! Errors of the core crate as Python exceptions: the one match.

use std::path::Path;

use pyo3::exceptions::{
    PyIndexError, PyKeyError, PyMemoryError, PyOSError, PyOverflowError, PyRuntimeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::PyType;
use tensordict_core::Error;

/// The Python exception for `error`: its type says the kind, its text is the error's own.
pub(crate) fn raise(error: &Error) -> PyErr {
    raise_as(error, error.to_string())
}

/// What the system says where a file is there that was to be made, and where one is not there.
const EXISTS: i32 = 17;
const NO_ENTRY: i32 = 2;

/// An error of the system: its number says which exception it is.
fn system(code: Option<i32>, text: String, path: &Path) -> PyErr {
    match code {
        Some(code) => PyOSError::new_err((code, text, path.display().to_string())),
        None => PyOSError::new_err(text),
    }
}

/// The exception of that name in `tensordict._kernel.errors`.
fn own(name: &'static str, make: impl FnOnce(Bound<'_, PyType>) -> PyErr) -> PyErr {
    Python::attach(|py| {
        let module = py.import("tensordict._kernel.errors");
        let kind = module.and_then(|module| Ok(module.getattr(name)?.cast_into::<PyType>()?));
        kind.map_or_else(|error| error, make)
    })
}

/// The exception of the type for `error`, with another text.
fn raise_as(error: &Error, text: String) -> PyErr {
    match error {
        Error::Exists { path } => system(Some(EXISTS), text, path),
        Error::IndexOutOfRange { .. } => PyIndexError::new_err(text),
        Error::InTheWay { errno, path, .. } => system(Some(*errno), text, path),
        Error::Io { source, path, .. } => system(source.raw_os_error(), text, path),
        Error::NoSpace { source, path, .. } => {
            let text = format!(
                "{text}: sparse=True, or TD_SPARSE_FILES=1 in the environment, takes space as it is written to"
            );
            system(source.raw_os_error(), text, path)
        }
        Error::KeyCollision { .. } | Error::NoPart { .. } => PyKeyError::new_err(text),
        // That what was saved counts all the same is in the text.
        Error::Key { source, .. } | Error::Unfinished { source, .. } => raise_as(source, text),
        Error::Damaged { .. }
        | Error::FormatVersion { .. }
        | Error::Json { .. }
        | Error::LongFile { .. }
        | Error::Metadata { .. }
        | Error::NotAFile { .. }
        | Error::Ragged { .. }
        | Error::ShortFile { .. } => own("UnreadableError", |kind| PyErr::from_type(kind, text)),
        Error::Missing { path } => {
            let arguments = (NO_ENTRY, text, path.display().to_string());
            own("MissingFileError", |kind| PyErr::from_type(kind, arguments))
        }
        Error::NoMetadata { path } => system(Some(NO_ENTRY), text, path),
        Error::NoMemory { .. } => PyMemoryError::new_err(text),
        Error::TooLarge { .. } => PyOverflowError::new_err(text),
        Error::FileCollision { .. }
        | Error::NoParts
        | Error::UnknownDType { .. }
        | Error::UnsafeName { .. } => PyValueError::new_err(text),
        _ => PyRuntimeError::new_err(text),
    }
}

/// A fault of ours or of torch, not of the caller.
pub(crate) fn internal(text: &'static str) -> PyErr {
    PyRuntimeError::new_err(text)
}
