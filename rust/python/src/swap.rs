//! Parameters of a module, exchanged for those of a tensordict and put back: a plan of dict slots.
//!
//! `swap_in` walks the tensordict and the module together, checks everything and notes each slot; only then it writes.
//! `swap_out` goes through the notes. Neither goes through `Module.__setattr__`.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyKeyError, PyRecursionError, PyRuntimeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString, PyType};

use crate::home::{Entry, Home, Kinds, entries, entries_into, get, remove, reorder, set};
use crate::spare::{ByAddress, Questions, Spare, spares};
use crate::tensor::{Gradients, once};

/// Deeper nesting of modules than this is taken for a cycle.
const DEEPEST: usize = 500;
/// Modules, and leaves, that a swap has room for from the start.
const EXPECTED: usize = 112;

/// Whether `kind` is the type of `value`, not one above it.
fn is_exact(value: &Bound<'_, PyAny>, kind: &Py<PyType>) -> bool {
    std::ptr::eq(value.get_type_ptr().cast(), kind.as_ptr())
}

/// What of torch and of the package is looked up once.
struct Names {
    tensor: Py<PyType>,
    parameter: Py<PyType>,
    make_subclass: Py<PyAny>,
    functorch_level: Py<PyAny>,
    tensordict: Py<PyType>,
    new: Py<PyAny>,
    is_node: Py<PyAny>,
    no_batch: Py<PyAny>,
    questions: Questions,
}

impl Names {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        static NAMES: PyOnceLock<Names> = PyOnceLock::new();
        once(&NAMES, py, || {
            let torch = py.import("torch")?;
            let tensor = torch.getattr("Tensor")?;
            let tensordict = py.import("tensordict._td")?.getattr("TensorDict")?;
            Ok(Self {
                make_subclass: tensor.getattr("_make_subclass")?.unbind(),
                tensor: tensor.cast_into::<PyType>()?.unbind(),
                parameter: torch
                    .getattr("nn")?
                    .getattr("Parameter")?
                    .cast_into::<PyType>()?
                    .unbind(),
                functorch_level: torch
                    .getattr("_C")?
                    .getattr("_functorch")?
                    .getattr("maybe_current_level")?
                    .unbind(),
                new: tensordict.getattr("_new")?.unbind(),
                tensordict: tensordict.cast_into::<PyType>()?.unbind(),
                is_node: py
                    .import("tensordict._kernel.registry")?
                    .getattr("is_node")?
                    .unbind(),
                questions: Questions::load(py)?,
                no_batch: torch.getattr("Size")?.call0()?.unbind(),
            })
        })
    }

    fn is_node(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        if self.is_plain(value) {
            return Ok(false);
        }
        Ok(
            is_exact(value, &self.tensordict)
                || self.is_node.bind(value.py()).call1((value,))?.is_truthy()?,
        )
    }

    /// Whether the type is that of tensors or of parameters itself.
    fn is_plain(&self, value: &Bound<'_, PyAny>) -> bool {
        is_exact(value, &self.tensor) || is_exact(value, &self.parameter)
    }

    fn is_tensor(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.is_plain(value) || value.is_instance(self.tensor.bind(value.py()))?)
    }

    fn is_parameter(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        if is_exact(value, &self.tensor) {
            return Ok(false);
        }
        Ok(is_exact(value, &self.parameter) || value.is_instance(self.parameter.bind(value.py()))?)
    }

    /// `value` as a parameter: the same memory, a leaf of autograd.
    fn wrap<'py>(&self, value: &Bound<'py, PyAny>, requires_grad: bool) -> PyResult<Bound<'py, PyAny>> {
        let py = value.py();
        let parameter = self.parameter.bind(py);
        if self.is_plain(value) {
            self.make_subclass
                .bind(py)
                .call1((parameter, value, requires_grad))
        } else {
            parameter.call1((value, requires_grad))
        }
    }

    /// A tensordict of these fields: no batch size, device or names.
    fn node<'py>(&self, fields: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        self.new.bind(fields.py()).call1((fields, &self.no_batch))
    }
}

