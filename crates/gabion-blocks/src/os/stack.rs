//! What a thread's stack holds that the thread is not in any more.
//!
//! A stack keeps each page that it was ever deep in as long as its thread lives: after one call that went deep, in each
//! of a service's threads. Nothing below the frame of a running function is anybody's, so those pages can go back.

#[cfg(all(target_os = "linux", not(miri)))]
pub(super) use linux::give_back;

#[cfg(not(all(target_os = "linux", not(miri))))]
pub(super) fn give_back() {}

#[cfg(all(target_os = "linux", not(miri)))]
mod linux {
    use std::ffi::c_void;
    use std::mem::MaybeUninit;
    use std::ops::Range;
    use std::ptr;

    /// Stays below the frame of the caller: what is called next needs some, and what is called here.
    const KEPT: usize = 16 << 10;

    /// Stacks begin and end at multiples of it, on any processor.
    const LARGEST_PAGE: usize = 64 << 10;

    /// See [`super::super::calls::give_back_stack`].
    pub fn give_back() {
        let Some(stack) = own_stack() else { return };
        let here = ptr::from_ref(&stack).addr();
        // A program may switch stacks of its own making beneath a thread.
        if !stack.contains(&here) {
            return;
        }
        let lowest = stack.start.next_multiple_of(LARGEST_PAGE);
        let Some(length) = here.checked_sub(lowest + KEPT).map(|length| length & !(LARGEST_PAGE - 1)) else { return };
        // SAFETY: of this thread's own stack, what lies below the frames of all functions that run, with room to spare
        // for the frame of this call and for a signal's: those are written after the pages went. Content there is
        // nobody's; it reads as zero when it is used again. A refusal, of pages that are locked, changes nothing.
        unsafe { libc::madvise(ptr::with_exposed_provenance_mut::<c_void>(lowest), length, libc::MADV_DONTNEED) };
    }

    /// Where the stack of this thread lies; `None` of the main thread, whose stack has no end that is known, and where
    /// the system does not tell.
    fn own_stack() -> Option<Range<usize>> {
        // SAFETY: both take nothing and only tell.
        let is_main = unsafe { libc::syscall(libc::SYS_gettid) == libc::c_long::from(libc::getpid()) };
        if is_main {
            return None;
        }
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let (mut lowest, mut length) = (ptr::null_mut(), 0);
        // SAFETY: the attributes of the running thread, which are destroyed when they were filled in; where they were
        // not, nothing reads them.
        let told = unsafe {
            if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
                return None;
            }
            let told = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut lowest, &raw mut length);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            told
        };
        (told == 0).then(|| lowest.addr()..lowest.addr() + length)
    }

    #[cfg(test)]
    mod tests {
        use std::hint::black_box;

        use super::*;

        /// Bytes of the thread's stack that are resident.
        fn resident() -> usize {
            let stack = own_stack().expect("a thread that is not the main one");
            let page = 4096;
            let first = stack.start.next_multiple_of(page);
            let mut pages = vec![0_u8; (stack.end - first) / page];
            let (at, length) = (ptr::with_exposed_provenance_mut::<c_void>(first), pages.len() * page);
            // SAFETY: whole pages of this thread's stack, and a byte for each, if they have 4 KiB or more.
            let told = unsafe { libc::mincore(at, length, pages.as_mut_ptr()) };
            assert_eq!(told, 0);
            pages.iter().filter(|&&page| page & 1 != 0).count() * page
        }

        #[inline(never)]
        #[expect(clippy::large_stack_arrays, reason = "that is what it is for")]
        fn go_deep() -> u8 {
            let deep = black_box([1_u8; 700 << 10]);
            deep[black_box(5)]
        }

        #[test]
        fn a_thread_that_was_deep_in_its_stack_gives_it_back() {
            let work = || {
                let before = resident();
                assert_eq!(go_deep(), 1);
                let deep = resident();
                assert!(deep > before + (600 << 10), "{before} {deep}");
                let mine = black_box([7_u8; 4096]);
                give_back();
                let after = resident();
                assert!(after < before + (200 << 10), "{before} {deep} {after}");
                // What is in use stays, and so does what is used anew.
                assert!(mine.iter().all(|&byte| byte == 7) && go_deep() == 1);
            };
            std::thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap().join().unwrap();
        }

        #[test]
        fn a_stack_that_ends_just_below_is_left_as_it_is() {
            let work = || {
                let before = resident();
                give_back();
                assert!(resident() >= before);
            };
            std::thread::Builder::new().stack_size(16 << 10).spawn(work).unwrap().join().unwrap();
        }
    }
}
