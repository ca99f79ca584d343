//! Long work on tensors whose memory another thread may exchange meanwhile.

use pyo3::prelude::*;
use tensordict_core::Error;
use tensordict_core::file::Stayed;

use crate::error::raise;
use crate::tensor::starts;

/// How often work is begun while another thread gives tensors other memory.
const ATTEMPTS: usize = 8;

/// Calls `work`, which reads `tensors` and asks whether they stayed where they were before what it made of them counts. To hold a
/// tensor does not hold its memory: its storage may be given other memory (`share_memory_`, `resize_`). Then nothing was done, and
/// it is begun again. `None` where that does not end.
pub(crate) fn settled<'a, 'py: 'a, R>(
    py: Python<'py>,
    tensors: impl Iterator<Item = &'a Bound<'py, PyAny>>,
    mut work: impl FnMut(Stayed<'_>) -> PyResult<tensordict_core::Result<R>>,
) -> PyResult<Option<R>> {
    let own: Vec<Py<PyAny>> = tensors.map(|tensor| tensor.clone().unbind()).collect();
    for _ in 0..ATTEMPTS {
        // Asked first, since others may run while the tensors are looked at.
        let before = starts(py, &own);
        let stayed = || Python::attach(|py| starts(py, &own) == before);
        match work(Stayed::asked(&stayed))? {
            Err(Error::Moved) => {}
            // Memory that is none any more is an error of the system, before anybody asks.
            Err(error) if error.is_fault() && !stayed() => {}
            done => return done.map(Some).map_err(|error| raise(&error)),
        }
    }
    Ok(None)
}
