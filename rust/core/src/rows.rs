//! Row copies: gather, mask, stack, cat and pad over many leaves in one call.
//!
//! A leaf is bytes with a [`Layout`]: item size, shape, and strides in bytes. A [`Job`] says which rows of which leaves
//! make up one contiguous output, in which order; [`run`] carries out many jobs at once. Each job sees its output as
//! rows of equal length one after the other, so that any job can be cut into blocks of rows, and blocks of all jobs
//! are shared out over the threads of the pool. Everything is checked when a job is made: sizes, spans, positions.
#![allow(
    unsafe_code,
    reason = "rows are copied between addresses that were checked as a whole; a check for each row would cost more \
              than the row"
)]

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::memmap::room;

mod carry;
mod layout;
mod overlap;
mod padded;
mod positions;

pub use carry::{PARALLEL_FROM, run, run_here, stream};
use layout::Steps;
pub use layout::{Dims, Layout, MAX_DIMS, Source};
pub use overlap::{Extent, overwritten};
use padded::Padding;
pub use padded::Side;
use positions::FILL;
pub use positions::Positions;

/// How one row lies in its source: chunks of contiguous bytes at the ends of nested loops.
#[derive(Clone, Copy, Debug)]
struct Inner {
    chunk: usize,
    loops: usize,
    sizes: [usize; MAX_DIMS],
    strides: [usize; MAX_DIMS],
    bytes: usize,
}

impl Inner {
    /// Loops are numbered from the innermost.
    fn of(item: usize, shape: &[usize], strides: &[usize]) -> Self {
        let mut inner = Self {
            chunk: item,
            loops: 0,
            sizes: [1; MAX_DIMS],
            strides: [0; MAX_DIMS],
            bytes: item * shape.iter().product::<usize>(),
        };
        for (size, stride) in shape.iter().zip(strides).rev() {
            let last = inner.loops.wrapping_sub(1);
            if *size == 1 {
            } else if inner.loops == 0 && *stride == inner.chunk {
                inner.chunk *= size;
            } else if inner.loops > 0 && *stride == inner.sizes[last] * inner.strides[last] {
                inner.sizes[last] *= size;
            } else {
                inner.sizes[inner.loops] = *size;
                inner.strides[inner.loops] = *stride;
                inner.loops += 1;
            }
        }
        inner
    }

    /// Copies one row.
    ///
    /// # Safety
    /// The row must lie in readable memory at `source`, and `self.bytes` bytes at `target` be writable; the two must
    /// not overlap.
    unsafe fn copy(&self, source: *const u8, target: *mut u8) {
        if self.bytes == 0 {
            return;
        }
        // SAFETY: [bounds] as the caller promises; each arm copies the chunks of the row one after the other.
        unsafe {
            match self.loops {
                0 => std::ptr::copy_nonoverlapping(source, target, self.chunk),
                1 => copy_spaced(source, self.strides[0], self.sizes[0], self.chunk, target),
                _ => self.copy_nested(source, target),
            }
        }
    }

    /// [`Self::copy`] of two loops and more.
    ///
    /// # Safety
    /// As [`Self::copy`].
    unsafe fn copy_nested(&self, source: *const u8, target: *mut u8) {
        let run = self.sizes[0] * self.chunk;
        let mut counters = [0_usize; MAX_DIMS];
        let mut offset = 0;
        let mut written = 0;
        while written < self.bytes {
            // SAFETY: [bounds] the counters stay below the sizes, so the offset stays inside the row.
            unsafe {
                copy_spaced(
                    source.add(offset),
                    self.strides[0],
                    self.sizes[0],
                    self.chunk,
                    target.add(written),
                );
            }
            written += run;
            let levels = self.sizes.iter().zip(&self.strides).take(self.loops).skip(1);
            for (counter, (size, stride)) in counters.iter_mut().zip(levels) {
                *counter += 1;
                offset += stride;
                if *counter < *size {
                    break;
                }
                offset -= *counter * stride;
                *counter = 0;
            }
        }
    }
}

