//! Rows of many leaves in one call. Each function declines with `None` what is not plain memory, or not its business:
//! then torch does the work leaf by leaf, and raises what it raises.

use std::mem::MaybeUninit;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tensordict_core::Error;
use tensordict_core::rows::{Dims, Gather, Job, Join, Positions, run};

use crate::error::raise;
use crate::tensor::{Like, Maker, Output, Session, TensorView};

type Leaves<'py> = Vec<Bound<'py, PyAny>>;

/// References of our own to the leaves, which stay whatever happens to the list.
fn hold<'py>(leaves: &Bound<'py, PyList>) -> Leaves<'py> {
    leaves.iter().collect()
}

/// [`hold`] for each column.
fn hold_columns<'py>(columns: &Bound<'py, PyList>) -> PyResult<Vec<Leaves<'py>>> {
    columns
        .iter()
        .map(|column| Ok(hold(column.cast::<PyList>()?)))
        .collect()
}

/// Views of all leaves, or `None`.
fn views<'a, 'py>(
    session: &Session<'py>,
    leaves: &'a [Bound<'py, PyAny>],
) -> PyResult<Option<Vec<TensorView<'a>>>> {
    let mut found = Vec::with_capacity(leaves.len());
    for leaf in leaves {
        match session.leaf(leaf)? {
            Some(view) => found.push(view),
            None => return Ok(None),
        }
    }
    Ok(Some(found))
}

/// Carries out the jobs into the outputs and returns these as a list.
fn finish<'py>(
    py: Python<'py>,
    jobs: &[Job<'_>],
    mut outputs: Vec<Output<'py>>,
) -> PyResult<Bound<'py, PyList>> {
    let mut bytes = 0;
    let work: Vec<(&Job<'_>, &mut [MaybeUninit<u8>])> = jobs
        .iter()
        .zip(outputs.iter_mut().map(Output::bytes))
        .inspect(|(_, target)| bytes += target.len() as u64)
        .collect();
    crate::enter::enter(py, bytes, || run(work))?;
    PyList::new(py, outputs.into_iter().map(Output::into_tensor))
}

/// `before`, `middle`, `after` as one shape.
fn shape_of(before: &[usize], middle: &[usize], after: &[usize]) -> Option<Dims> {
    let mut shape = Dims::EMPTY;
    [before, middle, after]
        .into_iter()
        .flatten()
        .all(|size| shape.push(*size))
        .then_some(shape)
}

/// Positions for the sizes that leaves have: nearly always one.
#[derive(Default)]
struct Selections {
    made: Vec<Positions>,
    /// For each leaf, which of them.
    chosen: Vec<usize>,
}

impl Selections {
    /// Chooses for the next leaf, whose rows are `size`.
    fn choose(
        &mut self,
        size: usize,
        make: impl FnOnce() -> tensordict_core::Result<Positions>,
    ) -> tensordict_core::Result<()> {
        let known = self.made.iter().rposition(|positions| positions.size() == size);
        let number = known.unwrap_or(self.made.len());
        if known.is_none() {
            self.made.push(make()?);
        }
        self.chosen.push(number);
        Ok(())
    }

    fn of(&self, leaf: usize) -> &Positions {
        &self.made[self.chosen[leaf]]
    }
}

