//! One factory for each key: a caller that comes while it runs waits for its value.

use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use foldhash::quality::RandomState;
use gabion_blocks::os::{AcrossFork, AtFork};

use crate::lease::Lease;

/// Why a caller of [`Table::get_or_put`](crate::Table::get_or_put) is not let wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deadlock {
    /// The factory asks for the key that it is to make.
    Recursive,
    /// The factory of the key waits, perhaps through others and in other caches, for one that this caller runs.
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
    /// [`FORKS`] when it began.
    forks: u64,
    /// That of its key, once it was taken.
    lease: OnceLock<Weak<Lease>>,
    /// The callers that came to wait for it, whether or not they still do.
    waiters: Mutex<Vec<Runner>>,
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

type Flying = HashMap<Arc<[u8]>, Arc<Flight>, RandomState>;

/// The factories of a cache that run now, by their keys.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    /// In parts, so that misses of different keys seldom meet.
    parts: [Mutex<Flying>; PARTS],
    hasher: RandomState,
}

const PARTS: usize = 16;

/// Which flight a runner waits for, in all caches of the process: a circle may go through several. Looked at only by
/// threads that wait, and by those that were waited for; taken after a cache's own lock.
static WAITING: Mutex<Option<Waits>> = Mutex::new(None);

type Waits = HashMap<Runner, Arc<Flight>, RandomState>;

thread_local! {
    /// The lock of [`WAITING`], which a forking thread holds so that its child finds it free.
    static HELD: AcrossFork<MutexGuard<'static, Option<Waits>>> = const { AcrossFork::new() };
}

/// Forks that led to this process. A flight that began before the last of them is that of a thread which is not here,
/// unless it is the one that forked.
static FORKS: AtomicU64 = AtomicU64::new(0);

static AT_FORK: AtFork = AtFork::new(before_fork, in_parent, in_child);

extern "C" fn before_fork() {
    AT_FORK.note_call();
    AcrossFork::keep(&HELD, || lock(&WAITING));
}

extern "C" fn in_parent() {
    drop(AcrossFork::let_go(&HELD));
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed); // Relaxed: the child has one thread.
    // Of those who waited nobody is here. What they held is not let go of: that may take locks of threads that are not.
    if let Some(mut held) = AcrossFork::let_go(&HELD) {
        std::mem::forget(held.take());
    }
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

/// Notes that a runner waits for a flight.
///
/// # Errors
/// [`Deadlock::Circular`] when the flight's runner waits for something that `runner` runs.
fn wait_for(flight: &Arc<Flight>, runner: Runner) -> Result<(), Deadlock> {
    let mut waiting = lock(&WAITING);
    let waiting = waiting.get_or_insert_default();
    let mut next = flight;
    // What is noted is free of circles, so this ends.
    while let Some(further) = waiting.get(&next.runner) {
        if further.runner == runner {
            return Err(Deadlock::Circular);
        }
        next = further;
    }
    waiting.insert(runner, Arc::clone(flight));
    lock(&flight.waiters).push(runner);
    Ok(())
}

/// Notes that a runner waits for a flight no more, if it did.
fn wait_no_more(flight: &Flight, runners: &[Runner]) {
    let mut waiting = lock(&WAITING);
    let Some(waiting) = &mut *waiting else { return };
    for runner in runners {
        if waiting.get(runner).is_some_and(|other| other.number == flight.number) {
            waiting.remove(runner);
        }
    }
}

