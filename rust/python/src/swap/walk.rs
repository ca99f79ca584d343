//! The walk that makes the plan of a swap.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;

use pyo3::exceptions::{PyKeyError, PyRecursionError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use super::names::{Names, is_exact};
use super::plan::{FlatWeights, Level, Listing, Live, Plan, Slot, fields};
use crate::home::{Entry, Home, Kinds, entries, entries_into, get, has_entries, next_if};
use crate::once::intern;
use crate::spare::{ByAddress, Spare, spares};
use crate::tensor::Gradients;

/// Deeper nesting of modules than this is taken for a cycle.
pub(super) const DEEPEST: usize = 500;
/// Modules, and leaves, that a swap has room for from the start.
const EXPECTED: usize = 112;

/// The walk that makes a plan.
pub(super) struct Planner<'py> {
    py: Python<'py>,
    names: &'py Names,
    gradients: Gradients<'py>,
    /// Whether parameters stay parameters and buffers stay buffers, whatever the values are.
    preserve: bool,
    /// Whether plain tensors become parameters: not inside functorch, whose tensors cannot be wrapped.
    wrap: bool,
    plan: Plan,
    live: Live,
    /// The levels of modules, by address: each level holds its module.
    seen: ByAddress<usize>,
    kinds: Kinds,
    /// Entries of the levels that are being walked: a dict is never read while other code may run.
    entries: Vec<Entry<'py>>,
    /// The own dicts of the modules that may keep a list of their weights, and their slots.
    listed: Vec<(Bound<'py, PyAny>, Range<usize>)>,
}

/// How many of the names of a dict of a module, from the first, are those of slots one after the other.
#[derive(Default)]
struct Known {
    /// Where the next name is in the dict, and whether the name that was looked for last was the next one.
    position: isize,
    is_next: bool,
    met: usize,
    first: usize,
    is_asked: bool,
}

/// The names of the dicts of a module.
#[derive(Default)]
struct Met {
    parameters: Known,
    buffers: Known,
}

impl Known {
    /// The value that the dict has under a name.
    #[inline]
    fn look<'py>(
        &mut self,
        dict: &Bound<'py, PyAny>,
        key: &Bound<'py, PyString>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.is_asked = true;
        let next = next_if(dict, &mut self.position, key);
        self.is_next = next.is_some();
        if self.is_next { Ok(next) } else { get(dict, key) }
    }
}

impl<'py> Planner<'py> {
    pub(super) fn new(py: Python<'py>, names: &'py Names, preserve: bool) -> PyResult<Self> {
        Ok(Self {
            py,
            names,
            gradients: Gradients::open(py)?,
            preserve,
            wrap: names.functorch_level.bind(py).call0()?.is_none(),
            plan: Plan {
                levels: Vec::with_capacity(EXPECTED),
                slots: Vec::with_capacity(EXPECTED),
                listings: Vec::with_capacity(EXPECTED),
                ..Plan::default()
            },
            live: Live::default(),
            seen: HashMap::with_capacity_and_hasher(EXPECTED, BuildHasherDefault::new()),
            kinds: Kinds::default(),
            entries: Vec::with_capacity(EXPECTED),
            listed: Vec::with_capacity(EXPECTED),
        })
    }

    pub(super) fn plan(
        mut self,
        node: &Bound<'py, PyAny>,
        module: &Bound<'py, PyAny>,
    ) -> PyResult<(Plan, Live)> {
        self.level(node, module, (0, None), 0)?;
        self.wrap_values()?;
        self.flat_weights()?;
        Ok((self.plan, self.live))
    }

