//! What is known of a leaf while Python may run.

use pyo3::prelude::*;
use tensordict_core::rows::Layout;

use super::{CPU, Code, DlTensor, Like, Session, TensorView};

/// What was seen of a leaf: all but where it lies. Until that is read as well, with `Session::bytes_of`, Python may run,
/// which can move, resize or free the memory of any tensor: in another thread, or in this one where an object is made and the
/// collector runs a finalizer.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub(super) code: Code,
    pub(super) layout: Layout,
    pub(super) literal: bool,
    pub(super) no_grad: bool,
}

impl Seen {
    pub(crate) fn of(view: &TensorView<'_>) -> Self {
        Self {
            code: view.code,
            layout: view.layout,
            literal: view.literal,
            // Of values that can have no gradient it does not matter.
            no_grad: view.no_grad && !view.code.is_discrete(),
        }
    }

    /// Item size, shape and strides in bytes.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The dtype.
    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// Whether dtype, sizes and strides are still those of a tensor.
    #[inline]
    pub(super) fn fits(&self, raw: &DlTensor, shape: &[i64], strides: &[i64]) -> bool {
        let item = self.layout.item();
        let same = |wanted: &[usize], found: &[i64], item: usize| {
            let mut pairs = wanted.iter().zip(found);
            wanted.len() == found.len()
                && pairs.all(|(wanted, found)| {
                    usize::try_from(*found)
                        .ok()
                        .and_then(|found| found.checked_mul(item))
                        .is_some_and(|found| found == *wanted)
                })
        };
        raw.code == self.code
            && raw.device_kind == CPU
            && same(self.layout.shape(), shape, 1)
            && same(self.layout.strides(), strides, item)
    }

    /// Whether its memory was known to be its values as they stand, without asking torch.
    pub(crate) fn is_literal(&self) -> bool {
        self.literal
    }

    /// Whether dtype and layout are the same.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.code == other.code && self.layout == other.layout
    }
}

/// What is seen of leaves; neighbours that are alike share it.
pub(crate) struct AllSeen {
    kinds: Vec<(Seen, Option<Like>)>,
    /// For each leaf, which of them.
    chosen: Vec<usize>,
}

impl AllSeen {
    /// What is seen of all leaves, or `None`.
    pub(crate) fn of<'py>(session: &Session<'py>, leaves: &[Bound<'py, PyAny>]) -> PyResult<Option<Self>> {
        let (mut kinds, mut chosen) = (Vec::new(), Vec::with_capacity(leaves.len()));
        for leaf in leaves {
            let is_like_last = match kinds.last() {
                Some((_, Some(like))) => session.is_like(leaf, like),
                _ => false,
            };
            if !is_like_last {
                let Some(seen) = session.seen(leaf)? else {
                    return Ok(None);
                };
                kinds.push((seen, Like::of_certain(&seen)));
            }
            chosen.push(kinds.len() - 1);
        }
        Ok(Some(Self { kinds, chosen }))
    }

    /// For each leaf.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Seen> {
        self.chosen.iter().map(|kind| &self.kinds[*kind].0)
    }

    /// [`Session::bytes_of`] of a leaf, with what was seen of it.
    #[inline]
    pub(crate) fn bytes_of<'a, 'py>(
        &self,
        session: &Session<'py>,
        number: usize,
        leaf: &'a Bound<'py, PyAny>,
    ) -> Option<(&'a [u8], &Seen)> {
        let (seen, like) = &self.kinds[self.chosen[number]];
        Some((session.bytes_again(leaf, seen, like.as_ref())?, seen))
    }
}
