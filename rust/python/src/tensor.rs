//! Tensors of torch as memory, and memory as tensors of torch: the one place where either becomes the other.
//!
//! torch publishes a table of C functions (`torch.Tensor.__dlpack_c_exchange_api__`, torch 2.10 on) that fills in the
//! address, shape, strides and dtype of a tensor without an owner and without an allocation, several times faster than
//! the attributes of the Python object. It looks at neither gradient nor the lazy sign and conjugate bits, and the type
//! has to be checked first; [`read`] and [`Session`] do both. [`direct`] knows a shorter way for most tensors.
#![allow(
    unsafe_code,
    reason = "DLPack is a table of C functions, and the address of a tensor has to become a slice somewhere"
)]

mod attribute;
mod check;
mod direct;
mod grip;
mod make;
mod memory;
mod mover;
mod object;
mod room;
mod seen;
mod session;
mod shapes;

use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use pyo3::exceptions::{PyAttributeError, PyImportError, PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use tensordict_core::rows::{Dims, Layout, MAX_DIMS, Source};

pub(crate) use self::attribute::Attribute;
pub(crate) use self::direct::Gradient;
use self::direct::Places;
pub(crate) use self::grip::{Grip, Worth};
pub(crate) use self::make::{Maker, Output};
pub(crate) use self::memory::{Memory, Place, compare_memory, place_of};
pub(crate) use self::mover::Mover;
pub(crate) use self::object::{Weakly, next_if_key, own_dict, references};
pub(crate) use self::seen::{AllSeen, Seen};
pub(crate) use self::session::Session;
pub(crate) use self::shapes::Shapes;
use crate::once::{intern, once};

const CPU: i32 = 1;
const COMPLEX: u8 = 5;
const SIGNED: u8 = 0;
const UNSIGNED: u8 = 1;
const BOOL: u8 = 6;

/// A dtype as `DLPack` has it. Two tensors of one torch dtype have one `Code`; the reverse holds too, since the dtypes of
/// less than a byte, which pose as whole bytes, are declined by [`View::of`].
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Code {
    kind: u8,
    bits: u8,
    lanes: u16,
}

impl Code {
    /// A signed integer of `bits` bits.
    pub(crate) fn is_signed(self, bits: u8) -> bool {
        self.kind == SIGNED && self.bits == bits
    }

    /// Whether this is `torch.uint8`.
    pub(crate) fn is_byte(self) -> bool {
        self.kind == UNSIGNED && self.bits == 8
    }

    /// Whether several dtypes of torch have this code.
    fn is_ambiguous(self) -> bool {
        self.bits == 8 && self.kind <= UNSIGNED
    }

    /// Whether values of this dtype can have no gradient.
    fn is_discrete(self) -> bool {
        matches!(self.kind, SIGNED | UNSIGNED | BOOL)
    }
}

/// `DLTensor` of dlpack.h.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_kind: i32,
    device_index: i32,
    ndim: i32,
    code: Code,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

impl DlTensor {
    /// Shape and strides, in elements; `None` where there are more than [`MAX_DIMS`].
    ///
    /// # Safety
    /// The tensor that was read must be alive, with the shape that it had.
    unsafe fn dims(&self) -> Option<(&[i64], &[i64])> {
        let ndim = usize::try_from(self.ndim).ok()?;
        match ndim {
            // The arrays may be null.
            0 => Some((&[], &[])),
            // SAFETY: [no-python] both arrays have `ndim` numbers and belong to the tensor.
            1..=MAX_DIMS => unsafe {
                Some((
                    std::slice::from_raw_parts(self.shape, ndim),
                    std::slice::from_raw_parts(self.strides, ndim),
                ))
            },
            _ => None,
        }
    }

    /// Whether both are the same memory of one device, seen in one way.
    ///
    /// # Safety
    /// As for [`Self::dims`], of both.
    #[inline]
    unsafe fn is_as(&self, other: &Self) -> bool {
        let first = |raw: &Self| {
            raw.data
                .addr()
                .wrapping_add(usize::try_from(raw.byte_offset).unwrap_or(0))
        };
        // SAFETY: as the caller promises.
        let (Some(dims), Some(others)) = (unsafe { (self.dims(), other.dims()) }) else {
            return false;
        };
        first(self) == first(other)
            && self.code == other.code
            && self.device_kind == other.device_kind
            && self.device_index == other.device_index
            && dims == others
    }

    /// All of it, for a message.
    ///
    /// # Safety
    /// As for [`Self::dims`].
    unsafe fn describe(&self) -> String {
        // SAFETY: as the caller promises.
        let (shape, strides) = unsafe { self.dims() }.unwrap_or_default();
        format!(
            "address {:#x} + {}, shape {shape:?}, strides {strides:?}, {:?}, device {}:{}",
            self.data.addr(),
            self.byte_offset,
            self.code,
            self.device_kind,
            self.device_index
        )
    }
}

/// `DLPackExchangeAPI` of dlpack.h, version 1. The functions that are not called have no signature here.
#[repr(C)]
struct ExchangeApi {
    major: u32,
    minor: u32,
    previous: *const ExchangeApi,
    allocate: *const c_void,
    managed_from_object: *const c_void,
    managed_to_object: *const c_void,
    borrow: Option<unsafe extern "C" fn(*mut c_void, *mut DlTensor) -> c_int>,
    work_stream: *const c_void,
}

const CAPSULE: &CStr = c"dlpack_exchange_api";

/// The types whose objects are plain memory: `torch.Tensor`, `torch.nn.Parameter` and what Python registers. A type in
/// here is never freed.
static PLAIN: [AtomicPtr<ffi::PyTypeObject>; 4] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 4];

