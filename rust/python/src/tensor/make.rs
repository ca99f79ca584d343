//! Tensors that are made to be filled.
#![allow(
    unsafe_code,
    reason = "the memory of a tensor that nobody else has seen becomes a slice to write to"
)]

use std::mem::MaybeUninit;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tensordict_core::rows::{Dims, Layout};

use super::{Code, Like, Seen, TensorView, Torch};
use crate::once::intern;

/// Makes tensors as `torch.empty` does, contiguous, on the CPU. Keeps what the next one may share with the last one.
pub(crate) struct Maker<'py> {
    pub(super) py: Python<'py>,
    pub(super) torch: &'py Torch,
    pub(super) shape: Option<(Dims, Bound<'py, PyTuple>, Bound<'py, PyTuple>)>,
    pub(super) dtype: Option<(Code, Bound<'py, PyAny>)>,
    /// The layout of the last one of this shape and dtype.
    pub(super) made: Option<Like>,
}

impl<'py> Maker<'py> {
    /// A tensor of this shape, of the dtype of `like`, whose `code` is given.
    pub(crate) fn empty(
        &mut self,
        shape: Dims,
        code: Code,
        like: &Bound<'py, PyAny>,
    ) -> PyResult<Output<'py>> {
        let py = self.py;
        if self.shape.as_ref().is_none_or(|(last, ..)| *last != shape) {
            let layout = Layout::contiguous(1, &shape).map_err(|error| crate::error::raise(&error))?;
            let (sizes, strides) = (PyTuple::new(py, &*shape)?, PyTuple::new(py, layout.strides())?);
            self.shape = Some((shape, sizes, strides));
            self.made = None;
        }
        if self.dtype.as_ref().is_none_or(|(last, _)| *last != code) {
            self.dtype = Some((code, like.getattr(intern!(py, "dtype"))?));
            self.made = None;
        }
        let (Some((_, sizes, strides)), Some((_, dtype))) = (&self.shape, &self.dtype) else {
            return Err(crate::error::internal("a tensor without shape or dtype"));
        };
        let tensor = if let Some(empty_strided) = &self.torch.empty_strided {
            empty_strided.bind(py).call1((sizes, strides, dtype))?
        } else {
            let options = PyDict::new(py);
            options.set_item(intern!(py, "dtype"), dtype)?;
            self.torch.empty.bind(py).call((sizes,), Some(&options))?
        };
        if let Some(like) = &self.made
            && let Some(start) = self.torch.start_like(&tensor, like)
        {
            return Ok(Output {
                tensor,
                data: start.cast_mut(),
                len: like.span,
                shape,
                code,
            });
        }
        let view = self.torch.view(&tensor, false)?;
        let view = view.filter(|view| {
            view.layout.is_contiguous() && view.layout.shape() == &*shape && view.code == code
        });
        let Some(view) = view else {
            return Err(crate::error::internal(
                "torch made another tensor than it was asked for",
            ));
        };
        self.made = Like::of(&Seen::of(&view));
        let TensorView { data, layout, .. } = view;
        Ok(Output {
            tensor,
            data: data.cast_mut(),
            len: layout.span(),
            shape,
            code,
        })
    }

    /// The bytes of `value` as an item of the dtype of `like`; `None` where torch cannot say.
    pub(crate) fn item(
        &self,
        value: &Bound<'py, PyAny>,
        like: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Vec<u8>>> {
        let py = self.py;
        let options = PyDict::new(py);
        options.set_item(intern!(py, "dtype"), like.getattr(intern!(py, "dtype"))?)?;
        let Ok(item) = self
            .torch
            .full
            .bind(py)
            .call((PyTuple::empty(py), value), Some(&options))
        else {
            return Ok(None);
        };
        Ok(self.torch.view(&item, true)?.map(|view| view.bytes().to_vec()))
    }
}

/// A tensor of torch that nobody else has seen yet, and its memory.
pub(crate) struct Output<'py> {
    pub(super) tensor: Bound<'py, PyAny>,
    pub(super) data: *mut u8,
    pub(super) len: usize,
    pub(super) shape: Dims,
    pub(super) code: Code,
}

impl<'py> Output<'py> {
    /// Bytes of the memory.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The shape that was asked for.
    pub(crate) fn shape(&self) -> &Dims {
        &self.shape
    }

    /// The dtype.
    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// The memory, of which nothing is written.
    pub(crate) fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: [exclusive] [no-python] the tensor is contiguous, owned here and by nobody else, and the exclusive borrow of it is handed on;
        // the address is dangling only where the length is 0.
        unsafe { std::slice::from_raw_parts_mut(self.data.cast(), self.len) }
    }

    /// The tensor; it has to be written by now.
    pub(crate) fn into_tensor(self) -> Bound<'py, PyAny> {
        self.tensor
    }
}
