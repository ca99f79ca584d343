//! Where torch keeps the fields of a tensor, found out at run time.
//!
//! A call of torch's exchange function and one for the gradient take some 90 ns a leaf, which is most of what a stack of
//! many small leaves costs. The same facts are six loads from the tensor object. Their places are private to torch, so
//! none is assumed: [`Places::find`] looks for them in tensors whose addresses, sizes, dtype, gradient and dispatch keys
//! Python tells, wants exactly one place for each, then compares what it reads of several dozen other tensors with what
//! the exchange function says of them. Any doubt, and tensors are read through the exchange functions alone. The places
//! cannot change afterwards: they are compiled into the torch that is loaded.
//!
//! Only tensors whose dispatch keys are those of a dense CPU tensor, neither lazily negated or conjugated nor wrapped by a
//! transform, are read so; all others fail that one comparison.
//!
//! The rules that the unsafe blocks name:
//!
//! - \[gil\] The interpreter lock is held, and no Python code runs between the reading of an address and its use: the
//!   functions that read call nothing.
//! - \[bounds\] The load lies within the object: a Python object has the size that its type states, the objects of torch
//!   the size that the allocator states ([`super::room`]).
//! - \[probed\] The place was found and proved in tensors of the torch that is loaded.
//! - \[alive\] The object is kept by the tensor, and the tensor by the caller: the implementation as long as the tensor,
//!   the storage and what autograd knows as long as the implementation. A thread that exchanges the storage of a tensor in
//!   place while it is read breaks this, as it breaks any operation of torch.
//! - \[word\] A word is loaded as a whole, atomically, so that a thread of autograd that writes a gradient meanwhile, which
//!   needs no interpreter lock, leaves the word before or the word after. What is not kept alive by a rule above is
//!   compared and never followed.
#![allow(unsafe_code, reason = "fields of torch's tensor objects are read by address")]

mod gradient;

use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use self::gradient::{GradientPlaces, autograd};
use super::room::room;
use super::{CPU, Code, DlTensor, Like, Place};

/// Sizes, then strides, are kept inside the object up to this many dimensions.
const INLINE_DIMS: usize = 5;
/// Numbers that torch gives dtypes are below this.
const DTYPES: usize = 64;

const SHAPE: [usize; 3] = [3, 5, 7];
const STRIDES: [usize; 3] = [701, 131, 17];
const OFFSET: usize = 1009;
const ELEMENTS: usize = 4000;
/// Searches for what has to do with a gradient.
const GRADIENT_TRIES: usize = 3;
const WORD: usize = size_of::<usize>();

/// Names of the dtypes that are told apart, each of whole bytes.
const NAMES: [&str; 17] = [
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
];

/// A word of an object.
///
/// # Safety
/// The object must be alive and have that many words.
#[inline]
pub(super) unsafe fn word(object: *const usize, at: usize) -> usize {
    // SAFETY: [word] as the caller promises.
    unsafe { AtomicUsize::from_ptr(object.add(at).cast_mut()).load(Ordering::Relaxed) }
}

/// The places, in words unless it says otherwise.
pub(super) struct Places {
    /// In the Python object: the implementation.
    implementation: usize,
    /// In the implementation: the storage, what autograd knows, the number of dimensions, the offset, the dispatch keys.
    storage: usize,
    autograd: Option<usize>,
    dims: usize,
    offset: usize,
    keys: usize,
    /// In halves of two bytes: the number of the dtype.
    dtype: usize,
    /// In the storage: the address of the data.
    data: usize,
    /// The dispatch keys of a dense CPU tensor.
    plain: usize,
    /// What `DLPack` calls the dtype of each number.
    codes: [Option<Code>; DTYPES],
    /// Places that have to do with a gradient, if they were found.
    gradient: Option<GradientPlaces>,
    /// Whether a tensor whose offset is written is moved by it, and by nothing else.
    movable: bool,
    /// Whether all that is read is compared with what torch says.
    pub(super) checked: bool,
}

/// What a tensor says of its gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gradient {
    /// It has never had to do with one.
    Never,
    /// It is a leaf that requires one, has none so far and no hooks.
    Wanted,
    /// It is a leaf that requires one, and has one or hooks.
    Used,
    /// Anything else.
    Unclear,
}

/// What a tensor says of itself.
pub(super) struct Direct {
    pub(super) raw: DlTensor,
    /// That it has never had to do with a gradient; otherwise it may or may not.
    pub(super) no_grad: bool,
}

