//! Leaves in one buffer, in memory and as a file.
#![allow(
    clippy::needless_pass_by_value,
    reason = "what Python passes is extracted into values"
)]

use std::path::PathBuf;
use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use tensordict_core::consolidated::{self, Pack};
use tensordict_core::file::Stayed;
use tensordict_core::layout::Layout;
use tensordict_core::memmap;
use tensordict_core::rows;

use crate::enter::enter;
use crate::error::raise;
use crate::memmap::{PyMap, parse_mode};
use crate::once::{intern, once};
use crate::settle::settled;
use crate::tensor::{Code, Like, Mover, Seen, Session, TensorView, is_tensor, read};

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

/// Copies what `held`, from [`alias`], holds, by `copy`, without the interpreter lock. `None` where other threads do not let it
/// come to an end, or where a leaf is not as planned.
fn copy_held<'py, R: Send>(
    session: &Session<'py>,
    leaves: &[Bound<'py, PyAny>],
    held: &[Bound<'py, PyAny>],
    planned: &[TensorView<'_>],
    layout: &Layout,
    mut copy: impl FnMut(&Pack<'_>, Stayed<'_>) -> tensordict_core::Result<R> + Send,
) -> PyResult<Option<R>> {
    let py = session.py();
    let copied = settled(py, held.iter(), |stayed| {
        let Some(pack) = pack_held(session, leaves, held, planned, layout.clone())? else {
            return Ok(Ok(None));
        };
        Ok(py.detach(|| copy(&pack, stayed)).map(Some))
    })?;
    Ok(copied.flatten())
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
            return Viewer::new(&session, buffer, bytes)?.views(&leaves, &planned, &layout);
        }
    }
    let held = alias(py, &leaves)?;
    let Some(mut output) = session.output(buffer.clone())? else {
        return Ok(None);
    };
    let target = output.bytes();
    let copied = copy_held(&session, &leaves, &held, &planned, &layout, |pack, stayed| {
        pack.copy_to(target)?;
        stayed.check()
    })?;
    if copied.is_none() {
        return Ok(None);
    }
    Viewer::new(&session, buffer, bytes)?.views(&held, &planned, &layout)
}

/// Makes views of parts of one buffer, which count changes together with it.
struct Viewer<'a, 'py> {
    session: &'a Session<'py>,
    buffer: Bound<'py, PyAny>,
    bytes: u64,
    typed: Vec<(Code, Bound<'py, PyAny>)>,
    /// The last shape, as torch wants it, and its strides.
    shape: Option<(rows::Dims, Bound<'py, PyTuple>, Bound<'py, PyTuple>)>,
    /// What views are moved from, the last few.
    bases: Vec<Base<'py>>,
    /// `(tensor, shape, strides, offset)` -> a tensor of the same memory, which counts changes by itself.
    other: Option<Bound<'py, PyAny>>,
}

/// What makes the views of one shape of the tensor of number `typed`, where that can be.
struct Base<'py> {
    typed: usize,
    shape: rows::Dims,
    mover: Option<Mover<'py>>,
}

/// So many shapes are remembered: leaves of one kind are often as many as there are kinds of them in a level.
const BASES: usize = 8;

impl<'a, 'py> Viewer<'a, 'py> {
    fn new(session: &'a Session<'py>, buffer: Bound<'py, PyAny>, bytes: u64) -> PyResult<Self> {
        Ok(Self {
            other: quick_view(session.py())?,
            session,
            buffer,
            bytes,
            typed: Vec::new(),
            shape: None,
            bases: Vec::new(),
        })
    }

