//! Views of one storage that are like one another but for where they begin.
#![allow(unsafe_code, reason = "the offset of a new tensor is written")]

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::check::differ;
use super::direct::{self, Places};
use super::{Session, Torch, is_plain_type};
use crate::once::intern;

/// Makes tensors of parts of one storage: of one dtype and shape, contiguous, without gradient. All count changes together.
///
/// A view that autograd knows and that is detached takes three times as long, of which torch spends most on what an offset of
/// its own needs. So a tensor that lies at the start is detached, and moved.
pub(crate) struct Mover<'py> {
    torch: &'py Torch,
    places: &'py Places,
    base: Bound<'py, PyAny>,
    /// The largest offset, in elements, at which such a tensor lies within the storage.
    last: usize,
}

impl<'py> Mover<'py> {
    /// Makes tensors of `sizes` of the storage of `whole`, which begins where that does and has one dimension. `None` where
    /// that is not known to work.
    pub(crate) fn new(
        session: &Session<'py>,
        whole: &Bound<'py, PyAny>,
        sizes: &Bound<'py, PyTuple>,
        strides: &Bound<'py, PyTuple>,
    ) -> PyResult<Option<Self>> {
        session.stirred.set(true);
        let (py, torch) = (session.py, session.torch);
        let found = torch.places.get().and_then(Option::as_ref);
        let Some(places) = found.filter(|places| places.can_shift(sizes.len())) else {
            return Ok(None);
        };
        let number =
            |tensor: &Bound<'py, PyAny>, name| -> PyResult<usize> { tensor.call_method0(name)?.extract() };
        let part = whole.call_method1(intern!(py, "as_strided"), (sizes, strides, 0))?;
        let base = part.call_method0(intern!(py, "detach"))?;
        let room = number(whole, "numel")?.checked_sub(number(&base, "numel")?);
        let starts = number(whole, "storage_offset")? == 0 && number(&base, "storage_offset")? == 0;
        let dense = base.call_method0(intern!(py, "is_contiguous"))?.is_truthy()?;
        let fits = starts && dense && is_plain_type(&base);
        Ok(room.filter(|_| fits).map(|last| Self {
            torch,
            places,
            base,
            last,
        }))
    }

    /// The tensor that begins at the element of number `offset`; `None` where it has no place there.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = self.base.py();
        let made = self.base.call_method0(intern!(py, "detach"))?;
        let may = offset <= self.last && is_plain_type(&made);
        // SAFETY: [gil] [bounds] both are tensors, and nobody else has seen what torch has just made. It lies within the storage
        // of the base, whose elements were counted, as long as the base itself does.
        let is_moved = may
            && unsafe {
                self.places
                    .shift(direct::address(&self.base), direct::address(&made), offset)
            };
        if is_moved && self.torch.is_compared() {
            let says: usize = made.call_method0(intern!(py, "storage_offset"))?.extract()?;
            if says != offset {
                return Err(differ(
                    &made,
                    &format!("offset {offset}"),
                    &format!("offset {says}"),
                ));
            }
        }
        Ok(is_moved.then_some(made))
    }
}
