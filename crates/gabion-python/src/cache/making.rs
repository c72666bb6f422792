//! Making the value of a key that has none: who runs the factory, and what becomes of the value.
//!
//! Around the factory there is no frame of Python's but its caller's, so that what calls itself goes as deep as it
//! would behind any other cache. Flights themselves, and waiting for them, are Python's: see `gabion._flights`.
//!
//! ```text
//!   the first caller                      the second                          who changes the key
//!   P  new: a flight, known to nobody
//!   R  enter_flight: on the list
//!   R  takes the lease
//!   R  run_flight: sets the mark          P  new
//!   P  looks: put just before?            R  enter_flight: another's is on
//!   P  factory()                             the list, which notes it as
//!                                            one who waits
//! P  wait_for                         R  the put ends the lease: who enters from
//!                                                                                here on takes the flight off the list
//!   P  keep: stores, if the lease holds;                                         and makes the value itself
//!      encodes for others, if awaited
//!   R  leave: takes the mark away and the
//!      flight off the list, opens its gate ──►
//!   P  and wakes the tasks that wait      P  looks: the newest value, or else
//!                                            what was encoded; of neither, it
//!                                            goes on at enter_flight
//! ```
//! R: no code of Python's runs, so no signal's handler raises there, and where there is a global lock, no other thread
//! comes between. P: anybody's code may run and raise. Whatever is raised, `leave` follows, here and in each `finally`
//! of Python's: nobody waits for ever. Those who wait have what the factory raised, or, if that is no `Exception`, one
//! of them makes the value. A wait that is broken off takes its own notes back (`Waiting`, and `leave`, which takes
//! whoever waited off the other's list); the flight of whoever waits is on no list of makers. Coroutine functions take
//! the same steps in `gabion._making`, where a handler may also raise between `enter_flight`, the lease and the mark.

use std::time::Duration;

use gabion_cache::PutOptions;
use pyo3::PyTraverseError;
use pyo3::exceptions::PyException;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict};

use super::flights::{self, CacheLease, enter_flight, leave_flight, run_flight};
use super::options;
use super::state::{CacheTable, Inner};
use crate::fastcall::counted;
use crate::once::{intern, of_module, once};
use crate::{ffi, result};

/// What Python code is called for.
struct Parts {
    flight: Py<PyAny>,
    wait_for: Py<PyAny>,
    deadline: Py<PyAny>,
    refuse_awaitable: Py<PyAny>,
    missing: Py<PyAny>,
}

impl Parts {
    fn get(py: Python<'_>) -> PyResult<&'static Self> {
        static PARTS: PyOnceLock<Parts> = PyOnceLock::new();
        once(py, &PARTS, || {
            let of = |module, name| Ok::<_, PyErr>(of_module(py, module, name)?.unbind());
            Ok(Self {
                flight: of(c"gabion._flights", c"Flight")?,
                wait_for: of(c"gabion._flights", c"wait_for")?,
                deadline: of(c"gabion._flights", c"Deadline")?,
                refuse_awaitable: of(c"gabion._making", c"refuse_awaitable")?,
                missing: of(c"gabion._flights", c"MISSING")?,
            })
        })
    }
}

/// A value that is made by the one who has this, between `begin` and `end`.
#[pyclass(module = "gabion._native", name = "_CacheMaking")]
pub(super) struct Making {
    table: Py<CacheTable>,
    key: Vec<u8>,
    in_flight: Py<PyDict>,
    name: Py<PyAny>,
    flight: Py<PyAny>,
    /// How long its caller waits for what another makes; None without end.
    deadline: Py<PyAny>,
    /// Whether a memoized function makes the value, and no factory.
    of_call: bool,
    lease: Option<Py<CacheLease>>,
    /// What takes the mark away that this code is the flight's factory.
    token: Option<Py<PyAny>>,
    /// The value as bytes, or an error and its traceback.
    made: Option<Py<PyAny>>,
}

impl Making {
    /// Of a key's bytes. Nobody knows of it before `begin`.
    pub fn new(table: &Bound<'_, CacheTable>, key: &[u8], deadline: Py<PyAny>, of_call: bool) -> PyResult<Self> {
        let py = table.py();
        let in_flight = table.getattr(intern!(py, "_gabion_flights")?)?.getattr(intern!(py, "in_flight")?)?;
        let space = result::text(py, table.get().making(py)?.table.name())?;
        let name = result::pair(space.into_any(), result::bytes(py, key)?.into_any())?;
        let flight = Parts::get(py)?.flight.bind(py).call1((false,))?;
        Ok(Self {
            table: table.clone().unbind(),
            key: key.to_vec(),
            in_flight: in_flight.cast_into()?.unbind(),
            name: name.into_any().unbind(),
            flight: flight.unbind(),
            deadline,
            of_call,
            lease: None,
            token: None,
            made: None,
        })
    }

