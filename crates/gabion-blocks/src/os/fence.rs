//! Asymmetric fences: nearly free where they are passed often, dear where they are passed seldom.

#[cfg(all(target_os = "linux", not(miri)))]
mod membarrier {
    use std::io::Write;
    use std::sync::atomic::{AtomicU8, Ordering};

    /// Commands of `membarrier(2)`, from `linux/membarrier.h`.
    const GLOBAL: libc::c_int = 1;
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    const UNKNOWN: u8 = 0;
    const ABLE: u8 = 1;
    const UNABLE: u8 = 2;
    static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

    fn call(command: libc::c_int) -> bool {
        // SAFETY: touches no memory of ours; unknown commands are refused.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    pub fn can_fence_heavily() -> bool {
        // Relaxed: a thread that finds it unknown asks the system once more, and gets the same answer.
        match STATE.load(Ordering::Relaxed) {
            UNKNOWN => {
                let able = call(REGISTER_PRIVATE_EXPEDITED) && call(PRIVATE_EXPEDITED);
                STATE.store(if able { ABLE } else { UNABLE }, Ordering::Relaxed);
                able
            }
            state => state == ABLE,
        }
    }

    pub fn heavy_fence() {
        // A child of a fork may have to say again that it means to. The slow command needs no such word.
        let done =
            call(PRIVATE_EXPEDITED) || call(REGISTER_PRIVATE_EXPEDITED) && call(PRIVATE_EXPEDITED) || call(GLOBAL);
        if !done {
            // It worked before, so a filter of system calls was set up since. To go on would be to break a lock.
            let why = "gabion: the system has stopped to allow membarrier(2), which locks of this process rely on";
            let _ = writeln!(std::io::stderr(), "{why}");
            std::process::abort();
        }
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
pub(super) use membarrier::{can_fence_heavily, heavy_fence};

#[cfg(not(all(target_os = "linux", not(miri))))]
pub(super) fn can_fence_heavily() -> bool {
    false
}

#[cfg(not(all(target_os = "linux", not(miri))))]
pub(super) fn heavy_fence() {
    unreachable!("there is none here, and nobody was told otherwise");
}
