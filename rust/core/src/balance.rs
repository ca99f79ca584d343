//! Balance: costs into parts of near-equal sums, and sequences into runs that keep within a budget.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::memmap::room;
use crate::{Error, Result};

/// Deals the costs, longest first, each to the part that has the least so far. Gives the indices of each part in rising
/// order.
///
/// The largest sum is at most 4/3 of the best possible one.
///
/// # Errors
/// [`Error::NoParts`] where `parts` is zero, [`Error::NoMemory`] where there are too many to be held.
pub fn partition_greedy(costs: &[u64], parts: usize) -> Result<Vec<Vec<usize>>> {
    if parts == 0 {
        return Err(Error::NoParts);
    }
    let mut order: Vec<usize> = (0..costs.len()).collect();
    order.sort_by_key(|&index| Reverse(costs[index]));
    let mut dealt = no_parts(parts)?;
    let mut least: Vec<Reverse<(u128, usize)>> = room(parts)?;
    least.extend((0..parts).map(|part| Reverse((0, part))));
    let mut least = BinaryHeap::from(least);
    for index in order {
        if let Some(Reverse((sum, part))) = least.pop() {
            dealt[part].push(index);
            least.push(Reverse((sum + u128::from(costs[index]), part)));
        }
    }
    sort_each(&mut dealt);
    Ok(dealt)
}

/// So many parts, all of them empty.
fn no_parts(parts: usize) -> Result<Vec<Vec<usize>>> {
    let mut dealt = room(parts)?;
    dealt.resize(parts, Vec::new());
    Ok(dealt)
}

/// A partial solution of the differencing method: parts with their sums, the largest first.
struct Partial {
    parts: Vec<(u128, Vec<usize>)>,
    /// The lowest index in it, to break ties in one way.
    first: usize,
}

impl Partial {
    fn spread(&self) -> u128 {
        let largest = self.parts.first().map_or(0, |part| part.0);
        let smallest = self.parts.last().map_or(0, |part| part.0);
        largest - smallest
    }

    /// Joins two solutions: the largest part of one with the smallest of the other, and so on.
    fn join(self, other: Self) -> Self {
        let mut parts: Vec<(u128, Vec<usize>)> = self
            .parts
            .into_iter()
            .zip(other.parts.into_iter().rev())
            .map(|(mine, theirs)| {
                let sum = mine.0 + theirs.0;
                let (mut long, short) = if mine.1.len() >= theirs.1.len() {
                    (mine.1, theirs.1)
                } else {
                    (theirs.1, mine.1)
                };
                long.extend(short);
                (sum, long)
            })
            .collect();
        parts.sort_by_key(|part| Reverse(part.0));
        Self {
            parts,
            first: self.first.min(other.first),
        }
    }
}

impl PartialEq for Partial {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Partial {}

impl PartialOrd for Partial {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Partial {
    fn cmp(&self, other: &Self) -> Ordering {
        self.spread()
            .cmp(&other.spread())
            .then_with(|| other.first.cmp(&self.first))
    }
}

/// The largest differencing method of Karmarkar and Karp: joins the two partial solutions that differ most within
/// themselves until one is left. Mostly nearer to equal than [`partition_greedy`], and slower by about the number of
/// parts. Gives the indices of each part in rising order, the part of the largest sum first.
///
/// # Errors
/// [`Error::NoParts`] where `parts` is zero, [`Error::NoMemory`] where there are too many to be held.
pub fn partition_kk(costs: &[u64], parts: usize) -> Result<Vec<Vec<usize>>> {
    if parts == 0 {
        return Err(Error::NoParts);
    }
    let mut dealt = no_parts(parts)?;
    // Each cost starts as a solution of its own, with a place for each part.
    drop(room::<(u128, Vec<usize>)>(costs.len().saturating_mul(parts))?);
    let mut heap: BinaryHeap<Partial> = costs
        .iter()
        .enumerate()
        .map(|(index, &cost)| {
            let mut alone = vec![(0, Vec::new()); parts];
            alone[0] = (u128::from(cost), vec![index]);
            Partial {
                parts: alone,
                first: index,
            }
        })
        .collect();
    while heap.len() > 1 {
        if let (Some(one), Some(two)) = (heap.pop(), heap.pop()) {
            heap.push(one.join(two));
        }
    }
    if let Some(all) = heap.pop() {
        for (place, (_, part)) in dealt.iter_mut().zip(all.parts) {
            *place = part;
        }
    }
    sort_each(&mut dealt);
    Ok(dealt)
}

fn sort_each(parts: &mut [Vec<usize>]) {
    for part in parts {
        part.sort_unstable();
    }
}

/// Cuts a sequence of lengths, in its order, into the longest runs whose sums keep within the budget. A length above the
/// budget is a run of its own.
#[must_use]
pub fn runs_under(lengths: &[u64], budget: u64) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let (mut start, mut sum) = (0, 0_u128);
    for (index, &length) in lengths.iter().enumerate() {
        let longer = sum + u128::from(length);
        if index > start && longer > u128::from(budget) {
            runs.push(start..index);
            (start, sum) = (index, u128::from(length));
        } else {
            sum = longer;
        }
    }
    if start < lengths.len() {
        runs.push(start..lengths.len());
    }
    runs
}
