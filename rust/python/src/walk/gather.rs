//! Keys and entries below a node, in order.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use super::Wanted;
use super::nodes::{Kind, Nodes, deeper, entries};
use crate::once::intern;

/// What is kept of the entries of a walk.
pub(super) trait Sink<'py> {
    /// Whether something of the class and shape of an entry does in its place.
    const OUTLINE: bool;

    /// Takes the entry `name` of the node at `prefix`, which is as it was afterwards.
    fn put(
        &mut self,
        prefix: &mut Vec<Bound<'py, PyAny>>,
        name: Bound<'py, PyAny>,
        value: Bound<'py, PyAny>,
    ) -> PyResult<()>;
}

/// The key of an entry: its name, or the tuple of the names on its way.
#[inline]
fn key<'py>(prefix: &mut Vec<Bound<'py, PyAny>>, name: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if prefix.is_empty() {
        return Ok(name);
    }
    let py = name.py();
    prefix.push(name);
    let key = PyTuple::new(py, prefix.iter());
    prefix.pop();
    Ok(key?.into_any())
}

#[derive(Default)]
pub(super) struct Keys<'py> {
    pub(super) found: Vec<Bound<'py, PyAny>>,
}

impl<'py> Sink<'py> for Keys<'py> {
    const OUTLINE: bool = true;

    #[inline]
    fn put(
        &mut self,
        prefix: &mut Vec<Bound<'py, PyAny>>,
        name: Bound<'py, PyAny>,
        _value: Bound<'py, PyAny>,
    ) -> PyResult<()> {
        self.found.push(key(prefix, name)?);
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct Values<'py> {
    pub(super) found: Vec<Bound<'py, PyAny>>,
}

impl<'py> Sink<'py> for Values<'py> {
    const OUTLINE: bool = false;

    #[inline]
    fn put(
        &mut self,
        _prefix: &mut Vec<Bound<'py, PyAny>>,
        _name: Bound<'py, PyAny>,
        value: Bound<'py, PyAny>,
    ) -> PyResult<()> {
        self.found.push(value);
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct Items<'py> {
    pub(super) found: Vec<Bound<'py, PyTuple>>,
}

impl<'py> Sink<'py> for Items<'py> {
    const OUTLINE: bool = false;

    #[inline]
    fn put(
        &mut self,
        prefix: &mut Vec<Bound<'py, PyAny>>,
        name: Bound<'py, PyAny>,
        value: Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let py = name.py();
        self.found.push(PyTuple::new(py, [key(prefix, name)?, value])?);
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct Count {
    pub(super) found: usize,
}

impl<'py> Sink<'py> for Count {
    const OUTLINE: bool = true;

    #[inline]
    fn put(
        &mut self,
        _prefix: &mut Vec<Bound<'py, PyAny>>,
        _name: Bound<'py, PyAny>,
        _value: Bound<'py, PyAny>,
    ) -> PyResult<()> {
        self.found += 1;
        Ok(())
    }
}

/// A walk through a tree.
pub(super) struct Gather<'py, S> {
    nodes: &'static Nodes,
    nested: bool,
    leaves_only: bool,
    is_leaf: Option<Bound<'py, PyAny>>,
    prefix: Vec<Bound<'py, PyAny>>,
    pub(super) sink: S,
}

impl<'py, S: Sink<'py>> Gather<'py, S> {
    pub(super) fn new(nodes: &'static Nodes, (nested, leaves_only, is_leaf): Wanted<'py>, sink: S) -> Self {
        Self {
            nodes,
            nested,
            leaves_only,
            is_leaf,
            prefix: Vec::new(),
            sink,
        }
    }

    fn method<'a>(py: Python<'py>) -> &'a Bound<'py, PyString>
    where
        'py: 'a,
    {
        if S::OUTLINE {
            intern!(py, "_outline")
        } else {
            intern!(py, "_entries")
        }
    }

    /// The entries below one node; the prefix is as it was afterwards.
    pub(super) fn below(&mut self, node: &Bound<'py, PyAny>, kind: Kind, depth: usize) -> PyResult<()> {
        let py = node.py();
        deeper(py, depth)?;
        for (name, value) in entries(node, kind, Self::method(py))? {
            let kind = self.nodes.kind(&value)?;
            if kind.is_node() && (self.nested || self.leaves_only) {
                let leaf = self.nodes.is_leaf(&value, kind, self.is_leaf.as_ref())?;
                if !leaf && self.nested {
                    self.prefix.push(name.clone());
                    self.below(&value, kind, depth + 1)?;
                    self.prefix.pop();
                }
                if !leaf && self.leaves_only {
                    continue;
                }
            }
            self.sink.put(&mut self.prefix, name, value)?;
        }
        Ok(())
    }
}
