//! Parameters of a module, exchanged for those of a tensordict and put back: a plan of dict slots.
//!
//! `swap_in` walks the tensordict and the module together, checks everything and notes each slot; only then it writes.
//! `swap_out` goes through the notes. Neither goes through `Module.__setattr__`.

mod end;
mod fields;
mod names;
mod plan;
mod walk;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use self::end::{Faults, restore};
pub(crate) use self::fields::module_fields;
use self::names::Names;
use self::plan::{Live, Plan};
use self::walk::Planner;

/// The slots of a module that hold the values of a tensordict for a while.
///
/// No code of Python runs while the lock is held: what it guards is taken out, for good, or a reference to it is. So several
/// threads may read the old values while one ends the swap, which the first that comes does.
#[pyclass(frozen, module = "tensordict._core")]
pub(crate) struct Swap {
    state: Mutex<State>,
}

struct State {
    plan: Option<Arc<Plan>>,
    live: Option<Live>,
}

impl Swap {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plan(&self) -> PyResult<Arc<Plan>> {
        let plan = self.lock().plan.clone();
        plan.ok_or_else(|| PyRuntimeError::new_err("the collector has cleared this swap"))
    }
}

#[pymethods]
impl Swap {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(state) = self.state.try_lock() else {
            return Ok(());
        };
        if let Some(plan) = &state.plan {
            plan.visit(&visit)?;
        }
        if let Some(live) = &state.live {
            live.visit(&visit)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        let (plan, live) = {
            let mut state = self.lock();
            (state.plan.take(), state.live.take())
        };
        drop((plan, live));
    }
}

/// Puts the leaves of a tensordict into a module and notes what was there. Nothing is written unless all has a place.
///
/// With `preserve` parameters stay parameters (plain tensors without a graph are wrapped) and buffers stay buffers.
#[pyfunction]
pub(crate) fn swap_in(node: &Bound<'_, PyAny>, module: &Bound<'_, PyAny>, preserve: bool) -> PyResult<Swap> {
    let py = node.py();
    let names = Names::get(py)?;
    let (plan, mut live) = Planner::new(py, names, preserve)?.plan(node, module)?;
    let mut faults = Faults::default();
    if faults.note(plan.write(py, &mut live)).is_none() {
        restore(py, &plan, live, names, &mut faults);
        faults.finish(py)?;
        live = Live::default();
    }
    Ok(Swap {
        state: Mutex::new(State {
            plan: Some(Arc::new(plan)),
            live: Some(live),
        }),
    })
}

/// Puts back what the module had, also where entries were replaced or removed meanwhile; once.
#[pyfunction]
pub(crate) fn swap_out(py: Python<'_>, swap: &Swap) -> PyResult<()> {
    let names = Names::get(py)?;
    let plan = swap.plan()?;
    let Some(live) = swap.lock().live.take() else {
        return Ok(());
    };
    let mut faults = Faults::default();
    restore(py, &plan, live, names, &mut faults);
    faults.finish(py)
}

/// The values that the module had, as the fields of a tensordict with the tree of the one that was swapped in.
#[pyfunction]
pub(crate) fn swap_values<'py>(py: Python<'py>, swap: &Swap) -> PyResult<Bound<'py, PyDict>> {
    swap.plan()?.old_values(py, Names::get(py)?)
}
