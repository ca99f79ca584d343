//! Trees made flat, and deep again.

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use super::nodes::{Kind, Nodes, deeper, entries, is_stacked, own};
use crate::once::intern;

/// A tree that is made flat.
struct Flat<'a, 'py> {
    nodes: &'a Nodes,
    separator: &'a Bound<'py, PyAny>,
    is_leaf: Option<&'a Bound<'py, PyAny>>,
    fields: Bound<'py, PyDict>,
    /// The paths of the leaves whose keys are taken.
    clash: Vec<Bound<'py, PyTuple>>,
}

impl<'py> Flat<'_, 'py> {
    /// Puts what is below a node under keys that begin with `prefix`.
    fn put(
        &mut self,
        node: &Bound<'py, PyAny>,
        kind: Kind,
        prefix: &Bound<'py, PyAny>,
        depth: usize,
    ) -> PyResult<()> {
        let py = node.py();
        deeper(py, depth)?;
        for (name, value) in entries(node, kind, intern!(py, "_entries"))? {
            let key = if depth == 0 && name.is_exact_instance_of::<PyString>() {
                name
            } else {
                prefix.add(name)?
            };
            let kind = self.nodes.kind(&value)?;
            if self.nodes.is_branch(&value, kind)? && !self.nodes.is_leaf(&value, kind, self.is_leaf)? {
                self.put(&value, kind, &key.add(self.separator)?, depth + 1)?;
            } else if !self.fields.set_default(&key, value)? {
                self.clash.push(split(&key, self.separator)?);
            }
        }
        Ok(())
    }
}

/// The path of a key.
fn split<'py>(key: &Bound<'py, PyAny>, separator: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let parts = key.call_method1(intern!(key.py(), "split"), (separator,))?;
    Ok(parts.cast_into::<PyList>()?.to_tuple())
}

/// A node that is being filled.
#[derive(Clone)]
struct Holder<'py> {
    node: Bound<'py, PyAny>,
    /// Its dict, where it is a `TensorDict`.
    fields: Option<Bound<'py, PyDict>>,
}

impl<'py> Holder<'py> {
    fn of(node: Bound<'py, PyAny>, kind: Kind) -> PyResult<Self> {
        let fields = match kind {
            Kind::Dict => Some(own(&node)?).filter(|own| own.is_exact_instance_of::<PyDict>()),
            _ => None,
        };
        Ok(Self { node, fields })
    }

    fn kind(&self) -> Kind {
        if self.fields.is_some() {
            Kind::Dict
        } else {
            Kind::Other
        }
    }

    fn get(&self, name: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let Some(fields) = &self.fields {
            return fields.get_item(name);
        }
        let py = self.node.py();
        let fields = self.node.call_method0(intern!(py, "_fields"))?;
        fields.contains(name)?.then(|| fields.get_item(name)).transpose()
    }

    fn set(&self, name: &Bound<'py, PyAny>, value: &Bound<'py, PyAny>) -> PyResult<()> {
        match &self.fields {
            Some(fields) => fields.set_item(name, value),
            None => self
                .node
                .call_method1(intern!(self.node.py(), "_set_str"), (name, value))
                .map(drop),
        }
    }
}

/// The texts before and behind the last separator of a key, if it has one. Separators are found from the left.
fn parted<'a>(key: &'a str, separator: &str) -> Option<(&'a str, &'a str)> {
    let place = match separator.as_bytes() {
        [byte] => key.bytes().rposition(|other| other == *byte)?,
        _ => key.match_indices(separator).last()?.0,
    };
    Some((&key[..place], &key[place + separator.len()..]))
}

/// The text of a plain string, if it has one that is not empty.
fn text<'a>(value: &'a Bound<'_, PyAny>) -> Option<&'a str> {
    let value = value.cast_exact::<PyString>().ok()?.to_str().ok()?;
    (!value.is_empty()).then_some(value)
}

