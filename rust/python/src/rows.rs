//! Rows of many leaves in one call. Each function declines with `None` what is not plain memory, or not its business:
//! then torch does the work leaf by leaf, and raises what it raises.

use std::mem::MaybeUninit;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tensordict_core::Error;
use tensordict_core::rows::{Dims, Gather, Job, Join, Positions, Side, run};

use crate::error::raise;
use crate::tensor::{Like, Output, Session, TensorView};

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
    leaves.iter().map(|leaf| session.leaf(leaf)).collect()
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
    PadStack(usize, &'a Bound<'py, PyAny>, Side),
}

impl Way<'_, '_> {
    fn dim(self) -> usize {
        match self {
            Way::Stack(dim) | Way::Cat(dim) | Way::PadStack(dim, ..) => dim,
        }
    }
}

/// The leaves of one output so far.
struct Column<'a, 'py> {
    join: Join<'a>,
    first: Option<(&'a Bound<'py, PyAny>, TensorView<'a>)>,
    /// The layout of the leaf before, and its rows: most often the next one has it too.
    last: Option<(Like, usize)>,
    count: usize,
    total: usize,
    longest: usize,
}

impl<'a, 'py> Column<'a, 'py> {
    fn new(dim: usize, leaves: usize) -> Self {
        Self {
            join: Join::along(dim, leaves),
            first: None,
            last: None,
            count: 0,
            total: 0,
            longest: 0,
        }
    }

    /// Adds a leaf; false where it is not for here.
    #[inline]
    fn push(
        &mut self,
        session: &Session<'py>,
        leaf: &'a Bound<'py, PyAny>,
        way: Way<'_, 'py>,
    ) -> PyResult<bool> {
        if let Some((alike, rows)) = &self.last
            && let Some(bytes) = session.bytes_like(leaf, alike)
        {
            self.count += 1;
            self.total += rows;
            self.join.push_alike(bytes).map_err(|error| raise(&error))?;
            return Ok(true);
        }
        self.push_other(session, leaf, way)
    }

    /// [`Self::push`] of a leaf whose layout is not that of the one before.
    fn push_other(
        &mut self,
        session: &Session<'py>,
        leaf: &'a Bound<'py, PyAny>,
        way: Way<'_, 'py>,
    ) -> PyResult<bool> {
        let Some(view) = session.leaf(leaf)? else {
            return Ok(false);
        };
        let dim = way.dim();
        let same_shape = match &self.first {
            Some((_, first)) if first.code() != view.code() => return Ok(false),
            Some((_, first)) => first.layout().shape() == view.layout().shape(),
            None => true,
        };
        let layout = match way {
            Way::Stack(_) if same_shape => view.layout().unsqueezed(dim),
            Way::Stack(_) => None,
            Way::Cat(_) | Way::PadStack(..) => Some(*view.layout()),
        };
        let Some(layout) = layout else {
            return Ok(false);
        };
        let Some(rows) = layout.shape().get(dim).copied() else {
            return Ok(false);
        };
        match self.join.push(view.bytes(), &layout) {
            Err(Error::RowsShape { .. }) => return Ok(false),
            pushed => pushed.map_err(|error| raise(&error))?,
        }
        self.count += 1;
        self.total += rows;
        self.longest = self.longest.max(rows);
        self.last = Like::of(&view).map(|alike| (alike, rows));
        self.first.get_or_insert((leaf, view));
        Ok(true)
    }

