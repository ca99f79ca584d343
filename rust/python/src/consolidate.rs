//! Leaves in one buffer, in memory and as a file.
#![allow(
    clippy::needless_pass_by_value,
    reason = "what Python passes is extracted into values"
)]

use std::path::PathBuf;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple};
use tensordict_core::consolidated::{self, Pack};
use tensordict_core::layout::Layout;
use tensordict_core::rows;

use crate::enter::enter;
use crate::error::{internal, raise};
use crate::memmap::{PyMap, parse_mode};
use crate::tensor::{Code, Session, TensorView, read};

/// Views of all leaves, whose gradients do not matter; `None` where one is not plain memory.
fn views<'a, 'py>(
    session: &Session<'py>,
    leaves: &'a [Bound<'py, PyAny>],
) -> PyResult<Option<Vec<TensorView<'a>>>> {
    let view = |leaf: &'a Bound<'py, PyAny>| match session.leaf(leaf)? {
        Some(view) => Ok(Some(view)),
        None => read(leaf),
    };
    leaves.iter().map(view).collect()
}

fn pack<'a>(views: &[TensorView<'a>]) -> PyResult<Pack<'a>> {
    let sources: tensordict_core::Result<Vec<_>> = views.iter().map(TensorView::source).collect();
    sources
        .and_then(|sources| Pack::new(&sources))
        .map_err(|error| raise(&error))
}

/// Copies all leaves into one buffer and returns it with a view of it for each leaf, contiguous and without gradient.
/// `allocate` makes a tensor of so many bytes, which nobody else may touch. `None` where a leaf, or the buffer, is not plain
/// memory.
#[pyfunction]
pub(crate) fn consolidate<'py>(
    py: Python<'py>,
    leaves: &Bound<'py, PyList>,
    allocate: &Bound<'py, PyAny>,
) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyList>)>> {
    let Some(session) = Session::open(py)? else {
        return Ok(None);
    };
    let leaves: Vec<_> = leaves.iter().collect();
    let Some(found) = views(&session, &leaves)? else {
        return Ok(None);
    };
    let pack = pack(&found)?;
    let bytes = pack.layout().bytes;
    let Some(mut output) = session.output(allocate.call1((bytes,))?)? else {
        return Ok(None);
    };
    let target = output.bytes();
    enter(py, bytes, || pack.copy_to(target))?;
    let buffer = output.into_tensor();
    let mut viewer = Viewer::new(&buffer, bytes)?;
    let places = pack.layout().places.iter();
    let made: PyResult<Vec<_>> = leaves
        .iter()
        .zip(&found)
        .zip(places)
        .map(|((leaf, view), (start, _))| viewer.view(leaf, view, *start))
        .collect();
    let made = PyList::new(py, made?)?;
    Ok(Some((buffer, made)))
}

/// `(tensor, shape, strides, offset)` -> a view, `offset` elements further.
static ALIAS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// torch's function for views, or a faster one, which makes no note for autograd and goes around the dispatcher.
fn alias(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    let found = ALIAS.get_or_try_init(py, || {
        let c = py.import("torch")?.getattr("_C")?;
        let quick = c
            .getattr("_dynamo")
            .and_then(|dynamo| dynamo.getattr("guards")?.getattr("_reinterpret_tensor"));
        quick
            .or_else(|_| c.getattr("_VariableFunctions")?.getattr("as_strided"))
            .map(Bound::unbind)
    })?;
    Ok(found.bind(py))
}

/// Makes views of parts of one buffer. Keeps what the next one may share with the last one.
struct Viewer<'a, 'py> {
    buffer: &'a Bound<'py, PyAny>,
    bytes: u64,
    alias: &'a Bound<'py, PyAny>,
    typed: Vec<(Code, Bound<'py, PyAny>)>,
    shape: Option<(rows::Dims, Bound<'py, PyTuple>, Bound<'py, PyTuple>)>,
}

impl<'a, 'py> Viewer<'a, 'py> {
    fn new(buffer: &'a Bound<'py, PyAny>, bytes: u64) -> PyResult<Self> {
        Ok(Self {
            buffer,
            bytes,
            alias: alias(buffer.py())?,
            typed: Vec::new(),
            shape: None,
        })
    }

    /// The view at byte `start`, of the shape and dtype of `leaf`.
    fn view(
        &mut self,
        leaf: &Bound<'py, PyAny>,
        view: &TensorView<'_>,
        start: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = self.buffer.py();
        let (item, code) = (view.layout().item(), view.code());
        let number = if let Some(number) = self.typed.iter().position(|(known, _)| *known == code) {
            number
        } else {
            self.typed.push((code, self.as_type(leaf, item as u64)?));
            self.typed.len() - 1
        };
        let shape = *view.layout().dims();
        if self.shape.as_ref().is_none_or(|(last, ..)| *last != shape) {
            let strides = rows::Layout::contiguous(1, &shape).map_err(|error| raise(&error))?;
            let sizes = (PyTuple::new(py, &*shape)?, PyTuple::new(py, strides.strides())?);
            self.shape = Some((shape, sizes.0, sizes.1));
        }
        let Some((_, sizes, strides)) = &self.shape else {
            return Err(internal("a view without a shape"));
        };
        self.alias
            .call1((&self.typed[number].1, sizes, strides, start / item as u64))
    }