/// A tree that is made deep.
struct Deep<'a, 'py> {
    nodes: &'a Nodes,
    separator: &'a Bound<'py, PyAny>,
    root: Holder<'py>,
    /// The text before the last separator of a key that was put, and the node that holds its entry.
    last: Option<(String, Holder<'py>)>,
}

impl<'py> Deep<'_, 'py> {
    fn put(&mut self, key: &Bound<'py, PyAny>, value: &Bound<'py, PyAny>) -> PyResult<()> {
        let texts = text(self.separator).and_then(|separator| parted(text(key)?, separator));
        if let (Some((prefix, name)), Some((known, holder))) = (texts, &self.last) {
            if prefix == known {
                let name = PyString::new(key.py(), name);
                return self.put_in(holder, name.as_any(), value, key);
            }
        }
        let path = split(key, self.separator)?;
        let mut holder = self.root.clone();
        let count = path.len();
        for place in 0..count {
            let name = path.get_item(place)?;
            if place + 1 == count {
                self.put_in(&holder, &name, value, key)?;
                break;
            }
            holder = self.below(&holder, &name, key)?;
        }
        if let Some((prefix, _)) = texts {
            self.last = Some((prefix.to_owned(), holder));
        }
        Ok(())
    }

    /// The node `name` of another one, which is made if it is not there.
    fn below(
        &self,
        holder: &Holder<'py>,
        name: &Bound<'py, PyAny>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Holder<'py>> {
        if let Some(found) = holder.get(name)?.filter(|found| !found.is_none()) {
            let kind = self.nodes.kind(&found)?;
            if kind.is_node() {
                return Holder::of(found, kind);
            }
            return Err(self.taken(key));
        }
        let fields = PyDict::new(key.py());
        let node = self.nodes.rebuilt(&holder.node, holder.kind(), &fields)?;
        holder.set(name, &node)?;
        let kind = self.nodes.kind(&node)?;
        Holder::of(node, kind)
    }

    fn put_in(
        &self,
        holder: &Holder<'py>,
        name: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        if let Some(fields) = &holder.fields {
            if fields.set_default(name, value)? {
                return Ok(());
            }
        } else if holder.get(name)?.is_none() {
            return holder.set(name, value);
        }
        Err(self.taken(key))
    }

    #[cold]
    fn taken(&self, key: &Bound<'py, PyAny>) -> PyErr {
        let path = split(key, self.separator).and_then(|path| path.repr());
        path.map_or_else(
            |error| error,
            |path| {
                PyKeyError::new_err(format!(
                    "Unflattening key(s) in tensordict will override an existing for unflattened key {path}."
                ))
            },
        )
    }
}

impl Nodes {
    pub(super) fn flat<'py>(
        &self,
        node: &Bound<'py, PyAny>,
        kind: Kind,
        separator: &Bound<'py, PyAny>,
        is_leaf: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = node.py();
        if is_stacked(node, kind)? {
            return self.by_member(node, |part, kind| self.flat(part, kind, separator, is_leaf));
        }
        let mut flat = Flat {
            nodes: self,
            separator,
            is_leaf,
            fields: PyDict::new(py),
            clash: Vec::new(),
        };
        flat.put(node, kind, intern!(py, "").as_any(), 0)?;
        if !flat.clash.is_empty() {
            let clash = PyList::new(py, flat.clash)?.repr()?;
            return Err(PyKeyError::new_err(format!(
                "Flattening keys in tensordict causes keys {clash} to collide."
            )));
        }
        self.rebuilt(node, kind, &flat.fields)
    }

    pub(super) fn deep<'py>(
        &self,
        node: &Bound<'py, PyAny>,
        kind: Kind,
        separator: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = node.py();
        if is_stacked(node, kind)? {
            return self.by_member(node, |part, kind| self.deep(part, kind, separator));
        }
        let out = self.rebuilt(node, kind, &PyDict::new(py))?;
        let made = self.kind(&out)?;
        let root = Holder::of(out.clone(), made)?;
        let mut paths = Vec::new();
        for (key, value) in entries(node, kind, intern!(py, "_entries"))? {
            if key.contains(separator)? {
                paths.push((key, value));
                continue;
            }
            // nodes are copied, since paths may be written into them
            let kind = self.kind(&value)?;
            let value = if kind.is_node() {
                self.copied(&value, kind, false, 0)?
            } else {
                value
            };
            root.set(&key, &value)?;
        }
        let mut deep = Deep {
            nodes: self,
            separator,
            root,
            last: None,
        };
        for (key, value) in paths {
            deep.put(&key, &value)?;
        }
        Ok(out)
    }
}
