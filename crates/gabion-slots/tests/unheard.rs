//! A wrong free that the checked build tells of, where the standard error stream takes nothing.
#![cfg(target_os = "linux")]

use std::alloc::Layout;
use std::fs::File;
use std::os::fd::AsRawFd;

use allocator_api2::alloc::Allocator;
use gabion_slots::{Affinity, Slots};

#[test]
fn what_nobody_can_be_told_is_no_panic() {
    let slots = Slots::new(gabion_blocks::Pool::global()).unwrap();
    let (nodes, layout) = (slots.within(Affinity::NODES), Layout::new::<[u64; 3]>());
    let at = nodes.allocate(layout).unwrap().cast();
    let full = File::options().write(true).open("/dev/full").unwrap();
    // SAFETY: the stream is this process's, and is as it was at the end. Allocated once and freed twice, which is
    // found.
    let freed = unsafe {
        let before = libc::dup(libc::STDERR_FILENO);
        assert!(before >= 0 && libc::dup2(full.as_raw_fd(), libc::STDERR_FILENO) >= 0);
        let freed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            nodes.deallocate(at, layout);
            nodes.deallocate(at, layout);
        }));
        assert!(libc::dup2(before, libc::STDERR_FILENO) >= 0 && libc::close(before) == 0);
        freed
    };
    assert!(freed.is_ok());
    slots.validate().unwrap();
}