/// One entry of the tensordict, and where it goes in the module.
struct Slot {
    level: usize,
    key: Py<PyString>,
    /// The dict that holds the new value during the swap.
    place: Py<PyAny>,
    /// What that dict had before.
    before: Option<Py<PyAny>>,
    /// What it gets.
    after: Py<PyAny>,
    /// The entry of the tensordict.
    source: Py<PyAny>,
    /// Whether a parameter is made for it, and whether that one requires a gradient.
    wrapped: Option<bool>,
    /// The parameter that was made for it.
    spare: Option<Box<Spare>>,
    /// The dict that had the name before, where it is another one, and what it had.
    moved: Option<Box<(Py<PyAny>, Py<PyAny>)>>,
}

impl Slot {
    fn old(&self) -> Option<&Py<PyAny>> {
        self.before
            .as_ref()
            .or(self.moved.as_deref().map(|moved| &moved.1))
    }
}

/// A nested level of the tensordict.
struct Level {
    parent: usize,
    key: Option<Py<PyString>>,
    node: Py<PyAny>,
    /// How many slots came before it.
    at: usize,
    /// The level of the same module that came before; this one has no slots then.
    same: Option<usize>,
}

/// The weights that an RNN module keeps in a list of its own.
struct FlatWeights {
    holder: Py<PyAny>,
    before: Py<PyAny>,
    after: Py<PyList>,
}

#[derive(Default)]
struct Plan {
    levels: Vec<Level>,
    slots: Vec<Slot>,
    flat: Vec<FlatWeights>,
    /// Dicts that lose names for the time of the swap, with the order of their names.
    orders: Vec<(Py<PyAny>, Vec<Py<PyAny>>)>,
    /// From the first write to the end of the swap: how many slots, from the first, hold the new values. Where writing
    /// failed, the next one may lack the old one.
    written: Option<usize>,
}

/// The slots of a module that hold the values of a tensordict for a while.
#[pyclass(frozen, module = "tensordict._core")]
pub(crate) struct Swap {
    plan: Mutex<Option<Plan>>,
}

impl Swap {
    fn take(&self) -> Option<Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The plan, for the caller alone until it is put back.
    fn borrow(&self) -> PyResult<Plan> {
        self.take().ok_or_else(|| {
            PyRuntimeError::new_err("this swap is in use, by another thread or further up in this one")
        })
    }

    fn put(&self, plan: Plan) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = Some(plan);
    }
}

#[pymethods]
impl Swap {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(plan) = self.plan.try_lock() else {
            return Ok(());
        };
        let Some(plan) = plan.as_ref() else { return Ok(()) };
        for slot in &plan.slots {
            visit.call(&slot.place)?;
            visit.call(&slot.before)?;
            visit.call(&slot.after)?;
            visit.call(&slot.source)?;
            if let Some(spare) = &slot.spare {
                visit.call(&spare.parameter)?;
                visit.call(&spare.attributes)?;
            }
            if let Some((dict, value)) = slot.moved.as_deref() {
                visit.call(dict)?;
                visit.call(value)?;
            }
        }
        for level in &plan.levels {
            visit.call(&level.node)?;
        }
        for flat in &plan.flat {
            visit.call(&flat.holder)?;
            visit.call(&flat.before)?;
            visit.call(&flat.after)?;
        }
        for (dict, _) in &plan.orders {
            visit.call(dict)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        drop(self.take());
    }
}

/// The fields of a node: its own dict where it is dict-backed.
fn fields<'py>(node: &Bound<'py, PyAny>, names: &Names) -> PyResult<Bound<'py, PyAny>> {
    let py = node.py();
    if is_exact(node, &names.tensordict) {
        node.getattr(intern!(py, "_tensordict"))
    } else {
        node.call_method0(intern!(py, "_fields"))
    }
}

/// The walk that makes a plan.
struct Planner<'py> {
    py: Python<'py>,
    names: &'py Names,
    gradients: Gradients<'py>,
    /// Whether parameters stay parameters and buffers stay buffers, whatever the values are.
    preserve: bool,
    /// Whether plain tensors become parameters: not inside functorch, whose tensors cannot be wrapped.
    wrap: bool,
    plan: Plan,
    seen: ByAddress<usize>,
    /// The modules in `seen`: an address stands for one object as long as that is alive.
    modules: Vec<Bound<'py, PyAny>>,
    kinds: Kinds,
    /// Entries of the levels that are being walked: a dict is never read while other code may run.
    entries: Vec<Entry<'py>>,
    /// The own dicts of the modules that may keep a list of their weights, and their slots.
    listed: Vec<(Bound<'py, PyAny>, Range<usize>)>,
}

