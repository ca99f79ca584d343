//! How much memory an object of torch has: what a search through it must not go beyond.
//!
//! The rule that the unsafe blocks name, \[malloc\]: a block is asked for its size, and given back, once and while it is ours.
#![allow(unsafe_code, reason = "the allocator of C is asked")]

use std::ffi::c_void;

use pyo3::prelude::*;

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_void;
    fn free(block: *mut c_void);
    fn malloc_usable_size(block: *mut c_void) -> usize;
}

/// Sizes of blocks that are tried, in bytes: the steps are those of the allocators in use, or finer.
const SMALLEST: usize = 64;
const LARGEST: usize = 512;
const STEP: usize = 16;
/// Blocks of each size: more than an allocator keeps ready.
const EACH: usize = 12;
/// Trials that must agree, and how many there are: another thread may take the block in between.
const NEEDED: usize = 3;
const TRIES: usize = 16;

/// The bytes that every object of one kind has, if it can be proved.
///
/// `made_and_gone` makes one and lets it go, and says where it was. Then blocks are asked of `malloc`, the smallest first,
/// until one lies at that address. Whatever the allocator is, it has just said by that that the address is the start of a
/// block of its own, so that it may be asked how large the block is. And an object that was there had no less: a block that
/// came back is kept ready for its own size while there is room for it, for which all that was kept so is taken away
/// before; and one that was joined with a free neighbour would be given out in parts, to the smallest that asks. Where
/// torch has its objects elsewhere, in a pool or behind a header, no block is found.
///
/// Several trials must agree, so that it does not depend on one. Each says no more than the object has, so the largest size
/// that they agree on counts: a block that was joined with its neighbour is found in smaller parts.
pub(super) fn room(mut made_and_gone: impl FnMut() -> PyResult<usize>) -> PyResult<Option<usize>> {
    let mut found: Vec<usize> = Vec::with_capacity(TRIES);
    for _ in 0..TRIES {
        let mut blocks = Blocks::new();
        for size in each_size() {
            blocks.ask(size);
        }
        let address = made_and_gone()?;
        // Other objects that went with it may come first.
        let block = each_size().find_map(|size| blocks.ask(size).filter(|(at, _)| *at == address));
        found.extend(block.map(|(_, room)| room));
    }
    found.sort_unstable_by(|one, two| two.cmp(one));
    let often = found.chunk_by(PartialEq::eq).find(|alike| alike.len() >= NEEDED);
    Ok(often.map(|alike| alike[0]))
}

/// Each size several times, the smallest first.
fn each_size() -> impl Iterator<Item = usize> {
    (SMALLEST..=LARGEST)
        .step_by(STEP)
        .flat_map(|size| std::iter::repeat_n(size, EACH))
}

/// Blocks of `malloc`, given back together.
struct Blocks(Vec<*mut c_void>);

impl Blocks {
    fn new() -> Self {
        // Room for all of them: nothing else is to be allocated between.
        Self(Vec::with_capacity(2 * each_size().count()))
    }

    /// Asks for another block: where it is, and how large.
    fn ask(&mut self, size: usize) -> Option<(usize, usize)> {
        // SAFETY: [malloc] any size may be asked for.
        let block = unsafe { malloc(size) };
        if block.is_null() {
            return None;
        }
        self.0.push(block);
        // SAFETY: [malloc] the block is ours.
        Some((block.addr(), unsafe { malloc_usable_size(block) }))
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for block in &self.0 {
            // SAFETY: [malloc] the block is ours, and is forgotten here.
            unsafe { free(*block) };
        }
    }
}
