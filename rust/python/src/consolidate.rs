//! Leaves in one buffer, in memory and as a file.
#![allow(
    clippy::needless_pass_by_value,
    reason = "what Python passes is extracted into values"
)]

use std::path::PathBuf;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use tensordict_core::consolidated::{self, Pack};
use tensordict_core::layout::Layout;
use tensordict_core::memmap;
use tensordict_core::rows;

use crate::enter::enter;
use crate::error::raise;
use crate::memmap::{PyMap, parse_mode};
use crate::tensor::{Code, Like, Seen, Session, TensorView, is_tensor, read};

/// Views of all leaves, whose gradients do not matter; `None` where one is not plain memory. Torch may be asked meanwhile,
/// so that another thread may free what was found already: see [`Session::at_once`] and [`alias`].
fn views<'a, 'py>(
    session: &Session<'py>,
    leaves: &'a [Bound<'py, PyAny>],
) -> PyResult<Option<Vec<TensorView<'a>>>> {
    let mut last = Last::default();
    let view = |leaf: &'a Bound<'py, PyAny>| {
        let closer = || match session.leaf(leaf)? {
            Some(view) => Ok(Some(view)),
            None => read(leaf),
        };
        last.view(session, leaf, closer)
    };
    leaves.iter().map(view).collect()
}

/// The leaf before: most often the next one lies as it does.
#[derive(Default)]
struct Last<'a>(Option<(TensorView<'a>, Like)>);

impl<'a> Last<'a> {
    /// The memory of the next leaf: the short way where it is like the last one, else as `closer` finds it.
    #[inline]
    fn view<'py>(
        &mut self,
        session: &Session<'py>,
        leaf: &'a Bound<'py, PyAny>,
        closer: impl FnOnce() -> PyResult<Option<TensorView<'a>>>,
    ) -> PyResult<Option<TensorView<'a>>> {
        if let Some((before, like)) = &self.0
            && let Some(view) = session.view_like(leaf, before, like)
        {
            return Ok(Some(view));
        }
        let found = closer()?;
        self.0 = found.and_then(|view| Some((view, Like::of_certain(&Seen::of(&view))?)));
        Ok(found)
    }
}

/// For each leaf another tensor, known here alone, of the same memory, which it holds whatever becomes of the leaf:
/// `leaf.data = ...` and `leaf.set_(...)` give the memory back, though the leaf lives.
fn alias<'py>(py: Python<'py>, leaves: &[Bound<'py, PyAny>]) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let data = intern!(py, "data");
    leaves.iter().map(|leaf| leaf.getattr(data)).collect()
}