/// What of torch is looked up once.
struct Torch {
    borrow: unsafe extern "C" fn(*mut c_void, *mut DlTensor) -> c_int,
    requires_grad: Attribute,
    is_grad_enabled: Py<PyAny>,
    is_neg: Py<PyAny>,
    is_conj: Py<PyAny>,
    empty: Py<PyAny>,
    empty_strided: Option<Py<PyAny>>,
    full: Py<PyAny>,
    untyped_storage: Py<PyAny>,
    int8: Py<PyAny>,
    uint8: Py<PyAny>,
    /// `()` -> number of active torch function modes, dispatch modes.
    mode_counts: [Py<PyAny>; 2],
    /// `()` -> `None` unless a functorch transform, a jit trace is active.
    must_be_none: [Py<PyAny>; 2],
    forward_ad: Py<PyDict>,
    is_inference: Py<PyAny>,
    /// Where tensors have their fields; not set before the first [`Session`]. It is set by moving what was found, with the
    /// GIL held: a fork from Python never sees it half made.
    places: OnceLock<Option<Places>>,
    /// How often they were looked for.
    searches: AtomicU8,
}

/// Searches for the places, but for the last.
const SEARCHES: u8 = 7;

static TORCH: OnceLock<Option<Torch>> = OnceLock::new();

impl Torch {
    #[inline]
    fn get(py: Python<'_>) -> PyResult<Option<&Self>> {
        once(&TORCH, py, || Self::find(py)).map(Option::as_ref)
    }

    /// `None` also where this torch has another name for anything that is looked up.
    fn find(py: Python<'_>) -> PyResult<Option<Self>> {
        Self::load(py).or_else(|error| {
            let is_renamed = error.is_instance_of::<PyAttributeError>(py)
                || error.is_instance_of::<PyImportError>(py)
                || error.is_instance_of::<PyTypeError>(py);
            if is_renamed { Ok(None) } else { Err(error) }
        })
    }

