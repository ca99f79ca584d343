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

use tensordict_core::file::{SaveOptions, SavePlan, Stayed, Tensor, save};
use tensordict_core::key::KeyPath;
use tensordict_core::memmap::Map;
use tensordict_core::metadata::Naming;
use tensordict_core::reader::{Field, Leaf, Level, ReadOptions, read};
use tensordict_core::schema::DType;
use tensordict_core::tree::{Node, Tree};
use tensordict_core::{Error, Result};

/// Does to the numbers of a leaf, whatever their type, what `$body` does to those of the type `$number`.
macro_rules! by_type {
    ($dtype:expr, $number:ident, $body:expr, $other:expr) => {
        match $dtype {
            DType::F32 => by_type!(@ f32, $number, $body),
            DType::F64 => by_type!(@ f64, $number, $body),
            DType::I8 => by_type!(@ i8, $number, $body),
            DType::I16 => by_type!(@ i16, $number, $body),
            DType::I32 => by_type!(@ i32, $number, $body),
            DType::I64 => by_type!(@ i64, $number, $body),
            DType::U8 => by_type!(@ u8, $number, $body),
            _ => $other,
        }
    };
    (@ $type:ty, $number:ident, $body:expr) => {{
        type $number = $type;
        $body
    }};
}

/// The bytes of a leaf; none where it has no elements.
fn bytes(leaf: &Leaf) -> Vec<u8> {
    leaf.map.as_ref().map_or_else(Vec::new, Map::to_vec)
}

/// The sum of a leaf, or none where its type is no number here.
#[allow(clippy::cast_precision_loss, reason = "a sum that is shown")]
fn sum(leaf: &Leaf) -> Option<f64> {
    by_type!(
        leaf.schema.dtype,
        Number,
        Some(
            bytes(leaf)
                .as_chunks()
                .0
                .iter()
                .map(|chunk| Number::from_ne_bytes(*chunk) as f64)
                .sum::<f64>()
                + 0.0
        ),
        None
    )
}

/// The bytes of twice each number; those of a type that is no number here as they are.
fn doubled(leaf: &Leaf) -> Vec<u8> {
    by_type!(
        leaf.schema.dtype,
        Number,
        bytes(leaf)
            .as_chunks()
            .0
            .iter()
            .flat_map(|chunk| {
                let number = Number::from_ne_bytes(*chunk);
                (number + number).to_ne_bytes()
            })
            .collect(),
        bytes(leaf)
    )
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
                let sum = sum(leaf).map_or_else(|| "-".to_owned(), |sum| sum.to_string());
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
        Ok((leaf.schema.clone(), doubled(leaf)))
    })?;
    let tensors = twice.map(&mut Vec::clone, &mut |_, (schema, bytes)| {
        Ok(Tensor {
            schema: schema.clone(),
            bytes,
        })
    })?;
    let options = SaveOptions {
        stayed: Stayed::ALWAYS,
        naming: Naming::Robust,
        copy_existing: false,
        replace: true,
        durable: false,
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
