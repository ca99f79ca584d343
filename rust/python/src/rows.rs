//! Rows of many leaves in one call. Each function declines with `None` what is not plain memory, or not its business:
//! then torch does the work leaf by leaf, and raises what it raises.
//!
//! All that may run Python comes first, in this order: what is seen of the leaves, the values to fill with, the outputs, the
//! hold on storages. Then addresses are read, and nothing runs Python until the copy is done.

mod copies;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tensordict_core::Error;
use tensordict_core::rows::{Dims, Gather, Job, Join, Layout, Positions, Side, Source};

use self::copies::{as_list, carry_out, finish, run_into};
use crate::error::raise;
use crate::tensor::{AllSeen, Grip, Like, Output, Seen, Session, Worth};

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

/// Bytes of all outputs.
fn bytes_of(outputs: &[Output<'_>]) -> u64 {
    outputs.iter().map(|output| output.len() as u64).sum()
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
    let (Some(numbers), Some(seen)) = (session.seen(index)?, AllSeen::of(&session, &leaves)?) else {
        return Ok(None);
    };
    if !numbers.code().is_signed(32) && !numbers.code().is_signed(64) {
        return Ok(None);
    }
    let mut maker = session.maker();
    let mut outputs = Vec::with_capacity(leaves.len());
    for (leaf, seen) in leaves.iter().zip(seen.iter()) {
        let shape = seen.layout().shape();
        if dim >= shape.len() {
            return Ok(None);
        }
        let Some(shape) = shape_of(&shape[..dim], numbers.layout().shape(), &shape[dim + 1..]) else {
            return Ok(None);
        };
        outputs.push(maker.empty(shape, seen.code(), leaf)?);
    }
    let Some(bytes) = session.bytes_of(index, &numbers) else {
        return Ok(None);
    };
    let numbers = Source::new(bytes, *numbers.layout()).map_err(|error| raise(&error))?;
    let mut selections = Selections::default();
    for seen in seen.iter() {
        let size = seen.layout().shape()[dim];
        match selections.choose(size, || Positions::from_integers(&numbers, dim, size)) {
            // torch does not look at the index where there is nothing to copy.
            Err(Error::IndexOutOfRange { .. }) if seen.layout().bytes() == 0 => return Ok(None),
            Err(Error::NoMemory { .. }) => return Ok(None),
            chosen => chosen.map_err(|error| raise(&error))?,
        }
    }
    let grip = session.grip(bytes_of(&outputs), Worth::KEPT, leaves.iter())?;
    let make = |number, source: &_| Gather::along(source, dim, selections.of(number));
    carry_out(&session, &grip, &leaves, &seen, outputs, make)
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

    /// The layout in which a leaf is joined: to be stacked, it gets a dimension of one element.
    fn layout(self, seen: &Seen) -> Option<Layout> {
        match self {
            Way::Stack(dim) => seen.layout().unsqueezed(dim),
            Way::Cat(_) | Way::PadStack(..) => Some(*seen.layout()),
        }
    }

    /// The shape of the output, from that of the first leaf, the number of leaves, the sum of their rows and the most.
    fn shape(self, shape: &[usize], count: usize, total: usize, longest: usize) -> Option<Dims> {
        let dim = self.dim();
        let before = shape.get(..dim)?;
        match self {
            Way::Stack(_) => shape_of(before, &[count], &shape[dim..]),
            Way::Cat(_) => shape_of(before, &[total], shape.get(dim + 1..)?),
            Way::PadStack(..) => {
                let start = shape_of(&[count], before, &[longest])?;
                shape_of(&start, &[], shape.get(dim + 1..)?)
            }
        }
    }
}

/// Leaves that are alike.
struct Kind {
    seen: Seen,
    like: Option<Like>,
    /// Rows of each.
    rows: usize,
}

impl Kind {
    /// What the next leaf is held against.
    fn pattern(&self) -> Option<(Like, usize)> {
        Some((self.like?, self.rows))
    }

    /// What it takes to know a leaf of this kind at once.
    fn certain(&self) -> Option<&Like> {
        self.like.as_ref().filter(|_| self.seen.is_literal())
    }
}

/// Neighbours in a column that are alike.
struct Run {
    kind: usize,
    /// How many leaves are before them.
    start: usize,
}

/// So many kinds are tried before a leaf is looked at closer.
const TRIED: usize = 8;

/// The leaves of one output so far.
struct Column<'a, 'py> {
    dim: usize,
    join: Join<'a>,
    first: Option<&'a Bound<'py, PyAny>>,
    kinds: Vec<Kind>,
    runs: Vec<Run>,
    /// The layout of the leaf before, and its rows: most often the next one has it too.
    last: Option<(Like, usize)>,
    count: usize,
    total: usize,
    longest: usize,
}

impl<'a, 'py> Column<'a, 'py> {
    fn new(dim: usize, leaves: usize) -> Self {
        Self {
            dim,
            join: Join::along(dim, leaves),
            first: None,
            kinds: Vec::new(),
            runs: Vec::new(),
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
            // Where this wraps `push_alike` refuses.
            self.total = self.total.wrapping_add(*rows);
            if !matches!(way, Way::PadStack(..)) {
                self.join.push_alike(bytes).map_err(|error| raise(&error))?;
            }
            return Ok(true);
        }
        if matches!(way, Way::PadStack(..)) && self.push_known(session, leaf) {
            return Ok(true);
        }
        self.push_other(session, leaf, way)
    }

    /// Adds a leaf to be filled up that is like one of those before; false where that is not known at once.
    #[inline(never)]
    fn push_known(&mut self, session: &Session<'py>, leaf: &Bound<'py, PyAny>) -> bool {
        let is_like = |kind: &Kind| kind.certain().is_some_and(|like| session.is_like(leaf, like));
        let Some(back) = self.kinds.iter().rev().take(TRIED).position(is_like) else {
            return false;
        };
        let kind = self.kinds.len() - 1 - back;
        self.last = self.kinds[kind].pattern();
        self.runs.push(Run {
            kind,
            start: self.count,
        });
        self.count += 1;
        true
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
        let seen = Seen::of(&view);
        let same_shape = match self.kinds.first() {
            Some(Kind { seen: first, .. }) if first.code() != seen.code() => return Ok(false),
            Some(Kind { seen: first, .. }) => first.layout().shape() == seen.layout().shape(),
            None => true,
        };
        let Some(layout) = way
            .layout(&seen)
            .filter(|_| same_shape || !matches!(way, Way::Stack(_)))
        else {
            return Ok(false);
        };
        let Some(rows) = layout.shape().get(self.dim).copied() else {
            return Ok(false);
        };
        // Where what is filled in has to be asked for, addresses are read again in any case.
        if !matches!(way, Way::PadStack(..)) {
            match self.join.push(view.bytes(), &layout) {
                Err(Error::RowsShape { .. }) => return Ok(false),
                pushed => pushed.map_err(|error| raise(&error))?,
            }
        }
        let last = self.runs.last().map(|run| &self.kinds[run.kind].seen);
        if !last.is_some_and(|last| last.is_like(&seen)) {
            self.runs.push(Run {
                kind: self.kinds.len(),
                start: self.count,
            });
            let like = Like::of(&seen);
            let kind = Kind { seen, like, rows };
            self.last = kind.pattern();
            self.kinds.push(kind);
        }
        self.count += 1;
        self.total = self.total.wrapping_add(rows);
        self.longest = self.longest.max(rows);
        self.first.get_or_insert(leaf);
        Ok(true)
    }

    /// The shape of the output; `None` where there are no leaves or it has too many dimensions.
    fn shape(&self, way: Way<'_, '_>) -> Option<Dims> {
        let shape = self.kinds.first()?.seen.layout().shape();
        way.shape(shape, self.count, self.total, self.longest)
    }

    /// Whether the output was made for what the column turned out to be.
    fn is_output(&self, output: &Output<'_>, shape: &Dims) -> bool {
        let code = self.kinds.first().map(|kind| kind.seen.code());
        output.shape() == shape && Some(output.code()) == code
    }

    /// The job of its leaves, which are `leaves`, as they lie now; `None` where one has changed since it was pushed. Where each
    /// lies is added to `starts`.
    fn again<'b>(
        &self,
        session: &Session<'py>,
        leaves: impl Iterator<Item = &'b Bound<'py, PyAny>>,
        way: Way<'_, 'py>,
        starts: &mut Vec<*const u8>,
    ) -> tensordict_core::Result<Option<Join<'b>>>
    where
        'py: 'b,
    {
        let mut join = Join::along(self.dim, self.count);
        let mut leaves = leaves.take(self.count);
        let ends = self.runs.iter().skip(1).map(|run| run.start).chain([self.count]);
        for (run, end) in self.runs.iter().zip(ends) {
            let kind = &self.kinds[run.kind];
            let (Some(layout), like) = (way.layout(&kind.seen), kind.certain()) else {
                return Ok(None);
            };
            for (number, leaf) in leaves.by_ref().take(end - run.start).enumerate() {
                let Some(bytes) = session.bytes_again(leaf, &kind.seen, like) else {
                    return Ok(None);
                };
                starts.push(bytes.as_ptr());
                if number == 0 {
                    join.push(bytes, &layout)?;
                } else {
                    join.push_alike(bytes)?;
                }
            }
        }
        Ok(Some(join))
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

    /// The leaves of one column.
    fn column(&self, number: usize) -> Box<dyn Iterator<Item = &Bound<'py, PyAny>> + '_> {
        match self {
            Held::Columns(lists) => Box::new(lists[number].iter()),
            Held::Inputs(lists, _) => Box::new(lists.iter().filter_map(move |list| list.get(number))),
        }
    }

    fn columns(&self) -> usize {
        match self {
            Held::Columns(lists) => lists.len(),
            Held::Inputs(_, outputs) => *outputs,
        }
    }

    /// All leaves.
    fn leaves(&self) -> Vec<&Bound<'py, PyAny>> {
        let (Held::Columns(lists) | Held::Inputs(lists, _)) = self;
        lists.iter().flatten().collect()
    }

    /// Outputs for the case that all leaves of a column are like its first; `None` where that says nothing of the output.
    fn outputs_for_alike(
        &self,
        session: &Session<'py>,
        way: Way<'_, 'py>,
    ) -> PyResult<Option<Vec<Output<'py>>>> {
        if matches!(way, Way::PadStack(..)) {
            return Ok(None);
        }
        let mut maker = session.maker();
        let mut outputs = Vec::with_capacity(self.columns());
        for number in 0..self.columns() {
            let (leaf, count) = match self {
                Held::Columns(lists) => (lists[number].first(), lists[number].len()),
                Held::Inputs(lists, _) => (lists.first().and_then(|list| list.get(number)), lists.len()),
            };
            let Some(leaf) = leaf else {
                return Ok(None);
            };
            let Some(seen) = session.seen(leaf)? else {
                return Ok(None);
            };
            let shape = seen.layout().shape();
            let rows = shape.get(way.dim()).copied().unwrap_or(0);
            let total = rows.checked_mul(count);
            let Some(shape) = total.and_then(|total| way.shape(shape, count, total, rows)) else {
                return Ok(None);
            };
            outputs.push(maker.empty(shape, seen.code(), leaf)?);
        }
        Ok(Some(outputs))
    }
}

