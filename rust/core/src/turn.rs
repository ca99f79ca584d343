//! Locks that a forked child does not inherit.
//!
//! A fork copies the memory of all threads and runs one of them: a lock that another thread held at that moment would stay
//! locked in the child for ever. A [`Turn`] belongs to the process that made it, by the number of the process and that of the
//! forks before it: a child in a namespace of its own, or a late one, may have the number of a process above it. The child leaves
//! what it inherited alone, locked or not, and makes its own.
#![allow(
    unsafe_code,
    reason = "a lock that is replaced while others may look at it is known by its address"
)]

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock, with what it guards, for each process that comes to it.
pub struct Turn<T: 'static> {
    current: AtomicPtr<Owned<T>>,
    fresh: fn() -> T,
}

/// How many forks there were, from process to process, that [`forked`] was told of.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// To be called in a child, where the calling thread is the only one.
pub fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

fn process() -> (u32, u64) {
    (std::process::id(), FORKS.load(Ordering::Relaxed))
}

/// The lock of one process. It is never freed: a thread of this process, or memory that a fork copied, may refer to it.
struct Owned<T> {
    process: (u32, u64),
    lock: Mutex<T>,
}

impl<T: Send> Turn<T> {
    /// Will guard what `fresh` makes, in each process anew.
    #[must_use]
    pub const fn new(fresh: fn() -> T) -> Self {
        Self {
            current: AtomicPtr::new(std::ptr::null_mut()),
            fresh,
        }
    }

    /// Waits for the threads of this process that have it, and has it until the guard is dropped. It must not be held where
    /// one waits for the thread pool, whose threads may want it.
    pub fn take(&'static self) -> MutexGuard<'static, T> {
        let process = process();
        loop {
            let current = self.current.load(Ordering::Acquire);
            // SAFETY: [leaked] the address is null or was published below, whole, and is never freed.
            if let Some(owned) = unsafe { current.as_ref() }
                && owned.process == process
            {
                return owned.lock.lock().unwrap_or_else(PoisonError::into_inner);
            }
            let made = Box::into_raw(Box::new(Owned {
                process,
                lock: Mutex::new((self.fresh)()),
            }));
            let published = self
                .current
                .compare_exchange(current, made, Ordering::AcqRel, Ordering::Acquire);
            if published.is_err() {
                // SAFETY: [leaked] it was not published: nobody else has the address.
                drop(unsafe { Box::from_raw(made) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static COUNT: Turn<u32> = Turn::new(|| 0);
    static MADE: Turn<u32> = Turn::new(|| 7);

    #[test]
    fn threads_take_turns() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        *COUNT.take() += 1;
                    }
                });
            }
        });
        assert_eq!(*COUNT.take(), 8000);
    }

    static AGAIN: Turn<u32> = Turn::new(|| 5);

    #[test]
    fn a_child_of_the_same_number_makes_its_own() {
        let held = AGAIN.take();
        forked(); // as if this process had the number of its parent
        assert_eq!(*AGAIN.take(), 5);
        assert_eq!(*held, 5);
    }

    #[test]
    fn what_another_process_holds_is_left_alone() {
        let inherited: &'static Owned<u32> = Box::leak(Box::new(Owned {
            process: (0, 0),
            lock: Mutex::new(1),
        }));
        let held = inherited.lock.lock();
        let address = std::ptr::from_ref(inherited).cast_mut();
        let before = MADE.current.swap(address, Ordering::AcqRel);
        assert!(before.is_null());
        assert_eq!(*MADE.take(), 7);
        *MADE.take() = 8;
        assert_eq!(*MADE.take(), 8);
        assert_eq!(held.map(|guard| *guard).ok(), Some(1));
    }
}
