//! Forked children of a process that has a file of blocks open.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::thread;

use gabion_blocks::file::{BlockFile, FileOptions};
use gabion_blocks::{BlockSet, Pool};

/// What a child ended with: 0 when `act` came to its end.
fn forked(act: impl FnOnce()) -> i32 {
    // SAFETY: the child uses only what is made to work after a fork, and leaves without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a child that waits for something for ever is ended.
        unsafe { libc::alarm(60) };
        let ran = catch_unwind(AssertUnwindSafe(act));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(ran.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

static OPEN: OnceLock<(Arc<BlockFile>, BlockSet, u32)> = OnceLock::new();
static STATUS: OnceLock<i32> = OnceLock::new();

/// In a child: what it writes is its own.
fn write() {
    let (file, blocks, number) = OPEN.get().unwrap();
    assert!(file.is_parted() && !file.is_shared());
    blocks.block(*number).unwrap().word(9).store(2, Relaxed);
}

/// Forks when all other variables of its thread are gone.
struct ForksLate;

impl Drop for ForksLate {
    fn drop(&mut self) {
        STATUS.set(forked(write)).unwrap();
    }
}

/// There is no place then to keep the locks in. The fork ended the process.
#[test]
fn the_child_of_a_thread_that_ends_does_not_write_to_the_file_either() {
    thread_local!(static LATE: ForksLate = const { ForksLate });
    let path = std::env::temp_dir().join(format!("gabion-blocks-fork-{}", std::process::id()));
    let options = FileOptions { shards: 1, create: true, read_only: false, disk: None };
    let file = BlockFile::open(&path, &options).unwrap();
    std::fs::remove_file(&path).unwrap();
    let blocks = BlockSet::in_file(Pool::global(), Arc::clone(&file)).unwrap();
    let number = blocks.map().unwrap().0;
    blocks.block(number).unwrap().word(9).store(1, Relaxed);
    assert!(OPEN.set((file, blocks, number)).is_ok());
    let ending = thread::spawn(|| {
        LATE.with(|_| ());
        // From now on this thread has a place, which goes before the other variable.
        forked(write)
    });
    assert_eq!(ending.join().unwrap(), 0);
    assert_eq!(STATUS.get(), Some(&0));
    let (file, blocks, number) = OPEN.get().unwrap();
    assert!(file.is_shared() && blocks.block(*number).unwrap().word(9).load(Relaxed) == 1);
}
