//! Parallel work: a thread pool of the crate's own, which survives a fork, and the cutting of work into tasks of
//! near-equal size.
//!
//! Only this file names rayon. Its parallel iterators would use the pool of the thread that runs them, and outside of a
//! pool one for the whole process: that one is not made again after a fork, and where the system refuses threads it
//! panics. So the loops here enter the pool of this process themselves, and run one step after the other where there is
//! none.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rayon::prelude::*;

use crate::Result;
use crate::turn::Turn;

/// What this process has for parallel work.
#[derive(Default)]
struct Shared {
    /// Once it was asked for.
    threads: Option<usize>,
    pool: Option<Arc<rayon::ThreadPool>>,
}

/// Held while a pool is made, and for a moment otherwise. A child finds nothing here and makes its own pool; the inherited
/// one, whose threads do not exist, is never dropped, which would wait for them.
static SHARED: Turn<Shared> = Turn::new(Shared::default);

/// What `TD_NUM_THREADS` said: zero where it said nothing.
static WANTED: AtomicUsize = AtomicUsize::new(UNREAD);
const UNREAD: usize = usize::MAX;
/// More threads than this are never made, whatever is asked for.
const MOST_THREADS: usize = 1024;
/// What Rust gives threads. Said explicitly, so that the environment is not asked.
const STACK_BYTES: usize = 2 << 20;

/// Reads `TD_NUM_THREADS` and makes what the pool needs once. It is done on first use; a program that changes its
/// environment by other means than Rust's, while it has several threads, does it before.
pub fn prepare() {
    let wanted = std::env::var("TD_NUM_THREADS")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    WANTED.store(usize::min(wanted, MOST_THREADS), Ordering::Relaxed);
    // The threads of a pool share a collector of memory, which the first of them makes: a fork at that moment would leave
    // the child with one that is never finished.
    crossbeam_epoch::default_collector();
}

impl Shared {
    fn threads(&mut self) -> usize {
        *self.threads.get_or_insert_with(|| {
            if WANTED.load(Ordering::Relaxed) == UNREAD {
                prepare();
            }
            match WANTED.load(Ordering::Relaxed) {
                0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
                wanted => wanted,
            }
        })
    }

    /// Made on first use; `None` where the system refuses threads, which is asked again next time.
    fn pool(&mut self) -> Option<&Arc<rayon::ThreadPool>> {
        if self.pool.is_none() {
            self.pool = rayon::ThreadPoolBuilder::new()
                .num_threads(self.threads())
                .stack_size(STACK_BYTES)
                .thread_name(|index| format!("tensordict-{index}"))
                .build()
                .ok()
                .map(Arc::new);
        }
        self.pool.as_ref()
    }
}

/// Number of threads that parallel work uses: what `TD_NUM_THREADS` says, else the cores that this process may run on. Both
/// are looked at once in a process.
#[must_use]
pub fn threads() -> usize {
    SHARED.take().threads()
}

/// The pool; `None` where one thread is enough, or the system refuses more.
fn pool() -> Option<Arc<rayon::ThreadPool>> {
    let mut shared = SHARED.take();
    if shared.threads() < 2 {
        return None;
    }
    shared.pool().cloned()
}

/// Runs `work` inside the pool, where the loops of this module start at once. Where there is no pool it runs on the calling
/// thread. Work that waits for others, as for the lock of a folder, does not belong here: it would keep a thread from all
/// other work, and a thread that waits for its own loop takes up other work meanwhile, on top of what it holds.
pub fn install<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    match pool() {
        Some(threads) => threads.install(work),
        None => work(),
    }
}

/// What `work` makes of each item, in their order, by all threads. A thread takes at least `least` items.
///
/// # Errors
/// One of those of `work`.
pub(crate) fn map<T: Sync, R: Send>(
    items: &[T],
    least: usize,
    work: impl Fn(&T) -> Result<R> + Sync + Send,
) -> Result<Vec<R>> {
    if items.len() > least
        && let Some(threads) = pool()
    {
        return threads.install(|| items.par_iter().with_min_len(least).map(work).collect());
    }
    items.iter().map(work).collect()
}

/// Calls `work` with each item, by all threads, each of which has a state that `start` makes.
///
/// # Errors
/// One of those of `work`, after which some items may be left out.
pub(crate) fn for_each<T: Send, S>(
    items: Vec<T>,
    start: impl Fn() -> S + Sync + Send,
    work: impl Fn(&mut S, T) -> Result<()> + Sync + Send,
) -> Result<()> {
    if items.len() > 1
        && let Some(threads) = pool()
    {
        return threads.install(|| items.into_par_iter().try_for_each_init(start, work));
    }
    let mut state = start();
    items.into_iter().try_for_each(|item| work(&mut state, item))
}

/// Number of files that all threads together have open where they open many: few beside the usual limit of 1024.
const OPEN_FILES: usize = 256;

/// Number of files that one thread opens before it goes on with them.
fn open_files() -> usize {
    (OPEN_FILES / threads()).clamp(1, 64)
}

/// Cuts a run of files into those that one thread opens together.
pub(crate) fn runs(files: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let (end, most) = (files.end, open_files());
    files
        .step_by(most)
        .map(move |start| start..end.min(start.saturating_add(most)))
}