/// `leaf[..., index, ...]` with the index at dimension `dim`, for each leaf: the dimensions of the index stand in the
/// place of that dimension. The index is of int32 or int64. Raises `IndexError` for a number that is out of bounds.
#[pyfunction]
pub(crate) fn gather<'py>(
    py: Python<'py>,
    leaves: &Bound<'py, PyList>,
    index: &Bound<'py, PyAny>,
    dim: usize,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let Some(session) = Session::open(py)? else {
        return Ok(None);
    };
    let leaves = hold(leaves);
    let (Some(numbers), Some(views)) = (session.leaf(index)?, views(&session, &leaves)?) else {
        return Ok(None);
    };
    if !numbers.code().is_signed(32) && !numbers.code().is_signed(64) {
        return Ok(None);
    }
    let numbers_at = numbers.source().map_err(|error| raise(&error))?;
    let mut selections = Selections::default();
    let mut maker = session.maker();
    let mut outputs = Vec::with_capacity(leaves.len());
    for (leaf, view) in leaves.iter().zip(&views) {
        let shape = view.layout().shape();
        let Some(size) = shape.get(dim).copied() else {
            return Ok(None);
        };
        match selections.choose(size, || Positions::from_integers(&numbers_at, dim, size)) {
            // torch does not look at the index where there is nothing to copy.
            Err(Error::IndexOutOfRange { .. }) if view.layout().bytes() == 0 => return Ok(None),
            chosen => chosen.map_err(|error| raise(&error))?,
        }
        let Some(shape) = shape_of(&shape[..dim], numbers.layout().shape(), &shape[dim + 1..]) else {
            return Ok(None);
        };
        outputs.push(maker.empty(shape, view.code(), leaf)?);
    }
    let jobs = views
        .iter()
        .enumerate()
        .map(|(number, view)| Ok(Gather::along(&view.source()?, dim, selections.of(number))?.into()))
        .collect::<tensordict_core::Result<Vec<Job<'_>>>>()
        .map_err(|error| raise(&error))?;
    finish(py, &jobs, outputs).map(Some)
}

/// `leaf[mask]` for each leaf: the rows of the leading dimensions where the boolean mask holds, in order.
#[pyfunction]
pub(crate) fn mask_select<'py>(
    py: Python<'py>,
    leaves: &Bound<'py, PyList>,
    mask: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let Some(session) = Session::open(py)? else {
        return Ok(None);
    };
    let leaves = hold(leaves);
    let (Some(flags), Some(views)) = (session.leaf(mask)?, views(&session, &leaves)?) else {
        return Ok(None);
    };
    let dims = flags.layout().shape().len();
    if !flags.code().is_bool() || dims == 0 {
        return Ok(None);
    }
    let made = flags.source().and_then(|flags| Positions::from_mask(&flags));
    let positions = made.map_err(|error| raise(&error))?;
    let mut maker = session.maker();
    let mut outputs = Vec::with_capacity(leaves.len());
    for (leaf, view) in leaves.iter().zip(&views) {
        let shape = view.layout().shape();
        if shape.get(..dims) != Some(flags.layout().shape()) {
            return Ok(None);
        }
        let Some(shape) = shape_of(&[], &[positions.len()], &shape[dims..]) else {
            return Ok(None);
        };
        outputs.push(maker.empty(shape, view.code(), leaf)?);
    }
    let jobs = views
        .iter()
        .map(|view| Ok(Gather::leading(&view.source()?, dims, &positions)?.into()))
        .collect::<tensordict_core::Result<Vec<Job<'_>>>>()
        .map_err(|error| raise(&error))?;
    finish(py, &jobs, outputs).map(Some)
}

/// Each leaf with `pad_size[2 * d]` rows of `value` before and `pad_size[2 * d + 1]` after its own in dimension `d`.
#[pyfunction]
pub(crate) fn pad<'py>(
    py: Python<'py>,
    leaves: &Bound<'py, PyList>,
    pad_size: &Bound<'py, PyList>,
    value: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let Some(session) = Session::open(py)? else {
        return Ok(None);
    };
    let leaves = hold(leaves);
    let Some(views) = views(&session, &leaves)? else {
        return Ok(None);
    };
    let Some(pads) = pairs(&pad_size.extract::<Vec<i64>>()?) else {
        return Ok(None);
    };
    let dims = pads.len();
    let mut maker = session.maker();
    let (mut positions, mut values, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
    for (leaf, view) in leaves.iter().zip(&views) {
        let shape = view.layout().shape();
        let Some(own) = shape.get(..dims) else {
            return Ok(None);
        };
        let Some(item) = maker.item(value, leaf)? else {
            return Ok(None);
        };
        values.push(item);
        positions.push(Positions::padded(own, &pads).map_err(|error| raise(&error))?);
        let wide: Vec<usize> = own.iter().zip(&pads).map(|(size, (a, b))| size + a + b).collect();
        let Some(shape) = shape_of(&wide, &[], &shape[dims..]) else {
            return Ok(None);
        };
        outputs.push(maker.empty(shape, view.code(), leaf)?);
    }
    let jobs = views
        .iter()
        .zip(positions.iter().zip(&values))
        .map(|(view, (positions, item))| Ok(Gather::padded(&view.source()?, dims, positions, item)?.into()))
        .collect::<tensordict_core::Result<Vec<Job<'_>>>>()
        .map_err(|error| raise(&error))?;
    finish(py, &jobs, outputs).map(Some)
}