/// Calls `$copy::<N>` for the chunk sizes that rows mostly have, so that a chunk is a few moves and no call.
macro_rules! for_size {
    ($size:expr, $copy:ident($($argument:expr),*)) => {
        match $size {
            1 => $copy::<1>($($argument),*),
            2 => $copy::<2>($($argument),*),
            4 => $copy::<4>($($argument),*),
            8 => $copy::<8>($($argument),*),
            12 => $copy::<12>($($argument),*),
            16 => $copy::<16>($($argument),*),
            24 => $copy::<24>($($argument),*),
            32 => $copy::<32>($($argument),*),
            48 => $copy::<48>($($argument),*),
            64 => $copy::<64>($($argument),*),
            96 => $copy::<96>($($argument),*),
            128 => $copy::<128>($($argument),*),
            _ => $copy::<0>($($argument),*),
        }
    };
}

/// Copies `N` bytes, or `chunk` where `N` is 0.
///
/// # Safety
/// As `copy_nonoverlapping`.
#[inline(always)]
#[allow(clippy::inline_always, reason = "the constant size has to reach the copy")]
unsafe fn copy_chunk<const N: usize>(source: *const u8, target: *mut u8, chunk: usize) {
    // SAFETY: [bounds] the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(source, target, if N == 0 { chunk } else { N }) };
}

/// Copies `count` chunks that are `stride` bytes apart to one after the other.
///
/// # Safety
/// Each chunk must be readable, all of the target writable, and the two must not overlap.
unsafe fn copy_spaced(source: *const u8, stride: usize, count: usize, chunk: usize, target: *mut u8) {
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "see `copy_chunk`")]
    unsafe fn each<const N: usize>(
        source: *const u8,
        stride: usize,
        count: usize,
        chunk: usize,
        target: *mut u8,
    ) {
        for number in 0..count {
            // SAFETY: [bounds] the caller's promise.
            unsafe { copy_chunk::<N>(source.add(number * stride), target.add(number * chunk), chunk) };
        }
    }
    // SAFETY: [bounds] the caller's promise, and the constant is the chunk's size.
    unsafe { for_size!(chunk, each(source, stride, count, chunk, target)) };
}

/// Copies the chunks at `rows[i] * stride`, one after the other.
///
/// # Safety
/// As [`copy_spaced`]; no row may be [`FILL`].
unsafe fn copy_picked(source: *const u8, stride: usize, rows: &[usize], chunk: usize, target: *mut u8) {
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "see `copy_chunk`")]
    unsafe fn each<const N: usize>(
        source: *const u8,
        stride: usize,
        rows: &[usize],
        chunk: usize,
        target: *mut u8,
    ) {
        for (number, row) in rows.iter().enumerate() {
            // SAFETY: [bounds] the caller's promise.
            unsafe { copy_chunk::<N>(source.add(row * stride), target.add(number * chunk), chunk) };
        }
    }
    // SAFETY: [bounds] the caller's promise, and the constant is the chunk's size.
    unsafe { for_size!(chunk, each(source, stride, rows, chunk, target)) };
}

/// Writes the item `value` over all of `target`, whose length is a multiple of it.
fn fill(target: &mut [MaybeUninit<u8>], value: &[u8]) {
    match value {
        [] => {}
        [first, rest @ ..] if rest.iter().all(|byte| byte == first) => target.fill(MaybeUninit::new(*first)),
        _ => {
            for item in target.chunks_exact_mut(value.len()) {
                for (to, from) in item.iter_mut().zip(value) {
                    to.write(*from);
                }
            }
        }
    }
}

/// Takes rows of one leaf.
#[derive(Clone, Debug)]
pub struct Gather<'a> {
    source: &'a [u8],
    positions: &'a Positions,
    outer: Steps,
    outer_count: usize,
    lead: Steps,
    inner: Inner,
    value: &'a [u8],
}

