//! What an object has of Python's own: its references, strong and weak, its attributes.
#![allow(
    unsafe_code,
    reason = "a word of an object is read where its type says that it is"
)]

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType, PyWeakrefReference};

use super::direct::word;

/// How many references to `object` are known to Python, that of the caller included.
#[expect(deprecated, reason = "what replaces `get_refcnt` is unsafe")]
pub(crate) fn references(object: &Bound<'_, PyAny>) -> isize {
    object.get_refcnt()
}

/// The dict in which every object that has attributes keeps them, whatever its class says of `__dict__`.
#[inline]
pub(crate) fn own_dict<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: [gil] the function returns a new reference, or null with an exception set: for an object without a dict too.
    unsafe {
        Bound::from_owned_ptr_or_err(
            object.py(),
            ffi::PyObject_GenericGetDict(object.as_ptr(), std::ptr::null_mut()),
        )
    }
}

/// The value of the next entry of a dict, if its key is this string; `position`, 0 at first, then goes on to the entry behind
/// it. It compares only strings whose type is `str` itself, so that it runs no Python.
#[inline]
pub(crate) fn next_if_key<'py>(
    dict: &Bound<'py, PyDict>,
    position: &mut ffi::Py_ssize_t,
    key: &Bound<'_, PyAny>,
) -> Option<Bound<'py, PyAny>> {
    let (mut next, mut name, mut value) = (*position, std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: [gil] the function writes a key and a value that the dict holds, unless it returns 0, and checks a position
    // against the dict as it is now. Nothing lets go of them before the value is given a reference: the comparison of two
    // strings calls no code of theirs.
    unsafe {
        if ffi::PyDict_Next(dict.as_ptr(), &raw mut next, &raw mut name, &raw mut value) == 0 {
            return None;
        }
        let is_key = name == key.as_ptr()
            || (ffi::PyUnicode_CheckExact(name) != 0
                && ffi::PyUnicode_CheckExact(key.as_ptr()) != 0
                && ffi::PyUnicode_Compare(name, key.as_ptr()) == 0);
        if !is_key {
            return None;
        }
        *position = next;
        Some(Bound::from_borrowed_ptr(dict.py(), value))
    }
}

/// How to ask objects of one type for weak references.
pub(crate) struct Weakly {
    kind: Py<PyType>,
    /// The word of the object that is null where there are none, if there is one.
    place: Option<usize>,
    count: Py<PyAny>,
}

impl Weakly {
    /// The way for objects of exactly the type of `sample`, which has no weak references.
    pub(crate) fn new(sample: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = sample.py();
        let mut found = Self {
            kind: sample.get_type().unbind(),
            place: None,
            count: py.import("weakref")?.getattr("getweakrefcount")?.unbind(),
        };
        found.place = found.look(sample).unwrap_or_default();
        Ok(found)
    }

    /// The place that the type gives, if what is there comes and goes with a weak reference.
    fn look(&self, sample: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        let kind = self.kind.bind(sample.py());
        let place: isize = kind.getattr("__weakrefoffset__")?.extract()?;
        let size: usize = kind.getattr("__basicsize__")?.extract()?;
        let Ok(place) = usize::try_from(place) else {
            return Ok(None);
        };
        if place == 0 || place % size_of::<usize>() != 0 || place + size_of::<usize>() > size {
            return Ok(None);
        }
        let place = place / size_of::<usize>();
        // SAFETY: [gil] [bounds]: the word lies within the size that the type states for each of its objects.
        let read = || unsafe { word(super::direct::address(sample), place) };
        let before = read();
        let reference = PyWeakrefReference::new(sample)?;
        let during = read();
        drop(reference);
        let follows = before == 0 && during != 0 && read() == 0;
        Ok(follows.then_some(place))
    }

    /// Whether `object` is of exactly this type and has no weak references.
    #[inline]
    pub(crate) fn has_none(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        if !std::ptr::eq(object.get_type_ptr().cast(), self.kind.as_ptr()) {
            return Ok(false);
        }
        match self.place {
            // SAFETY: [gil] [probed] [bounds]: the object is of the type that was looked at (just compared), within whose
            // stated size the place lies.
            Some(place) => Ok(unsafe { word(super::direct::address(object), place) } == 0),
            None => Ok(self
                .count
                .bind(object.py())
                .call1((object,))?
                .extract::<usize>()?
                == 0),
        }
    }
}
