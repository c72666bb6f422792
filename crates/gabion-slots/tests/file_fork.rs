//! A fork of a program with a file of blocks open, whose memory is served by slots only since.
#![cfg(unix)]

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use gabion_blocks::file::{BlockFile, FileOptions};
use gabion_slots::{Backing, Global};

#[global_allocator]
static ALLOCATOR: Global = Global::new();

/// What is done about the file came last, with the locks of all slots held, and asked them for memory.
#[test]
fn a_fork_asks_no_slots_for_memory() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture", "process_forks"]).env("GABION_ALLOCATOR", "system");
    assert!(command.status().unwrap().success());
}

#[test]
#[ignore = "of a process of its own"]
fn process_forks() {
    // SAFETY: a process that waits for something for ever is ended.
    unsafe { libc::alarm(120) };
    let path = std::env::temp_dir().join(format!("gabion-slots-{}-fork", std::process::id()));
    let options = FileOptions { shards: 1, create: true, read_only: false, disk: None };
    let file = BlockFile::open(&path, &options).unwrap();
    std::fs::remove_file(&path).unwrap();
    let served = AtomicBool::new(false);
    thread::scope(|scope| {
        // Its first request of slots is made within the fork.
        scope.spawn(|| {
            while !served.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            // SAFETY: the child leaves at once.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) };
            }
            let mut status = 0;
            // SAFETY: waits for the child above.
            assert_eq!((unsafe { libc::waitpid(child, &raw mut status, 0) }, status), (child, 0));
        });
        Global::switch(Backing::Slots);
        served.store(true, Ordering::Release);
    });
    drop(file);
}
