//! How leaves lie in memory: sizes, strides, spans.

use std::ops::Deref;

use super::Inner;
use crate::error::{Error, Result};

/// Leaves of more dimensions are not copied here.
pub const MAX_DIMS: usize = 8;

/// A shape or strides: at most [`MAX_DIMS`] numbers, held without an allocation.
#[derive(Clone, Copy, Debug)]
pub struct Dims {
    pub(super) len: usize,
    pub(super) values: [usize; MAX_DIMS],
}

impl Dims {
    /// No dimensions.
    pub const EMPTY: Self = Self {
        len: 0,
        values: [0; MAX_DIMS],
    };

    /// The same numbers; `None` where they are too many.
    #[must_use]
    pub fn from_slice(values: &[usize]) -> Option<Self> {
        let mut dims = Self::EMPTY;
        dims.values.get_mut(..values.len())?.copy_from_slice(values);
        dims.len = values.len();
        Some(dims)
    }

    /// Adds a number at the end; false where there is no room.
    #[must_use]
    pub fn push(&mut self, value: usize) -> bool {
        let Some(slot) = self.values.get_mut(self.len) else {
            return false;
        };
        *slot = value;
        self.len += 1;
        true
    }

    /// A copy with `value` put in before dimension `dim`; `None` where there is no such place or no room.
    #[must_use]
    pub fn inserted(&self, dim: usize, value: usize) -> Option<Self> {
        if dim > self.len || self.len == MAX_DIMS {
            return None;
        }
        let mut longer = *self;
        longer.values.copy_within(dim..self.len, dim + 1);
        longer.values[dim] = value;
        longer.len += 1;
        Some(longer)
    }
}

impl Deref for Dims {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.values[..self.len]
    }
}

impl PartialEq for Dims {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Dims {}

/// How the items of a leaf lie in its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    pub(super) item: usize,
    pub(super) shape: Dims,
    pub(super) strides: Dims,
    pub(super) span: usize,
}

impl Layout {
    /// Items of `item` bytes in the given shape, neighbours of dimension `d` being `strides[d]` bytes apart. Strides
    /// may be 0 (an expanded dimension) and may overlap.
    ///
    /// # Errors
    /// Where the numbers of sizes and strides differ or exceed [`MAX_DIMS`], or the leaf would not fit in memory.
    pub fn new(item: usize, shape: &[usize], strides: &[usize]) -> Result<Self> {
        let too_large = || Error::RowsTooLarge {
            item,
            shape: shape.to_vec(),
        };
        let (Some(dims), Some(steps)) = (Dims::from_slice(shape), Dims::from_slice(strides)) else {
            return Err(Error::RowsDimensions {
                wanted: MAX_DIMS,
                found: shape.len().max(strides.len()),
            });
        };
        if shape.len() != strides.len() {
            return Err(Error::RowsDimensions {
                wanted: shape.len(),
                found: strides.len(),
            });
        }
        let mut span = item;
        let mut total = item;
        for (size, stride) in shape.iter().zip(strides) {
            total = total.checked_mul((*size).max(1)).ok_or_else(too_large)?;
            let reach = stride.checked_mul(size.saturating_sub(1));
            span = reach
                .and_then(|reach| reach.checked_add(span))
                .ok_or_else(too_large)?;
        }
        if span.max(total) > isize::MAX as usize {
            return Err(too_large());
        }
        if shape.contains(&0) {
            span = 0;
        }
        Ok(Self {
            item,
            shape: dims,
            strides: steps,
            span,
        })
    }

    /// The layout of items one after the other, last dimension first.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn contiguous(item: usize, shape: &[usize]) -> Result<Self> {
        let mut strides = vec![item; shape.len()];
        for dim in (1..shape.len()).rev() {
            strides[dim - 1] = strides[dim].saturating_mul(shape[dim].max(1));
        }
        Self::new(item, shape, &strides)
    }

    /// Bytes of one item.
    #[must_use]
    pub fn item(&self) -> usize {
        self.item
    }

    /// Sizes, in items.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// [`Self::shape`] to keep.
    #[must_use]
    pub fn dims(&self) -> &Dims {
        &self.shape
    }

    /// Distances between neighbours, in bytes.
    #[must_use]
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Bytes from the first to the end of the last item, gaps included; 0 without items.
    #[must_use]
    pub fn span(&self) -> usize {
        self.span
    }

    /// Bytes of the items alone.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.item * self.shape.iter().product::<usize>()
    }

    /// Whether the items lie one after the other, in order, without gaps.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        let inner = Inner::of(self.item, &self.shape, &self.strides);
        inner.loops == 0 || self.span == 0
    }

    /// The layout with a dimension of one element put in before `dim`; `None` where there is no such place or no room.
    #[must_use]
    pub fn unsqueezed(&self, dim: usize) -> Option<Self> {
        Some(Self {
            shape: self.shape.inserted(dim, 1)?,
            strides: self.strides.inserted(dim, 0)?,
            ..*self
        })
    }
}

/// A leaf: bytes, and how its items lie in them.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) layout: Layout,
}

impl<'a> Source<'a> {
    /// The leaf whose items lie in `bytes` as `layout` says.
    ///
    /// # Errors
    /// Where the bytes are fewer than the layout spans.
    pub fn new(bytes: &'a [u8], layout: Layout) -> Result<Self> {
        if bytes.len() < layout.span {
            return Err(Error::RowsShort {
                wanted: layout.span,
                found: bytes.len(),
            });
        }
        Ok(Self { bytes, layout })
    }

    /// The bytes, of which the layout may leave out some.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// How the items lie.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
}

/// Nested loops over the dimensions before the rows: the number of an iteration gives its offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    shape: Dims,
    strides: Dims,
}

impl Steps {
    pub(super) fn of(shape: &[usize], strides: &[usize]) -> Self {
        let mut steps = Self {
            shape: Dims::EMPTY,
            strides: Dims::EMPTY,
        };
        for (size, stride) in shape.iter().zip(strides) {
            let last = steps.shape.len.wrapping_sub(1);
            if *size == 1 {
                continue;
            }
            if last < MAX_DIMS && steps.strides.values[last] == size * stride {
                steps.shape.values[last] *= size;
                steps.strides.values[last] = *stride;
            } else {
                // Never more dimensions than the layout has.
                let _ = steps.shape.push(*size) && steps.strides.push(*stride);
            }
        }
        steps
    }

    /// The one stride that all iterations have.
    pub(super) fn stride(&self) -> Option<usize> {
        match self.shape.len {
            0 => Some(0),
            1 => Some(self.strides.values[0]),
            _ => None,
        }
    }

    pub(super) fn offset(&self, mut number: usize) -> usize {
        let mut offset = 0;
        for (size, stride) in self.shape.iter().zip(self.strides.iter()).rev() {
            offset += number % size * stride;
            number /= size;
        }
        offset
    }
}
