//! Key paths: nested keys brought into their shortest form.

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

/// Deeper nesting than this is no key, so that a hostile one cannot exhaust the stack.
const DEEPEST: usize = 500;

/// Appends the names of a key; false where a part is neither a string nor a tuple that holds one.
fn collect<'py>(key: &Bound<'py, PyAny>, names: &mut Vec<Bound<'py, PyAny>>, depth: usize) -> bool {
    if key.is_instance_of::<PyString>() {
        names.push(key.clone());
        return true;
    }
    match key.cast::<PyTuple>() {
        Ok(parts) if !parts.is_empty() && depth < DEEPEST => {
            parts.iter().all(|part| collect(&part, names, depth + 1))
        }
        _ => false,
    }
}

fn names_of<'py>(key: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
    let mut names = Vec::new();
    if !collect(key, &mut names, 0) {
        names.clear();
    }
    names
}

/// The names of a key, from the root on. Not a key: no names.
#[pyfunction]
#[pyo3(signature = (key: "Any") -> "tuple[str, ...]")]
pub(crate) fn unravel_key_to_tuple<'py>(key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(key.py(), names_of(key))
}

/// The shortest form of a key: a string for one level, else the tuple of names. A tuple with a part that is no key gives
/// the empty tuple.
#[pyfunction]
#[pyo3(signature = (key: "Any") -> "str | tuple[str, ...]")]
pub(crate) fn unravel_key<'py>(key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if key.is_instance_of::<PyString>() {
        return Ok(key.clone());
    }
    if !key.is_instance_of::<PyTuple>() {
        return Err(no_key(key));
    }
    let mut names = names_of(key);
    if names.len() == 1 {
        return Ok(names.swap_remove(0));
    }
    Ok(PyTuple::new(key.py(), names)?.into_any())
}

/// The shortest forms of several keys.
#[pyfunction]
#[pyo3(signature = (keys: "Any") -> "list[Any]")]
pub(crate) fn unravel_key_list<'py>(keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let py = keys.py();
    let keys: Vec<Bound<'py, PyAny>> = if let Ok(list) = keys.cast::<PyList>() {
        list.iter().collect()
    } else if let Ok(tuple) = keys.cast::<PyTuple>() {
        tuple.iter().collect()
    } else {
        return Err(PyTypeError::new_err(format!(
            "unravel_key_list(): incompatible function arguments. Expected a list or a tuple of keys, got {}.",
            keys.get_type()
        )));
    };
    let found = PyList::empty(py);
    for key in &keys {
        let mut names = names_of(key);
        match names.len() {
            0 => return Err(no_key(key)),
            1 => found.append(names.swap_remove(0))?,
            _ => found.append(PyTuple::new(py, names)?)?,
        }
    }
    Ok(found)
}

/// The same as `unravel_key`, which older programs call by this name.
#[pyfunction]
#[pyo3(signature = (key: "Any") -> "str | tuple[str, ...]")]
pub(crate) fn unravel_keys<'py>(key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    unravel_key(key)
}

fn no_key(key: &Bound<'_, PyAny>) -> PyErr {
    PyRuntimeError::new_err(format!(
        "key should be a Sequence<NestedKey>: a string or a tuple of keys, got {}",
        key.get_type()
    ))
}
