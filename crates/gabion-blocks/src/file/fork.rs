//! A forked child's stores stay its own.
//!
//! A shared mapping is shared with a child, too: what it wrote would go to the parent's file, beside the parent. So
//! each file is mapped anew in the child, as a copy that nobody else sees. The child's owner of it is to be closed.
//! What is open for reading only is each process's own from the beginning, and both may read on.

use std::path::Path;
use std::sync::{Arc, Weak};

use super::error::FileError;
use super::mapped::{BlockFile, FileOptions, State};
use crate::error::BlockError;
use crate::fallible::make_room;
use crate::inside;
use crate::os::{AcrossFork, AtFork};
use crate::sync::{Mutex, MutexGuard, lock, try_lock};

static FILES: Mutex<Vec<Weak<BlockFile>>> = Mutex::new(Vec::new());
static AT_FORK: AtFork = AtFork::new(before, in_parent, in_child);

/// A file and its lock. The lock is let go first.
struct LockedFile {
    state: MutexGuard<'static, State>,
    file: Arc<BlockFile>,
}

struct LockedAll {
    each: Vec<LockedFile>,
    _files: MutexGuard<'static, Vec<Weak<BlockFile>>>,
}

thread_local! {
    /// What the forking thread holds between the two sides of a fork.
    static HELD: AcrossFork<LockedAll> = const { AcrossFork::new() };
}

impl BlockFile {
    /// Opens a file, or makes it. No other process writes to it as long as this value lives.
    ///
    /// # Errors
    /// [`FileError`]; a file that was there is as it was.
    pub fn open(path: &Path, options: &FileOptions) -> Result<Arc<Self>, FileError> {
        let opened = Self::open_shared(path, options)?;
        watch(&opened)?;
        Ok(opened)
    }
}

/// Has a file parted from its parent's in all children from now on.
fn watch(file: &Arc<BlockFile>) -> Result<(), BlockError> {
    let _inside = inside::enter();
    AT_FORK.watch();
    let mut files = lock(&FILES);
    files.retain(|file| file.strong_count() > 0);
    make_room(&mut files, 1)?;
    files.push(Arc::downgrade(file));
    Ok(())
}

fn hold(file: Arc<BlockFile>) -> LockedFile {
    // SAFETY: the file outlives its lock, as both are kept together, and the lock is let go first.
    let state =
        unsafe { std::mem::transmute::<MutexGuard<'_, State>, MutexGuard<'static, State>>(file.lock_to_fork()) };
    file.note_fork();
    LockedFile { state, file }
}

extern "C" fn before() {
    AT_FORK.note_call();
    // An allocator that is built on gabion may have been told of forks later, and hold its locks by now.
    let _inside = inside::enter();
    AcrossFork::keep(&HELD, || {
        let files = lock(&FILES);
        let each = files.iter().filter_map(Weak::upgrade).map(hold).collect();
        LockedAll { each, _files: files }
    });
}

extern "C" fn in_parent() {
    let _inside = inside::enter();
    drop(AcrossFork::let_go(&HELD));
}

extern "C" fn in_child() {
    let _inside = inside::enter();
    let Some(held) = AcrossFork::let_go(&HELD) else { return part_without_locks() };
    for LockedFile { state, file } in &held.each {
        file.part(state);
    }
}

/// In the child of a thread that had no place for the locks. One that is taken now was taken by another thread of the
/// parent, and stays so.
fn part_without_locks() {
    let Some(files) = try_lock(&FILES) else { return };
    // Told twice, the child has parted them already.
    for file in files.iter().filter_map(Weak::upgrade).filter(|file| !file.is_parted()) {
        file.note_fork();
        match file.try_lock() {
            Some(state) => file.part(&state),
            // What is mapped cannot be known then: at least nothing more is taken in the parent's file.
            None => file.disown(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn is_held() -> bool {
        thread::spawn(|| FILES.try_lock().is_err()).join().unwrap()
    }

    /// The fork never came back: it waited for the lock that its own thread held.
    #[test]
    fn told_twice_is_held_once() {
        AT_FORK.watch();
        let (done, wait) = mpsc::channel();
        thread::spawn(move || {
            before();
            before();
            assert!(is_held());
            in_parent();
            in_parent();
            // Other tests take it, too, each for a moment.
            assert!((0..1_000_000).any(|_| !is_held()));
            done.send(()).unwrap();
        });
        wait.recv_timeout(Duration::from_secs(20)).expect("the fork comes back");
    }

    /// Forks when all other variables of its thread are gone.
    struct ForksLate;

    impl Drop for ForksLate {
        fn drop(&mut self) {
            before();
            in_parent();
        }
    }

    /// It ended the process.
    #[test]
    fn a_thread_that_ends_may_fork() {
        thread_local!(static LATE: ForksLate = const { ForksLate });
        AT_FORK.watch();
        let ending = thread::spawn(|| {
            LATE.with(|_| ());
            // This thread's place, which goes before that.
            before();
            in_parent();
        });
        ending.join().unwrap();
    }
}
