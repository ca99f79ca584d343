//! The parameters and buffers of a module, gathered.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::names::Names;
use super::walk::{DEEPEST, too_deep};
use crate::home::{Entry, Home, Kinds, entries_into};

/// The parameters and buffers of a module as the fields of a tensordict, nested as the submodules are. Submodules that
/// have neither are left out where `filter_empty` is set.
#[pyfunction]
pub(crate) fn module_fields<'py>(
    module: &Bound<'py, PyAny>,
    filter_empty: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let mut walk = FieldsWalk {
        names: Names::get(module.py())?,
        filter_empty,
        kinds: Kinds::default(),
    };
    walk.below(module, &mut Vec::new(), 0)
}

/// The walk through a module and those in it.
struct FieldsWalk<'py> {
    names: &'py Names,
    filter_empty: bool,
    kinds: Kinds,
}

impl<'py> FieldsWalk<'py> {
    /// The fields of one module; `entries` is left as it was.
    fn below(
        &mut self,
        module: &Bound<'py, PyAny>,
        entries: &mut Vec<Entry<'py>>,
        depth: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        if depth > DEEPEST {
            return Err(too_deep());
        }
        let home = Home::of(module, &mut self.kinds)?;
        let fields = PyDict::new(module.py());
        let start = entries.len();
        entries_into(home.parameters()?, entries)?;
        entries_into(home.buffers()?, entries)?;
        for (key, value) in entries.drain(start..) {
            if !value.is_none() {
                fields.set_item(key, value)?;
            }
        }
        entries_into(home.modules()?, entries)?;
        for index in start..entries.len() {
            let (key, child) = entries[index].clone();
            if child.is_none() {
                continue;
            }
            let inner = self.below(&child, entries, depth + 1)?;
            if !(self.filter_empty && inner.is_empty()) {
                fields.set_item(key, self.names.node(&inner)?)?;
            }
        }
        entries.truncate(start);
        Ok(fields)
    }
}