/// The object of a tensor, as an address.
#[inline]
pub(super) fn address(tensor: &Bound<'_, PyAny>) -> *const usize {
    tensor.as_ptr().cast_const().cast()
}

fn number(object: &Bound<'_, PyAny>, name: &str) -> PyResult<usize> {
    object.getattr(name)?.extract()
}

fn only(mut found: impl Iterator<Item = usize>) -> Option<usize> {
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// Makes the tensors that are looked at.
struct Probes<'py> {
    torch: Bound<'py, PyModule>,
    /// How many words the implementation of each tensor has.
    words: usize,
}

impl<'py> Probes<'py> {
    /// `None` where it cannot be proved how large the implementation of a tensor is.
    fn new(py: Python<'py>) -> PyResult<Option<Self>> {
        let mut probes = Self {
            torch: py.import("torch")?,
            words: 0,
        };
        let found = room(|| number(&probes.tensor(&[3, 2], "float32")?, "_cdata"))?;
        probes.words = found.unwrap_or(0) / WORD;
        Ok((probes.words > 2 * INLINE_DIMS).then_some(probes))
    }

    fn tensor(&self, shape: &[usize], dtype: &str) -> PyResult<Bound<'py, PyAny>> {
        let py = self.torch.py();
        let options = PyDict::new(py);
        options.set_item("dtype", self.torch.getattr(dtype)?)?;
        options.set_item("device", "cpu")?;
        self.torch
            .getattr("empty")?
            .call((PyTuple::new(py, shape)?,), Some(&options))
    }

    fn strided(&self, dtype: &str) -> PyResult<Bound<'py, PyAny>> {
        let py = self.torch.py();
        let sizes = (PyTuple::new(py, SHAPE)?, PyTuple::new(py, STRIDES)?, OFFSET);
        self.tensor(&[ELEMENTS], dtype)?.call_method1("as_strided", sizes)
    }

    fn keys(&self, tensor: &Bound<'py, PyAny>) -> PyResult<usize> {
        let keys = self
            .torch
            .getattr("_C")?
            .getattr("_dispatch_keys")?
            .call1((tensor,))?;
        keys.call_method0("raw_repr")?.extract()
    }
}

/// The words of an object.
///
/// # Safety
/// The object must be alive and have that many words.
unsafe fn words_of(object: usize, count: usize) -> Vec<usize> {
    let object = std::ptr::with_exposed_provenance(object);
    // SAFETY: as the caller promises.
    (0..count).map(|at| unsafe { word(object, at) }).collect()
}

impl Probes<'_> {
    /// The words of the implementation of a tensor.
    fn words(&self, tensor: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
        let implementation = number(tensor, "_cdata")?;
        // SAFETY: [gil] [bounds] [alive] torch says where the implementation is.
        Ok(unsafe { words_of(implementation, self.words) })
    }
}

impl Places {
    /// The places, if each is found exactly once and what is read there is true of other tensors, of which `known` tells.
    ///
    /// Nothing that changes what torch does may be active.
    pub(super) fn find(
        py: Python<'_>,
        known: impl Fn(&Bound<'_, PyAny>) -> Option<DlTensor>,
    ) -> PyResult<Option<Self>> {
        let mode = py
            .import("tensordict._kernel.settings")?
            .getattr("direct_reads")?
            .call0()?;
        let mode: &str = mode.extract()?;
        if mode == "off" {
            return Ok(None);
        }
        let Some(probes) = Probes::new(py)? else {
            return Ok(None);
        };
        let Some(mut places) = Self::search(&probes, &known)? else {
            return Ok(None);
        };
        places.checked = mode == "check";
        if !places.tells_kinds(&probes)? {
            return Ok(None);
        }
        places.find_gradient(&probes);
        for dtype in NAMES {
            for shape in [&[][..], &[6], &[0, 2], &[2, 1, 3, 1, 2], &[1, 1, 1, 1, 1, 2]] {
                let tensor = probes.tensor(shape, dtype)?;
                if !places.agrees(&tensor, &known) {
                    return Ok(None);
                }
            }
            if !places.agrees(&probes.strided(dtype)?, &known) {
                return Ok(None);
            }
        }
        places.movable = matches!(places.moves(&probes, &known), Ok(true));
        Ok(Some(places))
    }

    /// Names of what is read.
    pub(super) fn facts(&self) -> Vec<&'static str> {
        let found = [
            ("memory", true),
            ("history", self.autograd.is_some()),
            ("gradient", self.gradient.is_some()),
            ("offset", self.movable),
        ];
        found
            .into_iter()
            .filter(|(_, is)| *is)
            .map(|(name, _)| name)
            .collect()
    }