fn joined<'py>(py: Python<'py>, held: &Held<'py>, way: Way<'_, 'py>) -> PyResult<Option<Bound<'py, PyList>>> {
    let Some(session) = Session::open(py)? else {
        return Ok(None);
    };
    // Most often they are alike: then the outputs are there before the first address is read, and each is read once.
    let guess = held.outputs_for_alike(&session, way)?;
    session.settle();
    let Some(columns) = held.sort(&session, way)? else {
        return Ok(None);
    };
    let Some(shapes) = columns
        .iter()
        .map(|column| column.shape(way))
        .collect::<Option<Vec<_>>>()
    else {
        return Ok(None);
    };
    let fits = |guess: &Vec<Output<'py>>| {
        let mut pairs = guess.iter().zip(columns.iter().zip(&shapes));
        session.is_quiet() && pairs.all(|(output, (column, shape))| column.is_output(output, shape))
    };
    let leaves = || held.leaves();
    if let Some(outputs) = guess.filter(fits) {
        let count = columns.iter().map(|column| column.count).sum();
        if !session.is_worth(bytes_of(&outputs), Worth::FRESH, count) {
            let jobs: Vec<Job<'_>> = columns.into_iter().map(|column| column.join.into()).collect();
            let mut outputs = outputs;
            let done = run_into(&session, &Grip::Gil, &jobs, &mut outputs)?;
            return done.then(|| as_list(&session, outputs)).transpose();
        }
        return joined_again(&session, held, way, &columns, outputs, &[], &leaves());
    }
    let mut maker = session.maker();
    let mut outputs = Vec::with_capacity(columns.len());
    let mut values = Vec::new();
    for (column, shape) in columns.iter().zip(shapes) {
        let (Some(leaf), Some(first)) = (column.first, column.kinds.first()) else {
            return Ok(None);
        };
        if let Way::PadStack(_, value, _) = way {
            let Some(item) = maker.item(value, leaf)? else {
                return Ok(None);
            };
            values.push(item);
        }
        outputs.push(maker.empty(shape, first.seen.code(), leaf)?);
    }
    joined_again(&session, held, way, &columns, outputs, &values, &leaves())
}