/// Where leaves like these lie in one buffer.
fn layout(views: &[TensorView<'_>]) -> PyResult<Layout> {
    let sizes = views.iter().map(|view| {
        let layout = view.layout();
        (layout.bytes() as u64, layout.item() as u64)
    });
    Layout::packed(sizes).map_err(|error| raise(&error))
}

/// Why leaves are not copied as they were planned to be.
enum Stop {
    /// One is not what it was, or is read in another way only.
    Other,
    Failed(tensordict_core::Error),
    /// The file that the leaf of this number is mapped from has lost its end.
    Cut(usize),
}

/// From so many bytes on it costs nothing to look whether memory is still there, whatever it is.
const WORTH_A_LOOK: usize = 256 << 10;

/// Whether to read a leaf would be a fault. Small leaves of the type `Tensor` itself, which are hardly ever mapped files, are
/// not looked at.
fn is_cut(object: &Bound<'_, PyAny>, view: &TensorView<'_>) -> bool {
    let bytes = view.bytes();
    (bytes.len() >= WORTH_A_LOOK || !is_tensor(object)) && memmap::is_cut(bytes)
}

/// The error that says which file it is.
fn file_was_cut(object: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let says = object.py().import("tensordict.memmap")?.getattr("file_was_cut")?;
    Ok(PyErr::from_value(says.call1((object,))?))
}

impl From<tensordict_core::Error> for Stop {
    fn from(error: tensordict_core::Error) -> Self {
        Self::Failed(error)
    }
}

/// The job of copying leaves, as `planned`, each of which `again` reads once more; `None` where one is not as planned.
///
/// Nothing of Python may run from then to the end of the job, unless what is read is held.
fn pack<'a, 'l>(
    objects: &[Bound<'_, PyAny>],
    leaves: impl IntoIterator<Item = &'l TensorView<'l>>,
    layout: Layout,
    mut again: impl FnMut(usize) -> Option<TensorView<'a>>,
) -> PyResult<Option<Pack<'a>>> {
    let sources = leaves.into_iter().enumerate().map(|(number, planned)| {
        let found = again(number).ok_or(Stop::Other)?;
        if is_cut(&objects[number], &found) {
            return Err(Stop::Cut(number));
        }
        if found.code() == planned.code() && found.layout().dims() == planned.layout().dims() {
            Ok(found.source()?)
        } else {
            Err(Stop::Other)
        }
    });
    match Pack::laid_out(layout, sources) {
        Ok(pack) => Ok(Some(pack)),
        Err(Stop::Other) => Ok(None),
        Err(Stop::Failed(error)) => Err(raise(&error)),
        Err(Stop::Cut(number)) => Err(file_was_cut(&objects[number])?),
    }
}

/// The job of copying what `held`, from [`alias`], holds.
fn pack_held<'a, 'py>(
    session: &Session<'py>,
    leaves: &[Bound<'py, PyAny>],
    held: &'a [Bound<'py, PyAny>],
    planned: &[TensorView<'_>],
    layout: Layout,
) -> PyResult<Option<Pack<'a>>> {
    let Some(found) = views(session, held)? else {
        return Ok(None);
    };
    let mut found = found.into_iter();
    pack(leaves, planned, layout, |_| found.next())
}

/// Copies all leaves into one buffer and returns it with a view of it for each leaf, contiguous and without gradient.
/// `allocate` makes a tensor of so many bytes, which nobody else may touch. `None` where a leaf, or the buffer, is not plain
/// memory, or another thread changes a leaf meanwhile.
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
    let Some(planned) = views(&session, &leaves)? else {
        return Ok(None);
    };
    let layout = layout(&planned)?;
    let bytes = layout.bytes;
    let buffer = allocate.call1((bytes,))?;
    // Short work is done with the interpreter lock held, and on addresses that are read last.
    if bytes < consolidated::LARGE as u64 {
        let Some(mut output) = session.output(buffer.clone())? else {
            return Ok(None);
        };
        let mut last = Last::default();
        let again = |number: usize| {
            let leaf = &leaves[number];
            last.view(&session, leaf, || Ok(session.at_once(leaf)))
                .ok()
                .flatten()
        };
        if let Some(pack) = pack(&leaves, &planned, layout.clone(), again)? {
            let target = output.bytes();
            enter(py, 0, || pack.copy_here(target))?;
            return Viewer::new(buffer, bytes)
                .views(&leaves, &planned, &layout)
                .map(Some);
        }
    }
    let held = alias(py, &leaves)?;
    let Some(pack) = pack_held(&session, &leaves, &held, &planned, layout.clone())? else {
        return Ok(None);
    };
    let Some(mut output) = session.output(buffer.clone())? else {
        return Ok(None);
    };
    let target = output.bytes();
    enter(py, u64::MAX, || pack.copy_to(target))?;
    Viewer::new(buffer, bytes)
        .views(&leaves, &planned, &layout)
        .map(Some)
}

/// Makes views of parts of one buffer, which count changes together with it.
struct Viewer<'py> {
    buffer: Bound<'py, PyAny>,
    bytes: u64,
    typed: Vec<(Code, Bound<'py, PyAny>)>,
}