/// How often, a few milliseconds apart, a file is opened while others of this process have the descriptors.
const PATIENCE: u32 = 50;

/// Held by the caller that has found no descriptor free, and does with one at a time.
static ONE_BY_ONE: Turn<()> = Turn::new(|| ());

/// Calls `work`, again where there was no descriptor for it: loops of other threads that took them end.
fn patiently<R>(work: impl Fn() -> Result<R>) -> Result<R> {
    for _ in 1..PATIENCE {
        match work() {
            Err(error) if error.is_out_of_descriptors() => std::thread::sleep(Duration::from_millis(2)),
            done => return done,
        }
    }
    work()
}

/// What `open` makes of the items, from the first on, until there are no descriptors left. Whoever calls this closes those
/// before it goes on.
///
/// # Errors
/// One of those of `open`, also where the first item finds no descriptor.
pub(crate) fn as_many_as_open<T, R>(items: &[T], open: impl Fn(&T) -> Result<R>) -> Result<Vec<R>> {
    let mut opened = Vec::with_capacity(items.len());
    for item in items {
        match open(item) {
            Ok(one) => opened.push(one),
            Err(error) if error.is_out_of_descriptors() && !opened.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(opened)
}

/// What `work` makes of the files of each run, in their order, by all threads. It takes as many of a run as it can, from the
/// first on, and has none open when it returns. Runs for which there were no descriptors, as other threads had them, are
/// gone on with when those are done.
///
/// # Errors
/// One of those of `work`.
pub(crate) fn map_runs<R: Send>(
    runs: &[Range<usize>],
    work: impl Fn(Range<usize>) -> Result<Vec<R>> + Sync + Send,
) -> Result<Vec<R>> {
    let done = map(runs, 1, |run| {
        let (mut results, mut rest) = (Vec::new(), run.clone());
        while !rest.is_empty() {
            match work(rest.clone()) {
                Ok(more) => {
                    rest.start += more.len();
                    results.extend(more);
                }
                Err(error) if error.is_out_of_descriptors() => break,
                Err(error) => return Err(error),
            }
        }
        Ok((results, rest))
    })?;
    let mut all = Vec::with_capacity(runs.iter().map(ExactSizeIterator::len).sum());
    for (results, mut rest) in done {
        all.extend(results);
        while !rest.is_empty() {
            let _turn = ONE_BY_ONE.take();
            let more = patiently(|| work(rest.clone()))?;
            rest.start += more.len();
            all.extend(more);
        }
    }
    Ok(all)
}

/// As [`map`], where `work` opens a file at a time and can be done again: without descriptors for all threads the items are
/// taken one after the other.
///
/// # Errors
/// One of those of `work`.
pub(crate) fn map_opening<T: Sync, R: Send>(
    items: &[T],
    least: usize,
    work: impl Fn(&T) -> Result<R> + Sync + Send,
) -> Result<Vec<R>> {
    match map(items, least, &work) {
        Err(error) if error.is_out_of_descriptors() => {
            let _turn = ONE_BY_ONE.take();
            items.iter().map(|item| patiently(|| work(item))).collect()
        }
        done => done,
    }
}

/// A stretch of one item of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Which item.
    pub item: usize,
    /// Which of its units, bytes or rows.
    pub range: Range<u64>,
}

/// Cuts items of the given sizes, laid end to end, into tasks whose sizes differ by at most one unit. Large items are cut
/// into pieces, small ones share a task. There are `parts` tasks, or fewer where there are fewer units than that.
#[must_use]
pub fn tasks(sizes: &[u64], parts: usize) -> Vec<Vec<Piece>> {
    let total: u128 = sizes.iter().map(|&size| u128::from(size)).sum();
    let parts = (parts.max(1) as u128).min(total);
    let mut tasks = Vec::new();
    let (mut item, mut done) = (0, 0_u64);
    for part in 0..parts {
        let mut room = total / parts + u128::from(part < total % parts);
        let mut task = Vec::new();
        while room > 0 && item < sizes.len() {
            let left = sizes[item] - done;
            let taken = u64::try_from(room).map_or(left, |room| room.min(left));
            if taken > 0 {
                task.push(Piece {
                    item,
                    range: done..done + taken,
                });
            }
            room -= u128::from(taken);
            done += taken;
            if done == sizes[item] {
                (item, done) = (item + 1, 0);
            }
        }
        tasks.push(task);
    }
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn loops_inside_of_loops_end() -> Result<()> {
        let outer: Vec<u64> = (0..64).collect();
        let sums = install(|| {
            map(&outer, 1, |first| {
                let inner: Vec<u64> = (0..100).collect();
                install(|| map(&inner, 1, |second| Ok(first * second))).map(|all| all.iter().sum::<u64>())
            })
        })?;
        assert_eq!(sums, outer.iter().map(|first| first * 4950).collect::<Vec<_>>());
        Ok(())
    }

    #[test]
    fn an_error_ends_a_loop() {
        let items: Vec<u64> = (0..1000).collect();
        let refuse = |number: u64| {
            if number == 500 {
                Err(Error::NoParts)
            } else {
                Ok(())
            }
        };
        assert!(map(&items, 1, |number| refuse(*number)).is_err());
        assert!(for_each(items, || (), |(), number| refuse(number)).is_err());
    }
}