impl<'py> Planner<'py> {
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
            at: self.plan.slots.len(),
            same,
        });
        if same.is_some() {
            return Ok(());
        }
        self.seen.insert(module.as_ptr() as usize, number);
        self.modules.push(module.clone());
        let home = Home::of(module, &mut self.kinds)?;
        let start = self.entries.len();
        entries_into(&fields(node, self.names)?, &mut self.entries)?;
        let end = self.entries.len();
        for index in start..end {
            let (key, value) = self.entries[index].clone();
            let key = key.cast_into::<PyString>()?;
            if self.names.is_node(&value)? {
                let child = get(home.modules()?, &key)?.filter(|child| !child.is_none());
                let child = child.ok_or_else(|| no_place(&key, module))?;
                self.level(&value, &child, (number, Some(key)), depth + 1)?;
            } else {
                self.leaf(number, &key, &value, &home)?;
            }
        }
        self.entries.truncate(start);
        Ok(())
    }

    fn leaf(
        &mut self,
        level: usize,
        key: &Bound<'py, PyString>,
        value: &Bound<'py, PyAny>,
        home: &Home<'_, 'py>,
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
            after: value.clone().unbind(),
            source: value.clone().unbind(),
            wrapped: None,
            spare: None,
            moved: None,
        };
        if let Some(old) = get(parameters, key)?.filter(|_| self.preserve) {
            if old.is_none() && !self.names.is_parameter(value)? {
                self.move_to(&mut slot, parameters, &home.own, old)?;
            } else {
                slot.wrapped = self.as_parameter(value, &old)?;
                slot.before = Some(old.unbind());
            }
            self.list(&home.own);
        } else {
            self.elsewhere(&mut slot, key, value, home)?;
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
        key: &Bound<'py, PyString>,
        value: &Bound<'py, PyAny>,
        home: &Home<'_, 'py>,
    ) -> PyResult<()> {
        let (parameters, buffers) = (home.parameters()?, home.buffers()?);
        let is_parameter = self.names.is_parameter(value)?;
        let (had, old) = if let Some(old) = get(parameters, key)? {
            (parameters, old)
        } else if let Some(old) = get(buffers, key)? {
            (buffers, old)
        } else if let Some(old) = get(&home.own, key)? {
            (&home.own, old)
        } else {
            return Err(no_place(key, home.module));
        };
        if had.is(buffers) && self.preserve && is_parameter {
            slot.after = self.as_buffer(value)?.unbind();
        }
        let place = match is_parameter {
            _ if had.is(buffers) && (self.preserve || !is_parameter) => buffers,
            true => parameters,
            false => &home.own,
        };
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
        if !self.plan.orders.iter().any(|(known, _)| known.is(had)) {
            let order = entries(had)?.into_iter().map(|(key, _)| key.unbind()).collect();
            self.plan.orders.push((had.clone().unbind(), order));
        }
        Ok(())
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
        {
            let mut spares = spares();
            for slot in self.plan.slots.iter_mut().filter(|slot| slot.wrapped.is_some()) {
                slot.spare = spares.remove(&(slot.source.as_ptr() as usize));
            }
        }
        for slot in &mut self.plan.slots {
            let Some(wanted) = slot.wrapped else { continue };
            let source = slot.source.bind(self.py);
            let spare = match slot.spare.take() {
                Some(spare) if spare.refresh(source, wanted) => spare,
                _ => Box::new(Spare::new(source, self.names.wrap(source, wanted)?, wanted)?),
            };
            slot.after = spare.parameter.clone_ref(self.py);
            slot.spare = Some(spare);
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
                for slot in &self.plan.slots[slots.clone()] {
                    if name.eq(&slot.key)? {
                        new = slot.after.bind(self.py).clone();
                    }
                }
                after.append(new)?;
            }
            self.plan.flat.push(FlatWeights {
                holder: own.unbind(),
                before: before.unbind(),
                after: after.unbind(),
            });
        }
        Ok(())
    }
}

