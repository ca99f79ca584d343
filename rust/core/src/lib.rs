//! Key trees, schemas, mapped files, row copies and scheduling for dictionaries of tensors.
//!
//! The crate knows neither Python nor torch: a tensor is an address, a shape and a [`schema::DType`] to it, and a
//! dictionary of tensors is a tree of named leaves. One subject is one module.
pub mod balance;
pub mod consolidated;
pub mod error;
pub mod file;
pub mod folder;
mod fresh;
mod journal;
pub mod key;
pub mod layout;
pub mod memmap;
pub mod metadata;
mod owned;
pub mod ragged;
pub mod reader;
pub mod rows;
pub mod schedule;
pub mod schema;
mod transaction;
pub mod tree;
pub mod turn;
mod whole;
mod writer;

pub use error::{Error, Result};
