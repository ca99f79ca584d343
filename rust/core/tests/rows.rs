//! Rows against versions that copy item by item.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test fails by panicking, and its numbers are small"
)]

use std::mem::MaybeUninit;

use proptest::prelude::*;
use tensordict_core::Error;
use tensordict_core::rows::{Gather, Job, Join, Layout, PARALLEL_FROM, Positions, Side, Source, run};

/// A leaf with its own memory.
#[derive(Clone, Debug)]
struct Leaf {
    item: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
    bytes: Vec<u8>,
}

impl Leaf {
    fn layout(&self) -> Layout {
        Layout::new(self.item, &self.shape, &self.strides).unwrap()
    }

    fn source(&self) -> Source<'_> {
        Source::new(&self.bytes, self.layout()).unwrap()
    }

    /// The items in order.
    fn items(&self) -> Vec<Vec<u8>> {
        each(&self.shape).map(|at| self.item_at(&at).to_vec()).collect()
    }

    fn item_at(&self, at: &[usize]) -> &[u8] {
        let start: usize = at.iter().zip(&self.strides).map(|(a, b)| a * b).sum();
        &self.bytes[start..start + self.item]
    }
}

/// All coordinates of a shape, the last one running fastest.
fn each(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> + use<> {
    let shape = shape.to_vec();
    let total: usize = shape.iter().product();
    (0..total).map(move |mut number| {
        let mut at = vec![0; shape.len()];
        for (place, size) in at.iter_mut().zip(&shape).rev() {
            *place = number % size;
            number /= size;
        }
        at
    })
}

fn done(job: &Job<'_>) -> Vec<u8> {
    job.to_vec().unwrap()
}

/// Strides of a contiguous leaf whose dimensions were transposed, sliced with a step or expanded.
fn strides_of(item: usize, shape: &[usize], order: &[usize], steps: &[usize]) -> Vec<usize> {
    let mut strides = vec![0; shape.len()];
    let mut reach = item;
    for dim in order {
        strides[*dim] = reach * steps[*dim];
        if steps[*dim] > 0 {
            reach *= shape[*dim].max(1) * steps[*dim];
        }
    }
    strides
}

fn shaped(shape: Vec<usize>) -> impl Strategy<Value = Leaf> {
    let dims = shape.len();
    let item = prop::sample::select(vec![1_usize, 2, 4, 8, 16]);
    let order = Just((0..dims).rev().collect::<Vec<_>>()).prop_shuffle();
    let order = prop_oneof![Just((0..dims).rev().collect::<Vec<_>>()), order];
    let steps = prop::collection::vec(prop::sample::select(vec![0_usize, 1, 1, 1, 2]), dims);
    (item, order, steps, any::<u8>()).prop_map(move |(item, order, steps, seed)| {
        let strides = strides_of(item, &shape, &order, &steps);
        let span = Layout::new(item, &shape, &strides).unwrap().span();
        let bytes = (0..span)
            .map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed))
            .collect();
        Leaf {
            item,
            shape: shape.clone(),
            strides,
            bytes,
        }
    })
}

fn leaf(dims: std::ops::Range<usize>) -> impl Strategy<Value = Leaf> {
    prop::collection::vec(0..5_usize, dims).prop_flat_map(shaped)
}

