//! Parameters that were made for plain tensors, kept for the next swap.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyTuple, PyWeakrefReference};

use crate::error::internal;
use crate::once::intern;
use crate::tensor::{Attribute, Gradient, Gradients, Memory, Place, Weakly, compare_memory, references};

/// How to ask a tensor for what a swap has to know.
pub(crate) struct Questions {
    requires_grad: Attribute,
    grad: Attribute,
    hooks: Attribute,
    later_hooks: Attribute,
    is_leaf: Attribute,
    /// Whether it has a dtype of gradients of its own, and its names, in releases of torch that have such.
    grad_dtype: Option<Attribute>,
    /// That dtype itself, in releases that do not say whether it is its own.
    gradient_dtype: Option<Attribute>,
    names: Option<Attribute>,
    weakly: Weakly,
    /// Whether the references of a tensor's object count those that torch's own code holds.
    counts_all: bool,
}

impl Questions {
    pub(crate) fn load(py: Python<'_>) -> PyResult<Self> {
        let getter = |name| {
            Attribute::new(py, name)?.ok_or_else(|| internal("an attribute of tensors is not one of C"))
        };
        let grad_dtype = Attribute::new(py, "_has_grad_dtype_override")?;
        Ok(Self {
            gradient_dtype: match grad_dtype {
                Some(_) => None,
                None => Attribute::new(py, "grad_dtype")?,
            },
            requires_grad: getter("requires_grad")?,
            grad: getter("grad")?,
            hooks: getter("_backward_hooks")?,
            later_hooks: getter("_post_accumulate_grad_hooks")?,
            is_leaf: getter("is_leaf")?,
            grad_dtype,
            names: Attribute::new(py, "names")?,
            weakly: Weakly::new(&parameter(py)?)?,
            counts_all: counts_all(py)?,
        })
    }

    /// Whether a tensor requires a gradient.
    #[inline]
    pub(crate) fn requires_grad(
        &self,
        tensor: &Bound<'_, PyAny>,
        gradients: Gradients<'_>,
    ) -> PyResult<bool> {
        match gradients.of(tensor)? {
            Gradient::Never => Ok(false),
            Gradient::Wanted | Gradient::Used => Ok(true),
            Gradient::Unclear => Ok(self.requires_grad.get(tensor)?.is(PyBool::new(tensor.py(), true))),
        }
    }
}

/// Whether an answer is false, or consists of nothing.
fn is_unset(answer: &Bound<'_, PyAny>) -> PyResult<bool> {
    match answer.cast::<PyTuple>() {
        Ok(names) => Ok(names.iter().all(|name| name.is_none())),
        Err(_) => Ok(!answer.is_truthy()?),
    }
}

/// A parameter of nothing.
fn parameter(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("torch.nn")?.getattr("Parameter")?.call0()
}

/// Tries with a tensor that a graph holds.
fn counts_all(py: Python<'_>) -> PyResult<bool> {
    let torch = py.import("torch")?;
    let tensor = torch
        .getattr("zeros")?
        .call1(((),))?
        .call_method1("requires_grad_", (true,))?;
    let before = references(&tensor);
    let mode = torch.getattr("enable_grad")?.call0()?;
    mode.call_method0("__enter__")?;
    let held = tensor.add(0);
    mode.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
    let held = held?;
    let counts = references(&tensor) > before;
    drop(held);
    Ok(counts)
}

/// Hashes addresses, which differ enough by themselves.
#[derive(Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (self.0 ^ (address as u64 >> 4)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A map by the address of an object.
pub(crate) type ByAddress<V> = HashMap<usize, V, BuildHasherDefault<AddressHasher>>;

/// Parameters that were made for plain tensors, by the address of the tensor. Making one costs more than everything else
/// that a swap does for its slot. One is kept only while it is as good as new: nobody else holds it, not even weakly, its
/// class is `Parameter`, and it has no attributes of its own, no gradient nor a dtype of it, no hooks, no names and no history. It goes when its tensor
/// goes.
///
/// Nothing that could run Python code is done while the lock is held, dropping a spare included.
static SPARES: Mutex<ByAddress<Box<Spare>>> = Mutex::new(HashMap::with_hasher(BuildHasherDefault::new()));

/// A parameter that was made for a tensor.
pub(crate) struct Spare {
    tensor: Py<PyWeakrefReference>,
    pub(crate) parameter: Py<PyAny>,
    /// The parameter's own attributes. The parameter holds it, so while nobody else does it has two references: one where
    /// the parameter was given another one.
    pub(crate) attributes: Py<PyDict>,
    requires_grad: bool,
    /// Where the memory of both is, if that is known.
    pub(crate) at: Option<Place>,
}