    /// All whole elements of the buffer that are of the dtype of `leaf`.
    fn as_type(&self, leaf: &Bound<'py, PyAny>, item: u64) -> PyResult<Bound<'py, PyAny>> {
        let py = self.buffer.py();
        let whole = self
            .buffer
            .call_method1(intern!(py, "narrow"), (0, 0, self.bytes / item * item))?;
        whole.call_method1(intern!(py, "view"), (leaf.getattr(intern!(py, "dtype"))?,))
    }
}

/// Writes all leaves and then `text` to the file `path`, in the place of one that is there, and maps all of it. `None` where
/// a leaf is not plain memory.
#[pyfunction]
pub(crate) fn consolidate_to_file<'py>(
    py: Python<'py>,
    leaves: &Bound<'py, PyList>,
    path: PathBuf,
    text: &str,
) -> PyResult<Option<PyMap>> {
    let Some(session) = Session::open(py)? else {
        return Ok(None);
    };
    let leaves: Vec<_> = leaves.iter().collect();
    let Some(found) = views(&session, &leaves)? else {
        return Ok(None);
    };
    let pack = pack(&found)?;
    // Making a file takes long enough for others to run, however few bytes it has.
    let map = enter(py, u64::MAX, || consolidated::write(&path, &pack, text))?;
    Ok(Some(PyMap::new(map)))
}

/// Opens a file that [`consolidate_to_file`] wrote: a map of all of it, the bytes of its buffer, and its text, which is JSON
/// and was held against the buffer.
#[pyfunction]
pub(crate) fn open_consolidated(py: Python<'_>, path: PathBuf, mode: &str) -> PyResult<(PyMap, u64, String)> {
    let mode = parse_mode(mode)?;
    let opened = enter(py, u64::MAX, || consolidated::open(&path, mode))?;
    Ok((PyMap::new(opened.map), opened.bytes, opened.text))
}

/// Where leaves of so many bytes, with items of so many, lie in one buffer, and its size.
#[pyfunction]
pub(crate) fn packed_places(leaves: Vec<(u64, u64)>) -> PyResult<(Vec<u64>, u64)> {
    let layout = Layout::packed(leaves).map_err(|error| raise(&error))?;
    Ok((
        layout.places.iter().map(|(start, _)| *start).collect(),
        layout.bytes,
    ))
}

/// Where `leaves` lie in the tensor of bytes `buffer`, if they are just what it holds, in any order: for each its first byte,
/// and the first byte of the next one. `None` where they are not, or where one does not tell its address.
#[pyfunction]
pub(crate) fn places_in(
    leaves: &Bound<'_, PyList>,
    buffer: &Bound<'_, PyAny>,
) -> Option<(Vec<u64>, Vec<u64>)> {
    let held = extents(leaves, buffer).ok().flatten()?;
    let bytes = buffer
        .getattr(intern!(buffer.py(), "nbytes"))
        .ok()?
        .extract()
        .ok()?;
    let mut stops = Layout::stops(&held, bytes)?;
    let mut starts = Vec::with_capacity(held.len());
    let mut end = 0;
    for ((start, bytes), stop) in held.into_iter().zip(&mut stops) {
        // One without elements stands behind the one before it.
        let start = if bytes == 0 { end } else { start };
        *stop = if bytes == 0 { end } else { *stop };
        end = *stop;
        starts.push(start);
    }
    Some((starts, stops))
}

/// First byte and number of bytes of each leaf; `None` where one is not contiguous or lies before the buffer.
fn extents(leaves: &Bound<'_, PyList>, buffer: &Bound<'_, PyAny>) -> PyResult<Option<Vec<(u64, u64)>>> {
    let py = leaves.py();
    let address = |tensor: &Bound<'_, PyAny>| -> PyResult<u64> {
        tensor.call_method0(intern!(py, "data_ptr"))?.extract()
    };
    let base = address(buffer)?;
    let mut found = Vec::with_capacity(leaves.len());
    for leaf in leaves {
        let bytes: u64 = leaf.getattr(intern!(py, "nbytes"))?.extract()?;
        if !leaf.call_method0(intern!(py, "is_contiguous"))?.is_truthy()? {
            return Ok(None);
        }
        let start = if bytes == 0 {
            Some(0)
        } else {
            address(&leaf)?.checked_sub(base)
        };
        let Some(start) = start else {
            return Ok(None);
        };
        found.push((start, bytes));
    }
    Ok(Some(found))
}