impl Flights {
    /// The part that a key belongs to.
    fn part(&self, key: &[u8]) -> MutexGuard<'_, Flying> {
        lock(&self.parts[self.hasher.hash_one(key) as usize % PARTS])
    }

    /// Begins to make the value of a key, or to wait for it.
    ///
    /// # Errors
    /// [`Deadlock`] when waiting would never end.
    pub fn begin(&self, key: &[u8], runner: Runner) -> Result<Begin<'_>, Deadlock> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        AT_FORK.watch();
        let forks = FORKS.load(Ordering::Relaxed); // Relaxed: it changes only while there is one thread.
        let mut flying = self.part(key);
        // Nobody waits for what is out of date, not even in a circle; nor, in a forked child, for a thread that only
        // its parent has.
        let is_left_behind = |flight: &Flight| flight.forks != forks && flight.runner != runner;
        if flying.get(key).is_some_and(|flight| is_left_behind(flight) || flight.is_outdated()) {
            flying.remove(key);
        }
        if let Some((key, flight)) = flying.get_key_value(key) {
            if flight.runner == runner {
                return Err(Deadlock::Recursive);
            }
            wait_for(flight, runner)?;
            let (key, flight) = (Arc::clone(key), Arc::clone(flight));
            return Ok(Begin::Wait(Waiting { flights: self, key, flight, runner }));
        }
        // Relaxed: only that no two are the same.
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let (lease, waiters, landed, bell) = (OnceLock::new(), Mutex::default(), Mutex::default(), Condvar::new());
        let flight = Arc::new(Flight { runner, number, forks, lease, waiters, landed, bell });
        let key: Arc<[u8]> = key.into();
        flying.insert(Arc::clone(&key), Arc::clone(&flight));
        Ok(Begin::Run(Ticket { flights: self, key, flight: Some(flight) }))
    }

    /// Takes a flight off the list, if it is still there.
    fn forget(&self, key: &[u8], flight: &Flight) -> MutexGuard<'_, Flying> {
        let mut flying = self.part(key);
        if flying.get(key).is_some_and(|other| other.number == flight.number) {
            flying.remove(key);
        }
        flying
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
        let flying = self.flights.forget(&self.key, &flight);
        // Each caller that waits has a copy, made under this lock; from now on there are no more.
        if Arc::strong_count(&flight) == 1 {
            return;
        }
        drop(flying);
        // A caller that waited for it waits no more, though it may take a while to wake up.
        let waiters = std::mem::take(&mut *lock(&flight.waiters));
        wait_no_more(&flight, &waiters);
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
        wait_no_more(&self.flight, &[self.runner]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Runners of no other test.
    fn runners<const N: usize>() -> [Runner; N] {
        static NEXT: AtomicU64 = AtomicU64::new(1 << 32);
        std::array::from_fn(|_| NEXT.fetch_add(1, Ordering::Relaxed))
    }

    #[test]
    fn one_runs_and_the_others_get_its_value() {
        let (flights, barrier, [one, other]) = (Flights::default(), Barrier::new(2), runners());
        std::thread::scope(|scope| {
            let Ok(Begin::Run(ticket)) = flights.begin(b"k", one) else { panic!("nobody runs it") };
            let waiter = scope.spawn(|| {
                let Ok(Begin::Wait(waiting)) = flights.begin(b"k", other) else { panic!("it is running") };
                barrier.wait();
                waiting.wait()
            });
            barrier.wait();
            ticket.land(b"value");
            assert_eq!(waiter.join().unwrap().as_deref(), Some(&b"value"[..]));
        });
        assert!(matches!(flights.begin(b"k", other), Ok(Begin::Run(_))));
    }

    #[test]
    fn who_fails_lets_the_next_try() {
        let (flights, [one, other]) = (Flights::default(), runners());
        let ticket = flights.begin(b"k", one).unwrap();
        let Begin::Wait(waiting) = flights.begin(b"k", other).unwrap() else { panic!("it is running") };
        drop(ticket);
        assert_eq!(waiting.wait(), None);
        assert!(matches!(flights.begin(b"k", other), Ok(Begin::Run(_))));
    }

    /// A thread that waited for a factory that has ended was taken to wait still, until it woke up.
    #[test]
    fn who_waited_for_what_has_ended_closes_no_circle() {
        let (flights, [one, other]) = (Flights::default(), runners());
        let Ok(Begin::Run(first)) = flights.begin(b"a", one) else { panic!("nobody runs it") };
        let _second = flights.begin(b"b", other).unwrap();
        let _slow_to_wake = flights.begin(b"a", other).unwrap();
        first.land(b"value");
        assert!(matches!(flights.begin(b"b", one), Ok(Begin::Wait(_))));
    }

    #[test]
    fn circles_are_refused() {
        let (flights, [one, two, three]) = (Flights::default(), runners());
        let _a = flights.begin(b"a", one).unwrap();
        assert_eq!(flights.begin(b"a", one).err(), Some(Deadlock::Recursive));
        let _b = flights.begin(b"b", two).unwrap();
        let _c = flights.begin(b"c", three).unwrap();
        let first = flights.begin(b"b", one).unwrap();
        let _second = flights.begin(b"c", two).unwrap();
        assert_eq!(flights.begin(b"a", three).err(), Some(Deadlock::Circular));
        drop(first);
        assert!(flights.begin(b"a", three).is_ok());
    }

    /// Each cache knew of its own factories only, and both waited for ever.
    #[test]
    fn a_circle_through_two_caches_is_refused() {
        let (here, there, [one, other]) = (Flights::default(), Flights::default(), runners());
        let _mine = here.begin(b"k", one).unwrap();
        let _theirs = there.begin(b"k", other).unwrap();
        let waits = there.begin(b"k", one).unwrap();
        assert_eq!(here.begin(b"k", other).err(), Some(Deadlock::Circular));
        drop(waits);
        assert!(matches!(here.begin(b"k", other), Ok(Begin::Wait(_))));
    }

    /// The child of a fork that came while another thread looked for circles would have waited for ever.
    #[test]
    fn a_fork_holds_the_lock_of_who_waits() {
        before_fork();
        before_fork();
        let is_held = || std::thread::spawn(|| WAITING.try_lock().is_err()).join().unwrap();
        assert!(is_held());
        in_parent();
        // Other tests take it, too, each for a moment.
        assert!((0..1_000_000).any(|_| !is_held()));
    }

    #[test]
    fn nobody_is_noted_as_waiting_in_the_end() {
        let (flights, [one, two, three]) = (Flights::default(), runners());
        let Ok(Begin::Run(ticket)) = flights.begin(b"k", one) else { panic!("nobody runs it") };
        let (left, _stays) = (flights.begin(b"k", two).unwrap(), flights.begin(b"k", three).unwrap());
        drop(left);
        ticket.land(b"value");
        let waiting = lock(&WAITING);
        assert!([two, three].iter().all(|runner| !waiting.as_ref().unwrap().contains_key(runner)));
    }
}