/// Pairs of sizes; `None` for an odd number of them, or a negative one, which crops.
fn pairs(pad_size: &[i64]) -> Option<Vec<(usize, usize)>> {
    if pad_size.len() % 2 != 0 {
        return None;
    }
    pad_size
        .chunks_exact(2)
        .map(|pair| Some((usize::try_from(pair[0]).ok()?, usize::try_from(pair[1]).ok()?)))
        .collect()
}

/// What leaves are joined to.
#[derive(Clone, Copy)]
enum Way<'a, 'py> {
    Stack(usize),
    Cat(usize),
    PadStack(usize, &'a Bound<'py, PyAny>),
}

/// The outputs of the columns so far, and how each is made.
struct Columns<'a, 'py> {
    session: &'a Session<'py>,
    maker: Maker<'py>,
    joins: Vec<Join<'a>>,
    outputs: Vec<Output<'py>>,
    values: Vec<Vec<u8>>,
}

impl<'a, 'py> Columns<'a, 'py> {
    /// Adds the leaves of one column; false where it is not for here.
    fn add(&mut self, column: &'a [Bound<'py, PyAny>], way: Way<'_, 'py>) -> PyResult<bool> {
        let dim = match way {
            Way::Stack(dim) | Way::Cat(dim) | Way::PadStack(dim, _) => dim,
        };
        let Some(first) = column.first() else {
            return Ok(false);
        };
        let Some(like) = self.session.one_of_many(first)? else {
            return Ok(false);
        };
        let mut join = Join::along(dim, column.len());
        let (mut total, mut longest) = (0, 0);
        // The layout of the leaf before: most often the next one has it too.
        let mut last: Option<(Like, usize)> = None;
        for leaf in column {
            if let Some((alike, rows)) = &last
                && let Some(bytes) = self.session.bytes_like(leaf, alike)?
            {
                total += rows;
                join.push_alike(bytes).map_err(|error| raise(&error))?;
                continue;
            }
            let Some(view) = self.session.one_of_many(leaf)? else {
                return Ok(false);
            };
            let layout = match way {
                Way::Stack(_) if view.layout().shape() == like.layout().shape() => {
                    view.layout().unsqueezed(dim)
                }
                Way::Stack(_) => None,
                Way::Cat(_) | Way::PadStack(..) => Some(*view.layout()),
            };
            let Some(layout) = layout.filter(|_| view.code() == like.code()) else {
                return Ok(false);
            };
            let Some(rows) = layout.shape().get(dim).copied() else {
                return Ok(false);
            };
            total += rows;
            longest = longest.max(rows);
            match join.push(view.bytes(), &layout) {
                Err(Error::RowsShape { .. }) => return Ok(false),
                pushed => pushed.map_err(|error| raise(&error))?,
            }
            last = Like::of(&view).map(|alike| (alike, rows));
        }
        let shape = like.layout().shape();
        let shape = match way {
            Way::Stack(_) => shape_of(&shape[..dim], &[column.len()], &shape[dim..]),
            Way::Cat(_) => shape_of(&shape[..dim], &[total], &shape[dim + 1..]),
            Way::PadStack(..) => shape_of(&[column.len()], &shape[..dim], &[longest])
                .and_then(|start| shape_of(&start, &[], &shape[dim + 1..])),
        };
        let Some(shape) = shape else {
            return Ok(false);
        };
        if let Way::PadStack(_, value) = way {
            let Some(item) = self.maker.item(value, first)? else {
                return Ok(false);
            };
            self.values.push(item);
        }
        self.outputs.push(self.maker.empty(shape, like.code(), first)?);
        self.joins.push(join);
        Ok(true)
    }
}

