//! Where torch keeps the fields of a tensor, found out at run time.
//!
//! A call of torch's exchange function and one for the gradient take some 90 ns a leaf, which is most of what a stack of
//! many small leaves costs. The same facts are six loads from the tensor object. Their places are private to torch, so
//! none is assumed: [`Places::find`] looks for them in tensors whose addresses, sizes, dtype, gradient and dispatch keys
//! Python tells, wants exactly one place for each, then compares what it reads of several dozen other tensors with what
//! the exchange function says of them. Any doubt, and tensors are read through the exchange functions alone, as they are
//! where `TD_DIRECT_READS=0` is set. The places cannot change afterwards: they are compiled into the torch that is loaded.
//!
//! Only tensors whose dispatch keys are those of a dense CPU tensor, neither lazily negated or conjugated nor wrapped by a
//! transform, are read so; all others fail that one comparison.
#![allow(unsafe_code, reason = "fields of torch's tensor objects are read by address")]

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::{CPU, Code, DlTensor};

/// No field that is looked for lies behind this many words of a tensor's implementation, which has 22 in torch 2.15.
const IMPL_WORDS: usize = 22;
/// The same for a storage's implementation.
const STORAGE_WORDS: usize = 7;
/// The same for what autograd knows of a tensor, in bytes.
const AUTOGRAD_BYTES: usize = 136;
/// Sizes, then strides, are kept inside the object up to this many dimensions.
const INLINE_DIMS: usize = 5;
/// Numbers that torch gives dtypes are below this.
const DTYPES: usize = 64;

const SHAPE: [usize; 3] = [3, 5, 7];
const STRIDES: [usize; 3] = [701, 131, 17];
const OFFSET: usize = 1009;
const ELEMENTS: usize = 4000;

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
unsafe fn word(object: *const usize, at: usize) -> usize {
    // SAFETY: as the caller promises.
    unsafe { object.add(at).read() }
}

/// The places, in words unless it says otherwise.
pub(super) struct Places {
    /// In the Python object: the implementation.
    implementation: usize,
    /// In the implementation: the storage, what autograd knows, the number of dimensions, the offset, the dispatch keys.
    storage: usize,
    autograd: usize,
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
}