impl<'a> Gather<'a> {
    /// The rows at `positions` of dimension `dim`, for each element of the dimensions before it: the result has
    /// `positions.len()` in place of that dimension.
    ///
    /// # Errors
    /// Where there is no such dimension, it is not of the size that the positions were made for, or these want filling.
    pub fn along(source: &Source<'a>, dim: usize, positions: &'a Positions) -> Result<Self> {
        Self::new(source, dim..dim + 1, positions, &[])
    }

    /// The rows at `positions` of the first `dims` dimensions taken as one, as a mask over them selects.
    ///
    /// # Errors
    /// Where there are fewer dimensions, they do not have as many rows as the positions were made for, or these want
    /// filling.
    pub fn leading(source: &Source<'a>, dims: usize, positions: &'a Positions) -> Result<Self> {
        Self::new(source, 0..dims, positions, &[])
    }

    /// [`Self::leading`] for positions that want filling ([`Positions::padded`]): with the item `value`.
    ///
    /// # Errors
    /// As [`Self::leading`], and where the value has not the size of the leaf's items.
    pub fn padded(
        source: &Source<'a>,
        dims: usize,
        positions: &'a Positions,
        value: &'a [u8],
    ) -> Result<Self> {
        Self::new(source, 0..dims, positions, value)
    }

    fn new(
        source: &Source<'a>,
        dims: Range<usize>,
        positions: &'a Positions,
        value: &'a [u8],
    ) -> Result<Self> {
        let layout = &source.layout;
        if positions.fills && value.len() != layout.item {
            return Err(Error::RowsItems {
                wanted: layout.item,
                found: value.len(),
            });
        }
        let (shape, strides) = (&*layout.shape, &*layout.strides);
        let Some(sizes) = shape.get(dims.clone()) else {
            return Err(Error::RowsDimensions {
                wanted: dims.end,
                found: shape.len(),
            });
        };
        let found = sizes.iter().product();
        if found != positions.size {
            return Err(Error::RowsSize {
                wanted: positions.size,
                found,
            });
        }
        let inner = Inner::of(layout.item, &shape[dims.end..], &strides[dims.end..]);
        let outer_count: usize = shape[..dims.start].iter().product();
        let rows = outer_count.checked_mul(positions.len());
        if rows
            .and_then(|rows| rows.checked_mul(inner.bytes.max(1)))
            .is_none_or(|bytes| bytes > isize::MAX as usize)
        {
            return Err(Error::RowsTooLarge {
                item: layout.item,
                shape: shape.to_vec(),
            });
        }
        Ok(Self {
            source: source.bytes,
            positions,
            outer: Steps::of(&shape[..dims.start], &strides[..dims.start]),
            outer_count,
            lead: Steps::of(sizes, &strides[dims]),
            inner,
            value,
        })
    }

    fn run(&self, rows: Range<usize>, target: &mut [MaybeUninit<u8>]) {
        let count = self.positions.len();
        let mut target = target;
        let mut row = rows.start;
        while row < rows.end {
            let first = row % count;
            let taken = (count - first).min(rows.end - row);
            let (now, later) = target.split_at_mut(taken * self.inner.bytes);
            self.take(self.outer.offset(row / count), first..first + taken, now);
            target = later;
            row += taken;
        }
    }

    /// Copies the rows at `positions` of the element at `offset` of the outer dimensions.
    fn take(&self, offset: usize, positions: Range<usize>, target: &mut [MaybeUninit<u8>]) {
        let rows = &self.positions.rows[positions];
        let bytes = self.inner.bytes;
        if let Some(stride) = self.lead.stride()
            && self.inner.loops == 0
            && !self.positions.fills
        {
            // SAFETY: [bounds] [exclusive] each row is smaller than the size of its dimension and the offset is that of an element of the
            // outer dimensions, so the chunk lies in the span of the layout, which lies in `source` (`Source::new`);
            // `target` has `bytes` for each row, and is borrowed mutably.
            unsafe {
                copy_picked(
                    self.source.as_ptr().wrapping_add(offset),
                    stride,
                    rows,
                    bytes,
                    target.as_mut_ptr().cast(),
                );
            }
            return;
        }
        for (row, target) in rows.iter().zip(target.chunks_exact_mut(bytes)) {
            if *row == FILL {
                fill(target, self.value);
                continue;
            }
            // SAFETY: [bounds] [exclusive] as above; `lead.offset` stays inside the dimensions that the row was counted over.
            unsafe {
                let from = self.source.as_ptr().wrapping_add(offset + self.lead.offset(*row));
                self.inner.copy(from, target.as_mut_ptr().cast());
            }
        }
    }
}

