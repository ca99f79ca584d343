//! What of torch and of the package a swap asks for.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use std::sync::OnceLock;

use crate::once::once;
use crate::spare::Questions;

/// Whether `kind` is the type of `value`, not one above it.
#[inline]
pub(super) fn is_exact(value: &Bound<'_, PyAny>, kind: &Py<PyType>) -> bool {
    std::ptr::eq(value.get_type_ptr().cast(), kind.as_ptr())
}

/// What of torch and of the package is looked up once.
pub(super) struct Names {
    pub(super) tensor: Py<PyType>,
    pub(super) parameter: Py<PyType>,
    pub(super) make_subclass: Py<PyAny>,
    pub(super) functorch_level: Py<PyAny>,
    pub(super) tensordict: Py<PyType>,
    new: Py<PyAny>,
    is_node: Py<PyAny>,
    no_batch: Py<PyAny>,
    pub(super) questions: Questions,
}

impl Names {
    #[inline]
    pub(super) fn get(py: Python<'_>) -> PyResult<&Self> {
        static NAMES: OnceLock<Names> = OnceLock::new();
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

    #[inline]
    pub(super) fn is_node(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        if self.is_plain(value) {
            return Ok(false);
        }
        Ok(
            is_exact(value, &self.tensordict)
                || self.is_node.bind(value.py()).call1((value,))?.is_truthy()?,
        )
    }

    /// Whether the type is that of tensors or of parameters itself.
    #[inline]
    pub(super) fn is_plain(&self, value: &Bound<'_, PyAny>) -> bool {
        is_exact(value, &self.tensor) || is_exact(value, &self.parameter)
    }

    #[inline]
    pub(super) fn is_tensor(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.is_plain(value) || value.is_instance(self.tensor.bind(value.py()))?)
    }

    #[inline]
    pub(super) fn is_parameter(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        if is_exact(value, &self.tensor) {
            return Ok(false);
        }
        Ok(is_exact(value, &self.parameter) || value.is_instance(self.parameter.bind(value.py()))?)
    }

    /// `value` as a parameter: the same memory, a leaf of autograd.
    pub(super) fn wrap<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        requires_grad: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
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
    pub(super) fn node<'py>(&self, fields: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        self.new.bind(fields.py()).call1((fields, &self.no_batch))
    }
}