    /// Whether the dispatch keys are read right of tensors of several kinds, and only plain ones have those of a plain one.
    fn tells_kinds(&self, probes: &Probes<'_>) -> PyResult<bool> {
        let plain = [probes.tensor(&[2], "bool")?, probes.strided("float64")?];
        let complex = probes.tensor(&[2, 2], "complex64")?;
        let others = [
            complex.call_method0("conj")?,
            complex.call_method0("conj")?.getattr("imag")?,
            probes.tensor(&[2], "float32")?.call_method1("to", ("meta",))?,
            probes.tensor(&[2], "float32")?.call_method0("to_sparse")?,
        ];
        let mut right = true;
        for (tensor, is_plain) in plain
            .iter()
            .map(|t| (t, true))
            .chain(others.iter().map(|t| (t, false)))
        {
            let wanted = probes.keys(tensor)?;
            right = right && probes.words(tensor)?[self.keys] == wanted && (wanted == self.plain) == is_plain;
        }
        Ok(right)
    }

    /// Looks for what has to do with a gradient; where that cannot be searched, or does not follow what is done to a
    /// tensor, torch is asked for it.
    fn find_gradient(&mut self, probes: &Probes<'_>) {
        let Ok(Some(autograd)) = autograd(probes) else {
            return;
        };
        self.autograd = Some(autograd);
        // A word that happens to be one of those that are looked for makes a search fail.
        for _ in 0..GRADIENT_TRIES {
            self.gradient = GradientPlaces::find(probes, autograd).unwrap_or_default();
            if self.gradient.is_some() && matches!(self.follows(probes), Ok(true)) {
                return;
            }
        }
        self.gradient = None;
    }

    /// Whether what is read of a gradient follows what is done to a tensor.
    fn follows(&self, probes: &Probes<'_>) -> PyResult<bool> {
        let py = probes.torch.py();
        let tensor = probes.tensor(&[4], "float64")?;
        // SAFETY: [gil] a tensor, just made.
        let says = |wanted: Gradient| unsafe { self.gradient(address(&tensor)) } == wanted;
        let never = says(Gradient::Never);
        tensor.call_method1("requires_grad_", (true,))?;
        let wanted = says(Gradient::Wanted);
        tensor.setattr("grad", probes.tensor(&[4], "float64")?)?;
        let used = says(Gradient::Used);
        tensor.setattr("grad", py.None())?;
        let again = says(Gradient::Wanted);
        tensor.call_method1("requires_grad_", (false,))?;
        Ok(never && wanted && used && again && says(Gradient::Unclear))
    }

