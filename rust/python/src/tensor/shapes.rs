//! Sizes of tensors, read directly.
#![allow(unsafe_code, reason = "sizes are read where the tensor has them")]

use pyo3::prelude::*;

use super::direct::{self, Places};
use super::{Torch, is_plain_type};

/// The shapes of plain dense CPU tensors.
pub(crate) struct Shapes<'py> {
    torch: &'py Torch,
    places: &'py Places,
}

impl<'py> Shapes<'py> {
    /// `None` where it is not known how tensors keep their shapes.
    pub(crate) fn open(py: Python<'py>) -> PyResult<Option<Self>> {
        let Some(torch) = Torch::get(py)? else {
            return Ok(None);
        };
        Ok(torch.places(py)?.map(|places| Self { torch, places }))
    }

    /// The sizes of `object`; `None` where it is not a plain dense CPU tensor.
    #[inline]
    pub(crate) fn of<'a>(&self, object: &'a Bound<'py, PyAny>) -> PyResult<Option<&'a [i64]>> {
        Ok(self.and_history(object)?.map(|(sizes, _)| sizes))
    }

    /// [`Self::of`], and whether it is known to have nothing to do with a gradient.
    #[inline]
    pub(crate) fn and_history<'a>(
        &self,
        object: &'a Bound<'py, PyAny>,
    ) -> PyResult<Option<(&'a [i64], bool)>> {
        if !is_plain_type(object) {
            return Ok(None);
        }
        // SAFETY: [gil] the object's type is `torch.Tensor` or a subclass, and it is alive.
        let Some(direct) = (unsafe { self.places.read(direct::address(object)) }) else {
            return Ok(None);
        };
        if self.places.checked {
            self.torch.check(object, &direct)?;
        }
        let ndim = usize::try_from(direct.raw.ndim).unwrap_or(0);
        // SAFETY: [alive] it is alive for `'a`; a thread that resizes it in place meanwhile changes the sizes where they
        // stand, of which there are at most five.
        let sizes = unsafe { std::slice::from_raw_parts(direct.raw.shape, ndim) };
        Ok(Some((sizes, direct.no_grad)))
    }
}
