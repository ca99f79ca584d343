//! Which rows to take: by an index, by a mask, or with rows to fill around them.

use super::layout::{Source, Steps};
use crate::error::{Error, Result};
use crate::memmap::room;

/// Stands for a row that has no source, and gets the fill value.
pub(super) const FILL: usize = usize::MAX;

/// Which rows to take, in order: each is known to be smaller than [`Self::size`].
#[derive(Clone, Debug, Default)]
pub struct Positions {
    pub(super) rows: Vec<usize>,
    pub(super) size: usize,
    pub(super) fills: bool,
}

impl Positions {
    /// The rows that an index selects in dimension `dim`, which has `size` rows; negative numbers count from the end.
    ///
    /// # Errors
    /// Where a number is not in `-size..size`, or there is no memory for the rows.
    pub fn from_index(index: impl IntoIterator<Item = i64>, dim: usize, size: usize) -> Result<Self> {
        let index = index.into_iter();
        let mut rows = room(index.size_hint().0)?;
        let signed = i64::try_from(size).unwrap_or(i64::MAX);
        for number in index {
            // A negative number and one that is not do not overflow.
            let row = if number < 0 { number + signed } else { number };
            if row < 0 || row >= signed {
                return Err(Error::IndexOutOfRange {
                    index: number,
                    dim,
                    size,
                });
            }
            rows.push(usize::try_from(row).unwrap_or(FILL));
        }
        Ok(Self {
            rows,
            size,
            fills: false,
        })
    }

    /// [`Self::from_index`] of a leaf of signed integers of 4 or 8 bytes, read once, in row-major order.
    ///
    /// # Errors
    /// As [`Self::from_index`], and where the items are of another size.
    pub fn from_integers(index: &Source<'_>, dim: usize, size: usize) -> Result<Self> {
        let layout = &index.layout;
        let count = layout.shape.iter().product();
        let steps = Steps::of(&layout.shape, &layout.strides);
        let at = |number| {
            let start = steps.offset(number);
            index.bytes.get(start..start + layout.item).unwrap_or(&[])
        };
        match layout.item {
            8 => {
                let read = |bytes: &[u8]| bytes.try_into().map_or(i64::MIN, i64::from_ne_bytes);
                Self::from_index((0..count).map(|number| read(at(number))), dim, size)
            }
            4 => {
                let read = |bytes: &[u8]| {
                    bytes
                        .try_into()
                        .map_or(i64::MIN, |four| i32::from_ne_bytes(four).into())
                };
                Self::from_index((0..count).map(|number| read(at(number))), dim, size)
            }
            found => Err(Error::RowsItems { wanted: 8, found }),
        }
    }

    /// The rows whose byte in `mask` is not 0. The dimensions of the mask count as one, the last one running fastest;
    /// use it with [`Gather::leading`].
    ///
    /// # Errors
    /// Where the items of the mask are not single bytes, or there is no memory for the rows.
    pub fn from_mask(mask: &Source<'_>) -> Result<Self> {
        let layout = &mask.layout;
        if layout.item != 1 {
            return Err(Error::RowsItems {
                wanted: 1,
                found: layout.item,
            });
        }
        let size = layout.shape.iter().product();
        let mut rows: Vec<usize>;
        if layout.is_contiguous() {
            let flags = mask.bytes.get(..size).unwrap_or(&[]);
            rows = room(flags.iter().filter(|flag| **flag != 0).count())?;
            rows.extend(
                flags
                    .iter()
                    .enumerate()
                    .filter_map(|(row, flag)| (*flag != 0).then_some(row)),
            );
        } else {
            let steps = Steps::of(&layout.shape, &layout.strides);
            let holds = |row: &usize| mask.bytes.get(steps.offset(*row)).is_some_and(|flag| *flag != 0);
            rows = room((0..size).filter(holds).count())?;
            rows.extend((0..size).filter(holds));
        }
        Ok(Self {
            rows,
            size,
            fills: false,
        })
    }

    /// The rows of dimensions of `shape` with `before[d]` and `after[d]` rows to fill put around each; use it with
    /// [`Gather::leading`].
    ///
    /// # Errors
    /// Where the three lists are not equally long or the result would not fit in memory.
    pub fn padded(shape: &[usize], pads: &[(usize, usize)]) -> Result<Self> {
        if shape.len() != pads.len() {
            return Err(Error::RowsDimensions {
                wanted: shape.len(),
                found: pads.len(),
            });
        }
        let mut rows = room(1)?;
        rows.push(0);
        for (size, (before, after)) in shape.iter().zip(pads) {
            let wide = before.checked_add(*size).and_then(|sum| sum.checked_add(*after));
            let total = wide.and_then(|wide| wide.checked_mul(rows.len()));
            let Some(total) = total else {
                return Err(Error::RowsTooLarge {
                    item: 1,
                    shape: shape.to_vec(),
                });
            };
            let outer = std::mem::replace(&mut rows, room(total)?);
            for row in outer {
                rows.extend(std::iter::repeat_n(FILL, *before));
                if row == FILL {
                    rows.extend(std::iter::repeat_n(FILL, *size));
                } else {
                    rows.extend(row * size..(row + 1) * size);
                }
                rows.extend(std::iter::repeat_n(FILL, *after));
            }
        }
        Ok(Self {
            rows,
            size: shape.iter().product(),
            fills: true,
        })
    }

    /// How many rows are taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether no row is taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The number of rows that are selected from.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }
}
