//! Trees against a naive version: a list of (names, leaf) in order.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use tensordict_core::Error;
use tensordict_core::key::KeyPath;
use tensordict_core::tree::{Reason, Tree};

type Flat = Vec<(Vec<String>, u32)>;

/// Whether one path is the other or above it: both cannot be leaves of a tree.
fn clash(one: &[String], two: &[String]) -> bool {
    one.starts_with(two) || two.starts_with(one)
}

fn path(names: &[String]) -> KeyPath {
    KeyPath::new(names.iter().cloned()).unwrap()
}

fn tree(flat: &Flat) -> Tree<u32> {
    Tree::from_leaves(flat.iter().map(|(names, leaf)| (path(names), *leaf))).unwrap()
}

fn list(tree: &Tree<u32>) -> Flat {
    tree.leaves()
        .into_iter()
        .map(|(path, leaf)| (path.names().to_vec(), *leaf))
        .collect()
}

fn sorted(mut flat: Flat) -> Flat {
    flat.sort();
    flat
}

fn names() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[abc.]{1,2}", 1..4)
}

/// Leaves that fit into one tree.
fn flat() -> impl Strategy<Value = Flat> {
    prop::collection::vec((names(), any::<u32>()), 0..12).prop_map(|all| {
        let mut kept: Flat = Vec::new();
        for (names, leaf) in all {
            if !kept.iter().any(|(other, _)| clash(other, &names)) {
                kept.push((names, leaf));
            }
        }
        kept
    })
}