    /// The buffer, and a view for each leaf, as `views` say; `None` where one of `leaves` has another dtype by now. Each is
    /// detached, so that one that is given a gradient in place gives none to the others.
    fn views(
        mut self,
        leaves: &[Bound<'py, PyAny>],
        views: &[TensorView<'_>],
        layout: &Layout,
    ) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyList>)>> {
        let made = PyList::empty(self.buffer.py());
        for ((leaf, view), (start, _)) in leaves.iter().zip(views).zip(&layout.places) {
            let Some(number) = self.typed(leaf, view)? else {
                return Ok(None);
            };
            made.append(self.view(number, view, *start)?)?;
        }
        Ok(Some((self.buffer, made)))
    }

    /// The view of what begins at byte `start`, of the dtype of number `number`.
    fn view(&mut self, number: usize, view: &TensorView<'_>, start: u64) -> PyResult<Bound<'py, PyAny>> {
        let py = self.buffer.py();
        let layout = view.layout();
        let offset = if layout.bytes() == 0 {
            0
        } else {
            start / layout.item() as u64
        };
        if let Some(mover) = self.mover(number, layout.dims())?
            && let Some(made) = mover.at(usize::try_from(offset)?)?
        {
            return Ok(made);
        }
        let (sizes, strides) = self.dims(layout.dims())?;
        let typed = &self.typed[number].1;
        let detach = intern!(py, "detach");
        let Some(other) = &self.other else {
            let part = typed.call_method1(intern!(py, "as_strided"), (sizes, strides, offset))?;
            return part.call_method0(detach);
        };
        // What is given other data goes on to count changes as before, together with the buffer. This takes half the time of
        // a view that autograd knows and that is detached then.
        let made = typed.call_method0(detach)?;
        made.setattr(intern!(py, "data"), other.call1((typed, sizes, strides, offset))?)?;
        Ok(made)
    }

    /// What makes views of this shape of the tensor of number `typed`; `None` where that is to be done in another way.
    fn mover(&mut self, typed: usize, shape: &rows::Dims) -> PyResult<Option<&Mover<'py>>> {
        let is_it = |base: &Base<'_>| base.typed == typed && base.shape == *shape;
        let number = if let Some(number) = self.bases.iter().position(is_it) {
            number
        } else {
            let (sizes, strides) = self.dims(shape)?;
            let base = Base {
                typed,
                shape: *shape,
                mover: Mover::new(self.session, &self.typed[typed].1, &sizes, &strides)?,
            };
            self.bases.truncate(BASES - 1);
            self.bases.insert(0, base);
            0
        };
        Ok(self.bases[number].mover.as_ref())
    }

    /// A shape and the strides of what is contiguous.
    fn dims(&mut self, shape: &rows::Dims) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyTuple>)> {
        if let Some((last, sizes, strides)) = &self.shape
            && last == shape
        {
            return Ok((sizes.clone(), strides.clone()));
        }
        let py = self.buffer.py();
        let layout = rows::Layout::contiguous(1, shape).map_err(|error| raise(&error))?;
        let (sizes, strides) = (PyTuple::new(py, &**shape)?, PyTuple::new(py, layout.strides())?);
        self.shape = Some((*shape, sizes.clone(), strides.clone()));
        Ok((sizes, strides))
    }

    /// The number of the tensor of all whole elements of the buffer that are of the dtype of `view`, which was that of `leaf`;
    /// `None` where it is not any more, and no leaf before had it.
    fn typed(&mut self, leaf: &Bound<'py, PyAny>, view: &TensorView<'_>) -> PyResult<Option<usize>> {
        if let Some(number) = self.typed.iter().position(|(code, _)| *code == view.code()) {
            return Ok(Some(number));
        }
        let py = self.buffer.py();
        let dtype = leaf.getattr(intern!(py, "dtype"))?;
        let item: u64 = dtype.getattr(intern!(py, "itemsize"))?.extract()?;
        if item != view.layout().item() as u64 {
            return Ok(None);
        }
        let size = self.bytes / item * item;
        let whole = self.buffer.call_method1(intern!(py, "narrow"), (0, 0, size))?;
        let typed = whole.call_method1(intern!(py, "view"), (dtype,))?;
        // Only what torch makes of the dtype tells whether it is still the one that was read.
        let code = self.session.leaf(&typed)?.map(|found| found.code());
        if code != Some(view.code()) {
            return Ok(None);
        }
        self.typed.push((view.code(), typed));
        Ok(Some(self.typed.len() - 1))
    }
}

/// A function of torch that makes a tensor of the memory of another one, around the dispatcher; `None` where this torch has
/// none.
fn quick_view(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    static FOUND: OnceLock<Option<Py<PyAny>>> = OnceLock::new();
    let found = once(&FOUND, py, || {
        let dynamo = py.import(intern!(py, "torch"))?.getattr("_C")?.getattr("_dynamo");
        let found = dynamo.and_then(|dynamo| dynamo.getattr("guards")?.getattr("_reinterpret_tensor"));
        Ok(found.ok().map(Bound::unbind))
    })?;
    Ok(found.as_ref().map(|found| found.bind(py).clone()))
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
    // Making a file takes long enough for others to run, however few bytes it has.
    let map = copy_held(
        &session,
        &leaves,
        &held,
        &planned,
        &layout(&planned)?,
        |pack, stayed| consolidated::write(&path, pack, text, stayed),
    )?;
    Ok(map.map(PyMap::new))
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
