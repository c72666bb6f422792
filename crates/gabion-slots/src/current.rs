//! What a thread used last: what every allocation and every free begins with.

use std::cell::Cell;
use std::ptr;

use crate::arena::Arena;

/// The `Slots` that a thread used last.
#[repr(C)]
pub(crate) struct Current {
    /// Their number, or 0.
    pub id: Cell<u64>,
    /// This thread's arena there.
    pub arena: Cell<*const Arena>,
    /// The arena's word: no page of any other arena has it.
    pub word: Cell<u64>,
}

/// The word of no arena.
pub(crate) const NO_WORD: u64 = u64::MAX;

impl Current {
    #[allow(dead_code, reason = "where assembler makes it")]
    const fn none() -> Self {
        Self { id: Cell::new(0), arena: Cell::new(ptr::null()), word: Cell::new(NO_WORD) }
    }
}

pub(crate) use place::with;

#[cfg(not(all(
    feature = "initial-exec",
    target_arch = "x86_64",
    target_os = "linux",
    target_env = "gnu",
    not(any(miri, portable))
)))]
mod place {
    use super::Current;

    thread_local! {
        /// Without a destructor: plain loads.
        static CURRENT: Current = const { Current::none() };
    }

    /// Looks at what this thread used last. Works to the thread's very end, thread-local destructors included.
    #[inline(always)]
    pub(crate) fn with<R>(act: impl FnOnce(&Current) -> R) -> R {
        CURRENT.with(act)
    }
}

/// The same by the way that the loader has for variables of libraries that a program begins with (Drepper, *ELF
/// Handling for Thread-Local Storage*, initial exec): two instructions. By the general way, the only one that the
/// compiler offers to a library, each allocation and each free would call a function, and keep all of its arguments
/// meanwhile. Libraries that are loaded later may use it too, as long as the C library has some bytes left that it
/// keeps for them; loading fails if not.
#[cfg(all(
    feature = "initial-exec",
    target_arch = "x86_64",
    target_os = "linux",
    target_env = "gnu",
    not(any(miri, portable))
))]
mod place {
    use std::arch::{asm, global_asm};
    use std::mem::offset_of;

    use super::{Current, NO_WORD};

    // The variable, as `Current::none` would make it; named by the version, so that two of them are two variables.
    global_asm!(
        concat!(".pushsection .tdata.\"gabion-slots ", env!("CARGO_PKG_VERSION"), "\", \"awT\", @progbits"),
        ".p2align 3",
        concat!(".globl \"gabion-slots ", env!("CARGO_PKG_VERSION"), "\""),
        concat!(".hidden \"gabion-slots ", env!("CARGO_PKG_VERSION"), "\""),
        concat!(".type \"gabion-slots ", env!("CARGO_PKG_VERSION"), "\", @object"),
        concat!(".size \"gabion-slots ", env!("CARGO_PKG_VERSION"), "\", 24"),
        concat!("\"gabion-slots ", env!("CARGO_PKG_VERSION"), "\":"),
        ".quad 0, 0, {no_word}",
        ".popsection",
        no_word = const NO_WORD.cast_signed(),
    );

    const _: () = assert!(size_of::<Current>() == 24 && offset_of!(Current, word) == 16);

    /// Looks at what this thread used last. Works to the thread's very end, thread-local destructors included.
    #[inline(always)]
    pub(crate) fn with<R>(act: impl FnOnce(&Current) -> R) -> R {
        let at: *const Current;
        // SAFETY: `fs:0` holds the thread's pointer, from which the variable has the distance that the loader has
        // written. Both are constant for the thread. Nothing else is touched but flags.
        unsafe {
            asm!(
                "mov {at}, qword ptr fs:[0]",
                concat!("add {at}, qword ptr [rip + \"gabion-slots ", env!("CARGO_PKG_VERSION"), "\"@GOTTPOFF]"),
                at = out(reg) at,
                options(pure, readonly, nostack),
            );
        }
        // SAFETY: the thread's own variable, of this layout, which lives as long as the thread and has cells only.
        act(unsafe { &*at })
    }
}
