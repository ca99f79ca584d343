//! Where torch keeps what a tensor has to do with a gradient, by the rules of the module above.
#![allow(unsafe_code, reason = "fields of torch's tensor objects are read by address")]

use std::sync::atomic::{AtomicU8, Ordering};

use pyo3::prelude::*;

use super::{Probes, WORD, number, object_words, only, words_of};
use crate::tensor::room::room;

/// Places of what has to do with a gradient.
pub(super) struct GradientPlaces {
    /// In what autograd knows, in bytes: whether it is a leaf that requires a gradient.
    pub(super) required: usize,
    /// In the same, in words: the gradient, and what is there where there is none.
    pub(super) grad: usize,
    pub(super) no_grad: usize,
    /// In the same, in words: flags that stay unset unless the gradient is given a dtype of its own.
    pub(super) flags: Flags,
    /// In the Python object: two dicts of hooks.
    pub(super) hooks: [usize; 2],
}

/// Some bytes of a word.
#[derive(Clone, Copy, Default)]
pub(super) struct Flags {
    pub(super) at: usize,
    pub(super) mask: usize,
}

impl GradientPlaces {
    /// # Safety
    /// The address must be that of what autograd knows of a living tensor.
    #[inline]
    pub(super) unsafe fn is_required(&self, known: *const usize) -> bool {
        // SAFETY: [bounds] [probed] [word] as the caller promises.
        unsafe {
            AtomicU8::from_ptr(known.cast::<u8>().add(self.required).cast_mut()).load(Ordering::Relaxed) == 1
        }
    }

    /// The places, if each is found exactly once; `autograd` is that of what autograd knows of a tensor.
    pub(super) fn find(probes: &Probes<'_>, autograd: usize) -> PyResult<Option<Self>> {
        let py = probes.torch.py();
        let known_of = |tensor: &Bound<'_, PyAny>| -> PyResult<usize> {
            tensor.call_method1("requires_grad_", (true,))?;
            Ok(probes.words(tensor)?[autograd])
        };
        let Some(room) = room(|| known_of(&probes.tensor(&[3, 2], "float32")?))? else {
            return Ok(None);
        };
        let tensor = probes.tensor(&[3, 2], "float32")?;
        let known = known_of(&tensor)?;
        let wants = |wanted: bool| tensor.call_method1("requires_grad_", (wanted,));
        // SAFETY: [gil] [bounds] [alive] what autograd knows has as many words in every tensor, and stays where it is.
        let now = || unsafe { words_of(known, room / WORD) };
        let bytes = || -> Vec<u8> { now().iter().flat_map(|word| word.to_ne_bytes()).collect() };
        let with = bytes();
        wants(false)?;
        let without = bytes();
        wants(true)?;
        let required = only((0..with.len()).filter(|at| with[*at] != without[*at]))
            .filter(|at| with[*at] == 1 && without[*at] == 0);
        let gradient = probes.tensor(&[3, 2], "float32")?;
        let wanted = number(&gradient, "_cdata")?;
        let before = now();
        tensor.setattr("grad", &gradient)?;
        let during = now();
        tensor.setattr("grad", py.None())?;
        let after = now();
        let grad = only((0..before.len()).filter(|at| during[*at] == wanted))
            .filter(|at| before[*at] == after[*at] && before[*at] != wanted);
        let flags = flags(&tensor, now)?;
        let (Some(required), Some(grad), Some(flags), Some(hooks)) = (required, grad, flags, hooks(&tensor)?)
        else {
            return Ok(None);
        };
        Ok(Some(Self {
            required,
            no_grad: before[grad],
            grad,
            flags,
            hooks,
        }))
    }
}

/// The bytes, of what autograd knows of a tensor, that are set with a dtype of gradients: none in a release of torch that
/// has no such; `None` where they do not show, all in one word. They are asked after all else: what is set here stays.
fn flags(tensor: &Bound<'_, PyAny>, now: impl Fn() -> Vec<usize>) -> PyResult<Option<Flags>> {
    let name = "grad_dtype";
    if !tensor.hasattr(name)? {
        return Ok(Some(Flags::default()));
    }
    let before = now();
    let mut found = vec![0; before.len()];
    // The number of this dtype is not 1, so that only flags become 1.
    let other = tensor.py().import("torch")?.getattr("float64")?;
    for dtype in [other, tensor.py().None().into_bound(tensor.py())] {
        tensor.setattr(name, dtype)?;
        let mut shows = false;
        for ((mask, before), after) in found.iter_mut().zip(&before).zip(now()) {
            for (byte, (old, new)) in before
                .to_ne_bytes()
                .into_iter()
                .zip(after.to_ne_bytes())
                .enumerate()
            {
                if (old, new) == (0, 1) {
                    let mut bytes = [0; WORD];
                    bytes[byte] = u8::MAX;
                    *mask |= usize::from_ne_bytes(bytes);
                    shows = true;
                }
            }
        }
        if !shows {
            return Ok(None);
        }
    }
    let at = only((0..found.len()).filter(|at| found[*at] != 0));
    Ok(at.map(|at| Flags { at, mask: found[at] }))
}

/// Where the Python object of a tensor has its two dicts of hooks.
fn hooks(tensor: &Bound<'_, PyAny>) -> PyResult<Option<[usize; 2]>> {
    let py = tensor.py();
    let before = object_words(tensor)?;
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
        let after = object_words(tensor)?;
        *place = only((0..after.len()).filter(|at| after[*at] == dict && before[*at] == 0));
    }
    Ok(hooks[0].zip(hooks[1]).map(|(first, second)| [first, second]))
}

/// Where a tensor has what autograd knows of it: nothing in a new one, something in one that has ever required a gradient.
pub(super) fn autograd(probes: &Probes<'_>) -> PyResult<Option<usize>> {
    let mut places: Vec<usize> = (0..probes.words).collect();
    for (shape, dtype) in [
        (&[3, 2][..], "float32"),
        (&[], "float64"),
        (&[1, 4, 1], "complex64"),
    ] {
        let (one, two) = (probes.tensor(shape, dtype)?, probes.tensor(shape, "int64")?);
        let (before, other) = (probes.words(&one)?, probes.words(&two)?);
        one.call_method1("requires_grad_", (true,))?;
        let during = probes.words(&one)?;
        one.call_method1("requires_grad_", (false,))?;
        let after = probes.words(&one)?;
        places.retain(|at| {
            before[*at] == 0 && other[*at] == 0 && during[*at] != 0 && after[*at] == during[*at]
        });
    }
    Ok(only(places.into_iter()))
}