    /// `None` where this torch has no exchange functions of a version known here.
    fn load(py: Python<'_>) -> PyResult<Option<Self>> {
        let torch = py.import(intern!(py, "torch"))?;
        let tensor = torch.getattr("Tensor")?.cast_into::<PyType>()?;
        let parameter = torch.getattr("nn")?.getattr("Parameter")?.cast_into::<PyType>()?;
        for kind in [&tensor, &parameter] {
            register(kind);
        }
        let Ok(capsule) = tensor.getattr("__dlpack_c_exchange_api__") else {
            return Ok(None);
        };
        // SAFETY: [leaked] a capsule of this name holds a `DLPackExchangeAPI` that lives as long as the process (dlpack.h); its
        // header, which is read first, is the same in all versions.
        let borrow = unsafe {
            let api = ffi::PyCapsule_GetPointer(capsule.as_ptr(), CAPSULE.as_ptr()).cast::<ExchangeApi>();
            if api.is_null() {
                return Err(PyErr::fetch(py));
            }
            if (*api).major != 1 {
                return Ok(None);
            }
            (*api).borrow
        };
        let Some(borrow) = borrow else {
            return Ok(None);
        };
        let c = torch.getattr("_C")?;
        let Some(requires_grad) = Attribute::new(py, "requires_grad")? else {
            return Ok(None);
        };
        let functions = c.getattr("_VariableFunctions")?;
        let functorch = c.getattr("_functorch")?;
        // An allocator that goes around the dispatcher, at half the price; not every version has it.
        let empty_strided = c
            .getattr("_dynamo")
            .and_then(|d| d.getattr("guards")?.getattr("_empty_strided_cpu"));
        let forward_ad = py.import("torch.autograd.forward_ad")?.dict();
        Ok(Some(Self {
            borrow,
            requires_grad,
            is_grad_enabled: torch.getattr("is_grad_enabled")?.unbind(),
            is_neg: tensor.getattr("is_neg")?.unbind(),
            is_conj: tensor.getattr("is_conj")?.unbind(),
            empty: functions.getattr("empty")?.unbind(),
            empty_strided: empty_strided.ok().map(Bound::unbind),
            full: torch.getattr("full")?.unbind(),
            untyped_storage: c.getattr("TensorBase")?.getattr("untyped_storage")?.unbind(),
            int8: torch.getattr("int8")?.unbind(),
            uint8: torch.getattr("uint8")?.unbind(),
            mode_counts: [
                c.getattr("_len_torch_function_stack")?.unbind(),
                c.getattr("_len_torch_dispatch_stack")?.unbind(),
            ],
            must_be_none: [
                functorch.getattr("maybe_current_level")?.unbind(),
                c.getattr("_get_tracing_state")?.unbind(),
            ],
            forward_ad: forward_ad.unbind(),
            is_inference: torch.getattr("is_inference_mode_enabled")?.unbind(),
            places: OnceLock::new(),
            searches: AtomicU8::new(0),
        }))
    }

    /// Finds out where tensors have their fields, once; nothing that changes what torch does may be active.
    ///
    /// What a moment brings can make a search fail (no memory, a deep recursion, other threads that search): it is tried again.
    fn look_for_places(&self, py: Python<'_>) -> PyResult<()> {
        if self.places.get().is_none() && !self.is_inference.bind(py).call0()?.is_truthy()? {
            let found = Places::find(py, |tensor| self.exchange(tensor)).unwrap_or_default();
            if found.is_some() || self.searches.fetch_add(1, Ordering::Relaxed) >= SEARCHES {
                let _ = self.places.set(found);
            }
        }
        Ok(())
    }

    /// Where tensors have their fields, if that is known or can be found out now.
    fn places(&self, py: Python<'_>) -> PyResult<Option<&Places>> {
        if self.places.get().is_none() && self.is_quiet(py)? {
            self.look_for_places(py)?;
        }
        Ok(self.places.get().and_then(Option::as_ref))
    }

    /// Whether nothing that is active in this thread would see, or change, what torch does: a mode, a functorch
    /// transform, forward differentiation, a trace.
    fn is_quiet(&self, py: Python<'_>) -> PyResult<bool> {
        for count in &self.mode_counts {
            if count.bind(py).call0()?.extract::<usize>()? > 0 {
                return Ok(false);
            }
        }
        for state in &self.must_be_none {
            if !state.bind(py).call0()?.is_none() {
                return Ok(false);
            }
        }
        let level = self.forward_ad.bind(py).get_item(intern!(py, "_current_level"))?;
        Ok(level.is_none_or(|level| level.extract::<i64>().is_ok_and(|level| level < 0)))
    }
}

