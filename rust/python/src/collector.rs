//! Python's garbage collector, held back where thousands of objects are made that all stay.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// How many threads, or functions within each other, hold the collector back. It is one for the whole process.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The threshold of before.
static BEFORE: AtomicI64 = AtomicI64::new(0);
/// More objects than are made in one go. No program sets this threshold, so that one that was set meanwhile is told from it.
const NEVER: i64 = 2_147_483_549;

/// As long as somebody is inside, the collector does not start by itself: it would walk over all that was made so far and find
/// nothing to free. Meant for what takes milliseconds, and makes many objects.
///
/// Used in `with`, by any number of threads. Neither entering nor leaving can be interrupted by a signal. What the program
/// itself turns, be it on, off or to another threshold, stays as the program turned it.
// All of it runs with the GIL held. Where a collection runs code of the program, nothing has been looked at yet.
#[pyclass(frozen, module = "tensordict._core")]
pub(crate) struct CollectorPause {
    threshold: Py<PyAny>,
    set_threshold: Py<PyAny>,
    never: Py<PyTuple>,
}

impl CollectorPause {
    fn threshold(&self, py: Python<'_>) -> PyResult<i64> {
        self.threshold.bind(py).call0()?.get_item(0)?.extract()
    }

    /// Puts the threshold back, unless the program has set another one.
    fn restore(&self, py: Python<'_>, found: i64) -> PyResult<()> {
        if found == NEVER {
            self.set_threshold.call1(py, (BEFORE.load(Ordering::Relaxed),))?;
        }
        Ok(())
    }
}

#[pymethods]
impl CollectorPause {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let gc = py.import("gc")?;
        let made = Self {
            threshold: gc.getattr("get_threshold")?.unbind(),
            set_threshold: gc.getattr("set_threshold")?.unbind(),
            never: PyTuple::new(py, [NEVER])?.unbind(),
        };
        BEFORE.store(made.threshold(py)?, Ordering::Relaxed);
        Ok(made)
    }

    /// Holds the collector back.
    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        if COUNT.load(Ordering::Relaxed) == 0 {
            let found = self.threshold(py)?;
            if COUNT.load(Ordering::Relaxed) == 0 {
                if found != NEVER {
                    BEFORE.store(found, Ordering::Relaxed);
                }
                self.set_threshold.bind(py).call(self.never.bind(py), None)?;
            }
        }
        COUNT.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Lets it go on, if nobody else holds it back.
    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        match COUNT.load(Ordering::Relaxed) {
            // A forked child leaves what its parent entered.
            0 => Ok(()),
            1 => {
                COUNT.store(0, Ordering::Relaxed);
                self.threshold(py).and_then(|found| self.restore(py, found))
            }
            count => {
                COUNT.store(count - 1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Lets it go on in a forked child, where none of the other threads goes on.
    fn forget(&self, py: Python<'_>) -> PyResult<()> {
        COUNT.store(0, Ordering::Relaxed);
        self.threshold(py).and_then(|found| self.restore(py, found))
    }
}
