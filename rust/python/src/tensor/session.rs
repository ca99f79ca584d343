//! The right to read tensors in place of torch, for one call.
#![allow(unsafe_code, reason = "the address of a tensor becomes a slice")]

use std::cell::Cell;
use std::marker::PhantomData;

use pyo3::prelude::*;
use pyo3::types::PyList;

use super::{Borrowed, Code, Like, Maker, Output, Seen, TensorView, Torch, is_plain_type};

/// The right to copy rows in place of torch, for the call that asked: nothing that is active in this thread wants to see
/// what torch does.
pub(crate) struct Session<'py> {
    pub(super) py: Python<'py>,
    pub(super) torch: &'py Torch,
    /// Whether Python may have run since [`Self::settle`].
    pub(super) stirred: Cell<bool>,
}

impl<'py> Session<'py> {
    /// `None` where a mode, a functorch transform, forward differentiation or a trace is active, or torch has no
    /// exchange functions.
    pub(crate) fn open(py: Python<'py>) -> PyResult<Option<Self>> {
        let Some(torch) = Torch::get(py)? else {
            return Ok(None);
        };
        if !torch.is_quiet(py)? {
            return Ok(None);
        }
        torch.look_for_places(py)?;
        Ok(Some(Self {
            py,
            torch,
            stirred: Cell::new(true),
        }))
    }

    /// What is seen of a leaf whose rows no gradient wants; `None` for every other object.
    pub(crate) fn seen(&self, object: &Bound<'py, PyAny>) -> PyResult<Option<Seen>> {
        let view = self.leaf(object)?;
        Ok(view.as_ref().map(Seen::of))
    }

    /// [`Self::seen`] with its bytes, which may be used as long as [`Self::is_quiet`].
    #[inline]
    pub(crate) fn leaf<'a>(&self, object: &'a Bound<'py, PyAny>) -> PyResult<Option<TensorView<'a>>> {
        let Some(view) = self.torch.view(object, true)? else {
            return Ok(None);
        };
        if !view.literal || !view.no_grad || self.torch.is_compared() {
            self.stirred.set(true);
        }
        let free = view.no_grad || !self.wants_grad(object, view.code)?;
        Ok(free.then_some(view))
    }

