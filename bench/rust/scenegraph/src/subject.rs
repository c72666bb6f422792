//! What is measured: something that hands out memory, and something to do with it.

use std::alloc::Layout;
use std::ptr::NonNull;

use crate::Outcome;
use crate::report::Report;

/// What an object is for; gabion keeps kinds apart, the others do not ask.
#[derive(Clone, Copy)]
pub enum Kind {
    /// Nodes of the scene, and their lists of children.
    Nodes,
    /// Arrays that nodes refer to.
    Data,
    /// Anything else.
    Objects,
}

/// An allocator, called directly: each task is compiled for each subject.
///
/// # Safety
/// `alloc` returns memory of at least `layout.size()` bytes with that alignment, which nobody else uses until it is
/// given to `free`.
pub unsafe trait Subject {
    /// Name and version, as a benchmark's rows show it.
    fn label() -> String;

    /// Memory with undefined content; ends the process when there is none.
    fn alloc(&self, kind: Kind, layout: Layout) -> NonNull<u8>;

    /// Takes memory back, from any thread of a subject that is `Sync`.
    ///
    /// # Safety
    /// `memory` came from `alloc` with this kind and layout, was not freed since, and nobody uses it any more.
    unsafe fn free(&self, kind: Kind, memory: NonNull<u8>, layout: Layout);

    /// Called when everything was freed, for a subject whose `free` does nothing.
    fn all_is_free(&mut self) {}

    /// Gives what is idle back to the system, as far as the subject can.
    fn trim(&mut self);

    /// Panics when the subject finds that something is still alive, or that its books are wrong.
    fn check_empty(&self) {}
}

/// Something to do on one thread.
pub trait Task {
    /// Does it; panics on a wrong answer.
    fn run<S: Subject>(self, subject: &mut S) -> Outcome<Report>;
}

/// Something to do on several threads.
pub trait ThreadTask {
    /// Does it; panics on a wrong answer.
    fn run<S: Subject + Sync>(self, subject: &mut S) -> Outcome<Report>;
}

/// A task for one thread, on a subject that can serve many.
pub struct OneOfMany<T: Task>(pub T);

impl<T: Task> ThreadTask for OneOfMany<T> {
    fn run<S: Subject + Sync>(self, subject: &mut S) -> Outcome<Report> {
        self.0.run(subject)
    }
}
