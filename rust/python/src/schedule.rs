//! Balance: costs into parts of near-equal sums, lengths into runs under a budget.

use pyo3::prelude::*;
use tensordict_core::balance;

use crate::enter::enter;
use crate::once::warm_up;

/// Bytes of work that one cost stands for, when it is decided whether the GIL is released.
const PER_COST: u64 = 512;

fn bytes(costs: &[u64]) -> u64 {
    costs.len() as u64 * PER_COST
}

/// Reads `TD_NUM_THREADS`, once, while the GIL is held, under which `os.environ` changes it, and makes what may not be made
/// while another thread forks: called when the package is imported. A later change is not seen.
#[pyfunction]
pub(crate) fn prepare(py: Python<'_>) {
    tensordict_core::schedule::prepare();
    warm_up(py);
}

/// Deals costs, longest first, each to the part that has the least so far: the indices of each part, rising.
///
/// The largest sum is at most 4/3 of the best possible one.
#[pyfunction]
pub(crate) fn partition_greedy(py: Python<'_>, costs: Vec<u64>, parts: usize) -> PyResult<Vec<Vec<usize>>> {
    enter(py, bytes(&costs), move || {
        balance::partition_greedy(&costs, parts)
    })
}

/// Partitions costs by the largest differencing method of Karmarkar and Karp: the indices of each part, rising.
///
/// Mostly nearer to equal than `partition_greedy`, and slower.
#[pyfunction]
pub(crate) fn partition_kk(py: Python<'_>, costs: Vec<u64>, parts: usize) -> PyResult<Vec<Vec<usize>>> {
    enter(py, bytes(&costs), move || balance::partition_kk(&costs, parts))
}

/// Cuts a sequence of lengths into the longest runs `(start, stop)` whose sums keep within the budget. A length above the
/// budget is a run of its own.
#[pyfunction]
pub(crate) fn runs_under(py: Python<'_>, lengths: Vec<u64>, budget: u64) -> PyResult<Vec<(usize, usize)>> {
    enter(py, bytes(&lengths), move || {
        let runs = balance::runs_under(&lengths, budget);
        Ok(runs.into_iter().map(|run| (run.start, run.end)).collect())
    })
}
