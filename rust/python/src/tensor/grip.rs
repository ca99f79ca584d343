//! What keeps the memory of leaves where it is while it is copied.
#![allow(unsafe_code, reason = "the collector is paused through C functions")]

use pyo3::ffi;
use pyo3::prelude::*;

use super::Session;

/// Fewer bytes than this are copied before another thread could use the GIL that it would get.
const WORTH_RELEASING: u64 = 256 << 10;

/// Who else may run while leaves are copied.
///
/// To hold a tensor does not hold its memory: `w.data = other`, `set_` and `swap_tensors` exchange what a tensor refers to.
/// As long as the GIL is held nobody can do so. To let it go takes a reference to the storage of every leaf, which costs as
/// much as it takes to copy some kilobytes, so that many small leaves are copied without. A storage in turn can be given
/// other memory (`share_memory_`, `resize_`), which nobody can hold: so after the copy addresses are read once more, and what
/// was copied counts if they are the same.
pub(crate) enum Grip<'py> {
    /// Nobody: the GIL is held.
    Gil,
    /// Everybody: each leaf's storage is held.
    Storages(#[allow(dead_code, reason = "they are there to be held")] Vec<Bound<'py, PyAny>>),
}

impl Grip<'_> {
    /// Whether others may run.
    pub(crate) fn is_released(&self) -> bool {
        matches!(self, Self::Storages(_))
    }
}

/// From how many bytes a leaf on it is worth holding storages.
#[derive(Clone, Copy)]
pub(crate) struct Worth(u64);

impl Worth {
    /// The leaves are most often taken from again and again, and torch keeps the object of a storage.
    pub(crate) const KEPT: Self = Self(16 << 10);
    /// The leaves are most often new, and gone after this.
    pub(crate) const FRESH: Self = Self(64 << 10);
}

/// As long as this lives the collector does not start by itself, so that making an object runs no finalizer.
struct Paused(bool);

impl Paused {
    fn new(_gil: Python<'_>) -> Self {
        // SAFETY: [gil] the switch of the collector may be turned by who holds the GIL.
        Self(unsafe { ffi::PyGC_Disable() } != 0)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        if self.0 {
            // SAFETY: [gil] this is dropped in the function that made it, which has not let the GIL go.
            unsafe { ffi::PyGC_Enable() };
        }
    }
}

impl<'py> Session<'py> {
    /// Whether the GIL is worth letting go while about `bytes` bytes of so many leaves are copied.
    pub(crate) fn is_worth(&self, bytes: u64, worth: Worth, leaves: usize) -> bool {
        let _ = self;
        bytes >= WORTH_RELEASING.max(worth.0.saturating_mul(leaves as u64))
    }

    /// What it takes to copy about `bytes` bytes of `leaves`. After it their addresses can be read; before it they are stale.
    pub(crate) fn grip<'a>(
        &self,
        bytes: u64,
        worth: Worth,
        leaves: impl ExactSizeIterator<Item = &'a Bound<'py, PyAny>>,
    ) -> PyResult<Grip<'py>>
    where
        'py: 'a,
    {
        if !self.is_worth(bytes, worth, leaves.len()) {
            return Ok(Grip::Gil);
        }
        self.stirred.set(true);
        let storage = self.torch.untyped_storage.bind(self.py);
        // The objects that are made here must not have a finalizer exchange the memory of a leaf that was asked before.
        let _paused = Paused::new(self.py);
        let storages: PyResult<Vec<_>> = leaves.map(|leaf| storage.call1((leaf,))).collect();
        Ok(Grip::Storages(storages?))
    }
}
