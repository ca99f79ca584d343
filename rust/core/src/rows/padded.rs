//! Leaves of unlike lengths, stacked and filled up.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::{Job, Join, fill};
use crate::{Error, Result};

/// How a [`Join`] that stacks leaves of unlike lengths fills them up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Padding<'a> {
    pub(super) longest: usize,
    pub(super) item: &'a [u8],
    pub(super) side: Side,
}

/// Where what is filled in stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// Before the rows.
    Left,
    /// After them.
    #[default]
    Right,
}

impl<'a> Join<'a> {
    /// Stacks the leaves instead, each filled up at one side with the item `value` to the longest along the joined
    /// dimension: the result has the number of leaves as its first dimension.
    ///
    /// # Errors
    /// Where the value has not the size of the leaves' items or the result would not fit in memory.
    pub fn padded_with(mut self, value: &'a [u8], side: Side) -> Result<Job<'a>> {
        let item = self.kinds.first().map_or(value.len(), |kind| kind.layout.item);
        if value.len() != item {
            return Err(Error::RowsItems {
                wanted: item,
                found: value.len(),
            });
        }
        let longest = self.parts.iter().map(|part| part.rows).max().unwrap_or(0);
        let rows = longest.checked_mul(self.parts.len());
        let bytes = rows
            .and_then(|rows| rows.checked_mul(self.outer_count))
            .and_then(|rows| rows.checked_mul(self.row_bytes().max(1)));
        if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Err(Error::RowsTooLarge {
                item,
                shape: vec![self.parts.len(), self.outer_count, longest],
            });
        }
        self.padded = Some(Padding {
            longest,
            item: value,
            side,
        });
        Ok(self.into())
    }

    pub(super) fn run_padded(
        &self,
        rows: Range<usize>,
        target: &mut [MaybeUninit<u8>],
        padding: Padding<'_>,
    ) {
        let Padding { longest, item, side } = padding;
        let bytes = self.row_bytes();
        let mut target = target;
        let mut row = rows.start;
        while row < rows.end {
            let (outer, inside) = (row / longest, row % longest);
            let until = longest.min(inside + rows.end - row);
            row += until - inside;
            let part = &self.parts[outer / self.outer_count];
            let before = match side {
                Side::Left => longest - part.rows,
                Side::Right => 0,
            };
            let data = inside.max(before)..until.min(before + part.rows);
            let data = if data.is_empty() { until..until } else { data };
            let (now, later) = target.split_at_mut((until - inside) * bytes);
            let (start, now) = now.split_at_mut((data.start - inside) * bytes);
            let (now, end) = now.split_at_mut(data.len() * bytes);
            fill(start, item);
            self.place(
                part,
                outer % self.outer_count,
                data.start.saturating_sub(before)..data.start.saturating_sub(before) + data.len(),
                now,
            );
            fill(end, item);
            target = later;
        }
    }
}
