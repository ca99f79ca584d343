//! Attributes of tensors, asked without a lookup.
#![allow(
    unsafe_code,
    reason = "the function behind an attribute is a pointer in a table of its type"
)]

use std::ffi::{CStr, c_void};

use crate::once::intern;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// An attribute of tensors that C code computes, called without a lookup.
pub(crate) struct Attribute {
    get: ffi::getter,
    closure: *mut c_void,
    owner: Py<PyType>,
}

// SAFETY: [leaked] function and closure belong to the type that is held, and are not written to.
unsafe impl Send for Attribute {}
// SAFETY: [leaked] as above.
unsafe impl Sync for Attribute {}

impl Attribute {
    /// The attribute `name`; `None` where it is not one that C code computes.
    pub(crate) fn new(py: Python<'_>, name: &str) -> PyResult<Option<Self>> {
        let base = py.import(intern!(py, "torch._C"))?.getattr("TensorBase")?;
        let owner = base.cast_into::<PyType>()?;
        // SAFETY: [gil] this slot of a type holds an array of definitions, ended by one without a name, or null.
        unsafe {
            let mut entry =
                ffi::PyType_GetSlot(owner.as_type_ptr(), ffi::Py_tp_getset).cast::<ffi::PyGetSetDef>();
            while !entry.is_null() && !(*entry).name.is_null() {
                if CStr::from_ptr((*entry).name).to_bytes() == name.as_bytes() {
                    let (get, closure) = ((*entry).get, (*entry).closure);
                    let owner = owner.unbind();
                    return Ok(get.map(|get| Self { get, closure, owner }));
                }
                entry = entry.add(1);
            }
        }
        Ok(None)
    }

    /// The attribute of `object`; an error for what is no tensor.
    pub(crate) fn get<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = object.py();
        // SAFETY: [gil] both are types that are alive.
        let fits = unsafe { ffi::PyType_IsSubtype(object.get_type_ptr(), self.owner.bind(py).as_type_ptr()) };
        if fits == 0 {
            return Err(PyTypeError::new_err(format!(
                "expected a tensor, found {}",
                object.get_type()
            )));
        }
        // SAFETY: [gil] the object is a tensor, and the function returns a new reference or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(py, self.call(object)) }
    }

    /// A new reference to the attribute, or null with an exception set.
    ///
    /// # Safety
    /// The object must be a tensor.
    #[inline]
    pub(super) unsafe fn call(&self, object: &Bound<'_, PyAny>) -> *mut ffi::PyObject {
        // SAFETY: [gil] as the caller promises.
        unsafe { (self.get)(object.as_ptr(), self.closure) }
    }
}
