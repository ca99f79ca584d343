//! The program of `examples/folder.rs`, as a program would use it.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and the program prints"
)]

#[path = "../examples/folder.rs"]
#[allow(dead_code, reason = "its `main` is not called")]
mod program;

use tensordict_core::file::{SaveOptions, SavePlan, Tensor, save};
use tensordict_core::memmap::Map;
use tensordict_core::reader::{Field, ReadOptions, read};
use tensordict_core::schema::{DType, LeafSchema};
use tensordict_core::tree::{Node, Tree};

fn tensor<'a>(dtype: DType, shape: &[u64], bytes: &'a [u8]) -> Node<Tensor<'a>, Vec<u64>> {
    let schema = LeafSchema {
        dtype,
        shape: shape.to_vec(),
    };
    Node::Leaf(Tensor { schema, bytes })
}

#[test]
fn numbers_are_doubled_and_the_tree_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let floats: Vec<u8> = [1.5f32, -2.0]
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect();
    let twice: Vec<u8> = [3f32, -4.0]
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect();
    let mut below = Tree::new(vec![2, 2]);
    below
        .push("bytes", tensor(DType::U8, &[2, 2], &[1, 2, 3, 4]))
        .unwrap();
    below
        .push("flags", tensor(DType::Bool, &[2, 2], &[1, 0, 0, 1]))
        .unwrap();
    let mut tree = Tree::new(vec![2]);
    tree.push("floats", tensor(DType::F32, &[2], &floats)).unwrap();
    tree.push("below", Node::Level(below)).unwrap();
    tree.push("none", tensor(DType::F32, &[2, 0], &[])).unwrap();
    let options = SaveOptions {
        replace: true,
        ..SaveOptions::default()
    };
    save(&from, &SavePlan::of(&tree), options).unwrap();
    program::run(&from, Some(&to)).unwrap();

    let found = read(&to, "", ReadOptions::default()).unwrap().by_key().unwrap();
    let leaves: Vec<_> = found
        .leaves()
        .into_iter()
        .map(|(path, field)| {
            let Field::Dense(leaf) = field else {
                panic!("{path} is ragged")
            };
            let bytes = leaf.map.as_ref().map(Map::to_vec);
            (
                path.to_string(),
                leaf.schema.dtype,
                leaf.schema.shape.clone(),
                bytes,
            )
        })
        .collect();
    let wanted = [
        ("\"floats\"".to_owned(), DType::F32, vec![2], Some(twice)),
        (
            "(\"below\", \"bytes\")".to_owned(),
            DType::U8,
            vec![2, 2],
            Some(vec![2, 4, 6, 8]),
        ),
        (
            "(\"below\", \"flags\")".to_owned(),
            DType::Bool,
            vec![2, 2],
            Some(vec![1, 0, 0, 1]),
        ),
        ("\"none\"".to_owned(), DType::F32, vec![2, 0], None),
    ];
    assert_eq!(leaves, wanted);
    let Some(Node::Level(below)) = found.get(&"below".into()) else {
        panic!("there is no level below")
    };
    assert_eq!(below.about().meta.shape.as_deref(), Some([2, 2].as_slice()));
}
