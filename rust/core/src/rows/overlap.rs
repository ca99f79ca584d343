//! Which of many copies, made one after the other, would read what a copy before them has changed.

use super::Layout;

/// Where the bytes of a tensor lie.
#[derive(Clone, Copy, Debug)]
pub struct Extent<'a> {
    start: usize,
    layout: &'a Layout,
}

impl<'a> Extent<'a> {
    /// A tensor of this layout that begins at the address `start`.
    #[must_use]
    pub fn new(start: usize, layout: &'a Layout) -> Self {
        Self { start, layout }
    }

    fn end(&self) -> usize {
        self.start.saturating_add(self.layout.span)
    }

    /// Whether both may have a byte in common; false is certain.
    #[must_use]
    pub fn may_meet(&self, other: &Self) -> bool {
        let near = self.start < other.end() && other.start < self.end();
        near && !self.interleaves(other)
    }

    /// Whether both are known to lie in gaps of one another, as the columns of a matrix do: there is a distance by which both
    /// repeat, and what they have within it does not meet.
    fn interleaves(&self, other: &Self) -> bool {
        let first = self.start.min(other.start);
        self.layout.strides.iter().any(|period| {
            *period > 0 && {
                let (one, two) = ((self.start - first) % period, (other.start - first) % period);
                let (end, last) = (one + self.within(*period), two + other.within(*period));
                end <= *period && last <= *period && (end <= two || last <= one)
            }
        })
    }

    /// How many bytes there are from the first to the end of the last item, but for dimensions that repeat by multiples of
    /// `period`.
    fn within(&self, period: usize) -> usize {
        let steps = self.layout.shape.iter().zip(self.layout.strides.iter());
        let reach = steps.filter(|(_, stride)| **stride % period != 0);
        self.layout.item
            + reach
                .map(|(size, stride)| size.saturating_sub(1) * stride)
                .sum::<usize>()
    }

    fn is_same(&self, other: &Self) -> bool {
        self.start == other.start && self.layout == other.layout
    }
}

/// The numbers, in order, of the sources that may have other bytes when they are copied into the target at the same place,
/// after those before them: because an earlier target meets them, or their own one in another place. Where `parts` is true only
/// some rows of the target are written, so that it is in another place always. Those that cannot be told apart count.
#[must_use]
pub fn overwritten(targets: &[Extent<'_>], sources: &[Extent<'_>], parts: &[bool]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..targets.len()).collect();
    order.sort_unstable_by_key(|number| targets[*number].start);
    // how far the targets up to each in this order reach
    let mut reaches = Vec::with_capacity(order.len());
    let mut furthest = 0;
    for number in &order {
        furthest = furthest.max(targets[*number].end());
        reaches.push(furthest);
    }
    let is_changed = |number: usize, source: &Extent<'_>| {
        let before = order.partition_point(|other| targets[*other].start < source.end());
        let mut near = (0..before).rev().take_while(|at| reaches[*at] > source.start);
        near.any(|at| {
            let other = order[at];
            let target = &targets[other];
            match other.cmp(&number) {
                std::cmp::Ordering::Less => target.may_meet(source),
                std::cmp::Ordering::Equal => {
                    target.may_meet(source) && (parts.get(number) == Some(&true) || !target.is_same(source))
                }
                std::cmp::Ordering::Greater => false,
            }
        })
    };
    let numbered = sources.iter().enumerate();
    numbered
        .filter(|(number, source)| source.layout.span > 0 && is_changed(*number, source))
        .map(|(number, _)| number)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn layout(shape: &[usize], strides: &[usize]) -> Layout {
        Layout::new(2, shape, strides).unwrap()
    }

    fn bytes(start: usize, layout: &Layout) -> HashSet<usize> {
        let mut found = vec![start];
        for (size, stride) in layout.shape().iter().zip(layout.strides()) {
            found = found
                .iter()
                .flat_map(|at| (0..*size).map(move |number| at + number * stride))
                .collect();
        }
        let item = layout.item();
        found.iter().flat_map(|at| *at..at + item).collect()
    }

    #[test]
    fn columns_do_not_meet() {
        let column = layout(&[5], &[8]);
        let at = |start| Extent::new(start, &column);
        assert!(!at(100).may_meet(&at(102)));
        assert!(at(100).may_meet(&at(108)));
        assert!(!at(100).may_meet(&at(110)));
        assert!(at(100).may_meet(&at(101)));
        let pair = layout(&[5, 2], &[8, 2]);
        assert!(at(102).may_meet(&Extent::new(100, &pair)));
        assert!(!at(104).may_meet(&Extent::new(100, &pair)));
    }

    #[test]
    fn a_source_counts_where_a_target_before_it_meets_it() {
        let row = layout(&[4], &[2]);
        let at = |start| Extent::new(start, &row);
        let (one, two, other) = (at(100), at(200), at(300));
        assert_eq!(overwritten(&[one, two], &[two, one], &[]), [1]);
        assert_eq!(overwritten(&[one, two], &[one, two], &[]), [0; 0]);
        assert_eq!(overwritten(&[one, two], &[other, other], &[]), [0; 0]);
        assert_eq!(overwritten(&[one, two, other], &[two, other, one], &[]), [2]);
        assert_eq!(overwritten(&[one, two], &[at(102), at(206)], &[]), [0, 1]);
        assert_eq!(overwritten(&[one, two], &[one, two], &[false, true]), [1]);
    }

    proptest! {
        #[test]
        fn what_meets_is_found(
            start in 0usize..60,
            shapes in prop::array::uniform2(prop::collection::vec((0usize..4, 0usize..20), 0..4)),
        ) {
            let [one, two] = shapes.map(|dims| {
                let (shape, strides): (Vec<_>, Vec<_>) = dims.into_iter().unzip();
                layout(&shape, &strides)
            });
            let meet = bytes(30, &one).intersection(&bytes(start, &two)).next().is_some();
            let found = Extent::new(30, &one).may_meet(&Extent::new(start, &two));
            prop_assert!(found || !meet);
        }
    }
}