impl<'py> Viewer<'py> {
    fn new(buffer: Bound<'py, PyAny>, bytes: u64) -> Self {
        Self {
            buffer,
            bytes,
            typed: Vec::new(),
        }
    }

    /// The buffer, and a view for each leaf. Each is detached, so that one that is given a gradient in place gives none to
    /// the others.
    fn views(
        mut self,
        leaves: &[Bound<'py, PyAny>],
        views: &[TensorView<'_>],
        layout: &Layout,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyList>)> {
        let py = self.buffer.py();
        let made = PyList::empty(py);
        let detach = intern!(py, "detach");
        while made.len() < leaves.len() {
            let first = made.len();
            let typed = self.typed(&leaves[first], &views[first])?;
            let start = layout.places[first].0;
            for part in parts(&typed, &views[first], start, alike(views, layout, first))? {
                made.append(part.call_method0(detach)?)?;
            }
        }
        Ok((self.buffer, made))
    }

    /// All whole elements of the buffer that are of the dtype of `leaf`.
    fn typed(&mut self, leaf: &Bound<'py, PyAny>, view: &TensorView<'_>) -> PyResult<Bound<'py, PyAny>> {
        let known = self.typed.iter().find(|(code, _)| *code == view.code());
        if let Some((_, typed)) = known {
            return Ok(typed.clone());
        }
        let py = self.buffer.py();
        let item = view.layout().item() as u64;
        let size = self.bytes / item * item;
        let whole = self.buffer.call_method1(intern!(py, "narrow"), (0, 0, size))?;
        let typed = whole.call_method1(intern!(py, "view"), (leaf.getattr(intern!(py, "dtype"))?,))?;
        self.typed.push((view.code(), typed.clone()));
        Ok(typed)
    }
}

/// So many views are made by one call: more would not stay in the cache until they are detached.
const TOGETHER: usize = 128;

/// How many leaves from `first` on are alike and follow one another without a gap: those of one call.
fn alike(views: &[TensorView<'_>], layout: &Layout, first: usize) -> usize {
    let (view, bytes) = (&views[first], layout.places[first].1);
    let mut count = 1;
    while bytes > 0
        && count < TOGETHER
        && let Some(next) = views.get(first + count)
        && next.code() == view.code()
        && next.layout().dims() == view.layout().dims()
        && layout.places[first + count].0 == layout.places[first].0 + bytes * count as u64
    {
        count += 1;
    }
    count
}

/// The views of `count` alike leaves from byte `start` on: one call for all where there are several.
fn parts<'py>(
    typed: &Bound<'py, PyAny>,
    view: &TensorView<'_>,
    start: u64,
    count: usize,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let py = typed.py();
    let item = view.layout().item();
    let shape = view.layout().dims();
    let strides = rows::Layout::contiguous(1, shape).map_err(|error| raise(&error))?;
    let (mut sizes, mut steps) = (shape.to_vec(), strides.strides().to_vec());
    if count > 1 {
        sizes.insert(0, count);
        steps.insert(0, view.layout().bytes() / item);
    }
    let offset = if view.layout().bytes() == 0 {
        0
    } else {
        start / item as u64
    };
    let place = (PyTuple::new(py, sizes)?, PyTuple::new(py, steps)?, offset);
    let part = typed.call_method1(intern!(py, "as_strided"), place)?;
    if count == 1 {
        return Ok(vec![part]);
    }
    let parts = part.call_method0(intern!(py, "unbind"))?.cast_into::<PyTuple>()?;
    Ok(parts.iter().collect())
}

/// Writes all leaves and then `text` to the file `path`, in the place of one that is there, and maps all of it. `None` where
/// a leaf is not plain memory, or another thread changes it meanwhile.
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
    let Some(planned) = views(&session, &leaves)? else {
        return Ok(None);
    };
    let held = alias(py, &leaves)?;
    let Some(pack) = pack_held(&session, &leaves, &held, &planned, layout(&planned)?)? else {
        return Ok(None);
    };
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
