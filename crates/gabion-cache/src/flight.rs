//! One factory for each key: whoever comes while it runs waits for its value.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use foldhash::quality::RandomState;

use crate::lease::Lease;

/// Why a caller of [`Table::get_or_put`](crate::Table::get_or_put) is not let wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deadlock {
    /// The factory asks for the key that it is to make.
    Recursive,
    /// The factory of the key waits, perhaps through others, for one that this caller runs.
    Circular,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Recursive => "the factory of a key asks for that key itself: it would wait for its own end",
            Self::Circular => {
                "factories of several keys ask for each other's keys: each would wait for the others for ever"
            }
        })
    }
}

impl std::error::Error for Deadlock {}

/// A thread that runs factories, by a number of its own.
pub(crate) type Runner = u64;

/// A number for the calling thread as a [`Runner`].
pub(crate) fn this_thread() -> Runner {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static NUMBER: Runner = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

/// A factory that runs.
#[derive(Debug)]
struct Flight {
    runner: Runner,
    number: u64,
    /// That of its key, once it was taken.
    lease: OnceLock<Weak<Lease>>,
    landed: Mutex<Landing>,
    bell: Condvar,
}

impl Flight {
    /// Whether its key was changed since its value began to be made.
    fn is_outdated(&self) -> bool {
        self.lease.get().and_then(Weak::upgrade).is_some_and(|lease| !lease.holds())
    }
}

/// How a factory ended.
#[derive(Debug, Clone, Default)]
enum Landing {
    /// It still runs.
    #[default]
    Flying,
    Made(Arc<[u8]>),
    Failed,
}

/// The factories that run now.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    flying: HashMap<Arc<[u8]>, Arc<Flight>, RandomState>,
    /// Which flight a runner waits for.
    waiting: HashMap<Runner, Arc<Flight>, RandomState>,
    flights: u64,
}

/// What [`Flights::begin`] says.
#[derive(Debug)]
pub(crate) enum Begin<'a> {
    /// The caller runs the factory, and says how it ended.
    Run(Ticket<'a>),
    /// Another runs it; wait.
    Wait(Waiting<'a>),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// Whether whoever runs `flight` waits for something that `runner` runs.
    fn comes_back(&self, flight: &Arc<Flight>, runner: Runner) -> bool {
        let mut next = Some(flight);
        // A chain without a circle is no longer than there are waiting runners.
        for _ in 0..self.waiting.len() + 2 {
            match next {
                Some(flight) if flight.runner == runner => return true,
                Some(flight) => next = self.waiting.get(&flight.runner),
                None => return false,
            }
        }
        true
    }
}

impl Flights {
    /// Begins to make the value of a key, or to wait for it.
    ///
    /// # Errors
    /// [`Deadlock`] when waiting would never end.
    pub fn begin(&self, key: &[u8], runner: Runner) -> Result<Begin<'_>, Deadlock> {
        let mut inner = lock(&self.inner);
        // Nobody waits for what is out of date, not even in a circle.
        if inner.flying.get(key).is_some_and(|flight| flight.is_outdated()) {
            inner.flying.remove(key);
        }
        if let Some((key, flight)) = inner.flying.get_key_value(key) {
            if flight.runner == runner {
                return Err(Deadlock::Recursive);
            }
            if inner.comes_back(flight, runner) {
                return Err(Deadlock::Circular);
            }
            let (key, flight) = (Arc::clone(key), Arc::clone(flight));
            inner.waiting.insert(runner, Arc::clone(&flight));
            return Ok(Begin::Wait(Waiting { flights: self, key, flight, runner }));
        }
        inner.flights += 1;
        let (landed, bell, number) = (Mutex::default(), Condvar::new(), inner.flights);
        let flight = Arc::new(Flight { runner, number, lease: OnceLock::new(), landed, bell });
        let key: Arc<[u8]> = key.into();
        inner.flying.insert(Arc::clone(&key), Arc::clone(&flight));
        Ok(Begin::Run(Ticket { flights: self, key, flight: Some(flight) }))
    }

    /// Takes a flight off the list, if it is still there.
    fn forget(&self, key: &[u8], flight: &Flight) -> MutexGuard<'_, Inner> {
        let mut inner = lock(&self.inner);
        if inner.flying.get(key).is_some_and(|other| other.number == flight.number) {
            inner.flying.remove(key);
        }
        inner
    }
}

/// The right to make a key's value. Dropped without [`Ticket::land`], it lets the next caller try.
#[derive(Debug)]
#[must_use = "dropped, it lets the next caller make the value"]
pub(crate) struct Ticket<'a> {
    flights: &'a Flights,
    key: Arc<[u8]>,
    /// There until it has ended.
    flight: Option<Arc<Flight>>,
}