    fn level(
        &mut self,
        node: &Bound<'py, PyAny>,
        module: &Bound<'py, PyAny>,
        place: (usize, Option<Bound<'py, PyString>>),
        depth: usize,
    ) -> PyResult<()> {
        if depth > DEEPEST {
            return Err(too_deep());
        }
        let number = self.plan.levels.len();
        let same = self.seen.get(&(module.as_ptr() as usize)).copied();
        self.plan.levels.push(Level {
            parent: place.0,
            key: place.1.map(Bound::unbind),
            node: node.clone().unbind(),
            module: module.clone().unbind(),
            at: self.plan.slots.len(),
            same,
        });
        if same.is_some() {
            return Ok(());
        }
        self.seen.insert(module.as_ptr() as usize, number);
        let home = Home::of(module, &mut self.kinds)?;
        let start = self.entries.len();
        entries_into(&fields(node, self.names)?, &mut self.entries)?;
        let end = self.entries.len();
        let mut met = Met::default();
        for index in start..end {
            let (key, value) = self.entries[index].clone();
            let key = key.cast_into::<PyString>()?;
            if self.names.is_node(&value)? {
                let child = get(home.modules()?, &key)?.filter(|child| !child.is_none());
                let child = child.ok_or_else(|| no_place(&key, module))?;
                self.level(&value, &child, (number, Some(key)), depth + 1)?;
            } else {
                self.leaf(number, &key, &value, (&home, &mut met))?;
            }
        }
        if met.parameters.is_asked {
            self.list_names(&met.parameters, home.parameters()?)?;
        }
        if met.buffers.is_asked {
            self.list_names(&met.buffers, home.buffers()?)?;
        }
        self.entries.truncate(start);
        Ok(())
    }

    /// Notes that the next slot stays in a dict, under the name that was looked for there.
    #[inline]
    fn meet(&self, known: &mut Known) {
        let next = self.plan.slots.len();
        if known.met == 0 {
            known.first = next;
        }
        if known.is_next && known.first + known.met == next {
            known.met += 1;
        }
    }

    /// Notes the names of a dict of a module, in order.
    #[inline]
    fn list_names(&mut self, known: &Known, dict: &Bound<'py, PyAny>) -> PyResult<()> {
        if known.met > 0 && has_entries(dict, known.met) {
            let slots = known.first..known.first + known.met;
            for slot in &mut self.plan.slots[slots.clone()] {
                slot.listed = true;
            }
            self.plan.listings.push(Listing::Slots(slots));
            return Ok(());
        }
        let start = self.plan.names.len();
        let names = entries(dict)?.into_iter().map(|(name, _)| name.unbind());
        self.plan.names.extend(names);
        let names = start..self.plan.names.len();
        if !names.is_empty() {
            let dict = dict.clone().unbind();
            self.plan.listings.push(Listing::Names(dict, names));
        }
        Ok(())
    }

    fn leaf(
        &mut self,
        level: usize,
        key: &Bound<'py, PyString>,
        value: &Bound<'py, PyAny>,
        (home, met): (&Home<'_, 'py>, &mut Met),
    ) -> PyResult<()> {
        if !self.names.is_tensor(value)? {
            return Err(no_place(key, home.module));
        }
        let parameters = home.parameters()?;
        let mut slot = Slot {
            level,
            key: key.clone().unbind(),
            place: parameters.clone().unbind(),
            before: None,
            source: value.clone().unbind(),
            given: None,
            wrapped: None,
            moved: None,
            listed: false,
        };
        let old = met.parameters.look(parameters, key)?;
        if let Some(old) = old.clone().filter(|_| self.preserve) {
            if old.is_none() && !self.names.is_parameter(value)? {
                self.move_to(&mut slot, parameters, &home.own, old)?;
            } else {
                slot.wrapped = self.as_parameter(value, &old)?;
                slot.before = Some(old.unbind());
                self.meet(&mut met.parameters);
            }
            self.list(&home.own);
        } else {
            self.elsewhere(&mut slot, (value, old), home, met)?;
        }
        self.plan.slots.push(slot);
        if let Some((_, slots)) = self.listed.last_mut() {
            slots.end = self.plan.slots.len();
        }
        Ok(())
    }

    /// The places other than that of a parameter which stays one.
    fn elsewhere(
        &mut self,
        slot: &mut Slot,
        (value, parameter): (&Bound<'py, PyAny>, Option<Bound<'py, PyAny>>),
        home: &Home<'_, 'py>,
        met: &mut Met,
    ) -> PyResult<()> {
        let (parameters, buffers) = (home.parameters()?, home.buffers()?);
        let key = &slot.key.bind(self.py).clone();
        let is_parameter = self.names.is_parameter(value)?;
        let (had, old) = if let Some(old) = parameter {
            (parameters, old)
        } else if let Some(old) = met.buffers.look(buffers, key)? {
            (buffers, old)
        } else if let Some(old) = get(&home.own, key)? {
            (&home.own, old)
        } else {
            return Err(no_place(key, home.module));
        };
        if had.is(buffers) && self.preserve && is_parameter {
            slot.given = Some(self.as_buffer(value)?.unbind());
        }
        let place = match is_parameter {
            _ if had.is(buffers) && (self.preserve || !is_parameter) => buffers,
            true => parameters,
            false => &home.own,
        };
        if place.is(had) && had.is(buffers) {
            self.meet(&mut met.buffers);
        } else if had.is(&home.own) {
            self.list_own(had)?;
        }
        self.list(&home.own);
        self.move_to(slot, had, place, old)
    }

    /// Notes that the value goes to `place`, and what `had`, perhaps the same dict, has under the name.
    fn move_to(
        &mut self,
        slot: &mut Slot,
        had: &Bound<'py, PyAny>,
        place: &Bound<'py, PyAny>,
        old: Bound<'py, PyAny>,
    ) -> PyResult<()> {
        slot.place = place.clone().unbind();
        if place.is(had) {
            slot.before = Some(old.unbind());
            return Ok(());
        }
        slot.before = get(place, slot.key.bind(self.py))?.map(Bound::unbind);
        slot.moved = Some(Box::new((had.clone().unbind(), old.unbind())));
        Ok(())
    }

    /// Notes the order of a module's own attributes.
    #[cold]
    fn list_own(&mut self, own: &Bound<'py, PyAny>) -> PyResult<()> {
        match self.plan.listings.last() {
            Some(Listing::Names(dict, _)) if dict.is(own) => return Ok(()),
            _ => {}
        }
        self.list_names(&Known::default(), own)
    }

    /// Whether a parameter is to be made of `value`, and whether it requires a gradient: where it takes the place of a
    /// tensor, unless it is one that fits, or part of a graph.
    fn as_parameter(&self, value: &Bound<'py, PyAny>, old: &Bound<'py, PyAny>) -> PyResult<Option<bool>> {
        if !self.wrap || old.is_none() || (old.is(value) && is_exact(value, &self.names.parameter)) {
            return Ok(None);
        }
        let (wanted, has) = (
            self.names.questions.requires_grad(old, self.gradients)?,
            self.names.questions.requires_grad(value, self.gradients)?,
        );
        let fits = if self.names.is_parameter(value)? {
            has == wanted
        } else {
            has
        };
        Ok((!fits).then_some(wanted))
    }

    /// What takes the place of a buffer: never a parameter, which `Module.parameters` would list.
    fn as_buffer(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.names.make_subclass.bind(self.py).call1((
            &self.names.tensor,
            value,
            self.names.questions.requires_grad(value, self.gradients)?,
        ))
    }

    /// Notes that the next slot is of the module with this dict.
    fn list(&mut self, own: &Bound<'py, PyAny>) {
        let next = self.plan.slots.len();
        match self.listed.last() {
            Some((last, slots)) if last.is(own) && slots.end == next => {}
            _ => self.listed.push((own.clone(), next..next)),
        }
    }

    /// Makes the parameters, or takes those that were made before.
    fn wrap_values(&mut self) -> PyResult<()> {
        let slots = &self.plan.slots;
        if slots.iter().all(|slot| slot.wrapped.is_none()) {
            return Ok(());
        }
        let made = &mut self.live.spares;
        made.reserve_exact(slots.len());
        {
            let mut spares = spares();
            made.extend(slots.iter().map(|slot| {
                slot.wrapped
                    .and_then(|_| spares.remove(&(slot.source.as_ptr() as usize)))
            }));
        }
        for (slot, place) in slots.iter().zip(made) {
            let Some(wanted) = slot.wrapped else { continue };
            let source = slot.source.bind(self.py);
            let is_good = place
                .as_deref_mut()
                .is_some_and(|spare| spare.refresh(source, wanted));
            if !is_good {
                let parameter = self.names.wrap(source, wanted)?;
                *place = Some(Box::new(Spare::new(source, parameter, wanted)?));
            }
        }
        Ok(())
    }

    /// The lists of weights that RNN modules keep, with the new ones in them.
    fn flat_weights(&mut self) -> PyResult<()> {
        for (own, slots) in std::mem::take(&mut self.listed) {
            let Some(before) = get(&own, intern!(self.py, "_flat_weights"))? else {
                continue;
            };
            let Some(names) = get(&own, intern!(self.py, "_flat_weights_names"))? else {
                continue;
            };
            let (Ok(old), Ok(names)) = (before.cast::<PyList>(), names.cast::<PyList>()) else {
                continue;
            };
            let after = PyList::empty(self.py);
            for (name, weight) in names.iter().zip(old.iter()) {
                let mut new = weight;
                for index in slots.clone() {
                    if name.eq(&self.plan.slots[index].key)? {
                        new = self.plan.after(&self.live, index).bind(self.py).clone();
                    }
                }
                after.append(new)?;
            }
            self.live.flat.push(FlatWeights {
                holder: own.unbind(),
                before: before.unbind(),
                after: after.unbind(),
            });
        }
        Ok(())
    }
}

pub(super) fn too_deep() -> PyErr {
    PyRecursionError::new_err(format!("modules are nested more than {DEEPEST} deep"))
}

fn no_place(key: &Bound<'_, PyString>, module: &Bound<'_, PyAny>) -> PyErr {
    let kind = module
        .get_type()
        .name()
        .map(|name| name.to_string())
        .unwrap_or_default();
    PyKeyError::new_err(format!(
        "the module {kind} has no parameter, buffer or submodule of this name: {key}"
    ))
}
