//! Whether two tensors are one piece of memory.
#![allow(unsafe_code, reason = "tensors are read by address")]

use pyo3::prelude::*;

use super::{Torch, direct, is_plain_type};

/// Where the memory of a tensor begins: two numbers that stay as they are while it is not given another memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(pub(super) usize, pub(super) usize);

/// Whether two tensors are one piece of memory seen in one way: address, device, dtype, shape and strides.
pub(crate) enum Memory {
    /// They are, here.
    Same(Place),
    /// They are not.
    Other,
    /// Of one of them that cannot be read.
    Unknown,
}

/// Compares the memory of two tensors.
#[inline]
pub(crate) fn compare_memory(one: &Bound<'_, PyAny>, two: &Bound<'_, PyAny>) -> PyResult<Memory> {
    let Some(torch) = Torch::get(one.py())? else {
        return Ok(Memory::Unknown);
    };
    match torch.shared(one, two) {
        Some(place) => Ok(Memory::Same(place)),
        None => torch.compare(one, two),
    }
}

/// Where the memory of a tensor begins, as far as that is known.
#[cold]
pub(crate) fn place_of(tensor: &Bound<'_, PyAny>) -> Option<Place> {
    match compare_memory(tensor, tensor) {
        Ok(Memory::Same(place)) => Some(place),
        _ => None,
    }
}

impl Torch {
    /// Where the memory of two tensors begins, if it is seen at once that they are one piece of memory of one storage, seen in
    /// one way. `None` says nothing.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "a handful of loads, twice for each slot of a swap"
    )]
    fn shared(&self, one: &Bound<'_, PyAny>, two: &Bound<'_, PyAny>) -> Option<Place> {
        let places = self.places.get()?.as_ref().filter(|places| !places.checked)?;
        if !is_plain_type(one) || !is_plain_type(two) {
            return None;
        }
        // SAFETY: [gil] the types of both objects are `torch.Tensor` or subclasses, and they are alive.
        unsafe { places.shared(direct::address(one), direct::address(two)) }
    }

    /// [`compare_memory`] by all that can be known.
    #[inline(never)]
    fn compare(&self, one: &Bound<'_, PyAny>, two: &Bound<'_, PyAny>) -> PyResult<Memory> {
        let (Some(first), Some(second)) = (self.borrow(one)?, self.borrow(two)?) else {
            return Ok(Memory::Unknown);
        };
        // SAFETY: [gil] [no-python] both tensors are alive and were not touched since they were read.
        if !unsafe { first.raw.is_as(&second.raw) } {
            return Ok(Memory::Other);
        }
        // A sign or a conjugation that is left to be done makes other values of the same memory.
        for (object, read) in [(one, &first), (two, &second)] {
            if !read.literal && !self.is_literal(object, read.raw.code, true)? {
                return Ok(Memory::Unknown);
            }
        }
        let known = || Place(first.raw.data.addr(), 0);
        // What `shared` says of a tensor must not depend on the one that it is compared with.
        Ok(Memory::Same(self.shared(one, one).unwrap_or_else(known)))
    }
}