proptest! {
    #[test]
    fn a_tree_holds_its_leaves(flat in flat()) {
        let tree = tree(&flat);
        prop_assert_eq!(sorted(list(&tree)), sorted(flat.clone()));
        for (names, _) in &flat {
            prop_assert!(tree.get(&path(names)).is_some());
        }
    }

    #[test]
    fn leaves_that_do_not_fit_are_reported(all in prop::collection::vec((names(), any::<u32>()), 0..8)) {
        let fits = all.iter().enumerate().all(|(i, (one, _))| all[..i].iter().all(|(two, _)| !clash(one, two)));
        let built = Tree::from_leaves(all.iter().map(|(names, leaf)| (path(names), *leaf)));
        prop_assert_eq!(built.is_ok(), fits);
        if let Err(error) = built {
            let collides = matches!(error, Error::KeyCollision { .. });
            prop_assert!(collides);
        }
    }

    #[test]
    fn flatten_joins_names_or_reports(flat in flat()) {
        let joined: Vec<String> = flat.iter().map(|(names, _)| names.join(".")).collect();
        let unique = joined.iter().enumerate().all(|(i, name)| !joined[..i].contains(name));
        match tree(&flat).flatten(".") {
            Ok(result) => {
                prop_assert!(unique);
                let expected = joined.into_iter().map(|name| vec![name]).zip(flat.iter().map(|(_, leaf)| *leaf)).collect();
                prop_assert_eq!(sorted(list(&result)), sorted(expected));
            }
            Err(Error::FlattenCollision { first, second, .. }) => {
                prop_assert!(!unique);
                prop_assert_ne!(first, second);
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        }
    }

    #[test]
    fn unflatten_undoes_flatten(flat in flat()) {
        // A separator that no name holds.
        let tree = tree(&flat);
        prop_assert_eq!(tree.clone().flatten("/").unwrap().unflatten("/").unwrap(), tree);
    }

    #[test]
    fn select_keeps_what_is_at_or_below_a_path(flat in flat(), wanted in prop::collection::vec(names(), 0..4)) {
        let paths: Vec<KeyPath> = wanted.iter().map(|names| path(names)).collect();
        let tree = tree(&flat);
        let expected: Flat = flat.iter().filter(|(names, _)| wanted.iter().any(|w| names.starts_with(w))).cloned().collect();
        prop_assert_eq!(sorted(list(&tree.select(&paths, false).unwrap())), sorted(expected));
        let missing = wanted.iter().any(|w| !flat.iter().any(|(names, _)| names.starts_with(w)));
        prop_assert_eq!(tree.select(&paths, true).is_err(), missing);
    }

    #[test]
    fn exclude_drops_what_is_at_or_below_a_path(flat in flat(), dropped in prop::collection::vec(names(), 0..4)) {
        let paths: Vec<KeyPath> = dropped.iter().map(|names| path(names)).collect();
        let expected: Flat = flat.iter().filter(|(names, _)| !dropped.iter().any(|d| names.starts_with(d))).cloned().collect();
        prop_assert_eq!(sorted(list(&tree(&flat).exclude(&paths))), sorted(expected));
    }

    #[test]
    fn split_is_select_and_exclude(flat in flat(), sets in prop::collection::vec(prop::collection::vec(names(), 0..3), 0..3)) {
        let paths: Vec<Vec<KeyPath>> = sets.iter().map(|set| set.iter().map(|names| path(names)).collect()).collect();
        let tree = tree(&flat);
        let disjoint = (0..sets.len()).all(|i| (0..i).all(|j| sets[i].iter().all(|a| sets[j].iter().all(|b| !clash(a, b)))));
        match tree.split(&paths, false) {
            Ok((parts, rest)) => {
                prop_assert!(disjoint);
                let together: Flat = parts.iter().chain([&rest]).flat_map(list).collect();
                prop_assert_eq!(sorted(together), sorted(flat));
                for (part, set) in parts.iter().zip(&paths) {
                    prop_assert_eq!(part, &tree.select(set, false).unwrap());
                }
            }
            Err(_) => prop_assert!(!disjoint),
        }
    }

    #[test]
    fn rename_moves_leaves(flat in flat(), picks in prop::collection::vec((any::<prop::sample::Index>(), names()), 0..3)) {
        prop_assume!(!flat.is_empty());
        let mut moves: Vec<(Vec<String>, Vec<String>)> = Vec::new();
        for (pick, new) in picks {
            let old = pick.get(&flat).0.clone();
            if !moves.iter().any(|(other, _)| *other == old) {
                moves.push((old, new));
            }
        }
        let expected: Flat = flat
            .iter()
            .map(|(names, leaf)| (moves.iter().find(|(old, _)| old == names).map_or(names, |(_, new)| new).clone(), *leaf))
            .collect();
        let fits = (0..expected.len()).all(|i| (0..i).all(|j| !clash(&expected[i].0, &expected[j].0)));
        let paths: Vec<(KeyPath, KeyPath)> = moves.iter().map(|(old, new)| (path(old), path(new))).collect();
        match tree(&flat).rename(&paths) {
            Ok(renamed) => {
                prop_assert!(fits);
                prop_assert_eq!(sorted(list(&renamed)), sorted(expected));
            }
            // A level that lost its last leaf still stands in the way of a leaf of its name.
            Err(Error::KeyCollision { .. }) => {
                let blocked = moves.iter().any(|(_, new)| flat.iter().any(|(names, _)| names.len() > new.len() && names.starts_with(new)));
                prop_assert!(!fits || blocked);
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        }
    }

    #[test]
    fn merge_is_the_union_or_names_both(one in flat(), two in flat()) {
        let fits = one.iter().all(|(a, _)| two.iter().all(|(b, _)| !clash(a, b)));
        match tree(&one).merge(&tree(&two)) {
            Ok(merged) => {
                prop_assert!(fits);
                prop_assert_eq!(sorted(list(&merged)), sorted([one, two].concat()));
            }
            Err(Error::KeyCollision { first, second }) => {
                prop_assert!(!fits);
                prop_assert!(one.iter().any(|(names, _)| path(names).to_string() == first));
                prop_assert!(two.iter().any(|(names, _)| path(names).to_string() == second));
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        }
    }

    #[test]
    fn diff_names_each_difference(one in flat(), two in flat()) {
        let compare = |a: &u32, b: &u32| (a != b).then(|| format!("{a} against {b}"));
        let (first, second) = (tree(&one), tree(&two));
        prop_assert!(first.diff(&first, &compare).is_empty());
        let found = first.diff(&second, &compare);
        prop_assert_eq!(found.is_empty(), sorted(list(&first)) == sorted(list(&second)));
        for difference in found {
            let (a, b) = (first.get(&difference.path), second.get(&difference.path));
            match difference.reason {
                Reason::OnlyFirst => prop_assert!(a.is_some() && b.is_none()),
                Reason::OnlySecond => prop_assert!(a.is_none() && b.is_some()),
                _ => prop_assert_ne!(a, b),
            }
        }
    }
}

#[test]
fn names_can_be_exchanged() {
    let (a, b) = (KeyPath::from("a"), KeyPath::from("b"));
    let tree = Tree::from_leaves([(a.clone(), 1), (b.clone(), 2)]).unwrap();
    let renamed = tree
        .rename(&[(a.clone(), b.clone()), (b.clone(), a.clone())])
        .unwrap();
    assert_eq!(renamed, Tree::from_leaves([(b, 1), (a, 2)]).unwrap());
}