proptest! {
    #[test]
    fn gather_takes_the_rows((leaf, dim, index) in leaf(1..5).prop_flat_map(|leaf| {
        let dims = leaf.shape.len();
        (Just(leaf), 0..dims)
    }).prop_flat_map(|(leaf, dim)| {
        let size = i64::try_from(leaf.shape[dim]).unwrap();
        let index = prop::collection::vec(-size..size.max(1), if size == 0 { 0..1 } else { 0..6 });
        (Just(leaf), Just(dim), index)
    })) {
        let size = leaf.shape[dim];
        let positions = Positions::from_index(index.iter().copied(), dim, size).unwrap();
        let job = Gather::along(&leaf.source(), dim, &positions).unwrap().into();
        let mut shape = leaf.shape.clone();
        shape[dim] = index.len();
        let wanted: Vec<u8> = each(&shape).flat_map(|mut at| {
            let row = index[at[dim]];
            at[dim] = usize::try_from(if row < 0 { row + size as i64 } else { row }).unwrap();
            leaf.item_at(&at).to_vec()
        }).collect();
        prop_assert_eq!(done(&job), wanted);
    }

    #[test]
    fn index_outside_is_told(size in 0..5_usize, before in prop::collection::vec(0..1_i64, 0..3), far in 0..3_i64) {
        for wrong in [size as i64 + far, -(size as i64) - 1 - far] {
            let before = if size == 0 { Vec::new() } else { before.clone() };
            let error = Positions::from_index(before.into_iter().chain([wrong]), 1, size).unwrap_err();
            prop_assert_eq!(error.to_string(), format!("index {wrong} is out of bounds for dimension 1 with size {size}"));
        }
    }

    #[test]
    fn integers_are_read_in_order(numbers in prop::collection::vec(-4..4_i32, 0..9), wide in any::<bool>(), step in 1..3_usize) {
        let item = if wide { 8 } else { 4 };
        let mut bytes = vec![0; numbers.len() * item * step];
        for (place, number) in bytes.chunks_mut(item * step).zip(&numbers) {
            if wide {
                place[..8].copy_from_slice(&i64::from(*number).to_ne_bytes());
            } else {
                place[..4].copy_from_slice(&number.to_ne_bytes());
            }
        }
        let layout = Layout::new(item, &[numbers.len()], &[item * step]).unwrap();
        let read = Positions::from_integers(&Source::new(&bytes, layout).unwrap(), 0, 4).unwrap();
        let wanted = Positions::from_index(numbers.iter().map(|number| i64::from(*number)), 0, 4).unwrap();
        prop_assert_eq!(format!("{read:?}"), format!("{wanted:?}"));
    }

    #[test]
    fn mask_takes_the_rows((leaf, dims, flags) in leaf(1..5).prop_flat_map(|leaf| {
        let most = leaf.shape.len();
        (Just(leaf), 1..=most)
    }).prop_flat_map(|(leaf, dims)| {
        let mask = shaped(leaf.shape[..dims].to_vec());
        (Just(leaf), Just(dims), mask)
    })) {
        // The mask's own strides, but one byte an item.
        let mut mask = flags;
        mask.strides.iter_mut().for_each(|stride| *stride /= mask.item);
        mask.item = 1;
        mask.bytes.iter_mut().for_each(|byte| *byte &= 1);
        let positions = Positions::from_mask(&mask.source()).unwrap();
        let job = Gather::leading(&leaf.source(), dims, &positions).unwrap().into();
        let wanted: Vec<u8> = each(&leaf.shape)
            .filter(|at| mask.item_at(&at[..dims]) != [0])
            .flat_map(|at| leaf.item_at(&at).to_vec())
            .collect();
        prop_assert_eq!(done(&job), wanted);
    }

    #[test]
    fn stack_puts_a_dimension_in((leaves, dim) in prop::collection::vec(0..5_usize, 0..4).prop_flat_map(|shape| {
        let dims = shape.len();
        (prop::collection::vec(shaped(shape), 1..4), 0..=dims)
    })) {
        let item = leaves[0].item;
        let leaves: Vec<Leaf> = leaves.into_iter().filter(|leaf| leaf.item == item).collect();
        let mut join = Join::along(dim, leaves.len());
        for leaf in &leaves {
            join.push(&leaf.bytes, &leaf.layout().unsqueezed(dim).unwrap()).unwrap();
        }
        let mut shape = leaves[0].shape.clone();
        shape.insert(dim, leaves.len());
        let wanted: Vec<u8> = each(&shape).flat_map(|mut at| {
            let leaf = at.remove(dim);
            leaves[leaf].item_at(&at).to_vec()
        }).collect();
        prop_assert_eq!(done(&join.into()), wanted);
    }

    #[test]
    fn cat_and_padded_stack((leaves, dim) in (prop::collection::vec(0..4_usize, 1..4), prop::collection::vec(0..5_usize, 1..4))
        .prop_flat_map(|(shape, lengths)| {
            let dims = shape.len();
            (Just(shape), Just(lengths), 0..dims)
        })
        .prop_flat_map(|(shape, lengths, dim)| {
            let leaves: Vec<_> = lengths.iter().map(|length| {
                let mut shape = shape.clone();
                shape[dim] = *length;
                shaped(shape)
            }).collect();
            (leaves, Just(dim))
        })
    ) {
        let item = leaves[0].item;
        let leaves: Vec<Leaf> = leaves.into_iter().filter(|leaf| leaf.item == item).collect();
        let mut join = Join::along(dim, leaves.len());
        for leaf in &leaves {
            join.push(&leaf.bytes, &leaf.layout()).unwrap();
        }
        let mut shape = leaves[0].shape.clone();
        let owners: Vec<(usize, usize)> = leaves.iter().enumerate()
            .flat_map(|(number, leaf)| (0..leaf.shape[dim]).map(move |row| (number, row)))
            .collect();
        shape[dim] = owners.len();
        let wanted: Vec<u8> = each(&shape).flat_map(|mut at| {
            let (number, row) = owners[at[dim]];
            at[dim] = row;
            leaves[number].item_at(&at).to_vec()
        }).collect();
        prop_assert_eq!(done(&join.clone().into()), wanted);

        let value: Vec<u8> = (0..item as u8).map(|byte| 200 + byte).collect();
        shape[dim] = leaves.iter().map(|leaf| leaf.shape[dim]).max().unwrap();
        shape.insert(0, leaves.len());
        for side in [Side::Left, Side::Right] {
            let wanted: Vec<u8> = each(&shape).flat_map(|mut at| {
                let leaf = &leaves[at.remove(0)];
                let before = if side == Side::Left { shape[dim + 1] - leaf.shape[dim] } else { 0 };
                if (before..before + leaf.shape[dim]).contains(&at[dim]) {
                    at[dim] -= before;
                    leaf.item_at(&at).to_vec()
                } else {
                    value.clone()
                }
            }).collect();
            prop_assert_eq!(done(&join.clone().padded_with(&value, side).unwrap()), wanted);
        }
    }

    #[test]
    fn pad_puts_rows_around((leaf, pads) in leaf(1..4).prop_flat_map(|leaf| {
        let most = leaf.shape.len();
        (Just(leaf), prop::collection::vec((0..3_usize, 0..3_usize), 1..=most))
    })) {
        let dims = pads.len();
        let positions = Positions::padded(&leaf.shape[..dims], &pads).unwrap();
        let value = vec![7; leaf.item];
        let job = Gather::padded(&leaf.source(), dims, &positions, &value).unwrap().into();
        let mut shape = leaf.shape.clone();
        for (size, (before, after)) in shape.iter_mut().zip(&pads) {
            *size += before + after;
        }
        let wanted: Vec<u8> = each(&shape).flat_map(|mut at| {
            for (place, (before, _)) in at.iter_mut().zip(&pads) {
                *place = place.wrapping_sub(*before);
            }
            let inside = at.iter().zip(&leaf.shape).all(|(place, size)| place < size);
            if inside { leaf.item_at(&at).to_vec() } else { value.clone() }
        }).collect();
        prop_assert_eq!(done(&job), wanted);
    }

    #[test]
    fn contiguous_means_in_order(leaf in leaf(0..5)) {
        let joined = leaf.items().concat();
        if leaf.layout().is_contiguous() {
            prop_assert_eq!(&leaf.bytes[..joined.len()], &joined[..]);
        }
    }
}