fn too_deep() -> PyErr {
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

/// The errors of work that goes on after the first of them.
#[derive(Default)]
struct Faults {
    first: Option<PyErr>,
    others: Vec<PyErr>,
}

impl Faults {
    fn note<T>(&mut self, done: PyResult<T>) -> Option<T> {
        match done {
            Ok(value) => return Some(value),
            Err(error) if self.first.is_none() => self.first = Some(error),
            Err(error) => self.others.push(error),
        }
        None
    }

    /// Raises the first error; the others are notes of it, where Python has such.
    fn finish(self, py: Python<'_>) -> PyResult<()> {
        let Some(first) = self.first else { return Ok(()) };
        for other in self.others {
            let note = format!("and then, while the rest was put back: {other}");
            let _ = first.value(py).call_method1(intern!(py, "add_note"), (note,));
        }
        Err(first)
    }
}

impl Plan {
    fn write(&mut self, py: Python<'_>) -> PyResult<()> {
        for (index, slot) in self.slots.iter().enumerate() {
            self.written = Some(index);
            if let Some((dict, _)) = slot.moved.as_deref() {
                remove(dict.bind(py), slot.key.bind(py))?;
            }
            set(slot.place.bind(py), slot.key.bind(py), slot.after.bind(py))?;
        }
        self.written = Some(self.slots.len());
        for flat in &self.flat {
            set(
                flat.holder.bind(py),
                intern!(py, "_flat_weights"),
                flat.after.bind(py),
            )?;
        }
        Ok(())
    }

    /// Puts back what was there, all that can be, whatever fails. What the module got meanwhile in place of a value goes to
    /// the tensordict. What leaves the module is let go when all is done: its end may run code of a program.
    fn restore(&mut self, py: Python<'_>, names: &Names, faults: &mut Faults) {
        let Some(written) = self.written.take() else {
            return;
        };
        let (flat, orders) = (std::mem::take(&mut self.flat), std::mem::take(&mut self.orders));
        for flat in &flat {
            faults.note(set(
                flat.holder.bind(py),
                intern!(py, "_flat_weights"),
                flat.before.bind(py),
            ));
        }
        let mut replaced = Vec::new();
        for (index, slot) in self.slots.iter().enumerate().take(written + 1).rev() {
            let (place, key) = (slot.place.bind(py), slot.key.bind(py));
            let now = faults.note(get(place, key)).flatten();
            faults.note(match &slot.before {
                Some(before) => set(place, key, before.bind(py)),
                None => remove(place, key),
            });
            if let Some((dict, value)) = slot.moved.as_deref() {
                faults.note(set(dict.bind(py), key, value.bind(py)));
            }
            if let Some(now) = now.filter(|now| index < written && !now.is(&slot.after)) {
                replaced.push((index, now));
            }
        }
        for (dict, order) in &orders {
            faults.note(reorder(dict.bind(py), order));
        }
        for (index, now) in replaced.iter().rev() {
            if faults.note(names.is_tensor(now)) == Some(true) {
                faults.note(self.write_back(py, names, *index, now));
            }
        }
        faults.note(self.keep_spares(py, names));
    }

    fn write_back(
        &self,
        py: Python<'_>,
        names: &Names,
        index: usize,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let slot = &self.slots[index];
        let node = self.levels[slot.level].node.bind(py);
        if is_exact(node, &names.tensordict) {
            set(&fields(node, names)?, slot.key.bind(py), value)
        } else {
            node.call_method1(intern!(py, "set"), (&slot.key, value))
                .map(drop)
        }
    }

    /// Keeps the parameters that were made and that nobody has used.
    fn keep_spares(&mut self, py: Python<'_>, names: &Names) -> PyResult<()> {
        let gradients = Gradients::open(py)?;
        for slot in &mut self.slots {
            let Some(spare) = &slot.spare else { continue };
            // From here on the spare holds the only reference that is known.
            slot.after = slot.source.clone_ref(py);
            if !spare.is_pristine(py, &names.questions, gradients)? {
                slot.spare = None;
            }
        }
        let mut replaced = Vec::new();
        {
            let mut spares = spares();
            for slot in &mut self.slots {
                if let Some(spare) = slot.spare.take() {
                    replaced.extend(spares.insert(slot.source.as_ptr() as usize, spare));
                }
            }
        }
        drop(replaced);
        Ok(())
    }

    /// The values that were in the module, as a tree of tensordicts: the fields of its root.
    fn old_values<'py>(&self, py: Python<'py>, names: &Names) -> PyResult<Bound<'py, PyDict>> {
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

/// Puts the leaves of a tensordict into a module and notes what was there. Nothing is written unless all has a place.
///
/// With `preserve` parameters stay parameters (plain tensors without a graph are wrapped) and buffers stay buffers.
#[pyfunction]
pub(crate) fn swap_in(node: &Bound<'_, PyAny>, module: &Bound<'_, PyAny>, preserve: bool) -> PyResult<Swap> {
    let py = node.py();
    let names = Names::get(py)?;
    let mut planner = Planner {
        py,
        names,
        gradients: Gradients::open(py)?,
        preserve,
        wrap: names.functorch_level.bind(py).call0()?.is_none(),
        plan: Plan {
            levels: Vec::with_capacity(EXPECTED),
            slots: Vec::with_capacity(EXPECTED),
            ..Plan::default()
        },
        seen: HashMap::with_capacity_and_hasher(EXPECTED, BuildHasherDefault::new()),
        modules: Vec::with_capacity(EXPECTED),
        kinds: Kinds::default(),
        entries: Vec::with_capacity(EXPECTED),
        listed: Vec::with_capacity(EXPECTED),
    };
    planner.level(node, module, (0, None), 0)?;
    planner.wrap_values()?;
    planner.flat_weights()?;
    let mut plan = planner.plan;
    let mut faults = Faults::default();
    if faults.note(plan.write(py)).is_none() {
        plan.restore(py, names, &mut faults);
        faults.finish(py)?;
    }
    Ok(Swap {
        plan: Mutex::new(Some(plan)),
    })
}

/// Puts back what the module had, also where entries were replaced or removed meanwhile.
#[pyfunction]
pub(crate) fn swap_out(py: Python<'_>, swap: &Swap) -> PyResult<()> {
    let names = Names::get(py)?;
    let mut plan = swap.borrow()?;
    let mut faults = Faults::default();
    plan.restore(py, names, &mut faults);
    swap.put(plan);
    faults.finish(py)
}

/// The values that the module had, as the fields of a tensordict with the tree of the one that was swapped in.
#[pyfunction]
pub(crate) fn swap_values<'py>(py: Python<'py>, swap: &Swap) -> PyResult<Bound<'py, PyDict>> {
    let names = Names::get(py)?;
    let plan = swap.borrow()?;
    let values = plan.old_values(py, names);
    swap.put(plan);
    values
}

