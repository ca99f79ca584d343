//! Parallel work: a thread pool of the crate's own, which survives a fork, and the cutting of work into tasks of
//! near-equal size.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// The pool of the process that made it.
struct Pool {
    process: u32,
    threads: Arc<rayon::ThreadPool>,
}

static POOL: Mutex<Option<Pool>> = Mutex::new(None);

/// Number of threads that parallel work uses: `TD_NUM_THREADS`, else the cores that this process may run on.
#[must_use]
pub fn threads() -> usize {
    let wanted = std::env::var("TD_NUM_THREADS")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    match wanted {
        Some(number) if number > 0 => number,
        _ => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
    }
}

/// The pool of this process, made on first use. A forked child inherits a pool whose threads do not exist; it gets a
/// new one, and the inherited one is leaked, since dropping it would wait for its threads.
fn pool() -> Option<Arc<rayon::ThreadPool>> {
    let mut slot = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some(pool) = slot.as_ref()
        && pool.process == process
    {
        return Some(Arc::clone(&pool.threads));
    }
    if let Some(inherited) = slot.take() {
        std::mem::forget(inherited);
    }
    let threads = rayon::ThreadPoolBuilder::new()
        .num_threads(threads())
        .thread_name(|index| format!("tensordict-{index}"))
        .build()
        .ok()?;
    let threads = Arc::new(threads);
    *slot = Some(Pool {
        process,
        threads: Arc::clone(&threads),
    });
    Some(threads)
}

/// Runs `work` inside the pool, so that rayon's parallel iterators in it use the pool's threads. Where no pool can be
/// made (the system refuses threads) the work runs on the calling thread.
pub fn install<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    match pool() {
        Some(threads) => threads.install(work),
        None => work(),
    }
}

/// Number of files that all threads together have open where they open many: few beside the usual limit of 1024.
const OPEN_FILES: usize = 256;

/// Number of files that one thread opens before it goes on with them.
pub(crate) fn open_files() -> usize {
    (OPEN_FILES / threads()).clamp(1, 64)
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
