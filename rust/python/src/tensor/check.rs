//! `TD_DIRECT_READS=check`: what is read directly is compared, each time, with what torch says.
//!
//! Where a tensor lies, and whether it requires a gradient, is compared through functions of torch that run no Python and keep
//! the interpreter lock, so that what was read is as good after it as before. What can only be asked through Python is asked
//! before a tensor is read for good ([`Torch::check_kind`]).
#![allow(unsafe_code, reason = "shapes are read through what describes a tensor")]

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::direct::{Direct, Gradient};
use super::{Torch, references};

/// The error where the two ways differ.
pub(super) fn differ(object: &Bound<'_, PyAny>, direct: &str, torch: &str) -> PyErr {
    PyRuntimeError::new_err(format!(
        "TD_DIRECT_READS=check: of a {} the fields say: {direct}; torch says: {torch}",
        object.get_type()
    ))
}

impl Torch {
    /// Compares what was read of `object` with what torch says of it. Runs no Python, unless they differ.
    #[cold]
    pub(super) fn check(&self, object: &Bound<'_, PyAny>, direct: &Direct) -> PyResult<()> {
        let Some(mut wanted) = self.exchange(object) else {
            return Err(differ(
                object,
                "it is dense and on the CPU",
                "it has no memory that can be exchanged",
            ));
        };
        // SAFETY: [alive] [no-python] the tensor is alive and was not touched since it was read.
        let is_empty = unsafe { wanted.dims() }.is_some_and(|(shape, _)| shape.contains(&0));
        if is_empty {
            // Torch says of a tensor without elements that it lies nowhere.
            (wanted.data, wanted.byte_offset) = (direct.raw.data, direct.raw.byte_offset);
        }
        // SAFETY: as above.
        if !unsafe { direct.raw.is_as(&wanted) } {
            // SAFETY: as above.
            let (found, says) = unsafe { (direct.raw.describe(), wanted.describe()) };
            return Err(differ(object, &found, &says));
        }
        if direct.no_grad && !self.has_no_grad(object) {
            return Err(differ(object, "no gradient", "requires_grad"));
        }
        Ok(())
    }

    /// Compares what no address tells: that the memory of `object`, which is read directly, is its values as they stand. Runs
    /// Python: what was read before is to be read again.
    #[cold]
    pub(super) fn check_kind(&self, object: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.says(&self.is_neg, object)? || self.says(&self.is_conj, object)? {
            return Err(differ(
                object,
                "its values as they stand",
                "a lazy sign or conjugation",
            ));
        }
        Ok(())
    }
}

/// What torch says of the gradient of a tensor.
struct Facts {
    required: bool,
    leaf: bool,
    /// `None` where it was not asked for.
    gradient: Option<bool>,
    hooks: bool,
}

impl Facts {
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let is_there = |name: &str| -> PyResult<bool> { Ok(!object.getattr(name)?.is_none()) };
        let leaf = object.getattr("is_leaf")?.is_truthy()?;
        // A thread that takes a gradient away lets the interpreter lock go while the gradient ends and can still be got, so
        // that who asks for it meanwhile gets an object that is being freed. Of a tensor that others hold it is not asked.
        // Of a result it may not be asked without a warning.
        let is_ours = references(object) == 1;
        Ok(Self {
            required: object.getattr("requires_grad")?.is_truthy()?,
            leaf,
            gradient: (leaf && is_ours).then(|| is_there("grad")).transpose()?,
            hooks: is_there("_backward_hooks")? || is_there("_post_accumulate_grad_hooks")?,
        })
    }

    /// Whether `found` can be true.
    fn allow(&self, found: Gradient) -> bool {
        let wanted = self.required && self.leaf;
        match found {
            Gradient::Never => !self.required && self.leaf && self.gradient != Some(true),
            Gradient::Wanted => wanted && self.gradient != Some(true) && !self.hooks,
            Gradient::Used => wanted && (self.gradient != Some(false) || self.hooks),
            Gradient::Unclear => true,
        }
    }
}

/// Compares what was `found` of the gradient with what torch says; `again` reads once more.
#[cold]
pub(super) fn gradient(
    object: &Bound<'_, PyAny>,
    found: Gradient,
    again: impl Fn() -> Gradient,
) -> PyResult<()> {
    let says = Facts::of(object)?;
    // A backward pass of another thread may have given it a gradient meanwhile.
    if says.allow(found) || again() != found {
        return Ok(());
    }
    let Facts {
        required,
        leaf,
        gradient,
        hooks,
    } = says;
    let says = format!("requires_grad={required}, is_leaf={leaf}, a gradient: {gradient:?}, hooks: {hooks}");
    Err(differ(object, &format!("{found:?}"), &says))
}
