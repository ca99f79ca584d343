//! What a walk asks of a node and makes of it.

use std::sync::OnceLock;

use pyo3::exceptions::PyRecursionError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple, PyType};

use crate::home::{Entry, entries_into};
use crate::once::{intern, once};
use crate::tensor::{is_tensor, knows_types};

/// So deep a tree may be whatever the limit of Python says.
const SURE: usize = 100;
/// Deeper than this no tree may be: each level takes some of the stack of the thread.
const DEEPEST: usize = 4000;

/// What an entry is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Leaf,
    /// Of the class `TensorDict` itself.
    Dict,
    /// Any other container.
    Other,
}

impl Kind {
    #[inline]
    pub(super) fn is_node(self) -> bool {
        self != Self::Leaf
    }
}

/// What of the package is looked up once.
pub(super) struct Nodes {
    tensordict: Py<PyType>,
    collection: Py<PyType>,
    new: Py<PyAny>,
    pub(super) path_of: Py<PyAny>,
    pub(super) must_have: Py<PyAny>,
}

impl Nodes {
    #[inline]
    pub(super) fn get(py: Python<'_>) -> PyResult<&'static Self> {
        static NODES: OnceLock<Nodes> = OnceLock::new();
        once(&NODES, py, || {
            knows_types(py)?;
            let tensordict = py.import("tensordict._td")?.getattr("TensorDict")?;
            let collection = py.import("tensordict._types")?.getattr("TensorCollection")?;
            Ok(Self {
                new: tensordict.getattr("_new")?.unbind(),
                tensordict: tensordict.cast_into::<PyType>()?.unbind(),
                collection: collection.cast_into::<PyType>()?.unbind(),
                path_of: py.import("tensordict._kernel.keys")?.getattr("path_of")?.unbind(),
                must_have: py.import("tensordict._ops.keys")?.getattr("must_have")?.unbind(),
            })
        })
    }

    #[inline]
    fn is_dict(&self, value: &Bound<'_, PyAny>) -> bool {
        std::ptr::eq(value.get_type_ptr().cast(), self.tensordict.as_ptr())
    }

    /// What `isinstance` says of a value; the two most common classes are told without it.
    #[inline]
    pub(super) fn kind(&self, value: &Bound<'_, PyAny>) -> PyResult<Kind> {
        if is_tensor(value) {
            Ok(Kind::Leaf)
        } else if self.is_dict(value) {
            Ok(Kind::Dict)
        } else if value.is_instance(self.collection.bind(value.py()))? {
            Ok(Kind::Other)
        } else {
            Ok(Kind::Leaf)
        }
    }

    /// Whether the class of a node counts as a leaf. A proxy may pass for a node, and be of no such class.
    #[inline]
    pub(super) fn is_leaf(
        &self,
        value: &Bound<'_, PyAny>,
        kind: Kind,
        is_leaf: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        match (is_leaf, kind) {
            (Some(is_leaf), _) => is_leaf.call1((value.get_type(),))?.is_truthy(),
            (None, Kind::Dict) => Ok(false),
            (None, _) => Ok(!value.get_type().is_subclass(self.collection.bind(value.py()))?),
        }
    }

    /// An unlocked container like `node` of other fields, with its batch size, device and names.
    #[inline]
    pub(super) fn rebuilt<'py>(
        &self,
        node: &Bound<'py, PyAny>,
        kind: Kind,
        fields: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = node.py();
        if kind == Kind::Dict {
            return self.new.bind(py).call1((
                fields,
                node.getattr(intern!(py, "_batch_size"))?,
                node.getattr(intern!(py, "_device"))?,
                node.getattr(intern!(py, "_td_dim_names"))?,
            ));
        }
        node.call_method1(
            intern!(py, "_rebuild"),
            (
                fields,
                node.getattr(intern!(py, "batch_size"))?,
                node.getattr(intern!(py, "device"))?,
                node.getattr(intern!(py, "_names"))?,
            ),
        )
    }