fn register(kind: &Bound<'_, PyType>) -> bool {
    let pointer = kind.as_type_ptr();
    for slot in &PLAIN {
        match slot.compare_exchange(std::ptr::null_mut(), pointer, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                // The table holds the type for good.
                std::mem::forget(kind.clone().unbind());
                return true;
            }
            Err(present) if present == pointer => return true,
            Err(_) => {}
        }
    }
    false
}

/// Lets the memory of objects of exactly this type, a subclass of `torch.Tensor`, be read and copied like that of a
/// plain tensor. The rows of such objects come out as plain tensors. Its `__torch_function__` must be torch's own disabled
/// one: a type that wants to see what is done to it is not plain.
#[pyfunction]
pub(crate) fn register_plain_type(py: Python<'_>, kind: &Bound<'_, PyType>) -> PyResult<()> {
    let torch = py.import(intern!(py, "torch"))?;
    let tensor = torch.getattr(intern!(py, "Tensor"))?;
    if !kind.is_subclass(&tensor)? {
        return Err(PyTypeError::new_err(format!(
            "expected a subclass of torch.Tensor, found {kind}"
        )));
    }
    Torch::get(py)?;
    if is_plain(kind.as_type_ptr()) {
        return Ok(());
    }
    let disabled = torch
        .getattr(intern!(py, "_C"))?
        .getattr(intern!(py, "_disabled_torch_function_impl"))?;
    if !kind.getattr(intern!(py, "__torch_function__"))?.is(&disabled) {
        return Err(PyTypeError::new_err(format!(
            "expected a type whose __torch_function__ is torch._C._disabled_torch_function_impl, found {kind}"
        )));
    }
    if register(kind) {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(format!(
        "no room for another plain tensor type: {kind}"
    )))
}

/// Whether `object` is of a plain type, exactly.
#[inline]
fn is_plain_type(object: &Bound<'_, PyAny>) -> bool {
    is_plain(object.get_type_ptr())
}

#[inline]
fn is_plain(kind: *mut ffi::PyTypeObject) -> bool {
    PLAIN.iter().any(|slot| slot.load(Ordering::Acquire) == kind)
}

/// The memory of a dense CPU tensor, which `'a` keeps alive.
///
/// The sizes were consistent when the tensor was read. A thread that resizes or frees the tensor's storage in place
/// while it is in use here breaks this as it breaks any operation of torch.
#[derive(Clone, Copy)]
pub(crate) struct TensorView<'a> {
    data: *const u8,
    code: Code,
    layout: Layout,
    /// Whether its memory is known to be its values as they stand, without asking torch.
    literal: bool,
    /// Whether it is known to have nothing to do with a gradient.
    no_grad: bool,
    owner: PhantomData<&'a PyAny>,
}

impl<'a> TensorView<'a> {
    /// `None` where the sizes make no sense, or elements are said to lie at no address.
    #[inline]
    fn checked(borrowed: &Borrowed, shape: &[i64], strides: &[i64]) -> Option<Self> {
        let raw = &borrowed.raw;
        let item = usize::from(raw.code.bits) / 8;
        let (mut sizes, mut steps) = (Dims::EMPTY, Dims::EMPTY);
        for (size, stride) in shape.iter().zip(strides) {
            let step = usize::try_from(*stride).ok()?.checked_mul(item)?;
            if !sizes.push(usize::try_from(*size).ok()?) || !steps.push(step) {
                return None;
            }
        }
        let layout = Layout::new(item, &sizes, &steps).ok()?;
        let data = if layout.span() == 0 {
            std::ptr::NonNull::dangling().as_ptr()
        } else if raw.data.is_null() {
            // Storage that was given back, zeros that are not stored, or a wrapper around another tensor.
            return None;
        } else {
            raw.data
                .cast_const()
                .cast::<u8>()
                .wrapping_add(usize::try_from(raw.byte_offset).ok()?)
        };
        Some(Self {
            data,
            code: raw.code,
            layout,
            literal: borrowed.literal,
            no_grad: borrowed.no_grad,
            owner: PhantomData,
        })
    }

