//! Errors of the core crate as Python exceptions: the one match.

use pyo3::PyErr;
use pyo3::exceptions::{
    PyFileExistsError, PyFileNotFoundError, PyIndexError, PyKeyError, PyMemoryError, PyOSError,
    PyOverflowError, PyRuntimeError, PyValueError,
};
use tensordict_core::Error;

/// The Python exception for `error`: its type says the kind, its text is the error's own.
pub(crate) fn raise(error: &Error) -> PyErr {
    raise_as(error, error.to_string())
}

/// The exception of the type for `error`, with another text.
fn raise_as(error: &Error, text: String) -> PyErr {
    match error {
        Error::Exists { .. } => PyFileExistsError::new_err(text),
        Error::IndexOutOfRange { .. } => PyIndexError::new_err(text),
        Error::Io { source, path, .. } => match source.raw_os_error() {
            Some(code) => PyOSError::new_err((code, text, path.display().to_string())),
            None => PyOSError::new_err(text),
        },
        Error::NoSpace { source, path, .. } => {
            let text = format!(
                "{text}: sparse=True, or TD_SPARSE_FILES=1 in the environment, takes space as it is written to"
            );
            PyOSError::new_err((source.raw_os_error(), text, path.display().to_string()))
        }
        Error::FlattenCollision { .. }
        | Error::KeyCollision { .. }
        | Error::MissingKey { .. }
        | Error::NoPart { .. } => PyKeyError::new_err(text),
        Error::Key { source, .. } => raise_as(source, text),
        Error::Missing { .. } | Error::NoMetadata { .. } => PyFileNotFoundError::new_err(text),
        Error::NoMemory { .. } => PyMemoryError::new_err(text),
        Error::TooLarge { .. } => PyOverflowError::new_err(text),
        Error::EmptyKey
        | Error::EmptySeparator
        | Error::FileCollision { .. }
        | Error::Json { .. }
        | Error::Metadata { .. }
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