    fn inner<'py>(&'py self, py: Python<'py>) -> PyResult<&'py Inner> {
        self.table.bind(py).get().making(py)
    }

    /// The key's value, if it has one by now or somebody else makes it; `None` for whoever is to make it.
    pub fn enter(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let (parts, flight) = (Parts::get(py)?, self.flight.bind(py).clone());
        while let Some(other) = enter_flight(self.in_flight.bind(py), self.name.bind(py), &flight)? {
            let found = parts.wait_for.bind(py).call1((other, &self.deadline))?;
            if !found.is(&parts.missing) {
                let inner = self.inner(py)?;
                // The newest, or what the other has just made: everybody's own object.
                let newest = inner.look_at(py, &self.key)?;
                let made = || inner.shared.codec.decode(py, found.cast::<PyBytes>()?.as_bytes());
                return newest.map_or_else(made, Ok).map(Some);
            }
        }
        self.start(py)?;
        // Another may have put it between the look and the begin.
        self.inner(py)?.look_at(py, &self.key)
    }

    /// Marks this code as the flight's factory. Before the key is looked at: what changes from here on is not in what
    /// the factory makes.
    fn start(&mut self, py: Python<'_>) -> PyResult<()> {
        let (flight, lease) = (self.flight.bind(py), Py::new(py, CacheLease::new(&self.inner(py)?.table, &self.key))?);
        flight.setattr(intern!(py, "lease")?, &lease)?;
        self.token = Some(run_flight(flight)?.unbind());
        self.lease = Some(lease);
        Ok(())
    }

    /// Refuses what a factory returned to be awaited.
    fn check_made(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if is_awaitable(value) {
            let py = value.py();
            Parts::get(py)?.refuse_awaitable.bind(py).call1((value, self.of_call))?;
        }
        Ok(())
    }

    /// Stores what the factory returned, if the lease holds; without options it is not kept.
    pub fn store(&mut self, value: &Bound<'_, PyAny>, options: Option<&PutOptions>) -> PyResult<()> {
        let py = value.py();
        let Some(lease) = &self.lease else { return Ok(()) };
        let wanted = flights::is_awaited(self.flight.bind(py))?;
        let made = flights::keep(self.inner(py)?, &self.key, value, (lease.get(), wanted), options)?;
        self.made = made.map(|made| made.into_any().unbind());
        Ok(())
    }

    /// What was raised is told to those who wait, unless it is meant to end more than this: who interrupts one caller
    /// interrupts none of the others. Where there is no memory to note it, they try themselves.
    fn failed(&mut self, error: &PyErr, py: Python<'_>) {
        if error.is_instance_of::<PyException>(py) && flights::is_awaited(self.flight.bind(py)).unwrap_or(false) {
            let trace = error.traceback(py).map_or_else(|| py.None().into_bound(py), Bound::into_any);
            let failure = result::pair(error.value(py).clone().into_any(), trace);
            self.made = failure.ok().map(|failure| failure.into_any().unbind());
        }
    }

    /// Whatever became of it: others may make the value now, and those who wait have it.
    pub fn leave(&mut self, py: Python<'_>) -> PyResult<()> {
        if let Some(token) = self.token.take() {
            flights::reset_current(token.bind(py));
        }
        // Not held any longer: an error leads to the frame that holds this.
        let made = match self.made.take() {
            Some(made) => made.into_bound(py),
            None => Parts::get(py)?.missing.bind(py).clone(),
        };
        leave_flight(self.in_flight.bind(py), self.name.bind(py), self.flight.bind(py), &made)
    }
}

#[pymethods]
impl Making {
    /// The key's value, if it has one by now or somebody else makes it; `missing` for whoever is to make it.
    #[pyo3(signature = (missing, /))]
    fn begin(&mut self, py: Python<'_>, missing: Py<PyAny>) -> PyResult<Py<PyAny>> {
        Ok(self.enter(py)?.unwrap_or(missing))
    }

