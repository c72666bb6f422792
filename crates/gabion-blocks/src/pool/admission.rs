//! Waiting for room: in order of arrival, without a lost wake-up, and without a lock held.
//!
//! A thread that waits may be led to wait once more, by what it does while it is asked whether to go on. It goes before
//! its own earlier wait, which does not go on until then.
//!
//! A thread that waits says so first and looks for room afterwards; one that makes room makes it first and looks for
//! waiters afterwards. With a sequentially consistent fence between the two steps on both sides, at least one sees the
//! other (after Dekker). `tests/loom.rs` tries every interleaving.

use std::time::Duration;

use crate::sync::{AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, fence, lock};

/// The waiting room of a pool.
#[derive(Debug)]
pub(crate) struct Admission {
    /// How many wait: those in the queue, and those that the system refused memory.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug)]
struct Queue {
    /// Rises with every return while somebody waits.
    events: u64,
    next_ticket: u64,
    /// Tickets of those who wait, in the order in which they are served.
    tickets: Vec<Ticket>,
    /// How many forks led to this process. A thread that began to wait before the last of them is not counted here.
    forks: u64,
}

#[derive(Debug, Clone, Copy)]
struct Ticket {
    number: u64,
    /// Whose it is.
    thread: usize,
}

/// What a place in the queue takes.
pub(crate) const TICKET_BYTES: usize = size_of::<Ticket>();

impl Admission {
    pub fn new() -> Self {
        let queue = Queue { events: 0, next_ticket: 0, tickets: Vec::new(), forks: 0 };
        Self { waiting: AtomicUsize::new(0), queue: Mutex::new(queue), changed: Condvar::new() }
    }

    /// True when somebody waits, as far as this thread can see.
    #[inline]
    pub fn anyone(&self) -> bool {
        // Relaxed: a guess; who must be sure calls `room_made`.
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Wakes who waits. To be called after room was made.
    #[inline]
    pub fn room_made(&self) {
        // SeqCst: see the head of this file.
        fence(Ordering::SeqCst);
        if self.anyone() {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        lock(&self.queue).events += 1;
        self.changed.notify_all();
    }

    /// Begins to wait, at the end of the queue; if `thread` waits already, before that. `None` when there is no memory
    /// to be noted there.
    pub fn queue_up(&self, thread: usize) -> Option<Waiter<'_>> {
        let (ticket, forks) = {
            let mut queue = lock(&self.queue);
            queue.tickets.try_reserve(1).ok()?;
            queue.next_ticket += 1;
            let number = queue.next_ticket;
            let own = queue.tickets.iter().position(|ticket| ticket.thread == thread);
            let place = own.unwrap_or(queue.tickets.len());
            queue.tickets.insert(place, Ticket { number, thread });
            (number, queue.forks)
        };
        Some(self.begin(Some(ticket), forks))
    }

    /// Begins to wait beside the queue, for memory that the system refused.
    pub fn stand_by(&self) -> Waiter<'_> {
        let forks = lock(&self.queue).forks;
        self.begin(None, forks)
    }

    fn begin(&self, ticket: Option<u64>, forks: u64) -> Waiter<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // SeqCst: see the head of this file.
        fence(Ordering::SeqCst);
        Waiter { admission: self, ticket, forks }
    }

    /// For the child of a fork, where those who waited are gone, except for the thread that forked while it was asked
    /// whether to go on.
    pub fn forget_all(&self) {
        let mut queue = lock(&self.queue);
        queue.tickets.clear();
        queue.forks += 1;
        self.waiting.store(0, Ordering::Relaxed);
    }

    /// For a fork: keeps the lock.
    pub fn hold(&self) -> QueueGuard<'_> {
        QueueGuard { _guard: lock(&self.queue) }
    }
}

/// The held lock of a waiting room.
pub(crate) struct QueueGuard<'a> {
    _guard: MutexGuard<'a, Queue>,
}

/// Somebody who waits, for as long as the value lives.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    admission: &'a Admission,
    ticket: Option<u64>,
    forks: u64,
}

impl Waiter<'_> {
    /// What has happened so far, and whether it is this one's turn. To be asked before looking for room.
    pub fn look(&self) -> (u64, bool) {
        let queue = lock(&self.admission.queue);
        let alone = self.ticket.is_none() || self.forks != queue.forks;
        (queue.events, alone || queue.tickets.first().map(|ticket| ticket.number) == self.ticket)
    }

    /// Sleeps until something has happened since `seen`, or for `most`.
    pub fn sleep(&self, seen: u64, most: Duration) {
        let queue = lock(&self.admission.queue);
        if queue.events == seen {
            // A wake-up without a reason only costs another look.
            drop(self.admission.changed.wait_timeout(queue, most));
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut queue = lock(&self.admission.queue);
        if self.forks != queue.forks {
            return;
        }
        self.admission.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Some(ticket) = self.ticket {
            queue.tickets.retain(|other| other.number != ticket);
            // It may be the next one's turn now.
            queue.events += 1;
            drop(queue);
            self.admission.changed.notify_all();
        }
    }
}
