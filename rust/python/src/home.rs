//! A module as a swap sees it: the dicts of its parameters, its buffers, its submodules and its own attributes.
//!
//! They are plain dicts as a rule, which the functions for dicts read and write. A module of an old pickle has
//! `OrderedDict`s, and a program may put anything there: these keep books of their own, so they are asked as any object is.
//! Whatever is read is owned: a key, a value or a mapping of a program may run code that changes them all.

use std::cell::OnceCell;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::once::intern;
use crate::tensor::{next_if_key, own_dict};

/// The value at `key`.
#[inline(always)]
#[expect(clippy::inline_always, reason = "four times for each slot of a swap")]
pub(crate) fn get<'py>(
    mapping: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match mapping.cast_exact::<PyDict>() {
        Ok(dict) => dict.get_item(key),
        Err(_) => get_of_any(mapping, key),
    }
}

#[cold]
fn get_of_any<'py>(
    mapping: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    mapping.contains(key)?.then(|| mapping.get_item(key)).transpose()
}

/// Takes `key` away, if it is there.
pub(crate) fn remove(mapping: &Bound<'_, PyAny>, key: &Bound<'_, PyAny>) -> PyResult<()> {
    if mapping.contains(key)? {
        mapping.del_item(key)
    } else {
        Ok(())
    }
}

/// Sets `key`: at its place if it is there, else behind the others.
#[inline(always)]
#[expect(clippy::inline_always, reason = "twice for each slot of a swap")]
pub(crate) fn set(
    mapping: &Bound<'_, PyAny>,
    key: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    match mapping.cast_exact::<PyDict>() {
        Ok(dict) => dict.set_item(key, value),
        Err(_) => mapping.set_item(key, value),
    }
}

/// A key and its value.
pub(crate) type Entry<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Puts the entries, in order, at the end of `found`.
#[inline]
pub(crate) fn entries_into<'py>(mapping: &Bound<'py, PyAny>, found: &mut Vec<Entry<'py>>) -> PyResult<()> {
    if let Ok(dict) = mapping.cast_exact::<PyDict>() {
        // Nothing that is done here runs code of a program, so the dict stays as it is.
        found.extend(dict);
        return Ok(());
    }
    entries_of_any(mapping, found)
}

#[cold]
fn entries_of_any<'py>(mapping: &Bound<'py, PyAny>, found: &mut Vec<Entry<'py>>) -> PyResult<()> {
    for entry in mapping.call_method0(intern!(mapping.py(), "items"))?.try_iter()? {
        found.push(entry?.extract()?);
    }
    Ok(())
}

/// The value of the next entry of a plain dict, if its key is this string; `position`, 0 at first, is that of the entry.
#[inline]
pub(crate) fn next_if<'py>(
    mapping: &Bound<'py, PyAny>,
    position: &mut isize,
    key: &Bound<'_, PyAny>,
) -> Option<Bound<'py, PyAny>> {
    next_if_key(mapping.cast_exact::<PyDict>().ok()?, position, key)
}

/// Whether it is a plain dict of this many entries.
#[inline]
pub(crate) fn has_entries(mapping: &Bound<'_, PyAny>, count: usize) -> bool {
    mapping
        .cast_exact::<PyDict>()
        .is_ok_and(|dict| dict.len() == count)
}

/// Whether these are the first names, in this order.
pub(crate) fn begins_with(mapping: &Bound<'_, PyAny>, names: &[Py<PyAny>]) -> PyResult<bool> {
    let py = mapping.py();
    if mapping.is_exact_instance_of::<PyDict>() {
        let mut position = 0;
        return Ok(names
            .iter()
            .all(|name| next_if(mapping, &mut position, name.bind(py)).is_some()));
    }
    let found = entries(mapping)?;
    let keys = found.iter().take(names.len()).map(|(key, _)| key.as_ptr());
    Ok(keys.eq(names.iter().map(Py::as_ptr)))
}

/// The entries, in order.
pub(crate) fn entries<'py>(mapping: &Bound<'py, PyAny>) -> PyResult<Vec<Entry<'py>>> {
    let mut found = Vec::new();
    entries_into(mapping, &mut found)?;
    Ok(found)
}

/// Brings the names of a mapping into an earlier order; names that came later follow.
pub(crate) fn reorder(mapping: &Bound<'_, PyAny>, order: &[Py<PyAny>]) -> PyResult<()> {
    let py = mapping.py();
    let moved = |key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>| {
        mapping.del_item(key)?;
        set(mapping, key, value)
    };
    for key in order {
        let key = key.bind(py);
        if let Some(value) = get(mapping, key)? {
            moved(key, &value)?;
        }
    }
    for (key, value) in entries(mapping)? {
        let mut is_known = order.iter().any(|known| known.is(&key));
        for known in order {
            is_known = is_known || known.bind(py).eq(&key)?;
        }
        if !is_known {
            moved(&key, &value)?;
        }
    }
    Ok(())
}

/// The types of modules that are known, in one walk, to keep their attributes where every object does. The others, and the
/// first module of each type, are asked for `__dict__`, which a class may define as it likes.
#[derive(Default)]
pub(crate) struct Kinds {
    plain: Vec<usize>,
}

impl Kinds {
    /// More types than these are not worth looking through.
    const MOST: usize = 16;

    fn own<'py>(&mut self, module: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let kind = module.get_type_ptr() as usize;
        if self.plain.contains(&kind) {
            return own_dict(module);
        }
        let own = module.getattr(intern!(module.py(), "__dict__"))?;
        if self.plain.len() < Self::MOST && own_dict(module).is_ok_and(|plain| plain.is(&own)) {
            self.plain.push(kind);
        }
        Ok(own)
    }
}

/// A module in the walk: its dicts, each looked up when it is needed.
pub(crate) struct Home<'a, 'py> {
    pub(crate) module: &'a Bound<'py, PyAny>,
    pub(crate) own: Bound<'py, PyAny>,
    parameters: OnceCell<Bound<'py, PyAny>>,
    buffers: OnceCell<Bound<'py, PyAny>>,
    modules: OnceCell<Bound<'py, PyAny>>,
}

impl<'a, 'py> Home<'a, 'py> {
    pub(crate) fn of(module: &'a Bound<'py, PyAny>, kinds: &mut Kinds) -> PyResult<Self> {
        Ok(Self {
            module,
            own: kinds.own(module)?,
            parameters: OnceCell::new(),
            buffers: OnceCell::new(),
            modules: OnceCell::new(),
        })
    }

    fn get<'b>(
        &'b self,
        cell: &'b OnceCell<Bound<'py, PyAny>>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<&'b Bound<'py, PyAny>> {
        if let Some(found) = cell.get() {
            return Ok(found);
        }
        let found = match get(&self.own, name)? {
            Some(found) => found,
            None => self.module.getattr(name)?,
        };
        Ok(cell.get_or_init(|| found))
    }

    pub(crate) fn parameters(&self) -> PyResult<&Bound<'py, PyAny>> {
        self.get(&self.parameters, intern!(self.module.py(), "_parameters"))
    }

    pub(crate) fn buffers(&self) -> PyResult<&Bound<'py, PyAny>> {
        self.get(&self.buffers, intern!(self.module.py(), "_buffers"))
    }

    pub(crate) fn modules(&self) -> PyResult<&Bound<'py, PyAny>> {
        self.get(&self.modules, intern!(self.module.py(), "_modules"))
    }
}
