//! Opens the folder of a tensordict, prints its tree, sums its leaves, and writes another folder in which each number is
//! doubled.
//!
//! ```text
//! cargo run --example folder -- FOLDER [OUT]
//! ```
//!
//! The folder may be of either package: `tensordict.memmap(FOLDER)` writes it, `TensorDict.load_memmap(OUT)` reads the other.
#![allow(clippy::print_stdout, reason = "that is what the program is for")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tensordict_core::file::{SaveOptions, SavePlan, Tensor, save};
use tensordict_core::key::KeyPath;
use tensordict_core::memmap::Map;
use tensordict_core::reader::{Field, Leaf, Level, ReadOptions, read};
use tensordict_core::schema::DType;
use tensordict_core::tree::{Node, Tree};
use tensordict_core::{Error, Result};

/// The sum of the numbers of `size` bytes, and the bytes of twice each of them.
fn numbers(bytes: &[u8], size: usize, read: impl Fn(&[u8]) -> Option<(f64, Vec<u8>)>) -> (f64, Vec<u8>) {
    let found = bytes.chunks_exact(size).filter_map(read);
    found.fold(
        (0.0, Vec::with_capacity(bytes.len())),
        |(sum, mut all), (number, twice)| {
            all.extend(twice);
            (sum + number, all)
        },
    )
}

/// [`numbers`] of a type, each as a float by `$float` and twice by `$twice`.
macro_rules! numbers_of {
    ($type:ty, $bytes:expr, $float:expr, $twice:expr) => {
        numbers($bytes, size_of::<$type>(), |chunk| {
            let number = <$type>::from_ne_bytes(chunk.try_into().ok()?);
            Some(($float(number), $twice(number).to_ne_bytes().to_vec()))
        })
    };
}

/// The sum of a leaf, and the bytes of twice each number; of a type that is no number here no sum, and the bytes as they are.
#[allow(clippy::cast_precision_loss, reason = "a sum that is shown")]
fn sum_and_twice(leaf: &Leaf) -> (Option<f64>, Vec<u8>) {
    let bytes = leaf.map.as_ref().map_or_else(Vec::new, Map::to_vec);
    let (sum, twice) = match leaf.schema.dtype {
        DType::F32 => numbers_of!(f32, &bytes, f64::from, |number: f32| number + number),
        DType::F64 => numbers_of!(f64, &bytes, f64::from, |number: f64| number + number),
        DType::I32 => numbers_of!(i32, &bytes, f64::from, |number: i32| number.wrapping_mul(2)),
        DType::I64 => numbers_of!(i64, &bytes, |number| number as f64, |number: i64| number
            .wrapping_mul(2)),
        DType::U8 => numbers_of!(u8, &bytes, f64::from, |number: u8| number.wrapping_mul(2)),
        _ => return (None, bytes),
    };
    (Some(sum), twice)
}

fn dense<'a>(path: &KeyPath, field: &'a Field) -> Result<&'a Leaf> {
    match field {
        Field::Dense(leaf) => Ok(leaf),
        Field::Ragged(ragged) => Err(Error::UnknownDType {
            name: format!("{path}, a ragged tensor of {}", ragged.schema.dtype.name()),
        }),
    }
}

fn batch_size(level: &Level) -> Vec<u64> {
    level.meta.shape.clone().unwrap_or_default()
}

/// Prints each entry: its keys, and what it is.
fn show(tree: &Tree<Field, Level>, above: &KeyPath) -> Result<()> {
    println!("{above} batch_size={:?}", batch_size(tree.about()));
    for (name, node) in tree.entries() {
        let path = above.child(name);
        match node {
            Node::Leaf(field) => {
                let leaf = dense(&path, field)?;
                let sum = sum_and_twice(leaf)
                    .0
                    .map_or_else(|| "-".to_owned(), |sum| sum.to_string());
                println!(
                    "{path} {} {:?} sum={sum}",
                    leaf.schema.dtype.name(),
                    leaf.schema.shape
                );
            }
            Node::Level(below) => show(below, &path)?,
        }
    }
    Ok(())
}

pub(crate) fn run(folder: &Path, out: Option<&Path>) -> Result<()> {
    let tree = read(folder, "", ReadOptions::default())?.by_key()?;
    show(&tree, &KeyPath::default())?;
    let Some(out) = out else {
        return Ok(());
    };
    let twice = tree.map(&mut batch_size, &mut |path, field| {
        let leaf = dense(path, field)?;
        Ok((leaf.schema.clone(), sum_and_twice(leaf).1))
    })?;
    let tensors = twice.map(&mut Vec::clone, &mut |_, (schema, bytes)| {
        Ok(Tensor {
            schema: schema.clone(),
            bytes,
        })
    })?;
    let options = SaveOptions {
        replace: true,
        ..SaveOptions::default()
    };
    save(out, &SavePlan::of(&tensors), options).map(drop)
}

fn main() -> ExitCode {
    let mut given = std::env::args_os().skip(1).map(PathBuf::from);
    let Some(folder) = given.next() else {
        println!("folder FOLDER [OUT]");
        return ExitCode::FAILURE;
    };
    match run(&folder, given.next().as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}
