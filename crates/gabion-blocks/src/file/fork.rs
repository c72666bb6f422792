//! A forked child's stores stay its own.
//!
//! A shared mapping is shared with a child, too: what it wrote would go to the parent's file, beside the parent. So
//! each file is mapped anew in the child, as a copy that nobody else sees. The child's owner of it is to be closed.
//! What is open for reading only is each process's own from the beginning, and both may read on.

use std::cell::RefCell;
use std::path::Path;
use std::sync::{Arc, Weak};

use super::error::FileError;
use super::mapped::{BlockFile, FileOptions, State};
use crate::error::{BlockError, make_room};
use crate::os::AtFork;
use crate::sync::{Mutex, MutexGuard, lock};

static FILES: Mutex<Vec<Weak<BlockFile>>> = Mutex::new(Vec::new());
static AT_FORK: AtFork = AtFork::new(before, in_parent, in_child);

/// A file and its lock. The lock is let go first.
struct Held {
    state: MutexGuard<'static, State>,
    file: Arc<BlockFile>,
}

struct HeldAll {
    each: Vec<Held>,
    _files: MutexGuard<'static, Vec<Weak<BlockFile>>>,
}

thread_local! {
    /// What the forking thread holds between the two sides of a fork.
    static HELD: RefCell<Option<HeldAll>> = const { RefCell::new(None) };
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
    AT_FORK.watch();
    let mut files = lock(&FILES);
    files.retain(|file| file.strong_count() > 0);
    make_room(&mut files, 1)?;
    files.push(Arc::downgrade(file));
    Ok(())
}

extern "C" fn before() {
    AT_FORK.note_call();
    let files = lock(&FILES);
    let each = files.iter().filter_map(Weak::upgrade).map(|file| {
        // SAFETY: the file outlives its lock, as both are kept together, and the lock is let go first.
        let state = unsafe { std::mem::transmute::<MutexGuard<'_, State>, MutexGuard<'static, State>>(file.lock()) };
        file.note_fork();
        Held { state, file }
    });
    let held = HeldAll { each: each.collect(), _files: files };
    HELD.set(Some(held));
}

extern "C" fn in_parent() {
    drop(HELD.take());
}

extern "C" fn in_child() {
    let held = HELD.take();
    for Held { state, file } in held.iter().flat_map(|held| &held.each) {
        file.part(state);
    }
    drop(held);
}
