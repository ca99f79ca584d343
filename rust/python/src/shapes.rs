//! Shapes of many leaves in one call. Each function declines what is not a plain tensor: then Python looks.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::tensor::{Shapes, is_tensor, knows_types};

/// For each leaf the sizes `sizes`, then those of the leaf behind its first `consumed` dimensions, as a tuple; equal
/// neighbours share theirs. `None` where a leaf is not a plain dense CPU tensor.
#[pyfunction]
pub(crate) fn regrouped<'py>(
    py: Python<'py>,
    leaves: &Bound<'py, PyList>,
    consumed: usize,
    sizes: Vec<i64>,
) -> PyResult<Option<Vec<Bound<'py, PyTuple>>>> {
    let Some(shapes) = Shapes::open(py)? else {
        return Ok(None);
    };
    let mut target = sizes;
    let head = target.len();
    let mut last: Option<Bound<'py, PyTuple>> = None;
    let mut found = Vec::with_capacity(leaves.len());
    for leaf in leaves {
        let Some(shape) = shapes.of(&leaf)? else {
            return Ok(None);
        };
        let Some(tail) = shape.get(consumed..) else {
            return Ok(None);
        };
        let tuple = match last.take() {
            Some(tuple) if target[head..] == *tail => tuple,
            _ => {
                target.truncate(head);
                target.extend_from_slice(tail);
                PyTuple::new(py, &target)?
            }
        };
        last = Some(tuple.clone());
        found.push(tuple);
    }
    Ok(Some(found))
}

/// Whether all of `values` are tensors whose leading sizes are `sizes`; false also where that would take a longer look.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "the sizes are made from a tuple")]
pub(crate) fn all_fit(py: Python<'_>, values: &Bound<'_, PyList>, sizes: Vec<i64>) -> PyResult<bool> {
    let Some(shapes) = Shapes::open(py)? else {
        return Ok(false);
    };
    for value in values {
        if !is_tensor(&value) || !shapes.of(&value)?.is_some_and(|shape| shape.starts_with(&sizes)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether each of `values` is a tensor of the shape of the one at its place in `leaves`; false also where that would take a
/// longer look.
#[pyfunction]
pub(crate) fn same_shapes(
    py: Python<'_>,
    leaves: &Bound<'_, PyList>,
    values: &Bound<'_, PyList>,
) -> PyResult<bool> {
    let Some(shapes) = Shapes::open(py)? else {
        return Ok(false);
    };
    for (leaf, value) in leaves.iter().zip(values) {
        let shape = shapes.of(&leaf)?;
        if shape.is_none() || shape != shapes.of(&value)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the type of all of `values` is exactly `torch.Tensor`.
#[pyfunction]
pub(crate) fn all_tensors(py: Python<'_>, values: &Bound<'_, PyList>) -> PyResult<bool> {
    knows_types(py)?;
    Ok(values.iter().all(|value| is_tensor(&value)))
}
