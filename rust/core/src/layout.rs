//! Where leaves lie in one shared buffer.

use crate::schema::{LeafSchema, dense_bytes};
use crate::{Error, Result};

/// Bytes of a cache line: leaves that start on one never share it.
pub const ALIGNMENT: u64 = 64;

/// Bytes to a multiple of which leaves of a packed buffer start; of items that are larger, their size.
pub const PACKED_ALIGNMENT: u64 = 8;

/// Fewer bytes than this lie between two leaves of a packed buffer: the largest items have sixteen.
const MOST_PADDING: u64 = 16;

/// Offsets of leaves in one buffer, each a multiple of the alignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// First byte and number of bytes of each leaf.
    pub places: Vec<(u64, u64)>,
    /// Bytes of the buffer, a multiple of the alignment.
    pub bytes: u64,
}

impl Layout {
    /// Lays `leaves` one after another, each at a multiple of `alignment`, which must not be zero.
    ///
    /// # Errors
    /// The buffer would be larger than a signed 64-bit number holds.
    pub fn new<'a>(leaves: impl IntoIterator<Item = &'a LeafSchema>, alignment: u64) -> Result<Self> {
        let mut end = 0_u64;
        let mut places = Vec::new();
        for leaf in leaves {
            let bytes = dense_bytes(leaf.dtype, &leaf.shape)?;
            places.push((end, bytes));
            end = end
                .checked_add(bytes)
                .and_then(|end| end.checked_next_multiple_of(alignment))
                .filter(|&end| i64::try_from(end).is_ok())
                .ok_or_else(|| Error::ShapeOverflow {
                    shape: leaf.shape.clone(),
                    dtype: leaf.dtype,
                })?;
        }
        Ok(Self { places, bytes: end })
    }

    /// Lays leaves of so many bytes, with items of so many, as densely as their elements can be read in place: each starts
    /// at a multiple of [`PACKED_ALIGNMENT`] and of its item size, which is a power of two. Empty leaves take no room.
    ///
    /// # Errors
    /// The buffer would be larger than a signed 64-bit number holds.
    pub fn packed(leaves: impl IntoIterator<Item = (u64, u64)>) -> Result<Self> {
        let mut end = 0_u64;
        let mut places = Vec::new();
        for (bytes, item) in leaves {
            let next = |at: u64, alignment: u64| {
                at.checked_next_multiple_of(alignment)
                    .filter(|&at| i64::try_from(at).is_ok())
                    .ok_or(Error::LayoutOverflow)
            };
            let start = if bytes == 0 {
                end
            } else {
                next(end, item.max(PACKED_ALIGNMENT))?
            };
            places.push((start, bytes));
            let after = start.checked_add(bytes).ok_or(Error::LayoutOverflow)?;
            end = next(after, PACKED_ALIGNMENT)?;
        }
        Ok(Self { places, bytes: end })
    }

    /// For leaves that start and are so many bytes long, in any order, the byte where the next one starts, or where the
    /// buffer of `bytes` bytes ends. `None` where they overlap or leave room that [`Self::packed`] would not leave.
    #[must_use]
    pub fn stops(places: &[(u64, u64)], bytes: u64) -> Option<Vec<u64>> {
        let mut order: Vec<usize> = (0..places.len()).filter(|&leaf| places[leaf].1 > 0).collect();
        if !order.is_sorted_by_key(|&leaf| places[leaf].0) {
            order.sort_by_key(|&leaf| places[leaf].0);
        }
        let mut stops: Vec<u64> = places.iter().map(|(start, _)| *start).collect();
        let mut end = 0;
        for (number, &leaf) in order.iter().enumerate() {
            let (start, length) = places[leaf];
            let next = order.get(number + 1).map_or(bytes, |&next| places[next].0);
            let after = start.checked_add(length)?;
            if start != end || next < after || next - after >= MOST_PADDING {
                return None;
            }
            stops[leaf] = next;
            end = next;
        }
        (end == bytes).then_some(stops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packed_leaves_are_aligned_and_close(
            leaves in prop::collection::vec((0_u64..40, prop::sample::select(vec![1_u64, 2, 4, 8, 16])), 0..20),
        ) {
            let leaves: Vec<(u64, u64)> = leaves.into_iter().map(|(count, item)| (count * item, item)).collect();
            let layout = Layout::packed(leaves.clone()).map_err(|error| TestCaseError::fail(error.to_string()))?;
            let mut end = 0;
            for ((start, found), (bytes, item)) in layout.places.iter().zip(&leaves) {
                prop_assert_eq!(found, bytes);
                prop_assert!(*start >= end && start - end < 16);
                prop_assert!(*bytes == 0 || start % item.max(&8) == 0);
                end = start + bytes;
            }
            prop_assert!(layout.bytes >= end && layout.bytes - end < 8 && layout.bytes % 8 == 0);
            let mut turned = layout.places.clone();
            turned.reverse();
            let mut stops = Layout::stops(&turned, layout.bytes).ok_or_else(|| TestCaseError::fail("no stops"))?;
            stops.reverse();
            let full = layout.places.iter().zip(&stops).filter(|((_, bytes), _)| *bytes > 0);
            let mut at = 0;
            for ((start, _), stop) in full {
                prop_assert_eq!(*start, at);
                at = *stop;
            }
            prop_assert_eq!(at, layout.bytes);
            prop_assert_eq!(Layout::stops(&turned, layout.bytes + 16), None);
        }

        #[test]
        fn leaves_are_aligned_and_apart(
            shapes in prop::collection::vec(prop::collection::vec(0_u64..5, 0..4), 0..20),
            alignment in prop::sample::select(vec![1_u64, 16, 64]),
        ) {
            let leaves: Vec<LeafSchema> = shapes
                .into_iter()
                .map(|shape| LeafSchema { dtype: crate::schema::DType::I16, shape })
                .collect();
            let layout = Layout::new(&leaves, alignment).map_err(|error| TestCaseError::fail(error.to_string()))?;
            let mut end = 0;
            for ((start, bytes), leaf) in layout.places.iter().zip(&leaves) {
                prop_assert_eq!(start % alignment, 0);
                prop_assert!(*start >= end && start - end < alignment);
                prop_assert_eq!(*bytes, 2 * leaf.shape.iter().product::<u64>());
                end = start + bytes;
            }
            prop_assert!(layout.bytes >= end);
        }
    }

    #[test]
    fn too_large_a_buffer_is_an_error() {
        let packed = Layout::packed([(1, 1), (u64::MAX - 4, 1)]);
        assert!(matches!(packed, Err(Error::LayoutOverflow)));
    }
}