impl Ticket<'_> {
    /// The value is made under a lease of its key: when that ends before the value is made, others need not wait for
    /// it.
    pub fn made_under(&self, lease: &Arc<Lease>) {
        if let Some(flight) = &self.flight {
            let _ = flight.lease.set(Arc::downgrade(lease));
        }
    }

    /// The value is made: all who wait get it.
    pub fn land(mut self, value: &[u8]) {
        self.end(|| Landing::Made(value.into()));
    }

    /// Takes the flight off the list, and tells those who wait for it, if there are any, how it ended.
    fn end(&mut self, how: impl FnOnce() -> Landing) {
        let Some(flight) = self.flight.take() else { return };
        let mut inner = self.flights.forget(&self.key, &flight);
        // Whoever waits has a copy, made under this lock; from now on there are no more.
        if Arc::strong_count(&flight) == 1 {
            return;
        }
        // Whoever waited for it waits no more, though it may take a while to wake up.
        inner.waiting.retain(|_, other| other.number != flight.number);
        drop(inner);
        *lock(&flight.landed) = how();
        flight.bell.notify_all();
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.end(|| Landing::Failed);
    }
}

/// A place among those who wait for a value.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    flights: &'a Flights,
    key: Arc<[u8]>,
    flight: Arc<Flight>,
    runner: Runner,
}

impl Waiting<'_> {
    /// Whether the key was changed since its value began to be made.
    pub fn is_outdated(&self) -> bool {
        self.flight.is_outdated()
    }

    /// Waits no more, and lets the next caller make the value anew.
    pub fn supersede(self) {
        drop(self.flights.forget(&self.key, &self.flight));
    }

    /// The value, when it is made; `None` when the factory failed, and the caller may try itself.
    pub fn wait(self) -> Option<Arc<[u8]>> {
        let mut landed = lock(&self.flight.landed);
        loop {
            match &*landed {
                Landing::Made(value) => return Some(Arc::clone(value)),
                Landing::Failed => return None,
                Landing::Flying => {}
            }
            landed = self.flight.bell.wait(landed).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(&self.flights.inner).waiting.remove(&self.runner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn one_runs_and_the_others_get_its_value() {
        let (flights, barrier) = (Flights::default(), Barrier::new(2));
        std::thread::scope(|scope| {
            let Ok(Begin::Run(ticket)) = flights.begin(b"k", 1) else { panic!("nobody runs it") };
            let waiter = scope.spawn(|| {
                let Ok(Begin::Wait(waiting)) = flights.begin(b"k", 2) else { panic!("it is running") };
                barrier.wait();
                waiting.wait()
            });
            barrier.wait();
            ticket.land(b"value");
            assert_eq!(waiter.join().unwrap().as_deref(), Some(&b"value"[..]));
        });
        assert!(matches!(flights.begin(b"k", 2), Ok(Begin::Run(_))));
    }

    #[test]
    fn who_fails_lets_the_next_try() {
        let flights = Flights::default();
        let ticket = flights.begin(b"k", 1).unwrap();
        let Begin::Wait(waiting) = flights.begin(b"k", 2).unwrap() else { panic!("it is running") };
        drop(ticket);
        assert_eq!(waiting.wait(), None);
        assert!(matches!(flights.begin(b"k", 2), Ok(Begin::Run(_))));
    }

    /// Whoever waited for a factory that has ended was taken to wait still, until it woke up.
    #[test]
    fn who_waited_for_what_has_ended_closes_no_circle() {
        let flights = Flights::default();
        let Ok(Begin::Run(first)) = flights.begin(b"a", 1) else { panic!("nobody runs it") };
        let _second = flights.begin(b"b", 2).unwrap();
        let _slow_to_wake = flights.begin(b"a", 2).unwrap();
        first.land(b"value");
        assert!(matches!(flights.begin(b"b", 1), Ok(Begin::Wait(_))));
    }

    #[test]
    fn circles_are_refused() {
        let flights = Flights::default();
        let _a = flights.begin(b"a", 1).unwrap();
        assert_eq!(flights.begin(b"a", 1).err(), Some(Deadlock::Recursive));
        let _b = flights.begin(b"b", 2).unwrap();
        let _c = flights.begin(b"c", 3).unwrap();
        let one = flights.begin(b"b", 1).unwrap();
        let _two = flights.begin(b"c", 2).unwrap();
        assert_eq!(flights.begin(b"a", 3).err(), Some(Deadlock::Circular));
        drop(one);
        assert!(flights.begin(b"a", 3).is_ok());
    }
}