fn joined<'py>(
    py: Python<'py>,
    columns: &[Leaves<'py>],
    way: Way<'_, 'py>,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let Some(session) = Session::open(py)? else {
        return Ok(None);
    };
    let mut made = Columns {
        session: &session,
        maker: session.maker(),
        joins: Vec::with_capacity(columns.len()),
        outputs: Vec::with_capacity(columns.len()),
        values: Vec::new(),
    };
    for column in columns {
        if !made.add(column, way)? {
            return Ok(None);
        }
    }
    let Columns {
        joins,
        outputs,
        values,
        ..
    } = made;
    let jobs = if matches!(way, Way::PadStack(..)) {
        let padded = joins.into_iter().zip(&values);
        padded
            .map(|(join, value)| join.padded_with(value))
            .collect::<tensordict_core::Result<Vec<Job<'_>>>>()
            .map_err(|error| raise(&error))?
    } else {
        joins.into_iter().map(Job::from).collect()
    };
    finish(py, &jobs, outputs).map(Some)
}

/// `torch.stack(column, dim)` for each column. Columns hold the same leaf of each input.
#[pyfunction]
pub(crate) fn stack<'py>(
    py: Python<'py>,
    columns: &Bound<'py, PyList>,
    dim: usize,
) -> PyResult<Option<Bound<'py, PyList>>> {
    joined(py, &hold_columns(columns)?, Way::Stack(dim))
}

/// `torch.cat(column, dim)` for each column. Columns hold the same leaf of each input.
#[pyfunction]
pub(crate) fn cat<'py>(
    py: Python<'py>,
    columns: &Bound<'py, PyList>,
    dim: usize,
) -> PyResult<Option<Bound<'py, PyList>>> {
    joined(py, &hold_columns(columns)?, Way::Cat(dim))
}

/// The columns of `keys` in `dicts`; `None` where a key is missing.
fn columns_of<'py>(
    dicts: &Bound<'py, PyList>,
    keys: &Bound<'py, PyList>,
) -> PyResult<Option<Vec<Leaves<'py>>>> {
    let mut columns: Vec<Leaves<'py>> = keys.iter().map(|_| Vec::with_capacity(dicts.len())).collect();
    for dict in dicts {
        let dict = dict.cast::<PyDict>()?;
        for (key, column) in keys.iter().zip(&mut columns) {
            match dict.get_item(key)? {
                Some(leaf) => column.push(leaf),
                None => return Ok(None),
            }
        }
    }
    Ok(Some(columns))
}

/// [`stack`] of the columns `[[d[key] for d in dicts] for key in keys]`.
#[pyfunction]
pub(crate) fn stack_dicts<'py>(
    py: Python<'py>,
    dicts: &Bound<'py, PyList>,
    keys: &Bound<'py, PyList>,
    dim: usize,
) -> PyResult<Option<Bound<'py, PyList>>> {
    match columns_of(dicts, keys)? {
        Some(columns) => joined(py, &columns, Way::Stack(dim)),
        None => Ok(None),
    }
}

/// [`cat`] of the columns `[[d[key] for d in dicts] for key in keys]`.
#[pyfunction]
pub(crate) fn cat_dicts<'py>(
    py: Python<'py>,
    dicts: &Bound<'py, PyList>,
    keys: &Bound<'py, PyList>,
    dim: usize,
) -> PyResult<Option<Bound<'py, PyList>>> {
    match columns_of(dicts, keys)? {
        Some(columns) => joined(py, &columns, Way::Cat(dim)),
        None => Ok(None),
    }
}

/// The leaves of each column stacked along a new first dimension, each filled up at its end along dimension `dim` with
/// `value` to the longest of the column.
#[pyfunction]
pub(crate) fn pad_stack<'py>(
    py: Python<'py>,
    columns: &Bound<'py, PyList>,
    dim: usize,
    value: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyList>>> {
    joined(py, &hold_columns(columns)?, Way::PadStack(dim, value))
}

/// Whether the type of every leaf is exactly a plain one, and nothing is active that wants to see each leaf by itself: a
/// mode, a functorch transform, a trace. Layout, device and gradient are not looked at.
#[pyfunction]
pub(crate) fn is_plain(py: Python<'_>, leaves: &Bound<'_, PyList>) -> PyResult<bool> {
    Ok(Session::open(py)?.is_some() && Session::are_plain_types(leaves))
}
