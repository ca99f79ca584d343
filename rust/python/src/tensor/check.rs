//! `TD_DIRECT_READS=check`: what is read directly is compared, each time, with what torch says.
#![allow(unsafe_code, reason = "shapes are read through what describes a tensor")]

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;

use super::Torch;
use super::direct::{Direct, Gradient};

/// The error where the two ways differ.
pub(super) fn differ(object: &Bound<'_, PyAny>, direct: &str, torch: &str) -> PyErr {
    PyRuntimeError::new_err(format!(
        "TD_DIRECT_READS=check: of a {} the fields say: {direct}; torch says: {torch}",
        object.get_type()
    ))
}

impl Torch {
    /// Compares what was read of `object` with what torch says of it.
    #[cold]
    pub(super) fn check(&self, object: &Bound<'_, PyAny>, direct: &Direct) -> PyResult<()> {
        let py = object.py();
        let Some(mut wanted) = self.exchange(object) else {
            // SAFETY: [alive] the tensor is alive and was not touched since it was read.
            let found = unsafe { direct.raw.describe() };
            return Err(differ(object, &found, "it has no memory that can be exchanged"));
        };
        // SAFETY: as above.
        let is_empty = unsafe { wanted.dims() }.is_some_and(|(shape, _)| shape.contains(&0));
        if is_empty {
            // Torch says of a tensor without elements that it lies nowhere.
            (wanted.data, wanted.byte_offset) = (direct.raw.data, direct.raw.byte_offset);
        }
        // SAFETY: as above.
        let (same, found, says) = unsafe {
            (
                direct.raw.is_as(&wanted),
                direct.raw.describe(),
                wanted.describe(),
            )
        };
        if !same {
            return Err(differ(object, &found, &says));
        }
        if self.says(&self.is_neg, object)? || self.says(&self.is_conj, object)? {
            return Err(differ(
                object,
                "its values as they stand",
                "a lazy sign or conjugation",
            ));
        }
        if direct.no_grad && object.getattr(intern!(py, "requires_grad"))?.is_truthy()? {
            return Err(differ(object, "no gradient", "requires_grad"));
        }
        Ok(())
    }
}

/// What torch says of the gradient of a tensor: whether it requires one, is a leaf, has one, has hooks.
fn facts(object: &Bound<'_, PyAny>) -> PyResult<[bool; 4]> {
    let is_there = |name: &str| -> PyResult<bool> { Ok(!object.getattr(name)?.is_none()) };
    let is_leaf = object.getattr("is_leaf")?.is_truthy()?;
    Ok([
        object.getattr("requires_grad")?.is_truthy()?,
        is_leaf,
        // Of a result it may not be asked without a warning.
        is_leaf && is_there("grad")?,
        is_there("_backward_hooks")? || is_there("_post_accumulate_grad_hooks")?,
    ])
}

/// Compares what was `found` of the gradient with what torch says; `again` reads once more.
#[cold]
pub(super) fn gradient(
    object: &Bound<'_, PyAny>,
    found: Gradient,
    again: impl Fn() -> Gradient,
) -> PyResult<()> {
    let says = facts(object)?;
    let same = match found {
        Gradient::Never => matches!(says, [false, true, false, _]),
        Gradient::Wanted => says == [true, true, false, false],
        Gradient::Used => matches!(says, [true, true, true, _] | [true, true, _, true]),
        Gradient::Unclear => true,
    };
    // A backward pass of another thread may have given it a gradient meanwhile.
    if same || again() != found {
        return Ok(());
    }
    let [required, leaf, gradient, hooks] = says;
    let says = format!("requires_grad={required}, is_leaf={leaf}, a gradient: {gradient}, hooks: {hooks}");
    Err(differ(object, &format!("{found:?}"), &says))
}