/// Called when a tensor with a spare parameter goes.
#[pyclass(frozen)]
struct Forget {
    address: usize,
}

#[pymethods]
impl Forget {
    fn __call__(&self, _tensor: Py<PyAny>) {
        let spare = spares().remove(&self.address);
        drop(spare);
    }
}

/// Makes the type of what is called then.
pub(crate) fn warm_up(py: Python<'_>) {
    py.get_type::<Forget>();
}

/// The spares, locked.
pub(crate) fn spares() -> MutexGuard<'static, ByAddress<Box<Spare>>> {
    SPARES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Spare {
    pub(crate) fn new(
        tensor: &Bound<'_, PyAny>,
        parameter: Bound<'_, PyAny>,
        requires_grad: bool,
    ) -> PyResult<Self> {
        let forget = Bound::new(
            tensor.py(),
            Forget {
                address: tensor.as_ptr() as usize,
            },
        )?;
        Ok(Self {
            at: match compare_memory(&parameter, tensor)? {
                Memory::Same(at) => Some(at),
                Memory::Other | Memory::Unknown => None,
            },
            tensor: PyWeakrefReference::new_with(tensor, forget)?.unbind(),
            attributes: parameter
                .getattr(intern!(tensor.py(), "__dict__"))?
                .cast_into()?
                .unbind(),
            parameter: parameter.unbind(),
            requires_grad,
        })
    }

    /// Brings the parameter up to date with `tensor`, which may have got another memory or shape since; false where the
    /// parameter is of no use.
    #[inline]
    pub(crate) fn refresh(&mut self, tensor: &Bound<'_, PyAny>, wanted_grad: bool) -> bool {
        let py = tensor.py();
        if self.requires_grad != wanted_grad
            || !self.tensor.bind(py).upgrade().is_some_and(|kept| kept.is(tensor))
        {
            return false;
        }
        let parameter = self.parameter.bind(py);
        if let Ok(Memory::Same(at)) = compare_memory(parameter, tensor) {
            self.at = Some(at);
            return true;
        }
        self.renew(tensor)
    }

    /// Gives the parameter the memory of `tensor`; false where that cannot be.
    #[cold]
    fn renew(&mut self, tensor: &Bound<'_, PyAny>) -> bool {
        let parameter = self.parameter.bind(tensor.py());
        let is_set = parameter.setattr(intern!(tensor.py(), "data"), tensor).is_ok();
        self.at = match compare_memory(parameter, tensor) {
            Ok(Memory::Same(at)) => Some(at),
            _ => None,
        };
        is_set
    }

    /// Whether the parameter is as if it had just been made; this spare must hold the only reference that is known.
    #[inline]
    pub(crate) fn is_pristine(
        &self,
        py: Python<'_>,
        questions: &Questions,
        gradients: Gradients<'_>,
    ) -> PyResult<bool> {
        let parameter = self.parameter.bind(py);
        let attributes = self.attributes.bind(py);
        Ok(references(parameter) == 1
            && references(attributes) == 2
            && attributes.is_empty()
            && questions.weakly.has_none(parameter)?
            && (questions.counts_all
                || parameter
                    .call_method0(intern!(py, "_use_count"))?
                    .extract::<usize>()?
                    == 1)
            && self.is_as_made(parameter, questions, gradients)?)
    }

    #[inline]
    fn is_as_made(
        &self,
        parameter: &Bound<'_, PyAny>,
        questions: &Questions,
        gradients: Gradients<'_>,
    ) -> PyResult<bool> {
        match gradients.of(parameter)? {
            Gradient::Never => Ok(!self.requires_grad),
            Gradient::Wanted => Ok(self.requires_grad),
            Gradient::Used => Ok(false),
            Gradient::Unclear => {
                let says = |asked: &Attribute, wanted: bool| -> PyResult<bool> {
                    Ok(asked.get(parameter)?.is(PyBool::new(parameter.py(), wanted)))
                };
                // First: what is no leaf warns when it is asked for its gradient.
                if !says(&questions.is_leaf, true)? || !says(&questions.requires_grad, self.requires_grad)? {
                    return Ok(false);
                }
                for asked in [&questions.grad, &questions.hooks, &questions.later_hooks] {
                    if !asked.get(parameter)?.is_none() {
                        return Ok(false);
                    }
                }
                for asked in [&questions.grad_dtype, &questions.names].into_iter().flatten() {
                    if !is_unset(&asked.get(parameter)?)? {
                        return Ok(false);
                    }
                }
                if let Some(asked) = &questions.gradient_dtype {
                    let own = parameter.getattr(intern!(parameter.py(), "dtype"))?;
                    return Ok(asked.get(parameter)?.is(&own));
                }
                Ok(true)
            }
        }
    }
}
