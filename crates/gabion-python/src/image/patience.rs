//! Calls that wait for room below the pool's limit.
//!
//! A call that is refused has given back all that it had by then, and does its work again once there may be room. So
//! nobody waits with a part of what another one waits for; what was decoded in vain is the price.

use std::thread::sleep;
use std::time::{Duration, Instant};

use gabion_blocks::{BlockError, GroupRequest, Pool};
use pyo3::prelude::*;

use crate::detached::detached_ungated;
use crate::errors::Errors;
use crate::memory::{Garbage, patiently, refused};
use crate::time;

/// How long a call waits for room.
pub(super) struct Patience(Option<(Instant, Duration)>);

/// How long it rests where there was room, and the work was refused once more: at first, and at most.
const RESTS: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// How long it waits for more than it was refused: those behind it in the queue wait as well.
const TRIED: Duration = Duration::from_millis(10);

/// What a wait takes at least that was one.
const MOMENT: Duration = Duration::from_millis(1);

impl Patience {
    /// From now on.
    pub fn of(timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let timeout = timeout.map(|timeout| time::duration("timeout", timeout)).transpose()?;
        Ok(Self(timeout.filter(|timeout| !timeout.is_zero()).map(|timeout| (Instant::now(), timeout))))
    }

    /// It does not wait.
    pub fn none() -> Self {
        Self(None)
    }

    /// Whether it waits at all.
    pub fn has_any(&self) -> bool {
        self.0.is_some()
    }

    /// Waits until there is room for so much, and leaves it there.
    pub fn for_room(&self, py: Python<'_>, bytes: u64) -> PyResult<()> {
        match self.0 {
            None => Ok(()),
            Some((start, timeout)) => {
                wait_for(py, bytes, timeout.saturating_sub(start.elapsed()), (bytes, timeout), false).map(drop)
            }
        }
    }

    /// What `work` makes. It has to hold nothing of the pool's when it is refused.
    pub fn run<T>(&self, py: Python<'_>, mut work: impl FnMut() -> PyResult<T>) -> PyResult<T> {
        let (mut need, mut rest, mut garbage) = (0, RESTS.0, Garbage::new());
        loop {
            let error = match work() {
                Err(error) => error,
                done => return done,
            };
            let Some((asked, allowed)) = to_be_had_later(py, &error) else { return Err(error) };
            if garbage.collect(py, asked) {
                continue;
            }
            let Some((start, timeout)) = self.0 else {
                garbage.back_off();
                return Err(error);
            };
            // All that was refused since it had to wait, where that comes one by one; from the start where it is more
            // than there is.
            need = Some(asked.saturating_add(need)).filter(|need| *need <= allowed).unwrap_or(asked);
            let began = Instant::now();
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(too_late(py, asked, timeout));
            }
            // So much may never be in one place, though the work would find its parts.
            let most = if need > asked { left.min(TRIED) } else { left };
            let room = wait_for(py, need, most, (asked, timeout), most < left)?;
            if room && began.elapsed() < MOMENT {
                detached_ungated(py, || sleep(rest.min(left)));
                py.check_signals()?;
                rest = (rest * 2).min(RESTS.1);
            } else {
                (need, rest) = (0, RESTS.0);
            }
        }
    }
}

/// What was refused and what is allowed, if it is the pool's limit that will not do now, and may do later.
fn to_be_had_later(py: Python<'_>, error: &PyErr) -> Option<(u64, u64)> {
    if !error.is_instance(py, Errors::get(py).ok()?.limit.bind(py)) {
        return None;
    }
    let value = error.value(py);
    let number = |name: &str| value.getattr(name).ok()?.extract::<u64>().ok();
    let limit: String = value.getattr("limit").ok()?.extract().ok()?;
    Some((number("asked")?, number("allowed")?)).filter(|(asked, allowed)| limit == "total_limit" && asked <= allowed)
}

/// The error of work whose time is over. There may be room for what it was refused, now that it has given back what it
/// had: then no wait in the queue ends with one.
fn too_late(py: Python<'_>, asked: u64, waited: Duration) -> PyErr {
    let pool = Pool::global();
    let (stats, limit) = (pool.stats(), pool.settings().total_limit);
    let (used, idle) = (stats.mapped, stats.idle);
    refused(py, &BlockError::TimedOut { asked, used, idle, limit, waited, behind: false })
}

/// Waits in the pool's queue until there is room for so much, and leaves it there. Whether there was: it is no error
/// that there was none where that is `tried` only. What was asked for, and the whole of the timeout, are what an error
/// tells.
fn wait_for(py: Python<'_>, bytes: u64, most: Duration, reported: (u64, Duration), tried: bool) -> PyResult<bool> {
    let request = GroupRequest::new(usize::try_from(bytes).unwrap_or(usize::MAX)).timeout(most);
    let (asked, waited) = reported;
    patiently(py, request.bytes, |pool, go_on| match pool.rent_group_while(&request, go_on) {
        Ok(_) => Ok(true),
        Err(BlockError::TimedOut { .. }) if tried => Ok(false),
        Err(BlockError::TimedOut { used, idle, limit, behind, .. }) => {
            Err(BlockError::TimedOut { asked, used, idle, limit, waited, behind })
        }
        Err(error) => Err(error),
    })
}
