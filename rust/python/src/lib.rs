//! `tensordict._core`: the list of the names that Python sees. Each module extracts, enters and wraps; the work is in
//! `tensordict-core`.

use pyo3::prelude::*;

mod enter;
mod error;

#[pymodule(gil_used = false)]
#[pyo3(name = "_core")]
fn core_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
