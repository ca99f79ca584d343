//! The end of a swap: what was there is put back, and what a block has changed goes to the tensordict.

use std::ops::Range;

use pyo3::prelude::*;

use super::names::{Names, is_exact};
use super::plan::{Listing, Live, Plan, fields};
use crate::home::{Home, Kinds, begins_with, get, has_entries, next_if, remove, reorder, set};
use crate::once::intern;
use crate::spare::{Spare, spares};
use crate::tensor::{Gradients, Memory, compare_memory, place_of};

/// The errors of work that goes on after the first of them.
#[derive(Default)]
pub(super) struct Faults {
    first: Option<PyErr>,
    others: Vec<PyErr>,
}

impl Faults {
    pub(super) fn note<T>(&mut self, done: PyResult<T>) -> Option<T> {
        match done {
            Ok(value) => return Some(value),
            Err(error) if self.first.is_none() => self.first = Some(error),
            Err(error) => self.others.push(error),
        }
        None
    }

    /// Raises the first error; the others are notes of it, where Python has such.
    pub(super) fn finish(self, py: Python<'_>) -> PyResult<()> {
        let Some(first) = self.first else { return Ok(()) };
        for other in self.others {
            let note = format!("and then, while the rest was put back: {other}");
            let _ = first.value(py).call_method1(intern!(py, "add_note"), (note,));
        }
        Err(first)
    }
}

/// Whether a tensor that was made of `source`, to share its memory, shares it no longer: a block gave it another one.
#[inline]
fn has_moved(now: &Bound<'_, PyAny>, source: &Bound<'_, PyAny>, spare: Option<&Spare>) -> PyResult<bool> {
    match compare_memory(now, source)? {
        Memory::Same(_) => Ok(false),
        // Where it lies as it did, the source was given another memory, and has what it is to have.
        Memory::Other => {
            let at = spare.and_then(|spare| spare.at);
            Ok(at.is_none() || place_of(now) != at || place_of(source) == at)
        }
        Memory::Unknown => has_moved_slowly(now, source),
    }
}

/// What torch says, of tensors that are not read directly; those of which it says nothing have not moved.
#[cold]
fn has_moved_slowly(now: &Bound<'_, PyAny>, source: &Bound<'_, PyAny>) -> PyResult<bool> {
    for name in ["dtype", "device", "layout", "shape"] {
        if now.getattr(name)?.ne(source.getattr(name)?)? {
            return Ok(true);
        }
    }
    for name in ["is_neg", "is_conj"] {
        if now.call_method0(name)?.is_truthy()? != source.call_method0(name)?.is_truthy()? {
            return Ok(true);
        }
    }
    Ok(now
        .call_method1("is_set_to", (source,))
        .is_ok_and(|same| matches!(same.is_truthy(), Ok(false))))
}

/// Puts back what was there, all that can be, whatever fails. What the module got meanwhile in place of a value, or in its
/// memory, goes to the tensordict. What leaves the module is let go when all is done: its end may run code of a program.
pub(super) fn restore(py: Python<'_>, plan: &Plan, live: Live, names: &Names, faults: &mut Faults) {
    let mut end = End {
        py,
        plan,
        live,
        names,
        faults,
        replaced: Vec::new(),
        disturbed: Vec::new(),
    };
    end.put_back_flat();
    end.put_back_all();
    end.bring_into_order();
    let mut replaced = std::mem::take(&mut end.replaced);
    replaced.sort_unstable_by_key(|(index, _)| *index);
    for (index, now) in &replaced {
        if end.faults.note(names.is_tensor(now)) == Some(true) {
            let done = end.write_back(*index, now);
            end.faults.note(done);
        }
    }
    drop(replaced);
    let done = end.keep_spares();
    end.faults.note(done);
}

struct End<'a, 'py> {
    py: Python<'py>,
    plan: &'a Plan,
    live: Live,
    names: &'a Names,
    faults: &'a mut Faults,
    /// What was there in place of a value, by the number of its slot.
    replaced: Vec<(usize, Bound<'py, PyAny>)>,
    /// Listings whose dicts have got other names or another order.
    disturbed: Vec<usize>,
}

impl<'py> End<'_, 'py> {
    fn put_back_flat(&mut self) {
        for flat in &self.live.flat {
            self.faults.note(set(
                flat.holder.bind(self.py),
                intern!(self.py, "_flat_weights"),
                flat.before.bind(self.py),
            ));
        }
    }

    fn put_back_all(&mut self) {
        let (py, plan) = (self.py, self.plan);
        let whole = self.live.written == plan.slots.len();
        let last = plan.slots.len().min(self.live.written + 1);
        for index in (0..last)
            .rev()
            .filter(|index| !(whole && plan.slots[*index].listed))
        {
            let (place, key) = (plan.slots[index].place.bind(py), plan.slots[index].key.bind(py));
            let now = self.faults.note(get(place, key)).flatten();
            self.put_back(index, now.as_ref());
        }
        if !whole {
            return;
        }
        for (number, listing) in plan.listings.iter().enumerate().rev() {
            if let Listing::Slots(slots) = listing {
                self.put_back_listing(number, slots);
            }
        }
    }

