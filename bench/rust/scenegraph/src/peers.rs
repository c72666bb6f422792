//! The peers, each through the calls that its own documentation recommends for a program that knows its sizes.

use std::alloc::Layout;
use std::ffi::c_void;
use std::ptr::NonNull;

use gabion_bench_allocators::CHeap;

use crate::subject::{Kind, Subject};

/// The alignment that every `malloc` gives without being asked.
const MALLOC_ALIGNMENT: usize = 8;

#[inline]
fn served(memory: *mut c_void, layout: Layout) -> NonNull<u8> {
    debug_assert!(layout.align() <= MALLOC_ALIGNMENT, "this benchmark asks for nothing larger");
    NonNull::new(memory.cast()).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
}

/// The system's `malloc`.
pub struct Malloc;

// SAFETY: this is what the C standard says of `malloc` and `free`.
unsafe impl Subject for Malloc {
    fn label() -> String {
        <gabion_bench_allocators::Malloc as CHeap>::label()
    }

    #[inline]
    fn alloc(&self, _kind: Kind, layout: Layout) -> NonNull<u8> {
        served(<gabion_bench_allocators::Malloc as CHeap>::take(layout.size()), layout)
    }

    #[inline]
    unsafe fn free(&self, _kind: Kind, memory: NonNull<u8>, _layout: Layout) {
        // SAFETY: the caller says that the memory came from `alloc`, so from `malloc`, and is free of users.
        unsafe { <gabion_bench_allocators::Malloc as CHeap>::give(memory.as_ptr().cast()) }
    }

    fn trim(&mut self) {
        <gabion_bench_allocators::Malloc as CHeap>::trim();
    }
}

#[cfg(any(feature = "mimalloc2", feature = "mimalloc3"))]
pub use mimalloc::Mimalloc;

#[cfg(any(feature = "mimalloc2", feature = "mimalloc3"))]
mod mimalloc {
    use std::ffi::c_int;

    use super::{Kind, Layout, NonNull, Subject, served};

    unsafe extern "C" {
        // The crate binds these only with its larger interface, and that for one version.
        fn mi_version() -> c_int;
        fn mi_collect(force: bool);
    }

    /// mimalloc, of the version that was built in.
    pub struct Mimalloc;

    // SAFETY: mimalloc's manual promises for both what the C standard says of `malloc` and `free`.
    unsafe impl Subject for Mimalloc {
        fn label() -> String {
            // SAFETY: the function has no precondition.
            let version = unsafe { mi_version() };
            format!("mimalloc {}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
        }

        #[inline]
        fn alloc(&self, _kind: Kind, layout: Layout) -> NonNull<u8> {
            // SAFETY: `mi_malloc` may be called with any size.
            served(unsafe { libmimalloc_sys::mi_malloc(layout.size()) }, layout)
        }

        #[inline]
        unsafe fn free(&self, _kind: Kind, memory: NonNull<u8>, _layout: Layout) {
            // SAFETY: the caller says that the memory came from `alloc`, so from `mi_malloc`, and is free of users.
            unsafe { libmimalloc_sys::mi_free(memory.as_ptr().cast()) }
        }

        fn trim(&mut self) {
            // SAFETY: the call has no precondition.
            unsafe { mi_collect(true) }
        }
    }
}

#[cfg(feature = "jemalloc")]
pub use jemalloc::Jemalloc;

#[cfg(feature = "jemalloc")]
mod jemalloc {
    use std::ffi::{CStr, c_char};
    use std::ptr;

    use super::{Kind, Layout, NonNull, Subject, served};

    /// jemalloc.
    pub struct Jemalloc;

    // SAFETY: jemalloc's manual promises for `malloc` and `sdallocx` what the C standard says of `malloc` and `free`.
    unsafe impl Subject for Jemalloc {
        fn label() -> String {
            let mut version: *const c_char = ptr::null();
            let mut bytes = size_of::<*const c_char>();
            // SAFETY: "version" writes one pointer to a string that lives as long as the process, and `bytes` says that
            // there is room for one.
            let failed = unsafe {
                let name = c"version".as_ptr();
                tikv_jemalloc_sys::mallctl(name, (&raw mut version).cast(), &raw mut bytes, ptr::null_mut(), 0)
            };
            assert_eq!(failed, 0, "jemalloc knows its version");
            // SAFETY: as above, `version` is such a string now.
            let version = unsafe { CStr::from_ptr(version) }.to_string_lossy();
            format!("jemalloc {}", version.split('-').next().unwrap_or(&version))
        }

        #[inline]
        fn alloc(&self, _kind: Kind, layout: Layout) -> NonNull<u8> {
            // SAFETY: `malloc` may be called with any size; the crate gives jemalloc's a prefix, so it is not the
            // system's.
            served(unsafe { tikv_jemalloc_sys::malloc(layout.size()) }, layout)
        }

        #[inline]
        unsafe fn free(&self, _kind: Kind, memory: NonNull<u8>, layout: Layout) {
            // SAFETY: the caller says that the memory came from `alloc`, so from `malloc` with this size and no flags,
            // and is free of users.
            unsafe { tikv_jemalloc_sys::sdallocx(memory.as_ptr().cast(), layout.size(), 0) }
        }

        fn trim(&mut self) {
            // 4096 stands for all arenas; the calling thread's cache has its own command.
            for command in [c"thread.tcache.flush", c"arena.4096.purge"] {
                // SAFETY: neither command takes or gives a value.
                let failed = unsafe {
                    let nothing = ptr::null_mut();
                    tikv_jemalloc_sys::mallctl(command.as_ptr(), nothing, ptr::null_mut(), ptr::null_mut(), 0)
                };
                assert_eq!(failed, 0, "jemalloc knows {command:?}");
            }
        }
    }
}

#[cfg(feature = "snmalloc")]
pub use snmalloc::Snmalloc;

#[cfg(feature = "snmalloc")]
mod snmalloc {
    use super::{Kind, Layout, NonNull, Subject, served};

    /// snmalloc, as its Rust crate offers it: sizes known at both ends.
    pub struct Snmalloc;

    // SAFETY: these are the calls of snmalloc's own `GlobalAlloc`, which promises the same.
    unsafe impl Subject for Snmalloc {
        fn label() -> String {
            format!("snmalloc {}", env!("GABION_SNMALLOC"))
        }

        #[inline]
        fn alloc(&self, _kind: Kind, layout: Layout) -> NonNull<u8> {
            // SAFETY: a layout's alignment is a power of two.
            served(unsafe { snmalloc_sys::sn_rust_alloc(layout.align(), layout.size()) }, layout)
        }

        #[inline]
        unsafe fn free(&self, _kind: Kind, memory: NonNull<u8>, layout: Layout) {
            // SAFETY: the caller says that the memory came from `alloc` with this layout and is free of users.
            unsafe { snmalloc_sys::sn_rust_dealloc(memory.as_ptr().cast(), layout.align(), layout.size()) };
        }

        /// The interface for Rust has no such call.
        fn trim(&mut self) {}
    }
}
