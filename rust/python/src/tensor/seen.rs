//! What is known of a leaf while Python may run.

use tensordict_core::rows::Layout;

use super::{CPU, Code, DlTensor, TensorView};

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
            no_grad: view.no_grad,
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

    /// Whether dtype and layout are the same.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.code == other.code && self.layout == other.layout
    }
}