/// The parameters and buffers of a module as the fields of a tensordict, nested as the submodules are. Submodules that
/// have neither are left out where `filter_empty` is set.
#[pyfunction]
pub(crate) fn module_fields<'py>(
    module: &Bound<'py, PyAny>,
    filter_empty: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let mut walk = FieldsWalk {
        names: Names::get(module.py())?,
        filter_empty,
        kinds: Kinds::default(),
    };
    walk.below(module, &mut Vec::new(), 0)
}

/// The walk through a module and those in it.
struct FieldsWalk<'py> {
    names: &'py Names,
    filter_empty: bool,
    kinds: Kinds,
}

impl<'py> FieldsWalk<'py> {
    /// The fields of one module; `entries` is left as it was.
    fn below(
        &mut self,
        module: &Bound<'py, PyAny>,
        entries: &mut Vec<Entry<'py>>,
        depth: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        if depth > DEEPEST {
            return Err(too_deep());
        }
        let home = Home::of(module, &mut self.kinds)?;
        let fields = PyDict::new(module.py());
        let start = entries.len();
        entries_into(home.parameters()?, entries)?;
        entries_into(home.buffers()?, entries)?;
        for (key, value) in entries.drain(start..) {
            if !value.is_none() {
                fields.set_item(key, value)?;
            }
        }
        entries_into(home.modules()?, entries)?;
        for index in start..entries.len() {
            let (key, child) = entries[index].clone();
            if child.is_none() {
                continue;
            }
            let inner = self.below(&child, entries, depth + 1)?;
            if !(self.filter_empty && inner.is_empty()) {
                fields.set_item(key, self.names.node(&inner)?)?;
            }
        }
        entries.truncate(start);
        Ok(fields)
    }
}
