//! Trees against a naive version: a list of (names, leaf) in order.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use tensordict_core::Error;
use tensordict_core::key::KeyPath;
use tensordict_core::tree::{self, Node, Placed, Tree};

/// A tree of numbers whose levels say how deep they are.
type Numbers = Tree<u32, usize>;

/// Leaves at paths, in the order in which a tree has them.
type Flat = Vec<(Vec<String>, u32)>;

fn trees() -> impl Strategy<Value = Numbers> {
    let leaf = any::<u32>().prop_map(Node::Leaf);
    let node = leaf.prop_recursive(4, 24, 4, |below| {
        prop::collection::vec(("[ab./]{0,2}", below), 0..4).prop_map(|entries| Node::Level(level(entries)))
    });
    prop::collection::vec(("[ab./]{0,2}", node), 0..4).prop_map(level)
}

/// A level of the first entry of each name.
fn level(entries: Vec<(String, Node<u32, usize>)>) -> Numbers {
    let mut made = Tree::new(entries.len());
    for (name, node) in entries {
        let known = made.get(&KeyPath::from(name.as_str())).is_some();
        assert_eq!(made.push(name, node).is_err(), known);
    }
    made
}

fn list(tree: &Numbers, above: &[String], found: &mut Flat) {
    for (name, node) in tree.entries() {
        let path = [above, &[name.to_owned()]].concat();
        match node {
            Node::Leaf(leaf) => found.push((path, *leaf)),
            Node::Level(below) => list(below, &path, found),
        }
    }
}

struct Level(Option<usize>, String);

impl Placed for Level {
    fn parent(&self) -> Option<usize> {
        self.0
    }

    fn key(&self) -> &str {
        &self.1
    }
}

proptest! {
    #[test]
    fn leaves_come_with_their_paths(tree in trees()) {
        let mut wanted = Vec::new();
        list(&tree, &[], &mut wanted);
        let found: Flat = tree.leaves().into_iter().map(|(path, leaf)| (path.names().to_vec(), *leaf)).collect();
        prop_assert_eq!(&found, &wanted);
        for (path, leaf) in tree.leaves() {
            prop_assert_eq!(tree.get(&path), Some(&Node::Leaf(*leaf)));
            prop_assert_eq!(tree.get(&path.child("below")), None);
        }
        prop_assert_eq!(tree.get(&KeyPath::default()), None);
    }

    #[test]
    fn a_map_keeps_keys_and_levels(tree in trees()) {
        let same = tree.map(&mut |about| *about, &mut |_, leaf| Ok(*leaf)).unwrap();
        prop_assert_eq!(&same, &tree);
        let first = tree.leaves().first().map(|(path, _)| path.clone());
        let refused = tree.map(&mut |about| *about, &mut |_, _| Err::<u32, _>(Error::NoParts));
        match (refused, first) {
            (Err(Error::Key { key, source }), Some(path)) => {
                prop_assert_eq!(key, path);
                prop_assert!(matches!(*source, Error::NoParts));
            }
            (found, path) => prop_assert!(found.is_ok() && path.is_none()),
        }
    }

    #[test]
    fn levels_of_a_list_have_the_paths_of_their_parents(parents in prop::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        let mut levels = vec![Level(None, String::new())];
        let mut paths = vec![KeyPath::default()];
        for (number, parent) in parents.iter().enumerate() {
            let parent = parent.index(levels.len());
            let name = format!("k{number}");
            paths.push(paths[parent].child(&name));
            levels.push(Level(Some(parent), name));
        }
        for (number, path) in paths.iter().enumerate() {
            prop_assert_eq!(&tree::path(&levels, number), path);
        }
    }
}

#[test]
fn two_entries_of_one_name_collide() {
    let mut tree = Numbers::new(0);
    tree.push("a", Node::Leaf(1)).unwrap();
    let again = tree.push("a", Node::Level(Numbers::new(1)));
    assert!(matches!(again, Err(Error::KeyCollision { first, .. }) if first == KeyPath::from("a")));
    assert_eq!(tree.leaves(), [(KeyPath::from("a"), &1)]);
}