    /// From the first byte of the tensor to the last one that it may touch, gaps between its rows included.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        // SAFETY: [bounds] [no-python] [storage] the span is computed from shape and strides, which torch holds to lie inside the storage, and the
        // owner is alive; the address is not null (see `checked`), and dangling only where the span is 0.
        unsafe { std::slice::from_raw_parts(self.data, self.layout.span()) }
    }

    /// Item size, shape and strides in bytes. Where it is contiguous, [`Self::bytes`] are the elements in order, without
    /// gaps: what a file holds of the tensor.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The dtype.
    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// The tensor as the core knows it.
    pub(crate) fn source(&self) -> tensordict_core::Result<Source<'a>> {
        Source::new(self.bytes(), self.layout)
    }
}

/// A layout to hold many tensors against, as torch writes it.
#[derive(Clone, Copy)]
pub(crate) struct Like {
    code: Code,
    ndim: i32,
    shape: [i64; MAX_DIMS],
    strides: [i64; MAX_DIMS],
    span: usize,
    /// [`Code::is_discrete`].
    discrete: bool,
}

impl Like {
    /// `None` where nothing is to be copied.
    pub(crate) fn of(view: &Seen) -> Option<Self> {
        let layout = &view.layout;
        let (item, span) = (layout.item(), layout.span());
        if span == 0 {
            return None;
        }
        let mut like = Self {
            code: view.code,
            ndim: i32::try_from(layout.shape().len()).ok()?,
            shape: [0; MAX_DIMS],
            strides: [0; MAX_DIMS],
            span,
            discrete: view.code.is_discrete(),
        };
        for (to, size) in like.shape.iter_mut().zip(layout.shape()) {
            *to = i64::try_from(*size).ok()?;
        }
        for (to, stride) in like.strides.iter_mut().zip(layout.strides()) {
            *to = i64::try_from(stride / item).ok()?;
        }
        Some(like)
    }

    /// [`Self::of`] what can only have been read directly; `None` for everything else.
    pub(crate) fn of_certain(seen: &Seen) -> Option<Self> {
        if seen.literal { Self::of(seen) } else { None }
    }

    fn fits(&self, raw: &DlTensor, shape: &[i64], strides: &[i64]) -> bool {
        let same = |ours: &[i64; MAX_DIMS], theirs: &[i64]| theirs.iter().zip(ours).all(|(a, b)| a == b);
        raw.code == self.code
            && raw.ndim == self.ndim
            && raw.device_kind == CPU
            && raw.byte_offset == 0
            && !raw.data.is_null()
            && same(&self.shape, shape)
            && same(&self.strides, strides)
    }
}

/// Reads the memory of one tensor: `None` for anything but a dense tensor on the CPU whose type is exactly
/// `torch.Tensor`, `Parameter` or a registered one. Gradient is not looked at: this is for saving.
pub(crate) fn read<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Option<TensorView<'a>>> {
    match Torch::get(object.py())? {
        Some(torch) => torch.view(object, true),
        None => Ok(None),
    }
}

/// Where each of `objects` begins in memory; 0 for what is no plain tensor. Two such lists tell whether storages were given other
/// memory between two moments.
pub(crate) fn starts(py: Python<'_>, objects: &[Py<PyAny>]) -> Vec<usize> {
    let torch = Torch::get(py).ok().flatten();
    let start = |object: &Py<PyAny>| {
        let found = torch.and_then(|torch| torch.look(object.bind(py)).ok().flatten());
        found.map_or(0, |view| view.data.addr())
    };
    objects.iter().map(start).collect()
}

/// Looks torch up, for [`is_tensor`].
pub(crate) fn knows_types(py: Python<'_>) -> PyResult<()> {
    Torch::get(py).map(drop)
}

