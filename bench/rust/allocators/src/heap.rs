//! Allocators with the interface of C's `malloc`.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::region::{Fresh, Region};
use crate::source::Source;

/// A `malloc` and its `free`.
///
/// # Safety
/// - `take` returns null, or memory of at least `bytes` bytes that nobody else uses until it is given to `give`.
/// - `give` accepts, from any thread, what `take` has returned.
pub unsafe trait CHeap: Send + Sync + 'static {
    /// Name and version, as a benchmark's rows show it.
    fn label() -> String;
    /// `malloc`.
    fn take(bytes: usize) -> *mut c_void;
    /// `free`.
    ///
    /// # Safety
    /// `memory` came from `take`, was not given back, and nobody uses it any more.
    unsafe fn give(memory: *mut c_void);
    /// The allocator's own call that gives idle memory back to the system.
    fn trim();
}

/// Memory of a [`CHeap`].
pub struct Piece<H: CHeap> {
    start: NonNull<u8>,
    bytes: usize,
    heap: PhantomData<H>,
}

impl<H: CHeap> Piece<H> {
    /// Takes memory.
    ///
    /// # Panics
    /// When there is none.
    #[inline]
    pub fn take(bytes: usize) -> Self {
        let start = NonNull::new(H::take(bytes).cast()).expect("the allocator has memory");
        Self { start, bytes, heap: PhantomData }
    }

    /// How many bytes were asked for.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

// SAFETY: a piece is the only owner of memory that `CHeap` says may be given back from any thread.
unsafe impl<H: CHeap> Send for Piece<H> {}

// SAFETY: `CHeap::take` gave `bytes` bytes at `start` that are nobody else's until `drop`; both fields are never
// changed.
unsafe impl<H: CHeap> Region for Piece<H> {
    #[inline]
    fn part(&self, index: usize) -> Option<(NonNull<u8>, usize)> {
        (index == 0).then_some((self.start, self.bytes))
    }
}

impl<H: CHeap> Drop for Piece<H> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `start` came from `take`, and a piece is dropped once, when nobody borrows it.
        unsafe { H::give(self.start.as_ptr().cast()) }
    }
}

impl<H: CHeap> Source for H {
    type Memory = Piece<H>;

    #[inline]
    fn rent(&self, _lane: usize, bytes: usize) -> Fresh<Piece<H>> {
        Fresh(Piece::take(bytes))
    }

    fn give_back_idle(&self) {
        H::trim();
    }
}

/// The system's `malloc`.
pub struct Malloc;

// SAFETY: this is what the C standard says of `malloc` and `free`.
unsafe impl CHeap for Malloc {
    fn label() -> String {
        // SAFETY: the function has no precondition and returns a string that lives as long as the process.
        let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        format!("malloc glibc {}", version.to_string_lossy())
    }

    #[inline]
    fn take(bytes: usize) -> *mut c_void {
        // SAFETY: `malloc` may be called with any size.
        unsafe { libc::malloc(bytes) }
    }

    #[inline]
    unsafe fn give(memory: *mut c_void) {
        // SAFETY: the caller says that `memory` came from `malloc` and is free of users.
        unsafe { libc::free(memory) }
    }

    fn trim() {
        // SAFETY: the call has no precondition.
        unsafe { libc::malloc_trim(0) };
    }
}

/// The system's `malloc` again, asked for huge pages where they fit: for buffers that are made once.
pub(crate) struct Huge;

const HUGE_BYTES: usize = 2 << 20;

// SAFETY: `aligned_alloc` is part of the same standard, and `free` takes back what it gave; advice changes no content.
unsafe impl CHeap for Huge {
    fn label() -> String {
        Malloc::label()
    }

    fn take(bytes: usize) -> *mut c_void {
        if bytes < HUGE_BYTES {
            return Malloc::take(bytes);
        }
        // SAFETY: the alignment is a power of two, and `madvise` is given memory that is ours, in whole huge pages;
        // where it is refused, pages are small.
        unsafe {
            let memory = libc::aligned_alloc(HUGE_BYTES, bytes.next_multiple_of(HUGE_BYTES));
            if !memory.is_null() {
                libc::madvise(memory, bytes / HUGE_BYTES * HUGE_BYTES, libc::MADV_HUGEPAGE);
            }
            memory
        }
    }

    unsafe fn give(memory: *mut c_void) {
        // SAFETY: the caller says that `memory` came from `take`, so from `malloc` or `aligned_alloc`.
        unsafe { Malloc::give(memory) }
    }