    pub(crate) fn py(&self) -> Python<'py> {
        self.py
    }

    /// The memory of a tensor as it is now, found without a call into Python or torch, so that nothing can have happened to
    /// it when this returns. `None` where that is not possible. Gradient is not looked at.
    #[inline]
    pub(crate) fn at_once<'a>(&self, object: &'a Bound<'py, PyAny>) -> Option<TensorView<'a>> {
        let borrowed = self.torch.borrow(object).ok()?.filter(|found| found.literal)?;
        // SAFETY: [gil] [no-python] the tensor is alive and was not touched since it was read.
        let (shape, strides) = unsafe { borrowed.raw.dims() }?;
        TensorView::checked(&borrowed, shape, strides)
    }

    /// From here on it is noted whether Python may run.
    pub(crate) fn settle(&self) {
        self.stirred.set(false);
    }

    /// Whether no Python has run in this session since [`Self::settle`]: addresses that were read since then are good.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.stirred.get()
    }

    /// The bytes of a leaf that was seen, as they lie now: from the first one to the last one that it may touch. `None` where
    /// it is not as it was seen any more. Runs no Python, and is good until some runs: the last thing before a copy.
    #[inline]
    pub(crate) fn bytes_of<'a>(&self, object: &'a Bound<'py, PyAny>, seen: &Seen) -> Option<&'a [u8]> {
        let Borrowed {
            raw,
            literal,
            no_grad,
        } = self.torch.borrow(object).ok()??;
        // SAFETY: [gil] [no-python] the tensor is alive and was not touched since it was read.
        let (shape, strides) = unsafe { raw.dims() }?;
        let worse = (seen.literal && !literal) || (seen.no_grad && !no_grad);
        if worse || !seen.fits(&raw, shape, strides) {
            return None;
        }
        let span = seen.layout.span();
        if span == 0 {
            return Some(&[]);
        }
        let start = raw
            .data
            .cast::<u8>()
            .wrapping_add(usize::try_from(raw.byte_offset).ok()?);
        // SAFETY: [bounds] as in `TensorView::bytes`: the span is that of the tensor's own shape and strides, which were just
        // held against those that were seen, and its address is not null.
        (!raw.data.is_null()).then(|| unsafe { std::slice::from_raw_parts(start, span) })
    }

    /// [`Self::bytes_of`], the short way where the layout is known as `like` too.
    #[inline]
    pub(crate) fn bytes_again<'a>(
        &self,
        object: &'a Bound<'py, PyAny>,
        seen: &Seen,
        like: Option<&Like>,
    ) -> Option<&'a [u8]> {
        if let Some(like) = like
            && let Some(start) = self.torch.start_like(object, like)
        {
            // SAFETY: [bounds] [no-python] as in `bytes_like`.
            return Some(unsafe { std::slice::from_raw_parts(start, like.span) });
        }
        self.bytes_of(object, seen)
    }

    /// Whether `object` is known at once to be all that was seen of another leaf, of which `like` is.
    #[inline]
    pub(crate) fn is_like(&self, object: &Bound<'py, PyAny>, like: &Like) -> bool {
        self.torch.start_like(object, like).is_some()
    }

    /// The memory of a leaf that is known at once to lie as `before` does, of which `like` is; it has nothing to do with a
    /// gradient. Runs no Python.
    #[inline]
    pub(crate) fn view_like<'a>(
        &self,
        object: &'a Bound<'py, PyAny>,
        before: &TensorView<'_>,
        like: &Like,
    ) -> Option<TensorView<'a>> {
        let data = self.torch.start_like(object, like)?;
        Some(TensorView {
            data,
            code: before.code,
            layout: before.layout,
            literal: true,
            no_grad: before.no_grad,
            owner: PhantomData,
        })
    }

    /// Whether a tensor that was made to be filled is still where it was made.
    pub(crate) fn is_as_made(&self, output: &Output<'py>) -> bool {
        let Ok(Some(Borrowed { raw, .. })) = self.torch.borrow(&output.tensor) else {
            return false;
        };
        // SAFETY: [gil] [no-python] the tensor is alive and was not touched since it was read.
        let Some((shape, _)) = (unsafe { raw.dims() }) else {
            return false;
        };
        let same = shape.iter().map(|size| usize::try_from(*size).ok());
        let lies = raw.data.cast_const().cast::<u8>() == output.data.cast_const() && raw.byte_offset == 0;
        (output.len == 0 || lies) && same.eq(output.shape.iter().map(|size| Some(*size)))
    }

    /// The bytes of a leaf whose shape, strides and dtype are those of `like`; `None` where they are not, or where
    /// [`Self::leaf`] has to look closer.
    #[inline]
    pub(crate) fn bytes_like<'a>(&self, object: &'a Bound<'py, PyAny>, like: &Like) -> Option<&'a [u8]> {
        if let Some(start) = self.torch.start_like(object, like) {
            // SAFETY: [bounds] [no-python] as below.
            return Some(unsafe { std::slice::from_raw_parts(start, like.span) });
        }
        self.bytes_like_slowly(object, like)
    }

    /// [`Self::bytes_like`] where more has to be looked at.
    #[inline(never)]
    fn bytes_like_slowly<'a>(&self, object: &'a Bound<'py, PyAny>, like: &Like) -> Option<&'a [u8]> {
        let Ok(Some(Borrowed {
            raw,
            literal,
            no_grad,
        })) = self.torch.borrow(object)
        else {
            // Torch made an exception to say so: an object, with which the collector may have come.
            self.stirred.set(true);
            return None;
        };
        // SAFETY: [gil] [no-python] the tensor is alive and was not touched since it was read.
        let (shape, strides) = unsafe { raw.dims() }?;
        let sure = literal || {
            self.stirred.set(true);
            self.torch.is_literal(object, raw.code, true).unwrap_or(false)
        };
        let free = no_grad || like.discrete || self.torch.has_no_grad(object);
        if !sure || !free || !like.fits(&raw, shape, strides) {
            return None;
        }
        // SAFETY: [bounds] [no-python] as in `TensorView::bytes`: the span is that of the tensor's own shape and strides, which are those of
        // `like`, and its address is not null.
        Some(unsafe { std::slice::from_raw_parts(raw.data.cast(), like.span) })
    }

    fn wants_grad(&self, object: &Bound<'py, PyAny>, code: Code) -> PyResult<bool> {
        if code.is_discrete() || self.torch.has_no_grad(object) {
            return Ok(false);
        }
        self.torch.is_grad_enabled.bind(self.py).call0()?.is_truthy()
    }

    /// Whether all of `objects` are plain tensors by their type.
    pub(crate) fn are_plain_types(objects: &Bound<'_, PyList>) -> bool {
        objects.iter().all(|object| is_plain_type(&object))
    }

    /// The memory of a tensor of bytes that the caller has just made to be written here; `None` where it is not plain and
    /// contiguous.
    pub(crate) fn output(&self, tensor: Bound<'py, PyAny>) -> PyResult<Option<Output<'py>>> {
        let view = self.torch.view(&tensor, true)?;
        let view = view.filter(|view| view.layout.is_contiguous() && view.code.is_byte());
        let Some(TensorView {
            data, layout, code, ..
        }) = view
        else {
            return Ok(None);
        };
        Ok(Some(Output {
            tensor,
            data: data.cast_mut(),
            len: layout.span(),
            shape: *layout.dims(),
            code,
        }))
    }

    /// Will make tensors.
    pub(crate) fn maker(&self) -> Maker<'py> {
        self.stirred.set(true);
        Maker {
            py: self.py,
            torch: self.torch,
            shape: None,
            dtype: None,
            made: None,
        }
    }
}
