//! Carrying jobs out: all of them at once, cut into blocks of rows that the threads of the pool share.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::Job;
use crate::error::{Error, Result};
use crate::memmap::room;
use crate::schedule;

/// Fewer bytes than this are copied by the calling thread: one thread takes about 100 microseconds for random rows of
/// 128 bytes that are in the cache, and two took as long on two cores that had other work too. From here on the sources
/// may be cold, mapped files, where the waits of the threads overlap.
pub const PARALLEL_FROM: usize = 1024 * 1024;

/// Bytes of one block of rows: small enough to share out evenly, large enough that taking one is not noticed.
const BLOCK: usize = 128 * 1024;

/// A block of rows of one job, and where they go.
struct Block<'a> {
    job: &'a Job<'a>,
    rows: Range<usize>,
    target: &'a mut [MaybeUninit<u8>],
}

/// A job and the memory of its output.
type Task<'a> = (&'a Job<'a>, &'a mut [MaybeUninit<u8>]);

/// Bytes of all outputs, each of which has the length of its job.
fn checked(work: &[Task<'_>]) -> Result<usize> {
    let mut total = 0_usize;
    for (job, target) in work {
        if job.bytes() != target.len() {
            return Err(Error::RowsShort {
                wanted: job.bytes(),
                found: target.len(),
            });
        }
        total = total.saturating_add(target.len());
    }
    Ok(total)
}

fn run_checked(work: Vec<Task<'_>>) {
    for (job, target) in work {
        if !target.is_empty() {
            job.run(0..job.rows(), target);
        }
    }
}

/// [`run`] on the calling thread, however many bytes there are: for one that holds what others wait for, and so must not wait
/// for the threads of the pool.
///
/// # Errors
/// As [`run`].
pub fn run_here<'a>(work: impl IntoIterator<Item = Task<'a>>) -> Result<()> {
    let work: Vec<_> = work.into_iter().collect();
    checked(&work)?;
    run_checked(work);
    Ok(())
}

/// Carries out all jobs, each into its own output, which is then written from end to end. In parallel where the bytes
/// are worth it.
///
/// # Errors
/// Where an output has not the length of its job; nothing is written then.
pub fn run<'a>(work: impl IntoIterator<Item = Task<'a>>) -> Result<()> {
    let work: Vec<_> = work.into_iter().collect();
    let total = checked(&work)?;
    if total < PARALLEL_FROM || schedule::threads() == 1 {
        run_checked(work);
        return Ok(());
    }
    let mut blocks = Vec::new();
    for (job, target) in work {
        let bytes = job.row_bytes();
        if target.is_empty() {
            continue;
        }
        let step = (BLOCK / bytes).max(1);
        let pieces = target.chunks_mut(step * bytes).enumerate();
        blocks.extend(pieces.map(|(number, target)| Block {
            job,
            rows: number * step..number * step + target.len() / bytes,
            target,
        }));
    }
    schedule::for_each(
        blocks,
        || (),
        |(), block| {
            block.job.run(block.rows, block.target);
            Ok(())
        },
    )
}

/// Carries out all jobs as if their outputs lay one after the other, and hands each block of that to `sink`, with the number
/// of bytes before it. Blocks come in any order, from several threads where the bytes are worth it.
///
/// # Errors
/// The first one of `sink`, after which some blocks may be missing.
pub fn stream(jobs: &[Job<'_>], sink: impl Fn(u64, &[u8]) -> Result<()> + Sync) -> Result<()> {
    // Expanded leaves have any number of rows that lie nowhere.
    let steps = |job: &Job<'_>| (BLOCK / job.row_bytes().max(1)).max(1);
    let count = jobs.iter().map(|job| job.rows().div_ceil(steps(job)));
    let mut blocks = room(count.fold(0, usize::saturating_add))?;
    let mut offset = 0;
    for job in jobs {
        let (rows, bytes) = (job.rows(), job.row_bytes());
        if job.bytes() == 0 {
            continue;
        }
        let step = steps(job);
        for start in (0..rows).step_by(step) {
            let taken = start..rows.min(start + step);
            let at = offset;
            offset += (taken.len() * bytes) as u64;
            blocks.push((job, taken, at));
        }
    }
    let carry = |buffer: &mut Vec<u8>, (job, rows, at): (&Job<'_>, Range<usize>, u64)| {
        job.refill(rows, buffer)?;
        sink(at, buffer)
    };
    if offset < PARALLEL_FROM as u64 || schedule::threads() == 1 {
        let mut buffer = Vec::new();
        return blocks.into_iter().try_for_each(|block| carry(&mut buffer, block));
    }
    schedule::for_each(blocks, Vec::new, carry)
}
