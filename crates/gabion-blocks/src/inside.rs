//! Whether this thread is inside gabion's own books.
//!
//! gabion may stand under a program's `malloc`. Then a `Vec` of ours that grows while one of our locks is held would
//! come back to us for its memory, and wait for that lock for ever. So code that takes memory from `malloc` with a lock
//! of the pool held says so here first, and an allocator that is built on gabion serves such requests from the system.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;

thread_local! {
    /// How many [`Inside`]s this thread has. Without a destructor, so that it works until the thread's last
    /// instruction.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// This thread is inside, for as long as the value lives.
#[derive(Debug)]
#[must_use]
pub struct Inside {
    /// Bound to its thread.
    _thread: PhantomData<*const ()>,
}

/// Goes inside. May be nested.
#[inline]
pub fn enter() -> Inside {
    DEPTH.with(|depth| depth.set(depth.get() + 1));
    Inside { _thread: PhantomData }
}

/// True while an [`Inside`] of this thread lives.
#[inline]
pub fn is_inside() -> bool {
    DEPTH.with(Cell::get) > 0
}

/// A number that no other thread has while this one lives.
pub(crate) fn this_thread() -> usize {
    DEPTH.with(|depth| ptr::from_ref(depth).addr())
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        DEPTH.with(|depth| depth.set(depth.get() - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_inside_until_the_last_one_is_gone() {
        assert!(!is_inside());
        let (outer, inner) = (enter(), enter());
        assert!(is_inside());
        std::thread::scope(|scope| scope.spawn(|| assert!(!is_inside())).join().unwrap());
        drop(outer);
        assert!(is_inside());
        drop(inner);
        assert!(!is_inside());
    }
}
