//! The plan of a swap: which value goes to which dict of which module, and what was there.

use std::ops::Range;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use super::names::{Names, is_exact};
use crate::home::{remove, set};
use crate::once::intern;
use crate::spare::Spare;

/// One entry of the tensordict, and where it goes in the module.
pub(super) struct Slot {
    pub(super) level: usize,
    pub(super) key: Py<PyString>,
    /// The dict that holds the new value during the swap.
    pub(super) place: Py<PyAny>,
    /// What that dict had before.
    pub(super) before: Option<Py<PyAny>>,
    /// The entry of the tensordict.
    pub(super) source: Py<PyAny>,
    /// The tensor of the same memory that takes the place of a buffer, where the entry is a parameter.
    pub(super) given: Option<Py<PyAny>>,
    /// Whether a parameter is made for it, and whether that one requires a gradient.
    pub(super) wrapped: Option<bool>,
    /// The dict that had the name before, where it is another one, and what it had.
    pub(super) moved: Option<Box<(Py<PyAny>, Py<PyAny>)>>,
    /// Whether it is one of the slots of a [`Listing`].
    pub(super) listed: bool,
}

impl Slot {
    fn old(&self) -> Option<&Py<PyAny>> {
        self.before
            .as_ref()
            .or(self.moved.as_deref().map(|moved| &moved.1))
    }
}

/// A nested level of the tensordict.
pub(super) struct Level {
    pub(super) parent: usize,
    pub(super) key: Option<Py<PyString>>,
    pub(super) node: Py<PyAny>,
    pub(super) module: Py<PyAny>,
    /// How many slots came before it.
    pub(super) at: usize,
    /// The level of the same module that came before; this one has no slots then.
    pub(super) same: Option<usize>,
}

/// The names of a dict of a module, in the order that they had.
pub(super) enum Listing {
    /// Those of these slots, at least one, which all stay in their dict.
    Slots(Range<usize>),
    /// The names of this dict are these of [`Plan::names`].
    Names(Py<PyAny>, Range<usize>),
}

/// The weights that an RNN module keeps in a list of its own.
pub(super) struct FlatWeights {
    pub(super) holder: Py<PyAny>,
    pub(super) before: Py<PyAny>,
    pub(super) after: Py<PyList>,
}

/// What was found before anything was written. It does not change, so that who reads it needs no lock.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) levels: Vec<Level>,
    pub(super) slots: Vec<Slot>,
    pub(super) listings: Vec<Listing>,
    pub(super) names: Vec<Py<PyAny>>,
}

/// What there is from the first write to the end of the swap. Who takes it ends the swap: it is there once.
#[derive(Default)]
pub(super) struct Live {
    /// For each slot, if there are any, the parameter that was made for it.
    pub(super) spares: Vec<Option<Box<Spare>>>,
    pub(super) flat: Vec<FlatWeights>,
    /// How many slots, from the first, hold the new values. Where writing failed, the next one may lack the old one.
    pub(super) written: usize,
}

impl Live {
    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        for spare in self.spares.iter().flatten() {
            visit.call(&spare.parameter)?;
            visit.call(&spare.attributes)?;
        }
        for flat in &self.flat {
            visit.call(&flat.holder)?;
            visit.call(&flat.before)?;
            visit.call(&flat.after)?;
        }
        Ok(())
    }

    #[inline]
    fn spare(&self, index: usize) -> Option<&Spare> {
        self.spares.get(index)?.as_deref()
    }
}

/// The fields of a node: its own dict where it is dict-backed.
#[inline]
pub(super) fn fields<'py>(node: &Bound<'py, PyAny>, names: &Names) -> PyResult<Bound<'py, PyAny>> {
    let py = node.py();
    if is_exact(node, &names.tensordict) {
        node.getattr(intern!(py, "_tensordict"))
    } else {
        node.call_method0(intern!(py, "_fields"))
    }
}

impl Plan {
    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        for slot in &self.slots {
            visit.call(&slot.place)?;
            visit.call(&slot.before)?;
            visit.call(&slot.source)?;
            visit.call(&slot.given)?;
            if let Some((dict, value)) = slot.moved.as_deref() {
                visit.call(dict)?;
                visit.call(value)?;
            }
        }
        for level in &self.levels {
            visit.call(&level.node)?;
            visit.call(&level.module)?;
        }
        for listing in &self.listings {
            if let Listing::Names(dict, _) = listing {
                visit.call(dict)?;
            }
        }
        Ok(())
    }

    /// What the dict of a slot gets.
    #[inline]
    pub(super) fn after<'a>(&'a self, live: &'a Live, index: usize) -> &'a Py<PyAny> {
        let slot = &self.slots[index];
        match live.spare(index) {
            Some(spare) => &spare.parameter,
            None => slot.given.as_ref().unwrap_or(&slot.source),
        }
    }

    pub(super) fn write(&self, py: Python<'_>, live: &mut Live) -> PyResult<()> {
        for (index, slot) in self.slots.iter().enumerate() {
            live.written = index;
            if let Some((dict, _)) = slot.moved.as_deref() {
                remove(dict.bind(py), slot.key.bind(py))?;
            }
            set(
                slot.place.bind(py),
                slot.key.bind(py),
                self.after(live, index).bind(py),
            )?;
        }
        live.written = self.slots.len();
        for flat in &live.flat {
            set(
                flat.holder.bind(py),
                intern!(py, "_flat_weights"),
                flat.after.bind(py),
            )?;
        }
        Ok(())
    }

    /// The values that were in the module, as a tree of tensordicts: the fields of its root.
    pub(super) fn old_values<'py>(&self, py: Python<'py>, names: &Names) -> PyResult<Bound<'py, PyDict>> {
        let mut dicts: Vec<Bound<'py, PyDict>> = Vec::with_capacity(self.levels.len());
        let mut slots = self.slots.iter().enumerate().peekable();
        for number in 0..=self.levels.len() {
            let level = self.levels.get(number);
            let until = level.map_or(self.slots.len(), |level| level.at);
            while let Some((_, slot)) = slots.next_if(|(index, _)| *index < until) {
                if let Some(old) = slot.old().filter(|old| !old.is_none(py)) {
                    dicts[slot.level].set_item(&slot.key, old)?;
                }
            }
            let Some(level) = level else { break };
            let dict = match level.same {
                Some(same) => dicts[same].clone(),
                None => PyDict::new(py),
            };
            if let Some(key) = &level.key {
                dicts[level.parent].set_item(key, names.node(&dict)?)?;
            }
            dicts.push(dict);
        }
        Ok(dicts.swap_remove(0))
    }
}