/// Joins columns that were sorted before, of which every address is read anew.
fn joined_again<'py>(
    session: &Session<'py>,
    held: &Held<'py>,
    way: Way<'_, 'py>,
    columns: &[Column<'_, 'py>],
    outputs: Vec<Output<'py>>,
    values: &[Vec<u8>],
    leaves: &[&Bound<'py, PyAny>],
) -> PyResult<Option<Bound<'py, PyList>>> {
    let grip = session.grip(bytes_of(&outputs), Worth::FRESH, leaves.iter().copied())?;
    finish(session, &grip, outputs, |starts| {
        let mut jobs: Vec<Job<'_>> = Vec::with_capacity(columns.len());
        for (number, column) in columns.iter().enumerate() {
            let join = match column.again(session, held.column(number), way, starts) {
                Ok(Some(join)) => join,
                Ok(None) | Err(Error::RowsShape { .. }) => return Ok(None),
                Err(error) => return Err(raise(&error)),
            };
            jobs.push(match (way, values.get(number)) {
                (Way::PadStack(_, _, side), Some(value)) => {
                    join.padded_with(value, side).map_err(|error| raise(&error))?
                }
                _ => join.into(),
            });
        }
        Ok(Some(jobs))
    })
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
    let keys = hold(keys);
    for dict in dicts {
        let dict = dict.cast::<PyDict>()?;
        let mut leaves = Vec::with_capacity(keys.len());
        for key in &keys {
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