    /// Puts back the slots that are all of a dict, which is gone through in its order as long as that is theirs.
    fn put_back_listing(&mut self, number: usize, slots: &Range<usize>) {
        let (py, plan) = (self.py, self.plan);
        let dict = plan.slots[slots.start].place.bind(py);
        let (mut position, mut is_same) = (0, true);
        for index in slots.clone() {
            let key = plan.slots[index].key.bind(py);
            let mut now = if is_same {
                next_if(dict, &mut position, key)
            } else {
                None
            };
            if now.is_none() {
                is_same = false;
                now = self.faults.note(get(dict, key)).flatten();
            }
            self.put_back(index, now.as_ref());
        }
        if !is_same || !has_entries(dict, slots.len()) {
            self.disturbed.push(number);
        }
    }

    /// Puts back one value, where the dict of the slot has `now`.
    #[inline]
    fn put_back(&mut self, index: usize, now: Option<&Bound<'py, PyAny>>) {
        let (py, slot) = (self.py, &self.plan.slots[index]);
        let (place, key) = (slot.place.bind(py), slot.key.bind(py));
        let is_written = index < self.live.written;
        if is_written {
            match now {
                Some(now) if now.is(self.plan.after(&self.live, index)) => {
                    let spare = self.live.spares.get(index).and_then(Option::as_deref);
                    if (spare.is_some() || slot.given.is_some())
                        && self.faults.note(has_moved(now, slot.source.bind(py), spare)) == Some(true)
                    {
                        self.replaced.push((index, now.clone()));
                    }
                }
                Some(now) => self.replaced.push((index, now.clone())),
                None => {
                    let stray = self.take_stray(index);
                    if let Some(stray) = self.faults.note(stray).flatten() {
                        self.replaced.push((index, stray));
                    }
                }
            }
        }
        self.faults.note(match &slot.before {
            Some(before) => set(place, key, before.bind(py)),
            None => remove(place, key),
        });
        if let Some((dict, value)) = slot.moved.as_deref() {
            self.faults.note(set(dict.bind(py), key, value.bind(py)));
        }
    }

    /// What a block has put under the name of a slot in another dict of the module, which it would hide or double: it is
    /// taken away there.
    #[cold]
    fn take_stray(&self, index: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        let slot = &self.plan.slots[index];
        let key = slot.key.bind(self.py);
        let module = self.plan.levels[slot.level].module.bind(self.py);
        let home = Home::of(module, &mut Kinds::default())?;
        for dict in [home.parameters()?, home.buffers()?, &home.own] {
            if let Some(stray) = get(dict, key)? {
                remove(dict, key)?;
                return Ok(Some(stray));
            }
        }
        Ok(None)
    }

    /// Brings the names of the dicts into the order that they had.
    fn bring_into_order(&mut self) {
        let (py, plan) = (self.py, self.plan);
        for (number, listing) in plan.listings.iter().enumerate() {
            let (dict, order): (_, Vec<_>) = match listing {
                Listing::Names(dict, names) => {
                    let names = &plan.names[names.clone()];
                    if self.faults.note(begins_with(dict.bind(py), names)) == Some(true) {
                        continue;
                    }
                    (dict, names.iter().map(|name| name.clone_ref(py)).collect())
                }
                Listing::Slots(slots) if self.disturbed.contains(&number) => {
                    let slots = &plan.slots[slots.clone()];
                    let keys = slots.iter().map(|slot| slot.key.clone_ref(py).into_any());
                    (&slots[0].place, keys.collect())
                }
                Listing::Slots(_) => continue,
            };
            self.faults.note(reorder(dict.bind(py), &order));
        }
    }

    /// Stores what took the place of a value in the tensordict, under every name of its module there.
    fn write_back(&self, index: usize, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let slot = &self.plan.slots[index];
        let key = slot.key.bind(self.py);
        self.store(slot.level, key, value)?;
        for (number, level) in self.plan.levels.iter().enumerate() {
            if level.same == Some(slot.level)
                && get(&fields(level.node.bind(self.py), self.names)?, key)?.is_some()
            {
                self.store(number, key, value)?;
            }
        }
        Ok(())
    }

    fn store(&self, level: usize, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let node = self.plan.levels[level].node.bind(self.py);
        if is_exact(node, &self.names.tensordict) {
            set(&fields(node, self.names)?, key, value)
        } else {
            node.call_method1(intern!(self.py, "set"), (key, value)).map(drop)
        }
    }

    /// Keeps the parameters that were made and that nobody has used.
    fn keep_spares(&mut self) -> PyResult<()> {
        if self.live.spares.is_empty() {
            return Ok(());
        }
        let gradients = Gradients::open(self.py)?;
        for spare in &mut self.live.spares {
            if let Some(known) = spare.as_deref()
                && !known.is_pristine(self.py, &self.names.questions, gradients)?
            {
                *spare = None;
            }
        }
        let mut others = Vec::new();
        {
            let mut spares = spares();
            for (slot, spare) in self.plan.slots.iter().zip(&mut self.live.spares) {
                if let Some(spare) = spare.take() {
                    others.extend(spares.insert(slot.source.as_ptr() as usize, spare));
                }
            }
        }
        drop(others);
        Ok(())
    }
}