    /// Whether the same is read of a tensor as is known of it; also where too many dimensions decline it.
    fn agrees(
        &self,
        tensor: &Bound<'_, PyAny>,
        known: impl Fn(&Bound<'_, PyAny>) -> Option<DlTensor>,
    ) -> bool {
        let Some(wanted) = known(tensor) else { return false };
        // SAFETY: [gil] a tensor, just made.
        let Some(direct) = (unsafe { self.read(address(tensor)) }) else {
            return usize::try_from(wanted.ndim).is_ok_and(|ndim| ndim > INLINE_DIMS);
        };
        let found = direct.raw;
        // SAFETY: [gil] [alive] both were read of a tensor that is alive.
        unsafe { found.is_as(&wanted) }
    }

    /// Whether a tensor, just made, is where its offset says after that was written, and is otherwise as it was.
    fn moves(
        &self,
        probes: &Probes<'_>,
        known: impl Fn(&Bound<'_, PyAny>) -> Option<DlTensor>,
    ) -> PyResult<bool> {
        for dtype in ["float64", "uint8", "complex64"] {
            let base = probes.strided(dtype)?;
            let made = base.call_method0("detach")?;
            let before = probes.words(&base)?;
            // SAFETY: [gil] two tensors, just made; what the offset says lies within their storage.
            if !unsafe { self.shift(address(&base), address(&made), OFFSET + 11) } {
                return Ok(false);
            }
            let steps = 11 * number(&base, "itemsize")?;
            let start =
                |tensor: &Bound<'_, PyAny>| -> PyResult<usize> { tensor.call_method0("data_ptr")?.extract() };
            let offset: usize = made.call_method0("storage_offset")?.extract()?;
            let is_moved = offset == OFFSET + 11
                && start(&made)? == start(&base)? + steps
                && self.agrees(&made, &known)
                && made.call_method0("stride")?.eq(base.call_method0("stride")?)?
                && probes.words(&base)? == before;
            if !is_moved {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn search(
        probes: &Probes<'_>,
        known: impl Fn(&Bound<'_, PyAny>) -> Option<DlTensor>,
    ) -> PyResult<Option<Self>> {
        let strided = probes.strided("float32")?;
        let (found, plain) = (probes.words(&strided)?, probes.keys(&strided)?);
        let storage = strided.call_method0("untyped_storage")?;
        let place = |wanted: usize| only((0..found.len()).filter(|at| found[*at] == wanted));
        let sizes: [usize; 4] = [SHAPE.len(), SHAPE[0], SHAPE[1], SHAPE[2]];
        let dims = only((0..found.len() - 2 * INLINE_DIMS).filter(|at| {
            found[*at..*at + 4] == sizes && found[*at + 1 + INLINE_DIMS..*at + 1 + INLINE_DIMS + 3] == STRIDES
        }));
        let object = object_words(&strided)?;
        let implementation = number(&strided, "_cdata")?;
        let implementation = only((0..object.len()).filter(|at| object[*at] == implementation));
        let (Some(implementation), Some(dims), Some(offset), Some(keys), Some(storage)) = (
            implementation,
            dims,
            place(OFFSET),
            place(plain),
            place(number(&storage, "_cdata")?),
        ) else {
            return Ok(None);
        };
        let (Some(data), Some((dtype, codes))) = (data(probes)?, dtypes(probes, known)?) else {
            return Ok(None);
        };
        Ok(Some(Self {
            implementation,
            storage,
            autograd: None,
            dims,
            offset,
            keys,
            dtype,
            data,
            plain,
            codes,
            gradient: None,
            movable: false,
            checked: false,
        }))
    }

    /// What the tensor at this address says of its gradient.
    ///
    /// # Safety
    /// As for [`Self::read`].
    #[inline]
    pub(super) unsafe fn gradient(&self, object: *const usize) -> Gradient {
        let Some(autograd) = self.autograd else {
            return Gradient::Unclear;
        };
        // SAFETY: [gil] [bounds] [probed] [alive] [word] the caller promises a tensor. Torch gives a tensor what autograd
        // knows of it once, when that is first wanted, and it is read only where it is there.
        unsafe {
            let implementation = word(object, self.implementation) as *const usize;
            if implementation.is_null() || word(implementation, self.keys) != self.plain {
                return Gradient::Unclear;
            }
            let known = word(implementation, autograd) as *const usize;
            match &self.gradient {
                _ if known.is_null() => Gradient::Never,
                Some(places) if word(known, places.flags.at) & places.flags.mask != 0 => Gradient::Unclear,
                Some(places) if places.is_required(known) => {
                    if word(known, places.grad) == places.no_grad
                        && places.hooks.iter().all(|at| word(object, *at) == 0)
                    {
                        Gradient::Wanted
                    } else {
                        Gradient::Used
                    }
                }
                _ => Gradient::Unclear,
            }
        }
    }

    /// What the tensor at this address says of itself; `None` where it is not dense, not on the CPU, not what its memory
    /// says, of a dtype that is not known here, or of more than five dimensions.
    ///
    /// The pointers in it are good as long as the tensor is alive and is not resized.
    ///
    /// # Safety
    /// The address must be that of a living Python object whose type is `torch.Tensor` or a subclass.
    #[inline]
    pub(super) unsafe fn read(&self, object: *const usize) -> Option<Direct> {
        // SAFETY: [gil] [bounds] [probed] [alive] [word] the caller promises a tensor; a dense one (see `plain`) has a
        // storage. The implementations of other kinds of tensors begin with that of a plain one.
        unsafe {
            let implementation = word(object, self.implementation) as *const usize;
            if implementation.is_null() || word(implementation, self.keys) != self.plain {
                return None;
            }
            let ndim = word(implementation, self.dims);
            let number = implementation.cast::<u16>().add(self.dtype).cast_mut();
            let number = AtomicU16::from_ptr(number).load(Ordering::Relaxed);
            let code = (*self.codes.get(usize::from(number))?)?;
            let storage = word(implementation, self.storage) as *const usize;
            if ndim > INLINE_DIMS || storage.is_null() {
                return None;
            }
            let sizes = implementation.cast::<i64>().add(self.dims + 1);
            let first = word(storage, self.data);
            let offset = word(implementation, self.offset).wrapping_mul(usize::from(code.bits) / 8);
            let raw = DlTensor {
                data: if first == 0 { 0 } else { first.wrapping_add(offset) } as *mut _,
                device_kind: CPU,
                device_index: 0,
                ndim: i32::try_from(ndim).ok()?,
                code,
                shape: sizes,
                strides: sizes.add(INLINE_DIMS),
                byte_offset: 0,
            };
            let no_grad = self.autograd.is_some_and(|at| word(implementation, at) == 0);
            Some(Direct { raw, no_grad })
        }
    }

    /// Where the memory of two tensors begins, if both are plain and have one storage, offset, dtype, shape and strides; `None`
    /// says nothing.
    ///
    /// # Safety
    /// As for [`Self::read`], of both.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "a handful of loads, twice for each slot of a swap"
    )]
    pub(super) unsafe fn shared(&self, one: *const usize, two: *const usize) -> Option<Place> {
        // SAFETY: [gil] [bounds] [probed] [alive] [word] as in `read`; the storage is compared and not followed.
        unsafe {
            let first = word(one, self.implementation) as *const usize;
            let second = word(two, self.implementation) as *const usize;
            if first.is_null()
                || second.is_null()
                || word(first, self.keys) != self.plain
                || word(second, self.keys) != self.plain
            {
                return None;
            }
            let number = |implementation: *const usize| {
                let number = implementation.cast::<u16>().add(self.dtype).cast_mut();
                AtomicU16::from_ptr(number).load(Ordering::Relaxed)
            };
            let is_same = |at: usize| word(first, at) == word(second, at);
            let (storage, ndim) = (word(first, self.storage), word(first, self.dims));
            let same = storage != 0
                && ndim <= INLINE_DIMS
                && is_same(self.storage)
                && is_same(self.offset)
                && is_same(self.dims)
                && number(first) == number(second)
                && (1..=ndim).all(|dim| is_same(self.dims + dim) && is_same(self.dims + INLINE_DIMS + dim));
            same.then(|| Place(storage, word(first, self.offset)))
        }
    }

    /// Whether tensors of so many dimensions can be moved by [`Self::shift`].
    pub(super) fn can_shift(&self, ndim: usize) -> bool {
        self.movable && ndim <= INLINE_DIMS
    }

    /// Moves the tensor at `made` in its storage, which is that of the tensor at `base`: to the element of number `offset`.
    /// `false`, and nothing is done, where both are not otherwise the same, or this one is not known to work.
    ///
    /// # Safety
    /// As for [`Self::read`], of both. Nobody else may know the tensor at `made`, and what it spans from `offset` on must lie
    /// within the storage.
    #[inline]
    pub(super) unsafe fn shift(&self, base: *const usize, made: *const usize, offset: usize) -> bool {
        // SAFETY: [gil] [bounds] [probed] [alive] [word] as in `read`; what is written is a number of one word, from which
        // torch computes where the tensor begins each time it is asked, and `find` tried that it does.
        unsafe {
            let implementation = word(made, self.implementation) as *const usize;
            if implementation as usize == word(base, self.implementation) || self.shared(base, made).is_none()
            {
                return false;
            }
            AtomicUsize::from_ptr(implementation.add(self.offset).cast_mut())
                .store(offset, Ordering::Relaxed);
        }
        true
    }

    /// Where the memory of the tensor at this address starts, if [`Self::read`] tells its layout, which is that of `like`, and
    /// it has nothing to do with a gradient; `None` says nothing. The comparison of what `read` gives, in a third of the time.
    ///
    /// # Safety
    /// As for [`Self::read`].
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a handful of loads, for each of many leaves")]
    pub(super) unsafe fn start_like(&self, object: *const usize, like: &Like) -> Option<*const u8> {
        let ndim = usize::try_from(like.ndim)
            .ok()
            .filter(|ndim| *ndim <= INLINE_DIMS)?;
        // SAFETY: [gil] [bounds] [probed] [alive] [word] as in `read`.
        unsafe {
            let implementation = word(object, self.implementation) as *const usize;
            if implementation.is_null()
                || word(implementation, self.keys) != self.plain
                || word(implementation, self.dims) != ndim
            {
                return None;
            }
            let number = implementation.cast::<u16>().add(self.dtype).cast_mut();
            let number = AtomicU16::from_ptr(number).load(Ordering::Relaxed);
            if *self.codes.get(usize::from(number))? != Some(like.code) {
                return None;
            }
            let sizes = implementation.cast::<i64>().add(self.dims + 1);
            for dim in 0..ndim {
                if sizes.add(dim).read() != like.shape[dim]
                    || sizes.add(INLINE_DIMS + dim).read() != like.strides[dim]
                {
                    return None;
                }
            }
            if !like.discrete && self.autograd.is_none_or(|at| word(implementation, at) != 0) {
                return None;
            }
            let storage = word(implementation, self.storage) as *const usize;
            if storage.is_null() {
                return None;
            }
            let first = word(storage, self.data);
            let offset = word(implementation, self.offset).wrapping_mul(usize::from(like.code.bits) / 8);
            (first != 0).then(|| first.wrapping_add(offset) as *const u8)
        }
    }
}

/// The words of the Python object of a tensor.
fn object_words(tensor: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    let size = number(tensor.get_type().as_any(), "__basicsize__")?;
    // SAFETY: [gil] [bounds] [alive] an object has the size that its type states.
    Ok(unsafe { words_of(address(tensor).expose_provenance(), size / WORD) })
}

/// Where a storage has the address of its data: asked of memory that is not torch's own, whose owner has another address.
fn data(probes: &Probes<'_>) -> PyResult<Option<usize>> {
    let py = probes.torch.py();
    let options = PyDict::new(py);
    options.set_item("dtype", probes.torch.getattr("uint8")?)?;
    let bytes = py.import("builtins")?.getattr("bytearray")?.call1((64,))?;
    let from_buffer = probes.torch.getattr("frombuffer")?;
    let storage = || {
        let tensor = from_buffer.call((&bytes,), Some(&options))?;
        tensor.call_method0("untyped_storage")
    };
    let Some(room) = room(|| number(&storage()?, "_cdata"))? else {
        return Ok(None);
    };
    let storage = storage()?;
    let wanted: usize = storage.call_method0("data_ptr")?.extract()?;
    let implementation = number(&storage, "_cdata")?;
    // SAFETY: [gil] [bounds] [alive] torch says where the implementation of the storage is.
    let found = unsafe { words_of(implementation, room / WORD) };
    Ok(only((0..found.len()).filter(|at| found[*at] == wanted)))
}

/// Where a tensor has the number of its dtype, in halves of two bytes, and what `DLPack` calls the dtypes.
#[allow(clippy::type_complexity, reason = "a place and a table")]
fn dtypes(
    probes: &Probes<'_>,
    known: impl Fn(&Bound<'_, PyAny>) -> Option<DlTensor>,
) -> PyResult<Option<(usize, [Option<Code>; DTYPES])>> {
    let halves = |tensor: &Bound<'_, PyAny>| -> PyResult<Vec<u16>> {
        let words = probes.words(tensor)?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        Ok(bytes
            .chunks_exact(2)
            .map(|pair| u16::from_ne_bytes([pair[0], pair[1]]))
            .collect())
    };
    let mut seen: Vec<(Vec<u16>, Vec<u16>, Code)> = Vec::with_capacity(NAMES.len());
    for name in NAMES {
        let (one, two) = (probes.tensor(&[2], name)?, probes.tensor(&[3, 1], name)?);
        let Some(raw) = known(&one) else { return Ok(None) };
        seen.push((halves(&one)?, halves(&two)?, raw.code));
    }
    let tells_apart = |at: usize| {
        let mut numbers: Vec<u16> = seen.iter().map(|(one, ..)| one[at]).collect();
        let same = seen.iter().all(|(one, two, _)| one[at] == two[at]);
        numbers.sort_unstable();
        numbers.dedup();
        same && numbers.len() == NAMES.len() && numbers.iter().all(|number| usize::from(*number) < DTYPES)
    };
    let Some(place) = only((0..probes.words * 4).filter(|at| tells_apart(*at))) else {
        return Ok(None);
    };
    let mut codes = [None; DTYPES];
    for (one, _, code) in &seen {
        codes[usize::from(one[place])] = Some(*code);
    }
    Ok(Some((place, codes)))
}