#[test]
fn many_blocks_in_parallel() {
    let (rows, width) = (PARALLEL_FROM / 64, 24);
    let bytes: Vec<u8> = (0..rows * width).map(|at| (at % 251) as u8).collect();
    let layout = Layout::contiguous(4, &[rows, width / 4]).unwrap();
    let source = Source::new(&bytes, layout).unwrap();
    let index: Vec<i64> = (0..3 * rows as i64).map(|at| at * 7919 % rows as i64).collect();
    let positions = Positions::from_index(index.iter().copied(), 0, rows).unwrap();
    let jobs: Vec<Job<'_>> = (0..3)
        .map(|_| Gather::along(&source, 0, &positions).unwrap().into())
        .collect();
    let wanted: Vec<u8> = index
        .iter()
        .flat_map(|row| bytes[*row as usize * width..][..width].to_vec())
        .collect();
    for job in &jobs {
        assert_eq!(done(job), wanted);
    }
}

#[test]
fn lies_are_refused() {
    let bytes = [0; 16];
    let short = Source::new(&bytes, Layout::contiguous(4, &[5]).unwrap());
    assert!(matches!(
        short,
        Err(Error::RowsShort {
            wanted: 20,
            found: 16
        })
    ));
    let huge = Layout::new(8, &[usize::MAX / 4, 4], &[32, 8]);
    assert!(matches!(huge, Err(Error::RowsTooLarge { .. })));
    let far = Layout::new(1, &[2], &[usize::MAX]);
    assert!(matches!(far, Err(Error::RowsTooLarge { .. })));

    let source = Source::new(&bytes, Layout::contiguous(4, &[4]).unwrap()).unwrap();
    let positions = Positions::from_index([0], 0, 5).unwrap();
    assert!(matches!(
        Gather::along(&source, 0, &positions),
        Err(Error::RowsSize { wanted: 5, found: 4 })
    ));
    assert!(matches!(
        Gather::along(&source, 1, &positions),
        Err(Error::RowsDimensions { .. })
    ));
    let holes = Positions::padded(&[4], &[(1, 0)]).unwrap();
    assert!(matches!(
        Gather::leading(&source, 1, &holes),
        Err(Error::RowsItems { .. })
    ));

    let mut join = Join::along(0, 2);
    join.push(&bytes, source.layout()).unwrap();
    let other = Layout::contiguous(2, &[4]).unwrap();
    assert!(matches!(join.push(&bytes, &other), Err(Error::RowsItems { .. })));
    let other = Layout::contiguous(4, &[2, 2]).unwrap();
    assert!(matches!(join.push(&bytes, &other), Err(Error::RowsShape { .. })));
    assert!(matches!(
        join.push_alike(&bytes[..15]),
        Err(Error::RowsShort { .. })
    ));

    let job = Job::from(join);
    let mut target = [MaybeUninit::new(0); 15];
    assert!(matches!(
        run([(&job, &mut target[..])]),
        Err(Error::RowsShort {
            wanted: 16,
            found: 15
        })
    ));
}