/// How the parts of a [`Join`] that share a layout lie.
#[derive(Clone, Debug)]
struct Kind {
    layout: Layout,
    rows: usize,
    bytes: usize,
    outer: Steps,
    stride: usize,
    inner: Inner,
}

impl Kind {
    /// Whether all rows of a part, where there is nothing before the joined dimension, are one piece of memory.
    fn is_one_chunk(&self) -> bool {
        self.inner.loops == 0 && self.rows > 0 && (self.rows == 1 || self.stride == self.inner.bytes)
    }
}

#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    bytes: &'a [u8],
    kind: usize,
    rows: usize,
    /// Rows of this part and of those before it.
    end: usize,
}

/// Puts leaves one after the other along a dimension.
#[derive(Clone, Debug)]
pub struct Join<'a> {
    dim: usize,
    kinds: Vec<Kind>,
    parts: Vec<Part<'a>>,
    /// Rows and bytes of all parts.
    end: usize,
    total: usize,
    outer_count: usize,
    padded: Option<Padding<'a>>,
}

impl<'a> Join<'a> {
    /// Will join `parts` leaves along dimension `dim`. To stack leaves instead, push them with a dimension of one
    /// element put in ([`Layout::unsqueezed`]).
    #[must_use]
    pub fn along(dim: usize, parts: usize) -> Self {
        Self {
            dim,
            kinds: Vec::new(),
            parts: Vec::with_capacity(parts),
            end: 0,
            total: 0,
            outer_count: 0,
            padded: None,
        }
    }

    /// The next leaf.
    ///
    /// # Errors
    /// Where its item or shape, but for the joined dimension, differs from the leaves before it, or the result would not
    /// fit in memory.
    pub fn push(&mut self, bytes: &'a [u8], layout: &Layout) -> Result<()> {
        if self.kinds.last().is_none_or(|last| last.layout != *layout) {
            self.add_kind(layout)?;
        }
        self.push_alike(bytes)
    }

    /// The next leaf, of the very layout of the one before it.
    ///
    /// # Errors
    /// As [`Self::push`], and where there is none before it.
    #[inline]
    pub fn push_alike(&mut self, bytes: &'a [u8]) -> Result<()> {
        let Some(kind) = self.kinds.last() else {
            return Err(Error::RowsDimensions { wanted: 1, found: 0 });
        };
        if bytes.len() < kind.layout.span {
            return Err(Error::RowsShort {
                wanted: kind.layout.span,
                found: bytes.len(),
            });
        }
        // Both fit in memory, so the sum does not wrap.
        let total = self.total + kind.bytes;
        if total > isize::MAX as usize {
            return Err(Error::RowsTooLarge {
                item: kind.layout.item,
                shape: kind.layout.shape.to_vec(),
            });
        }
        // Rows of no bytes could add up to anything.
        let Some(end) = self.end.checked_add(kind.rows) else {
            return Err(Error::RowsTooLarge {
                item: kind.layout.item,
                shape: kind.layout.shape.to_vec(),
            });
        };
        self.total = total;
        self.end = end;
        self.parts.push(Part {
            bytes,
            kind: self.kinds.len() - 1,
            rows: kind.rows,
            end,
        });
        Ok(())
    }

