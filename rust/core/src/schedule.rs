//! Parallel work: a thread pool of the crate's own, which survives a fork, and the cutting of work into tasks of
//! near-equal size.

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
