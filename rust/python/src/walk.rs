//! Trees of tensordicts walked in one call: keys and entries gathered, nodes copied, chosen, made flat and deep again.
//!
//! A node whose class is `TensorDict` itself is read by its slots. Every other container is asked by the methods of the waist
//! (`tensordict._ops.waist`), as the twins in `_polyfills/walk.py` ask all of them. Whatever a dict holds is copied, with nothing
//! of Python running in between, before anything is done with it: other threads, and what is called here, may change it.

mod chosen;
mod gather;
mod levels;
mod nodes;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use self::gather::{Count, Gather, Items, Keys, Sink, Values};
use self::nodes::Nodes;

/// Which entries below a node are gathered. Without `nested` those of the first level; with `leaves_only` no nodes; a node is
/// a leaf where `is_leaf` is true for its class, None stands for a function that is not.
type Wanted<'py> = (bool, bool, Option<Bound<'py, PyAny>>);

fn gather<'py, S: Sink<'py>>(node: &Bound<'py, PyAny>, wanted: Wanted<'py>, sink: S) -> PyResult<S> {
    let nodes = Nodes::get(node.py())?;
    let mut walk = Gather::new(nodes, wanted, sink);
    let kind = nodes.kind(node)?;
    walk.below(node, kind, 0)?;
    Ok(walk.sink)
}

/// The keys of the entries below `node`; what is below an entry comes before it.
#[pyfunction]
#[pyo3(signature = (node: "Any", nested, leaves_only, is_leaf: "Any") -> "list[Any]")]
pub(crate) fn keys_below<'py>(
    node: &Bound<'py, PyAny>,
    nested: bool,
    leaves_only: bool,
    is_leaf: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let keys = gather(node, (nested, leaves_only, is_leaf), Keys::default())?;
    PyList::new(node.py(), keys.found)
}

/// The entries below `node`, in the order of `keys_below`.
#[pyfunction]
#[pyo3(signature = (node: "Any", nested, leaves_only, is_leaf: "Any") -> "list[Any]")]
pub(crate) fn values_below<'py>(
    node: &Bound<'py, PyAny>,
    nested: bool,
    leaves_only: bool,
    is_leaf: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let values = gather(node, (nested, leaves_only, is_leaf), Values::default())?;
    PyList::new(node.py(), values.found)
}

/// The pairs of key and entry below `node`, in the order of `keys_below`.
#[pyfunction]
#[pyo3(signature = (node: "Any", nested, leaves_only, is_leaf: "Any") -> "list[tuple[Any, Any]]")]
pub(crate) fn items_below<'py>(
    node: &Bound<'py, PyAny>,
    nested: bool,
    leaves_only: bool,
    is_leaf: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let items = gather(node, (nested, leaves_only, is_leaf), Items::default())?;
    PyList::new(node.py(), items.found)
}

/// How many keys `keys_below` gives.
#[pyfunction]
#[pyo3(signature = (node: "Any", nested, leaves_only, is_leaf: "Any") -> "int")]
pub(crate) fn count_below<'py>(
    node: &Bound<'py, PyAny>,
    nested: bool,
    leaves_only: bool,
    is_leaf: Option<Bound<'py, PyAny>>,
) -> PyResult<usize> {
    Ok(gather(node, (nested, leaves_only, is_leaf), Count::default())?.found)
}

/// A copy of the nodes, unlocked; the leaves are shared. With `anew`, lists and dicts that are objects are new as well.
#[pyfunction]
#[pyo3(signature = (node: "Any", anew=false) -> "Any")]
pub(crate) fn copy_nodes<'py>(node: &Bound<'py, PyAny>, anew: bool) -> PyResult<Bound<'py, PyAny>> {
    let nodes = Nodes::get(node.py())?;
    nodes.copied(node, nodes.kind(node)?, anew, 0)
}

/// The tree below `node`, whose leaves are appended to `leaves`, depth first: see `tensordict._ops.waist.Tree`.
#[pyfunction]
#[pyo3(signature = (node: "Any", leaves: "list[Any]") -> "tuple[Any, dict[Any, Any]]")]
pub(crate) fn collect<'py>(
    node: &Bound<'py, PyAny>,
    leaves: &Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyTuple>> {
    let nodes = Nodes::get(node.py())?;
    nodes.collected(node, nodes.kind(node)?, leaves, 0)
}

/// A container like `node` of the entries `keys` alone; the leaves are shared. The members of a stack are chosen from.
#[pyfunction]
#[pyo3(signature = (node: "Any", keys: "tuple[Any, ...]", strict) -> "Any")]
pub(crate) fn selected<'py>(
    node: &Bound<'py, PyAny>,
    keys: &Bound<'py, PyTuple>,
    strict: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let nodes = Nodes::get(node.py())?;
    let paths = nodes.paths(keys)?;
    let paths: Vec<_> = paths.iter().map(Vec::as_slice).collect();
    nodes.selected((node, nodes.kind(node)?), &paths, strict, 0)
}

/// A container like `node` without the entries `keys`; the leaves are shared. Members of a stack are left out of.
#[pyfunction]
#[pyo3(signature = (node: "Any", keys: "tuple[Any, ...]") -> "Any")]
pub(crate) fn excluded<'py>(
    node: &Bound<'py, PyAny>,
    keys: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let nodes = Nodes::get(node.py())?;
    let paths = nodes.paths(keys)?;
    let paths: Vec<_> = paths.iter().map(Vec::as_slice).collect();
    nodes.excluded((node, nodes.kind(node)?), &paths, 0)
}

/// A container like `node` of all leaves at one level, under their keys joined by `separator`; stacks by their members.
#[pyfunction]
#[pyo3(signature = (node: "Any", separator: "str", is_leaf: "Any") -> "Any")]
pub(crate) fn flattened<'py>(
    node: &Bound<'py, PyAny>,
    separator: &Bound<'py, PyAny>,
    is_leaf: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let nodes = Nodes::get(node.py())?;
    nodes.flat(node, nodes.kind(node)?, separator, is_leaf)
}

/// A container like `node` in which a key that holds `separator` is a path of nested keys; stacks by their members.
#[pyfunction]
#[pyo3(signature = (node: "Any", separator: "str") -> "Any")]
pub(crate) fn unflattened<'py>(
    node: &Bound<'py, PyAny>,
    separator: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let nodes = Nodes::get(node.py())?;
    nodes.deep(node, nodes.kind(node)?, separator)
}