    fn add_kind(&mut self, layout: &Layout) -> Result<()> {
        let (shape, strides) = (&*layout.shape, &*layout.strides);
        let dim = self.dim;
        if dim >= shape.len() {
            return Err(Error::RowsDimensions {
                wanted: dim + 1,
                found: shape.len(),
            });
        }
        if let Some(Kind { layout: first, .. }) = self.kinds.first() {
            if first.item != layout.item {
                return Err(Error::RowsItems {
                    wanted: first.item,
                    found: layout.item,
                });
            }
            let same = first.shape.len() == shape.len()
                && first
                    .shape
                    .iter()
                    .zip(shape)
                    .enumerate()
                    .all(|(d, (a, b))| d == dim || a == b);
            if !same {
                return Err(Error::RowsShape {
                    wanted: first.shape.to_vec(),
                    found: shape.to_vec(),
                });
            }
        }
        self.outer_count = shape[..dim].iter().product();
        self.kinds.push(Kind {
            layout: *layout,
            rows: shape[dim],
            bytes: layout.bytes(),
            outer: Steps::of(&shape[..dim], &strides[..dim]),
            stride: strides[dim],
            inner: Inner::of(layout.item, &shape[dim + 1..], &strides[dim + 1..]),
        });
        Ok(())
    }

    /// Size of the joined dimension in the result.
    fn size(&self) -> usize {
        match self.padded {
            Some(padding) => padding.longest,
            None => self.end,
        }
    }

    fn row_bytes(&self) -> usize {
        self.kinds.first().map_or(0, |kind| kind.inner.bytes)
    }

    fn rows(&self) -> usize {
        let leaves = if self.padded.is_some() {
            self.parts.len()
        } else {
            1
        };
        leaves * self.outer_count * self.size()
    }

    fn run(&self, rows: Range<usize>, target: &mut [MaybeUninit<u8>]) {
        match self.padded {
            Some(padding) => self.run_padded(rows, target, padding),
            None => self.run_joined(rows, target),
        }
    }

    fn run_joined(&self, rows: Range<usize>, target: &mut [MaybeUninit<u8>]) {
        if let [kind] = &*self.kinds
            && self.outer_count == 1
            && kind.is_one_chunk()
            && rows.start % kind.rows == 0
            && rows.end % kind.rows == 0
        {
            self.place_alike(rows.start / kind.rows..rows.end / kind.rows, kind.bytes, target);
            return;
        }
        let size = self.size();
        let mut target = target;
        let mut row = rows.start;
        while row < rows.end {
            let (outer, mut inside) = (row / size, row % size);
            let until = size.min(inside + rows.end - row);
            row += until - inside;
            let mut number = self.parts.partition_point(|part| part.end <= inside);
            while inside < until {
                let part = &self.parts[number];
                let start = part.end - part.rows;
                let taken = inside - start..until.min(part.end) - start;
                let (now, later) = target.split_at_mut(taken.len() * self.kinds[part.kind].inner.bytes);
                inside += taken.len();
                self.place(part, outer, taken, now);
                target = later;
                number += 1;
            }
        }
    }

