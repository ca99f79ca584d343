//! Entries chosen by their keys.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::nodes::{Kind, Nodes, deeper, fields, is_stacked, own};

/// The names of a key, from the root on; at least one.
pub(super) type Path<'py> = Vec<Bound<'py, PyAny>>;

/// What is left of a path at a node.
type Rest<'a, 'py> = &'a [Bound<'py, PyAny>];

/// The paths that go on below an entry, by its name.
struct Below<'a, 'py> {
    /// Where the paths of a name are.
    places: Bound<'py, PyDict>,
    found: Vec<(&'a Bound<'py, PyAny>, Vec<Rest<'a, 'py>>)>,
}

impl<'a, 'py> Below<'a, 'py> {
    fn new(py: Python<'py>) -> Self {
        Self {
            places: PyDict::new(py),
            found: Vec::new(),
        }
    }

    fn place(&self, name: &Bound<'py, PyAny>) -> PyResult<Option<usize>> {
        if self.found.is_empty() {
            return Ok(None);
        }
        self.places
            .get_item(name)?
            .map(|place| place.extract())
            .transpose()
    }

    fn add(&mut self, place: Option<usize>, path: Rest<'a, 'py>) -> PyResult<()> {
        let (name, rest) = (&path[0], &path[1..]);
        if let Some((_, paths)) = place.and_then(|place| self.found.get_mut(place)) {
            paths.push(rest);
        } else {
            self.places.set_item(name, self.found.len())?;
            self.found.push((name, vec![rest]));
        }
        Ok(())
    }

    /// Forgets the paths below an entry.
    fn clear(&mut self, name: &Bound<'py, PyAny>) -> PyResult<()> {
        if let Some(place) = self.place(name)? {
            self.places.del_item(name)?;
            self.found[place].1.clear();
        }
        Ok(())
    }
}

impl Nodes {
    /// The paths of keys. What is no key is refused by `path_of`.
    pub(super) fn paths<'py>(&self, keys: &Bound<'py, PyTuple>) -> PyResult<Vec<Path<'py>>> {
        keys.iter().map(|key| self.path(&key)).collect()
    }

    fn path<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Path<'py>> {
        if key.is_exact_instance_of::<PyString>() {
            return Ok(vec![key.clone()]);
        }
        if let Ok(parts) = key.cast_exact::<PyTuple>() {
            let plain = parts.iter().all(|part| part.is_exact_instance_of::<PyString>());
            if plain && !parts.is_empty() {
                return Ok(parts.iter().collect());
            }
        }
        self.path_of.bind(key.py()).call1((key,))?.extract()
    }

    /// Raises what a reader of the key raises, where there is no entry at `path`.
    fn must_have<'py>(&self, node: &Bound<'py, PyAny>, path: Rest<'_, 'py>) -> PyResult<()> {
        let mut at = node.clone();
        for name in path {
            let value = match self.kind(&at)? {
                Kind::Dict => own(&at)?.get_item(name)?,
                _ => None,
            };
            let Some(value) = value else {
                let path = PyTuple::new(node.py(), path)?;
                return self.must_have.bind(node.py()).call1((node, path)).map(drop);
            };
            at = value;
        }
        Ok(())
    }

    /// The entry `name`, and what it is.
    fn entry<'py>(
        &self,
        fields: &Bound<'py, PyDict>,
        name: &Bound<'py, PyAny>,
    ) -> PyResult<Option<(Bound<'py, PyAny>, Kind)>> {
        let Some(value) = fields.get_item(name)? else {
            return Ok(None);
        };
        let kind = self.kind(&value)?;
        Ok(Some((value, kind)))
    }

    pub(super) fn selected<'py>(
        &self,
        (node, kind): (&Bound<'py, PyAny>, Kind),
        paths: &[Rest<'_, 'py>],
        strict: bool,
        depth: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        deeper(node.py(), depth)?;
        if is_stacked(node, kind)? {
            return self.by_member(node, |part, kind| {
                self.selected((part, kind), paths, strict, depth + 1)
            });
        }
        let fields = fields(node, kind)?;
        let chosen = PyDict::new(node.py());
        let mut below = Below::new(node.py());
        for path in paths {
            let found = self.entry(&fields, &path[0])?;
            if strict && (found.is_none() || path.len() > 1) {
                self.must_have(node, path)?;
            }
            let Some((value, kind)) = found else { continue };
            if path.len() == 1 {
                chosen.set_item(&path[0], value)?;
                below.clear(&path[0])?;
            } else if kind.is_node() {
                let place = below.place(&path[0])?;
                // the entry itself holds what is below it
                if place.is_some() || chosen.set_default(&path[0], value)? {
                    below.add(place, path)?;
                }
            }
        }
        for (name, rest) in &below.found {
            if let Some((value, kind)) = self.entry(&fields, name)?.filter(|_| !rest.is_empty()) {
                chosen.set_item(name, self.selected((&value, kind), rest, false, depth + 1)?)?;
            }
        }
        self.rebuilt(node, kind, &chosen)
    }

    pub(super) fn excluded<'py>(
        &self,
        (node, kind): (&Bound<'py, PyAny>, Kind),
        paths: &[Rest<'_, 'py>],
        depth: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        deeper(node.py(), depth)?;
        if is_stacked(node, kind)? {
            return self.by_member(node, |part, kind| self.excluded((part, kind), paths, depth + 1));
        }
        let fields = fields(node, kind)?;
        let mut below = Below::new(node.py());
        for path in paths {
            if path.len() > 1 {
                below.add(below.place(&path[0])?, path)?;
            } else if fields.contains(&path[0])? {
                fields.as_any().del_item(&path[0])?; // by the rules of its class
            }
        }
        for (name, rest) in &below.found {
            if let Some((value, kind)) = self.entry(&fields, name)?.filter(|(_, kind)| kind.is_node()) {
                fields.set_item(name, self.excluded((&value, kind), rest, depth + 1)?)?;
            }
        }
        self.rebuilt(node, kind, &fields)
    }
}