/// Whether the type of `object` is exactly `torch.Tensor`; torch must have been looked up.
pub(crate) fn is_tensor(object: &Bound<'_, PyAny>) -> bool {
    PLAIN[0].load(Ordering::Acquire) == object.get_type_ptr()
}

/// What a tensor says of itself.
struct Borrowed {
    raw: DlTensor,
    /// Whether its memory is known to be its values as they stand.
    literal: bool,
    /// Whether it is known to have nothing to do with a gradient.
    no_grad: bool,
}

/// What plain dense CPU tensors say of their gradients.
#[derive(Clone, Copy)]
pub(crate) struct Gradients<'py>(Option<&'py Places>);

impl<'py> Gradients<'py> {
    pub(crate) fn open(py: Python<'py>) -> PyResult<Self> {
        let torch = Torch::get(py)?;
        Ok(Self(torch.map(|torch| torch.places(py)).transpose()?.flatten()))
    }

    /// What `object` says, as far as that is known without asking torch.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "a handful of loads, twice for each slot of a swap"
    )]
    pub(crate) fn of(self, object: &Bound<'_, PyAny>) -> PyResult<Gradient> {
        let Some(places) = self.0 else {
            return Ok(Gradient::Unclear);
        };
        if !is_plain_type(object) {
            return Ok(Gradient::Unclear);
        }
        // SAFETY: [gil] an object of a plain type is a tensor, and it is alive.
        let says = || unsafe { places.gradient(direct::address(object)) };
        let found = says();
        if places.checked {
            check::gradient(object, found, says)?;
        }
        Ok(found)
    }
}

impl Torch {
    /// What `object` says of itself: `None` where its type is not plain or it has no memory of its own.
    #[inline]
    fn borrow(&self, object: &Bound<'_, PyAny>) -> PyResult<Option<Borrowed>> {
        if !is_plain_type(object) {
            return Ok(None);
        }
        if let Some(Some(places)) = self.places.get() {
            // SAFETY: [gil] the object's type is `torch.Tensor` or a subclass, and it is alive.
            if let Some(direct) = unsafe { places.read(direct::address(object)) } {
                if places.checked {
                    self.check(object, &direct)?;
                }
                return Ok(Some(Borrowed {
                    raw: direct.raw,
                    literal: true,
                    no_grad: direct.no_grad,
                }));
            }
        }
        Ok(self.exchange(object).map(|raw| Borrowed {
            raw,
            literal: false,
            no_grad: false,
        }))
    }

    /// Where the memory of `object` starts, if that can be told at once: where it is read directly, its layout is that of
    /// `like`, and it has nothing to do with a gradient. `None` says nothing.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a handful of loads, for each of many leaves")]
    fn start_like(&self, object: &Bound<'_, PyAny>, like: &Like) -> Option<*const u8> {
        let places = self.places.get()?.as_ref().filter(|places| !places.checked)?;
        if !is_plain_type(object) {
            return None;
        }
        // SAFETY: [gil] the object's type is `torch.Tensor` or a subclass, and it is alive.
        unsafe { places.start_like(direct::address(object), like) }
    }

    /// What torch's exchange function says of `object`, whose type must be plain.
    fn exchange(&self, object: &Bound<'_, PyAny>) -> Option<DlTensor> {
        let mut raw = MaybeUninit::<DlTensor>::uninit();
        // SAFETY: [gil] the object's type is `torch.Tensor` or a subclass, as the function asks for; it writes the whole
        // struct when it returns 0, and sets an exception, which is taken away, otherwise.
        unsafe {
            if (self.borrow)(object.as_ptr().cast(), raw.as_mut_ptr()) == 0 {
                return Some(raw.assume_init());
            }
        }
        drop(PyErr::take(object.py()));
        None
    }