/// Places of what has to do with a gradient.
struct GradientPlaces {
    /// In what autograd knows, in bytes: whether it is a leaf that requires a gradient.
    required: usize,
    /// In the same, in words: the gradient, and what is there where there is none.
    grad: usize,
    no_grad: usize,
    /// In the Python object: two dicts of hooks.
    hooks: [usize; 2],
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
fn address(tensor: &Bound<'_, PyAny>) -> *const usize {
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
}

impl<'py> Probes<'py> {
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

/// The words of the implementation of a tensor.
fn words(tensor: &Bound<'_, PyAny>) -> PyResult<[usize; IMPL_WORDS]> {
    let implementation = number(tensor, "_cdata")? as *const usize;
    // SAFETY: torch says where the implementation is, which lives as long as the tensor.
    Ok(std::array::from_fn(|at| unsafe { word(implementation, at) }))
}

impl Places {
    /// The places, if each is found exactly once and what is read there is true of other tensors, of which `known` tells.
    ///
    /// Nothing that changes what torch does may be active.
    pub(super) fn find(
        py: Python<'_>,
        known: impl Fn(&Bound<'_, PyAny>) -> Option<DlTensor>,
    ) -> PyResult<Option<Self>> {
        if std::env::var_os("TD_DIRECT_READS").is_some_and(|set| set == "0") {
            return Ok(None);
        }
        let probes = Probes {
            torch: py.import("torch")?,
        };
        let Some(mut places) = Self::search(&probes, &known)? else {
            return Ok(None);
        };
        if !places.follows(&probes)? {
            places.gradient = None;
        }
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
        Ok(Some(places))
    }

    /// Whether what is read of a gradient follows what is done to a tensor.
    fn follows(&self, probes: &Probes<'_>) -> PyResult<bool> {
        let py = probes.torch.py();
        let tensor = probes.tensor(&[4], "float64")?;
        // SAFETY: a tensor, just made.
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
        // SAFETY: a tensor, just made.
        let Some(direct) = (unsafe { self.read(address(tensor)) }) else {
            return usize::try_from(wanted.ndim).is_ok_and(|ndim| ndim > INLINE_DIMS);
        };
        let found = direct.raw;
        // SAFETY: both were read of a tensor that is alive.
        let same_dims = unsafe { found.dims() == wanted.dims() };
        let first = |raw: &DlTensor| {
            raw.data
                .addr()
                .wrapping_add(usize::try_from(raw.byte_offset).unwrap_or(0))
        };
        same_dims
            && first(&found) == first(&wanted)
            && found.code == wanted.code
            && found.device_kind == wanted.device_kind
    }

    fn search(
        probes: &Probes<'_>,
        known: impl Fn(&Bound<'_, PyAny>) -> Option<DlTensor>,
    ) -> PyResult<Option<Self>> {
        let strided = probes.strided("float32")?;
        let (found, plain) = (words(&strided)?, probes.keys(&strided)?);
        let storage = strided.call_method0("untyped_storage")?;
        let place = |wanted: usize| only((0..IMPL_WORDS).filter(|at| found[*at] == wanted));
        let sizes: [usize; 4] = [SHAPE.len(), SHAPE[0], SHAPE[1], SHAPE[2]];
        let dims = only((0..IMPL_WORDS - 2 * INLINE_DIMS).filter(|at| {
            found[*at..*at + 4] == sizes && found[*at + 1 + INLINE_DIMS..*at + 1 + INLINE_DIMS + 3] == STRIDES
        }));
        let object_words = number(strided.get_type().as_any(), "__basicsize__")? / size_of::<usize>();
        let implementation = number(&strided, "_cdata")?;
        let object = address(&strided);
        // SAFETY: an object has as many words as its type says.
        let implementation =
            only((0..object_words).filter(|at| unsafe { word(object, *at) } == implementation));
        let (Some(implementation), Some(dims), Some(offset), Some(keys), Some(storage)) = (
            implementation,
            dims,
            place(OFFSET),
            place(plain),
            place(number(&storage, "_cdata")?),
        ) else {
            return Ok(None);
        };
        let (Some(data), Some(autograd), Some((dtype, codes))) =
            (data(probes)?, autograd(probes)?, dtypes(probes, known)?)
        else {
            return Ok(None);
        };
        let gradient = GradientPlaces::find(probes, autograd, object_words)?;
        Ok(Some(Self {
            implementation,
            storage,
            autograd,
            dims,
            offset,
            keys,
            dtype,
            data,
            plain,
            codes,
            gradient,
        }))
    }

    /// What the tensor at this address says of its gradient.
    ///
    /// # Safety
    /// As for [`Self::read`].
    #[inline]
    pub(super) unsafe fn gradient(&self, object: *const usize) -> Gradient {
        // SAFETY: the caller promises a tensor. What autograd knows of it lives as long as the tensor, is never exchanged,
        // and is read only where it is there.
        unsafe {
            let implementation = word(object, self.implementation) as *const usize;
            if implementation.is_null() || word(implementation, self.keys) != self.plain {
                return Gradient::Unclear;
            }
            let known = word(implementation, self.autograd) as *const usize;
            match &self.gradient {
                _ if known.is_null() => Gradient::Never,
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
        // SAFETY: the caller promises a tensor, and the places were found in tensors of this torch. Its implementation
        // lives as long as the object, and a dense tensor (see `plain`) has a storage that lives as long as that.
        unsafe {
            let implementation = word(object, self.implementation) as *const usize;
            if implementation.is_null() || word(implementation, self.keys) != self.plain {
                return None;
            }
            let ndim = word(implementation, self.dims);
            let number = implementation.cast::<u16>().add(self.dtype).read();
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
            let no_grad = word(implementation, self.autograd) == 0;
            Some(Direct { raw, no_grad })
        }
    }
}

impl GradientPlaces {
    /// # Safety
    /// The address must be that of what autograd knows of a living tensor.
    #[inline]
    unsafe fn is_required(&self, known: *const usize) -> bool {
        // SAFETY: as the caller promises.
        unsafe { known.cast::<u8>().add(self.required).read() == 1 }
    }

    /// The places, if each is found exactly once; `autograd` is that of what autograd knows of a tensor.
    fn find(probes: &Probes<'_>, autograd: usize, object_words: usize) -> PyResult<Option<Self>> {
        let py = probes.torch.py();
        let tensor = probes.tensor(&[3, 2], "float32")?;
        let wants = |wanted: bool| tensor.call_method1("requires_grad_", (wanted,));
        wants(true)?;
        let known = words(&tensor)?[autograd] as *const u8;
        let bytes = || -> Vec<u8> {
            // SAFETY: what autograd knows has at least that many bytes in all versions of torch that this runs with.
            let byte = |at: usize| unsafe { known.add(at).read() };
            (0..AUTOGRAD_BYTES).map(byte).collect()
        };
        let object = || -> Vec<usize> {
            // SAFETY: an object has as many words as its type says.
            let word = |at: usize| unsafe { word(address(&tensor), at) };
            (0..object_words).map(word).collect()
        };
        let with = bytes();
        wants(false)?;
        let without = bytes();
        wants(true)?;
        let required = only((0..AUTOGRAD_BYTES).filter(|at| with[*at] != without[*at]))
            .filter(|at| with[*at] == 1 && without[*at] == 0);
        let gradient = probes.tensor(&[3, 2], "float32")?;
        tensor.setattr("grad", &gradient)?;
        let used = bytes();
        tensor.setattr("grad", py.None())?;
        let without = bytes();
        let wanted = number(&gradient, "_cdata")?;
        let word_of = |all: &[u8], at: usize| {
            let word = all[at * 8..].iter().take(8).rev();
            word.fold(0, |sum, byte| (sum << 8) | usize::from(*byte))
        };
        let grad = only((0..AUTOGRAD_BYTES / 8).filter(|at| word_of(&used, *at) == wanted))
            .filter(|at| word_of(&with, *at) == word_of(&without, *at) && word_of(&with, *at) != wanted);
        let before = object();
        let mut hooks = [None; 2];
        for (place, (method, name)) in hooks.iter_mut().zip([
            ("register_hook", "_backward_hooks"),
            (
                "register_post_accumulate_grad_hook",
                "_post_accumulate_grad_hooks",
            ),
        ]) {
            tensor.call_method1(method, (py.import("builtins")?.getattr("id")?,))?;
            let dict = tensor.getattr(name)?.as_ptr().addr();
            let after = object();
            *place = only((0..object_words).filter(|at| after[*at] == dict && before[*at] == 0));
        }
        let found = (required, grad, hooks[0], hooks[1]);
        let (Some(required), Some(grad), Some(first), Some(second)) = found else {
            return Ok(None);
        };
        Ok(Some(Self {
            required,
            no_grad: word_of(&with, grad),
            grad,
            hooks: [first, second],
        }))
    }
}

/// Where a storage has the address of its data: asked of memory that is not torch's own, whose owner has another address.
fn data(probes: &Probes<'_>) -> PyResult<Option<usize>> {
    let py = probes.torch.py();
    let options = PyDict::new(py);
    options.set_item("dtype", probes.torch.getattr("uint8")?)?;
    let bytes = py.import("builtins")?.getattr("bytearray")?.call1((64,))?;
    let tensor = probes
        .torch
        .getattr("frombuffer")?
        .call((bytes,), Some(&options))?;
    let storage = tensor.call_method0("untyped_storage")?;
    let wanted: usize = storage.call_method0("data_ptr")?.extract()?;
    let implementation = number(&storage, "_cdata")? as *const usize;
    // SAFETY: torch says where the implementation of the storage is, which lives as long as the storage.
    Ok(only(
        (0..STORAGE_WORDS).filter(|at| unsafe { word(implementation, *at) == wanted }),
    ))
}

/// Where a tensor has what autograd knows of it: nothing in a new one, something in one that requires a gradient.
fn autograd(probes: &Probes<'_>) -> PyResult<Option<usize>> {
    let shape = [3, 2];
    let (one, two) = (
        words(&probes.tensor(&shape, "float32")?)?,
        words(&probes.tensor(&shape, "int64")?)?,
    );
    let wants = probes.tensor(&shape, "float32")?;
    wants.call_method1("requires_grad_", (true,))?;
    let wants = words(&wants)?;
    Ok(only(
        (0..IMPL_WORDS).filter(|at| one[*at] == 0 && two[*at] == 0 && wants[*at] != 0),
    ))
}

/// Where a tensor has the number of its dtype, in halves of two bytes, and what `DLPack` calls the dtypes.
#[allow(clippy::type_complexity, reason = "a place and a table")]
fn dtypes(
    probes: &Probes<'_>,
    known: impl Fn(&Bound<'_, PyAny>) -> Option<DlTensor>,
) -> PyResult<Option<(usize, [Option<Code>; DTYPES])>> {
    let halves = |tensor: &Bound<'_, PyAny>| -> PyResult<Vec<u16>> {
        let words = words(tensor)?;
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
    let Some(place) = only((0..IMPL_WORDS * 4).filter(|at| tells_apart(*at))) else {
        return Ok(None);
    };
    let mut codes = [None; DTYPES];
    for (one, _, code) in &seen {
        codes[usize::from(one[place])] = Some(*code);
    }
    Ok(Some((place, codes)))
}
