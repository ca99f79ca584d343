//! The one way from Python into the core crate: decides about the GIL and maps the error.

use pyo3::prelude::*;

/// Work on fewer bytes than this is done before another thread could use the GIL that it would release.
const WORTH_RELEASING: u64 = 32 * 1024;

/// Runs `work`, which touches about `bytes` bytes, and raises its error. The GIL is released when that is worth it.
pub(crate) fn enter<R: Send>(
    py: Python<'_>,
    bytes: u64,
    work: impl FnOnce() -> tensordict_core::Result<R> + Send,
) -> PyResult<R> {
    enter_with(py, bytes >= WORTH_RELEASING, work)
}

/// [`enter`] for work that knows whether the GIL may be released.
pub(crate) fn enter_with<R: Send>(
    py: Python<'_>,
    release: bool,
    work: impl FnOnce() -> tensordict_core::Result<R> + Send,
) -> PyResult<R> {
    let done = if release { py.detach(work) } else { work() };
    done.map_err(|error| crate::error::raise(&error))
}

/// [`wait`], and raises the error of `work`.
pub(crate) fn enter_waiting<R: Send>(
    py: Python<'_>,
    work: impl Fn() -> tensordict_core::Result<R> + Sync,
) -> PyResult<R> {
    wait(py, work)?.map_err(|error| crate::error::raise(&error))
}

/// Runs `work`, which may wait for other writers of a folder, without the GIL. A signal ends the wait before anything was done:
/// Python then handles it, and where its handler raises nothing the work is begun again.
pub(crate) fn wait<R: Send>(
    py: Python<'_>,
    work: impl Fn() -> tensordict_core::Result<R> + Sync,
) -> PyResult<tensordict_core::Result<R>> {
    loop {
        match py.detach(&work) {
            Err(error) if error.is_interrupted() => py.check_signals()?,
            done => return Ok(done),
        }
    }
}
