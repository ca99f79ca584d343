//! Saving and reading folders of leaves, in bytes per second, beside a plain copy of as many bytes.

#![allow(missing_docs, reason = "the macro of criterion makes a function without")]

use std::hint::black_box;
use std::path::Path;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tensordict_core::file::{SaveLeaf, SaveLevel, SaveOptions, SavePlan, Says, Source, Stayed, save};
use tensordict_core::metadata::{Metadata, Naming};
use tensordict_core::reader::{ReadOptions, read};
use tensordict_core::schema::{DType, LeafSchema};

const OPTIONS: SaveOptions<'static> = SaveOptions {
    stayed: Stayed::ALWAYS,
    naming: Naming::Robust,
    copy_existing: false,
    replace: true,
    durable: false,
};

fn plan(leaves: &[(String, Vec<u8>)]) -> SavePlan<'_> {
    let root = SaveLevel {
        parent: None,
        key: "".into(),
        kind: "TensorDict".into(),
        meta: Metadata::plain(Vec::new()),
        after: 0,
        files: Vec::new(),
    };
    SavePlan {
        levels: vec![root],
        leaves: leaves
            .iter()
            .map(|(key, bytes)| SaveLeaf {
                level: 0,
                key: key.as_str().into(),
                schema: LeafSchema {
                    dtype: DType::U8,
                    shape: vec![bytes.len() as u64],
                },
                source: Source::Bytes(bytes),
                origin: None,
                says: Says::Schema,
            })
            .collect(),
    }
}

fn clear(folder: &Path) {
    // it is not there the first time
    let _ = std::fs::remove_dir_all(folder);
}

/// `count` leaves of `bytes` bytes: a new folder, the same folder again, reading, and a copy in memory.
fn folder(criterion: &mut Criterion, count: usize, bytes: usize) {
    let Ok(place) = tempfile::tempdir() else { return };
    let path = place.path().join("data");
    let leaves: Vec<(String, Vec<u8>)> = (0..count).map(|at| (format!("k{at}"), vec![7; bytes])).collect();
    let mut group = criterion.benchmark_group(format!("{count} leaves of {bytes} B"));
    group.sample_size(10);
    group.throughput(Throughput::Bytes((count * bytes) as u64));
    group.bench_function("save", |bencher| {
        bencher.iter_batched(
            || {
                clear(&path);
                plan(&leaves)
            },
            |plan| black_box(save(&path, &plan, OPTIONS)).is_ok(),
            BatchSize::PerIteration,
        );
    });
    group.bench_function("save over", |bencher| {
        bencher.iter_batched(
            || plan(&leaves),
            |plan| black_box(save(&path, &plan, OPTIONS)).is_ok(),
            BatchSize::PerIteration,
        );
    });
    group.bench_function("load", |bencher| {
        bencher.iter(|| black_box(read(&path, "", ReadOptions::default())).is_ok());
    });
    let source = vec![7_u8; count * bytes];
    let mut target = vec![1_u8; count * bytes];
    group.bench_function("memcpy", |bencher| {
        bencher.iter(|| black_box(&mut target).copy_from_slice(black_box(&source)));
    });
    group.finish();
}

fn folders(criterion: &mut Criterion) {
    folder(criterion, 2_000, 1_024);
    folder(criterion, 100, 262_144);
    folder(criterion, 8, 16 << 20);
}

criterion_group!(benches, folders);
criterion_main!(benches);