    /// The shape of the output; `None` where there are no leaves or it has too many dimensions.
    fn shape(&self, way: Way<'_, '_>) -> Option<Dims> {
        let shape = self.first.as_ref()?.1.layout().shape();
        let dim = way.dim();
        match way {
            Way::Stack(_) => shape_of(&shape[..dim], &[self.count], &shape[dim..]),
            Way::Cat(_) => shape_of(&shape[..dim], &[self.total], &shape[dim + 1..]),
            Way::PadStack(..) => {
                let start = shape_of(&[self.count], &shape[..dim], &[self.longest])?;
                shape_of(&start, &[], &shape[dim + 1..])
            }
        }
    }
}

/// The leaves to join, as they came.
enum Held<'py> {
    /// A list for each output.
    Columns(Vec<Leaves<'py>>),
    /// A list for each input, with a leaf for each of so many outputs.
    Inputs(Vec<Leaves<'py>>, usize),
}

impl<'py> Held<'py> {
    /// All leaves sorted into columns; `None` where one is not for here. In the order that they are held in, which is most
    /// often that of memory.
    fn sort<'a>(
        &'a self,
        session: &Session<'py>,
        way: Way<'_, 'py>,
    ) -> PyResult<Option<Vec<Column<'a, 'py>>>> {
        let dim = way.dim();
        let mut columns: Vec<Column<'a, 'py>>;
        match self {
            Held::Columns(lists) => {
                columns = lists.iter().map(|list| Column::new(dim, list.len())).collect();
                for (column, list) in columns.iter_mut().zip(lists) {
                    for leaf in list {
                        if !column.push(session, leaf, way)? {
                            return Ok(None);
                        }
                    }
                }
            }
            Held::Inputs(lists, outputs) => {
                columns = (0..*outputs).map(|_| Column::new(dim, lists.len())).collect();
                for list in lists {
                    for (column, leaf) in columns.iter_mut().zip(list) {
                        if !column.push(session, leaf, way)? {
                            return Ok(None);
                        }
                    }
                }
            }
        }
        Ok(Some(columns))
    }
}

fn joined<'py>(py: Python<'py>, held: &Held<'py>, way: Way<'_, 'py>) -> PyResult<Option<Bound<'py, PyList>>> {
    let Some(session) = Session::open(py)? else {
        return Ok(None);
    };
    let Some(columns) = held.sort(&session, way)? else {
        return Ok(None);
    };
    let mut maker = session.maker();
    let mut outputs = Vec::with_capacity(columns.len());
    let mut values = Vec::new();
    for column in &columns {
        let (Some(shape), Some((leaf, view))) = (column.shape(way), &column.first) else {
            return Ok(None);
        };
        if let Way::PadStack(_, value, _) = way {
            let Some(item) = maker.item(value, leaf)? else {
                return Ok(None);
            };
            values.push(item);
        }
        outputs.push(maker.empty(shape, view.code(), leaf)?);
    }
    let joins = columns.into_iter().map(|column| column.join);
    let jobs = if let Way::PadStack(_, _, side) = way {
        joins
            .zip(&values)
            .map(|(join, value)| join.padded_with(value, side))
            .collect::<tensordict_core::Result<Vec<Job<'_>>>>()
            .map_err(|error| raise(&error))?
    } else {
        joins.map(Job::from).collect()
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
    joined(py, &Held::Columns(hold_columns(columns)?), Way::Stack(dim))
}

/// `torch.cat(column, dim)` for each column. Columns hold the same leaf of each input.
#[pyfunction]
pub(crate) fn cat<'py>(
    py: Python<'py>,
    columns: &Bound<'py, PyList>,
    dim: usize,
) -> PyResult<Option<Bound<'py, PyList>>> {
    joined(py, &Held::Columns(hold_columns(columns)?), Way::Cat(dim))
}

/// What `dicts` hold at `keys`; `None` where a key is missing.
fn hold_dicts<'py>(dicts: &Bound<'py, PyList>, keys: &Bound<'py, PyList>) -> PyResult<Option<Held<'py>>> {
    let mut inputs = Vec::with_capacity(dicts.len());
    for dict in dicts {
        let dict = dict.cast::<PyDict>()?;
        let mut leaves = Vec::with_capacity(keys.len());
        for key in keys {
            match dict.get_item(key)? {
                Some(leaf) => leaves.push(leaf),
                None => return Ok(None),
            }
        }
        inputs.push(leaves);
    }
    Ok(Some(Held::Inputs(inputs, keys.len())))
}

/// [`stack`] of the columns `[[d[key] for d in dicts] for key in keys]`.
#[pyfunction]
pub(crate) fn stack_dicts<'py>(
    py: Python<'py>,
    dicts: &Bound<'py, PyList>,
    keys: &Bound<'py, PyList>,
    dim: usize,
) -> PyResult<Option<Bound<'py, PyList>>> {
    match hold_dicts(dicts, keys)? {
        Some(held) => joined(py, &held, Way::Stack(dim)),
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
    match hold_dicts(dicts, keys)? {
        Some(held) => joined(py, &held, Way::Cat(dim)),
        None => Ok(None),
    }
}

/// The side that is filled up.
fn side(left: bool) -> Side {
    if left { Side::Left } else { Side::Right }
}

/// The leaves of each column stacked along a new first dimension, each filled up along dimension `dim` with `value` to the
/// longest of the column: at its end, or at its start with `left`.
#[pyfunction]
#[pyo3(signature = (columns, dim, value, left = false))]
pub(crate) fn pad_stack<'py>(
    py: Python<'py>,
    columns: &Bound<'py, PyList>,
    dim: usize,
    value: &Bound<'py, PyAny>,
    left: bool,
) -> PyResult<Option<Bound<'py, PyList>>> {
    joined(
        py,
        &Held::Columns(hold_columns(columns)?),
        Way::PadStack(dim, value, side(left)),
    )
}

/// [`pad_stack`] of the columns `[[d[key] for d in dicts] for key in keys]`.
#[pyfunction]
#[pyo3(signature = (dicts, keys, dim, value, left = false))]
pub(crate) fn pad_stack_dicts<'py>(
    py: Python<'py>,
    dicts: &Bound<'py, PyList>,
    keys: &Bound<'py, PyList>,
    dim: usize,
    value: &Bound<'py, PyAny>,
    left: bool,
) -> PyResult<Option<Bound<'py, PyList>>> {
    match hold_dicts(dicts, keys)? {
        Some(held) => joined(py, &held, Way::PadStack(dim, value, side(left))),
        None => Ok(None),
    }
}

/// Whether the type of every leaf is exactly a plain one, and nothing is active that wants to see each leaf by itself: a
/// mode, a functorch transform, a trace. Layout, device and gradient are not looked at.
#[pyfunction]
pub(crate) fn is_plain(py: Python<'_>, leaves: &Bound<'_, PyList>) -> PyResult<bool> {
    Ok(Session::open(py)?.is_some() && Session::are_plain_types(leaves))
}
