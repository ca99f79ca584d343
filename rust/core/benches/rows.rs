//! Gathering and stacking rows and packing leaves, in bytes per second, beside a plain copy of as many bytes.

#![allow(missing_docs, reason = "the macro of criterion makes a function without")]

use std::hint::black_box;
use std::mem::MaybeUninit;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tensordict_core::consolidated::Pack;
use tensordict_core::rows::{Gather, Job, Join, Layout, Positions, Source, run};

const FLOAT: usize = 4;

/// Distinct bytes, so that no page of them is the zero page.
fn leaf(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// Row numbers that jump about, each once.
fn shuffled(rows: usize, taken: usize) -> Vec<i64> {
    let row = |at| i64::try_from(at * 48_271 % rows).ok();
    (0..taken).filter_map(row).collect()
}

fn targets(jobs: &[Job<'_>]) -> Vec<Vec<MaybeUninit<u8>>> {
    jobs.iter()
        .map(|job| vec![MaybeUninit::new(1); job.bytes()])
        .collect()
}

fn measure(criterion: &mut Criterion, name: &str, jobs: &[Job<'_>]) {
    let mut targets = targets(jobs);
    let bytes: usize = targets.iter().map(Vec::len).sum();
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function("rows", |bencher| {
        bencher.iter(|| run(jobs.iter().zip(targets.iter_mut().map(Vec::as_mut_slice))));
    });
    let source = leaf(bytes);
    let mut target = vec![1; bytes];
    group.bench_function("memcpy", |bencher| {
        bencher.iter(|| black_box(&mut target).copy_from_slice(black_box(&source)));
    });
    group.finish();
}

/// `taken` rows of `width` floats out of each of `leaves` leaves of `rows` rows.
fn gather(criterion: &mut Criterion, name: &str, leaves: usize, rows: usize, width: usize, taken: usize) {
    let Ok(layout) = Layout::contiguous(FLOAT, &[rows, width]) else {
        return;
    };
    let data: Vec<Vec<u8>> = (0..leaves).map(|_| leaf(layout.bytes())).collect();
    let Ok(positions) = Positions::from_index(shuffled(rows, taken), 0, rows) else {
        return;
    };
    let jobs: Vec<Job<'_>> = data
        .iter()
        .filter_map(|bytes| {
            Some(
                Gather::along(&Source::new(bytes, layout).ok()?, 0, &positions)
                    .ok()?
                    .into(),
            )
        })
        .collect();
    measure(criterion, name, &jobs);
}

/// `count` leaves of `[3, width]` floats to one, for each of `leaves` leaves.
fn stack(criterion: &mut Criterion, name: &str, leaves: usize, count: usize, width: usize) {
    let Some(layout) = Layout::contiguous(FLOAT, &[3, width])
        .ok()
        .and_then(|layout| layout.unsqueezed(0))
    else {
        return;
    };
    let data: Vec<Vec<u8>> = (0..leaves * count).map(|_| leaf(layout.bytes())).collect();
    let jobs: Vec<Job<'_>> = data
        .chunks(count)
        .map(|column| {
            let mut join = Join::along(0, count);
            for bytes in column {
                if join.push(bytes, &layout).is_err() {
                    break;
                }
            }
            join.into()
        })
        .collect();
    measure(criterion, name, &jobs);
}

/// Packing `count` leaves of `bytes` bytes into one buffer.
fn pack(criterion: &mut Criterion, name: &str, count: usize, bytes: usize) {
    let Ok(layout) = Layout::contiguous(1, &[bytes]) else {
        return;
    };
    let data: Vec<Vec<u8>> = (0..count).map(|_| leaf(bytes)).collect();
    let sources: Vec<Source<'_>> = data
        .iter()
        .filter_map(|bytes| Source::new(bytes, layout).ok())
        .collect();
    let mut target = vec![MaybeUninit::new(1); count * bytes];
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Bytes((count * bytes) as u64));
    group.bench_function("pack", |bencher| {
        bencher.iter(|| Pack::new(&sources).and_then(|pack| pack.copy_to(black_box(&mut target))));
    });
    group.finish();
}

fn rows(criterion: &mut Criterion) {
    gather(
        criterion,
        "gather 2 of 3 rows of 4 floats, 100 leaves",
        100,
        3,
        4,
        2,
    );
    gather(
        criterion,
        "gather 1024 of 50000 rows of 32 floats, 10 leaves",
        10,
        50_000,
        32,
        1024,
    );
    gather(
        criterion,
        "gather 50000 rows of 256 floats",
        1,
        50_000,
        256,
        50_000,
    );
    stack(criterion, "stack 100 of [3, 4] floats, 10 leaves", 10, 100, 4);
    stack(
        criterion,
        "stack 100 of [3, 4096] floats, 10 leaves",
        10,
        100,
        4096,
    );
    pack(criterion, "pack 2000 leaves of 1 kB", 2000, 1024);
    pack(criterion, "pack 100 leaves of 256 kB", 100, 256 << 10);
    pack(criterion, "pack 8 leaves of 16 MB", 8, 16 << 20);
}

criterion_group!(benches, rows);
criterion_main!(benches);