    fn trim() {
        Malloc::trim();
    }
}

#[cfg(feature = "peers")]
pub use peers::{Jemalloc, Mimalloc};

#[cfg(feature = "peers")]
mod peers {
    use std::ffi::{CStr, c_char, c_int, c_void};
    use std::ptr;

    use super::CHeap;

    unsafe extern "C" {
        // The crate binds these only with its larger interface.
        fn mi_version() -> c_int;
        fn mi_collect(force: bool);
    }

    /// mimalloc, as it comes.
    pub struct Mimalloc;

    // SAFETY: mimalloc's manual promises for both what the C standard says of `malloc` and `free`.
    unsafe impl CHeap for Mimalloc {
        fn label() -> String {
            // SAFETY: the function has no precondition.
            let version = unsafe { mi_version() };
            // Older versions give each part one digit, newer ones give the last two parts two.
            let base = if version >= 10_000 { 100 } else { 10 };
            format!("mimalloc {}.{}.{}", version / base / base, version / base % base, version % base)
        }

        #[inline]
        fn take(bytes: usize) -> *mut c_void {
            // SAFETY: `mi_malloc` may be called with any size.
            unsafe { libmimalloc_sys::mi_malloc(bytes) }
        }

        #[inline]
        unsafe fn give(memory: *mut c_void) {
            // SAFETY: the caller says that `memory` came from `mi_malloc` and is free of users.
            unsafe { libmimalloc_sys::mi_free(memory) }
        }

        fn trim() {
            // SAFETY: the call has no precondition.
            unsafe { mi_collect(true) }
        }
    }

    /// jemalloc. By itself it gives memory back only when it is called; [`Jemalloc::in_background`] gives it the
    /// thread that its manual recommends, as a service would.
    pub struct Jemalloc;

    impl Jemalloc {
        /// jemalloc with its background thread, so that idle memory decays while nobody calls.
        ///
        /// # Panics
        /// When jemalloc refuses.
        pub fn in_background() -> Self {
            let mut on = true;
            // SAFETY: "background_thread" takes a C bool, which is Rust's; the old value is not asked for.
            let failed = unsafe {
                tikv_jemalloc_sys::mallctl(
                    c"background_thread".as_ptr(),
                    ptr::null_mut(),
                    ptr::null_mut(),
                    (&raw mut on).cast(),
                    size_of::<bool>(),
                )
            };
            assert_eq!(failed, 0, "jemalloc starts its background thread");
            Self
        }
    }

    // SAFETY: jemalloc's manual promises for both what the C standard says of `malloc` and `free`.
    unsafe impl CHeap for Jemalloc {
        fn label() -> String {
            let mut version: *const c_char = ptr::null();
            let mut bytes = size_of::<*const c_char>();
            // SAFETY: "version" writes one pointer to a string that lives as long as the process, and `bytes` says that
            // there is room for one.
            let failed = unsafe {
                tikv_jemalloc_sys::mallctl(
                    c"version".as_ptr(),
                    (&raw mut version).cast(),
                    &raw mut bytes,
                    ptr::null_mut(),
                    0,
                )
            };
            assert_eq!(failed, 0, "jemalloc knows its version");
            // SAFETY: as above, `version` is such a string now.
            let version = unsafe { CStr::from_ptr(version) }.to_string_lossy();
            format!("jemalloc {}", version.split('-').next().unwrap_or(&version))
        }

        #[inline]
        fn take(bytes: usize) -> *mut c_void {
            // SAFETY: `malloc` may be called with any size; the crate gives jemalloc's a prefix, so it is not the
            // system's.
            unsafe { tikv_jemalloc_sys::malloc(bytes) }
        }

        #[inline]
        unsafe fn give(memory: *mut c_void) {
            // SAFETY: the caller says that `memory` came from jemalloc's `malloc` and is free of users.
            unsafe { tikv_jemalloc_sys::free(memory) }
        }

        fn trim() {
            // 4096 stands for all arenas; the calling thread's cache has its own command.
            for command in [c"thread.tcache.flush", c"arena.4096.purge"] {
                // SAFETY: neither command takes or gives a value.
                let failed = unsafe {
                    tikv_jemalloc_sys::mallctl(command.as_ptr(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), 0)
                };
                assert_eq!(failed, 0, "jemalloc knows {command:?}");
            }
        }
    }
}
