//! Shapes of many leaves, and how they lie, in one call. Each function declines what is not a plain tensor: then Python looks.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use tensordict_core::rows::{self, Extent};

use crate::error::raise;
use crate::once::intern;
use crate::tensor::{Session, Shapes, TensorView, is_tensor, knows_types, read};

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

/// [`same_shapes`] of tensors that have nothing to do with a gradient; false also where that would take a longer look.
#[pyfunction]
pub(crate) fn plain_pairs(
    py: Python<'_>,
    leaves: &Bound<'_, PyList>,
    values: &Bound<'_, PyList>,
) -> PyResult<bool> {
    let Some(shapes) = Shapes::open(py)? else {
        return Ok(false);
    };
    for (leaf, value) in leaves.iter().zip(values) {
        let one = shapes.and_history(&leaf)?;
        if !one.is_some_and(|(_, free)| free) || one != shapes.and_history(&value)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn extents(places: &[(usize, rows::Layout)]) -> Vec<Extent<'_>> {
    places
        .iter()
        .map(|(start, layout)| Extent::new(*start, layout))
        .collect()
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

/// The numbers of the `sources` that may have other values when they are copied into the one of `targets` at the same place, or
/// into some rows of it where `parts` says so, after those before them; what is no tensor has no memory, and a place without a target, None, does not
/// count. `None` where one is not plain memory.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "they are extracted from a list")]
pub(crate) fn overwritten(
    targets: &Bound<'_, PyList>,
    sources: &Bound<'_, PyList>,
    parts: Vec<bool>,
) -> PyResult<Option<Vec<usize>>> {
    let Some(session) = Session::open(targets.py())? else {
        return Ok(None);
    };
    let nothing = rows::Layout::contiguous(1, &[0]).map_err(|error| raise(&error))?;
    let places = |leaves: &Bound<'_, PyList>| -> PyResult<Option<Vec<(usize, rows::Layout)>>> {
        let mut found = Vec::with_capacity(leaves.len());
        for leaf in leaves {
            let place = |view: TensorView<'_>| (view.bytes().as_ptr().addr(), *view.layout());
            found.push(match session.at_once(&leaf) {
                Some(view) => place(view),
                None if !leaf.hasattr(intern!(leaf.py(), "untyped_storage"))? => (0, nothing),
                None => match read(&leaf)? {
                    Some(view) => place(view),
                    None => return Ok(None),
                },
            });
        }
        Ok(Some(found))
    };
    let (Some(targets), Some(sources)) = (places(targets)?, places(sources)?) else {
        return Ok(None);
    };
    Ok(Some(rows::overwritten(
        &extents(&targets),
        &extents(&sources),
        &parts,
    )))
}

/// Whether the type of all of `values` is exactly `torch.Tensor`.
#[pyfunction]
pub(crate) fn all_tensors(py: Python<'_>, values: &Bound<'_, PyList>) -> PyResult<bool> {
    knows_types(py)?;
    Ok(values.iter().all(|value| is_tensor(&value)))
}