    /// Copies whole parts, each of them one chunk of `chunk` bytes.
    fn place_alike(&self, parts: Range<usize>, chunk: usize, target: &mut [MaybeUninit<u8>]) {
        #[inline(always)]
        #[allow(clippy::inline_always, reason = "see `copy_chunk`")]
        unsafe fn each<const N: usize>(parts: &[Part<'_>], chunk: usize, target: *mut u8) {
            for (number, part) in parts.iter().enumerate() {
                // SAFETY: [bounds] the caller's promise.
                unsafe { copy_chunk::<N>(part.bytes.as_ptr(), target.add(number * chunk), chunk) };
            }
        }
        let parts = &self.parts[parts];
        debug_assert_eq!(target.len(), parts.len() * chunk);
        let target = target.as_mut_ptr().cast::<u8>();
        // SAFETY: [bounds] [exclusive] the span of each part, which its bytes have (`push_alike`), is the chunk; `target` has as many bytes for
        // each part, and is borrowed mutably.
        unsafe { for_size!(chunk, each(parts, chunk, target)) };
    }

    /// Copies some rows of one part.
    fn place(&self, part: &Part<'_>, outer: usize, rows: Range<usize>, target: &mut [MaybeUninit<u8>]) {
        let kind = &self.kinds[part.kind];
        let inner = &kind.inner;
        if target.is_empty() {
            return;
        }
        let offset = kind.outer.offset(outer) + rows.start * kind.stride;
        let from = part.bytes.as_ptr().wrapping_add(offset);
        let to = target.as_mut_ptr().cast::<u8>();
        // SAFETY: [bounds] [exclusive] the rows are those of the part's own dimension and `outer` counts its outer dimensions, so each chunk
        // lies in the span of the layout, which lies in `part.bytes` (checked in `push`); `target` has the bytes of
        // exactly these rows, and is borrowed mutably.
        unsafe {
            if inner.loops > 0 {
                for number in 0..rows.len() {
                    inner.copy(from.add(number * kind.stride), to.add(number * inner.bytes));
                }
            } else if kind.stride == inner.bytes || rows.len() == 1 {
                std::ptr::copy_nonoverlapping(from, to, target.len());
            } else {
                copy_spaced(from, kind.stride, rows.len(), inner.chunk, to);
            }
        }
    }
}

/// What makes up one output: a [`Gather`] or a [`Join`].
#[derive(Clone, Debug)]
pub struct Job<'a> {
    work: Work<'a>,
}

#[derive(Clone, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "a list of jobs is of one kind or the other"
)]
enum Work<'a> {
    Gather(Gather<'a>),
    Join(Join<'a>),
}

impl<'a> From<Gather<'a>> for Job<'a> {
    fn from(gather: Gather<'a>) -> Self {
        Self {
            work: Work::Gather(gather),
        }
    }
}

impl<'a> From<Join<'a>> for Job<'a> {
    fn from(join: Join<'a>) -> Self {
        Self {
            work: Work::Join(join),
        }
    }
}

impl Job<'_> {
    fn rows(&self) -> usize {
        match &self.work {
            Work::Gather(gather) => gather.outer_count * gather.positions.len(),
            Work::Join(join) => join.rows(),
        }
    }

    fn row_bytes(&self) -> usize {
        match &self.work {
            Work::Gather(gather) => gather.inner.bytes,
            Work::Join(join) => join.row_bytes(),
        }
    }

    /// Bytes of the output.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.rows() * self.row_bytes()
    }

    /// The output as a vector.
    ///
    /// # Errors
    /// Where it would not fit in memory.
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let bytes = self.bytes();
        let mut target: Vec<u8> = room(bytes)?;
        run([(self, &mut target.spare_capacity_mut()[..bytes])])?;
        // SAFETY: [bounds] `run` has written all of the bytes, for which there is room.
        unsafe { target.set_len(bytes) };
        Ok(target)
    }

    /// Puts some rows in the place of what `buffer` holds. A row of an expanded leaf can be larger than any memory.
    fn refill(&self, rows: Range<usize>, buffer: &mut Vec<u8>) -> Result<()> {
        let bytes = rows.len() * self.row_bytes();
        buffer.clear();
        if buffer.capacity() < bytes {
            *buffer = room(bytes)?;
        }
        self.run(rows, &mut buffer.spare_capacity_mut()[..bytes]);
        // SAFETY: [bounds] `run` has written all of the bytes, for which there is room.
        unsafe { buffer.set_len(bytes) };
        Ok(())
    }

    /// Writes the rows; `target` has exactly their bytes, and gets all of them.
    fn run(&self, rows: Range<usize>, target: &mut [MaybeUninit<u8>]) {
        match &self.work {
            Work::Gather(gather) => gather.run(rows, target),
            Work::Join(join) => join.run(rows, target),
        }
    }
}