    /// Whether the value is to be made by this one, whether the key has one or not: nobody else does so just now.
    fn begin_anew(&mut self, py: Python<'_>) -> PyResult<bool> {
        let flight = self.flight.bind(py).clone();
        while let Some(other) = enter_flight(self.in_flight.bind(py), self.name.bind(py), &flight)? {
            // Nobody else may look whether it can end.
            if !other.call_method0(intern!(py, "is_over")?)?.is_truthy()? {
                return Ok(false);
            }
        }
        self.start(py)?;
        Ok(true)
    }

    /// Store what the factory returned; as_put are the keywords of put().
    #[pyo3(signature = (value, as_put, /))]
    fn keep(&mut self, value: &Bound<'_, PyAny>, as_put: &Bound<'_, PyDict>) -> PyResult<()> {
        self.check_made(value)?;
        self.store(value, options::of_made(as_put, value)?.as_ref())
    }

    /// Tell those who wait what was raised in its place.
    #[pyo3(signature = (error, /))]
    fn fail(&mut self, error: &Bound<'_, PyAny>) {
        self.failed(&PyErr::from_value(error.clone()), error.py());
    }

    /// Let others make the value, and those who wait have it. Whoever begins ends, whatever comes between.
    fn end(&mut self, py: Python<'_>) -> PyResult<()> {
        self.leave(py)
    }

    /// An error's traceback leads to the frame that made the value, and so here. No __clear__(): a cycle through a
    /// frame is broken elsewhere, and whoever begins must be able to end.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.table)?;
        visit.call(&self.in_flight)?;
        visit.call(&self.name)?;
        visit.call(&self.flight)?;
        visit.call(&self.made)?;
        visit.call(&self.lease)?;
        visit.call(&self.token)
    }
}

/// What a call waits by that gives up after a time; None without end.
pub(super) fn deadline(py: Python<'_>, timeout: Option<Duration>) -> PyResult<Py<PyAny>> {
    match timeout {
        Some(timeout) => Parts::get(py)?.deadline.call1(py, (timeout.as_secs_f64(),)),
        None => Ok(py.None()),
    }
}

/// Makes the value of a key's bytes by a function without arguments, or has it from whoever makes it just now.
/// `options_of` says of a value that was made here how it is put, or that it is not kept.
pub(super) fn make<'py>(
    table: &Bound<'py, CacheTable>,
    key: &[u8],
    factory: &Bound<'py, PyAny>,
    deadline: Py<PyAny>,
    options_of: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<Option<PutOptions>>,
) -> PyResult<Py<PyAny>> {
    // Or the cache would be alive until some later call, with all that the factory's context leads to.
    counted(table.py(), || make_counted(table, key, factory, deadline, options_of))
}

fn make_counted<'py>(
    table: &Bound<'py, CacheTable>,
    key: &[u8],
    factory: &Bound<'py, PyAny>,
    deadline: Py<PyAny>,
    options_of: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<Option<PutOptions>>,
) -> PyResult<Py<PyAny>> {
    let py = table.py();
    let mut making = Making::new(table, key, deadline, false)?;
    let made: PyResult<Py<PyAny>> = (|| {
        if let Some(value) = making.enter(py)? {
            return Ok(value);
        }
        let value = result::call(factory, [])?;
        making.check_made(&value)?;
        making.store(&value, options_of(&value)?.as_ref())?;
        Ok(value.unbind())
    })();
    if let Err(error) = &made {
        making.failed(error, py);
    }
    let left = making.leave(py);
    let value = made?;
    left.map(|()| value)
}

/// Whether `refuse_awaitable` may find something to refuse: what is awaited says so in its class.
fn is_awaitable(value: &Bound<'_, PyAny>) -> bool {
    // SAFETY: attached; a live object's class, which is ready, and the methods that it points to are its own.
    unsafe {
        let methods = (*ffi::Py_TYPE(value.as_ptr())).tp_as_async;
        !methods.is_null() && (*methods).am_await.is_some()
    }
}