    /// An unlocked container like `node` of other pieces.
    #[inline]
    fn refilled<'py>(
        &self,
        node: &Bound<'py, PyAny>,
        kind: Kind,
        pieces: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match kind {
            Kind::Dict => self.rebuilt(node, kind, pieces),
            _ => node.call_method1(intern!(node.py(), "_from_pieces"), (pieces,)),
        }
    }

    /// Whether a node has entries of its own: a holder of objects counts as one entry.
    #[inline]
    pub(super) fn is_branch(&self, value: &Bound<'_, PyAny>, kind: Kind) -> PyResult<bool> {
        match kind {
            Kind::Leaf => Ok(false),
            Kind::Dict => Ok(true),
            Kind::Other => {
                let class = value.get_type();
                Ok(class.is_subclass(self.collection.bind(value.py()))?
                    && !class
                        .getattr(intern!(value.py(), "_is_non_tensor"))?
                        .is_truthy()?)
            }
        }
    }

    /// A stack like `stack` with `change` of each member.
    pub(super) fn by_member<'py>(
        &self,
        stack: &Bound<'py, PyAny>,
        mut change: impl FnMut(&Bound<'py, PyAny>, Kind) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let pieces = pieces(stack, Kind::Other)?;
        for (key, part) in nodes_in(&pieces) {
            let kind = self.kind(&part)?;
            if kind.is_node() {
                pieces.set_item(key, change(&part, kind)?)?;
            }
        }
        self.refilled(stack, Kind::Other, &pieces)
    }

    pub(super) fn copied<'py>(
        &self,
        node: &Bound<'py, PyAny>,
        kind: Kind,
        anew: bool,
        depth: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        deeper(node.py(), depth)?;
        let pieces = pieces(node, kind)?;
        for (key, part) in nodes_in(&pieces) {
            let kind = self.kind(&part)?;
            if kind.is_node() {
                pieces.set_item(key, self.copied(&part, kind, anew, depth + 1)?)?;
            }
        }
        let made = self.refilled(node, kind, &pieces)?;
        if anew && kind == Kind::Other {
            let py = node.py();
            return made.call_method1(intern!(py, "_apart"), (py.None(),));
        }
        Ok(made)
    }

    pub(super) fn collected<'py>(
        &self,
        node: &Bound<'py, PyAny>,
        kind: Kind,
        leaves: &Bound<'py, PyList>,
        depth: usize,
    ) -> PyResult<Bound<'py, PyTuple>> {
        deeper(node.py(), depth)?;
        let pieces = pieces(node, kind)?;
        let mut parts = Vec::new();
        entries_into(pieces.as_any(), &mut parts)?;
        for (key, part) in parts {
            let kind = self.kind(&part)?;
            if kind.is_node() {
                pieces.set_item(key, self.collected(&part, kind, leaves, depth + 1)?)?;
            } else {
                leaves.append(part)?;
            }
        }
        PyTuple::new(node.py(), [node.as_any(), pieces.as_any()])
    }
}

/// The dict of a `TensorDict`: that of the node, not a copy.
#[inline]
pub(super) fn own<'py>(node: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    Ok(node
        .getattr(intern!(node.py(), "_tensordict"))?
        .cast_into::<PyDict>()?)
}

/// The entries of a node as they are now, by its method `method` where it is no `TensorDict`.
#[inline]
pub(super) fn entries<'py>(
    node: &Bound<'py, PyAny>,
    kind: Kind,
    method: &Bound<'py, PyString>,
) -> PyResult<Vec<Entry<'py>>> {
    let given = match kind {
        Kind::Dict => own(node)?.into_any(),
        _ => node.call_method0(method)?,
    };
    let mut found = Vec::new();
    if given.is_instance_of::<PyDict>() {
        entries_into(&given, &mut found)?;
    } else {
        for entry in given.try_iter()? {
            found.push(entry?.extract()?);
        }
    }
    Ok(found)
}

/// A copy of the entries of a node, by name.
pub(super) fn fields<'py>(node: &Bound<'py, PyAny>, kind: Kind) -> PyResult<Bound<'py, PyDict>> {
    copy(node, kind, intern!(node.py(), "_entries"))
}

/// The pieces of a node, in a dict of our own.
#[inline]
fn pieces<'py>(node: &Bound<'py, PyAny>, kind: Kind) -> PyResult<Bound<'py, PyDict>> {
    copy(node, kind, intern!(node.py(), "_pieces"))
}

#[inline]
fn copy<'py>(
    node: &Bound<'py, PyAny>,
    kind: Kind,
    method: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyDict>> {
    if kind == Kind::Dict {
        let own = own(node)?;
        if own.is_exact_instance_of::<PyDict>() {
            return own.copy();
        }
    }
    Ok(node.call_method0(method)?.cast_into::<PyDict>()?)
}

/// Whether what is done to a node is done to its members: a stack of objects is one entry.
#[inline]
pub(super) fn is_stacked(node: &Bound<'_, PyAny>, kind: Kind) -> PyResult<bool> {
    let py = node.py();
    Ok(kind == Kind::Other
        && node.getattr(intern!(py, "_stacked"))?.is_truthy()?
        && !node.getattr(intern!(py, "_is_non_tensor"))?.is_truthy()?)
}

/// The entries that may be nodes: all that are no plain tensors.
#[inline]
fn nodes_in<'py>(pieces: &Bound<'py, PyDict>) -> Vec<Entry<'py>> {
    pieces.iter().filter(|(_, part)| !is_tensor(part)).collect()
}

/// Refuses trees that are deeper than Python follows them: those that hold themselves.
#[inline]
pub(super) fn deeper(py: Python<'_>, depth: usize) -> PyResult<()> {
    if depth < SURE {
        Ok(())
    } else {
        still_deeper(py, depth)
    }
}

#[cold]
fn still_deeper(py: Python<'_>, depth: usize) -> PyResult<()> {
    let limit: usize = py
        .import("sys")?
        .getattr("getrecursionlimit")?
        .call0()?
        .extract()?;
    if depth < limit.min(DEEPEST) {
        return Ok(());
    }
    Err(PyRecursionError::new_err("maximum recursion depth exceeded"))
}
