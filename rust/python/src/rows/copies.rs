//! Copies into outputs that were made for them, which count if what they were made of stayed where it was.

use std::mem::MaybeUninit;

use pyo3::prelude::*;
use pyo3::types::PyList;
use tensordict_core::rows::{Gather, Job, Source, run, run_here};

use crate::enter::enter_with;
use crate::error::raise;
use crate::tensor::{AllSeen, Grip, Output, Session};

/// Makes a job for each leaf as it lies now and carries them out into the outputs, which are returned as a list; `None` where a
/// leaf has changed since it was seen.
pub(super) fn carry_out<'a, 'py>(
    session: &Session<'py>,
    grip: &Grip<'py>,
    leaves: &'a [Bound<'py, PyAny>],
    seen: &AllSeen,
    outputs: Vec<Output<'py>>,
    make: impl Fn(usize, &Source<'a>) -> tensordict_core::Result<Gather<'a>>,
) -> PyResult<Option<Bound<'py, PyList>>> {
    finish(session, grip, outputs, |starts| {
        let mut jobs = Vec::with_capacity(leaves.len());
        for (number, leaf) in leaves.iter().enumerate() {
            let Some((bytes, seen)) = seen.bytes_of(session, number, leaf) else {
                return Ok(None);
            };
            starts.push(bytes.as_ptr());
            let job = Source::new(bytes, *seen.layout()).and_then(|source| make(number, &source));
            jobs.push(job.map_err(|error| raise(&error))?.into());
        }
        Ok(Some(jobs))
    })
}

/// Carries out the jobs that `read` makes of leaves as they lie at that moment, and returns the outputs as a list; `None` where
/// a leaf has changed since it was seen, or an output is not as it was made. Until the copy is done no Python may run here.
///
/// `read` also notes where each leaf begins. Where others could move one meanwhile, what was copied counts if it did not move;
/// else the copy is made again, with the GIL held.
pub(super) fn finish<'a, 'py>(
    session: &Session<'py>,
    grip: &Grip<'py>,
    mut outputs: Vec<Output<'py>>,
    mut read: impl FnMut(&mut Vec<*const u8>) -> PyResult<Option<Vec<Job<'a>>>>,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let (mut starts, mut now) = (Vec::new(), Vec::new());
    let Some(jobs) = read(&mut starts)? else {
        return Ok(None);
    };
    if !run_into(session, grip, &jobs, &mut outputs)? {
        return Ok(None);
    }
    if grip.is_released() {
        let again = read(&mut now)?;
        if now != starts {
            let Some(jobs) = again else {
                return Ok(None);
            };
            if !run_into(session, &Grip::Gil, &jobs, &mut outputs)? {
                return Ok(None);
            }
        }
    }
    as_list(session, outputs).map(Some)
}

/// Carries out jobs into the outputs; false where one of these is not as it was made.
pub(super) fn run_into<'py>(
    session: &Session<'py>,
    grip: &Grip<'py>,
    jobs: &[Job<'_>],
    outputs: &mut [Output<'py>],
) -> PyResult<bool> {
    if !outputs.iter().all(|output| session.is_as_made(output)) {
        return Ok(false);
    }
    let py = session.py();
    let work: Vec<(&Job<'_>, &mut [MaybeUninit<u8>])> =
        jobs.iter().zip(outputs.iter_mut().map(Output::bytes)).collect();
    match grip {
        Grip::Gil => enter_with(py, false, || run_here(work)),
        Grip::Storages(_) => enter_with(py, true, || run(work)),
    }?;
    Ok(true)
}

pub(super) fn as_list<'py>(
    session: &Session<'py>,
    outputs: Vec<Output<'py>>,
) -> PyResult<Bound<'py, PyList>> {
    PyList::new(session.py(), outputs.into_iter().map(Output::into_tensor))
}