    /// The memory of `object`, of which it may not be known whether it is its values as they stand. Runs no Python.
    #[inline]
    fn look<'a>(&self, object: &'a Bound<'_, PyAny>) -> PyResult<Option<TensorView<'a>>> {
        let Some(borrowed) = self.borrow(object)? else {
            return Ok(None);
        };
        let code = borrowed.raw.code;
        if borrowed.raw.device_kind != CPU || code.lanes != 1 || code.bits % 8 != 0 {
            return Ok(None);
        }
        // SAFETY: [gil] [no-python] the tensor is alive and was not touched since it was read.
        let dims = unsafe { borrowed.raw.dims() };
        Ok(dims.and_then(|(shape, strides)| TensorView::checked(&borrowed, shape, strides)))
    }

    /// The memory of `object`. Without `certain` it is not asked for a lazy sign, which one that was just made has not. Where it
    /// is not read directly, or is compared, Python may run, and the memory is looked at after that.
    #[inline]
    fn view<'a>(&self, object: &'a Bound<'_, PyAny>, certain: bool) -> PyResult<Option<TensorView<'a>>> {
        let Some(view) = self.look(object)? else {
            return Ok(None);
        };
        if view.literal && !self.is_compared() {
            return Ok(Some(view));
        }
        self.view_again(object, view, certain)
    }

    /// [`Self::view`] where torch has to be asked about what was seen.
    #[inline(never)]
    fn view_again<'a>(
        &self,
        object: &'a Bound<'_, PyAny>,
        seen: TensorView<'a>,
        certain: bool,
    ) -> PyResult<Option<TensorView<'a>>> {
        if seen.literal {
            self.check_kind(object)?;
        } else if !self.is_literal(object, seen.code, certain)? {
            return Ok(None);
        }
        let now = self.look(object)?;
        // What another thread made something else of meanwhile is not asked about again.
        Ok(now.filter(|now| now.code == seen.code && now.literal == seen.literal))
    }

    /// Whether what is read directly is compared with what torch says.
    pub(super) fn is_compared(&self) -> bool {
        matches!(self.places.get(), Some(Some(places)) if places.checked)
    }

    /// Whether `object`, whose type must be plain, says that it requires no gradient. Runs no Python.
    #[inline]
    fn has_no_grad(&self, object: &Bound<'_, PyAny>) -> bool {
        // SAFETY: [gil] the object is a tensor (its type is plain). An exception is taken away; `False` is one object.
        unsafe {
            let found = self.requires_grad.call(object);
            if found.is_null() {
                drop(PyErr::take(object.py()));
                return false;
            }
            let no = std::ptr::eq(found, ffi::Py_False());
            ffi::Py_DECREF(found);
            no
        }
    }

    /// Whether the memory of a tensor of dtype `code` is its values as they stand: not numbers of less than a byte, and no
    /// sign or conjugation is left to be done. Asks for the sign only where `unsure`.
    #[inline]
    fn is_literal(&self, object: &Bound<'_, PyAny>, code: Code, unsure: bool) -> PyResult<bool> {
        if code.is_ambiguous() {
            // `int1` to `int7` and `uint1` to `uint7` say that they are `int8` and `uint8`.
            let py = object.py();
            let whole = if code.kind == SIGNED {
                &self.int8
            } else {
                &self.uint8
            };
            if !object.getattr(intern!(py, "dtype"))?.is(whole.bind(py)) {
                return Ok(false);
            }
        }
        if code.kind == COMPLEX && self.says(&self.is_conj, object)? {
            return Ok(false);
        }
        Ok(!unsure || !self.says(&self.is_neg, object)?)
    }

    fn says(&self, question: &Py<PyAny>, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        let _ = self;
        question.bind(object.py()).call1((object,))?.is_truthy()
    }
}

/// What of a plain tensor is read, or written, through torch's own fields: "memory"; whether it has ever had to do with a gradient,
/// "history"; whether it has one, "gradient"; where a new one begins in its storage, "offset"; that is written.
#[pyfunction]
pub(crate) fn read_directly(py: Python<'_>) -> PyResult<Vec<&'static str>> {
    let Some(torch) = Torch::get(py)? else {
        return Ok(Vec::new());
    };
    Ok(torch.places(py)?.map(Places::facts).unwrap_or_default())
}
