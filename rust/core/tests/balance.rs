//! Partitions and runs against their definitions and against trying every partition.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use tensordict_core::Error;
use tensordict_core::balance::{partition_greedy, partition_kk, runs_under};
use tensordict_core::schedule::tasks;

fn largest(costs: &[u64], parts: &[Vec<usize>]) -> u128 {
    parts
        .iter()
        .map(|part| part.iter().map(|&i| u128::from(costs[i])).sum())
        .max()
        .unwrap_or(0)
}

/// The least possible largest sum, by trying all.
fn best(costs: &[u64], sums: &mut Vec<u128>) -> u128 {
    let Some((&cost, rest)) = costs.split_first() else {
        return sums.iter().copied().max().unwrap_or(0);
    };
    (0..sums.len())
        .map(|part| {
            sums[part] += u128::from(cost);
            let found = best(rest, sums);
            sums[part] -= u128::from(cost);
            found
        })
        .min()
        .unwrap_or(0)
}

fn is_partition(parts: &[Vec<usize>], wanted: usize, items: usize) -> bool {
    let mut all: Vec<usize> = parts.iter().flatten().copied().collect();
    all.sort_unstable();
    parts.len() == wanted
        && all == (0..items).collect::<Vec<_>>()
        && parts.iter().all(|part| part.is_sorted())
}

proptest! {
    #[test]
    fn each_item_is_in_one_part(costs in prop::collection::vec(any::<u64>(), 0..40), parts in 1_usize..9) {
        prop_assert!(is_partition(&partition_greedy(&costs, parts).unwrap(), parts, costs.len()));
        prop_assert!(is_partition(&partition_kk(&costs, parts).unwrap(), parts, costs.len()));
    }

    #[test]
    fn sums_are_near_the_best(costs in prop::collection::vec(0_u64..100, 0..8), parts in 1_usize..4) {
        let best = best(&costs, &mut vec![0; parts]);
        let greedy = largest(&costs, &partition_greedy(&costs, parts).unwrap());
        let differencing = largest(&costs, &partition_kk(&costs, parts).unwrap());
        prop_assert!(best <= greedy && 3 * greedy <= 4 * best);
        prop_assert!(best <= differencing && 3 * differencing <= 4 * best);
    }

    #[test]
    fn runs_are_longest_within_the_budget(lengths in prop::collection::vec(0_u64..50, 0..30), budget in 0_u64..120) {
        let runs = runs_under(&lengths, budget);
        prop_assert_eq!(runs.iter().cloned().flatten().collect::<Vec<_>>(), (0..lengths.len()).collect::<Vec<_>>());
        let sum = |run: &std::ops::Range<usize>| lengths[run.clone()].iter().sum::<u64>();
        for (place, run) in runs.iter().enumerate() {
            prop_assert!(run.len() == 1 || sum(run) <= budget);
            if place + 1 < runs.len() {
                prop_assert!(sum(run) + lengths[run.end] > budget);
            }
        }
    }

    #[test]
    fn tasks_cover_all_units_evenly(sizes in prop::collection::vec(0_u64..40, 0..20), parts in 0_usize..9) {
        let cut = tasks(&sizes, parts);
        let total: u64 = sizes.iter().sum();
        prop_assert_eq!(cut.len() as u64, total.min(parts.max(1) as u64));
        let unit = |piece: &tensordict_core::schedule::Piece| piece.range.clone().map(|unit| (piece.item, unit)).collect::<Vec<_>>();
        let covered: Vec<(usize, u64)> = cut.iter().flatten().flat_map(unit).collect();
        let expected: Vec<(usize, u64)> = sizes.iter().enumerate().flat_map(|(item, &size)| (0..size).map(move |u| (item, u))).collect();
        prop_assert_eq!(covered, expected);
        let loads: Vec<u64> = cut.iter().map(|task| task.iter().map(|p| p.range.end - p.range.start).sum()).collect();
        if let (Some(most), Some(least)) = (loads.iter().max(), loads.iter().min()) {
            prop_assert!(most - least <= 1);
        }
    }
}

#[test]
fn differencing_beats_greedy_where_it_is_known_to() {
    // Worked by hand: greedy deals 8 5 4 and 7 6, differencing ends two apart, the best is 15 and 15.
    let costs = [8, 7, 6, 5, 4];
    assert_eq!(largest(&costs, &partition_greedy(&costs, 2).unwrap()), 17);
    assert_eq!(largest(&costs, &partition_kk(&costs, 2).unwrap()), 16);
}

#[test]
fn no_parts_is_an_error() {
    assert!(matches!(partition_greedy(&[1], 0), Err(Error::NoParts)));
    assert!(matches!(partition_kk(&[1], 0), Err(Error::NoParts)));
}

#[test]
fn huge_costs_do_not_overflow() {
    let costs = [u64::MAX; 4];
    assert_eq!(
        largest(&costs, &partition_greedy(&costs, 2).unwrap()),
        2 * u128::from(u64::MAX)
    );
    assert_eq!(runs_under(&costs, u64::MAX).len(), 4);
    assert_eq!(tasks(&costs, 3).len(), 3);
}
